//! What a refusal says, word for word.
//!
//! Promise: every form in which providers have been seen to say "wait" can be sent, by name or
//! as free text. Texts may hold placeholders such as `{http-date}`, filled in at each refusal;
//! what is no placeholder is sent as it stands.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderName, HeaderValue, StatusCode};

mod forms;
mod template;

pub use forms::FORMS;
pub use template::{Moment, Template, imf_date};

/// A refusal, throttled or suspended.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub status: StatusCode,
    /// One field for each.
    pub retry_after: Vec<Template>,
    pub headers: Vec<(HeaderName, Template)>,
    /// None: a short JSON document with `error`.
    pub body: Option<Template>,
    /// What to say; none says the time after which the model would admit the call.
    pub wait: Option<Duration>,
    /// Seconds that the provider's clock is ahead.
    pub clock_offset_s: i64,
}

/// A refusal with its times filled in.
#[derive(Debug)]
pub struct RenderedRefusal {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Option<String>,
}

impl Refusal {
    /// `wait`: until the model would admit the call.
    pub fn render(&self, now: SystemTime, wait: Duration) -> RenderedRefusal {
        let wait = self.wait.unwrap_or(wait);
        let moment = Moment { now: offset(now, self.clock_offset_s), wait };
        let retry_after =
            self.retry_after.iter().map(|text| (axum::http::header::RETRY_AFTER, text));
        let others = self.headers.iter().map(|(name, text)| (name.clone(), text));
        let headers = retry_after.chain(others).filter_map(|(name, text)| {
            // The texts around the placeholders were checked when they were set.
            Some((name, HeaderValue::try_from(text.render(&moment)).ok()?))
        });
        RenderedRefusal {
            status: self.status,
            headers: headers.collect(),
            body: self.body.as_ref().map(|body| body.render(&moment)),
        }
    }
}

/// `now` by a clock that is `seconds` ahead, or behind if negative.
pub fn offset(now: SystemTime, seconds: i64) -> SystemTime {
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { now - by } else { now + by }
}

/// The `Retry-After` fields that `text` stands for: a named form's, or `text` itself.
pub fn retry_after(text: &str) -> Vec<Template> {
    match FORMS.iter().find(|form| form.name == text) {
        Some(form) => form.fields.iter().map(|field| Template::parse(field)).collect(),
        None => vec![Template::parse(text)],
    }
}

#[cfg(test)]
mod tests;

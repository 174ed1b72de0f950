//! [`Settings`] as written become a [`Behaviour`].

use std::sync::Arc;

use super::check::{at_most, bounded, header_name, header_text, less, positive, status, wrong};
use super::{
    Behaviour, ConfigError, Cost, CountedSettings, MAX_LIMIT, OneOrMany, Settings, UnitCost,
    WindowSettings, windows,
};
use crate::losses::LossSpec;
use crate::model::{Counted, ModelSpec, PaceSpec, Stall, SuspensionSpec, WindowSpec};
use crate::reply::{Refusal, Template, retry_after};

/// Ten years: dates stay writable.
const MAX_CLOCK_OFFSET_S: u64 = 10 * 366 * 24 * 3600;

impl Settings {
    pub fn validate(&self) -> Result<Behaviour, ConfigError> {
        let cost = self.unit_cost()?;
        let counted = match (self.counted, &cost) {
            (CountedSettings::Completion, _) => Counted::Completion,
            // A cost in the body is not known before.
            (CountedSettings::Body, _) | (_, UnitCost::Json(_)) => Counted::Body,
            (CountedSettings::Arrival, _) => Counted::Arrival,
        };
        Ok(Behaviour {
            model: ModelSpec {
                windows: self.window_specs()?,
                counted,
                count_refused: self.count_refused,
                suspension: self.suspension()?,
            },
            pace: self.pace()?,
            losses: self.losses()?,
            seed: self.seed,
            cost,
            refusal: Arc::new(self.refusal()?),
            suspended: Arc::new(self.suspended()?),
            clock_offset_s: self.clock_offset()?,
        })
    }

    /// The list, or the one quota that `limit`, `window` and `phase` are.
    pub fn all_windows(&self) -> Result<Vec<WindowSettings>, ConfigError> {
        match &self.windows {
            Some(windows) => Ok(windows.clone()),
            None => Ok(vec![self.quota()?]),
        }
    }

    fn quota(&self) -> Result<WindowSettings, ConfigError> {
        let Self { limit, window, phase, .. } = *self;
        match self.model.as_str() {
            "rolling" => Ok(WindowSettings::Rolling { limit, window }),
            "fixed" => Ok(WindowSettings::Fixed { limit, window, phase, jump: None }),
            _ => Err(wrong("windows", "null", "only the models rolling and fixed have no list")),
        }
    }

    fn window_specs(&self) -> Result<Vec<WindowSpec>, ConfigError> {
        match &self.windows {
            Some(list) => windows::validate("windows", list),
            None => Ok(vec![self.quota()?.validate("")?]),
        }
    }

    fn suspension(&self) -> Result<Option<SuspensionSpec>, ConfigError> {
        let Some(after) = self.suspend_after else {
            return Ok(None);
        };
        Ok(Some(SuspensionSpec {
            after: at_most("suspend_after", after, MAX_LIMIT)? as usize,
            within: positive("suspend_within", self.suspend_within)?,
            length: positive("suspend_for", self.suspend_for)?,
        }))
    }

    fn pace(&self) -> Result<PaceSpec, ConfigError> {
        let stall = match self.stall {
            None => None,
            Some(stall) => {
                let every = positive("stall.every", stall.every)?;
                let length = positive("stall.for", stall.length)?;
                Some(Stall { every, length: less("stall.for", length, every, "time between")? })
            }
        };
        Ok(PaceSpec {
            latency: bounded("latency", self.latency)?,
            jitter: bounded("jitter", self.jitter)?,
            stall,
        })
    }

    fn losses(&self) -> Result<LossSpec, ConfigError> {
        if self.lose_every == Some(0) {
            return Err(wrong("lose_every", 0, "1 loses each reply, null loses none"));
        }
        if !(0.0..=1.0).contains(&self.lose_probability) {
            return Err(wrong("lose_probability", self.lose_probability, "0 to 1 are"));
        }
        Ok(LossSpec { every: self.lose_every, probability: self.lose_probability })
    }

    fn unit_cost(&self) -> Result<UnitCost, ConfigError> {
        Ok(match &self.cost {
            None => UnitCost::One,
            Some(Cost::Header(name)) => UnitCost::Header(header_name("cost.header", name)?),
            Some(Cost::Json(field)) => UnitCost::Json(field.as_str().into()),
        })
    }

    fn clock_offset(&self) -> Result<i64, ConfigError> {
        if self.clock_offset_s.unsigned_abs() <= MAX_CLOCK_OFFSET_S {
            return Ok(self.clock_offset_s);
        }
        Err(wrong("clock_offset_s", self.clock_offset_s, "at most ten years are, either way"))
    }

    fn refusal(&self) -> Result<Refusal, ConfigError> {
        let mut headers = Vec::new();
        for (name, values) in &self.refusal_headers {
            let at = format!("refusal_headers.{name}");
            let field = header_name(&at, name)?;
            for value in values.values() {
                header_text(&at, value)?;
                headers.push((field.clone(), Template::parse(value)));
            }
        }
        Ok(Refusal {
            status: status("status", self.status)?,
            retry_after: retry_after_fields("retry_after", self.retry_after.as_ref())?,
            headers,
            body: self.refusal_body.as_deref().map(Template::parse),
            wait: match self.retry_after_in {
                None => None,
                Some(wait) => Some(bounded("retry_after_in", wait)?),
            },
            clock_offset_s: self.clock_offset()?,
        })
    }

    fn suspended(&self) -> Result<Refusal, ConfigError> {
        let field = "suspended_retry_after";
        Ok(Refusal {
            status: status("suspended_status", self.suspended_status)?,
            retry_after: retry_after_fields(field, self.suspended_retry_after.as_ref())?,
            headers: Vec::new(),
            body: self.suspended_body.as_deref().map(Template::parse),
            // What is left.
            wait: None,
            clock_offset_s: self.clock_offset()?,
        })
    }
}

fn retry_after_fields(
    field: &str,
    texts: Option<&OneOrMany>,
) -> Result<Vec<Template>, ConfigError> {
    let mut fields = Vec::new();
    for text in texts.map_or(&[][..], OneOrMany::values) {
        header_text(field, text)?;
        fields.extend(retry_after(text));
    }
    Ok(fields)
}

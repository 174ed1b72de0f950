//! What single values may be.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};

use super::{ConfigError, MAX_DURATION};

pub fn wrong(field: &str, value: impl ToString, allowed: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        field: field.to_owned(),
        value: value.to_string(),
        allowed: allowed.into(),
    }
}

pub fn at_most(field: &str, value: u32, max: u32) -> Result<u32, ConfigError> {
    if value <= max {
        return Ok(value);
    }
    Err(wrong(field, value, format!("0 to {max} are")))
}

pub fn positive(field: &str, value: Duration) -> Result<Duration, ConfigError> {
    if value.is_zero() {
        return Err(wrong(field, "0s", "it must be longer than nothing, such as 1s"));
    }
    bounded(field, value)
}

pub fn bounded(field: &str, value: Duration) -> Result<Duration, ConfigError> {
    if value <= MAX_DURATION {
        return Ok(value);
    }
    let allowed = format!("at most {}", written(MAX_DURATION));
    Err(wrong(field, written(value), allowed))
}

/// `value` must be less than `bound`, which is the `bound_is`.
pub fn less(
    field: &str,
    value: Duration,
    bound: Duration,
    bound_is: &str,
) -> Result<Duration, ConfigError> {
    if value < bound {
        return Ok(value);
    }
    let allowed = format!("it must be less than the {bound_is}, {}", written(bound));
    Err(wrong(field, written(value), allowed))
}

/// Not 1xx: that would be no reply. Beyond 599 there is no meaning.
pub fn status(field: &str, value: u16) -> Result<StatusCode, ConfigError> {
    match StatusCode::from_u16(value) {
        Ok(status) if (200..=599).contains(&value) => Ok(status),
        _ => Err(wrong(field, value, "200 to 599 are")),
    }
}

pub fn header_name(field: &str, name: &str) -> Result<HeaderName, ConfigError> {
    let allowed = "a field name is letters, digits and hyphens";
    HeaderName::try_from(name).map_err(|_| wrong(field, format!("{name:?}"), allowed))
}

pub fn header_text(field: &str, text: &str) -> Result<HeaderValue, ConfigError> {
    let allowed = "a value is one line without control characters";
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| wrong(field, format!("{text:?}"), allowed))
}

fn written(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

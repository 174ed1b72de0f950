//! Changes laid over what is set.
//!
//! Promise: fields that are not given stay, except that naming a preset first takes back what
//! the preset before it had set. A field that would have no effect is refused.

use serde::{Deserialize, de::Deserializer};
use serde_json::{Map, Value};

use super::check::wrong;
use super::{CUSTOM, ConfigError, MODELS, Preset, REPLIES, Settings};

/// Some of the fields of [`Settings`].
pub type Document = Map<String, Value>;

pub fn parse_document(body: &[u8]) -> Result<Document, ConfigError> {
    parse(&mut serde_json::Deserializer::from_slice(body))
}

/// `settings` with the fields of `given`.
pub fn lay(settings: &Settings, given: &Document) -> Result<Settings, ConfigError> {
    let before = document(settings)?;
    if let Some(field) = given.keys().find(|field| !before.contains_key(*field)) {
        let known: Vec<&str> = before.keys().map(String::as_str).collect();
        return Err(ConfigError::Unknown {
            field: field.clone(),
            allowed: format!("{} and force", known.join(", ")),
        });
    }
    let mut after = before.clone();
    lay_preset(&mut after, given, "model", &MODELS)?;
    lay_preset(&mut after, given, "reply", &REPLIES)?;
    after.extend(given.clone());
    if !given.contains_key("model") && given.get("windows").is_some_and(|list| !list.is_null()) {
        after.insert("model".to_owned(), CUSTOM.into());
    }
    let settings: Settings = parse(Value::Object(after))?;
    if settings.windows.is_some() {
        let idle = |field: &&str| given.get(*field).is_some_and(|value| before[*field] != *value);
        if let Some(field) = ["limit", "window", "phase"].iter().find(|field| idle(field)) {
            let allowed = format!("the model {} has a list: windows", settings.model);
            return Err(wrong(field, &given[*field], allowed));
        }
    }
    Ok(settings)
}

fn lay_preset(
    after: &mut Document,
    given: &Document,
    key: &str,
    presets: &[Preset],
) -> Result<(), ConfigError> {
    // Anything else than a text is refused with the rest of the document.
    let Some(Value::String(name)) = given.get(key) else {
        return Ok(());
    };
    let find = |name: &str| presets.iter().find(|preset| preset.name == name);
    let Some(preset) = find(name) else {
        let names: Vec<&str> = presets.iter().map(|preset| preset.name).collect();
        return Err(wrong(key, format!("{name:?}"), format!("{} are", names.join(", "))));
    };
    let defaults = document(&Settings::default())?;
    if let Some(old) = after[key].as_str().and_then(find) {
        for field in old.sets.keys() {
            after.insert(field.clone(), defaults[field].clone());
        }
    }
    after.extend(preset.sets.clone());
    Ok(())
}

fn document(settings: &Settings) -> Result<Document, ConfigError> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(document)) => Ok(document),
        other => Err(ConfigError::Json(format!("settings as JSON: {other:?}"))),
    }
}

pub(super) fn parse<'de, D, T>(input: D) -> Result<T, ConfigError>
where
    D: Deserializer<'de>,
    D::Error: std::fmt::Display,
    T: Deserialize<'de>,
{
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        // A document that is no object, and an unknown field, have no path worth naming.
        let text = match path.as_str() {
            "." | "?" => error.inner().to_string(),
            _ => format!("{path}: {}", error.inner()),
        };
        ConfigError::Json(text)
    })
}

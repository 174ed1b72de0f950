//! Reads one value of the document, knowing where it stands.
//!
//! Every getter either returns what was asked for or says field, value and what is allowed. By hand
//! rather than by a derive, because the same words must come out of YAML at the desk and of JSON in
//! the gateway, with the path to the field.

use serde_json::{Map, Value};

use super::PolicyError;
use crate::units::Micros;

/// Entries of any list: what one call to a decider can name, and one script can read.
const LIST_MAX: usize = 64;

/// A value and its path.
#[derive(Clone)]
pub(super) struct Node<'a> {
    pub path: String,
    value: &'a Value,
}

/// A mapping whose keys are all known.
pub(super) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Node<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    pub fn error(&self, message: impl Into<String>) -> PolicyError {
        let path = if self.path.is_empty() { "policy" } else { &self.path };
        PolicyError { path: path.to_owned(), message: message.into() }
    }

    fn not(&self, wanted: &str) -> PolicyError {
        self.error(format!("{} is not {wanted}", shown(self.value)))
    }

    pub fn fields(&self, known: &[&str]) -> Result<Fields<'a>, PolicyError> {
        let wanted = format!("a mapping; allowed fields: {}", known.join(", "));
        let map = self.value.as_object().ok_or_else(|| self.not(&wanted))?;
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                Err(self.error(format!("unknown field `{key}`; allowed: {}", known.join(", "))))
            }
            None => Ok(Fields { path: self.path.clone(), map }),
        }
    }

    pub fn list(&self) -> Result<Vec<Node<'a>>, PolicyError> {
        let items = self.value.as_array().ok_or_else(|| self.not("a list"))?;
        if items.len() > LIST_MAX {
            let count = items.len();
            return Err(self.error(format!("{count} entries; allowed: at most {LIST_MAX}")));
        }
        let at = |(i, value)| Node { path: format!("{}[{i}]", self.path), value };
        Ok(items.iter().enumerate().map(at).collect())
    }

    /// A list with something in it.
    pub fn some(&self) -> Result<Vec<Node<'a>>, PolicyError> {
        let items = self.list()?;
        if items.is_empty() {
            Err(self.error("is empty; allowed: at least one"))
        } else {
            Ok(items)
        }
    }

    pub fn text(&self) -> Result<&'a str, PolicyError> {
        self.value.as_str().ok_or_else(|| self.not("a text"))
    }

    /// A text that `allowed` accepts.
    pub fn text_that(
        &self,
        allowed: impl Fn(&str) -> bool,
        wanted: &str,
    ) -> Result<String, PolicyError> {
        let text = self.text()?;
        if allowed(text) {
            Ok(text.to_owned())
        } else {
            Err(self.error(format!("`{text}` is not allowed; allowed: {wanted}")))
        }
    }

    pub fn number(&self, low: u32, high: u32) -> Result<u32, PolicyError> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| (low..=high).contains(number)).ok_or_else(|| {
            if low == high {
                self.not(&format!("{low}, the only one there is"))
            } else {
                self.not(&format!("a whole number from {low} to {high}"))
            }
        })
    }

    pub fn duration(&self, low: Micros, high: Micros) -> Result<Micros, PolicyError> {
        let text = self.value.as_str().ok_or_else(|| self.not("a duration like 50ms or 10m"))?;
        let duration = Micros::parse(text).map_err(|bad| self.error(bad.to_string()))?;
        if (low..=high).contains(&duration) {
            Ok(duration)
        } else {
            Err(self.error(format!("`{text}` is out of range; allowed: {low} to {high}")))
        }
    }
}

impl<'a> Fields<'a> {
    /// A field that may be left out; written as null counts as left out.
    pub fn optional(&self, name: &str) -> Option<Node<'a>> {
        let dot = if self.path.is_empty() { "" } else { "." };
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        Some(Node { path: format!("{}{dot}{name}", self.path), value })
    }

    pub fn required(&self, name: &str) -> Result<Node<'a>, PolicyError> {
        self.optional(name).ok_or_else(|| {
            let path = if self.path.is_empty() { "policy" } else { &self.path };
            PolicyError { path: path.to_owned(), message: format!("field `{name}` is missing") }
        })
    }

    /// The items of a list that may be left out.
    pub fn items(&self, name: &str) -> Result<Vec<Node<'a>>, PolicyError> {
        self.optional(name).map_or(Ok(Vec::new()), |node| node.list())
    }
}

/// A value as it is quoted in an error: bounded, for it may be anything.
fn shown(value: &Value) -> String {
    const SHOWN_MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("`{}…`", text.get(..end).unwrap_or_default()),
        None => format!("`{text}`"),
    }
}

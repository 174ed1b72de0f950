//! The fields of a JSON message that the judge looks at.
//!
//! Promise: only what the judge needs is kept; everything else is skipped, not built.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::record::messages::MessageId;

/// A longer class name is cut, so that a sender cannot make the report grow.
pub const NAME_CHARS: usize = 64;
/// A dearer call counts as this many units.
pub const MAX_UNITS: u32 = 1_000_000;

/// What a body says about its call.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Message {
    pub class: Option<String>,
    /// The text field `id`.
    pub id: Option<MessageId>,
    /// What the field of the cost says.
    pub units: Option<u32>,
}

impl Message {
    /// The fields of `body`, if it is a JSON object. A field given twice has its last value.
    pub fn read(body: &[u8], cost_field: Option<&str>) -> Option<Self> {
        // serde would also read a map from an array.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let message = Fields { cost_field }.deserialize(&mut json).ok()?;
        json.end().ok()?;
        Some(message)
    }
}

/// Units that `text`, a header or a JSON text, says a call costs.
pub fn units_of(text: &str) -> Option<u32> {
    let number: f64 = text.trim().parse().ok()?;
    units_of_number(number)
}

/// A call costs at least one unit, and parts of units count as whole ones.
fn units_of_number(number: f64) -> Option<u32> {
    number.is_finite().then(|| number.ceil().clamp(1.0, f64::from(MAX_UNITS)) as u32)
}

/// A list costs one unit per element.
fn units_of_value(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => units_of_number(number.as_f64()?),
        Value::Array(list) => units_of_number(list.len() as f64),
        Value::String(text) => units_of(text),
        _ => None,
    }
}

struct Fields<'a> {
    cost_field: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Message;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Message, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
        let mut message = Message::default();
        while let Some(field) = map.next_key::<String>()? {
            let is_cost = self.cost_field == Some(field.as_str());
            if field != "class" && field != "id" && !is_cost {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: Value = map.next_value()?;
            if is_cost {
                message.units = units_of_value(&value);
            }
            if let Value::String(text) = value {
                match field.as_str() {
                    "class" => message.class = Some(text.chars().take(NAME_CHARS).collect()),
                    "id" => message.id = Some(MessageId::new(&text)),
                    _ => {}
                }
            }
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_units(body: &str, expected: Option<u32>) {
        let message = Message::read(body.as_bytes(), Some("recipients"));
        assert_eq!(message.and_then(|message| message.units), expected, "{body}");
    }

    #[test]
    fn units_are_a_number_or_the_length_of_a_list() {
        check_units(r#"{"recipients":3}"#, Some(3));
        check_units(r#"{"to":{"recipients":9},"recipients":["a","b"]}"#, Some(2));
        check_units(r#"{"recipients":"12"}"#, Some(12));
    }

    #[test]
    fn a_call_costs_at_least_one_unit_and_parts_count_as_whole() {
        check_units(r#"{"recipients":0}"#, Some(1));
        check_units(r#"{"recipients":[]}"#, Some(1));
        check_units(r#"{"recipients":-4}"#, Some(1));
        check_units(r#"{"recipients":1.2}"#, Some(2));
        check_units(r#"{"recipients":1e99}"#, Some(MAX_UNITS));
    }

    #[test]
    fn what_is_no_number_says_nothing() {
        check_units(r#"{"recipients":null}"#, None);
        check_units(r#"{"recipients":"many"}"#, None);
        check_units(r#"{"other":3}"#, None);
        check_units(r#"[{"recipients":3}]"#, None);
        check_units(r#"{"recipients":3} rest"#, None);
    }

    #[test]
    fn only_a_text_is_an_id() {
        let id = |body: &str| Message::read(body.as_bytes(), None).and_then(|message| message.id);
        assert_eq!(id(r#"{"id":"a7"}"#), Some(MessageId::new("a7")));
        assert_eq!(id(r#"{"id":7}"#), None);
        assert_eq!(id(r#"{"inner":{"id":"a7"}}"#), None);
    }
}

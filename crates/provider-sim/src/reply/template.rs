//! Texts with placeholders for the time.
//!
//! Promise: honest forms never say a time that is too short: they are rounded up, to the
//! second where they have no finer unit.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::StaticFormatDescription;
use time::macros::format_description;

const IMF: StaticFormatDescription = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);
const RFC850: StaticFormatDescription = format_description!(
    "[weekday], [day]-[month repr:short]-[year repr:last_two] [hour]:[minute]:[second] GMT"
);
const ASCTIME: StaticFormatDescription = format_description!(
    "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]"
);
const PAST: Duration = Duration::from_secs(3600);

/// When a refusal is sent, by the provider's clock, and how long it tells the caller to wait.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub now: SystemTime,
    pub wait: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Seconds,
    SecondsFloor,
    Millis,
    Decimal,
    Go,
    HttpDate,
    Rfc850Date,
    AsctimeDate,
    LowercaseDate,
    PastDate,
    EpochSeconds,
    EpochMillis,
}

/// In braces, these names stand for the value.
const PLACEHOLDERS: [(&str, Value); 12] = [
    ("s", Value::Seconds),
    ("s-floor", Value::SecondsFloor),
    ("ms", Value::Millis),
    ("decimal", Value::Decimal),
    ("go", Value::Go),
    ("http-date", Value::HttpDate),
    ("rfc850-date", Value::Rfc850Date),
    ("asctime-date", Value::AsctimeDate),
    ("lowercase-date", Value::LowercaseDate),
    ("past-date", Value::PastDate),
    ("epoch-s", Value::EpochSeconds),
    ("epoch-ms", Value::EpochMillis),
];

impl Template {
    /// Every text is one: braces that enclose no placeholder are text.
    pub fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(brace) = rest.find('{') {
            let (before, at_brace) = rest.split_at(brace);
            plain.push_str(before);
            match placeholder(at_brace) {
                Some((value, length)) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Value(value));
                    rest = &at_brace[length..];
                }
                None => {
                    plain.push('{');
                    rest = &at_brace[1..];
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Self { pieces }
    }

    pub fn render(&self, moment: &Moment) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value(value) => value.write(moment, &mut text),
            }
        }
        text
    }
}

/// The placeholder that `text` begins with, and its length.
fn placeholder(text: &str) -> Option<(Value, usize)> {
    let name = text.strip_prefix('{')?.split_once('}')?.0;
    let (_, value) = PLACEHOLDERS.iter().find(|(known, _)| *known == name)?;
    Some((*value, name.len() + 2))
}

impl Value {
    fn write(self, moment: &Moment, text: &mut String) {
        let Moment { now, wait } = *moment;
        let until = now + wait;
        // Writing into a String does not fail.
        let _ = match self {
            Self::Seconds => write!(text, "{}", up(wait, 1)),
            Self::SecondsFloor => write!(text, "{}", wait.as_secs()),
            Self::Millis => write!(text, "{}", up(wait, 1_000)),
            Self::Decimal => {
                let ms = up(wait, 1_000);
                write!(text, "{}.{:03}", ms / 1_000, ms % 1_000)
            }
            Self::Go => text.write_str(&go(up(wait, 1))),
            Self::HttpDate => text.write_str(&date(until, IMF)),
            Self::Rfc850Date => text.write_str(&date(until, RFC850)),
            Self::AsctimeDate => text.write_str(&date(until, ASCTIME)),
            Self::LowercaseDate => text.write_str(&date(until, IMF).to_ascii_lowercase()),
            Self::PastDate => text.write_str(&date(now - PAST, IMF)),
            Self::EpochSeconds => write!(text, "{}", epoch(until, 1)),
            Self::EpochMillis => write!(text, "{}", epoch(until, 1_000)),
        };
    }
}

/// The date for a `Date` field, which says the second that has begun.
pub fn imf_date(now: SystemTime) -> String {
    let whole = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    date(UNIX_EPOCH + Duration::from_secs(whole), IMF)
}

/// Rounded up to the second.
fn date(at: SystemTime, format: StaticFormatDescription) -> String {
    let seconds = i64::try_from(epoch(at, 1)).unwrap_or(i64::MAX);
    // Out of range only beyond the year 9999.
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    at.format(format).unwrap_or_default()
}

fn epoch(at: SystemTime, per_second: u128) -> u128 {
    up(at.duration_since(UNIX_EPOCH).unwrap_or_default(), per_second)
}

/// In parts of a second, rounded up.
fn up(duration: Duration, per_second: u128) -> u128 {
    (duration.as_nanos() * per_second).div_ceil(1_000_000_000)
}

/// As Go prints durations: 1s, 1m0s, 1h0m0s.
fn go(seconds: u128) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, m) => format!("{m}m{s}s"),
        (h, m) => format!("{h}h{m}m{s}s"),
    }
}

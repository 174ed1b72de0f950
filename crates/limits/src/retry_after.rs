//! How long a provider asks us to stop.
//!
//! RFC 9110, 10.2.3 allows delay-seconds or an HTTP-date. Providers also send decimals, epoch
//! seconds, Go durations, several values and nonsense, so: whatever can be read without a guess is
//! read and rounded up, of several values the longest counts, a time that has passed means the
//! shortest pause, and the rest is invalid and worth the default.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{policy::Throttle, units::Micros};

/// The shortest pause: many providers round their own time down.
pub const PAUSE_MIN: Micros = Micros::SECOND;
/// Values looked at in one reply; further ones are ignored.
const VALUES_MAX: usize = 16;
/// A field longer than this holds no time.
const FIELD_MAX: usize = 256;

/// What the reply's Retry-After fields said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A time that could be read.
    Time,
    /// Fields, but none that could be read.
    Invalid,
    /// No field.
    Nothing,
}

/// The pause after a throttled reply, [`PAUSE_MIN`] to the policy's `max_pause`.
///
/// `values` are the Retry-After fields, `date` the reply's Date field; `wall_now` (µs since the
/// epoch) stands in for a missing or unreadable Date.
pub fn pause<'a>(
    values: impl IntoIterator<Item = &'a [u8]>,
    date: Option<&[u8]>,
    wall_now: Micros,
    throttle: &Throttle,
) -> (Micros, Said) {
    let now = date.and_then(text).and_then(http_date).unwrap_or(wall_now);
    let mut said = Said::Nothing;
    let mut longest = None;
    for field in values.into_iter().take(VALUES_MAX) {
        said = Said::Invalid;
        let items = text(field).map(items).unwrap_or_default();
        longest = items.iter().filter_map(|item| delay(item, now)).max().max(longest);
    }
    let (pause, said) = match longest {
        Some(delay) => (delay, Said::Time),
        None => (throttle.default_pause, said),
    };
    (pause.max(PAUSE_MIN).min(throttle.max_pause.max(PAUSE_MIN)), said)
}

/// An instant (µs since the epoch) as an HTTP-date, cut to the second; years beyond 9999 as the epoch.
pub fn date_text(at: Micros) -> String {
    const YEAR_10000: Micros = Micros::from_secs(253_402_300_800);
    let at = if at < YEAR_10000 { at } else { Micros::ZERO };
    let then = UNIX_EPOCH.checked_add(Duration::from_micros(at.0)).unwrap_or(UNIX_EPOCH);
    httpdate::fmt_http_date(then)
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok().filter(|text| text.len() <= FIELD_MAX && text.is_ascii())
}

/// Splits a list at its commas, except at the comma of a date, which follows a day's name.
fn items(field: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut day: Option<&str> = None;
    for part in field.split(',').take(VALUES_MAX) {
        let part = part.trim();
        match day.take() {
            Some(name) => items.push(format!("{name}, {part}")),
            None if part.len() >= 3 && part.bytes().all(|b| b.is_ascii_alphabetic()) => {
                day = Some(part)
            }
            None => items.push(part.to_owned()),
        }
    }
    items
}

/// One value as a span from `now`; zero when its time has passed.
fn delay(item: &str, now: Micros) -> Option<Micros> {
    if !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: u64 = item.parse().ok()?;
        return match item.len() {
            1..=9 => Some(Micros::from_secs(number)),
            10 => Some(Micros::from_secs(number).minus(now)),
            13 => Some(Micros::from_millis(number).minus(now)),
            _ => None,
        };
    }
    decimal(item).or_else(|| duration(item)).or_else(|| http_date(item).map(|then| then.minus(now)))
}

/// `2.0`, `0.493`: seconds, rounded up to whole ones.
fn decimal(item: &str) -> Option<Micros> {
    let (whole, fraction) = item.split_once('.')?;
    let digits =
        |part: &str| (1..=9).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let up = u64::from(fraction.bytes().any(|byte| byte != b'0'));
    Some(Micros::from_secs(whole.parse::<u64>().ok()?.saturating_add(up)))
}

/// `60s`, `1m0s`, `250ms`: numbers with units that get smaller.
fn duration(item: &str) -> Option<Micros> {
    let mut rest = item;
    let mut total = Micros::ZERO;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest.bytes().skip(digits).take_while(u8::is_ascii_alphabetic).count();
        let (part, after) = rest.split_at_checked(digits + letters)?;
        let one = Micros::parse(&format!("1{}", part.get(digits..)?)).ok()?;
        if one.0 >= last {
            return None;
        }
        last = one.0;
        total = total.plus(Micros::parse(part).ok()?);
        rest = after;
    }
    (last != u64::MAX).then_some(total)
}

/// Any of the three forms of RFC 9110, 5.6.7, in any case, as µs since the epoch.
fn http_date(item: &str) -> Option<Micros> {
    let mut after_letter = false;
    let canonical: String = item
        .trim()
        .chars()
        .map(|c| {
            let cased = if after_letter { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
            after_letter = c.is_ascii_alphabetic();
            cased
        })
        .collect();
    let then: SystemTime = httpdate::parse_http_date(&canonical.replace("Gmt", "GMT")).ok()?;
    let since = then.duration_since(UNIX_EPOCH).ok()?;
    Some(Micros::from_secs(since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    /// `DATE` in seconds since the epoch.
    const DATE_S: u64 = 784_111_777;

    fn throttle() -> Throttle {
        Throttle {
            statuses: vec![429],
            default_pause: Micros::from_secs(5),
            max_pause: Micros::from_secs(3_600),
        }
    }

    /// The pause for these fields in a reply of `DATE`, seen by a gateway whose clock is far off.
    fn check(fields: &[&str]) -> (u64, Said) {
        let values = fields.iter().map(|field| field.as_bytes());
        let (pause, said) = pause(values, Some(DATE.as_bytes()), Micros(7), &throttle());
        assert_eq!(pause.0 % 1_000, 0);
        (pause.0 / 1_000, said)
    }

    #[test]
    fn dates_are_written_as_they_are_read() {
        assert_eq!(date_text(Micros::from_secs(DATE_S)), DATE);
        assert_eq!(date_text(Micros(u64::MAX)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn readable_times_are_obeyed() {
        for (field, ms) in [
            ("1", 1_000),
            (" 7 ", 7_000),
            ("2.0", 2_000),
            ("1.001", 2_000),
            ("0.493", 1_000),
            ("60s", 60_000),
            ("1m0s", 60_000),
            ("1m30s", 90_000),
            ("1500ms", 1_500),
            ("784111787", 3_600_000),
            ("Sun, 06 Nov 1994 08:49:47 GMT", 10_000),
            ("sun, 06 nov 1994 08:49:47 gmt", 10_000),
            ("Sunday, 06-Nov-94 08:49:47 GMT", 10_000),
            ("Sun Nov  6 08:49:47 1994", 10_000),
        ] {
            assert_eq!(check(&[field]), (ms, Said::Time), "{field}");
        }
    }

    #[test]
    fn epoch_times_are_measured_from_the_replys_own_date() {
        // Ten and thirteen digits: an instant in 2026, seen in a reply of that time.
        let date = b"Tue, 01 Dec 2026 12:00:00 GMT";
        let at = |field: &str| pause([field.as_bytes()], Some(date), Micros(7), &throttle()).0;
        assert_eq!(at("1796126410"), Micros::from_secs(10));
        assert_eq!(at("1796126410500"), Micros::from_millis(10_500));
        assert_eq!(check(&[&format!("{}", DATE_S * 10)]).1, Said::Time);
    }

    #[test]
    fn without_a_date_the_gateways_clock_is_used() {
        let now = Micros::from_secs(DATE_S);
        let (pause, _) =
            pause([b"Sun, 06 Nov 1994 08:49:47 GMT".as_slice()], None, now, &throttle());
        assert_eq!(pause, Micros::from_secs(10));
    }

    #[test]
    fn a_time_that_has_passed_means_the_shortest_pause() {
        for field in ["0", "0.0", "0s", "Sat, 05 Nov 1994 08:49:37 GMT"] {
            assert_eq!(check(&[field]), (1_000, Said::Time), "{field}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_worth_the_default() {
        for field in [
            "",
            "-1",
            "nan",
            "1e999",
            "soon",
            "12345678901",
            "99999999999999999999",
            "1.2.3",
            "1.",
            ".5",
            "1s1m",
            "1m1m",
            "5 s",
            "Sun, 99 Nov 1994 08:49:47 GMT",
            "Mon",
            "\u{fc}",
        ] {
            assert_eq!(check(&[field]), (5_000, Said::Invalid), "{field}");
        }
        assert_eq!(check(&[]), (5_000, Said::Nothing));
    }

    #[test]
    fn of_several_values_the_longest_counts() {
        assert_eq!(check(&["1", "30"]), (30_000, Said::Time));
        assert_eq!(check(&["1, 40, x"]), (40_000, Said::Time));
        assert_eq!(check(&["5, Sun, 06 Nov 1994 08:50:37 GMT, 7"]), (60_000, Said::Time));
    }

    #[test]
    fn pauses_are_clamped() {
        assert_eq!(check(&["999999999"]).0, 3_600_000);
        assert_eq!(check(&["Sat, 06 Nov 2094 08:49:37 GMT"]).0, 3_600_000);
    }
}

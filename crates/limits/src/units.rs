//! Time as whole microseconds.
//!
//! Integers, because a rounded-down interval lets 90.0009 requests a second through a limit of 90.
//! Everything saturates: a policy or a clock may be absurd, the arithmetic may not wrap.

use std::fmt;

/// A span of time, or an instant on a clock named by its context, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a duration; allowed: a whole number and us, ms, s, m or h, like 50ms or 10m"
)]
pub struct BadDuration {
    text: String,
}

/// Units by descending length of suffix, so that `ms` is not read as `s`.
const UNITS: [(&str, u64); 5] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];

impl Micros {
    pub const ZERO: Self = Self(0);
    pub const SECOND: Self = Self(1_000_000);

    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }

    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Zero when `other` is later.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// Rounded up: by how much clocks are taken to differ.
    pub const fn hundredth(self) -> Self {
        Self(self.0.div_ceil(100))
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole milliseconds, rounded up: a wait that is told is never shorter than the true one.
    pub const fn ceil_millis(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Reads `50ms`, `1s`, `10m`.
    ///
    /// # Errors
    /// Anything but a whole number directly followed by us, ms, s, m or h; or more than a `u64`
    /// of microseconds.
    pub fn parse(text: &str) -> Result<Self, BadDuration> {
        let bad = || BadDuration { text: text.to_owned() };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(bad)?;
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(*scale).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Micros {
    /// In the largest unit that needs no fraction: `1500ms`, not `1.5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) = UNITS
            .iter()
            .rev()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale))
            .unwrap_or(&("s", 1_000_000));
        write!(f, "{}{name}", self.0 / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for text in ["0s", "1us", "50ms", "1500ms", "1s", "10m", "1h"] {
            assert_eq!(Micros::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "1",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "1d",
            "1S",
            "99999999999999999999s",
            "5124095576030431h",
            "µs",
        ] {
            assert!(Micros::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn told_times_are_rounded_up() {
        assert_eq!(Micros(1).ceil_millis(), 1);
        assert_eq!(Micros(1_000_001).ceil_secs(), 2);
        assert_eq!(Micros(1_000_000).ceil_secs(), 1);
    }
}

//! What there is to send: login codes as people log in, and a campaign in one of four shapes.

use std::str::FromStr;
use std::time::Duration;

use crate::schedule::{Arrivals, Stream};

const OTP_PER_S: f64 = 10.0;
const CAMPAIGN_PER_S: f64 = 200.0;

/// The campaign; login codes come at random, 10 a second, with all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// 200 a second, evenly. Exposes no counter per second at all.
    Even,
    /// 200 a second, at random.
    Poisson,
    /// One request, quiet, then 1,000 a second from 0.8 s for 0.8 s.
    LateBurst,
    /// 300 in the first moment.
    AtOnce,
}

impl Load {
    pub const ALL: [Self; 4] = [Self::Even, Self::Poisson, Self::LateBurst, Self::AtOnce];

    pub fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Poisson => "poisson",
            Self::LateBurst => "late-burst",
            Self::AtOnce => "at-once",
        }
    }

    /// Login codes first, then the campaign. What is made goes into a queue; it is not yet sent.
    pub fn streams(self, lasting: Duration, seed: u64) -> Vec<Stream> {
        let otp = Arrivals::Poisson { per_s: OTP_PER_S, lasting, seed };
        let mut streams = vec![Stream::new("otp", otp)];
        let mut marketing = |arrivals, starts_after| {
            let stream = Stream::new("marketing", arrivals);
            streams.push(Stream { starts_after, ..stream });
        };
        let zero = Duration::ZERO;
        let per_s = CAMPAIGN_PER_S;
        match self {
            Self::Even => marketing(Arrivals::Even { per_s, lasting }, zero),
            Self::Poisson => {
                // Another sequence than the login codes'.
                let seed = seed.wrapping_add(1_000);
                marketing(Arrivals::Poisson { per_s, lasting, seed }, zero);
            }
            Self::LateBurst => {
                let moment = Duration::from_millis(800);
                marketing(Arrivals::AtOnce { count: 1 }, zero);
                marketing(Arrivals::Even { per_s: 1_000.0, lasting: moment }, moment);
            }
            Self::AtOnce => marketing(Arrivals::AtOnce { count: 300 }, zero),
        }
        streams
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|load| load.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| format!("one of {} is allowed", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_burst_is_one_request_quiet_and_eight_hundred() {
        let streams = Load::LateBurst.streams(Duration::from_secs(5), 1);
        let due = |stream: &Stream| {
            let due = stream.arrivals.due();
            let at = |due: Option<&Duration>| (stream.starts_after + *due.unwrap()).as_millis();
            (due.len(), at(due.first()), at(due.last()))
        };
        assert_eq!(due(&streams[1]), (1, 0, 0));
        assert_eq!(due(&streams[2]), (800, 800, 1_599));
    }
}

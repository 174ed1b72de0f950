//! The ways in which 23 processes have been seen to share one account, and Weir.
//!
//! Each is as its authors would write it on a good day: it waits as long as a refusal says, unless
//! its mistake is just that. What it is and where it fails is said once, here, for every report.

use std::str::FromStr;
use std::time::Duration;

/// What the account was sold with, and what all but the last designs aim at.
pub const CONTRACT_PER_S: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Design {
    FixedShare,
    CheckThenCount,
    CountFirst,
    TokenBucket,
    SingleSender,
    SlidingLog,
    Gcra100,
    Gcra90,
    Weir,
}

impl Design {
    pub const ALL: [Self; 9] = [
        Self::FixedShare,
        Self::CheckThenCount,
        Self::CountFirst,
        Self::TokenBucket,
        Self::SingleSender,
        Self::SlidingLog,
        Self::Gcra100,
        Self::Gcra90,
        Self::Weir,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FixedShare => "v1",
            Self::CheckThenCount => "v2",
            Self::CountFirst => "A",
            Self::TokenBucket => "token-bucket",
            Self::SingleSender => "C",
            Self::SlidingLog => "sliding-log",
            Self::Gcra100 => "gcra-100",
            Self::Gcra90 => "gcra-90",
            Self::Weir => "weir",
        }
    }

    /// What it does, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::FixedShare => "a fixed share per pod",
            Self::CheckThenCount => "GET, compare, INCR in Redis",
            Self::CountFirst => "INCR first, a counter per second",
            Self::TokenBucket => "managed task queue (token bucket)",
            Self::SingleSender => "one sender that paces",
            Self::SlidingLog => "exact log of the last second",
            Self::Gcra100 => "GCRA in Redis at 100/s",
            Self::Gcra90 => "GCRA in Redis at 90/s",
            Self::Weir => "Weir on the egress gateway",
        }
    }

    /// Why it exceeds the contract or makes login codes wait: one sentence for a manager.
    pub fn weakness(self) -> &'static str {
        match self {
            Self::FixedShare => {
                "The share is 100 ÷ the pods of the last deployment; when the campaign scales up, \
                 every new pod brings another share."
            }
            Self::CheckThenCount => {
                "Several pods read the same number before any of them counts; a new second starts \
                 from zero; and each refusal is tried again at once, so one mistake becomes four."
            }
            Self::CountFirst => {
                "The count is exact, but it starts from zero every second: what goes at the end of \
                 one second and at the start of the next is too much for a second laid between."
            }
            Self::TokenBucket => {
                "What was saved in a quiet time is spent at once, on top of the full rate; and \
                 login codes wait in line for their token."
            }
            Self::SingleSender => {
                "Right on average, but at exactly 100/s any delay on the way bunches two seconds \
                 into one; and one process is no answer when it dies or two run during a roll-out."
            }
            Self::SlidingLog => {
                "Exact when it decides, but requests arrive later than that, each by another \
                 delay: what left in two seconds arrives in one."
            }
            Self::Gcra100 => {
                "Evenly spaced, but with no margin: at exactly 100/s the delay on the way is \
                 enough to exceed. No class comes first, so login codes wait for their luck."
            }
            Self::Gcra90 => {
                "The right number: the contract is kept. But login codes compete with 22 marketing \
                 pods, a provider's refusal reaches one pod only, and every sender must take part."
            }
            Self::Weir => {
                "The contract is kept with margin, marketing has a cap of its own, and login codes \
                 go first."
            }
        }
    }

    /// What a sender does with a refusal.
    pub(crate) fn tries_at_once(self) -> u32 {
        match self {
            Self::CheckThenCount => 4,
            _ => 1,
        }
    }

    /// Whether a sender that was refused pauses as long as it was told.
    pub(crate) fn pauses(self) -> bool {
        self != Self::CheckThenCount
    }
}

impl FromStr for Design {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|design| design.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("one of {names} is allowed")
        })
    }
}

/// One process that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pod {
    pub system: &'static str,
    pub number: usize,
    pub class: &'static str,
    /// Messages that it works on at the same time.
    pub workers: usize,
    /// From the beginning.
    pub starts: Duration,
}

/// Every login is a request of its own; a worker of a campaign sends one message after the other.
const LOGINS_AT_ONCE: usize = 16;

/// The evening: 2 pods of the campaign become 16, then 20; with those of the cart and of the login
/// 23 in all. 5 run when the shares are laid down.
pub fn roster(lasting: Duration) -> Vec<Pod> {
    let starts = |number: usize| match number {
        0..2 => Duration::ZERO,
        2..16 => lasting.mul_f64(0.4),
        _ => lasting.mul_f64(0.7),
    };
    let notify = (0..20).map(|number| Pod {
        system: "notify",
        number,
        class: "marketing",
        workers: 1,
        starts: starts(number),
    });
    let fixed = |system, number, class, workers| {
        let starts = Duration::ZERO;
        Pod { system, number, class, workers, starts }
    };
    let login = fixed("login", 0, "otp", LOGINS_AT_ONCE);
    let cart = [0, 1].map(|number| fixed("cart", number, "marketing", 1));
    [login].into_iter().chain(cart).chain(notify).collect()
}

/// Pods that run when a deployment computes its shares.
pub(crate) const PODS_AT_DEPLOY: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for design in Design::ALL {
            assert_eq!(design.name().to_uppercase().parse(), Ok(design));
        }
        assert!("v3".parse::<Design>().unwrap_err().contains("v1, v2, A"));
    }

    #[test]
    fn five_pods_become_nineteen_and_then_twenty_three() {
        let running = |ms| {
            let at = Duration::from_millis(ms);
            roster(Duration::from_secs(5)).iter().filter(|pod| pod.starts <= at).count()
        };
        assert_eq!((running(0), running(2_000), running(5_000)), (5, 19, 23));
        assert_eq!(running(0), PODS_AT_DEPLOY as usize);
    }
}

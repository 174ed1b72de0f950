//! How each design decides that a request may go. Each waits until it may.
//!
//! Promise: what a design gets wrong is in here as it is in the field, and nothing else is wrong:
//! every other sender waits for the right moment instead of asking in a loop, and holds back when
//! Redis does not answer.

mod counter;
mod pace;
mod script;

use redis::RedisResult;

use crate::design::{CONTRACT_PER_S, Design, PODS_AT_DEPLOY};
use crate::queue::connect;
use counter::{CheckThenCount, CountFirst};
use pace::Pace;
use script::Scripted;

/// Saved up in a quiet time by a managed queue's bucket ("some tens").
const BUCKET: u64 = 50;

/// What a pod may send by itself in v1; its workers have it in common.
#[derive(Clone)]
pub(crate) struct Share(Pace);

impl Share {
    pub fn of_a_pod() -> Self {
        Self(Pace::new(CONTRACT_PER_S / PODS_AT_DEPLOY))
    }
}

pub(crate) enum Permit {
    Paced(Pace),
    Checked(CheckThenCount),
    Counted(CountFirst),
    Scripted(Scripted),
    /// The gateway decides.
    None,
}

impl Permit {
    /// `sender` is unlike any other's; `share` is its pod's.
    pub async fn of(design: Design, redis: &str, sender: &str, share: &Share) -> RedisResult<Self> {
        let per_s = CONTRACT_PER_S;
        Ok(match design {
            Design::FixedShare => Self::Paced(share.0.clone()),
            Design::SingleSender => Self::Paced(Pace::new(per_s)),
            Design::CheckThenCount => Self::Checked(CheckThenCount::new(connect(redis).await?)),
            Design::CountFirst => Self::Counted(CountFirst::new(connect(redis).await?)),
            Design::TokenBucket => {
                let bucket = Scripted::token_bucket(connect(redis).await?, per_s, BUCKET);
                Self::Scripted(bucket)
            }
            Design::SlidingLog => {
                Self::Scripted(Scripted::sliding_log(connect(redis).await?, per_s, sender))
            }
            Design::Gcra100 => Self::Scripted(Scripted::gcra(connect(redis).await?, per_s, 5)),
            Design::Gcra90 => Self::Scripted(Scripted::gcra(connect(redis).await?, 90, 5)),
            Design::Weir => Self::None,
        })
    }

    /// Returns when the next request may go.
    pub async fn pass(&mut self) {
        match self {
            Self::Paced(pace) => pace.pass().await,
            Self::Checked(counter) => counter.pass().await,
            Self::Counted(counter) => counter.pass().await,
            Self::Scripted(script) => script.pass().await,
            Self::None => {}
        }
    }
}

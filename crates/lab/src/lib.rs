//! Load for demo and tests, and the comparison of sender designs.
//!
//! [`send()`] promises: requests leave when the schedule says so, whatever earlier answers do. A sender that
//! waits for answers would slow down exactly when the system under test does, and hide it. What
//! could not be sent in time is reported as such, never silently skipped or sent later.
//!
//! [`replay()`] promises: a [`Design`] is run as it is in the field, on a real Redis, and judged by
//! what the provider saw.
//!
//! The lab knows nothing of Weir's arithmetic; it sends, measures and counts.

mod design;
pub mod http;
mod judge;
mod load;
mod permit;
mod queue;
mod relay;
mod replay;
mod schedule;
mod sender;
mod summary;
#[cfg(test)]
mod testing;

pub use design::{CONTRACT_PER_S, Design, Pod, roster};
pub use judge::{Arrival, Judge, Report, WindowReport};
pub use load::Load;
pub use relay::Relay;
pub use replay::{Accounts, OtpWait, Outcome, ReplayError, Site, Tenth, Trial, replay};
pub use schedule::{Arrivals, Stream};
pub use sender::{Answer, Failure, Run, Sent, Target, send};
pub use summary::{Summary, percentile};

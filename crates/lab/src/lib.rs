//! Load for demo, tests and comparisons.
//!
//! Promise: requests leave when the schedule says so, whatever earlier answers do. A sender that
//! waits for answers would slow down exactly when the system under test does, and hide it. What
//! could not be sent in time is reported as such, never silently skipped or sent later.
//!
//! The lab knows nothing of Weir's arithmetic; it sends, measures and counts.

pub mod http;
mod schedule;
mod sender;
mod summary;

pub use schedule::{Arrivals, Stream};
pub use sender::{Answer, Failure, Run, Sent, Target, send};
pub use summary::{Summary, percentile};

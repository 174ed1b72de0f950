//! Runs that never took place, for tests of what the demo makes of its runs.

use std::time::Duration;

use lab::{Accounts, Design, OtpWait, Outcome, Tenth};

use super::Done;

pub const TENTHS: u64 = 30;

/// Three seconds, evenly filled; what was refused came in the first tenth. One login code took 10 ms,
/// which is all of them.
pub fn done(design: Design, provider: &'static str, refused: u64) -> Done {
    let accounts = Accounts { made: 2, acknowledged: 1, queued: 1, accepted: 1, accepted_twice: 0 };
    let tenth = Tenth { accepted: 9, refused: 0, in_last_second: 90 };
    let mut tenths = vec![tenth; TENTHS as usize];
    tenths[0].refused = refused as u32;
    let made = Duration::from_secs(1);
    let outcome = Outcome {
        refused,
        refused_later: 0,
        max_in_any_1s: 90 + refused,
        suspended_after_s: None,
        windows: Vec::new(),
        otp_sent: 10 - refused,
        marketing_sent: 100,
        otp_waits: vec![OtpWait { made, wait: made / 100, accepted: true }],
        tenths,
        accounts,
    };
    Done { design, provider, outcome }
}

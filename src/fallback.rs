//! What a gateway may send when the decider cannot answer: its share of the headroom.
//!
//! Promise: whatever the decider grants to others meanwhile, the contract holds, for ever
//! (`limits::worst::headroom` has the arithmetic). The highest class comes first: lower classes keep
//! to their proportion of it, and stand back for a while after a higher one was refused.

use limits::Micros;

use crate::{config::Headroom, record::Record};

/// How many shares long a refused higher class finds the next one reserved: long enough to come
/// back after the wait it was told.
const RESERVED_SHARES: u64 = 2;
/// Told when the headroom is nothing: nobody knows when the decider returns.
const NOTHING_WAIT: Micros = Micros::from_secs(5);

/// Decides for one request; `Err` is the time after which it is worth to come back.
pub fn decide(
    headroom: &Headroom,
    record: &mut Record,
    class: usize,
    now: Micros,
) -> Result<(), Micros> {
    let Some(share) = headroom.share else {
        return Err(NOTHING_WAIT);
    };
    let cap = headroom.caps.get(class).copied().flatten();
    let Some(own_tat) = record.classes.get(class).map(|class| class.headroom_tat) else {
        return Err(NOTHING_WAIT);
    };
    let tat = share.legal(record.headroom_tat, now);
    let own_tat = cap.map_or(now, |cap| cap.legal(own_tat, now));
    record.headroom_tat = tat;
    // A reservation longer than it can be made was made on another clock.
    let reserved = share.emission_interval().times(RESERVED_SHARES);
    let stands_back = now < record.reserved_until
        && record.reserved_until <= now.plus(reserved)
        && record.reserved_for < class as u64;
    let own_wait = cap.map_or(Micros::ZERO, |cap| cap.wait(own_tat, now));
    let reserved_wait = if stands_back { record.reserved_until.minus(now) } else { Micros::ZERO };
    let wait = share.wait(tat, now).max(own_wait).max(reserved_wait);
    if !wait.is_zero() {
        let free = now >= record.reserved_until || (class as u64) <= record.reserved_for;
        if own_wait < wait && free && !stands_back {
            record.reserved_until = now.plus(reserved);
            record.reserved_for = class as u64;
        }
        return Err(wait);
    }
    record.headroom_tat = share.charge(tat, now, 1);
    if let (Some(cap), Some(own)) = (cap, record.classes.get_mut(class)) {
        own.headroom_tat = cap.charge(own_tat, now, 1);
    }
    if record.reserved_for == class as u64 {
        record.reserved_until = Micros::ZERO;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use limits::gcra::Gcra;

    use super::*;

    const OTP: usize = 0;
    const MARKETING: usize = 1;
    const SHARE: Micros = Micros(500_000);

    fn headroom() -> Headroom {
        let cap = Gcra::spaced(Micros(640_000));
        Headroom { share: Some(Gcra::spaced(SHARE)), caps: vec![None, Some(cap)] }
    }

    /// Requests as (time in ms, class); which of them went.
    fn check(requests: &[(u64, usize)]) -> Vec<bool> {
        let mut record = Record::new(0, 2);
        requests
            .iter()
            .map(|(ms, class)| {
                let now = Micros(1_000_000_000).plus(Micros::from_millis(*ms));
                decide(&headroom(), &mut record, *class, now).is_ok()
            })
            .collect()
    }

    #[test]
    fn sends_one_and_then_keeps_its_distance() {
        assert_eq!(
            check(&[(0, OTP), (0, OTP), (499, OTP), (500, OTP)]),
            [true, false, false, true]
        );
    }

    #[test]
    fn a_lower_class_keeps_to_its_proportion() {
        assert_eq!(
            check(&[(0, MARKETING), (500, MARKETING), (640, MARKETING)]),
            [true, false, true]
        );
    }

    #[test]
    fn marketing_stands_back_for_a_refused_otp() {
        let run = check(&[(0, MARKETING), (100, OTP), (700, MARKETING), (900, OTP)]);
        assert_eq!(run, [true, false, false, true]);
        let run = check(&[(0, MARKETING), (100, OTP), (1_200, MARKETING)]);
        assert_eq!(run, [true, false, true], "but not for ever");
    }

    #[test]
    fn otp_never_stands_back_for_marketing() {
        let run = check(&[(0, OTP), (100, MARKETING), (500, OTP)]);
        assert_eq!(run, [true, false, true]);
    }

    #[test]
    fn nothing_goes_without_headroom() {
        let headroom = Headroom { share: None, caps: vec![None, None] };
        let wait = decide(&headroom, &mut Record::new(0, 2), OTP, Micros(1));
        assert_eq!(wait, Err(NOTHING_WAIT));
    }

    #[test]
    fn a_record_from_another_clock_stalls_nothing() {
        let mut record = Record::new(0, 2);
        let far = Micros(u64::MAX / 2);
        record.headroom_tat = far;
        record.reserved_until = far;
        let first = decide(&headroom(), &mut record, MARKETING, Micros(1_000));
        assert!(first.is_err_and(|wait| wait <= SHARE.times(RESERVED_SHARES)), "{first:?}");
    }
}

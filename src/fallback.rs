//! What a gateway sends when the decider does not answer: its share of the target while the store
//! keeps that free (`limits::lease`), otherwise its share of the headroom.
//!
//! Promise: whatever the decider grants to others meanwhile, the contract holds, for ever
//! (`limits::worst::headroom` has the arithmetic). The highest class comes first: lower classes keep
//! to their proportion of it, and stand back for a while after a higher one was refused.

use limits::{Micros, gcra::Gcra, lease::Right};

use crate::{
    config::{Own, Share},
    record::Record,
};

/// How many shares long a refused higher class finds the next one reserved: long enough to come
/// back after the wait it was told.
const RESERVED_SHARES: u64 = 2;
/// Told when nothing is the gateway's own: nobody knows when the decider returns.
const NOTHING_WAIT: Micros = Micros::from_secs(5);

/// Decides for one request; `Err` is the time after which it is worth to come back.
pub fn decide(own: &Own, record: &mut Record, class: usize, now: Micros) -> Result<(), Micros> {
    let right = record.lease.right(now);
    let share = match right {
        Right::Share => &own.target,
        Right::Headroom => &own.headroom,
    };
    enter(own, record, right, now);
    let (Some(all), Some(own_tat)) = (share.all, record.classes.get(class).map(|own| own.own_tat))
    else {
        return Err(NOTHING_WAIT);
    };
    let cap = share.caps.get(class).copied().flatten();
    let own_wait = cap.map_or(Micros::ZERO, |cap| cap.wait(cap.legal(own_tat, now), now));
    // A reservation longer than it can be made was made on another clock.
    let reserved = all.emission_interval().times(RESERVED_SHARES);
    let stands_back = now < record.reserved_until
        && record.reserved_until <= now.plus(reserved)
        && record.reserved_for < class as u64;
    let reserved_wait = if stands_back { record.reserved_until.minus(now) } else { Micros::ZERO };
    let wait = all.wait(record.own_tat, now).max(own_wait).max(reserved_wait);
    if !wait.is_zero() {
        let free = now >= record.reserved_until || (class as u64) <= record.reserved_for;
        if own_wait < wait && free && !stands_back {
            record.reserved_until = now.plus(reserved);
            record.reserved_for = class as u64;
        }
        return Err(wait);
    }
    charge(share, all, record, class, now);
    if record.reserved_for == class as u64 {
        record.reserved_until = Micros::ZERO;
    }
    Ok(())
}

/// Keeps the TAT legal, and the promise at a change of rights: the headroom counts from the last
/// request on the share as if it had been one of its own, so that no span holds a burst of each.
fn enter(own: &Own, record: &mut Record, right: Right, now: Micros) {
    let intervals = [own.headroom.all, own.target.all].into_iter().flatten();
    let Some(slowest) = intervals.max_by_key(Gcra::emission_interval) else {
        return;
    };
    record.own_tat = slowest.legal(record.own_tat, now);
    if record.on_share && right == Right::Headroom {
        record.own_tat = now.plus(slowest.emission_interval());
    }
    record.on_share = right == Right::Share;
}

fn charge(share: &Share, all: Gcra, record: &mut Record, class: usize, now: Micros) {
    record.own_tat = all.charge(record.own_tat, now, 1);
    if let (Some(Some(cap)), Some(own)) = (share.caps.get(class), record.classes.get_mut(class)) {
        own.own_tat = cap.charge(cap.legal(own.own_tat, now), now, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTP: usize = 0;
    const MARKETING: usize = 1;
    const SHARE: Micros = Micros(500_000);

    fn own() -> Own {
        let share = |all: Micros, cap| Share {
            all: Some(Gcra::spaced(all)),
            caps: vec![None, Some(Gcra::spaced(Micros(cap)))],
        };
        Own { headroom: share(SHARE, 640_000), target: share(Micros(50_000), 64_000) }
    }

    /// Requests as (time in ms, class); which of them went.
    fn check(requests: &[(u64, usize)]) -> Vec<bool> {
        let mut record = Record::new(0, 2);
        requests
            .iter()
            .map(|(ms, class)| {
                let now = Micros(1_000_000_000).plus(Micros::from_millis(*ms));
                decide(&own(), &mut record, *class, now).is_ok()
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
        let nothing = Share { all: None, caps: vec![None, None] };
        let own = Own { headroom: nothing, ..own() };
        let wait = decide(&own, &mut Record::new(0, 2), OTP, Micros(1));
        assert_eq!(wait, Err(NOTHING_WAIT));
    }

    #[test]
    fn a_record_from_another_clock_stalls_nothing() {
        let mut record = Record::new(0, 2);
        let far = Micros(u64::MAX / 2);
        record.own_tat = far;
        record.reserved_until = far;
        let first = decide(&own(), &mut record, MARKETING, Micros(1_000));
        assert!(first.is_err_and(|wait| wait <= SHARE.times(RESERVED_SHARES)), "{first:?}");
    }

    /// Sends as early as it may for two seconds; when (ms) each went.
    fn sent(record: &mut Record) -> Vec<u64> {
        let went = |ms: &u64| decide(&own(), record, OTP, Micros::from_millis(*ms)).is_ok();
        (10_000..12_000).filter(went).collect()
    }

    #[test]
    fn the_share_begins_and_ends_without_a_second_burst() {
        let mut record = Record::new(0, 2);
        record.lease.taken_until = Micros::from_millis(10_600);
        record.lease.counted_until = Micros::from_millis(11_200);
        let expected = [10_000, 10_500, 11_000, 11_050, 11_100, 11_150, 11_700];
        assert_eq!(sent(&mut record), expected);
    }
}

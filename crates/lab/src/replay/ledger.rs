//! What producer and pods note while they work.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::OtpWait;

#[derive(Debug)]
pub(super) struct Ledger {
    start: Instant,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    made: BTreeMap<String, usize>,
    otps: Vec<OtpWait>,
    acknowledged: u64,
    /// Waits are final.
    ended: bool,
}

impl Ledger {
    pub fn new(start: Instant) -> Self {
        Self { start, book: Mutex::default() }
    }

    /// A message has been made; its number within its class.
    pub fn made(&self, class: &str) -> usize {
        let made = self.start.elapsed();
        let mut book = self.lock();
        if class == "otp" {
            book.otps.push(OtpWait { made, wait: Duration::ZERO, accepted: false });
        }
        let count = book.made.entry(class.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    pub fn accepted(&self, class: &str, number: usize) {
        let now = self.start.elapsed();
        let mut book = self.lock();
        if class != "otp" || book.ended {
            return;
        }
        if let Some(otp) = book.otps.get_mut(number).filter(|otp| !otp.accepted) {
            otp.wait = now.saturating_sub(otp.made);
            otp.accepted = true;
        }
    }

    pub fn acknowledged(&self) {
        self.lock().acknowledged += 1;
    }

    pub fn otp_outstanding(&self) -> bool {
        self.lock().otps.iter().any(|otp| !otp.accepted)
    }

    /// Whoever still waits has waited until now.
    pub fn end_waits(&self) {
        let now = self.start.elapsed();
        let mut book = self.lock();
        for otp in book.otps.iter_mut().filter(|otp| !otp.accepted) {
            otp.wait = now.saturating_sub(otp.made);
        }
        book.ended = true;
    }

    /// In the order in which they were made.
    pub fn otps(&self) -> Vec<OtpWait> {
        self.lock().otps.clone()
    }

    pub fn made_in_all(&self) -> u64 {
        self.lock().made.values().sum::<usize>() as u64
    }

    pub fn acknowledged_in_all(&self) -> u64 {
        self.lock().acknowledged
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_code_that_is_never_accepted_has_waited_until_the_end() {
        let ledger = Ledger::new(Instant::now());
        ledger.made("otp");
        ledger.made("otp");
        ledger.accepted("otp", 1);
        assert!(ledger.otp_outstanding());
        ledger.end_waits();
        ledger.accepted("otp", 0);
        let otps = ledger.otps();
        assert_eq!([otps[0].accepted, otps[1].accepted], [false, true]);
        assert!(otps[0].wait >= otps[1].wait);
    }
}

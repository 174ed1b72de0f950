//! What is counted, and under which names.
//!
//! Envoy shows a counter `weir.sms.otp.granted` as `wasmcustom.weir.sms.otp.granted` in `/stats` and
//! as `weir_sms_otp_granted` for Prometheus. Wasm metrics have no labels, so limit and class are in
//! the name.

use limits::{decision::Reason, policy::Policy};

use crate::gate::Cause;

/// Something that happened to one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum OfLimit {
    /// Calls that asked for requests.
    Calls,
    Probes,
    /// Calls and probes without a usable answer in time.
    CallsFailed,
    /// The decider became unreachable.
    BreakerOpened,
    /// Claims of a class that the certificate may not claim.
    ClaimsRefused,
    /// Throttled replies of the provider.
    Throttled,
    /// Throttled replies with a Retry-After that could not be read.
    RetryAfterInvalid,
    /// Throttle reports that gave way to newer ones.
    ReportsDropped,
    /// Things that cannot happen, and did: please report.
    Broken,
}

const OF_LIMIT: [&str; 9] = [
    "calls",
    "probes",
    "calls_failed",
    "breaker_opened",
    "claims_refused",
    "throttled",
    "retry_after_invalid",
    "reports_dropped",
    "broken",
];

/// Something that happened to a request of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfClass {
    /// Granted by the decider.
    Granted,
    /// Sent on the gateway's own share.
    Fallback,
    Refused(Cause),
}

const OF_CLASS: [&str; 7] = [
    "granted",
    "fallback",
    "refused_rate",
    "refused_class_rate",
    "refused_penalty",
    "refused_decider_unavailable",
    "refused_queue_full",
];

impl OfClass {
    const fn place(self) -> usize {
        match self {
            Self::Granted => 0,
            Self::Fallback => 1,
            Self::Refused(Cause::Decided(Reason::Rate)) => 2,
            Self::Refused(Cause::Decided(Reason::ClassRate)) => 3,
            Self::Refused(Cause::Decided(Reason::Penalty)) => 4,
            Self::Refused(Cause::Fallback) => 5,
            Self::Refused(Cause::QueueFull) => 6,
        }
    }
}

/// The host's ids of all counters of a policy.
#[derive(Debug, Default)]
pub struct Metrics {
    limits: Vec<Vec<u32>>,
    classes: Vec<Vec<Vec<u32>>>,
}

impl Metrics {
    /// Defines every counter at start, so that a dashboard shows zeros and not gaps.
    pub fn define(policy: &Policy, mut define: impl FnMut(&str) -> u32) -> Self {
        let mut metrics = Self::default();
        for limit in &policy.limits {
            let all = |names: &[&str], prefix: &str, define: &mut dyn FnMut(&str) -> u32| {
                names.iter().map(|name| define(&format!("weir.{prefix}.{name}"))).collect()
            };
            let class = |name: &String| format!("{}.{name}", limit.name);
            let classes =
                limit.classes.iter().map(|c| all(&OF_CLASS, &class(&c.name), &mut define));
            metrics.classes.push(classes.collect());
            metrics.limits.push(all(&OF_LIMIT, &limit.name, &mut define));
        }
        metrics
    }

    pub fn of_limit(&self, limit: usize, what: OfLimit) -> Option<u32> {
        self.limits.get(limit)?.get(what as usize).copied()
    }

    pub fn of_class(&self, limit: usize, class: usize, what: OfClass) -> Option<u32> {
        self.classes.get(limit)?.get(class)?.get(what.place()).copied()
    }
}

//! What the machine itself adds, measured beside a test that asserts times.
//!
//! Requests that no limit holds for and that Envoy answers by itself take the same way through the
//! same workers, and wait for nothing of ours. What they wait, the machine is to blame for: a
//! bound on time is a bound on what comes on top.

use std::time::Duration;

use lab::{Arrivals, Run, Sent, Stream, Target};
use serde_json::json;

use super::files::Template;
use super::{Stack, ms};

const HOST: &str = "noop.example.com";
const PER_S: f64 = 100.0;
/// A machine that delays an idle path by this much is too busy to judge times on.
const BUSY: Duration = ms(25);
const ATTEMPTS: usize = 4;

/// When it was due, and how long after that its answer was there.
pub struct Noise(Vec<(Duration, Duration)>);

/// The sample and a path that Envoy answers by itself.
pub fn template_with_noop() -> Template {
    let mut template = Template::sample();
    let hosts = template.routes()["virtual_hosts"].as_array_mut().expect("virtual hosts");
    hosts.push(json!({
        "name": "noop",
        "domains": [HOST],
        "routes": [{ "match": { "prefix": "/" }, "direct_response": { "status": 200 } }],
    }));
    template
}

/// Sends the streams, and requests of the control beside them.
pub async fn send_beside_control(stack: &Stack, streams: &[Stream]) -> (Run, Noise) {
    let lasting = streams.iter().map(|stream| match stream.arrivals {
        Arrivals::Even { lasting, .. } | Arrivals::Poisson { lasting, .. } => lasting,
        Arrivals::AtOnce { .. } => ms(1_000),
    });
    let lasting = lasting.max().unwrap_or_default();
    let target = Target::new(&stack.ready.gateways);
    let noop = Target { host: HOST.to_owned(), ..target.clone() };
    let control = [Stream::new("control", Arrivals::Even { per_s: PER_S, lasting })];
    let (run, control) = tokio::join!(lab::send(&target, streams), lab::send(&noop, &control));
    let passed = |sent: &Sent| sent.outcome.as_ref().is_ok_and(lab::Answer::passed);
    assert!(control.sent.iter().all(passed), "the control is not answered");
    let delays = control.sent.iter().map(|sent| (sent.due, sent.late + sent.took));
    (run, Noise(delays.collect()))
}

impl Noise {
    /// The longest that a control request waited that was on its way at the same time as `sent`.
    pub fn beside(&self, sent: &Sent) -> Duration {
        let (from, to) = (sent.due, sent.due + sent.late + sent.took);
        let beside = self.0.iter().filter(|(due, took)| *due <= to && *due + *took >= from);
        beside.map(|(_, took)| *took).max().unwrap_or_default()
    }

    pub fn longest(&self) -> Duration {
        self.0.iter().map(|(_, took)| *took).max().unwrap_or_default()
    }
}

/// Repeats an attempt that failed while the machine was busy.
///
/// # Panics
/// With what is wrong, if it fails on a calm machine or every time.
pub async fn on_a_calm_machine(attempt: impl AsyncFn() -> (Noise, Result<(), String>)) {
    for number in 1.. {
        let (noise, result) = attempt().await;
        let Err(wrong) = result else { return };
        let calm = noise.longest() < BUSY;
        assert!(!calm && number < ATTEMPTS, "{wrong}\n(the control: {:?})", noise.longest());
        println!("repeated, for the control took {:?}: {wrong}", noise.longest());
    }
}

/// `Err` with what is wrong unless it is right.
pub fn check(right: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    right.then_some(()).ok_or_else(wrong)
}

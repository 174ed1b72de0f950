//! What the machine itself adds, measured beside a test that asserts times.
//!
//! Requests that no limit holds for and that Envoy answers by itself take the same way through the
//! same workers, and wait for nothing of ours. What they wait, the machine is to blame for: a
//! bound on time is a bound on what comes on top.

use std::time::Duration;

use lab::{Arrivals, Run, Sent, Stream, Summary, Target};
use serde_json::json;

use super::files::Template;
use super::{Stack, ms};

const HOST: &str = "noop.example.com";
const PER_S: f64 = 100.0;
/// The jitter that the sample policy allows for: beyond, no time and no window can be judged.
const BUSY: Duration = ms(20);
const ATTEMPTS: usize = 4;
/// The sample policy's time-out, and what an answer may take beyond it.
const ANSWERED_WITHIN: Duration = ms(50 + 50);

pub type Checked = Result<(), String>;

pub struct Noise {
    /// Of each control request: when it was due, and how long after that its answer was there.
    control: Vec<(Duration, Duration)>,
    /// The longest that a provider which answers at once took, as a gateway saw it.
    provider: Duration,
}

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
    send_to(&stack.ready.gateways, streams).await
}

/// The same, all of it to one gateway.
pub async fn send_beside_control_to(
    stack: &Stack,
    gateway: usize,
    streams: &[Stream],
) -> (Run, Noise) {
    send_to(&stack.ready.gateways[gateway..=gateway], streams).await
}

async fn send_to(gateways: &[String], streams: &[Stream]) -> (Run, Noise) {
    let lasting = streams.iter().map(|stream| match stream.arrivals {
        Arrivals::Even { lasting, .. } | Arrivals::Poisson { lasting, .. } => lasting,
        Arrivals::AtOnce { .. } => ms(1_000),
    });
    let lasting = lasting.max().unwrap_or_default();
    let target = Target::new(gateways);
    let noop = Target { host: HOST.to_owned(), ..target.clone() };
    let control = [Stream::new("control", Arrivals::Even { per_s: PER_S, lasting })];
    let (run, control) = tokio::join!(lab::send(&target, streams), lab::send(&noop, &control));
    let passed = |sent: &Sent| sent.outcome.as_ref().is_ok_and(lab::Answer::passed);
    assert!(control.sent.iter().all(passed), "the control is not answered");
    let control = control.sent.iter().map(|sent| (sent.due, sent.late + sent.took)).collect();
    let answers = run.sent.iter().filter_map(|sent| sent.outcome.as_ref().ok());
    let provider = answers.map(lab::Answer::at_provider).max().unwrap_or_default();
    (run, Noise { control, provider })
}

impl Noise {
    /// The longest that a control request waited that was on its way at the same time as `sent`.
    pub fn beside(&self, sent: &Sent) -> Duration {
        let (from, to) = (sent.due, sent.due + sent.late + sent.took);
        let beside = self.control.iter().filter(|(due, took)| *due <= to && *due + *took >= from);
        beside.map(|(_, took)| *took).max().unwrap_or_default()
    }

    pub fn longest(&self) -> Duration {
        self.control.iter().map(|(_, took)| *took).fold(self.provider, Duration::max)
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
        assert!(!calm && number < ATTEMPTS, "{wrong}\n(the machine: {:?})", noise.longest());
        println!("repeated, for the machine took {:?}: {wrong}", noise.longest());
    }
}

/// Every request had its answer in time, and it was yes or an honest no.
pub fn answered(run: &Run, noise: &Noise) -> Checked {
    let summary = Summary::of(run.sent.iter());
    check(summary.failed() + summary.not_sent == 0, || {
        let (timed_out, broken) = (summary.timed_out, summary.broken);
        format!("{timed_out} timed out, {broken} broken, {:?}", summary.other_statuses)
    })?;
    let own = |sent: &Sent| sent.took.saturating_sub(noise.beside(sent));
    let longest = run.sent.iter().map(own).max().unwrap_or_default();
    println!(
        "{} answers: longest {longest:?} beyond the control, which took {:?}",
        run.sent.len(),
        noise.longest()
    );
    check(longest <= ANSWERED_WITHIN, || format!("an answer took {longest:?}"))
}

/// `Err` with what is wrong unless it is right.
pub fn check(right: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    right.then_some(()).ok_or_else(wrong)
}

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use limits::decision::Reason;
use serde_json::json;

use super::*;
use crate::{exchange::State, gate::tests::Map, sample};

const OTP: usize = 0;
const MARKETING: usize = 1;
const NOW: Micros = Micros(9_000_000_000);

/// Envoy with shared data and a decider that answers when the test says so.
#[derive(Default)]
struct Fake {
    map: Map,
    calls: RefCell<Vec<(String, serde_json::Value)>>,
    no_way: Cell<bool>,
}

impl SharedData for Fake {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        self.map.get(key)
    }

    fn swap(&self, key: &str, value: &[u8], version: Option<u32>) -> bool {
        self.map.swap(key, value, version)
    }
}

impl Host for Fake {
    fn call(&self, path: &str, body: &[u8], _timeout: Micros) -> Option<u32> {
        if self.no_way.get() {
            return None;
        }
        let mut calls = self.calls.borrow_mut();
        calls.push((path.to_owned(), serde_json::from_slice(body).unwrap()));
        u32::try_from(calls.len()).ok()
    }

    fn count(&self, _limit: usize, _what: OfLimit) {}

    fn say(&self, _text: &str) {}
}

fn name() -> Name {
    Name { gateway: "gw".to_owned(), ids: "w".to_owned() }
}

/// A worker, its Envoy and a clock.
struct Bench {
    envoy: Fake,
    config: Config,
    worker: Worker,
    now: Micros,
}

impl Bench {
    fn new() -> Self {
        let mut policy = sample::policy();
        policy["gateways"]["max"] = json!(1);
        let config = json!({"decider": {"cluster": "weir"}, "policy": policy});
        let config = Config::parse(config.to_string().as_bytes()).unwrap();
        let worker = Worker::new(&config, name());
        Self { envoy: Fake::default(), config, worker, now: NOW }
    }

    fn after(&mut self, ms: u64) {
        self.now = self.now.plus(Micros::from_millis(ms));
    }

    /// A request arrives; its own state is given back when it waits.
    fn arrive(&mut self, class: usize, stream: u32) -> Result<Rc<Cell<State>>, Admission> {
        match self.worker.admit(&self.envoy, 0, class, self.now) {
            Admission::Ask => {
                let state = Rc::new(Cell::new(State::Waiting));
                let waiter = Waiter { stream, since: self.now, state: state.clone() };
                self.worker.join(0, class, waiter).unwrap();
                Ok(state)
            }
            other => Err(other),
        }
    }

    fn ask(&mut self) -> Vec<(u32, Verdict)> {
        outcome(self.worker.ask(&self.envoy, &self.config, self.now))
    }

    fn tick(&mut self) -> Vec<(u32, Verdict)> {
        outcome(self.worker.tick(&self.envoy, &self.config, self.now))
    }

    fn answered(&mut self, token: u32, body: Option<&serde_json::Value>) -> Vec<(u32, Verdict)> {
        let body = body.map(|body| body.to_string().into_bytes());
        let (envoy, config) = (&self.envoy, &self.config);
        outcome(self.worker.answered(envoy, config, token, body.as_deref(), self.now))
    }

    /// What was asked of each call to the decider so far, `[otp, marketing]`.
    fn asked(&self) -> Vec<[u64; 2]> {
        let calls = self.envoy.calls.borrow();
        let decides = calls.iter().filter(|(path, _)| path == limits::wire::DECIDE_PATH);
        let of = |body: &serde_json::Value, class: &str| {
            let wants = body["wants"].as_array().unwrap();
            wants
                .iter()
                .find(|want| want["class"] == class)
                .map_or(0, |want| want["n"].as_u64().unwrap())
        };
        decides.map(|(_, body)| [of(body, "otp"), of(body, "marketing")]).collect()
    }
}

fn outcome(settled: Vec<Settled>) -> Vec<(u32, Verdict)> {
    settled.into_iter().map(|one| (one.waiter.stream, one.verdict)).collect()
}

/// An answer: what is granted, and that marketing waits 14 ms.
fn answer(otp: u64, marketing: u64) -> serde_json::Value {
    json!({
        "now_us": 1,
        "granted": [{"class": "otp", "n": otp}, {"class": "marketing", "n": marketing}],
        "wait_us": {"marketing": 14_000},
        "reason": {"marketing": "class_rate"},
        "penalty_us": 0,
        "born_us": 1,
        "standing": "guest",
    })
}

fn refused(ms: u64, reason: Reason) -> Verdict {
    Verdict::Refused(Refused { wait: Micros::from_millis(ms), cause: Cause::Decided(reason) })
}

#[test]
fn one_call_asks_for_all_that_wait() {
    let mut bench = Bench::new();
    for (class, stream) in [(MARKETING, 1), (OTP, 2), (MARKETING, 3)] {
        bench.arrive(class, stream).unwrap();
    }
    assert_eq!(bench.ask(), []);
    assert_eq!(bench.ask(), [], "nothing new, no second call");
    assert_eq!(bench.asked(), [[1, 2]]);
    let settled = bench.answered(1, Some(&answer(1, 1)));
    let expected =
        [(2, Verdict::Granted), (1, Verdict::Granted), (3, refused(14, Reason::ClassRate))];
    assert_eq!(settled, expected);
}

#[test]
fn what_an_answer_tells_needs_no_second_call() {
    let mut bench = Bench::new();
    bench.arrive(MARKETING, 1).unwrap();
    bench.ask();
    bench.arrive(MARKETING, 2).unwrap();
    let settled = bench.answered(1, Some(&answer(0, 1)));
    assert_eq!(settled, [(1, Verdict::Granted), (2, refused(14, Reason::ClassRate))]);
    assert!(bench.arrive(MARKETING, 3).is_err(), "refused from memory");
    assert!(bench.arrive(OTP, 4).is_ok());
    assert_eq!(bench.asked(), [[0, 1]]);
}

#[test]
fn arrivals_during_a_call_ride_the_next() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    bench.ask();
    bench.arrive(OTP, 2).unwrap();
    bench.arrive(OTP, 3).unwrap();
    assert_eq!(bench.answered(1, Some(&answer(1, 0))), [(1, Verdict::Granted)]);
    assert_eq!(bench.asked(), [[1, 0], [2, 0]]);
}

#[test]
fn a_failed_call_settles_all_who_wait_and_is_paid_for_once() {
    let mut bench = Bench::new();
    bench.arrive(MARKETING, 1).unwrap();
    bench.arrive(OTP, 2).unwrap();
    bench.ask();
    bench.arrive(OTP, 3).unwrap();
    bench.after(50);
    let settled = bench.answered(1, None);
    assert_eq!(settled.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [2, 3, 1]);
    assert_eq!(settled[0].1, Verdict::Fallback, "the highest class gets the share");
    assert!(settled[1..].iter().all(|(_, verdict)| matches!(verdict, Verdict::Refused(_))));
    assert!(bench.arrive(OTP, 4).is_err(), "answered at once, without a call");
    assert_eq!(bench.asked().len(), 1);
}

#[test]
fn no_way_to_the_decider_is_answered_at_once() {
    let mut bench = Bench::new();
    bench.envoy.no_way.set(true);
    bench.arrive(OTP, 1).unwrap();
    assert_eq!(bench.ask(), [(1, Verdict::Fallback)]);
}

#[test]
fn a_probe_brings_the_decider_back() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    bench.ask();
    bench.answered(1, None);
    bench.tick();
    assert_eq!(bench.asked(), [[1, 0]], "not at once");
    bench.after(100);
    bench.tick();
    bench.tick();
    assert_eq!(bench.asked(), [[1, 0], [0, 0]], "one probe, asking for nothing");
    bench.answered(2, Some(&answer(0, 0)));
    assert!(bench.arrive(OTP, 2).is_ok());
}

#[test]
fn an_answer_older_than_the_time_out_is_not_used() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    bench.arrive(OTP, 2).unwrap();
    bench.ask();
    bench.after(51);
    let settled = bench.answered(1, Some(&answer(2, 0)));
    assert_eq!(settled[0], (1, Verdict::Fallback));
    assert!(matches!(settled[1], (2, Verdict::Refused(_))));
}

#[test]
fn a_call_that_envoy_never_answers_is_given_up() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    bench.ask();
    bench.after(100);
    assert_eq!(bench.tick(), []);
    bench.after(1);
    assert_eq!(bench.tick(), [(1, Verdict::Fallback)]);
    assert_eq!(bench.answered(1, Some(&answer(1, 0))), [], "its late answer means nothing");
}

#[test]
fn a_stream_that_left_is_not_settled() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    bench.arrive(OTP, 2).unwrap();
    bench.ask();
    bench.worker.leave(0, OTP, 1);
    assert_eq!(bench.answered(1, Some(&answer(1, 0))), [(2, Verdict::Granted)]);
}

#[test]
fn a_refusal_without_a_reason_is_still_answered() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    bench.ask();
    let settled = bench.answered(1, Some(&answer(0, 0)));
    assert!(
        matches!(settled[..], [(1, Verdict::Refused(Refused { wait, .. }))] if !wait.is_zero())
    );
}

#[test]
fn a_throttle_stops_this_gateway_at_once_and_is_reported_until_answered() {
    let mut bench = Bench::new();
    bench.arrive(OTP, 1).unwrap();
    let pause = Micros::from_secs(3);
    bench.worker.throttled(&bench.envoy, 0, pause, "id-1".to_owned(), bench.now);
    let settled = bench.ask();
    assert_eq!(settled, [(1, refused(3_000, Reason::Penalty))], "those who wait as well");
    assert!(bench.arrive(OTP, 2).is_err());
    let reports = |bench: &Bench| {
        let calls = bench.envoy.calls.borrow();
        let reports = calls.iter().filter(|(path, _)| path == limits::wire::THROTTLED_PATH);
        reports.map(|(_, body)| body["pause_us"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(reports(&bench), [3_000_000]);
    bench.answered(1, None);
    bench.after(100);
    bench.tick();
    assert_eq!(reports(&bench), [3_000_000, 2_900_000], "what is left of the pause");
    bench.answered(2, Some(&json!({"penalty_us": 1})));
    bench.after(2_000);
    bench.tick();
    assert_eq!(reports(&bench).len(), 2);
}

#[test]
fn a_main_thread_makes_no_calls() {
    let mut bench = Bench::new();
    let mut gate = Gate::new(&bench.config.policy.limits[0], "7", bench.config.own[0].clone());
    gate.failed(&bench.envoy, lease::Call::Ask, bench.now);
    bench.after(5_000);
    bench.tick();
    assert_eq!(bench.asked().len(), 0);
}

//! What root and streams of one configuration share on one worker.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use limits::{Micros, retry_after::Said};
use proxy_wasm::{
    hostcalls,
    types::{MapType, MetricType},
};

use super::envoy::{
    Envoy, headers, increment, monotonic, process, queue_number, reply, resume_request,
    set_effective_context, wall,
};
use crate::{
    config::Config,
    exchange::State,
    gate::Refused,
    metrics::{Metrics, OfClass, OfLimit},
    pairs, refusal, throttle,
    worker::{Host, Name, Settled, Verdict, Worker},
};

/// Streams settled in one turn.
const SETTLED_MAX: usize = 64;
/// Refusals that wait for the next turn.
const DEFERRED_MAX: usize = 4_096;
/// Longest part of a gateway's name that is its node's id.
const NODE_MAX: usize = 200;

/// What root and streams of one configuration share on one worker.
pub struct Plugin {
    root: u32,
    pub config: Config,
    pub metrics: Metrics,
    pub worker: RefCell<Worker>,
    queue: u32,
    /// A token is in the queue.
    pub woken: Cell<bool>,
    /// Makes ids of reports unique, with a number for each.
    nonce: String,
    reports: Cell<u64>,
    /// Decided, and to be told in a later turn.
    backlog: RefCell<VecDeque<Settled>>,
    /// The last refusal as it was sent: in a flood many are the same.
    refusal: RefCell<Option<Refusal>>,
}

/// A refusal, ready to be sent.
struct Refusal {
    limit: usize,
    class: usize,
    refused: Refused,
    details: String,
    headers: Vec<u8>,
    body: Vec<u8>,
}

impl Plugin {
    pub fn new(root: u32, config: Config) -> Option<Self> {
        let number = queue_number()?;
        let queue = hostcalls::register_shared_queue(&format!("weir.{number}")).ok()?;
        let nonce = format!("{:x}-{number:x}", wall().0);
        let node =
            hostcalls::get_property(vec!["xds", "node", "id"]).ok().flatten().unwrap_or_default();
        // Two processes may have the same node id, and one may be another after a restart.
        let node: String = String::from_utf8_lossy(&node).chars().take(NODE_MAX).collect();
        let gateway = format!("{node}/{}", process(&nonce)?);
        let metrics = Metrics::define(&config.policy, |name| {
            hostcalls::define_metric(MetricType::Counter, name).unwrap_or(u32::MAX)
        });
        let worker = RefCell::new(Worker::new(&config, Name { gateway, ids: nonce.clone() }));
        let (woken, reports) = (Cell::new(false), Cell::new(0));
        let (refusal, backlog) = (RefCell::default(), RefCell::default());
        Some(Self { root, config, metrics, worker, queue, woken, nonce, reports, backlog, refusal })
    }

    /// Lets a refusal be told in the next turn, or gives it back. A reply in the turn in which the
    /// request's headers came, before its body was read, makes Envoy close an HTTP/1 connection: each
    /// refused sender would have to connect again.
    pub fn defer(&self, refusal: Settled) -> Result<(), Settled> {
        match self.backlog.try_borrow_mut() {
            Ok(mut backlog) if backlog.len() < DEFERRED_MAX => backlog.push_back(refusal),
            _ => return Err(refusal),
        }
        self.wake();
        Ok(())
    }

    /// Has the root called in the next turn of this worker's event loop.
    pub fn wake(&self) {
        if !self.woken.replace(true)
            && hostcalls::enqueue_shared_queue(self.queue, Some(b"w")).is_err()
        {
            self.woken.set(false); // The tick looks as well.
        }
    }

    /// Lets the worker act in a root callback, then settles the streams it has decided on: so many in
    /// this turn, the rest in the next ones. Envoy tells them one inside the other when the callback
    /// has ended, and some 300 exhaust the stack of the virtual machine.
    pub fn act(&self, act: impl FnOnce(&mut Worker, &Envoy) -> Vec<Settled>) {
        let settled = match self.worker.try_borrow_mut() {
            Ok(mut worker) => act(&mut worker, &Envoy(self)),
            Err(_) => return,
        };
        let Ok(mut backlog) = self.backlog.try_borrow_mut() else {
            return;
        };
        backlog.extend(settled);
        let turn: Vec<Settled> = {
            let count = backlog.len().min(SETTLED_MAX);
            backlog.drain(..count).collect()
        };
        let more = !backlog.is_empty();
        drop(backlog);
        if turn.is_empty() {
            return;
        }
        let now = monotonic();
        for one in turn {
            self.settle(&one, now);
        }
        set_effective_context(self.root);
        if more {
            self.wake();
        }
    }

    fn settle(&self, one: &Settled, now: Micros) {
        let to = match one.verdict {
            Verdict::Refused(_) => State::Refused,
            Verdict::Granted | Verdict::Fallback => State::Forwarded,
        };
        if !State::settle(&one.waiter.state, to) || !set_effective_context(one.waiter.stream) {
            return;
        }
        let waited = now.minus(one.waiter.since);
        match one.verdict {
            Verdict::Refused(refused) => {
                self.tag(one.limit, one.class, refused.cause.name(), waited);
                self.refuse(one.limit, one.class, refused);
            }
            Verdict::Granted | Verdict::Fallback => {
                self.forward(one.limit, one.class, one.verdict == Verdict::Granted, waited);
                resume_request();
            }
        }
    }

    /// Counts and tags a request that goes out.
    pub fn forward(&self, limit: usize, class: usize, granted: bool, waited: Micros) {
        let what = if granted { OfClass::Granted } else { OfClass::Fallback };
        increment(self.metrics.of_class(limit, class, what));
        self.tag(limit, class, if granted { "granted" } else { "fallback" }, waited);
    }

    /// Counts and answers a request that does not go out. Its class and reason are in the reply's
    /// details: tags would cost a flood more than all that decides about it.
    pub fn refuse(&self, limit: usize, class: usize, refused: Refused) {
        increment(self.metrics.of_class(limit, class, OfClass::Refused(refused.cause)));
        // Callers are told whole milliseconds.
        let wait = Micros::from_millis(refused.wait.ceil_millis());
        let refused = Refused { wait, ..refused };
        let Ok(mut last) = self.refusal.try_borrow_mut() else { return };
        let same =
            |last: &Refusal| (last.limit, last.class, last.refused) == (limit, class, refused);
        if !last.as_ref().is_some_and(same) {
            *last = self.refusal(limit, class, refused);
        }
        if let Some(Refusal { details, headers, body, .. }) = last.as_ref() {
            reply(details, headers, body);
        }
    }

    fn refusal(&self, limit: usize, class: usize, refused: Refused) -> Option<Refusal> {
        let policy = self.config.policy.limits.get(limit)?;
        let name = &policy.classes.get(class)?.name;
        let mut headers = vec![("content-type", "application/problem+json".to_owned())];
        headers.append(&mut refusal::headers(policy, refused.wait));
        let body = refusal::body(policy, name, refused, wall);
        let details = refusal::details(name, refused.cause);
        Some(Refusal { limit, class, refused, details, headers: pairs::write(&headers), body })
    }

    /// For access logs: `%FILTER_STATE(wasm.weir_class:PLAIN)%` and so on, of every request that was
    /// sent or waited.
    fn tag(&self, limit: usize, class: usize, reason: &str, waited: Micros) {
        let classes = self.config.policy.limits.get(limit).map(|limit| &limit.classes);
        let name = classes.and_then(|classes| classes.get(class)).map_or("", |c| c.name.as_str());
        let set = |key, value: &str| {
            let _ = hostcalls::set_property(vec![key], Some(value.as_bytes()));
        };
        set("weir_class", name);
        set("weir_reason", reason);
        set("weir_wait", &(waited.0 / 1_000).to_string());
    }

    /// The provider refused a request: all stop, and the caller gets a reply it can use.
    pub fn throttled(&self, index: usize) {
        let Some(limit) = self.config.policy.limits.get(index) else {
            return;
        };
        let envoy = Envoy(self);
        let headers = headers(MapType::HttpResponseHeaders);
        let (pause, said) = throttle::pause(&headers, wall(), &limit.throttle);
        envoy.count(index, OfLimit::Throttled);
        if said == Said::Invalid {
            envoy.count(index, OfLimit::RetryAfterInvalid);
        }
        let number = self.reports.get();
        self.reports.set(number.wrapping_add(1));
        let id = format!("{}-{number:x}", self.nonce);
        let left = match self.worker.try_borrow_mut() {
            Ok(mut worker) => worker.throttled(&envoy, index, pause, id, monotonic()),
            Err(_) => pause,
        };
        self.wake();
        log::warn!("limit {}: the provider refused, everyone stops for {left}", limit.name);
        let names = headers.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok());
        for name in names.filter(|name| refusal::is_throttle_header(name)) {
            let _ = hostcalls::remove_map_value(MapType::HttpResponseHeaders, name);
        }
        let status = (":status", "429".to_owned());
        for (name, value) in refusal::headers(limit, left).into_iter().chain([status]) {
            let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(&value));
        }
    }
}

//! Envoy: the only file that names `proxy_wasm`. It passes on what happens and does what it is told;
//! decisions are made elsewhere.
//!
//! Where it trips, each seen in the real Envoy:
//! - a call is answered to the context that made it, and lost with it: calls are made in the root's
//!   callbacks only, woken by a shared queue of the worker's own;
//! - the effective context must be set back after a stream was resumed, or the next look traps;
//! - a call that was reset in mid-body comes back with no headers, and reading one then traps;
//! - the text getters panic on bytes that are no UTF-8: only the byte getters are used;
//! - request headers cannot be read any more when the response comes.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use limits::{Micros, retry_after::Said, wire};
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext, RootContext},
    types::{Action, BufferType, ContextType, LogLevel, MapType, MetricType},
};

use crate::{
    config::Config,
    exchange::{MAX_RETRIES, STRIPPED, State},
    gate::{Admission, Cause, Refused, SharedData},
    lane::Waiter,
    metrics::{Metrics, OfClass, OfLimit},
    refusal,
    request::{self, Found, Request},
    throttle,
    worker::{Host, Settled, Verdict, Worker},
};

/// Resolution of probes, retries of reports and the watchdog.
const TICK: Duration = Duration::from_millis(50);
/// Counts the queues of this process, so that each worker gets a name of its own.
const QUEUES_KEY: &str = "weir.queues";
/// Put-if-absent in Envoy's compare-and-swap.
const ABSENT: u32 = u32::MAX;
/// Tokens taken from the queue in one go; one is enough, more can only come of a race.
const TOKENS_MAX: usize = 1_024;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(Root { id, plugin: None }));
}}

#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "wasi_snapshot_preview1"))]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
}

// The SDK's own versions panic when the host refuses; a stream that has just gone is no reason to.
#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "env"))]
unsafe extern "C" {
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream_type: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
}

/// The process's monotonic clock, the same for all workers.
fn monotonic() -> Micros {
    const CLOCK_MONOTONIC: u32 = 1;
    let mut nanos = 0_u64;
    // SAFETY: the host writes eight bytes to an address that is valid for them.
    unsafe { clock_time_get(CLOCK_MONOTONIC, 0, &raw mut nanos) };
    Micros(nanos / 1_000)
}

/// µs since the epoch.
fn wall() -> Micros {
    let since = hostcalls::get_current_time().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    Micros(since.and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or(0))
}

fn set_effective_context(context: u32) -> bool {
    // SAFETY: no memory is passed.
    unsafe { proxy_set_effective_context(context) == 0 }
}

/// What the worker sees of Envoy.
struct Envoy<'a>(&'a Plugin);

impl SharedData for Envoy<'_> {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        match hostcalls::get_shared_data(key) {
            Ok((Some(bytes), Some(version))) => Some((bytes, version)),
            _ => None,
        }
    }

    fn swap(&self, key: &str, value: &[u8], version: Option<u32>) -> bool {
        hostcalls::set_shared_data(key, Some(value), Some(version.unwrap_or(ABSENT))).is_ok()
    }
}

impl Host for Envoy<'_> {
    fn call(&self, path: &str, body: &[u8], timeout: Micros) -> Option<u32> {
        let decider = &self.0.config.decider;
        let headers = vec![
            (":method", "POST"),
            (":path", path),
            (":authority", decider.authority.as_str()),
            ("content-type", "application/json"),
        ];
        // Envoy takes whole milliseconds, and 0 for no time-out at all.
        let timeout = Duration::from_millis(timeout.ceil_millis().max(1));
        hostcalls::dispatch_http_call(&decider.cluster, headers, Some(body), vec![], timeout).ok()
    }

    fn count(&self, limit: usize, what: OfLimit) {
        increment(self.0.metrics.of_limit(limit, what));
    }

    fn say(&self, text: &str) {
        log::warn!("{text}");
    }
}

fn increment(metric: Option<u32>) {
    if let Some(metric) = metric {
        let _ = hostcalls::increment_metric(metric, 1);
    }
}

/// What root and streams of one configuration share on one worker.
struct Plugin {
    root: u32,
    config: Config,
    metrics: Metrics,
    worker: RefCell<Worker>,
    queue: u32,
    /// A token is in the queue.
    woken: Cell<bool>,
    /// Makes ids of reports unique, with a number for each.
    nonce: String,
    reports: Cell<u64>,
}

impl Plugin {
    fn new(root: u32, config: Config) -> Option<Self> {
        let number = queue_number()?;
        let queue = hostcalls::register_shared_queue(&format!("weir.{number}")).ok()?;
        let node = hostcalls::get_property(vec!["xds", "node", "id"]).ok().flatten().unwrap_or_default();
        let gateway = String::from_utf8_lossy(&node).into_owned();
        let metrics = Metrics::define(&config.policy, |name| {
            hostcalls::define_metric(MetricType::Counter, name).unwrap_or(u32::MAX)
        });
        let worker = RefCell::new(Worker::new(&config, gateway));
        let nonce = format!("{:x}-{number:x}", wall().0);
        let (woken, reports) = (Cell::new(false), Cell::new(0));
        Some(Self { root, config, metrics, worker, queue, woken, nonce, reports })
    }

    /// Has the root called in the next turn of this worker's event loop.
    fn wake(&self) {
        if !self.woken.replace(true)
            && hostcalls::enqueue_shared_queue(self.queue, Some(b"w")).is_err()
        {
            self.woken.set(false); // The tick looks as well.
        }
    }

    /// Lets the worker act in a root callback, then settles the streams it has decided on.
    fn act(&self, act: impl FnOnce(&mut Worker, &Envoy) -> Vec<Settled>) {
        let settled = match self.worker.try_borrow_mut() {
            Ok(mut worker) => act(&mut worker, &Envoy(self)),
            Err(_) => return,
        };
        if settled.is_empty() {
            return;
        }
        let now = monotonic();
        for one in settled {
            self.settle(&one, now);
        }
        set_effective_context(self.root);
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
            Verdict::Refused(refused) => self.refuse(one.limit, one.class, refused, waited),
            Verdict::Granted | Verdict::Fallback => {
                self.forward(one.limit, one.class, one.verdict == Verdict::Granted, waited);
                const HTTP_REQUEST: u32 = 0;
                // SAFETY: no memory is passed.
                unsafe { proxy_continue_stream(HTTP_REQUEST) };
            }
        }
    }

    /// Counts and tags a request that goes out.
    fn forward(&self, limit: usize, class: usize, granted: bool, waited: Micros) {
        let what = if granted { OfClass::Granted } else { OfClass::Fallback };
        increment(self.metrics.of_class(limit, class, what));
        self.tag(limit, class, if granted { "granted" } else { "fallback" }, waited);
    }

    fn refuse(&self, limit: usize, class: usize, refused: Refused, waited: Micros) {
        increment(self.metrics.of_class(limit, class, OfClass::Refused(refused.cause)));
        self.tag(limit, class, refused.cause.name(), waited);
        let Some(policy) = self.config.policy.limits.get(limit) else {
            return;
        };
        let name = policy.classes.get(class).map_or("", |class| class.name.as_str());
        let mut headers = vec![("content-type", "application/problem+json".to_owned())];
        headers.append(&mut refusal::headers(policy, refused.wait));
        let body = refusal::body(policy, name, refused, wall());
        let headers = serialise(&headers);
        // SAFETY: the host copies from addresses and lengths of live slices and keeps none.
        unsafe {
            proxy_send_local_response(
                429,
                refusal::DETAILS.as_ptr(),
                refusal::DETAILS.len(),
                body.as_ptr(),
                body.len(),
                headers.as_ptr(),
                headers.len(),
                refusal::GRPC_STATUS,
            )
        };
    }

    /// For access logs: `%FILTER_STATE(wasm.weir_class:PLAIN)%` and so on.
    fn tag(&self, limit: usize, class: usize, reason: &str, waited: Micros) {
        let classes = self.config.policy.limits.get(limit).map(|limit| &limit.classes);
        let name = classes.and_then(|classes| classes.get(class)).map_or("", |c| c.name.as_str());
        let wait = (waited.0 / 1_000).to_string();
        for (key, value) in [("weir_class", name), ("weir_reason", reason), ("weir_wait", &wait)] {
            let _ = hostcalls::set_property(vec![key], Some(value.as_bytes()));
        }
    }
}

/// A number no other queue of this process has.
fn queue_number() -> Option<u32> {
    const ATTEMPTS: usize = 1_000;
    for _ in 0..ATTEMPTS {
        let (bytes, version) = hostcalls::get_shared_data(QUEUES_KEY).ok()?;
        let last = bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let next = last.wrapping_add(1);
        let version = Some(version.unwrap_or(ABSENT));
        if hostcalls::set_shared_data(QUEUES_KEY, Some(&next.to_le_bytes()), version).is_ok() {
            return Some(next);
        }
    }
    None
}

/// The host's format of a list of pairs: count, sizes, then texts with a zero byte after each.
fn serialise(pairs: &[(&str, String)]) -> Vec<u8> {
    let size = |text: &str| u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
    let mut bytes = u32::try_from(pairs.len()).unwrap_or(0).to_le_bytes().to_vec();
    for (name, value) in pairs {
        bytes.extend(size(name).into_iter().chain(size(value)));
    }
    for text in pairs.iter().flat_map(|(name, value)| [*name, value]) {
        bytes.extend(text.bytes().chain([0]));
    }
    bytes
}

struct Root {
    id: u32,
    plugin: Option<Rc<Plugin>>,
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
        let bytes = bytes.ok().flatten().unwrap_or_default();
        match Config::parse(&bytes) {
            Ok(config) => {
                self.plugin = Plugin::new(self.id, config).map(Rc::new);
                let _ = hostcalls::set_tick_period(TICK);
            }
            Err(error) => log::error!("{error}"),
        }
        self.plugin.is_some()
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let Some(plugin) = &self.plugin else { return };
        plugin.woken.set(false);
        for _ in 0..TOKENS_MAX {
            if !matches!(hostcalls::dequeue_shared_queue(queue), Ok(Some(_))) {
                break;
            }
        }
        plugin.act(|worker, envoy| worker.ask(envoy, &plugin.config, monotonic()));
    }

    fn on_tick(&mut self) {
        let Some(plugin) = &self.plugin else { return };
        plugin.act(|worker, envoy| worker.tick(envoy, &plugin.config, monotonic()));
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let plugin = self.plugin.clone();
        Some(Box::new(Stream { id, plugin, state: Rc::default(), found: None }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _: usize) {
        let Some(plugin) = &self.plugin else { return };
        let body = answer(headers, body);
        plugin.act(|worker, envoy| {
            worker.answered(envoy, &plugin.config, token, body.as_deref(), monotonic())
        });
    }
}

/// The body of an answer that a decider gave.
fn answer(num_headers: usize, body_size: usize) -> Option<Vec<u8>> {
    if num_headers == 0 {
        return None;
    }
    let header = |name| {
        hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, name).ok().flatten()
    };
    let ours = header(":status").as_deref() == Some(b"200") && header(wire::MARKER).is_some();
    ours.then(|| hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, body_size).ok()?)?
}

/// One request.
struct Stream {
    id: u32,
    plugin: Option<Rc<Plugin>>,
    state: Rc<Cell<State>>,
    found: Option<Found>,
}

struct RequestHeaders;

impl Request for RequestHeaders {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
    }

    fn principal(&self) -> Option<Vec<u8>> {
        hostcalls::get_property(vec!["connection", "uri_san_peer_certificate"]).ok().flatten()
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let Some(plugin) = &self.plugin else {
            return Action::Continue;
        };
        let policy = &plugin.config.policy;
        self.found = request::find(policy, &RequestHeaders);
        let Some(Found { limit, class, claim_refused }) = self.found else {
            self.state.set(State::Unmatched);
            return Action::Continue;
        };
        let envoy = Envoy(plugin);
        if claim_refused {
            envoy.count(limit, OfLimit::ClaimsRefused);
        }
        match self.admit(plugin, limit, class) {
            Admission::Refuse(refused) => {
                self.state.set(State::Refused);
                plugin.refuse(limit, class, refused, Micros::ZERO);
                Action::Pause
            }
            Admission::Forward => {
                self.state.set(State::Forwarded);
                strip(policy.limits.get(limit).map(|limit| limit.priority.header.as_str()));
                plugin.forward(limit, class, false, Micros::ZERO);
                Action::Continue
            }
            Admission::Ask => {
                strip(policy.limits.get(limit).map(|limit| limit.priority.header.as_str()));
                Action::Pause
            }
        }
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        let (Some(plugin), Some(found)) = (&self.plugin, self.found) else {
            return Action::Continue;
        };
        let Some(limit) = plugin.config.policy.limits.get(found.limit) else {
            return Action::Continue;
        };
        let status = || {
            let status = hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, ":status");
            std::str::from_utf8(&status.ok()??).ok()?.parse().ok()
        };
        let details = || hostcalls::get_property(vec!["response", "code_details"]).ok().flatten();
        if self.state.get().is_throttled(&limit.throttle.statuses, status, details) {
            plugin.throttled(found.limit);
        }
        Action::Continue
    }
}

impl Stream {
    /// Where the request goes; on [`Admission::Ask`] it waits in its worker's lane.
    fn admit(&self, plugin: &Plugin, limit: usize, class: usize) -> Admission {
        const FULL: Refused = Refused { wait: Micros::SECOND, cause: Cause::QueueFull };
        let now = monotonic();
        let Ok(mut worker) = plugin.worker.try_borrow_mut() else {
            return Admission::Refuse(FULL);
        };
        let admission = worker.admit(&Envoy(plugin), limit, class, now);
        if admission != Admission::Ask {
            return admission;
        }
        self.state.set(State::Waiting);
        let waiter = Waiter { stream: self.id, since: now, state: self.state.clone() };
        match worker.join(limit, class, waiter) {
            Ok(due) => {
                if due {
                    plugin.wake();
                }
                admission
            }
            Err(_) => Admission::Refuse(FULL),
        }
    }
}

impl Plugin {
    /// The provider refused a request: all stop, and the caller gets a reply it can use.
    fn throttled(&self, index: usize) {
        let Some(limit) = self.config.policy.limits.get(index) else {
            return;
        };
        let envoy = Envoy(self);
        let headers = hostcalls::get_map_bytes(MapType::HttpResponseHeaders).unwrap_or_default();
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
        for (name, _) in headers.iter().filter(|(name, _)| refusal::is_throttle_header(name)) {
            let _ = hostcalls::remove_map_value(MapType::HttpResponseHeaders, name);
        }
        let status = (":status", "429".to_owned());
        for (name, value) in refusal::headers(limit, left).into_iter().chain([status]) {
            let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(&value));
        }
    }
}

/// Takes from the request what must not reach the provider or make Envoy send it again.
fn strip(priority: Option<&str>) {
    for name in STRIPPED.into_iter().chain(priority) {
        let _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
    }
    let (name, value) = MAX_RETRIES;
    let _ = hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value));
}

impl Context for Stream {
    fn on_done(&mut self) -> bool {
        if let (Some(plugin), Some(found), State::Waiting) =
            (&self.plugin, self.found, self.state.get())
        {
            self.state.set(State::Refused);
            if let Ok(mut worker) = plugin.worker.try_borrow_mut() {
                worker.leave(found.limit, found.class, self.id);
            }
        }
        true
    }
}

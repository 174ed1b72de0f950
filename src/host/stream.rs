//! One request's callbacks.

use std::{cell::Cell, rc::Rc};

use limits::Micros;
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext},
    types::{Action, MapType},
};

use super::{
    envoy::{Envoy, monotonic},
    plugin::Plugin,
};
use crate::{
    exchange::{MAX_RETRIES, STRIPPED, State},
    gate::{Admission, Cause, Refused},
    lane::Waiter,
    metrics::OfLimit,
    request::{self, Found, Request},
    worker::Host,
};

/// One request.
pub struct Stream {
    id: u32,
    plugin: Option<Rc<Plugin>>,
    state: Rc<Cell<State>>,
    found: Option<Found>,
}

impl Stream {
    pub fn new(id: u32, plugin: Option<Rc<Plugin>>) -> Self {
        Self { id, plugin, state: Rc::default(), found: None }
    }
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

//! One request's callbacks.

use std::{cell::Cell, rc::Rc};

use limits::{Micros, policy::Limit};
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext},
    types::{Action, MapType},
};

use super::{
    envoy::{Envoy, headers, monotonic},
    plugin::Plugin,
};
use crate::{
    exchange::{MAX_RETRIES, RESERVED, STRIPPED, State},
    gate::{Admission, Cause, Refused},
    lane::Waiter,
    metrics::OfLimit,
    pairs::Pairs,
    request::{self, Found, Request},
    worker::{Host, Settled, Verdict},
};

const FULL: Refused = Refused { wait: Micros::SECOND, cause: Cause::QueueFull };

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

impl Request for Pairs {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.first(name)
    }

    fn principal(&self) -> Option<Vec<u8>> {
        hostcalls::get_property(vec!["connection", "uri_san_peer_certificate"]).ok().flatten()
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let Some(plugin) = &self.plugin else {
            return Action::Continue;
        };
        let policy = &plugin.config.policy;
        let headers = headers(MapType::HttpRequestHeaders);
        self.found = request::find(policy, &headers);
        let Some(found) = self.found else {
            self.state.set(State::Unmatched);
            return Action::Continue;
        };
        let (Found { limit, class, claim_refused }, envoy) = (found, Envoy(plugin));
        if claim_refused {
            envoy.count(limit, OfLimit::ClaimsRefused);
        }
        let Ok(mut worker) = plugin.worker.try_borrow_mut() else {
            return self.refuse(plugin, found, FULL);
        };
        let now = monotonic();
        match worker.admit(&envoy, limit, class, now) {
            Admission::Refuse(refused) if end_of_stream => self.refuse(plugin, found, refused),
            Admission::Refuse(refused) => self.defer(plugin, found, refused, now),
            Admission::Forward => {
                self.state.set(State::Forwarded);
                strip(&headers, policy.limits.get(limit));
                plugin.forward(limit, class, false, Micros::ZERO);
                Action::Continue
            }
            Admission::Ask => match worker.join(limit, class, self.wait(now)) {
                Ok(due) => {
                    if due {
                        plugin.wake();
                    }
                    strip(&headers, policy.limits.get(limit));
                    Action::Pause
                }
                Err(_) => self.refuse(plugin, found, FULL),
            },
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
    /// The stream waits to be settled in a root callback.
    fn wait(&self, now: Micros) -> Waiter {
        self.state.set(State::Waiting);
        Waiter { stream: self.id, since: now, state: self.state.clone() }
    }

    fn refuse(&self, plugin: &Plugin, found: Found, refused: Refused) -> Action {
        self.state.set(State::Refused);
        plugin.refuse(found.limit, found.class, refused);
        Action::Pause
    }

    fn defer(&self, plugin: &Plugin, found: Found, refused: Refused, now: Micros) -> Action {
        let Found { limit, class, .. } = found;
        let verdict = Verdict::Refused(refused);
        match plugin.defer(Settled { limit, class, waiter: self.wait(now), verdict }) {
            Ok(()) => Action::Pause,
            Err(_) => self.refuse(plugin, found, refused),
        }
    }
}

/// Takes from the request what must not reach the provider or make Envoy send it again.
fn strip(headers: &Pairs, limit: Option<&Limit>) {
    let priority = limit.map_or("", |limit| limit.priority.header.as_str());
    let ours = |name: &[u8]| {
        name == priority.as_bytes()
            || name.starts_with(RESERVED.as_bytes())
            || STRIPPED.iter().any(|known| known.as_bytes() == name)
    };
    for (name, _) in headers.iter().filter(|(name, _)| ours(name)) {
        if let Ok(name) = std::str::from_utf8(name) {
            let _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
        }
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

//! Envoy: the only module that names `proxy_wasm`. It passes on what happens and does what it is told;
//! decisions are made elsewhere. Here: the root context of a worker. `plugin`: what root and streams
//! share. `stream`: one request. `envoy`: the host's functions.
//!
//! Where it trips, each seen in the real Envoy:
//! - a call is answered to the context that made it, and lost with it: calls are made in the root's
//!   callbacks only, woken by a shared queue of the worker's own;
//! - the effective context must be set back after a stream was resumed, or the next look traps;
//! - a call that was reset in mid-body comes back with no headers, and reading one then traps;
//! - the text getters panic on bytes that are no UTF-8: only the byte getters are used;
//! - request headers cannot be read any more when the response comes.

use std::{rc::Rc, time::Duration};

use limits::wire;
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext, RootContext},
    types::{BufferType, ContextType, LogLevel, MapType},
};

use self::{envoy::monotonic, plugin::Plugin, stream::Stream};
use crate::config::Config;

mod envoy;
mod plugin;
mod stream;

/// Resolution of probes, retries of reports and the watchdog.
const TICK: Duration = Duration::from_millis(50);

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(Root { id, plugin: None }));
}}

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
        // `woken` lets in one token at a time, and each has a call of its own.
        let _ = hostcalls::dequeue_shared_queue(queue);
        plugin.act(|worker, envoy| worker.ask(envoy, &plugin.config, monotonic()));
    }

    fn on_tick(&mut self) {
        let Some(plugin) = &self.plugin else { return };
        plugin.act(|worker, envoy| worker.tick(envoy, &plugin.config, monotonic()));
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream::new(id, self.plugin.clone())))
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
    let headers = envoy::headers(MapType::HttpCallResponseHeaders);
    let ok = headers.first(":status") == Some(b"200");
    let ours = ok && headers.first(wire::MARKER).is_some();
    ours.then(|| hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, body_size).ok()?)?
}

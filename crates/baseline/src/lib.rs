//! Filters to measure Weir against, built the way it is.
//!
//! The plugin configuration chooses: `noop` looks at nothing; `call <limit> <class>` makes one plain
//! call to the cluster `weir` for each request, as a filter without lanes would, and lets the
//! request go whatever the answer. `obey` does what a request's header `x-baseline` says: `trap` kills
//! the virtual machine, as the real filter never may, and `pause` holds the request for ever. For
//! benchmarks and for the test of such a death only: it decides nothing.

use std::time::Duration;

use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext, RootContext},
    types::{Action, BufferType, ContextType},
};

const TIMEOUT: Duration = Duration::from_millis(50);

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root { mode: Mode::Noop }));
}}

#[derive(Clone)]
enum Mode {
    Noop,
    /// With the body of each call.
    Call(Vec<u8>),
    Obey,
}

struct Root {
    mode: Mode,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
        let text = bytes.ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.unwrap_or_default();
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("noop"), None, None) => true,
            (Some("obey"), None, None) => {
                self.mode = Mode::Obey;
                true
            }
            (Some("call"), Some(limit), Some(class)) => {
                let wants = format!(r#"[{{"class":"{class}","n":1}}]"#);
                let body = format!(
                    r#"{{"limit":"{limit}","policy":"","gateway":"baseline","wants":{wants}}}"#
                );
                self.mode = Mode::Call(body.into_bytes());
                true
            }
            _ => false,
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { mode: self.mode.clone() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    mode: Mode,
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        match &self.mode {
            Mode::Noop => Action::Continue,
            Mode::Call(body) => self.call(body),
            Mode::Obey => match self.get_http_request_header_bytes("x-baseline").as_deref() {
                Some(b"trap") => panic!("told to"),
                Some(b"pause") => Action::Pause,
                _ => Action::Continue,
            },
        }
    }
}

impl Stream {
    fn call(&self, body: &[u8]) -> Action {
        let headers = vec![
            (":method", "POST"),
            (":path", "/v1/decide"),
            (":authority", "weir"),
            ("content-type", "application/json"),
        ];
        match self.dispatch_http_call("weir", headers, Some(body), vec![], TIMEOUT) {
            Ok(_) => Action::Pause,
            Err(_) => Action::Continue,
        }
    }
}

impl Context for Stream {
    fn on_http_call_response(&mut self, _: u32, _: usize, _: usize, _: usize) {
        self.resume_http_request();
    }
}

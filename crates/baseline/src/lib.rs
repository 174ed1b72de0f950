//! Filters to measure Weir against, built the way it is.
//!
//! The plugin configuration chooses: `noop` looks at nothing; `call <limit> <class>` makes one plain
//! call to the cluster `weir` for each request, as a filter without lanes would, and lets the
//! request go whatever the answer. For benchmarks only: it decides nothing.

use std::time::Duration;

use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext, RootContext},
    types::{Action, BufferType, ContextType},
};

const TIMEOUT: Duration = Duration::from_millis(50);

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root { body: None }));
}}

struct Root {
    /// Body of each call; none for `noop`.
    body: Option<Vec<u8>>,
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
            (Some("call"), Some(limit), Some(class)) => {
                let wants = format!(r#"[{{"class":"{class}","n":1}}]"#);
                let body = format!(
                    r#"{{"limit":"{limit}","policy":"","gateway":"baseline","wants":{wants}}}"#
                );
                self.body = Some(body.into_bytes());
                true
            }
            _ => false,
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { body: self.body.clone() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    body: Option<Vec<u8>>,
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let Some(body) = &self.body else { return Action::Continue };
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

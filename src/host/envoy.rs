//! The host's functions: clocks, shared data, calls, local replies.

use std::time::{Duration, UNIX_EPOCH};

use limits::Micros;
use proxy_wasm::{hostcalls, types::MapType};

use super::plugin::Plugin;
use crate::{gate::SharedData, metrics::OfLimit, pairs::Pairs, refusal, worker::Host};

/// Counts the queues of this process, so that each worker gets a name of its own.
const QUEUES_KEY: &str = "weir.queues";
const PROCESS_KEY: &str = "weir.process";
/// Put-if-absent in Envoy's compare-and-swap.
const ABSENT: u32 = u32::MAX;

#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "wasi_snapshot_preview1"))]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
}

// The SDK's own versions panic when the host refuses; a stream that has just gone is no reason to.
#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "env"))]
unsafe extern "C" {
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream_type: u32) -> u32;
    fn proxy_get_header_map_pairs(map: MapType, data: *mut *mut u8, size: *mut usize) -> u32;
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
pub fn monotonic() -> Micros {
    const CLOCK_MONOTONIC: u32 = 1;
    let mut nanos = 0_u64;
    // SAFETY: the host writes eight bytes to an address that is valid for them.
    unsafe { clock_time_get(CLOCK_MONOTONIC, 0, &raw mut nanos) };
    Micros(nanos / 1_000)
}

/// µs since the epoch.
pub fn wall() -> Micros {
    let since = hostcalls::get_current_time().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    Micros(since.and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or(0))
}

pub fn set_effective_context(context: u32) -> bool {
    // SAFETY: no memory is passed.
    unsafe { proxy_set_effective_context(context) == 0 }
}

/// Lets the stream of the effective context go on to the provider.
pub fn resume_request() {
    const HTTP_REQUEST: u32 = 0;
    // SAFETY: no memory is passed.
    unsafe { proxy_continue_stream(HTTP_REQUEST) };
}

/// Answers the stream of the effective context: 429, and RESOURCE_EXHAUSTED if it speaks gRPC.
/// `headers` are written as [`crate::pairs::write`] does.
pub fn reply(details: &str, headers: &[u8], body: &[u8]) {
    // SAFETY: the host copies from addresses and lengths of live slices and keeps none.
    unsafe {
        proxy_send_local_response(
            429,
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            refusal::GRPC_STATUS,
        )
    };
}

/// All header fields of a map that is there in this phase; empty when it is not.
pub fn headers(map: MapType) -> Pairs {
    let (mut data, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the host writes an address and a length to places that are valid for them; the memory
    // there was allocated for it by the SDK's `Vec`, with that length as its capacity, and is ours now.
    unsafe {
        if proxy_get_header_map_pairs(map, &raw mut data, &raw mut size) != 0 || data.is_null() {
            return Pairs::default();
        }
        Pairs::of(Vec::from_raw_parts(data, size, size))
    }
}

/// What the worker sees of Envoy.
pub struct Envoy<'a>(pub &'a Plugin);

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

pub fn increment(metric: Option<u32>) {
    if let Some(metric) = metric {
        let _ = hostcalls::increment_metric(metric, 1);
    }
}

/// What tells this process from every other: the first worker's nonce, for all.
pub fn process(nonce: &str) -> Option<String> {
    let _ = hostcalls::set_shared_data(PROCESS_KEY, Some(nonce.as_bytes()), Some(ABSENT));
    let (bytes, _) = hostcalls::get_shared_data(PROCESS_KEY).ok()?;
    String::from_utf8(bytes?).ok()
}

/// A number no other queue of this process has.
pub fn queue_number() -> Option<u32> {
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

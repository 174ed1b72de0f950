//! A third party that throttles, to judge senders by.
//!
//! Promise: it answers calls as the configured provider would, and reports what reached it by
//! counters of its own. It shares no arithmetic with the senders it judges (no dependency on
//! `limits`), so that one mistake cannot hide in both.
//!
//! Reading order: [`model`] decides, [`rolling_max`] and [`record`] count, [`class`] and
//! [`message`] read bodies, [`reply`] words refusals, [`losses`] loses replies, [`config`] is
//! what can be set, [`provider`] joins them, [`http`] serves it.

mod broken;
pub mod class;
pub mod config;
mod header_bytes;
pub mod http;
pub mod losses;
pub mod message;
pub mod model;
pub mod provider;
pub mod record;
pub mod reply;
pub mod rolling_max;
mod server;
mod texts;

pub use server::Server;

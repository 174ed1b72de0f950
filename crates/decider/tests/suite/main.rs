//! The decider as others see it: scripts, stores, endpoint, program.
//!
//! Redis is taken from `REDIS_SERVER` or the PATH and started here, on a free port. Without one
//! these tests fail; nothing is skipped.

mod cases;
mod cluster;
mod faults;
mod hostile;
mod load;
mod plain;
mod policies;
mod program;
mod random;
mod redis_server;
mod script;
mod sentinel;
mod stores;
mod testdata;
mod tls;

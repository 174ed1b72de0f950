//! How large the filter is, and what each of its virtual machines takes.
//!
//! Envoy keeps one virtual machine per worker (and some of its own). So a gateway is started with few
//! and with many workers, with the filter and without, and each is loaded until every worker has
//! served requests. What many workers need more than few, less what they need more without the
//! filter, divided by the virtual machines that were added, is the memory of one. Counted is
//! anonymous resident memory: V8 keeps its memory apart from Envoy's own allocator, whose statistics
//! do not see it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::http::Client;
use serde::Serialize;
use serde_json::Value;

use super::load::Wrk;
use super::{arena, compare, cpu};
use crate::stack::{Programs, Stack};
use crate::{paths, run};

const FEW: u16 = 1;
const MANY: u16 = 9;
const LOADED: Duration = Duration::from_secs(2);

/// Aims, told and not enforced.
pub const MODULE_AIM: u64 = 400_000;
pub const VM_AIM: u64 = 4_000_000;

#[derive(Debug, Serialize)]
pub struct Memory {
    pub module_bytes: u64,
    /// `None` where `/proc` is missing.
    pub bytes_per_vm: Option<u64>,
    gateways: Vec<Gateway>,
}

#[derive(Debug, Clone, Serialize)]
struct Gateway {
    with_filter: bool,
    workers: u16,
    vms: u64,
    anonymous_bytes: Option<u64>,
}

impl Memory {
    pub async fn measure(programs: &Programs, wrk: &Wrk) -> Result<Self> {
        let module = paths::wasm_module("weir");
        let module_bytes =
            module.metadata().with_context(|| format!("{}", module.display()))?.len();
        run::say("memory: gateways with few and many workers");
        let with = arena::sample()?;
        let mut without = with.clone();
        arena::without_filter(&mut without)?;
        let mut gateways = Vec::new();
        for (template, with_filter) in [(&with, true), (&without, false)] {
            for workers in [FEW, MANY] {
                let gateway = one(programs, wrk, template, workers, with_filter).await;
                gateways.push(gateway.with_context(|| format!("{workers} workers"))?);
            }
        }
        let bytes_per_vm = bytes_per_vm(&gateways);
        Ok(Self { module_bytes, bytes_per_vm, gateways })
    }
}

async fn one(
    programs: &Programs,
    wrk: &Wrk,
    template: &Value,
    workers: u16,
    with_filter: bool,
) -> Result<Gateway> {
    let options = arena::options(workers, false, template)?;
    let stack = Stack::start(&options, programs).await?;
    let client = Client::default();
    arena::unbound_provider(&client, &stack.provider).await?;
    let load = compare::granted_load();
    wrk.run(&load, &stack.gateways[0], LOADED).await?;
    let admin = stack.admin[0].to_string();
    let vms = arena::statistics(&client, &admin, "wasm.envoy.wasm.runtime.v8.").await?;
    let vms = vms.get("active").copied().unwrap_or(0);
    let pids = stack.pids();
    let gateway = pids.iter().find(|(name, _)| name == "gateway-0");
    let anonymous_bytes = gateway.and_then(|(_, pid)| cpu::anonymous_bytes(*pid));
    stack.stop().await;
    ensure!(with_filter == (vms > 0), "Envoy counted {vms} virtual machines");
    Ok(Gateway { with_filter, workers, vms, anonymous_bytes })
}

fn bytes_per_vm(gateways: &[Gateway]) -> Option<u64> {
    let find = |with_filter, workers| {
        gateways.iter().find(|g| g.with_filter == with_filter && g.workers == workers)
    };
    let added = |with_filter| {
        let (few, many) = (find(with_filter, FEW)?, find(with_filter, MANY)?);
        let bytes = many.anonymous_bytes?.saturating_sub(few.anonymous_bytes?);
        Some((bytes, many.vms.saturating_sub(few.vms)))
    };
    let ((with, vms), (without, _)) = (added(true)?, added(false)?);
    with.saturating_sub(without).checked_div(vms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_filter_adds_per_machine_is_counted() {
        let gateway = |with_filter, workers, vms, bytes| Gateway {
            with_filter,
            workers,
            vms,
            anonymous_bytes: Some(bytes),
        };
        let mut all = vec![
            gateway(true, FEW, 3, 50),
            gateway(true, MANY, 11, 50 + 8 * 3 + 8 * 2),
            gateway(false, FEW, 0, 40),
            gateway(false, MANY, 0, 40 + 8 * 2),
        ];
        assert_eq!(bytes_per_vm(&all), Some(3));
        all[0].anonymous_bytes = None;
        assert_eq!(bytes_per_vm(&all), None);
    }
}

//! `target/bench/report.json`, and the same as tables for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::compare::{Aim, Comparison, Figures, Measured, median};
use super::memory::{MODULE_AIM, Memory, VM_AIM};
use crate::{paths, run};

pub struct Report {
    rounds: u32,
    seconds: u64,
    load_average_before: Option<String>,
    measured: Vec<(Comparison, Measured)>,
    pub memory: Option<Memory>,
    pub failures: Vec<String>,
}

impl Report {
    pub fn new(rounds: u32, seconds: u64) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load_average_before = load.map(|text| text.trim().to_owned());
        if let Some(load) = load_average_before.as_deref().filter(|load| is_busy(load)) {
            run::say(format!("this machine is busy (load average {load}): the spread will tell"));
        }
        Self {
            rounds,
            seconds,
            load_average_before,
            measured: Vec::new(),
            memory: None,
            failures: Vec::new(),
        }
    }

    pub fn add(&mut self, comparison: Comparison, measured: Measured) {
        let name = comparison.name();
        if measured.ratios(comparison.ratio).is_empty() {
            self.failures.push(format!("{name}: no round gave a ratio"));
        }
        self.measured.push((comparison, measured));
    }

    pub fn failed(&mut self, name: String, error: &anyhow::Error) {
        run::say(format!("{name}: {error:#}"));
        self.failures.push(format!("{name}: {error:#}"));
    }

    pub fn write(&self) -> Result<PathBuf> {
        let file = paths::target("bench").join("report.json");
        std::fs::write(&file, serde_json::to_string_pretty(&self.json())?)?;
        Ok(file)
    }

    fn json(&self) -> Value {
        let ratio = |(comparison, measured): &(Comparison, Measured)| {
            (comparison.name(), json!(median(&measured.ratios(comparison.ratio))))
        };
        let ratios: BTreeMap<String, Value> = self.measured.iter().map(ratio).collect();
        let aims: BTreeMap<String, Aim> = self
            .measured
            .iter()
            .map(|(comparison, _)| (comparison.name(), comparison.aim))
            .collect();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        json!({
            "ratios": ratios,
            "aims": aims,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "machine": { "cpus": cpus, "load_average_before": self.load_average_before },
            "memory": self.memory,
            "comparisons": self.measured.iter().map(comparison_json).collect::<Vec<_>>(),
            "not_measured": self.failures,
        })
    }
}

/// Whether others keep more than half of the CPUs busy. A build just before shows as well.
fn is_busy(load_average: &str) -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let last_minute = load_average.split_whitespace().next().and_then(|load| load.parse().ok());
    last_minute.is_some_and(|load: f64| load > cpus as f64 / 2.0)
}

fn comparison_json((comparison, measured): &(Comparison, Measured)) -> Value {
    let side = |(index, side): (usize, &super::compare::Side)| {
        let rounds: Vec<&Figures> =
            measured.rounds.iter().filter_map(|round| round.get(index)).collect();
        json!({
            "name": side.name,
            "connections": side.load.connections,
            "per_s": measured.median(index, |figures| Some(figures.per_s)),
            "p50_us": measured.median(index, |figures| Some(figures.seen.p50_us as f64)),
            "cpu_us": cpu(measured, index),
            "rounds": rounds,
        })
    };
    json!({
        "name": comparison.name(),
        "what": comparison.what,
        "ratio_of_each_round": measured.ratios(comparison.ratio),
        "sides": comparison.sides.iter().enumerate().map(side).collect::<Vec<_>>(),
    })
}

/// Median CPU µs per request of each process that did something.
fn cpu(measured: &Measured, side: usize) -> BTreeMap<String, f64> {
    let figures = measured.rounds.iter().filter_map(|round| round.get(side));
    let names: BTreeSet<&String> = figures.flat_map(|figures| figures.cpu_us.keys()).collect();
    let of = |name: &String| {
        let spent = measured.median(side, |figures| figures.cpu_us.get(name).copied());
        spent.map(|us| (name.clone(), us))
    };
    names.into_iter().filter_map(of).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.measured.is_empty() {
            let each = format!("{} rounds of {} s each", self.rounds, self.seconds);
            writeln!(f, "Ratios: median of {each}, compared in turn\n{}", self.ratios_table())?;
            writeln!(f, "\nMedians, and CPU µs per request\n{}", self.sides_table())?;
            if self.has_no_cpu_times() {
                writeln!(f, "CPU times are not measured: this system has no /proc.")?;
            }
        }
        let Some(memory) = &self.memory else { return Ok(()) };
        writeln!(f, "\nSize of the filter\n{}", memory_table(memory))
    }
}

impl Report {
    fn ratios_table(&self) -> Table {
        let mut table = table(&["ratio", "median", "least", "most", "aim", ""]);
        for (comparison, measured) in &self.measured {
            let ratios = measured.ratios(comparison.ratio);
            let least = ratios.iter().copied().min_by(f64::total_cmp);
            let most = ratios.iter().copied().max_by(f64::total_cmp);
            let middle = median(&ratios);
            let (sign, bound) = match comparison.aim {
                Aim::AtLeast(bound) => ("≥", bound),
                Aim::AtMost(bound) => ("≤", bound),
            };
            let met = middle.map(|ratio| comparison.aim.is_met(ratio));
            table.add_row([
                comparison.name(),
                shown(middle, 3),
                shown(least, 3),
                shown(most, 3),
                format!("{sign} {bound:.2}"),
                met.map_or("", |met| if met { "met" } else { "missed" }).to_owned(),
            ]);
        }
        table
    }

    fn sides_table(&self) -> Table {
        let header =
            ["", "side", "connections", "requests/s", "p50 µs", "p99 µs", "CPU µs per request"];
        let mut table = table(&header);
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        if let Some(column) = table.column_mut(6) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        for (comparison, measured) in &self.measured {
            for (index, side) in comparison.sides.iter().enumerate() {
                let cpu = cpu(measured, index);
                let cpu: Vec<String> = cpu
                    .iter()
                    .filter(|(_, us)| **us >= 0.05)
                    .map(|(name, us)| format!("{name} {us:.1}"))
                    .collect();
                let of = |what: fn(&Figures) -> f64| {
                    shown(measured.median(index, |figures| Some(what(figures))), 0)
                };
                table.add_row([
                    if index == 0 { comparison.name() } else { String::new() },
                    side.name.to_owned(),
                    side.load.connections.to_string(),
                    of(|figures| figures.per_s),
                    of(|figures| figures.seen.p50_us as f64),
                    of(|figures| figures.seen.p99_us as f64),
                    cpu.join(", "),
                ]);
            }
        }
        table
    }

    fn has_no_cpu_times(&self) -> bool {
        let mut figures = self.measured.iter().flat_map(|(_, m)| m.rounds.iter().flatten());
        figures.all(|figures| figures.cpu_us.is_empty())
    }
}

fn memory_table(memory: &Memory) -> Table {
    let mut table = table(&["", "bytes", "aim", ""]);
    let met = |bytes: u64, aim: u64| if bytes <= aim { "met" } else { "missed" };
    let size = memory.module_bytes;
    table.add_row([
        "module (weir.wasm)".to_owned(),
        size.to_string(),
        format!("≤ {MODULE_AIM}"),
        met(size, MODULE_AIM).to_owned(),
    ]);
    table.add_row([
        "memory of one virtual machine".to_owned(),
        memory.bytes_per_vm.map_or("not measured: no /proc".to_owned(), |b| b.to_string()),
        format!("≤ {VM_AIM}"),
        memory.bytes_per_vm.map_or("", |bytes| met(bytes, VM_AIM)).to_owned(),
    ]);
    table
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

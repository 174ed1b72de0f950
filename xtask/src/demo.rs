//! `cargo xtask demo`: the incident's load through two real gateways, judged by the provider.
//!
//! A campaign sends 200 messages a second into an account sold at 100, while people log in. Shown
//! is what the senders saw and what the provider saw. The command fails if the contract was
//! exceeded or a login code was refused: a demo that shows the opposite must not look like success.

use std::time::Duration;

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use lab::http::Client;
use lab::{Arrivals, Stream, Summary, Target, percentile};
use serde::Deserialize;

use crate::stack::{Options, Programs, Stack};
use crate::{paths, run, up};

const LASTING: Duration = Duration::from_secs(10);
const MARKETING_PER_S: f64 = 200.0;
const OTP_PER_S: f64 = 5.0;
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// The part of the provider's report that is shown.
#[derive(Debug, Deserialize)]
struct Report {
    arrivals: u64,
    refused: u64,
    max_in_any_1s: u64,
    suspended: bool,
    by_class: std::collections::BTreeMap<String, ClassReport>,
}

#[derive(Debug, Deserialize)]
struct ClassReport {
    arrivals: u64,
    max_in_any_1s: u64,
}

/// What the provider sold, in its own words.
#[derive(Debug, Deserialize)]
struct Model {
    limit: u64,
    window: String,
}

pub fn run() -> Result<()> {
    let programs = Programs::build(false)?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let told_to_end = up::told_to_end()?;
        tokio::select! {
            result = show(&programs) => result,
            () = told_to_end => bail!("interrupted"),
        }
    })
}

async fn show(programs: &Programs) -> Result<()> {
    let options = Options {
        gateways: 2,
        deciders: 1,
        redis: false,
        policy: paths::root().join("envoy/policy.yaml"),
        provider: None,
        decider: None,
        template: paths::root().join("envoy/envoy.yaml"),
        keep_plugin_config: false,
        workers: 2,
        ephemeral: true,
    };
    let mut stack = Stack::start(&options, programs).await?;
    let provider = stack.provider.to_string();
    let client = Client::default();
    let model: Model = client.get_json(&provider, "/_sim/model", CALL_LIMIT).await?;
    run::say(format!(
        "sending {MARKETING_PER_S} marketing messages and {OTP_PER_S} login codes a second for {} s",
        LASTING.as_secs()
    ));
    let gateways: Vec<String> = stack.gateways.iter().map(ToString::to_string).collect();
    let even = |per_s| Arrivals::Even { per_s, lasting: LASTING };
    let streams =
        [Stream::new("otp", even(OTP_PER_S)), Stream::new("marketing", even(MARKETING_PER_S))];
    let sent = lab::send(&Target::new(&gateways), &streams).await;
    let report: Report = client.get_json(&provider, "/_sim/report", CALL_LIMIT).await?;
    let died = stack.newly_ended()?;
    stack.stop().await;
    if !died.is_empty() {
        bail!("{}", died.join("; "));
    }
    let summaries: Vec<Summary> =
        (0..streams.len()).map(|stream| Summary::of_stream(&sent, stream)).collect();
    println!("\nWhat the senders saw\n{}", senders_table(&streams, &summaries));
    println!("\nWhat the provider saw\n{}", provider_table(&report, &model));
    verdict(&report, &model, &summaries[0])
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

fn senders_table(streams: &[Stream], summaries: &[Summary]) -> Table {
    let mut table = table(&[
        "class",
        "sent",
        "passed",
        "refused (429)",
        "failed",
        "added time p50",
        "p99",
        "told to wait",
    ]);
    for (stream, summary) in streams.iter().zip(summaries) {
        table.add_row([
            stream.class.clone(),
            summary.sent.to_string(),
            summary.passed.to_string(),
            summary.refused.to_string(),
            summary.failed().to_string(),
            shown_ms(percentile(&summary.added, 50.0)),
            shown_ms(percentile(&summary.added, 99.0)),
            shown_range(&summary.retry_after),
        ]);
    }
    table
}

fn provider_table(report: &Report, model: &Model) -> Table {
    let mut table = table(&["", "seen", "contract"]);
    let contract = format!("{} per {}", model.limit, model.window);
    let mut row = |name: &str, seen: String, contract: &str| {
        table.add_row([name, &seen, contract]);
    };
    row("most in any 1 s", report.max_in_any_1s.to_string(), &contract);
    for (class, part) in &report.by_class {
        let name = format!("  of these {class}, most in any 1 s");
        row(&name, part.max_in_any_1s.to_string(), "");
    }
    row("arrivals in all", report.arrivals.to_string(), "");
    for (class, part) in &report.by_class {
        row(&format!("  of these {class}"), part.arrivals.to_string(), "");
    }
    row("answered 429", report.refused.to_string(), "");
    let suspended = if report.suspended { "yes" } else { "no" };
    row("account suspended", suspended.to_owned(), "");
    table
}

fn verdict(report: &Report, model: &Model, otp: &Summary) -> Result<()> {
    let mut wrong = Vec::new();
    if report.max_in_any_1s > model.limit {
        wrong.push(format!(
            "the provider saw {} in one second, its contract is {}",
            report.max_in_any_1s, model.limit
        ));
    }
    if report.refused > 0 {
        wrong.push(format!("the provider refused {}", report.refused));
    }
    if otp.passed < otp.sent {
        wrong.push(format!("{} login codes did not pass", otp.sent - otp.passed));
    }
    if !wrong.is_empty() {
        bail!("that is not how it should be: {}", wrong.join("; "));
    }
    println!("\nThe contract was kept, the provider refused nothing, every login code passed.");
    Ok(())
}

fn shown_ms(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3))
}

/// Of a sorted list.
fn shown_range(times: &[Duration]) -> String {
    match (times.first(), times.last()) {
        (Some(least), Some(most)) => {
            format!("{} to {}", shown_ms(Some(*least)), shown_ms(Some(*most)))
        }
        _ => "-".to_owned(),
    }
}

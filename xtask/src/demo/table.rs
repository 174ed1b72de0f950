//! The demo's table, and a line for each design while it goes on.

use comfy_table::{CellAlignment, Table, presets};
use lab::Design;

use super::report::{Report, Run};
use super::{Done, PROVIDERS};

pub fn of(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "design",
        "provider",
        "refused (429)",
        "most in any 1 s",
        "login code waits p50",
        "p99",
        "sent otp",
        "marketing",
        "account suspended",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for run in &report.runs {
        let title = run.design.parse::<Design>().map_or("", Design::title);
        table.add_row([
            format!("{}: {title}", run.design),
            run.provider.to_owned(),
            run.refused_429.to_string(),
            run.max_in_any_1s.to_string(),
            shown_ms(run.otp_p50_ms),
            shown_ms(run.otp_p99_ms),
            run.otp_sent.to_string(),
            run.marketing_sent.to_string(),
            shown_suspension(run),
        ]);
    }
    table
}

/// Refusals of each run so far, for progress.
pub fn line_of(done: &[Done], design: Design) -> String {
    let of_provider = |provider: &str| {
        let same = done.iter().filter(|one| one.design == design && one.provider == provider);
        let refused: Vec<String> = same.map(|one| one.outcome.refused.to_string()).collect();
        format!("{provider} {}", refused.join(" "))
    };
    let refused = PROVIDERS.map(|(provider, _)| of_provider(provider)).join(", ");
    format!("    {} was refused: {refused}", design.name())
}

pub fn shown_ms(ms: f64) -> String {
    match ms {
        ..100.0 => format!("{ms:.1} ms"),
        100.0..1_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

pub fn shown_suspension(run: &Run) -> String {
    run.suspended_after_s.map_or_else(|| "no".to_owned(), |after| format!("after {after:.1} s"))
}

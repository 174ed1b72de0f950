//! The matrix as a table, for the terminal and for docs/lab.md.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use lab::{Design, Outcome};

use super::Cell;
use super::models::Model;
use crate::paths;

const BEGIN: &str = "<!-- cargo xtask lab: begin -->";
const END: &str = "<!-- cargo xtask lab: end -->";

pub fn for_terminal(models: &[&'static Model], designs: &[Design], cells: &[Cell]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(std::iter::once("provider").chain(designs.iter().map(|d| d.name())));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for model in models {
        let row = designs.iter().map(|design| cell(cells, model, *design));
        table.add_row(std::iter::once(format!("{}{}", model.name, aim(model))).chain(row));
    }
    table
}

pub fn markdown(
    models: &[&'static Model],
    designs: &[Design],
    cells: &[Cell],
    command: &str,
    seconds: u64,
) -> String {
    let mut text = format!(
        "Made by `{command}`; one run of {seconds} s in each cell. Weir runs the sample policy \
         (target 90/s, burst 5) unless the row says otherwise.\n\n| provider |"
    );
    let names = designs.iter().map(|design| format!(" {} |", design.name()));
    text.extend(names);
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(designs.len()));
    for model in models {
        let counts = model.counts(seconds);
        // Writing into a String cannot fail.
        let _ = write!(text, "\n| `{}`: {counts}{} |", model.name, aim(model));
        for design in designs {
            let mut shown = cell(cells, model, *design);
            if let (Design::Weir, Some(_)) = (design, model.not_built) {
                shown.push_str(" ¹");
            }
            let _ = write!(text, " {shown} |");
        }
    }
    let mut needs: Vec<&str> = models.iter().filter_map(|model| model.not_built).collect();
    needs.dedup();
    if !needs.is_empty() {
        let needs = needs.join(" and ");
        let _ = write!(text, "\n\n¹ Not promised: it needs {needs}, which Weir does not have yet.");
    }
    text.push('\n');
    text
}

fn aim(model: &Model) -> String {
    model.aim().map_or_else(String::new, |aim| format!("; Weir: {aim}"))
}

fn cell(cells: &[Cell], model: &Model, design: Design) -> String {
    let found = cells.iter().find(|cell| cell.model.name == model.name && cell.design == design);
    found.map_or_else(String::new, |cell| shown(&cell.outcome))
}

fn shown(outcome: &Outcome) -> String {
    match fullest(outcome) {
        Some((most, limit)) => format!("{} ({most}/{limit})", refusals(outcome)),
        None => refusals(outcome),
    }
}

/// How many, or when the account was stopped: later refusals tell nothing of the design.
pub fn refusals(outcome: &Outcome) -> String {
    match outcome.suspended_after_s {
        Some(after) => format!("stopped at {after:.1} s"),
        None => outcome.refused.to_string(),
    }
}

/// What was in the window that was fullest for its limit.
fn fullest(outcome: &Outcome) -> Option<(u64, u64)> {
    let full = outcome.windows.iter().filter_map(|window| {
        let most = match window.kind.as_str() {
            // What flows out or ends meanwhile makes the number in an interval meaningless.
            "concurrency" | "leaky" => return None,
            _ => window.max_in_any?,
        };
        Some((most, window.limit))
    });
    // most ÷ limit, without division.
    full.max_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)))
}

/// Replaces what stands between the marks.
pub fn put_into(file: &Path, table: &str) -> Result<()> {
    let name = paths::shown(file);
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let marked = || format!("{name} has no lines `{BEGIN}` and `{END}`");
    let (before, rest) = text.split_once(BEGIN).with_context(marked)?;
    let (_, after) = rest.split_once(END).with_context(marked)?;
    std::fs::write(file, format!("{before}{BEGIN}\n{table}{END}{after}"))
        .with_context(|| format!("cannot write {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_another_policy_than_the_samples_says_so() {
        let models: Vec<&Model> = super::super::models::ALL.iter().collect();
        let text = markdown(&models, &[Design::Weir], &[], "x", 5);
        let row = |name: &str| text.lines().find(|line| line.starts_with(&format!("| `{name}`:")));
        let says = |name, what| row(name).is_some_and(|row| row.contains(what));
        assert!(says("per-100ms", "; Weir: target 75/s, burst 1 |"), "{text}");
        assert!(says("minute", "; Weir: target 80/s, burst 5 |"), "{text}");
        assert!(!says("rolling", "Weir:"), "{text}");
    }

    #[test]
    fn the_table_is_put_between_the_marks_and_nothing_else_changes() -> Result<()> {
        let file = std::env::temp_dir().join(format!("weir-matrix-{}", std::process::id()));
        std::fs::write(&file, format!("before\n{BEGIN}\nold\n{END}\nafter\n"))?;
        put_into(&file, "new\n")?;
        let text = std::fs::read_to_string(&file)?;
        std::fs::write(&file, "no marks")?;
        let refused = put_into(&file, "new\n").is_err();
        std::fs::remove_file(&file)?;
        assert_eq!(text, format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        assert!(refused);
        Ok(())
    }
}

//! One run as a picture: what arrived against the contract, and how long login codes waited.
//!
//! Colours are Okabe and Ito's, told apart by the colour-blind and in grey; what was refused also
//! stands on top of what was accepted, and a login code that never went is a cross, not a dot.

use std::time::Duration;

use anyhow::{Result, anyhow};
use lab::{CONTRACT_PER_S, Design, Outcome, Tenth};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Done;
use super::report::{Report, Run};
use super::table::shown_ms;

pub const ACCEPTED: RGBColor = RGBColor(0, 114, 178);
pub const REFUSED: RGBColor = RGBColor(213, 94, 0);
const IN_LAST_SECOND: RGBColor = RGBColor(40, 40, 40);
const INK: RGBColor = RGBColor(60, 60, 60);
const FAINT: RGBColor = RGBColor(225, 225, 225);

const PANEL: (u32, u32) = (560, 330);
const HEADER: u32 = 96;
/// The same for all, so that panels compare; what is higher is cut off, and said in figures.
const MOST_SHOWN: u32 = 250;
/// ms. What is quicker or slower is drawn at the edge.
const WAITS: std::ops::Range<f64> = 1.0..10_000.0;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The panel of one run, for a page that has the design's name beside it.
pub fn panel(done: &Done) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, PANEL).into_drawing_area();
        draw(&area, done, &format!("{} provider", done.provider)).map_err(unwieldy)?;
        area.present().map_err(unwieldy)?;
    }
    Ok(svg)
}

/// All panels in one picture, a row for each design.
pub fn sheet(report: &Report, drawn: &[&Done]) -> Result<String> {
    let rows = drawn.len().div_ceil(2);
    let size = (2 * PANEL.0, HEADER + rows as u32 * PANEL.1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(unwieldy)?;
        let (header, panels) = root.split_vertically(HEADER);
        legend(&header, report).map_err(unwieldy)?;
        for (area, done) in panels.split_evenly((rows, 2)).iter().zip(drawn) {
            let title = format!(
                "{}: {}, {} provider",
                done.design.name(),
                done.design.title(),
                done.provider
            );
            draw(area, done, &title).map_err(unwieldy)?;
        }
        root.present().map_err(unwieldy)?;
    }
    Ok(svg)
}

/// The run that is drawn for a design and a provider: the one that was refused most.
pub fn worst<'a>(done: &'a [Done], design: Design, provider: &str) -> Option<&'a Done> {
    let same = done.iter().filter(|one| one.design == design && one.provider == provider);
    same.max_by_key(|one| (one.outcome.refused, one.outcome.max_in_any_1s))
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn unwieldy(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the chart: {error}")
}

fn draw<'a>(area: &Area<'a>, done: &Done, title: &str) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let run = Run::of(done);
    let figures = format!(
        "refused {} · most in any second {} · login codes: half within {}, 99 % within {}",
        run.refused_429,
        run.max_in_any_1s,
        shown_ms(run.otp_p50_ms),
        shown_ms(run.otp_p99_ms),
    );
    area.draw_text(title, &text(15, &BLACK), (12, 8))?;
    area.draw_text(&figures, &text(12, &INK), (12, 28))?;
    let (_, below) = area.split_vertically(46);
    let (top, bottom) = below.split_vertically(170);
    let seconds = done.outcome.tenths.len() as f64 / 10.0;
    arrivals(&top, &done.outcome, seconds)?;
    waits(&bottom, &done.outcome, seconds)
}

fn text<'a>(size: u32, colour: &'a RGBColor) -> TextStyle<'a> {
    (FONT, size).into_font().color(colour)
}

fn arrivals<'a>(area: &Area<'a>, outcome: &Outcome, seconds: f64) -> Drawn<'a> {
    let most = f64::from(MOST_SHOWN);
    let mut chart = ChartBuilder::on(area)
        .margin_right(12)
        .margin_top(4)
        .x_label_area_size(18)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..seconds, 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text(11, &INK))
        .x_labels(6)
        .y_labels(6)
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_desc("requests")
        .draw()?;
    for (at, tenth) in outcome.tenths.iter().enumerate() {
        let from = at as f64 / 10.0;
        let bar = |low: u32, high: u32, colour: RGBColor| {
            let (low, high) = (f64::from(low).min(most), f64::from(high).min(most));
            Rectangle::new([(from + 0.01, low), (from + 0.09, high)], colour.filled())
        };
        let Tenth { accepted, refused, .. } = *tenth;
        chart.draw_series([
            bar(0, accepted, ACCEPTED),
            bar(accepted, accepted + refused, REFUSED),
        ])?;
    }
    let steps = outcome.tenths.iter().enumerate().flat_map(|(at, tenth)| {
        let y = f64::from(tenth.in_last_second).min(most);
        [(at as f64 / 10.0, y), ((at + 1) as f64 / 10.0, y)]
    });
    chart.draw_series(LineSeries::new(steps, IN_LAST_SECOND.stroke_width(2)))?;
    let contract = f64::from(CONTRACT_PER_S);
    let line = [(0.0, contract), (seconds, contract)];
    chart.draw_series(DashedLineSeries::new(line, 7, 4, REFUSED.stroke_width(2)))?;
    let words = format!("contract: {CONTRACT_PER_S} in any second");
    let place = (seconds * 0.01, contract + most * 0.06);
    chart.draw_series([Text::new(words, place, text(11, &REFUSED))])?;
    if let Some((at, highest)) = beyond(outcome) {
        let place = (at as f64 / 10.0 + 0.12, most * 0.97);
        let words = format!("up to {highest}");
        chart.draw_series([Text::new(words, place, text(12, &IN_LAST_SECOND))])?;
    }
    Ok(())
}

/// The first tenth that is cut off, and the highest of all.
fn beyond(outcome: &Outcome) -> Option<(usize, u32)> {
    let first = outcome.tenths.iter().position(|tenth| tenth.in_last_second > MOST_SHOWN)?;
    let highest = outcome.tenths.iter().map(|tenth| tenth.in_last_second).max()?;
    Some((first, highest))
}

fn waits<'a>(area: &Area<'a>, outcome: &Outcome, seconds: f64) -> Drawn<'a> {
    let mut chart = ChartBuilder::on(area)
        .margin_right(12)
        .margin_top(6)
        .x_label_area_size(18)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..seconds, WAITS.log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text(11, &INK))
        .x_labels(6)
        .y_labels(5)
        .y_label_formatter(&|ms| match *ms {
            ..1_000.0 => format!("{ms:.0} ms"),
            _ => format!("{:.0} s", ms / 1e3),
        })
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_desc("login code")
        .draw()?;
    let place = |made: Duration, wait: Duration| {
        let ms = wait.as_secs_f64() * 1e3;
        (made.as_secs_f64(), ms.clamp(WAITS.start, WAITS.end))
    };
    let went = outcome.otp_waits.iter().filter(|otp| otp.accepted);
    chart.draw_series(
        went.map(|otp| Circle::new(place(otp.made, otp.wait), 3, ACCEPTED.filled())),
    )?;
    let never = outcome.otp_waits.iter().filter(|otp| !otp.accepted);
    let cross = REFUSED.stroke_width(2);
    chart.draw_series(never.map(|otp| Cross::new(place(otp.made, otp.wait), 4, cross)))?;
    Ok(())
}

fn legend<'a>(area: &Area<'a>, report: &Report) -> Drawn<'a> {
    let title = format!(
        "What reached a provider that sold {} requests a second, per tenth of a second",
        report.contract_per_s
    );
    area.draw_text(&title, &text(19, &BLACK), (12, 12))?;
    let mut x = 14;
    let mut entry = |words: &str, width: i32| {
        let at = (x + 22, 54);
        let mark = x;
        x += width;
        area.draw_text(words, &text(13, &INK), at).map(|()| mark)
    };
    let accepted = entry("accepted", 100)?;
    let refused = entry("refused (429)", 130)?;
    let last = entry("in the second until then", 195)?;
    let contract = entry("contract: 100 in any second", 215)?;
    let went = entry("login code: time until accepted", 230)?;
    let never = entry("login code never accepted", 200)?;
    area.draw(&Rectangle::new([(accepted, 54), (accepted + 14, 66)], ACCEPTED.filled()))?;
    area.draw(&Rectangle::new([(refused, 54), (refused + 14, 66)], REFUSED.filled()))?;
    let line = vec![(last, 60), (last + 16, 60)];
    area.draw(&PathElement::new(line, IN_LAST_SECOND.stroke_width(2)))?;
    for dash in [contract, contract + 10] {
        let line = vec![(dash, 60), (dash + 7, 60)];
        area.draw(&PathElement::new(line, REFUSED.stroke_width(2)))?;
    }
    area.draw(&Circle::new((went + 8, 60), 4, ACCEPTED.filled()))?;
    area.draw(&Cross::new((never + 8, 60), 4, REFUSED.stroke_width(2)))
}

//! `target/demo/report.html`: one file that a manager can open, read and pass on.
//!
//! Nothing is loaded from elsewhere and nothing runs: text, a table and inline pictures.

use std::fmt::Write;

use anyhow::Result;
use lab::Design;

use super::report::{Report, Run};
use super::table::{shown_ms, shown_suspension};
use super::{Done, PROVIDERS, chart};

const STYLE: &str = include_str!("page.css");

/// Swatches as in the charts, with what they mean.
const LEGEND: &str = r##"<ul class="legend">
<li><svg viewBox="0 0 26 14"><rect x="6" width="14" height="14" fill="#0072b2"/></svg>accepted, per tenth of a second</li>
<li><svg viewBox="0 0 26 14"><rect x="6" width="14" height="14" fill="#d55e00"/></svg>refused (429)</li>
<li><svg viewBox="0 0 26 14"><path d="M0 7h26" stroke="#282828" stroke-width="2"/></svg>all that arrived in the second until then</li>
<li><svg viewBox="0 0 26 14"><path d="M0 7h26" stroke="#d55e00" stroke-width="2" stroke-dasharray="7 4"/></svg>the contract: 100 in any second</li>
<li><svg viewBox="0 0 26 14"><circle cx="13" cy="7" r="4" fill="#0072b2"/></svg>a login code: how long until the provider accepted it</li>
<li><svg viewBox="0 0 26 14"><path d="M9 3l8 8m0-8l-8 8" stroke="#d55e00" stroke-width="2"/></svg>a login code that was never accepted</li>
</ul>"##;

pub fn of(report: &Report, done: &[Done]) -> Result<String> {
    let mut page = String::new();
    let headline = headline(report);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{headline}</title>\n<style>\n{STYLE}</style></head><body>\n\
         <h1>{headline}</h1>\n<p>{}</p>\n<p>{}</p>\n",
        introduction(report),
        reading(report),
    )?;
    table(&mut page, report)?;
    page.push_str(LEGEND);
    for design in Design::ALL {
        card(&mut page, report, done, design)?;
    }
    page.push_str(
        "<footer>Made by <code>cargo xtask demo</code>; figures of every single run are in \
         report.json. What the designs are: docs/lab.md.</footer>\n</body></html>\n",
    );
    Ok(page)
}

fn runs_of(report: &Report, design: Design) -> impl Iterator<Item = &Run> {
    report.runs.iter().filter(move |run| run.design == design.name())
}

fn headline(report: &Report) -> String {
    let suspended = report.runs.iter().filter_map(|run| Some((run.suspended_after_s?, run)));
    let first = suspended.min_by(|a, b| a.0.total_cmp(&b.0));
    let before = match first {
        Some((after, run)) if run.design != Design::Weir.name() => {
            format!(
                "Counting in Redis ({}) got the account stopped after {after:.1} s. ",
                run.design
            )
        }
        _ => String::new(),
    };
    let slowest = runs_of(report, Design::Weir).map(|run| run.otp_p99_ms).reduce(f64::max);
    match (report.verdict(), slowest) {
        (Ok(_), Some(ms)) => format!(
            "{before}With Weir nothing was refused, and 99 of 100 login codes were through within {}.",
            shown_ms(ms)
        ),
        (Ok(_), None) => format!("{before}Weir was not part of this run."),
        (Err(_), _) => format!("{before}Weir did not keep the contract in this run."),
    }
}

fn introduction(report: &Report) -> String {
    format!(
        "One SMS account, sold at {} requests a second, is shared by 23 processes: a campaign that \
         scales from 2 pods to 16 and 20, two that remind of carts, and the login, which sends \
         one-time codes. The provider refuses what is too much, and stops the account for an hour \
         after more than 300 refusals. Each way of sharing was run for {} s on real Redis servers; \
         Weir with real Envoy gateways.",
        report.contract_per_s, report.seconds
    )
}

fn reading(report: &Report) -> String {
    format!(
        "Two providers judge, since nobody knows how theirs counts: one looks at any second \
         (rolling), one at seconds that begin 0.37 s after ours (phase-shifted). In the table {}; \
         the charts show the run that was refused most. The delay on the way to the provider varies \
         by up to {} ms.",
        report.shown, report.jitter_ms
    )
}

fn table(page: &mut String, report: &Report) -> Result<()> {
    page.push_str(
        "<div class=\"card scroll\"><table><tr><th>design</th><th>provider</th><th>refused</th>\
         <th>most in any second</th><th>login code, half within</th><th>99 % within</th>\
         <th>codes sent</th><th>marketing sent</th><th>account stopped</th></tr>\n",
    );
    for run in &report.runs {
        let title = run.design.parse::<Design>().map_or("", Design::title);
        let weir = if run.design == Design::Weir.name() { " class=\"weir\"" } else { "" };
        let bad = |is: bool| if is { " class=\"bad\"" } else { "" };
        writeln!(
            page,
            "<tr{weir}><td>{}: {title}</td><td>{}</td><td{}>{}</td><td{}>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td{}>{}</td></tr>",
            run.design,
            run.provider,
            bad(run.refused_429 > 0),
            run.refused_429,
            bad(run.max_in_any_1s > u64::from(report.contract_per_s)),
            run.max_in_any_1s,
            shown_ms(run.otp_p50_ms),
            shown_ms(run.otp_p99_ms),
            run.otp_sent,
            run.marketing_sent,
            bad(run.suspended_after_s.is_some()),
            shown_suspension(run),
        )?;
    }
    page.push_str("</table></div>\n");
    Ok(())
}

fn card(page: &mut String, report: &Report, done: &[Done], design: Design) -> Result<()> {
    let runs: Vec<&Run> = runs_of(report, design).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let refused: u64 = runs.iter().map(|run| run.refused_429).max().unwrap_or(0);
    let most = runs.iter().map(|run| run.max_in_any_1s).max().unwrap_or(0);
    let broke = refused > 0 || most > u64::from(report.contract_per_s);
    let verdict = match (broke, runs.iter().any(|run| run.suspended_after_s.is_some())) {
        (_, true) => format!("Account stopped. Up to {refused} refused, {most} in one second."),
        (true, false) => format!("Exceeded: up to {refused} refused, {most} in one second."),
        (false, _) => format!("Kept: none refused, at most {most} in any second."),
    };
    let class = if broke { "broke" } else { "kept" };
    write!(
        page,
        "<section class=\"card {class}\"><h2>{}: {}</h2>\n<p><span class=\"verdict\">{verdict}</span> {}</p>\n\
         <div class=\"charts\">\n",
        design.name(),
        design.title(),
        design.weakness(),
    )?;
    for (provider, _) in PROVIDERS {
        if let Some(worst) = chart::worst(done, design, provider) {
            page.push_str(&chart::panel(worst)?);
        }
    }
    page.push_str("</div></section>\n");
    Ok(())
}

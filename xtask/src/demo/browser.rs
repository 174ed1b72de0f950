//! The page in a real browser: a manager has to see it, not only a parser. `probe.js` notes what is
//! shown; what has to be there is said here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use lab::{CONTRACT_PER_S, Design, Load};
use serde::Deserialize;

use super::report::{Report, Setting};
use super::{Done, PROVIDERS, fixture, page};
use crate::setup::browser;
use crate::{paths, run};

const PROBE: &str = include_str!("probe.js");
/// A cold start on a busy machine included.
const LIMIT: Duration = Duration::from_secs(60);
const REFUSED: u64 = 3;

#[derive(Deserialize)]
struct Seen {
    title: String,
    /// Fetched by the page; the page itself is not counted.
    loaded: u32,
    designs: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    heading: String,
    charts: Vec<Chart>,
}

#[derive(Deserialize)]
struct Chart {
    #[serde(flatten)]
    at: Place,
    texts: BTreeMap<String, Place>,
    /// Bars that are shown.
    accepted: usize,
    refused: usize,
    /// Dashes of the line.
    contract: Vec<Place>,
    codes: Vec<Place>,
}

/// The middle of something and its size, in pixels of the page.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Place {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// A profile and a page of our own.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_browser_shows_chart_contract_and_login_codes_of_every_design() -> Result<()> {
    let Some(program) = browser::on_this_machine()? else {
        return browser::missing();
    };
    let runs = |design| PROVIDERS.map(|(provider, _)| fixture::done(design, provider, REFUSED));
    let done: Vec<Done> = Design::ALL.into_iter().flat_map(runs).collect();
    let second = Duration::from_secs(1);
    let setting =
        Setting { load: Load::LateBurst, lasting: 3 * second, repetitions: 1, jitter: second / 50 };
    let seen = look(&program, &page::of(&Report::of(&setting, &done), &done)?).await?;
    assert!(seen.title.contains("Weir"), "{}", seen.title);
    assert_eq!(seen.loaded, 0, "the page is one file");
    let headings: Vec<&str> = seen.designs.iter().map(|card| card.heading.as_str()).collect();
    let expected = Design::ALL.map(|design| format!("{}: {}", design.name(), design.title()));
    assert_eq!(headings, expected);
    for card in &seen.designs {
        assert_eq!(card.charts.len(), PROVIDERS.len(), "{}", card.heading);
        for chart in &card.charts {
            chart.check().with_context(|| card.heading.clone())?;
        }
    }
    Ok(())
}

impl Chart {
    fn check(&self) -> Result<()> {
        assert!(self.at.width > 300.0 && self.at.height > 150.0, "{:?}", self.at);
        // One bar in each tenth, and one of what was refused.
        assert_eq!((self.accepted, self.refused), (fixture::TENTHS as usize, 1));
        let label = |text: &str| self.texts.get(text).with_context(|| format!("no {text:?}"));
        label(&format!("contract: {CONTRACT_PER_S} in any second"))?;
        let level = label(&CONTRACT_PER_S.to_string())?.y;
        let off = self.contract.iter().find(|dash| !near(dash.y, level));
        assert!(off.is_none(), "{off:?} is not at {level}");
        let ends = self.contract.iter().map(|dash| dash.x);
        let (left, right) = ends.fold((f64::MAX, f64::MIN), |(l, r), x| (l.min(x), r.max(x)));
        assert!(right - left > self.at.width * 0.8, "the line runs from {left} to {right}");
        let [code] = &self.codes[..] else { panic!("{} login codes", self.codes.len()) };
        assert!(near(code.y, label("10 ms")?.y), "{code:?}");
        Ok(())
    }
}

/// A label stands beside its line, in letters of some ten pixels.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 4.0
}

async fn look(program: &Path, page: &str) -> Result<Seen> {
    let scratch = Scratch(paths::target("tmp").join(format!("browser-{}", std::process::id())));
    std::fs::create_dir_all(&scratch.0)?;
    let file = scratch.0.join("report.html");
    let script = format!("<script>{PROBE}</script></body>");
    std::fs::write(&file, page.replace("</body>", &script))?;
    let dom = dump_dom(program, &file, &scratch.0.join("profile")).await?;
    let note = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (note, _) = note.with_context(|| format!("the probe did not run: {dom}"))?;
    serde_json::from_str(note).with_context(|| note.to_owned())
}

/// The page as the browser has it after its scripts have run.
async fn dump_dom(program: &Path, page: &Path, profile: &Path) -> Result<String> {
    let mut command = tokio::process::Command::from(run::command(program));
    command.args(["--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]);
    // High enough for the whole page: only what lies in the window can be asked for.
    command.args(["--disable-background-networking", "--window-size=1240,8000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    if run::is_root() {
        // Chromium's sandbox does not run as root; the page is our own.
        command.arg("--no-sandbox");
    }
    command.arg(page).kill_on_drop(true);
    let output =
        tokio::time::timeout(LIMIT, command.output()).await.context("the browser hangs")??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

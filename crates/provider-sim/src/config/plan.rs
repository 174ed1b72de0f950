//! Settings that change by themselves.
//!
//! Promise: a schedule that was accepted cannot fail later: every step is laid and validated
//! beforehand. A change from outside lies over what the steps have made so far, and under those
//! still to come. A reset goes back to what was written, and the schedule begins anew.

use std::collections::VecDeque;
use std::time::Duration;

use super::check::{bounded, wrong};
use super::merge::{Document, lay};
use super::{Behaviour, ConfigError, MODELS, Settings};

pub const MAX_STEPS: usize = 100;

#[derive(Debug)]
pub struct Plan {
    /// As written, without the steps.
    base: Settings,
    current: Settings,
    /// Time zero of the schedule.
    from: Duration,
    /// Steps that are done.
    done: usize,
    ahead: VecDeque<Planned>,
}

#[derive(Debug)]
struct Planned {
    at: Duration,
    settings: Settings,
    behaviour: Behaviour,
}

impl Plan {
    pub fn new(base: Settings) -> Result<(Self, Behaviour), ConfigError> {
        let behaviour = base.validate()?;
        let ahead = plan(&base, 0, Duration::ZERO)?;
        let current = base.clone();
        Ok((Self { base, current, from: Duration::ZERO, done: 0, ahead }, behaviour))
    }

    /// The settings as they are now.
    pub fn settings(&self) -> &Settings {
        &self.current
    }

    /// When the next step is to be taken.
    pub fn due(&self) -> Option<Duration> {
        self.ahead.front().map(|step| step.at)
    }

    /// Takes the step of [`Plan::due`].
    pub fn step(&mut self) -> Option<Behaviour> {
        let step = self.ahead.pop_front()?;
        self.done += 1;
        self.current = step.settings;
        Some(step.behaviour)
    }

    /// This plan with the fields of `given`.
    pub fn change(
        &self,
        given: &Document,
        now: Duration,
    ) -> Result<(Self, Behaviour), ConfigError> {
        let base = lay(&self.base, given)?;
        let mut current = lay(&self.current, given)?;
        current.schedule = base.schedule.clone();
        let anew = base.schedule != self.base.schedule || names_schedule(given);
        let (from, done) = if anew { (now, 0) } else { (self.from, self.done) };
        // What a reset would go back to must be possible as well.
        base.validate()?;
        plan(&base, 0, Duration::ZERO)?;
        let behaviour = current.validate()?;
        let ahead = plan(&current, done, from)?;
        Ok((Self { base, current, from, done, ahead }, behaviour))
    }

    pub fn reset(&self) -> Result<(Self, Behaviour), ConfigError> {
        Self::new(self.base.clone())
    }
}

fn names_schedule(given: &Document) -> bool {
    let model = given.get("model").and_then(|name| name.as_str());
    given.contains_key("schedule") || model.is_some_and(brings_schedule)
}

fn brings_schedule(model: &str) -> bool {
    MODELS.iter().any(|preset| preset.name == model && preset.sets.contains_key("schedule"))
}

/// The steps of `settings`, but for those `done`, each laid over the one before.
fn plan(
    settings: &Settings,
    done: usize,
    from: Duration,
) -> Result<VecDeque<Planned>, ConfigError> {
    let steps = &settings.schedule;
    if steps.len() > MAX_STEPS {
        let allowed = format!("at most {MAX_STEPS} are");
        return Err(wrong("schedule", format!("a list of {}", steps.len()), allowed));
    }
    let mut planned: VecDeque<Planned> = VecDeque::new();
    for (n, step) in steps.iter().enumerate().skip(done) {
        let within = |error: ConfigError| error.within(&format!("schedule[{n}].set."));
        let at = from + bounded(&format!("schedule[{n}].at"), step.at)?;
        if planned.back().is_some_and(|before| before.at > at) {
            let at = humantime::format_duration(step.at);
            return Err(wrong(&format!("schedule[{n}].at"), at, "it is before the step before it"));
        }
        if step.set.contains_key("schedule") || names_schedule(&step.set) {
            let allowed = "a step cannot bring another schedule";
            return Err(wrong(&format!("schedule[{n}].set"), "this", allowed));
        }
        let before = planned.back().map_or(settings, |before| &before.settings);
        let mut settings = lay(before, &step.set).map_err(within)?;
        // Taking back a model may take its schedule along.
        settings.schedule = steps.clone();
        let behaviour = settings.validate().map_err(within)?;
        planned.push_back(Planned { at, settings, behaviour });
    }
    Ok(planned)
}

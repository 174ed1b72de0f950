//! The provider as JSON shows it.

use std::time::Duration;

use serde::Serialize;

use super::nanos;
use super::state::State;
use crate::config::{Force, Settings, WindowSettings};
use crate::record::{Report, seconds};

#[derive(Debug, Serialize)]
pub struct FullReport {
    #[serde(flatten)]
    pub arrived: Report,
    /// What the accepted calls cost together; one each without a cost.
    pub accepted_units: u64,
    /// Accepted calls whose connection was closed instead of a reply.
    pub replies_lost: u64,
    /// Ids of messages accepted at least once, and more than once.
    pub ids_accepted: usize,
    pub accepted_twice: u64,
    /// Ids beyond the first million were not looked at.
    pub ids_truncated: bool,
    /// Calls that are accepted, or await their verdict, and are not worked off.
    pub in_flight: usize,
    pub max_in_flight: usize,
    pub windows: Vec<WindowReport>,
    /// Now.
    pub suspended: bool,
    /// When it first happened; stays after the suspension is over.
    pub suspended_after_s: Option<f64>,
    pub elapsed_s: f64,
}

#[derive(Debug, Serialize)]
pub struct WindowReport {
    #[serde(flatten)]
    pub window: WindowSettings,
    /// Calls that this window refused, alone or with others.
    pub refused: u64,
    /// Most units, accepted or not, in any interval of the window's length, wherever it is
    /// laid; for concurrency, most calls in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_any: Option<u64>,
    /// The same of accepted units only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_accepted_in_any: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct ModelView {
    #[serde(flatten)]
    pub settings: Settings,
    /// With the `times` that are left.
    pub force: Option<Force>,
}

impl State {
    pub fn report(&self, now: Duration) -> FullReport {
        FullReport {
            arrived: self.record.report(),
            accepted_units: self.accepted_units,
            replies_lost: self.replies_lost,
            ids_accepted: self.messages.distinct(),
            accepted_twice: self.messages.twice(),
            ids_truncated: self.messages.truncated(),
            in_flight: self.model.in_flight(),
            max_in_flight: self.model.max_in_flight(),
            windows: self.window_reports(),
            suspended: self.model.suspended_for(now).is_some(),
            suspended_after_s: self.model.first_suspended_at().map(|at| at.as_secs_f64()),
            elapsed_s: seconds(nanos(now)),
        }
    }

    pub fn model_view(&self) -> ModelView {
        ModelView {
            settings: self.plan.settings().clone(),
            force: self.forced.as_ref().map(|forced| forced.written.clone()),
        }
    }

    fn window_reports(&self) -> Vec<WindowReport> {
        // Validated settings have windows.
        let windows = self.plan.settings().all_windows().unwrap_or_default();
        let each = windows.into_iter().zip(self.model.refused_by());
        each.map(|(window, refused)| {
            let peak = window.length().and_then(|length| self.peaks.of(length));
            let most_calls = matches!(window, WindowSettings::Concurrency { .. })
                .then(|| self.model.max_in_flight() as u64);
            WindowReport {
                window,
                refused,
                max_in_any: peak.map(|peak| peak.judged).or(most_calls),
                max_accepted_in_any: peak.map(|peak| peak.accepted),
            }
        })
        .collect()
    }
}

//! The most units that each of the model's windows saw, by counters apart from the model's.

use std::time::Duration;

use crate::rolling_max::RollingMax;

#[derive(Debug, Default)]
pub struct Peaks {
    peaks: Vec<Peak>,
}

#[derive(Debug)]
struct Peak {
    window: Duration,
    judged: RollingMax,
    accepted: RollingMax,
}

/// Most units in any interval of a window's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeakView {
    pub judged: u64,
    pub accepted: u64,
}

impl Peaks {
    /// Windows of these lengths from now on; those looked at already keep what they have seen.
    pub fn watch(&mut self, windows: impl IntoIterator<Item = Duration>) {
        let mut old = std::mem::take(&mut self.peaks);
        for window in windows {
            if self.peaks.iter().any(|peak| peak.window == window) {
                continue;
            }
            let known = old.iter().position(|peak| peak.window == window);
            self.peaks.push(known.map_or_else(|| Peak::new(window), |at| old.swap_remove(at)));
        }
    }

    /// A call was judged at `at_ns`, which never steps back.
    pub fn add(&mut self, at_ns: u64, units: u32, accepted: bool) {
        for peak in &mut self.peaks {
            peak.judged.add(at_ns, units.into());
            if accepted {
                peak.accepted.add(at_ns, units.into());
            }
        }
    }

    pub fn of(&self, window: Duration) -> Option<PeakView> {
        let peak = self.peaks.iter().find(|peak| peak.window == window)?;
        Some(PeakView { judged: peak.judged.max(), accepted: peak.accepted.max() })
    }
}

impl Peak {
    fn new(window: Duration) -> Self {
        Self { window, judged: RollingMax::new(window), accepted: RollingMax::new(window) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_has_its_own_peaks_and_keeps_them() {
        let tenth = Duration::from_millis(100);
        let second = Duration::from_secs(1);
        let mut peaks = Peaks::default();
        peaks.watch([tenth, second]);
        for (at_ms, accepted) in [(0, true), (50, false), (100, true), (999, true)] {
            peaks.add(at_ms * 1_000_000, 1, accepted);
        }
        assert_eq!(peaks.of(tenth), Some(PeakView { judged: 2, accepted: 1 }));
        peaks.watch([second]);
        assert_eq!(peaks.of(second), Some(PeakView { judged: 4, accepted: 3 }));
        assert_eq!(peaks.of(tenth), None);
    }
}

//! When each request is due. Pure: the same streams give the same plan.

use std::time::Duration;

/// Requests of one class.
#[derive(Debug, Clone)]
pub struct Stream {
    /// What the request is; goes into the body, where the provider counts it.
    pub class: String,
    /// What the priority header claims; usually the class. `None` sends no such header.
    pub claims: Option<String>,
    pub arrivals: Arrivals,
    /// Added to every due time of this stream.
    pub starts_after: Duration,
    /// Fills the body up to about this many bytes; 0 leaves it as short as it is.
    pub body_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// One every `1 / per_s` seconds, the first at once.
    Even {
        per_s: f64,
        lasting: Duration,
    },
    /// Independent arrivals, as many callers that know nothing of each other make them.
    Poisson {
        per_s: f64,
        lasting: Duration,
        seed: u64,
    },
    AtOnce {
        count: usize,
    },
}

impl Stream {
    /// A stream that claims to be what it is.
    pub fn new(class: &str, arrivals: Arrivals) -> Self {
        Self {
            class: class.to_owned(),
            claims: Some(class.to_owned()),
            arrivals,
            starts_after: Duration::ZERO,
            body_bytes: 0,
        }
    }
}

impl Arrivals {
    /// Due times from the start, in order.
    pub fn due(self) -> Vec<Duration> {
        match self {
            Self::AtOnce { count } => vec![Duration::ZERO; count],
            Self::Even { per_s, lasting } => {
                assert_rate(per_s);
                let count = (lasting.as_secs_f64() * per_s).ceil() as usize;
                (0..count).map(|i| Duration::from_secs_f64(i as f64 / per_s)).collect()
            }
            Self::Poisson { per_s, lasting, seed } => {
                assert_rate(per_s);
                let mut random = fastrand::Rng::with_seed(seed);
                let mut at = 0.0;
                let gaps = std::iter::from_fn(|| {
                    // 1 − u lies in (0, 1]: its logarithm is finite.
                    at += -(1.0 - random.f64()).ln() / per_s;
                    Some(at)
                });
                gaps.take_while(|at| *at < lasting.as_secs_f64())
                    .map(Duration::from_secs_f64)
                    .collect()
            }
        }
    }
}

fn assert_rate(per_s: f64) {
    assert!(per_s.is_finite() && per_s > 0.0, "per_s = {per_s}: a rate is above 0");
}

/// One request of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub at: Duration,
    /// Index of its stream.
    pub stream: usize,
    /// Its number within the stream, from 0.
    pub number: usize,
}

/// All streams in order of time; those due together in the order of the streams.
pub(crate) fn plan(streams: &[Stream]) -> Vec<Due> {
    let mut plan: Vec<Due> = streams
        .iter()
        .enumerate()
        .flat_map(|(stream, s)| {
            let due = s.arrivals.due().into_iter().enumerate();
            due.map(move |(number, at)| Due { at: s.starts_after + at, stream, number })
        })
        .collect();
    plan.sort_by_key(|due| (due.at, due.stream, due.number));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn even_arrivals_are_spaced_by_one_interval() {
        let due = Arrivals::Even { per_s: 4.0, lasting: S }.due();
        let quarter = Duration::from_millis(250);
        assert_eq!(due, [Duration::ZERO, quarter, quarter * 2, quarter * 3]);
    }

    #[test]
    fn poisson_arrivals_repeat_with_their_seed_and_keep_their_rate() {
        let poisson = |seed| Arrivals::Poisson { per_s: 100.0, lasting: S * 100, seed }.due();
        assert_eq!(poisson(7), poisson(7));
        assert_ne!(poisson(7), poisson(8));
        // 10,000 expected, standard deviation 100: five of them.
        assert!((9_500..=10_500).contains(&poisson(7).len()));
        assert!(poisson(7).is_sorted());
    }

    #[test]
    fn a_plan_merges_its_streams_in_order_of_time() {
        let mut late = Stream::new("otp", Arrivals::AtOnce { count: 1 });
        late.starts_after = Duration::from_millis(600);
        let even = Arrivals::Even { per_s: 2.0, lasting: S };
        let plan = plan(&[late, Stream::new("bulk", even)]);
        let order: Vec<_> = plan.iter().map(|d| (d.at.as_millis(), d.stream)).collect();
        assert_eq!(order, [(0, 1), (500, 1), (600, 0)]);
    }
}

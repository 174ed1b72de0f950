//! Who waits for the next decision of one limit, on one worker.
//!
//! Promise: first come, first served within a class; one call at a time, for all that wait; a stream
//! that is gone gives its place to the next. A lane is bounded: beyond [`WAITERS_MAX`] it takes
//! nobody.

use std::{cell::Cell, collections::VecDeque, rc::Rc};

use limits::Micros;

use crate::exchange::State;

/// Streams one lane holds at most.
pub const WAITERS_MAX: usize = 20_000;

/// A paused stream.
#[derive(Debug)]
pub struct Waiter {
    /// The host's id of the stream.
    pub stream: u32,
    pub since: Micros,
    /// The stream's own state, so that whoever settles it tells it.
    pub state: Rc<Cell<State>>,
}

/// A call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The host's id of the call.
    pub token: u32,
    pub sent_at: Micros,
}

#[derive(Debug)]
pub struct Lane {
    /// Per class, in order of arrival. The first `asked` of each are in the call on its way.
    queues: Vec<VecDeque<Waiter>>,
    asked: Vec<usize>,
    call: Option<Call>,
}

impl Lane {
    pub fn new(classes: usize) -> Self {
        let queues = (0..classes).map(|_| VecDeque::new()).collect();
        Self { queues, asked: vec![0; classes], call: None }
    }

    pub fn call(&self) -> Option<Call> {
        self.call
    }

    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Lets a stream wait, or gives it back when the lane is full.
    pub fn join(&mut self, class: usize, waiter: Waiter) -> Result<(), Waiter> {
        let waiting: usize = self.queues.iter().map(VecDeque::len).sum();
        match self.queues.get_mut(class) {
            Some(queue) if waiting < WAITERS_MAX => {
                queue.push_back(waiter);
                Ok(())
            }
            _ => Err(waiter),
        }
    }

    /// How many of each class a call would ask for now.
    pub fn wants(&self) -> Vec<u64> {
        self.queues.iter().map(|queue| queue.len() as u64).collect()
    }

    /// A call for everybody that waits is on its way.
    pub fn asked(&mut self, call: Call) {
        self.call = Some(call);
        self.asked = self.queues.iter().map(VecDeque::len).collect();
    }

    /// The call is over: takes out who was granted, oldest first (those who came while it was on its
    /// way inherit the places of those who left), and who was asked for and not granted.
    pub fn settle(&mut self, granted: &[u64]) -> Settled {
        self.call = None;
        let mut settled = Settled::default();
        let counts = granted.iter().zip(&mut self.asked);
        for (class, (queue, (granted, asked))) in self.queues.iter_mut().zip(counts).enumerate() {
            let granted = usize::try_from(*granted).unwrap_or(usize::MAX).min(queue.len());
            let refused = asked.saturating_sub(granted);
            settled.granted.extend(queue.drain(..granted).map(|waiter| (class, waiter)));
            settled.refused.extend(queue.drain(..refused.min(queue.len())).map(|w| (class, w)));
            *asked = 0;
        }
        settled
    }

    /// Takes everybody out, highest class first, and forgets the call.
    pub fn clear(&mut self) -> Vec<(usize, Waiter)> {
        self.call = None;
        self.asked.fill(0);
        let queues = self.queues.iter_mut().enumerate();
        queues
            .flat_map(|(class, queue)| queue.drain(..).map(move |waiter| (class, waiter)))
            .collect()
    }

    /// The stream has ended while it waited.
    pub fn leave(&mut self, class: usize, stream: u32) {
        let Some(queue) = self.queues.get_mut(class) else {
            return;
        };
        let Some(place) = queue.iter().position(|waiter| waiter.stream == stream) else {
            return;
        };
        queue.remove(place);
        if let Some(asked) = self.asked.get_mut(class).filter(|asked| place < **asked) {
            *asked = asked.saturating_sub(1);
        }
    }
}

#[derive(Debug, Default)]
pub struct Settled {
    /// (class, who), highest class first.
    pub granted: Vec<(usize, Waiter)>,
    pub refused: Vec<(usize, Waiter)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { token: 7, sent_at: Micros::ZERO };

    fn lane(streams: &[(usize, u32)]) -> Lane {
        let mut lane = Lane::new(2);
        for (class, stream) in streams {
            join(&mut lane, *class, *stream);
        }
        lane
    }

    fn join(lane: &mut Lane, class: usize, stream: u32) {
        let state = Rc::new(Cell::new(State::Waiting));
        lane.join(class, Waiter { stream, since: Micros::ZERO, state }).unwrap();
    }

    fn streams(waiters: &[(usize, Waiter)]) -> Vec<u32> {
        waiters.iter().map(|(_, waiter)| waiter.stream).collect()
    }

    #[test]
    fn the_oldest_of_each_class_is_granted_and_the_rest_refused() {
        let mut lane = lane(&[(1, 10), (0, 20), (1, 11), (1, 12)]);
        assert_eq!(lane.wants(), [1, 3]);
        lane.asked(CALL);
        let settled = lane.settle(&[1, 2]);
        assert_eq!(streams(&settled.granted), [20, 10, 11]);
        assert_eq!(streams(&settled.refused), [12]);
        assert!(lane.is_empty() && lane.call().is_none());
    }

    #[test]
    fn who_came_during_the_call_is_not_refused_by_it() {
        let mut lane = lane(&[(1, 10)]);
        lane.asked(CALL);
        join(&mut lane, 1, 11);
        let settled = lane.settle(&[0, 0]);
        assert_eq!(streams(&settled.refused), [10]);
        assert_eq!(lane.wants(), [0, 1]);
    }

    #[test]
    fn a_stream_that_left_gives_its_grant_to_the_next() {
        let mut lane = lane(&[(1, 10), (1, 11)]);
        lane.asked(CALL);
        join(&mut lane, 1, 12);
        lane.leave(1, 10);
        let settled = lane.settle(&[0, 2]);
        assert_eq!(streams(&settled.granted), [11, 12]);
        assert!(settled.refused.is_empty());
    }

    #[test]
    fn a_stream_that_left_takes_nobody_along_into_a_call_or_out_of_it() {
        // Of those that the call asks for.
        let mut one = lane(&[(1, 10), (1, 11)]);
        one.asked(CALL);
        join(&mut one, 1, 12);
        one.leave(1, 10);
        assert_eq!(streams(&one.settle(&[0, 0]).refused), [11]);
        // Of those that came since.
        let mut other = lane(&[(1, 10), (1, 11)]);
        other.asked(CALL);
        join(&mut other, 1, 12);
        other.leave(1, 12);
        assert_eq!(streams(&other.settle(&[0, 0]).refused), [10, 11]);
    }

    #[test]
    fn clearing_leaves_nobody_and_serves_the_highest_first() {
        let mut lane = lane(&[(1, 10), (0, 20)]);
        lane.asked(CALL);
        join(&mut lane, 1, 11);
        assert_eq!(streams(&lane.clear()), [20, 10, 11]);
        assert!(lane.is_empty() && lane.call().is_none());
    }

    #[test]
    fn a_full_lane_takes_nobody() {
        let mut lane = Lane::new(1);
        for stream in 0..WAITERS_MAX as u32 {
            join(&mut lane, 0, stream);
        }
        let state = Rc::new(Cell::new(State::Waiting));
        assert!(lane.join(0, Waiter { stream: 0, since: Micros::ZERO, state }).is_err());
    }
}

//! Asks of nobody in particular: what most tests of a store need.

use decider::store::{Call, Decision, Store};
use limits::members::Ask;

pub trait Plain: Store {
    /// Decides for `wants[i]` requests of class `i`.
    fn ask<'a>(&'a self, limit: usize, wants: &'a [u64]) -> Call<'a, Decision> {
        Box::pin(async move {
            let ask = Ask { caller: None, wants: wants.to_vec() };
            self.decide(limit, &[ask]).await
        })
    }
}

impl<T: Store + ?Sized> Plain for T {}

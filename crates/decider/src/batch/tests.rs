use std::{future::Future, pin::Pin};

use limits::decision::Rules;
use tokio::time::sleep;

use super::*;
use crate::{
    fake::{Fake, NEVER},
    metrics::Metrics,
};

const DEADLINE: Duration = Duration::from_millis(40);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn batcher(store: &Arc<Fake>) -> Batcher {
    let account = Account {
        name: "sms".to_owned(),
        classes: vec!["otp".to_owned(), "marketing".to_owned()],
        rules: Rules {
            limit: Vec::new(),
            classes: Vec::new(),
            max_pause: limits::Micros::ZERO,
            terms: None,
        },
    };
    let metrics = Metrics::new(std::slice::from_ref(&account), "").limits.remove(0);
    let store: Arc<dyn Store> = Arc::<Fake>::clone(store);
    Batcher::start(store, 0, &account, DEADLINE, metrics)
}

/// An ask whose place in the queue is taken now.
fn ask(batcher: &Batcher, wants: &[(usize, u64)]) -> Pin<Box<impl Future<Output = Told> + use<>>> {
    let batcher = batcher.clone();
    let wants = wants.iter().map(|(class, n)| Want { class: *class, n: *n }).collect();
    let mut ask = Box::pin(async move {
        let answer = batcher.ask(None, wants).await?;
        Ok(answer.granted.iter().map(|want| want.n).collect())
    });
    let waker = std::task::Waker::noop();
    assert!(ask.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    ask
}

type Told = Result<Vec<u64>, AskError>;

fn late() -> AskError {
    AskError::Store(StoreError::Late(DEADLINE))
}

#[tokio::test(start_paused = true)]
async fn asks_that_arrive_during_a_call_are_decided_together_by_the_next() {
    let store = Arc::new(Fake::new(&[100, 100], &[ms(10)]));
    let batcher = batcher(&store);
    let first = ask(&batcher, &[(0, 1)]);
    sleep(ms(1)).await;
    let second = ask(&batcher, &[(0, 2), (1, 3)]);
    let third = ask(&batcher, &[(1, 4)]);
    assert_eq!(first.await, Ok(vec![1]));
    assert_eq!(second.await, Ok(vec![2, 3]));
    assert_eq!(third.await, Ok(vec![4]));
    assert_eq!(store.script().calls, [[1, 0], [2, 7]]);
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_goes_to_the_asks_in_order_of_arrival_class_by_class() {
    let store = Arc::new(Fake::new(&[3, 1], &[]));
    let batcher = batcher(&store);
    let asks = [
        ask(&batcher, &[(1, 1), (0, 2)]),
        ask(&batcher, &[(0, 2), (1, 2)]),
        ask(&batcher, &[(0, 2)]),
    ];
    let mut told = Vec::new();
    for ask in asks {
        told.push(ask.await.unwrap());
    }
    assert_eq!(told, [vec![1, 2], vec![1, 0], vec![0]]);
    assert_eq!(store.script().calls, [[6, 3]]);
}

#[tokio::test(start_paused = true)]
async fn nothing_wanted_is_still_a_call() {
    let store = Arc::new(Fake::new(&[1, 1], &[]));
    let batcher = batcher(&store);
    assert_eq!(ask(&batcher, &[]).await, Ok(vec![]));
    store.script().fails = Some(StoreError::Unreachable("gone".to_owned()));
    let refused = ask(&batcher, &[]).await.unwrap_err();
    assert_eq!(refused.to_string(), "the store cannot be reached: gone");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_costs_each_ask_its_deadline_and_no_more() {
    let store = Arc::new(Fake::new(&[9, 9], &[NEVER; 8]));
    let batcher = batcher(&store);
    let start = Instant::now();
    let first = ask(&batcher, &[(0, 1)]);
    sleep(ms(25)).await;
    let second = ask(&batcher, &[(0, 1)]);
    assert_eq!(first.await, Err(late()));
    assert!(start.elapsed() <= DEADLINE + ms(1), "{:?}", start.elapsed());
    assert_eq!(second.await, Err(late()));
    assert!(start.elapsed() <= ms(25) + DEADLINE + ms(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_is_used_by_the_next_ask() {
    let store = Arc::new(Fake::new(&[9, 9], &[NEVER]));
    let batcher = batcher(&store);
    assert_eq!(ask(&batcher, &[(0, 1)]).await, Err(late()));
    assert_eq!(ask(&batcher, &[(0, 1)]).await, Ok(vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_fails_nobody_whose_deadline_it_keeps() {
    let store = Arc::new(Fake::new(&[9, 9], &[ms(18); 8]));
    let batcher = batcher(&store);
    let mut asks = Vec::new();
    for _ in 0..6 {
        asks.push(ask(&batcher, &[(0, 1)]));
        sleep(ms(7)).await;
    }
    for ask in asks {
        assert_eq!(ask.await, Ok(vec![1]));
    }
}

/// The first has waited 30 ms for a call that failed nobody; its own takes 30 ms more.
#[tokio::test(start_paused = true)]
async fn the_share_of_a_late_ask_goes_to_those_behind_it() {
    let store = Arc::new(Fake::new(&[2, 0], &[ms(30), ms(30)]));
    let batcher = batcher(&store);
    let opening = ask(&batcher, &[]);
    sleep(ms(5)).await;
    let first = ask(&batcher, &[(0, 2)]);
    sleep(ms(20)).await;
    let second = ask(&batcher, &[(0, 2)]);
    assert_eq!(opening.await, Ok(vec![]));
    assert_eq!(first.await, Err(late()));
    assert_eq!(second.await, Ok(vec![2]));
    assert_eq!(store.script().calls, [[0, 0], [4, 0]]);
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_while_waiting_is_not_asked_for() {
    let store = Arc::new(Fake::new(&[9, 9], &[ms(10)]));
    let batcher = batcher(&store);
    let first = ask(&batcher, &[(0, 1)]);
    sleep(ms(1)).await;
    let gone = ask(&batcher, &[(0, 5)]);
    let third = ask(&batcher, &[(0, 1)]);
    drop(gone);
    assert_eq!(first.await, Ok(vec![1]));
    assert_eq!(third.await, Ok(vec![1]));
    assert_eq!(store.script().calls, [[1, 0], [1, 0]]);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_the_next_at_once() {
    let store = Arc::new(Fake::new(&[9, 9], &[NEVER; 8]));
    let batcher = batcher(&store);
    let first = ask(&batcher, &[]);
    sleep(ms(1)).await;
    let waiting: Vec<_> = (0..QUEUE_MAX).map(|_| ask(&batcher, &[])).collect();
    assert_eq!(batcher.ask(None, Vec::new()).await.unwrap_err(), AskError::Full);
    assert_eq!(first.await, Err(late()));
    for ask in waiting {
        assert_eq!(ask.await, Err(late()));
    }
}

//! One worker's loop: take a message, wait for the permit, send, acknowledge or give back.
//!
//! Promise: it ends when told to, after the exchange it is in; a message that it holds then stays
//! in the queue. It tries again at once only where that is the design's mistake.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::ledger::Ledger;
use super::{ReplayError, Site};
use crate::design::{Design, Pod};
use crate::http::Client;
use crate::permit::{Permit, Share};
use crate::queue::{Message, Queue};
use crate::sender::Answer;

const EXCHANGE_LIMIT: Duration = Duration::from_secs(5);
/// How long one look into an empty queue may block.
const PATIENCE: Duration = Duration::from_millis(200);
/// The single sender looks into two queues in turn, so not for long.
const SHORT_PATIENCE: Duration = Duration::from_millis(2);
/// A refusal without a time, or no answer at all.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// Exchanges of the single sender that may be on their way together.
const MAX_IN_FLIGHT: usize = 64;

/// What a sender was told to wait, if it was refused.
type Told = Result<Option<Duration>, ReplayError>;

/// Which of all workers it is.
pub(super) struct Place {
    pub pod: Pod,
    /// Of the pod; says which gateway it uses.
    pub index: usize,
    pub worker: usize,
    pub share: Share,
}

#[derive(Clone)]
pub(super) struct Hand {
    design: Design,
    class: &'static str,
    /// Unlike any other's.
    name: String,
    share: Share,
    redis: String,
    /// `HOST:PORT` to send to: the provider, or one of the gateways.
    address: String,
    client: Client,
    ledger: Arc<Ledger>,
    stopped: watch::Receiver<bool>,
}

impl Hand {
    pub fn new(
        design: Design,
        place: Place,
        site: &Site,
        ledger: &Arc<Ledger>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let address = match design {
            Design::Weir => &site.gateways[place.index % site.gateways.len()],
            _ => &site.provider,
        };
        let Place { pod, worker, share, .. } = place;
        Self {
            design,
            class: pod.class,
            name: format!("{}-{}-{worker}", pod.system, pod.number),
            share,
            redis: site.redis.clone(),
            address: address.clone(),
            client: Client::default(),
            ledger: Arc::clone(ledger),
            stopped,
        }
    }

    pub async fn run(self, starts: Instant) -> Result<(), ReplayError> {
        let permit = Permit::of(self.design, &self.redis, &self.name, &self.share).await?;
        match self.design {
            Design::SingleSender => self.send_both_classes(permit, starts).await,
            _ => self.send_own_class(permit, starts).await,
        }
    }

    async fn send_own_class(self, mut permit: Permit, starts: Instant) -> Result<(), ReplayError> {
        let mut queue = Queue::open(&self.redis, self.class, &self.name).await?;
        if self.unless_stopped(sleep_until(starts)).await.is_none() {
            return Ok(());
        }
        while let Some(taken) = self.unless_stopped(queue.take(PATIENCE)).await {
            let Some(message) = taken? else { continue };
            if self.unless_stopped(permit.pass()).await.is_none() {
                break;
            }
            let told = self.settle(self.class, &message, &mut queue).await?;
            if let Some(pause) = told.filter(|_| self.design.pauses())
                && self.unless_stopped(sleep(pause)).await.is_none()
            {
                break;
            }
        }
        Ok(())
    }

    /// Login codes first. It does not wait for one answer before it sends the next.
    async fn send_both_classes(
        self,
        mut permit: Permit,
        starts: Instant,
    ) -> Result<(), ReplayError> {
        let mut otp = Queue::open(&self.redis, "otp", &self.name).await?;
        let mut marketing = Queue::open(&self.redis, "marketing", &self.name).await?;
        let mut in_flight = JoinSet::new();
        if self.unless_stopped(sleep_until(starts)).await.is_none() {
            return Ok(());
        }
        loop {
            if let Some(pause) = longest_told(&mut in_flight)?
                && self.unless_stopped(sleep(pause)).await.is_none()
            {
                break;
            }
            if in_flight.len() >= MAX_IN_FLIGHT {
                sleep(SHORT_PATIENCE).await;
                continue;
            }
            // The permit first: what is chosen then is what is most urgent then.
            if self.unless_stopped(permit.pass()).await.is_none() {
                break;
            }
            let next = self.unless_stopped(most_urgent(&mut otp, &mut marketing)).await;
            let Some(next) = next else { break };
            let (class, message, mut queue) = next?;
            let hand = self.clone();
            in_flight.spawn(async move { hand.settle(class, &message, &mut queue).await });
        }
        while let Some(done) = in_flight.join_next().await {
            ended(done)?;
        }
        Ok(())
    }

    /// Sends it, and acknowledges it or gives it back.
    async fn settle(&self, class: &str, message: &Message, queue: &mut Queue) -> Told {
        let told = self.send(class, message).await;
        match told {
            None => {
                self.ledger.accepted(class, message.number);
                queue.ack(message).await?;
                self.ledger.acknowledged();
            }
            Some(pause) => queue.nack(message, pause).await?,
        }
        Ok(told)
    }

    /// Nothing when it was accepted, else how long to wait.
    async fn send(&self, class: &str, message: &Message) -> Option<Duration> {
        let mut pause = DEFAULT_PAUSE;
        for _ in 0..self.design.tries_at_once() {
            let request = request(&self.address, class, message.number);
            let Ok(reply) = self.client.call(request, EXCHANGE_LIMIT).await else {
                // Perhaps accepted: an at-least-once sender has to send it again.
                return Some(DEFAULT_PAUSE);
            };
            let answer = Answer::from(reply);
            if answer.passed() {
                return None;
            }
            pause = answer.retry_after().unwrap_or(DEFAULT_PAUSE);
        }
        Some(pause)
    }

    /// Nothing when told to end meanwhile.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            // An error means that nobody is there any more who could tell it: an end too.
            _ = stopped.wait_for(|stopped| *stopped) => None,
            done = work => Some(done),
        }
    }
}

async fn most_urgent(
    otp: &mut Queue,
    marketing: &mut Queue,
) -> Result<(&'static str, Message, Queue), ReplayError> {
    loop {
        if let Some(message) = otp.take(Duration::ZERO).await? {
            return Ok(("otp", message, otp.clone()));
        }
        if let Some(message) = marketing.take(SHORT_PATIENCE).await? {
            return Ok(("marketing", message, marketing.clone()));
        }
    }
}

/// Of the exchanges that have ended since the last look.
fn longest_told(in_flight: &mut JoinSet<Told>) -> Told {
    let mut longest = None;
    while let Some(done) = in_flight.try_join_next() {
        longest = longest.max(ended(done)?);
    }
    Ok(longest)
}

fn ended(done: Result<Told, tokio::task::JoinError>) -> Told {
    done.map_err(|error| ReplayError::Sender(error.to_string()))?
}

fn request(address: &str, class: &str, number: usize) -> Request<Full<Bytes>> {
    let body = serde_json::json!({
        "class": class,
        "to": "+15550100",
        "id": format!("{class}-{number}"),
    });
    Request::post(format!("http://{address}/v1/messages"))
        .header("host", "sms.example.com")
        .header("content-type", "application/json")
        .header("x-priority", class)
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("an address, fixed headers and a class make a request")
}

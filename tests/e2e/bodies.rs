//! A request's body is held back until the decider has granted it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{
    Sim, Stack,
    call::HOST,
    decider::OneAnswer,
    eventually,
    files::patient_policy,
    ms,
};

const MEGABYTES_5: usize = 5 << 20;
/// How long the decider takes: time for 5 MB to arrive many times over.
const HELD: Duration = ms(400);

const GRANTED: &str = r#"{"now_us":1,"granted":[{"class":"otp","n":1}],"wait_us":{},"reason":{},"penalty_us":0}"#;
const REFUSED: &str = r#"{"now_us":1,"granted":[],"wait_us":{"otp":5000000},"reason":{"otp":"rate"},"penalty_us":0}"#;

/// Sends a body of `size`, and returns the status line of the answer.
async fn post(gateway: &str, size: usize) -> String {
    let stream = TcpStream::connect(gateway).await.expect("the gateway listens");
    let (mut answer, mut request) = stream.into_split();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {HOST}\r\nx-priority: otp\r\ncontent-length: {size}\r\n\r\n"
    );
    let sending = tokio::spawn(async move {
        request.write_all(head.as_bytes()).await?;
        // Who was refused finds the connection closed: that is no failure of this test.
        request.write_all(&vec![b'x'; size]).await?;
        std::io::Result::Ok(request)
    });
    let mut first = vec![0; 12];
    answer.read_exact(&mut first).await.expect("an answer");
    drop(answer);
    sending.abort();
    String::from_utf8_lossy(&first).into_owned()
}

struct Held {
    stack: Stack,
    /// Asserted by the decider just before each answer.
    looked: OneAnswer,
}

/// A stack whose decider gives `answer` to every ask after [`HELD`], having seen that nothing of
/// the request is at the provider yet.
async fn held(answer: &'static str) -> Held {
    let looked = OneAnswer::new(answer).await;
    let policy = patient_policy();
    let stack = Stack::up(&["--decider", &looked.address, "--policy", &policy]);
    let sim = Arc::new(Sim::new(&stack.ready.provider));
    looked.before_answering(move || {
        let sim = sim.clone();
        Box::pin(async move {
            tokio::time::sleep(HELD).await;
            let report = sim.report().await;
            (report.total.arrivals, report.body_bytes) == (0, 0)
        })
    });
    Held { stack, looked }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_body_arrives_whole_and_not_before_the_grant() {
    let Held { stack, looked } = held(GRANTED).await;
    assert_eq!(post(stack.gateway(0), MEGABYTES_5).await, "HTTP/1.1 200");
    assert_eq!(looked.seen(), [true], "nothing reached the provider before the grant");
    let seen = stack.sim.last_request().await;
    assert!(seen.complete);
    assert_eq!(seen.body_bytes, MEGABYTES_5 as u64);
    stack.assert_filter_is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_never_arrives() {
    let Held { stack, looked } = held(REFUSED).await;
    for size in [2, MEGABYTES_5] {
        assert_eq!(post(stack.gateway(0), size).await, "HTTP/1.1 429");
    }
    // The second one was refused from memory.
    assert_eq!(looked.seen(), [true]);
    eventually(ms(2_000), "the gateway has let go of both requests", async || {
        let stats = stack.stats(0).await;
        let active = stats.get("http.egress.downstream_rq_active").copied().unwrap_or(0);
        (active == 0).then_some(())
    })
    .await;
    let report = stack.sim.report().await;
    assert_eq!((report.total.arrivals, report.body_bytes), (0, 0));
    stack.assert_filter_is_well().await;
}

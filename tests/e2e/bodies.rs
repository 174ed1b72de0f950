//! A request's body is held back until the decider has granted it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{
    Stack, call::HOST, decider::HandDecider, eventually, files::patient_policy, ms,
};

const MEGABYTES_5: usize = 5 << 20;
/// How long the decider takes: time for 5 MB to arrive many times over.
const HELD: Duration = ms(400);

const GRANTED: &str =
    r#"{"now_us":1,"granted":[{"class":"otp","n":1}],"wait_us":{},"reason":{},"penalty_us":0}"#;
const REFUSED: &str =
    r#"{"now_us":1,"granted":[],"wait_us":{"otp":5000000},"reason":{"otp":"rate"},"penalty_us":0}"#;

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

/// Sends a body; the decider takes its time and looks at the provider before it answers.
async fn held_until(stack: &Stack, decider: &mut HandDecider, answer: &str) -> String {
    let gateway = stack.gateway(0).to_owned();
    let posting = tokio::spawn(async move { post(&gateway, MEGABYTES_5).await });
    let ask = decider.asked().await;
    tokio::time::sleep(HELD).await;
    let report = stack.sim.report().await;
    assert_eq!((report.total.arrivals, report.body_bytes), (0, 0), "before the answer");
    ask.answer(answer);
    posting.await.expect("an answer")
}

async fn stack_of(decider: &HandDecider) -> Stack {
    Stack::up(&["--decider", &decider.address, "--policy", &patient_policy()])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_body_arrives_whole_and_not_before_the_grant() {
    let mut decider = HandDecider::start().await;
    let stack = stack_of(&decider).await;
    assert_eq!(held_until(&stack, &mut decider, GRANTED).await, "HTTP/1.1 200");
    let seen = stack.sim.last_request().await;
    assert!(seen.complete);
    assert_eq!(seen.body_bytes, MEGABYTES_5 as u64);
    stack.assert_filter_is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_never_arrives() {
    let mut decider = HandDecider::start().await;
    let stack = stack_of(&decider).await;
    assert_eq!(held_until(&stack, &mut decider, REFUSED).await, "HTTP/1.1 429");
    assert_eq!(post(stack.gateway(0), MEGABYTES_5).await, "HTTP/1.1 429");
    assert!(decider.is_left_alone(), "the second was refused from memory");
    eventually(ms(2_000), "the gateway has let go of both requests", async || {
        let stats = stack.stats(0).await;
        let active = stats.get("http.egress.downstream_rq_active").copied();
        (active == Some(0)).then_some(())
    })
    .await;
    let report = stack.sim.report().await;
    assert_eq!((report.total.arrivals, report.body_bytes), (0, 0));
    stack.assert_filter_is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_while_held_is_never_sent() {
    let mut decider = HandDecider::start().await;
    let stack = stack_of(&decider).await;
    let mut caller = TcpStream::connect(stack.gateway(0)).await.expect("the gateway listens");
    let head = format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 9\r\n\r\nhalf");
    caller.write_all(head.as_bytes()).await.expect("the gateway reads");
    let ask = decider.asked().await;
    drop(caller);
    eventually(ms(2_000), "the gateway has noticed", async || {
        let stats = stack.stats(0).await;
        (stats.get("http.egress.downstream_rq_active") == Some(&0)).then_some(())
    })
    .await;
    ask.answer(GRANTED);
    let gateway = stack.gateway(0).to_owned();
    let next = tokio::spawn(async move { post(&gateway, 2).await });
    decider.asked().await.answer(GRANTED);
    assert_eq!(next.await.expect("an answer"), "HTTP/1.1 200");
    assert_eq!(stack.sim.report().await.total.arrivals, 1);
    stack.assert_filter_is_well().await;
}

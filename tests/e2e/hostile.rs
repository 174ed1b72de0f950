//! Whatever callers send: the right answer, and a filter that lives on.

use crate::harness::{Stack, call::raw, files::roomy_policy};

/// The status of the answer to a request whose lines are given without their ends.
async fn status(stack: &Stack, lines: &[&[u8]]) -> u16 {
    let mut request = lines.join(&b"\r\n"[..]);
    request.extend_from_slice(b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    let answer = raw(stack.gateway(0), &request).await;
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no HTTP: {answer}"))
}

/// How often each class was granted so far.
async fn granted(stack: &Stack) -> [u64; 2] {
    [stack.counted("otp.granted").await, stack.counted("marketing.granted").await]
}

/// Sends a request and checks that it passed as `class` (`None`: no limit holds for it), and that
/// the filter is well afterwards.
async fn check(stack: &Stack, lines: &[&[u8]], class: Option<&str>) {
    let shown = || {
        let text = String::from_utf8_lossy(&lines.join(&b"\n"[..])).into_owned();
        text.chars().take(200).collect::<String>()
    };
    let before = granted(stack).await;
    assert_eq!(status(stack, lines).await, 200, "{}", shown());
    let after = granted(stack).await;
    let counted = [after[0] - before[0], after[1] - before[1]];
    let expected = [u64::from(class == Some("otp")), u64::from(class == Some("marketing"))];
    assert_eq!(counted, expected, "{}", shown());
    assert_lives(stack).await;
}

async fn assert_lives(stack: &Stack) {
    stack.assert_filter_is_well().await;
    let next = stack.send("otp").await;
    assert_eq!(next.status, 200, "the next request: {:?}", next.reason());
}

const POST: &[u8] = b"POST /v1/messages HTTP/1.1";
const HOST: &[u8] = b"host: sms.example.com";
const OTP: &[u8] = b"x-priority: otp";

#[tokio::test(flavor = "multi_thread")]
async fn a_strange_priority_is_the_default_and_harmless() {
    let stack = Stack::up(&["--policy", &roomy_policy()]);
    let long = [b"x-priority: ".to_vec(), vec![b'o'; 50_000]].concat();
    let long_bytes = [b"x-priority: ".to_vec(), vec![0xfe; 50_000]].concat();
    let strange: [&[u8]; 9] = [
        b"x-priority: \xff\xfe\xfd",
        b"x-priority: otp\xff",
        b"x-priority: o\tt\tp",
        b"x-priority:",
        b"x-priority:   ",
        b"x-priority: otp, otp",
        b"x-priority: \xf0\x9f\x92\xa5",
        &long,
        &long_bytes,
    ];
    for priority in strange {
        check(&stack, &[POST, HOST, priority], Some("marketing")).await;
    }
    for claimed in [&b"x-priority:otp"[..], b"X-PRIORITY:  OTP ", b"x-priority: Otp"] {
        check(&stack, &[POST, HOST, claimed], Some("otp")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_priorities_the_first_counts_and_none_reaches_the_provider() {
    let stack = Stack::up(&["--policy", &roomy_policy()]);
    let marketing: &[u8] = b"x-priority: marketing";
    check(&stack, &[POST, HOST, OTP, marketing], Some("otp")).await;
    check(&stack, &[POST, HOST, marketing, OTP, OTP], Some("marketing")).await;
    check(&stack, &[POST, HOST, b"x-priority:", OTP], Some("marketing")).await;
    for seen in stack.sim.requests().await {
        let passed_on = seen.headers.iter().any(|(name, _)| name == "x-priority");
        assert!(!passed_on, "{:?}", seen.headers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_anywhere_are_harmless() {
    let stack = Stack::up(&["--policy", &roomy_policy()]);
    let fields: [&[u8]; 6] = [
        b"x-envoy-retry-on: \xff\xfe",
        b"x-envoy-max-retries: \xff",
        b"x-weir-class: \xff",
        b"x-anything: \xc3\x28\xa0\xff",
        b"content-type: \xff\xff",
        b"user-agent: \x80",
    ];
    for field in fields {
        check(&stack, &[POST, HOST, OTP, field], Some("otp")).await;
    }
    check(&stack, &[b"POST /v1/%ff%fe?q=%00 HTTP/1.1", HOST, OTP], Some("otp")).await;
    // Envoy itself takes no such path; should that change, the filter has to live.
    let answered = status(&stack, &[b"POST /v1/\xff\xfe?q=\xff HTTP/1.1", HOST, OTP]).await;
    assert!([200, 400].contains(&answered), "{answered}");
    assert_lives(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_too_large_for_envoy_are_harmless() {
    let stack = Stack::up(&["--policy", &roomy_policy()]);
    let large = [b"x-priority: ".to_vec(), vec![b'o'; 60 << 10]].concat();
    assert_eq!(status(&stack, &[POST, HOST, &large]).await, 431);
    assert_eq!(stack.sim.report().await.total.arrivals, 0);
    assert_lives(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_the_host_slips_past_the_limit() {
    let stack = Stack::up(&["--policy", &roomy_policy()]);
    let spellings: [&[u8]; 6] = [
        b"host: SMS.Example.Com",
        b"host: sms.example.com:443",
        b"host: sms.example.com:",
        b"host: sms.example.com.",
        b"host: sms.example.com.:8443",
        b"host:   sms.EXAMPLE.com:80  ",
    ];
    for host in spellings {
        check(&stack, &[POST, host, OTP], Some("otp")).await;
    }
    let absolute: &[u8] = b"POST http://sms.example.com:80/v1/messages HTTP/1.1";
    check(&stack, &[absolute, b"host: other.example.com", OTP], Some("otp")).await;
    let others: [&[u8]; 4] = [
        b"host: xsms.example.com",
        b"host: sms.example.com.evil.example",
        b"host: example.com",
        b"host: sms-example-com",
    ];
    for host in others {
        check(&stack, &[POST, host, OTP], None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_usual_path_are_answered() {
    let stack = Stack::up(&["--policy", &roomy_policy()]);
    // Envoy or the provider may refuse these, but somebody has to answer, and nothing may break.
    let unusual: [&[u8]; 7] = [
        b"CONNECT sms.example.com:443 HTTP/1.1",
        b"CONNECT sms.example.com HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET / HTTP/1.1",
        b"POST //..//v1/%2e%2e/%ff HTTP/1.1",
        b"DELETE ?only=query HTTP/1.1",
        b"BREW /pot HTTP/1.1",
    ];
    for line in unusual {
        let answered = status(&stack, &[line, HOST, OTP]).await;
        let shown = String::from_utf8_lossy(line);
        println!("{shown}: {answered}");
        assert!((200..500).contains(&answered), "{shown}: {answered}");
        assert_lives(&stack).await;
    }
}

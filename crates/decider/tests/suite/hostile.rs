//! Bodies, paths and heads that no gateway sends: each gets a clear refusal in JSON, is counted, and
//! leaves everything else as it was.

use std::{io::Write, net::SocketAddr};

use crate::program::{Weir, connect, get, head, rest};

/// What follows the head, and what status it comes to.
fn post(address: SocketAddr, path: &str, body: &[u8]) -> String {
    let mut connection = connect(address);
    connection.write_all(head("POST", path, body.len()).as_bytes()).unwrap();
    // One that is too long is refused before its end.
    let _ = connection.write_all(body);
    rest(connection)
}

fn check_refused(reply: &str, status: &str, sent: &str) {
    let shown: String = sent.chars().take(200).collect();
    assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {reply}");
    assert!(reply.contains("x-weir-decider: 1"), "{shown}: {reply}");
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let refusal: serde_json::Value = serde_json::from_str(body).unwrap();
    let error = refusal["error"].as_str().unwrap();
    assert!((10..1_000).contains(&error.len()), "{shown}: {error}");
}

fn ask(rest: &str) -> String {
    format!(r#"{{"limit":"sms-acct-main","policy":"x","gateway":"g","wants":{rest}}}"#)
}

#[test]
fn what_no_gateway_sends_is_refused_counted_and_costs_nobody_anything() {
    let (_weir, address) = Weir::serving(&[]);
    let long = "x".repeat(60_000);
    let numbers = ["-1", "1.5", "1e300", "18446744073709551616", "100001", "\"1\"", "null", "NaN"];
    let mut bodies: Vec<String> =
        numbers.iter().map(|n| ask(&format!(r#"[{{"class":"otp","n":{n}}}]"#))).collect();
    bodies.extend([
        String::new(),
        "null".to_owned(),
        "[".repeat(60_000),
        ask(r#"[{"class":"bulk","n":1}]"#),
        ask(&format!(r#"[{{"class":"{long}","n":1}}]"#)),
        ask(r#"[{"class":"otp","n":1},{"class":"otp","n":1}]"#),
        ask(r#"[{"class":"otp","n":1,"cost":7}]"#),
        ask(r#"[{"class":"otp","n":1}]"#).replace("sms-acct-main", &long),
        ask("[]") + "[]",
        ask("[]").replace("\"policy\":\"x\",", ""),
        ask("[]").replace('}', ",\"limit\":\"sms-acct-main\"}"),
    ]);
    for body in &bodies {
        check_refused(&post(address, "/v1/decide", body.as_bytes()), "400", body);
    }
    check_refused(&post(address, "/v1/decide", &[0xff; 100]), "400", "bytes");
    check_refused(&post(address, "/v1/decide", "x".repeat(70_000).as_bytes()), "413", "long");
    let mut refused = bodies.len() + 2;
    let report = |pause: &str, id: &str| {
        format!(r#"{{"limit":"sms-acct-main","pause_us":{pause},"id":"{id}"}}"#)
    };
    for (pause, id) in [("-1", "a"), ("1e99", "a"), ("1", ""), ("1", "a b"), ("1", &long[..129])] {
        check_refused(&post(address, "/v1/throttled", report(pause, id).as_bytes()), "400", id);
        refused += 1;
    }
    check_refused(&get(address, "/v1/limits/%ff"), "404", "%ff");
    check_refused(&get(address, "/v1/limits/%00"), "404", "%00");

    let metrics = get(address, "/metrics");
    assert!(metrics.contains(&format!("weir_bad_requests_total {refused}\n")), "{metrics}");
    assert!(metrics.contains("weir_granted_total{limit=\"sms-acct-main\",class=\"otp\"} 0\n"));
    // The whole burst is still there, for a gateway with another policy too, which is counted.
    let reply = post(address, "/v1/decide", ask(r#"[{"class":"otp","n":9}]"#).as_bytes());
    assert!(reply.contains(r#""granted":[{"class":"otp","n":5}]"#), "{reply}");
    let metrics = get(address, "/metrics");
    assert!(metrics.contains("weir_policy_mismatches_total{limit=\"sms-acct-main\"}"), "{metrics}");
}

#[test]
fn heads_that_are_none_close_their_connection_only() {
    let (_weir, address) = Weir::serving(&[]);
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    for head in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", &long, &many] {
        let mut connection = connect(address);
        let _ = connection.write_all(head.as_bytes());
        let mut reply = Vec::new();
        let _ = std::io::Read::read_to_end(&mut connection, &mut reply);
        let reply = String::from_utf8_lossy(&reply);
        let status = reply.split(' ').nth(1).unwrap_or("400");
        assert!(status.starts_with('4'), "{}: {reply}", &head[..head.len().min(40)]);
    }
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
}

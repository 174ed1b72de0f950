//! Whose request is this: its limit and its class.
//!
//! Promise: a host matches without regard to case, port or trailing dot, so no spelling of it slips
//! past; a class is given only for a header value *and* a peer certificate that may claim it. Reads
//! from the host only what the policy needs: an unmatched host costs one look.

use limits::policy::{Class, Limit, Match, Policy};

/// What can be read of a request while its headers are there. Header values are bytes: callers send
/// anything.
pub trait Request {
    /// The first field of that name.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// First URI SAN of the peer's certificate, if the connection has one.
    fn principal(&self) -> Option<Vec<u8>>;
}

/// A matched request, by places in the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub limit: usize,
    pub class: usize,
    /// The header claimed a class that the certificate may not claim.
    pub claim_refused: bool,
}

/// Finds the limit of a request and its class, or `None` when the policy does not speak of it.
pub fn find(policy: &Policy, request: &impl Request) -> Option<Found> {
    let authority = request.header(":authority")?;
    let index = policy.limits.iter().position(|limit| {
        // Two Host fields reach us as one with a comma.
        let mut hosts = authority.split(|byte| *byte == b',').map(host);
        let known = |host| {
            let same = |name: &String| name.as_bytes().eq_ignore_ascii_case(host);
            limit.matches.hosts.iter().any(same)
        };
        if !hosts.any(known) {
            return false;
        }
        if limit.matches.path_prefixes.is_empty() && limit.matches.methods.is_empty() {
            return true;
        }
        let read = |name| request.header(name).unwrap_or_default();
        path_and_method(&limit.matches, read(":path"), read(":method"))
    })?;
    let limit = policy.limits.get(index)?;
    let (class, claim_refused) = class(limit, request);
    Some(Found { limit: index, class, claim_refused })
}

/// The host of an authority: without user, port and the root's dot.
fn host(authority: &[u8]) -> &[u8] {
    let authority = authority.trim_ascii();
    let at = authority.iter().rposition(|byte| *byte == b'@');
    let authority = at.and_then(|at| authority.get(at.checked_add(1)?..)).unwrap_or(authority);
    let colon = authority.iter().rposition(|byte| *byte == b':');
    let digits = |port: &[u8]| port.iter().all(u8::is_ascii_digit);
    let host = match colon.and_then(|colon| authority.split_at_checked(colon)) {
        Some((host, port)) if digits(port.get(1..).unwrap_or_default()) => host,
        _ => authority,
    };
    let dots = host.iter().rev().take_while(|byte| **byte == b'.').count();
    host.get(..host.len().saturating_sub(dots)).unwrap_or(host)
}

fn path_and_method(matches: &Match, path: &[u8], method: &[u8]) -> bool {
    let under = |prefix: &String| path.starts_with(prefix.as_bytes());
    let same = |name: &String| name.as_bytes() == method;
    (matches.path_prefixes.is_empty() || matches.path_prefixes.iter().any(under))
        && (matches.methods.is_empty() || matches.methods.iter().any(same))
}

/// The class and whether a claim was refused. What claims nothing known gets the default.
fn class(limit: &Limit, request: &impl Request) -> (usize, bool) {
    let default = limit.priority.default;
    let Some(value) = request.header(&limit.priority.header) else {
        return (default, false);
    };
    let value = value.trim_ascii();
    let claims = |class: &Class| {
        class.values.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(value))
    };
    match limit.classes.iter().enumerate().find(|(_, class)| claims(class)) {
        None => (default, false),
        Some((index, class)) if class.principals.is_empty() => (index, false),
        Some((index, class)) => {
            let principal = request.principal().unwrap_or_default();
            if class.principals.iter().any(|known| known.as_bytes() == principal) {
                (index, false)
            } else {
                (default, index != default)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::HashMap};

    use serde_json::json;

    use super::*;

    /// A request from its headers; remembers what was looked at.
    #[derive(Default)]
    struct Fake {
        headers: HashMap<&'static str, Vec<u8>>,
        principal: Option<&'static str>,
        looked_at: RefCell<Vec<String>>,
    }

    impl Request for Fake {
        fn header(&self, name: &str) -> Option<&[u8]> {
            self.looked_at.borrow_mut().push(name.to_owned());
            self.headers.get(name).map(Vec::as_slice)
        }

        fn principal(&self) -> Option<Vec<u8>> {
            self.principal.map(|principal| principal.as_bytes().to_vec())
        }
    }

    const LOGIN: &str = "spiffe://cluster.local/ns/auth/sa/login";

    fn policy() -> Policy {
        let limit = |name: &str, path: &str| {
            json!({
                "name": name,
                "match": {"hosts": ["sms.example.com"], "path_prefixes": [path], "methods": ["POST"]},
                "contract": [{"requests": 100, "per": "1s"}],
                "rates": [{"target": 90, "per": "1s", "burst": 5}],
                "priority": {"header": "x-priority", "default": "marketing"},
                "classes": [
                    {"name": "otp", "values": ["otp"], "principals": [LOGIN]},
                    {"name": "marketing", "values": ["marketing", "bulk"]},
                ],
            })
        };
        let document = json!({
            "version": 1,
            "gateways": {"max": 2},
            "decider": {"timeout": "50ms"},
            "path_jitter": "20ms",
            "limits": [limit("messages", "/v1/messages"), limit("status", "/v1/status")],
        });
        Policy::parse(&document).unwrap()
    }

    fn request(headers: &[(&'static str, &[u8])]) -> Fake {
        let mut fake = Fake::default();
        let post: [(&str, &[u8]); 3] =
            [(":authority", b"sms.example.com"), (":path", b"/v1/messages"), (":method", b"POST")];
        for (name, value) in post.iter().chain(headers) {
            fake.headers.insert(name, value.to_vec());
        }
        fake
    }

    fn check(headers: &[(&'static str, &[u8])]) -> Option<(usize, usize)> {
        find(&policy(), &request(headers)).map(|found| (found.limit, found.class))
    }

    const MARKETING: Option<(usize, usize)> = Some((0, 1));

    #[test]
    fn no_spelling_of_the_host_slips_past() {
        for host in [
            "sms.example.com",
            "SMS.Example.COM",
            "sms.example.com:8443",
            "sms.example.com.:443",
            "u:p@sms.example.com:80",
            "sms.example.com..",
            "a, sms.example.com",
        ] {
            assert_eq!(check(&[(":authority", host.as_bytes())]), MARKETING, "{host}");
        }
        for host in [
            "",
            "x-sms.example.com",
            "sms.example.com.evil.org",
            "sms.example.com:http",
            "[::1]:80",
        ] {
            assert_eq!(check(&[(":authority", host.as_bytes())]), None, "{host}");
        }
    }

    #[test]
    fn path_and_method_choose_the_limit() {
        assert_eq!(check(&[(":path", b"/v1/status/7?x=1")]), Some((1, 1)));
        assert_eq!(check(&[(":path", b"/v2")]), None);
        assert_eq!(check(&[(":method", b"GET")]), None);
        let mut connect = request(&[]);
        connect.headers.remove(":path");
        assert_eq!(find(&policy(), &connect), None, "CONNECT has no path");
    }

    #[test]
    fn a_path_or_a_method_alone_is_looked_at_too() {
        let mut policy = policy();
        policy.limits.truncate(1);
        let mut only = |paths: &[&str], methods: &[&str], headers: &[(&'static str, &[u8])]| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            policy.limits[0].matches.path_prefixes = texts(paths);
            policy.limits[0].matches.methods = texts(methods);
            find(&policy, &request(headers)).is_some()
        };
        assert!(only(&["/v1/messages"], &[], &[(":method", b"GET")]));
        assert!(!only(&["/v1/messages"], &[], &[(":path", b"/v2")]));
        assert!(only(&[], &["POST"], &[(":path", b"/v2")]));
        assert!(!only(&[], &["POST"], &[(":method", b"GET")]));
        assert!(only(&[], &[], &[(":path", b"/v2"), (":method", b"GET")]));
    }

    #[test]
    fn an_unmatched_host_costs_one_look() {
        let fake = request(&[(":authority", b"other.example.com")]);
        assert_eq!(find(&policy(), &fake), None);
        assert_eq!(*fake.looked_at.borrow(), [":authority"]);
    }

    #[test]
    fn header_values_are_bytes_and_unknown_ones_get_the_default() {
        for value in [
            b"bulk".as_slice(),
            b" MARKETING ",
            b"",
            b"\xff\xfe",
            b"otp,marketing",
            &[b'x'; 60_000],
        ] {
            assert_eq!(check(&[("x-priority", value)]), MARKETING);
        }
    }

    #[test]
    fn the_header_is_a_claim_and_the_certificate_the_proof() {
        let found = |principal| {
            let fake = Fake { principal, ..request(&[("x-priority", b"otp")]) };
            find(&policy(), &fake).map(|found| (found.class, found.claim_refused))
        };
        assert_eq!(found(Some(LOGIN)), Some((0, false)));
        assert_eq!(found(Some("spiffe://cluster.local/ns/shop/sa/cart")), Some((1, true)));
        assert_eq!(found(None), Some((1, true)));
    }
    #[test]
    fn a_class_of_nobody_in_particular_needs_no_proof() {
        let mut policy = policy();
        policy.limits[0].priority.default = 0;
        let found = |principal| {
            let fake = Fake { principal, ..request(&[("x-priority", b"bulk")]) };
            find(&policy, &fake).map(|found| (found.class, found.claim_refused))
        };
        assert_eq!(found(None), Some((1, false)));
        assert_eq!(found(Some(LOGIN)), Some((1, false)));
    }
}

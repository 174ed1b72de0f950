//! Whose request is this: its limit and its class.
//!
//! Promise: a host matches without regard to case, port or trailing dot, so no spelling of it slips
//! past; a class is given only for a header value *and* a peer certificate that may claim it. Reads
//! from the host only what the policy needs: an unmatched host costs one look.

use limits::policy::{Class, Limit, Match, Policy};

/// What can be read of a request while its headers are there. Header values are bytes: callers send
/// anything.
pub trait Request {
    fn header(&self, name: &str) -> Option<Vec<u8>>;
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
    let host = host(&authority);
    let mut rest: Option<(Vec<u8>, Vec<u8>)> = None;
    let index = policy.limits.iter().position(|limit| {
        let known = |name: &String| name.as_bytes().eq_ignore_ascii_case(host);
        if !limit.matches.hosts.iter().any(known) {
            return false;
        }
        if limit.matches.path_prefixes.is_empty() && limit.matches.methods.is_empty() {
            return true;
        }
        let (path, method) = rest.get_or_insert_with(|| {
            let read = |name| request.header(name).unwrap_or_default();
            (read(":path"), read(":method"))
        });
        path_and_method(&limit.matches, path, method)
    })?;
    let limit = policy.limits.get(index)?;
    let (class, claim_refused) = class(limit, request);
    Some(Found { limit: index, class, claim_refused })
}

/// The host of an authority: without port and without the root's dot.
fn host(authority: &[u8]) -> &[u8] {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    let digits = |port: &[u8]| port.iter().all(u8::is_ascii_digit);
    let host = match colon.and_then(|colon| authority.split_at_checked(colon)) {
        Some((host, port)) if digits(port.get(1..).unwrap_or_default()) => host,
        _ => authority,
    };
    host.strip_suffix(b".").unwrap_or(host)
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

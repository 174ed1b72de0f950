//! The forms of `Retry-After` by name.

/// A way to say when to come back.
#[derive(Debug)]
pub struct Form {
    pub name: &'static str,
    /// One field for each, with placeholders.
    pub fields: &'static [&'static str],
    pub about: &'static str,
}

const fn form(name: &'static str, fields: &'static [&'static str], about: &'static str) -> Form {
    Form { name, fields, about }
}

pub const FORMS: &[Form] = &[
    form("none", &[], "no such field"),
    form("seconds", &["{s}"], "whole seconds, rounded up"),
    form("floored", &["{s-floor}"], "whole seconds, rounded down: a faithful wait is too short"),
    form("decimal", &["{decimal}"], "seconds with three decimals"),
    form("unit", &["{s}s"], "seconds with their unit, such as 60s"),
    form("go-duration", &["{go}"], "such as 1m0s"),
    form("negative", &["-{s}"], "below zero"),
    form("zero", &["0"], "at once"),
    form("http-date", &["{http-date}"], "Sun, 06 Nov 1994 08:49:37 GMT"),
    form("rfc850-date", &["{rfc850-date}"], "Sunday, 06-Nov-94 08:49:37 GMT"),
    form("asctime-date", &["{asctime-date}"], "Sun Nov  6 08:49:37 1994"),
    form("lowercase-date", &["{lowercase-date}"], "sun, 06 nov 1994 08:49:37 gmt"),
    form("past-date", &["{past-date}"], "an HTTP-date of an hour ago"),
    form("epoch-s", &["{epoch-s}"], "Unix time in seconds"),
    form("epoch-ms", &["{epoch-ms}"], "Unix time in milliseconds"),
    form("several", &["0", "{s}", "soon"], "three fields, the second is meant"),
    form("duplicate", &["{s}", "{s}"], "the same field twice"),
    form("comma", &["0, {s}"], "one field with a list"),
    form("nan", &["nan"], "no number"),
    form("infinite", &["1e999"], "more than a number can hold"),
    form("overflow", &["99999999999999999999999"], "more digits than fit 64 bits"),
    form("sixteen-days", &["1382400"], "longer than anybody should wait"),
    form("empty", &[""], "a field without text"),
];

//! A policy for the tests of several modules.

use serde_json::{Value, json};

/// The limit `sms`: 90/s of 100/s, classes otp and marketing (`bulk`), two gateways.
pub fn policy() -> Value {
    json!({
        "version": 1,
        "gateways": {"max": 2},
        "decider": {"timeout": "50ms"},
        "path_jitter": "20ms",
        "limits": [{
            "name": "sms",
            "match": {"hosts": ["sms.example.com"]},
            "contract": [{"requests": 100, "per": "1s"}],
            "rates": [{"target": 90, "per": "1s", "burst": 5}],
            "priority": {"header": "x-priority", "default": "marketing"},
            "classes": [
                {"name": "otp", "values": ["otp"]},
                {"name": "marketing", "values": ["bulk"]},
            ],
        }],
    })
}

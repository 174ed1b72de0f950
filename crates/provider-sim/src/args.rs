//! The command line.
//!
//! Promise: an option does what the field of its name does in `/_sim/model`, by the same path:
//! the options that are given become a document of changes to the defaults.

use std::sync::LazyLock;

use anyhow::Context;
use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};
use provider_sim::config::{Document, MODELS, Preset, REPLIES, Settings, lay, parse_document};
use serde_json::Value;

const AFTER_HELP: &str = "\
Every request outside /_sim/ is a call: 200 {\"accepted\":true,\"id\":1}, or a refusal.
Its class is the text field `class` of a JSON body, else whichever of `otp` and
`marketing` stands first in the body, else `unknown`. A text field `id` names the
message, to find those accepted twice.

  GET  /_sim/report           what arrived, was accepted and refused; the fullest second
  GET  /_sim/timeline         arrivals per 100 ms, in all and by class
  GET  /_sim/arrivals         each arrival: at_us, class, status, outcome, path, method
  GET  /_sim/requests?last=N  the last N (up to 1000) requests with their headers
  POST /_sim/reset            counters, model state, schedule and time start again
  POST /_sim/restart          fixed windows begin now, or at {\"phase\":\"370ms\"}
  GET  /_sim/models           the models, replies and forms of Retry-After by name
  GET  /_sim/model            all settings as JSON
  POST /_sim/model            changes the fields it is given, such as {\"limit\":50}, and
                              {\"force\":{\"times\":2,\"status\":429,\"headers\":{\"retry-after\":\"3\"},
                              \"body\":\"\"}} answers the next two calls so

Fields without an option of their own, given by --set or /_sim/model:
  windows      all must admit: [{\"kind\":\"rolling\",\"limit\":100,\"window\":\"1s\"},
               {\"kind\":\"fixed\",\"limit\":9,\"window\":\"1s\",\"phase\":\"370ms\",
               \"jump\":{\"every\":\"2s\",\"by\":\"370ms\"}},
               {\"kind\":\"leaky\",\"limit\":100,\"window\":\"1s\",\"capacity\":10},
               {\"kind\":\"concurrency\",\"limit\":20}]
  counted      \"arrival\", \"body\" or \"completion\" of a call
  cost         {\"header\":\"x-units\"} or {\"json\":\"recipients\"}: units that a call costs
  stall        {\"every\":\"20s\",\"for\":\"1500ms\"}: nothing ends meanwhile
  schedule     [{\"at\":\"30s\",\"set\":{\"limit\":50}}]: changes to come
  refusal_headers, refusal_body, suspended_status, suspended_retry_after, suspended_body,
  clock_offset_s, lose_probability, seed
In the texts of replies {s}, {s-floor}, {ms}, {decimal}, {go}, {http-date}, {rfc850-date},
{asctime-date}, {epoch-s} and {epoch-ms} stand for the time to come back.

Durations are written 50ms, 1s, 10m. SIGINT or SIGTERM ends it.

Examples: 100 in each second of the provider's clock, a second starting 370 ms after ours;
a contract cut to half after 30 s; throttling that is a 200
  provider-sim --model fixed --limit 100 --phase 370ms
  provider-sim --set '{\"schedule\":[{\"at\":\"30s\",\"set\":{\"limit\":50}}]}'
  provider-sim --model per-100ms --reply vonage";

/// A provider that throttles and suspends, and reports exactly what reached it.
#[derive(Debug, Parser)]
#[command(name = "provider-sim", version, after_help = AFTER_HELP)]
pub struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    pub listen: String,
    /// How the provider counts [default: rolling].
    #[arg(long, value_parser = names(&MODELS))]
    model: Option<String>,
    /// Calls accepted per window, by the models rolling and fixed [default: 100].
    #[arg(long)]
    limit: Option<u32>,
    /// Length of their window [default: 1s].
    #[arg(long, value_name = "DURATION")]
    window: Option<String>,
    /// Start of a fixed window, after the start of the program or the last reset [default: 0s].
    #[arg(long, value_name = "DURATION")]
    phase: Option<String>,
    /// Refused calls use up the window too.
    #[arg(long)]
    count_refused: bool,
    /// What a refusal looks like [default: 429].
    #[arg(long, value_parser = names(&REPLIES))]
    reply: Option<String>,
    /// Status of a refusal [default: 429].
    #[arg(long)]
    status: Option<u16>,
    /// A refusal's Retry-After: a form of GET /_sim/models by name, such as http-date, or text
    /// sent as it is; `none` sends none; several send several fields [default: 1].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    retry_after: Vec<String>,
    /// What a form says to wait; `exact` says what the model would admit [default: 1s].
    #[arg(long, value_name = "DURATION")]
    retry_after_in: Option<String>,
    /// From the last byte of a request to its reply [default: 0s].
    #[arg(long, value_name = "DURATION")]
    latency: Option<String>,
    /// Up to so much is added to the latency [default: 0s].
    #[arg(long, value_name = "DURATION")]
    jitter: Option<String>,
    /// Each N-th accepted call gets no reply: the connection is closed.
    #[arg(long, value_name = "N")]
    lose_every: Option<u32>,
    /// More refusals than this within --suspend-within stop the account; `never` turns it off
    /// [default: 300].
    #[arg(long, value_name = "N", value_parser = parse_suspend_after)]
    suspend_after: Option<SuspendAfter>,
    /// See --suspend-after [default: 10m].
    #[arg(long, value_name = "DURATION")]
    suspend_within: Option<String>,
    /// Length of a suspension; its refusals say what is left in Retry-After [default: 60m].
    #[arg(long, value_name = "DURATION")]
    suspend_for: Option<String>,
    /// Any fields of /_sim/model.
    #[arg(long, value_name = "JSON")]
    set: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct SuspendAfter(Option<u32>);

fn parse_suspend_after(text: &str) -> Result<SuspendAfter, String> {
    match text {
        "never" => Ok(SuspendAfter(None)),
        _ => match text.parse() {
            Ok(refusals) => Ok(SuspendAfter(Some(refusals))),
            Err(_) => Err("a number of refusals or `never` is allowed".to_owned()),
        },
    }
}

fn names(presets: &'static LazyLock<Vec<Preset>>) -> PossibleValuesParser {
    PossibleValuesParser::new(
        presets.iter().map(|preset| PossibleValue::new(preset.name).help(preset.about)),
    )
}

impl Args {
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let given = self.given();
        let settings = lay(&Settings::default(), &given)?;
        let Some(set) = &self.set else {
            return Ok(settings);
        };
        let set = parse_document(set.as_bytes()).context("--set")?;
        lay(&settings, &set).context("--set")
    }

    fn given(&self) -> Document {
        let text = |value: &Option<String>| value.clone().map(Value::from);
        let retry_after = match self.retry_after.as_slice() {
            [] => None,
            [one] => Some(one.clone().into()),
            many => Some(many.to_vec().into()),
        };
        let retry_after_in = match self.retry_after_in.as_deref() {
            Some("exact") => Some(Value::Null),
            other => other.map(Value::from),
        };
        let fields = [
            ("model", text(&self.model)),
            ("limit", self.limit.map(Value::from)),
            ("window", text(&self.window)),
            ("phase", text(&self.phase)),
            ("count_refused", self.count_refused.then_some(Value::Bool(true))),
            ("reply", text(&self.reply)),
            ("status", self.status.map(Value::from)),
            ("retry_after", retry_after),
            ("retry_after_in", retry_after_in),
            ("latency", text(&self.latency)),
            ("jitter", text(&self.jitter)),
            ("lose_every", self.lose_every.map(Value::from)),
            ("suspend_after", self.suspend_after.map(|SuspendAfter(after)| after.into())),
            ("suspend_within", text(&self.suspend_within)),
            ("suspend_for", text(&self.suspend_for)),
        ];
        let given = fields.into_iter();
        given.filter_map(|(field, value)| Some((field.to_owned(), value?))).collect()
    }
}

use axum::http::Request;
use serde_json::json;

use super::*;
use crate::message::Message;
use crate::record::messages::MessageId;

fn arrive(provider: &Arc<Provider>) -> Ticket {
    provider.arrive(&Request::new(()).into_parts().0)
}

fn of_class(class: &str) -> Message {
    Message { class: Some(class.to_owned()), ..Message::default() }
}

fn with_id(id: &str) -> Message {
    Message { id: Some(MessageId::new(id)), ..Message::default() }
}

/// The answer to a whole call.
fn answer(provider: &Arc<Provider>) -> Answer {
    let mut ticket = arrive(provider);
    ticket.complete(&Message::default());
    ticket.answer()
}

fn set(provider: &Arc<Provider>, changes: serde_json::Value) -> Result<ModelView, ConfigError> {
    provider.change(changes.to_string().as_bytes())
}

fn provider() -> Result<Arc<Provider>, ConfigError> {
    Provider::new(Settings::default())
}

#[test]
fn a_request_that_began_before_a_reset_does_not_count_after_it() -> Result<(), ConfigError> {
    let provider = provider()?;
    let mut old = arrive(&provider);
    provider.reset()?;
    let mut new = arrive(&provider);
    old.body(100);
    old.complete(&of_class("otp"));
    new.complete(&of_class("marketing"));
    let report = provider.report().arrived;
    assert_eq!((report.total.arrivals, report.body_bytes), (1, 0));
    assert!(!report.by_class.contains_key("otp"));
    Ok(())
}

#[test]
fn a_request_whose_sender_goes_away_holds_up_no_other() -> Result<(), ConfigError> {
    let provider = provider()?;
    let gone = arrive(&provider);
    arrive(&provider).complete(&of_class("otp"));
    assert_eq!(provider.lock().record.waiting(), 2);
    drop(gone);
    assert_eq!(provider.lock().record.waiting(), 0);
    Ok(())
}

#[test]
fn forced_replies_count_by_their_status_and_run_out() -> Result<(), ConfigError> {
    let provider = provider()?;
    for status in [429, 503, 202] {
        provider.change(format!(r#"{{"force":{{"status":{status}}}}}"#).as_bytes())?;
        assert!(matches!(answer(&provider), Answer::Forced(_)));
        assert!(provider.model().force.is_none());
    }
    assert!(matches!(answer(&provider), Answer::Accepted { .. }));
    let total = provider.report().arrived.total;
    assert_eq!((total.accepted, total.refused, total.failed), (2, 1, 1));
    Ok(())
}

#[test]
fn a_refused_change_changes_nothing() -> Result<(), ConfigError> {
    let provider = provider()?;
    let bad = br#"{"limit":5,"force":{"status":429},"status":7}"#;
    assert!(provider.change(bad).is_err());
    let view = provider.model();
    assert_eq!((view.settings.limit, view.force), (100, None));
    Ok(())
}

#[test]
fn forced_refusals_suspend() -> Result<(), ConfigError> {
    let provider = provider()?;
    provider.change(br#"{"suspend_after":2,"force":{"status":429,"times":3}}"#)?;
    for _ in 0..3 {
        arrive(&provider);
    }
    assert!(matches!(answer(&provider), Answer::Refused { suspended: true, .. }));
    assert!(provider.report().suspended);
    provider.reset()?;
    assert!(!provider.report().suspended);
    assert_eq!(provider.model().settings.suspend_after, Some(2));
    Ok(())
}

#[test]
fn a_message_accepted_twice_is_found_and_a_refused_one_is_not() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"limit": 3, "window": "1h"}))?;
    for id in ["a", "b", "a", "a", "c"] {
        arrive(&provider).complete(&with_id(id));
    }
    let report = provider.report();
    assert_eq!((report.arrived.total.accepted, report.accepted_twice), (3, 1));
    assert_eq!((report.ids_accepted, report.ids_truncated), (2, false));
    Ok(())
}

#[test]
fn a_message_judged_later_is_found_when_it_is_accepted() -> Result<(), ConfigError> {
    for counted in ["body", "completion"] {
        let provider = provider()?;
        set(&provider, json!({"counted": counted, "limit": 2, "window": "1h"}))?;
        for id in ["a", "a", "b", "b"] {
            let mut ticket = arrive(&provider);
            assert_eq!(provider.report().arrived.total.pending, 1, "{counted}");
            ticket.complete(&with_id(id));
            ticket.answer();
        }
        let report = provider.report();
        assert_eq!((report.ids_accepted, report.accepted_twice), (1, 1), "{counted}");
        let total = report.arrived.total;
        assert_eq!((total.accepted, total.refused, total.pending), (2, 2, 0), "{counted}");
    }
    Ok(())
}

#[test]
fn a_cost_in_the_body_is_charged_as_units() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"cost": {"json": "recipients"}, "limit": 10, "window": "1h"}))?;
    for units in [7, 4, 3] {
        let mut ticket = arrive(&provider);
        assert_eq!(ticket.cost_field.as_deref(), Some("recipients"));
        ticket.complete(&Message { units: Some(units), ..Message::default() });
    }
    let report = provider.report();
    assert_eq!((report.arrived.total.accepted, report.accepted_units), (2, 10));
    let window = &report.windows[0];
    assert_eq!((window.refused, window.max_in_any), (1, Some(14)));
    assert_eq!(window.max_accepted_in_any, Some(10));
    Ok(())
}

#[test]
fn a_cost_in_a_header_is_charged_at_the_headers() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"cost": {"header": "x-units"}, "limit": 10, "window": "1h"}))?;
    for units in ["10", "1", "soon"] {
        let request = Request::builder().header("x-units", units).body(());
        let request = request.map_err(|error| ConfigError::Json(error.to_string()))?;
        provider.arrive(&request.into_parts().0);
    }
    let report = provider.report();
    assert_eq!((report.accepted_units, report.arrived.total.refused), (10, 2));
    Ok(())
}

#[test]
fn a_sender_that_gives_up_frees_no_place_before_the_work_is_done() -> Result<(), ConfigError> {
    let provider = provider()?;
    let windows = json!([{"kind": "concurrency", "limit": 2}]);
    set(&provider, json!({"windows": windows, "latency": "1h"}))?;
    for _ in 0..2 {
        arrive(&provider).complete(&Message::default());
    }
    assert!(matches!(answer(&provider), Answer::Refused { .. }));
    let report = provider.report();
    assert_eq!((report.in_flight, report.max_in_flight), (2, 2));
    assert_eq!((report.windows[0].refused, report.windows[0].max_in_any), (1, Some(2)));
    Ok(())
}

#[test]
fn a_sender_that_goes_away_in_mid_body_frees_its_place() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"windows": [{"kind": "concurrency", "limit": 1}], "latency": "1h"}))?;
    drop(arrive(&provider));
    assert_eq!(provider.report().in_flight, 0);
    assert!(matches!(answer(&provider), Answer::Accepted { .. }));
    Ok(())
}

#[test]
fn a_sender_that_goes_away_before_the_verdict_is_a_failure() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"counted": "completion"}))?;
    drop(arrive(&provider));
    let total = provider.report().arrived.total;
    assert_eq!((total.failed, total.pending), (1, 0));
    assert_eq!(provider.lock().undecided.len(), 0);
    assert_eq!(provider.lock().record.waiting(), 0);
    Ok(())
}

#[test]
fn a_call_whose_sender_gave_up_counts_when_it_is_worked_off() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"counted": "completion", "latency": "10ms", "limit": 1}))?;
    let mut ticket = arrive(&provider);
    ticket.complete(&with_id("a"));
    drop(ticket);
    let mut state = provider.lock();
    assert_eq!((state.undecided.len(), state.record.report().total.pending), (1, 1));
    let later = state.last + Duration::from_millis(10);
    state.advance_to(later);
    assert_eq!((state.undecided.len(), state.messages.distinct()), (0, 1));
    assert_eq!(state.record.report().total.accepted, 1);
    Ok(())
}

#[test]
fn each_third_reply_is_lost_though_its_call_counts() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"lose_every": 3}))?;
    let lost = |_| matches!(answer(&provider), Answer::Accepted { lost: true });
    let pattern: Vec<bool> = (0..6).map(lost).collect();
    assert_eq!(pattern, [false, false, true, false, false, true]);
    let report = provider.report();
    assert_eq!((report.arrived.total.accepted, report.replies_lost), (6, 2));
    Ok(())
}

#[test]
fn the_schedule_is_kept_at_its_instants_and_begins_anew_after_a_reset() -> Result<(), ConfigError> {
    let provider = provider()?;
    let steps = json!([{"at": "30s", "set": {"limit": 50}}, {"at": "40s", "set": {"limit": 70}}]);
    set(&provider, json!({"schedule": steps}))?;
    let limit_at = |seconds| {
        let mut state = provider.lock();
        state.advance_to(Duration::from_secs(seconds));
        state.plan.settings().limit
    };
    assert_eq!(limit_at(29), 100);
    assert_eq!(limit_at(31), 50);
    assert_eq!(limit_at(41), 70);
    provider.reset()?;
    assert_eq!(provider.model().settings.limit, 100);
    assert!(provider.lock().plan.due().is_some());
    Ok(())
}

#[test]
fn a_schedule_set_in_mid_run_counts_from_then() -> Result<(), ConfigError> {
    let provider = provider()?;
    provider.lock().advance_to(Duration::from_secs(100));
    set(&provider, json!({"schedule": [{"at": "5s", "set": {"limit": 50}}]}))?;
    let limit_at = |seconds| {
        let mut state = provider.lock();
        state.advance_to(Duration::from_secs(seconds));
        state.plan.settings().limit
    };
    assert_eq!((limit_at(104), limit_at(106)), (100, 50));
    Ok(())
}

#[test]
fn steps_and_ends_come_in_their_order_however_late_one_looks() -> Result<(), ConfigError> {
    for (step_at, accepted) in [("5s", 0), ("15s", 1)] {
        let provider = provider()?;
        set(
            &provider,
            json!({"counted": "completion", "latency": "10s",
            "schedule": [{"at": step_at, "set": {"limit": 0}}]}),
        )?;
        arrive(&provider).complete(&Message::default());
        let mut state = provider.lock();
        state.advance_to(Duration::from_secs(30));
        assert_eq!(state.record.report().total.accepted, accepted, "step at {step_at}");
    }
    Ok(())
}

#[test]
fn a_change_stays_under_the_steps_still_to_come() -> Result<(), ConfigError> {
    let provider = provider()?;
    let steps = json!([{"at": "10s", "set": {"limit": 50}}, {"at": "20s", "set": {"status": 503}}]);
    set(&provider, json!({"schedule": steps}))?;
    provider.lock().advance_to(Duration::from_secs(12));
    set(&provider, json!({"limit": 60}))?;
    provider.lock().advance_to(Duration::from_secs(22));
    let settings = provider.model().settings;
    assert_eq!((settings.limit, settings.status), (60, 503));
    Ok(())
}

#[test]
fn halving_the_limit_forgets_no_call() -> Result<(), ConfigError> {
    let provider = provider()?;
    set(&provider, json!({"limit": 4, "window": "1h"}))?;
    for _ in 0..2 {
        assert!(matches!(answer(&provider), Answer::Accepted { .. }));
    }
    set(&provider, json!({"limit": 2}))?;
    assert!(matches!(answer(&provider), Answer::Refused { .. }));
    Ok(())
}

#[test]
fn every_model_and_reply_answers() -> Result<(), ConfigError> {
    for preset in crate::config::MODELS.iter().filter(|preset| preset.name != "custom") {
        let provider = provider()?;
        set(&provider, json!({"model": preset.name}))?;
        let report = provider.report();
        assert!(!report.windows.is_empty(), "{}", preset.name);
        let mut ticket = arrive(&provider);
        ticket.complete(&Message::default());
        let mut state = provider.lock();
        let later = state.last + Duration::from_secs(1);
        state.advance_to(later);
        assert_eq!(state.report(later).arrived.total.accepted, 1, "{}", preset.name);
    }
    for preset in crate::config::REPLIES.iter() {
        let provider = provider()?;
        set(&provider, json!({"limit": 0, "reply": preset.name}))?;
        let Answer::Refused { refusal, .. } = answer(&provider) else {
            panic!("{} refuses nothing", preset.name);
        };
        assert_eq!(Some(refusal.status.as_u16().into()), preset.sets["status"].as_u64());
    }
    Ok(())
}

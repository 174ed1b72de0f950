use serde_json::json;

use super::*;

fn changed(body: &[u8]) -> Result<(Settings, ForceChange), ConfigError> {
    let mut given = parse_document(body)?;
    let force = take_force(&mut given)?;
    let settings = lay(&Settings::default(), &given)?;
    Plan::new(settings.clone())?;
    Ok((settings, force))
}

fn check_refused(body: &str, message: &str) {
    match changed(body.as_bytes()) {
        Ok(_) => panic!("{body} was accepted"),
        Err(error) => assert!(
            error.to_string().contains(message),
            "{body}: got {error:?}, wanted {message:?}"
        ),
    }
}

#[test]
fn given_fields_replace_and_the_rest_stays() -> Result<(), ConfigError> {
    let (settings, force) =
        changed(br#"{"model":"fixed","phase":"370ms","retry_after":null,"suspend_after":null}"#)?;
    let expected = Settings {
        model: "fixed".to_owned(),
        phase: Duration::from_millis(370),
        retry_after: None,
        suspend_after: None,
        ..Settings::default()
    };
    assert_eq!(settings, expected);
    assert!(matches!(force, ForceChange::Keep));
    Ok(())
}

#[test]
fn force_is_read_with_repeated_headers() -> Result<(), ConfigError> {
    let (_, force) = changed(
        br#"{"force":{"times":2,"status":503,"headers":{"retry-after":["1","2"],"date":"x"}}}"#,
    )?;
    let ForceChange::Set(forced) = force else {
        panic!("{force:?}");
    };
    assert_eq!(forced.written.times, 2);
    assert_eq!(forced.reply.headers.get_all("retry-after").iter().count(), 2);
    Ok(())
}

#[test]
fn every_refusal_names_the_field() {
    check_refused(r#"{"limits":5}"#, "limits: unknown field; ");
    check_refused(r#"{"limit":"5"}"#, "limit: invalid type: string");
    check_refused(r#"{"limit":1000001}"#, "limit: 1000001 is not allowed; 0 to 1000000");
    check_refused(r#"{"limit":null}"#, "limit: invalid type: null");
    check_refused(r#"{"window":"0s"}"#, "window: 0s");
    check_refused(r#"{"window":"8days"}"#, "window: 8days is not allowed; at most 7days");
    check_refused(r#"{"window":"soon"}"#, "window: ");
    check_refused(r#"{"model":"leeky"}"#, "model: \"leeky\" is not allowed; rolling, fixed, ");
    check_refused(r#"{"model":1}"#, "model: invalid type: integer");
    check_refused(r#"{"model":"leaky","windows":null}"#, "windows: null is not allowed");
    check_refused(r#"{"model":"leaky","limit":5}"#, "limit: 5 is not allowed; the model leaky");
    check_refused(r#"{"reply":"404"}"#, "reply: \"404\" is not allowed; 429, 503, ");
    check_refused(r#"{"lose_every":0}"#, "lose_every: 0");
    check_refused(r#"{"lose_probability":1.5}"#, "lose_probability: 1.5");
    check_refused(r#"{"stall":{"every":"1s","for":"1s"}}"#, "stall.for: 1s is not allowed");
    check_refused(r#"{"cost":{"header":"a b"}}"#, "cost.header: \"a b\"");
    check_refused(r#"{"cost":{"cookie":"x"}}"#, "cost: unknown variant `cookie`");
    check_refused(r#"{"counted":"later"}"#, "counted: unknown variant `later`");
    check_refused(r#"{"clock_offset_s":999999999}"#, "clock_offset_s: 999999999");
    check_refused(r#"{"refusal_headers":{"x":"a\nb"}}"#, "refusal_headers.x: \"a\\nb\"");
    check_refused(r#"{"retry_after":["1","\n"]}"#, "retry_after: \"\\n\"");
    check_refused(r#"{"suspended_status":42}"#, "suspended_status: 42");
    check_refused(r#"{"model":"fixed","phase":"1s"}"#, "phase: 1s is not allowed");
    check_refused(r#"{"status":100}"#, "status: 100 is not allowed; 200 to 599");
    check_refused(r#"{"retry_after":"1\n2"}"#, "retry_after: \"1\\n2\"");
    check_refused(r#"{"suspend_for":"0s"}"#, "suspend_for: 0s");
    check_refused("[]", "invalid type: sequence");
    check_refused("{", "EOF");
}

#[test]
fn every_refused_force_names_the_field() {
    check_refused(r#"{"force":{"times":1}}"#, "missing field `status`");
    check_refused(r#"{"force":{"status":"429"}}"#, "force.status: invalid type");
    check_refused(r#"{"force":{"status":429,"times":0}}"#, "force.times: 0");
    check_refused(r#"{"force":{"status":600}}"#, "force.status: 600");
    check_refused(r#"{"force":{"status":429,"reason":"x"}}"#, "unknown field `reason`");
    let header = r#"{"force":{"status":429,"headers":{"retry-after":1}}}"#;
    check_refused(header, "force.headers.retry-after: a text or a list of texts");
    let name = r#"{"force":{"status":429,"headers":{"a b":"1"}}}"#;
    check_refused(name, "force.headers.a b:");
}

#[test]
fn every_refused_window_names_its_place() {
    let check = |window: &str, message: &str| {
        check_refused(&format!(r#"{{"windows":[{window}]}}"#), message);
    };
    check(r#"{"kind":"rolling","limit":1}"#, "windows[0]: missing field `window`");
    check(r#"{"kind":"sliding","limit":1}"#, "windows[0].kind: unknown variant `sliding`");
    check(r#"{"kind":"concurrency","limit":1,"window":"1s"}"#, "unknown field `window`");
    check(r#"{"kind":"rolling","limit":1,"window":"0s"}"#, "windows[0].window: 0s");
    check(r#"{"kind":"leaky","limit":1,"window":"1s","capacity":1000001}"#, "windows[0].capacity");
    let fixed = |rest: &str| format!(r#"{{"kind":"fixed","limit":1,"window":"1s",{rest}}}"#);
    check(&fixed(r#""phase":"1s""#), "windows[0].phase: 1s is not allowed; it must be less");
    check(&fixed(r#""jump":{"every":"0s","by":"1ms"}"#), "windows[0].jump.every: 0s");
    check(&fixed(r#""jump":{"every":"1s","by":"1s"}"#), "windows[0].jump.by: 1s");
    let many = vec![r#"{"kind":"concurrency","limit":1}"#; 17].join(",");
    check(&many, "windows: a list of 17 is not allowed; at most 16 are");
}

#[test]
fn every_refused_step_names_its_place() {
    let check = |steps: &str, message: &str| {
        check_refused(&format!(r#"{{"schedule":[{steps}]}}"#), message);
    };
    check(r#"{"at":"1s","set":{"limt":5}}"#, "schedule[0].set.limt: unknown field");
    check(r#"{"at":"1s","set":{"status":7}}"#, "schedule[0].set.status: 7");
    check(r#"{"at":"8days","set":{}}"#, "schedule[0].at: 8days");
    check(r#"{"at":"2s","set":{}},{"at":"1s","set":{}}"#, "schedule[1].at: 1s is not allowed");
    check(r#"{"at":"2s","set":{"schedule":[]}}"#, "cannot bring another schedule");
    check(r#"{"at":"2s","set":{"model":"concurrency"}}"#, "cannot bring another schedule");
    check(&vec![r#"{"at":"1s","set":{}}"#; 101].join(","), "a list of 101 is not allowed");
}

#[test]
fn naming_another_model_takes_back_what_the_one_before_had_set() -> Result<(), ConfigError> {
    let given = |changes: serde_json::Value| changes.as_object().cloned().unwrap_or_default();
    let slow = lay(&Settings::default(), &given(json!({"model": "concurrency", "status": 503})))?;
    assert_eq!(slow.latency, Duration::from_millis(80));
    assert_eq!((slow.schedule.len(), slow.windows.as_ref().map(Vec::len)), (2, Some(1)));
    let back = lay(&slow, &given(json!({"model": "rolling"})))?;
    assert_eq!(back, Settings { status: 503, ..Settings::default() });
    Ok(())
}

#[test]
fn fields_beside_a_preset_have_the_last_word() -> Result<(), ConfigError> {
    let (settings, _) = changed(
        br#"{"model":"completion","latency":"5ms","reply":"403","retry_after":"http-date"}"#,
    )?;
    assert_eq!(settings.latency, Duration::from_millis(5));
    assert_eq!(settings.counted, CountedSettings::Completion);
    assert_eq!(settings.retry_after, Some(OneOrMany::One("http-date".to_owned())));
    Ok(())
}

#[test]
fn a_list_of_windows_by_hand_is_a_model_of_its_own() -> Result<(), ConfigError> {
    let (settings, _) = changed(br#"{"windows":[{"kind":"concurrency","limit":3}]}"#)?;
    assert_eq!(settings.model, CUSTOM);
    check_refused(r#"{"model":"custom"}"#, "windows: null is not allowed");
    Ok(())
}

#[test]
fn what_is_shown_can_be_set_again() -> Result<(), Box<dyn std::error::Error>> {
    for preset in MODELS.iter().filter(|preset| preset.name != CUSTOM) {
        let mut given = Document::new();
        given.insert("model".to_owned(), preset.name.into());
        let settings = lay(&Settings::default(), &given)?;
        let shown = serde_json::to_vec(&settings)?;
        assert_eq!(changed(&shown)?.0, settings, "{}", preset.name);
    }
    Ok(())
}

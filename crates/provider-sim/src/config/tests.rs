use super::*;

fn check_refused(body: &str, message: &str) {
    match merge(&Settings::default(), body.as_bytes()) {
        Ok(_) => panic!("{body} was accepted"),
        Err(error) => assert!(
            error.to_string().contains(message),
            "{body}: got {error:?}, wanted {message:?}"
        ),
    }
}

#[test]
fn given_fields_replace_and_the_rest_stays() -> Result<(), ConfigError> {
    let change = merge(
        &Settings::default(),
        br#"{"model":"fixed","phase":"370ms","retry_after":null,"suspend_after":null}"#,
    )?;
    let expected = Settings {
        model: Kind::Fixed,
        phase: Duration::from_millis(370),
        retry_after: None,
        suspend_after: None,
        ..Settings::default()
    };
    assert_eq!(change.settings, expected);
    assert!(matches!(change.force, ForceChange::Keep));
    Ok(())
}

#[test]
fn force_is_read_with_repeated_headers() -> Result<(), ConfigError> {
    let change = merge(
        &Settings::default(),
        br#"{"force":{"times":2,"status":503,"headers":{"retry-after":["1","2"],"date":"x"}}}"#,
    )?;
    let ForceChange::Set(forced) = change.force else {
        panic!("no force in {change:?}");
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
    check_refused(r#"{"model":"leaky"}"#, "model: unknown variant `leaky`");
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

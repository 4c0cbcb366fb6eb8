//! The command line, as a user and as a program meet it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft_tests::command::{Ended, User};
use weft_tests::components;
use weft_tests::node::{Node, Options, eventually};

/// A development node with `echo`, the stored component as `it`, and a user of it.
fn developer() -> Result<(Node, User)> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    node.anybody().must_deploy("it", &components::stored()?)?;
    let user = User::of(&node.anybody())?;
    Ok((node, user))
}

/// Where nobody listens.
fn nowhere() -> Result<User> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok(User::new()?.with("WEFT_URL", &format!("http://127.0.0.1:{port}")))
}

/// Ended with this code, having said something about it and nothing on stdout.
fn failed(ended: &Ended, code: i32, words: &[&str]) -> Result<()> {
    ensure!(ended.code == Some(code) && ended.stdout.is_empty(), "{ended:?}");
    for word in words {
        ensure!(ended.stderr.contains(word), "`{word}` is not in {ended:?}");
    }
    Ok(())
}

#[test]
fn every_verb_prints_one_json_value_on_request() -> Result<()> {
    let (_node, user) = developer()?;
    let component = user.file("other.wasm", components::marked(&components::echo()?, 1))?.display().to_string();
    let backup = user.home().join("backup.tar").display().to_string();
    let data = user.home().join("restored").display().to_string();
    let verbs: &[&[&str]] = &[
        &["deploy", &component, "--name", "echo"],
        &["functions"],
        &["function", "show", "echo"],
        &["function", "versions", "echo"],
        &["function", "rollback", "echo"],
        &["invoke", "echo", "--data", "hello"],
        &["invoke", "echo", "--repeat", "3"],
        &["invoke", "it", "--data", "log"],
        &["logs", "it"],
        &["usage"],
        &["node"],
        &["tenant", "create", "two"],
        &["tenant", "list"],
        &["tenant", "show", "two"],
        &["tenant", "set-quota", "two", "memory=1GiB"],
        &["tenant", "rotate-key", "two"],
        &["tenant", "delete", "two", "--yes"],
        &["backup", &backup],
        &["restore", &backup, "--data-dir", &data],
        &["profile", "set", "here"],
        &["profile", "list"],
        &["profile", "use", "here"],
        &["profile", "delete", "here"],
        &["config", "show"],
        &["config", "check"],
        &["new", "counter"],
        &["build", &component],
        &["function", "delete", "echo", "--yes"],
    ];
    for verb in verbs {
        let ended = user.weft(&[*verb, &["--json"]].concat())?;
        ensure!(ended.code == Some(0), "`weft {}`: {ended:?}", verb.join(" "));
        ended.json().with_context(|| format!("`weft {}`", verb.join(" ")))?;
    }
    Ok(())
}

#[test]
fn a_failure_is_one_json_value_too() -> Result<()> {
    let (_node, user) = developer()?;
    for verb in
        [&["function", "show", "absent"][..], &["invoke", "it", "--data", "error:other"], &["deploy", "absent.wasm"]]
    {
        let ended = user.weft(&[verb, &["--json"]].concat())?;
        let error = ended.json()?["error"].clone();
        ensure!(ended.code == Some(1) && error["exit_code"] == 1 && error["detail"].is_string(), "{ended:?}");
    }
    Ok(())
}

#[test]
fn json_has_the_answer_of_a_function() -> Result<()> {
    let (_node, user) = developer()?;
    let answer = user.json(&["invoke", "echo", "--data", "[1]", "--seed", "7"])?;
    ensure!(answer["body"] == "[1]" && answer["seed"] == 7 && answer["content_type"] == "application/json", "{answer}");
    Ok(())
}

#[test]
fn quiet_prints_only_what_was_asked_for() -> Result<()> {
    let (_node, user) = developer()?;
    ensure!(user.must(&["--quiet", "function", "delete", "echo", "--yes"])?.is_empty());
    let key = user.weft(&["--quiet", "tenant", "create", "two"])?;
    ensure!(key.stdout.starts_with("weft_") && key.stdout.lines().count() == 1 && key.stderr.is_empty(), "{key:?}");
    Ok(())
}

#[test]
fn an_invocation_prints_exactly_the_answer() -> Result<()> {
    let (_node, user) = developer()?;
    ensure!(user.must(&["invoke", "echo", "--data", "no newline"])? == "no newline");
    Ok(())
}

#[test]
fn a_body_can_come_from_stdin() -> Result<()> {
    let (_node, user) = developer()?;
    let mut child = user.command(&["invoke", "echo", "--data", "-"])?.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no stdin")?.write_all(b"from stdin")?;
    ensure!(child.wait_with_output()?.stdout == b"from stdin");
    Ok(())
}

#[test]
fn a_body_can_come_from_a_file() -> Result<()> {
    let (_node, user) = developer()?;
    user.file("body.txt", "from a file")?;
    ensure!(user.must(&["invoke", "echo", "--data", "@body.txt"])? == "from a file");
    Ok(())
}

#[test]
fn a_refused_request_ends_with_1() -> Result<()> {
    let (_node, user) = developer()?;
    failed(&user.weft(&["function", "show", "absent"])?, 1, &["`absent`", "hint:", "weft functions"])
}

#[test]
fn a_function_that_fails_ends_with_1() -> Result<()> {
    let (_node, user) = developer()?;
    failed(&user.weft(&["invoke", "it", "--data", "error:other"])?, 1, &["told to fail"])
}

#[test]
fn a_function_that_traps_ends_with_1() -> Result<()> {
    let (_node, user) = developer()?;
    failed(&user.weft(&["invoke", "it", "--data", "panic"])?, 1, &["told to panic"])
}

#[test]
fn wrong_usage_ends_with_2() -> Result<()> {
    let user = User::new()?;
    for line in [&["no-such-verb"][..], &["invoke"], &["invoke", "Bad_Name"], &["--url", "ftp://x", "functions"]] {
        ensure!(user.weft(line)?.code == Some(2), "{line:?}: {:?}", user.weft(line)?);
    }
    Ok(())
}

#[test]
fn deleting_without_anybody_to_ask_is_wrong_usage() -> Result<()> {
    let (_node, user) = developer()?;
    failed(&user.weft(&["function", "delete", "echo"])?, 2, &["--yes"])
}

#[test]
fn a_node_that_cannot_be_reached_ends_with_3() -> Result<()> {
    failed(&nowhere()?.weft(&["functions"])?, 3, &["cannot reach", "hint:", "weft serve"])
}

#[test]
fn something_that_is_no_node_ends_with_3() -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let other = thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut line = String::new();
        BufReader::new(stream.try_clone()?).read_line(&mut line)?;
        Ok(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")?)
    });
    let user = User::new()?.with("WEFT_URL", &format!("http://{address}"));
    failed(&user.weft(&["functions"])?, 3, &["not as a weft node", "hint:"])?;
    other.join().ok().context("it panicked")?
}

#[test]
fn a_missing_key_ends_with_4() -> Result<()> {
    let node = Options::default().start()?;
    failed(&User::of(&node.anybody())?.weft(&["functions"])?, 4, &["hint:", "--key"])
}

#[test]
fn a_key_that_may_not_ends_with_4() -> Result<()> {
    let node = Options::default().start()?;
    let user = User::of(&node.tenant("one", json!({}))?)?;
    failed(&user.weft(&["tenant", "list"])?, 4, &["hint:", "operator's key"])
}

#[test]
fn a_node_that_stops_ends_with_5() -> Result<()> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("hostile", &components::hostile()?)?;
    let caller = node.anybody();
    let running = thread::spawn(move || caller.invoke("hostile", b"sleep-busy:3000"));
    eventually(Duration::from_secs(10), || Ok(node.anybody().get("/v1/node")?.json()?["instances"] == 1))?;
    node.terminate()?;
    eventually(Duration::from_secs(10), || Ok(node.anybody().get("/readyz")?.status == 503))?;
    let ended = User::of(&node.anybody())?.weft(&["invoke", "hostile", "--data", "state"])?;
    failed(&ended, 5, &["stopping", "hint:", "again"])?;
    drop(node);
    running.join().ok().context("the caller panicked")?.ok();
    Ok(())
}

#[test]
fn exit_codes_are_in_the_help() -> Result<()> {
    let help = User::new()?.must(&["--help"])?;
    for code in 0..=5 {
        ensure!(help.contains(&format!("\n  {code}  ")), "{help}");
    }
    Ok(())
}

#[test]
fn what_is_not_a_terminal_gets_no_colours() -> Result<()> {
    let (_node, user) = developer()?;
    for verb in [&["functions"][..], &["usage"], &["config", "show"], &["--help"], &["function", "show", "absent"]] {
        let ended = user.weft(verb)?;
        ensure!(!ended.stdout.contains('\x1b') && !ended.stderr.contains('\x1b'), "{ended:?}");
    }
    Ok(())
}

/// Runs `weft functions` where it sees a terminal.
fn on_a_terminal(user: &User) -> Result<String> {
    let weft = components::weft()?.display().to_string();
    let mut command = user.command(&[])?;
    let mut script = std::process::Command::new("script");
    script.args(["--quiet", "--return", "--command", &format!("{weft} functions"), "/dev/null"]);
    script.current_dir(user.home()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.env("TERM", "xterm");
    command.stdin(Stdio::null());
    let output = script.output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn no_color_is_heeded_on_a_terminal() -> Result<()> {
    let (node, user) = developer()?;
    let coloured = on_a_terminal(&user);
    let plain = on_a_terminal(&User::of(&node.anybody())?.with("NO_COLOR", "1"));
    // Where there is no `script`, there is no terminal to show it on.
    let (Ok(coloured), Ok(plain)) = (coloured, plain) else { return Ok(()) };
    ensure!(coloured.contains("\x1b[") && plain.contains("echo") && !plain.contains("\x1b["), "{coloured:?} {plain:?}");
    Ok(())
}

#[test]
fn a_profile_is_kept_from_others_and_used() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    let user = User::new()?;
    let key = user.file("key", tenant.key().context("no key")?)?;
    user.must(&["profile", "set", "mine", "--url", node.url(), "--key", &format!("@{}", key.display())])?;
    let saved = user.home().join("settings/weft/profiles.toml");
    ensure!(std::fs::metadata(&saved)?.permissions().mode() & 0o777 == 0o600);
    ensure!(user.json(&["usage"])?["name"] == "one");
    Ok(())
}

#[test]
fn a_profile_can_be_chosen_by_name() -> Result<()> {
    let node = Options::default().start()?;
    let user = User::new()?;
    for name in ["one", "two"] {
        let tenant = node.tenant(name, json!({}))?;
        user.must(&["profile", "set", name, "--url", node.url(), "--key", tenant.key().context("no key")?])?;
    }
    ensure!(user.json(&["usage"])?["name"] == "one");
    ensure!(user.json(&["usage", "--profile", "two"])?["name"] == "two");
    user.must(&["profile", "use", "two"])?;
    ensure!(user.json(&["usage"])?["name"] == "two");
    Ok(())
}

#[test]
fn a_saved_key_is_never_shown() -> Result<()> {
    let user = User::new()?;
    let key = format!("weft_{}", "ab".repeat(40));
    user.must(&["profile", "set", "mine", "--url", "http://127.0.0.1:1", "--key", &key])?;
    for verb in [&["profile", "list"][..], &["profile", "list", "--json"], &["functions"], &["config", "show"]] {
        let ended = user.weft(verb)?;
        ensure!(!ended.stdout.contains("abab") && !ended.stderr.contains("abab"), "{ended:?}");
    }
    Ok(())
}

#[test]
fn a_key_in_a_variable_is_not_in_the_help() -> Result<()> {
    let user = User::new()?.with("WEFT_KEY", "weft_secret");
    ensure!(!user.must(&["--help"])?.contains("weft_secret"));
    Ok(())
}

#[test]
fn settings_that_fit_are_ok() -> Result<()> {
    let user = User::new()?;
    user.file("good.toml", "max_body = \"1MiB\"\ngrace = \"5s\"\n[quota]\nfunctions = 3\n")?;
    ensure!(user.must(&["config", "check", "--config", "good.toml"])? == "ok\n");
    Ok(())
}

#[test]
fn settings_that_do_not_fit_are_named() -> Result<()> {
    let user = User::new()?;
    for (text, word) in [
        ("max_bdy = 1\n", "max_bdy"),
        ("max_body = \"huge\"\n", "max_body"),
        ("max_instances = 0\n", "max_instances"),
        ("tls_cert = \"a.pem\"\n", "tls_key"),
        ("[quota]\nfuncs = 3\n", "funcs"),
        ("not toml", "bad.toml"),
    ] {
        user.file("bad.toml", text)?;
        failed(&user.weft(&["config", "check", "--config", "bad.toml"])?, 1, &[word])?;
    }
    Ok(())
}

#[test]
fn a_file_of_settings_that_is_not_there_is_named() -> Result<()> {
    failed(&User::new()?.weft(&["config", "check", "--config", "absent.toml"])?, 1, &["`absent.toml`"])
}

/// What `weft config show` says of `max_body`.
fn max_body(user: &User, flags: &[&str]) -> Result<(Value, Value)> {
    let shown = user.json(&[&["config", "show"], flags].concat())?;
    let settings = shown["settings"].as_array().context("no settings")?;
    let row = settings.iter().find(|row| row["name"] == "max_body").context("no max_body")?;
    Ok((row["value"].clone(), row["source"].clone()))
}

#[test]
fn a_flag_wins_over_a_variable_over_a_file_over_the_default() -> Result<()> {
    let user = User::new()?;
    ensure!(max_body(&user, &[])? == (json!("16MiB"), json!("default")), "{:?}", max_body(&user, &[])?);
    user.file("weft.toml", "max_body = \"1MiB\"\n")?;
    ensure!(max_body(&user, &[])? == (json!("1MiB"), json!("file")));
    let user = user.with("WEFT_MAX_BODY", "2MiB");
    ensure!(max_body(&user, &[])? == (json!("2MiB"), json!("given")));
    ensure!(max_body(&user, &["--max-body", "3MiB"])? == (json!("3MiB"), json!("given")));
    Ok(())
}

#[test]
fn a_flag_wins_over_a_variable_for_the_node_to_speak_to() -> Result<()> {
    let node = Options::default().dev().start()?;
    let user = nowhere()?;
    ensure!(user.weft(&["node"])?.code == Some(3));
    ensure!(user.weft(&["node", "--url", node.url()])?.code == Some(0));
    Ok(())
}

#[test]
fn a_completion_script_is_a_script() -> Result<()> {
    let user = User::new()?;
    let script = user.file("completions.bash", user.must(&["completions", "bash"])?)?;
    let checked = std::process::Command::new("bash").arg("-n").arg(script).output()?;
    ensure!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    Ok(())
}

#[test]
fn a_followed_log_prints_a_line_that_is_written_later() -> Result<()> {
    let (node, user) = developer()?;
    node.anybody().must_invoke("it", "log")?;
    let mut following = user.start(&["logs", "it", "--follow"])?;
    let stdout = BufReader::new(following.0.stdout.take().context("no stdout")?);
    let (said, lines) = mpsc::channel();
    thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
    let next = || -> Result<String> { Ok(lines.recv_timeout(Duration::from_secs(10))?) };
    for level in ["debug", "info", "warn", "error"] {
        ensure!(next()?.ends_with(&format!("a line at {level}")));
    }
    node.anybody().must_invoke("it", "log")?;
    ensure!(next()?.ends_with("a line at debug"));
    Ok(())
}

#[test]
fn a_followed_log_goes_on_when_the_node_comes_back() -> Result<()> {
    let node = Options::default().dev().start()?;
    let address = node.url().strip_prefix("http://").context("no address")?.to_owned();
    node.anybody().must_deploy("it", &components::stored()?)?;
    node.anybody().must_invoke("it", "log")?;
    let user = User::of(&node.anybody())?;
    let mut following = user.start(&["logs", "it", "--follow", "--json"])?;
    let stdout = BufReader::new(following.0.stdout.take().context("no stdout")?);
    let (said, lines) = mpsc::channel();
    thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
    let next = || -> Result<Value> { Ok(serde_json::from_str(&lines.recv_timeout(Duration::from_secs(15))?)?) };
    let mut seen = (0..4).map(|_| next()).collect::<Result<Vec<_>>>()?;
    let node = Options::default().dev().set("listen", &address).start_in(node.stop()?)?;
    node.anybody().must_invoke("it", "log")?;
    seen.extend((0..4).map(|_| next()).collect::<Result<Vec<_>>>()?);
    let list = node.anybody().get("/v1/functions/it/logs")?.json()?;
    ensure!(list["lines"] == json!(seen), "{seen:?} of {list}");
    Ok(())
}

#[test]
fn the_doctor_speaks_json() -> Result<()> {
    let user = User::new()?;
    let ended = user.weft(&["doctor", "--json"])?;
    let findings = ended.json()?;
    let findings = findings.as_array().context("no findings")?;
    ensure!(!findings.is_empty() && findings.iter().all(|finding| finding["check"].is_string()), "{ended:?}");
    let problem = findings.iter().any(|finding| finding["state"] == "problem");
    ensure!(ended.code == Some(i32::from(problem)), "{ended:?}");
    Ok(())
}

#[test]
fn the_doctor_notices_settings_that_do_not_fit() -> Result<()> {
    let ended = User::new()?.weft(&["doctor", "--json", "--max-instances", "0"])?;
    let findings = ended.json()?;
    let settings = findings.as_array().into_iter().flatten().find(|finding| finding["check"] == "settings");
    ensure!(ended.code == Some(1) && settings.is_some_and(|finding| finding["state"] == "problem"), "{ended:?}");
    Ok(())
}

#[test]
fn the_operators_key_is_shown_once() -> Result<()> {
    let node = Options::default().start()?;
    let key = node.operator_key().context("the first start shows no key")?.to_owned();
    let node = Options::default().start_in(node.stop()?)?;
    ensure!(node.operator_key().is_none(), "the second start shows a key");
    ensure!(node.anybody().with_key(Some(&key)).get("/v1/node")?.status == 200, "the first key works no longer");
    Ok(())
}

#[test]
fn a_development_node_is_only_for_this_machine() -> Result<()> {
    let error = Options::default().dev().set("listen", "0.0.0.0:0").start().err().context("it started")?.to_string();
    ensure!(error.contains("--dev") && error.contains("loopback"), "{error}");
    Ok(())
}

#[test]
fn an_address_that_is_taken_is_named() -> Result<()> {
    let node = Options::default().dev().start()?;
    let address = node.url().strip_prefix("http://").context("no address")?;
    let error = Options::default().dev().set("listen", address).start().err().context("it started")?.to_string();
    ensure!(error.contains(address) && error.contains("--listen"), "{error}");
    Ok(())
}

#[test]
fn a_backup_of_a_node_that_goes_away_is_not_kept() -> Result<()> {
    let user = nowhere()?;
    user.file("backup.tar", "the last one")?;
    failed(&user.weft(&["backup", "backup.tar"])?, 3, &["cannot reach"])?;
    ensure!(std::fs::read(user.home().join("backup.tar"))? == b"the last one");
    Ok(())
}

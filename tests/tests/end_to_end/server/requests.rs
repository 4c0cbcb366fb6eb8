//! What is said to a request: content types, and problems that name what was wrong.

use anyhow::{Result, ensure};
use serde_json::json;
use weft_tests::components;
use weft_tests::node::{Node, Options};

fn with_echo() -> Result<Node> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    Ok(node)
}

/// A request that is refused with this status and kind, in words that hold all of `words`.
fn refused(request: (&str, &str, &str), status: u16, kind: &str, words: &[&str]) -> Result<()> {
    let node = with_echo()?;
    let (method, path, body) = request;
    let answer = node.anybody().send(method, path, &[], body.as_bytes())?;
    let problem = answer.problem()?;
    ensure!((answer.status, answer.problem_kind()?.0.as_str()) == (status, kind), "{problem:?}");
    for word in words {
        ensure!(problem.detail.contains(word), "`{word}` is not in `{}`", problem.detail);
    }
    Ok(())
}

#[test]
fn a_content_type_is_kept_both_ways() -> Result<()> {
    let node = with_echo()?;
    for kind in ["application/json", "text/plain; charset=utf-8", "image/png", "application/vnd.a+b; c=\"d e\""] {
        let answer = node.anybody().send("POST", "/v1/functions/echo/invoke", &[("content-type", kind)], b"x")?;
        ensure!(answer.header("content-type") == Some(kind), "{answer:?}");
    }
    Ok(())
}

#[test]
fn an_answer_without_a_content_type_is_bytes() -> Result<()> {
    let node = with_echo()?;
    let answer = node.anybody().send("POST", "/v1/functions/echo/invoke", &[], b"x")?;
    ensure!(answer.header("content-type") == Some("application/octet-stream"), "{answer:?}");
    Ok(())
}

#[test]
fn a_body_of_any_bytes_is_kept() -> Result<()> {
    let node = with_echo()?;
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    ensure!(node.anybody().invoke("echo", &bytes)?.body == bytes);
    ensure!(node.anybody().invoke("echo", b"")?.body.is_empty());
    Ok(())
}

#[test]
fn an_unknown_route_is_named() -> Result<()> {
    refused(("GET", "/v2/functions", ""), 404, "not-found", &["`/v2/functions`", "/openapi.json"])
}

#[test]
fn a_wrong_method_is_named() -> Result<()> {
    refused(("DELETE", "/v1/usage", ""), 405, "method-not-allowed", &["DELETE"])
}

#[test]
fn an_unknown_function_is_named() -> Result<()> {
    refused(("POST", "/v1/functions/nowhere/invoke", ""), 404, "not-found", &["`nowhere`"])
}

#[test]
fn malformed_json_is_refused_with_its_place() -> Result<()> {
    refused(("POST", "/v1/tenants", "{\"name\": one}"), 400, "invalid-request", &["line 1 column"])
}

#[test]
fn an_unknown_field_is_named() -> Result<()> {
    let body = json!({ "name": "one", "colour": "red" }).to_string();
    refused(("POST", "/v1/tenants", &body), 400, "invalid-request", &["`colour`"])
}

#[test]
fn a_missing_field_is_named() -> Result<()> {
    refused(("POST", "/v1/tenants", "{}"), 400, "invalid-request", &["`name`"])
}

#[test]
fn an_unknown_quota_is_named() -> Result<()> {
    let body = json!({ "name": "one", "quota": { "memroy": 1 } }).to_string();
    refused(("POST", "/v1/tenants", &body), 400, "invalid-request", &["`memroy`"])
}

#[test]
fn a_bad_tenants_name_is_named() -> Result<()> {
    let body = json!({ "name": "Not A Name" }).to_string();
    refused(("POST", "/v1/tenants", &body), 400, "invalid-request", &["`Not A Name`", "lower-case"])
}

#[test]
fn a_bad_functions_name_is_named() -> Result<()> {
    refused(("PUT", "/v1/functions/No_Name", "x"), 400, "invalid-request", &["`No_Name`", "lower-case"])
}

#[test]
fn a_name_that_would_leave_its_folder_is_refused() -> Result<()> {
    refused(("PUT", "/v1/functions/..%2Fescape", "x"), 400, "invalid-request", &["`../escape`"])
}

#[test]
fn a_path_that_is_not_text_is_refused() -> Result<()> {
    refused(("GET", "/v1/functions/%FF", ""), 400, "invalid-request", &["path"])
}

#[test]
fn a_query_that_is_no_number_is_named() -> Result<()> {
    refused(("GET", "/v1/functions?limit=many", ""), 400, "invalid-request", &["limit"])
}

#[test]
fn an_unknown_query_is_named() -> Result<()> {
    refused(("GET", "/v1/functions?colour=red", ""), 400, "invalid-request", &["`colour`"])
}

#[test]
fn a_tenant_that_is_there_already_is_named() -> Result<()> {
    let body = json!({ "name": "dev" }).to_string();
    refused(("POST", "/v1/tenants", &body), 409, "conflict", &["`dev`"])
}

#[test]
fn a_rollback_without_an_earlier_version_says_so() -> Result<()> {
    refused(("POST", "/v1/functions/echo/rollback", ""), 409, "conflict", &["`echo`", "earlier"])
}

#[test]
fn a_rollback_to_an_unknown_version_names_it() -> Result<()> {
    let body = json!({ "to": "0123" }).to_string();
    refused(("POST", "/v1/functions/echo/rollback", &body), 404, "not-found", &["`0123`"])
}

#[test]
fn a_seed_that_is_no_number_is_refused() -> Result<()> {
    let node = with_echo()?;
    let answer = node.anybody().send("POST", "/v1/functions/echo/invoke", &[("weft-seed", "x")], b"")?;
    ensure!(answer.status == 400 && answer.problem()?.detail.contains("weft-seed"), "{answer:?}");
    Ok(())
}

#[test]
fn what_is_no_component_is_refused() -> Result<()> {
    refused(("PUT", "/v1/functions/it", "not wasm"), 422, "invalid-component", &["refused"])
}

#[test]
fn pages_of_functions_hold_each_once() -> Result<()> {
    let node = Options::default().dev().start()?;
    let component = components::echo()?;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        node.anybody().must_deploy(name, &component)?;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/functions?limit=2".to_owned());
    loop {
        let page = node.anybody().get(&path)?.json()?;
        let functions = page["functions"].as_array().into_iter().flatten();
        seen.extend(functions.filter_map(|function| function["name"].as_str().map(str::to_owned)));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/functions?limit=2&after={next}"),
            None => break,
        }
    }
    ensure!(seen == names, "{seen:?}");
    Ok(())
}

#[test]
fn requests_over_the_rate_are_told_when_to_come_back() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({ "requests_per_second": 1 }))?;
    let answers = (0..5).map(|_| tenant.get("/v1/usage")).collect::<Result<Vec<_>>>()?;
    let limited: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    ensure!(!limited.is_empty(), "{answers:?}");
    for answer in limited {
        ensure!(answer.problem_kind()? == ("rate-limited".into(), Some("requests_per_second".into())), "{answer:?}");
        ensure!(answer.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{answer:?}");
    }
    Ok(())
}

#[test]
fn json_that_is_not_called_json_is_refused_with_what_to_send() -> Result<()> {
    let node = with_echo()?;
    let body = json!({ "name": "two" }).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        let answer = node.anybody().send("POST", "/v1/tenants", &[("content-type", kind)], body.as_bytes())?;
        ensure!(answer.status == 415 && answer.problem_kind()?.0 == "unsupported-media-type", "{answer:?}");
        ensure!(answer.problem()?.detail.contains("application/json"), "{answer:?}");
    }
    let kind = ("content-type", "Application/JSON; charset=utf-8");
    node.anybody().send("POST", "/v1/tenants", &[kind], body.as_bytes())?.json()?;
    Ok(())
}

#[test]
fn no_answer_is_to_be_guessed_at() -> Result<()> {
    let node = with_echo()?;
    let (html, client) = (("content-type", "text/html"), node.anybody());
    let answers = [
        client.get("/livez")?,
        client.get("/v1/functions")?,
        client.get("/nowhere")?,
        client.get("/v1/functions/%FF")?,
        client.send("POST", "/v1/functions/echo/invoke", &[html], b"<script>")?,
        client.send("DELETE", "/v1/functions/echo", &[("origin", "http://evil.example")], b"")?,
    ];
    for answer in answers {
        ensure!(answer.header("x-content-type-options") == Some("nosniff"), "{answer:?}");
    }
    Ok(())
}

//! A node with `--dev` asks for no key, and belongs to the user of the machine: not to the pages in the user's browser.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft_tests::browser::Site;
use weft_tests::components;
use weft_tests::node::{Node, Options};
use weft_tests::wire::Wire;

fn node() -> Result<Node> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    Ok(node)
}

/// Nothing has happened to what the developer has.
fn untouched(node: &Node) -> Result<()> {
    let (tenants, functions) =
        (node.anybody().get("/v1/tenants")?.json()?, node.anybody().get("/v1/functions")?.json()?);
    let names = |list: &Value| list.as_array().map(|list| list.iter().map(|it| it["name"].clone()).collect::<Vec<_>>());
    ensure!(names(&tenants["tenants"]) == Some(vec![json!("dev")]), "{tenants}");
    ensure!(names(&functions["functions"]) == Some(vec![json!("echo")]), "{functions}");
    Ok(())
}

#[test]
fn another_name_of_the_machine_is_refused() -> Result<()> {
    let node = node()?;
    let host = "Host: evil.example:7420";
    for (target, host) in [
        ("/v1/backup", host),
        ("/livez", host),
        ("/v1/backup", "Host: 127.0.0.1.nip.io"),
        ("http://evil.example/v1/backup", "Host: localhost"),
        ("http://localhost/v1/backup", host),
    ] {
        let mut wire = Wire::connect(&node.anybody())?;
        wire.send(format!("GET {target} HTTP/1.1\r\n{host}\r\n\r\n"))?;
        let answer = wire.answer()?;
        ensure!(answer.status == 403 && answer.problem_kind()?.0 == "foreign-request", "{target} {host}: {answer:?}");
    }
    for host in ["localhost", "localhost:7420", "127.0.0.1", "[::1]:7420"] {
        let mut wire = Wire::connect(&node.anybody())?;
        wire.send(format!("GET /v1/functions HTTP/1.1\r\nHost: {host}\r\n\r\n"))?;
        ensure!(wire.answer()?.status == 200, "{host}");
    }
    Ok(())
}

#[test]
fn what_a_page_elsewhere_sends_is_refused() -> Result<()> {
    let node = node()?;
    let body = json!({ "name": "theirs" }).to_string();
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:3000"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [("content-type", "application/json"), (name, value)];
        let answer = node.anybody().send("POST", "/v1/tenants", &headers, body.as_bytes())?;
        ensure!(answer.status == 403 && answer.problem_kind()?.0 == "foreign-request", "{name} {value}: {answer:?}");
    }
    untouched(&node)
}

#[test]
fn a_node_with_keys_may_have_any_name_and_be_called_from_anywhere() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    let headers = [("host", "weft.example"), ("origin", "http://console.example"), ("sec-fetch-site", "cross-site")];
    ensure!(tenant.send("GET", "/v1/usage", &headers, b"")?.status == 200);
    Ok(())
}

#[test]
fn a_page_on_another_origin_gets_nothing_in_a_browser() -> Result<()> {
    let node = node()?;
    // Everything that a page can send without being allowed to, and what it would need to be allowed for.
    let script = format!(
        r#"
        const node = '{}', seen = [];
        const attempt = async (path, options) => {{
            try {{
                const answer = await fetch(node + path, options);
                const text = await answer.text();
                if (answer.type !== 'opaque' || text) seen.push(path + ' ' + answer.status + ' ' + text);
            }} catch (refused) {{}}
        }};
        const tenant = JSON.stringify({{ name: 'theirs' }});
        await attempt('/v1/functions', {{}});
        await attempt('/v1/backup', {{ mode: 'no-cors' }});
        await attempt('/v1/tenants', {{ method: 'POST', mode: 'no-cors', body: tenant }});
        await attempt('/v1/tenants', {{ method: 'POST', mode: 'no-cors', body: new Blob([tenant]) }});
        await attempt('/v1/tenants', {{ method: 'POST', mode: 'no-cors', body: new URLSearchParams(tenant) }});
        await attempt('/v1/tenants', {{ method: 'POST', body: tenant, headers: {{ 'content-type': 'application/json' }} }});
        await attempt('/v1/functions/echo/invoke', {{ method: 'POST', mode: 'no-cors', body: 'x' }});
        await attempt('/v1/functions/echo', {{ method: 'DELETE' }});
        await attempt('/v1/jobs/prune', {{ method: 'POST', mode: 'no-cors' }});
        await report(JSON.stringify(seen));
        "#,
        node.url()
    );
    let site = Site::serve(&script, node.url())?;
    let seen = site.open_as("evil.example")?;
    ensure!(seen == "[]", "the page has seen {seen}");
    let invocations = node.anybody().usage()?.usage.invocations;
    ensure!(invocations == 0, "the page has invoked a function {invocations} times");
    untouched(&node)
}

/// What a page of the site's own origin, which the site's owner has then led to the node, gets to see.
const ALL_OF_IT: &str = r"
    const statuses = [];
    for (const [method, path, body] of [
        ['GET', '/v1/functions'], ['GET', '/v1/backup'], ['POST', '/v1/functions/echo/invoke', 'hello'],
        ['POST', '/v1/jobs/prune'], ['DELETE', '/v1/functions/echo'],
    ]) {
        const answer = await fetch(path, { method, body });
        statuses.push(answer.status);
    }
    await report(JSON.stringify(statuses));
";

#[test]
fn a_name_that_is_led_to_the_machine_gets_nothing_in_a_browser() -> Result<()> {
    let node = node()?;
    let site = Site::serve(ALL_OF_IT, node.url())?;
    let statuses: Vec<u16> = serde_json::from_str(&site.open_as("evil.example")?).context("no list")?;
    ensure!(statuses == [403; 5], "{statuses:?}");
    untouched(&node)
}

#[test]
fn a_page_of_the_nodes_own_origin_works_in_a_browser() -> Result<()> {
    let node = node()?;
    let site = Site::serve(ALL_OF_IT, node.url())?;
    let statuses: Vec<u16> = serde_json::from_str(&site.open_as("localhost")?).context("no list")?;
    ensure!(statuses == [200, 200, 200, 200, 204], "{statuses:?}");
    Ok(())
}

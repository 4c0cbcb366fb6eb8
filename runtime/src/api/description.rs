//! The description of the API, OpenAPI 3.1: what `/openapi.json` says.
//!
//! Routes describe themselves beside their handlers, with the answers that are their own. What they have in common is added
//! here, by rules: the ways in which a request can be refused or fail, what names and digests look like, and how large
//! numbers may be. So a client that is generated from it, or a program that tries it out, knows all there is to know.

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::request::MAX_CURSOR;
use super::{
    datasets, devices, functions, invoke, job_events, jobs, logs, models, operations, params, prices, standing,
    tenants, tune_events, tunes, uploads,
};
use crate::job::RANGES;
use crate::names::MAX_NAME;
use crate::params::space::MAX_KEY;
use weft_core::tune::spec::RANGES as TUNE_RANGES;

#[derive(OpenApi)]
#[openapi(
    info(title = "Weft", description = "Functions, tenants and training on one node"),
    paths(
        functions::deploy, functions::list, functions::show, functions::delete, functions::versions,
        functions::delete_version, functions::rollback, invoke::invoke, logs::logs,
        uploads::begin, uploads::show, uploads::part, uploads::delete,
        datasets::create, datasets::append, datasets::list, datasets::show, datasets::delete,
        datasets::manifest, datasets::block,
        standing::give, standing::show, standing::take_back, standing::list,
        models::create, models::list, models::show, models::file, models::delete,
        jobs::submit, jobs::list, jobs::prune, jobs::show, jobs::delete, jobs::history, jobs::stop, jobs::resume,
        jobs::scale, jobs::plan,
        jobs::kill_worker, jobs::infer, job_events::events, logs::job_logs,
        tunes::submit, tunes::list, tunes::show, tunes::delete, tunes::trials, tunes::stop, tunes::resume, tunes::ask,
        tunes::tell, tunes::describe, tune_events::events,
        params::list, params::get, params::set, params::delete, params::delete_all,
        tenants::usage, tenants::create, tenants::list, tenants::show, tenants::set_quota, tenants::rotate_key,
        tenants::delete,
        operations::livez, operations::readyz, operations::metrics, operations::status, operations::backup,
        devices::list, devices::reset, prices::show,
    ),
    security(("key" = []))
)]
struct Description;

/// How requests can be refused or fail, and what that means.
const PROBLEMS: &[(u16, &str)] = &[
    (400, "The request is not understood"),
    (401, "No valid key was given"),
    (403, "This key may not do that, or a quota of the tenant is used up"),
    (404, "There is no such thing"),
    (408, "The request took too long to arrive"),
    (409, "That does not fit what is there"),
    (413, "The request is too large"),
    (415, "A body of this content type is not taken"),
    (417, "What the request expects is not done here"),
    (422, "What was sent cannot be used"),
    (429, "Too much at once: see Retry-After"),
    (500, "The node failed"),
    (501, "The request is coded in a way that is not known here"),
    (502, "The function trapped or exceeded a limit"),
    (503, "The node is stopping"),
    (504, "That took too long"),
];

/// Operations that run a tenant's code before they answer.
const RUN_CODE: &[&str] =
    &["invoke", "submit_job", "give_order", "resume_job", "infer_job", "begin_tune", "describe_function"];

const DIGEST: &str = "^sha256:[0-9a-f]{64}$";
const DIGEST_BEGINNING: &str = "^(sha256:)?[0-9A-Fa-f]{1,64}$";
const STORE: &str = "^(T[0-9a-f]{32}|[a-z0-9]([a-z0-9-]*[a-z0-9])?)$";
const NAME: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";
const KEY: &str = "^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$";

/// The description.
pub fn openapi() -> Value {
    let mut document = serde_json::to_value(Description::openapi()).unwrap_or_default();
    document["components"]["securitySchemes"] = json!({ "key": { "type": "http", "scheme": "bearer" } });
    let problems = PROBLEMS.iter().map(|(status, meaning)| (status.to_string(), problem(meaning)));
    document["components"]["responses"] = Value::Object(problems.collect());
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, operations) in paths {
            for (method, operation) in operations.as_object_mut().into_iter().flatten() {
                describe_answers(method, path, operation);
                describe_parameters(path, operation);
            }
        }
    }
    describe_words(&mut document["components"]["schemas"]);
    if let Some(word) = document.pointer_mut("/components/schemas/JobSpec/properties/params/additionalProperties") {
        *word = json!({ "type": ["string", "number", "boolean"] });
    }
    describe_numbers(&mut document);
    document
}

fn problem(meaning: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    json!({ "description": meaning, "content": { "application/problem+json": { "schema": schema } } })
}

/// Adds the problems that an operation can end in, and words where an answer of its own has none.
fn describe_answers(method: &str, path: &str, operation: &mut Value) {
    let possible = possible_problems(method, path, operation);
    let Some(answers) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    for status in possible {
        let reference = json!({ "$ref": format!("#/components/responses/{status}") });
        answers.entry(status.to_string()).or_insert(reference);
    }
    for (status, answer) in answers.iter_mut().filter_map(|(status, answer)| Some((status, answer.as_object_mut()?))) {
        let known = PROBLEMS.iter().find(|(problem, _)| problem.to_string() == *status);
        let said = known.map_or("As it is now", |(_, meaning)| meaning);
        let said = if status == "204" { "Done" } else { said };
        if !answer.contains_key("$ref") {
            answer.entry("description").or_insert_with(|| said.into());
        }
    }
}

fn possible_problems(method: &str, path: &str, operation: &Value) -> Vec<u16> {
    let is = |words: &[&str]| words.iter().any(|word| operation["operationId"] == *word);
    let body = operation["requestBody"]["content"].as_object();
    let mut statuses = vec![400, 403, 417, 501];
    let mut also = |condition: bool, more: &[u16]| {
        if condition {
            statuses.extend(more);
        }
    };
    also(operation.get("security").is_none(), &[401, 429, 500]);
    also(path.contains('{'), &[404]);
    also(method != "get", &[409, 503]);
    also(path.starts_with("/v1/params"), &[409]);
    also(body.is_some(), &[408, 413]);
    also(body.is_some_and(|kinds| kinds.contains_key("application/json")), &[415]);
    also(body.is_some() && !path.starts_with("/v1/tenants") && !path.starts_with("/v1/params"), &[422]);
    also(is(RUN_CODE), &[422, 502, 504]);
    statuses
}

/// Says what the words in paths, queries and headers look like.
fn describe_parameters(path: &str, operation: &mut Value) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        let place = parameter["in"].as_str().unwrap_or_default().to_owned();
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        let Some(schema) = parameter.get_mut("schema").and_then(Value::as_object_mut) else { continue };
        // What is left out of a request is not there; it is never null.
        if let Some(kind) = schema.get("type").and_then(|kind| kind.get(0)).cloned() {
            schema.insert("type".to_owned(), kind);
        }
        let more = match (place.as_str(), name.as_str()) {
            ("path", "name") if path.starts_with("/v1/params/") => json!({ "pattern": KEY, "maxLength": MAX_KEY }),
            ("path", "name" | "tenant") | ("query", "job") => json!({ "pattern": NAME, "maxLength": MAX_NAME }),
            ("path", "digest") => json!({ "pattern": DIGEST }),
            ("path" | "query", "version") => json!({ "pattern": DIGEST_BEGINNING }),
            ("path", "device") => json!({ "pattern": "^[a-z]+(:[0-9]+)?$" }),
            ("query", "after" | "prefix") if schema.get("type").is_some_and(|kind| kind == "string") => {
                json!({ "maxLength": MAX_CURSOR })
            }
            ("query", "limit") => json!({ "minimum": 1 }),
            ("query", "format") => json!({ "enum": ["safetensors", "npz"] }),
            ("header", "idempotency-key") => json!({ "pattern": "^[!-~]{1,255}$" }),
            _ => continue,
        };
        schema.extend(more.as_object().cloned().unwrap_or_default());
    }
}

/// Says what the words in bodies look like.
fn describe_words(schemas: &mut Value) {
    for (schema, property, pattern) in [
        ("TenantRequest", "name", NAME),
        ("UploadRequest", "digest", DIGEST),
        ("ModelRequest", "upload", DIGEST),
        ("JobSpec", "function", NAME),
        ("JobSpec", "dataset", NAME),
        ("JobSpec", "init_from", NAME),
        ("JobSpec", "name", NAME),
        ("TuneSpec", "name", NAME),
        ("RollbackRequest", "to", DIGEST_BEGINNING),
        ("SampleSpec", "of", NAME),
        ("TenantRequest", "store", STORE),
        ("FunctionView", "version", DIGEST),
        ("VersionView", "version", DIGEST),
        ("UploadView", "digest", DIGEST),
        ("ModelView", "digest", DIGEST),
    ] {
        let property = schemas.pointer_mut(&format!("/{schema}/properties/{property}"));
        if let Some(property) = property.and_then(Value::as_object_mut) {
            property.insert("pattern".to_owned(), pattern.into());
            if pattern == NAME {
                property.insert("maxLength".to_owned(), MAX_NAME.into());
            }
        }
    }
    let of_job = RANGES.map(|range| ("JobSpec", range));
    let of_tune = TUNE_RANGES.map(|range| ("TuneSpec", range));
    for (schema, (word, low, high)) in of_job.into_iter().chain(of_tune) {
        let property = schemas.pointer_mut(&format!("/{schema}/properties/{word}"));
        if let Some(property) = property.and_then(Value::as_object_mut) {
            property.insert("minimum".to_owned(), low.into());
            property.insert("maximum".to_owned(), high.into());
        }
    }
    // A status is all that has sixteen bits here.
    if let Some(status) = schemas.pointer_mut("/Problem/properties/status").and_then(Value::as_object_mut) {
        status.insert("minimum".to_owned(), 400.into());
        status.insert("maximum".to_owned(), 599.into());
    }
}

/// Says how large every number may be. Rust's types without a sign end where the description would not say so.
fn describe_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(describe_numbers),
        Value::Object(fields) => {
            describe_number(fields);
            if let Some(names) = fields.get_mut("propertyNames").filter(|names| names["type"] == "integer") {
                // Names are text, in JSON.
                *names = json!({ "type": "string", "pattern": "^[0-9]+$" });
            }
            fields.values_mut().for_each(describe_numbers);
        }
        _ => {}
    }
}

fn describe_number(schema: &mut Map<String, Value>) {
    let kind = schema.get("type");
    let is_integer = kind.is_some_and(|kind| {
        kind == "integer" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "integer"))
    });
    let has_no_sign = schema.get("minimum").and_then(Value::as_i64).is_some_and(|minimum| minimum >= 0);
    if !is_integer || !has_no_sign || schema.contains_key("maximum") {
        return;
    }
    let (format, maximum) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => ("uint32", u64::from(u32::MAX)),
        _ => ("uint64", u64::MAX),
    };
    schema.insert("format".to_owned(), format.into());
    schema.insert("maximum".to_owned(), maximum.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_a_problem_is_described() {
        for (slug, status, _) in super::super::Kind::ALL {
            // Only what no route takes is answered with this one.
            let is_described = *status == 405 || PROBLEMS.iter().any(|(described, _)| described == status);
            assert!(is_described, "`{slug}` has the status {status}, which no operation describes");
        }
    }

    #[test]
    fn numbers_end_where_their_types_do() {
        let mut document = json!({ "a": { "type": ["integer", "null"], "format": "int64", "minimum": 0 } });
        describe_numbers(&mut document);
        assert_eq!(document["a"]["maximum"], u64::MAX);
    }
}

//! Every call of the API.

use std::io::BufReader;
use std::time::Duration;

use serde::Serialize;
use ureq::http::{HeaderMap, Method};
use weft_core::plan::prices::PriceTable;
use weft_core::spec::ShapeChange;
use weft_core::tune::spec::TuneSpec;
use weft_gpu::pool::DeviceId;

use super::super::sse::Events;
use super::{Ask, Body, Client, ClientError, Wait};
use crate::api::types::{
    DataSetDetail, DataSetList, DataSetView, DeployView, DeviceList, FunctionList, FunctionView, InferAnswer,
    InferRequest, JobDetail, JobHistory, JobList, JobView, JobsPruned, KeyRotated, LogList, ModelDetail, ModelList,
    ModelRequest, ModelView, NodeView, ParamList, ParamSet, ParamsDeleted, PlanView, RollbackRequest,
    StandingOrderList, StandingOrderView, TenantCreated, TenantList, TenantRequest, TenantView, TrialList, TuneDetail,
    TuneList, TuneView, UploadRequest, UploadView, VersionList,
};
use crate::catalog::spec::DataSetSpec;
use crate::digest::Digest;
use crate::job::{JobSpec, State};
use crate::logs::Whose;
use crate::names::Name;
use crate::params::Key;
use crate::study::TuneState;
use crate::tenant::QuotaPatch;

/// For calls that only look something up or write a record.
const SOON: Wait = Wait::Whole(Duration::from_secs(60));
/// For an upload, which is compiled before it is answered.
const DEPLOY: Wait = Wait::Whole(Duration::from_secs(600));
/// For a data set, whose files are read before it is answered.
const BUILD: Wait = Wait::Whole(Duration::from_secs(3_600));
/// A followed log that is silent for so long is asked for again, in case the connection died without a word.
const SILENCE: Wait = Wait::EachRead(Duration::from_secs(60));
/// For the next bytes of a backup.
const STALLED: Wait = Wait::EachRead(Duration::from_secs(120));

/// What to invoke a function with.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    pub body: Vec<u8>,
    pub content_type: Option<String>,
    pub seed: Option<u64>,
    pub timeout: Option<Duration>,
}

/// A function's answer, and what the node said about it.
#[derive(Clone, Debug)]
pub struct Invoked {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
    pub invocation: Option<String>,
    pub version: Option<String>,
    pub seed: Option<u64>,
    pub cold_start_us: Option<u64>,
    pub run_us: Option<u64>,
}

impl Client {
    pub fn deploy(&self, name: &Name, component: &[u8]) -> Result<DeployView, ClientError> {
        let headers = vec![("content-type", "application/wasm".to_owned())];
        let path = format!("/v1/functions/{name}");
        self.json(Ask { method: Method::PUT, path, headers, body: Some(component), wait: DEPLOY })
    }

    /// One page.
    pub fn functions(&self, limit: Option<usize>, after: Option<&str>) -> Result<FunctionList, ClientError> {
        self.get(format!("/v1/functions{}", query(&[("limit", limit.map(|n| n.to_string())), ("after", owned(after))])))
    }

    pub fn function(&self, name: &Name) -> Result<FunctionView, ClientError> {
        self.get(format!("/v1/functions/{name}"))
    }

    pub fn delete_function(&self, name: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/functions/{name}"))
    }

    pub fn versions(&self, name: &Name) -> Result<VersionList, ClientError> {
        self.get(format!("/v1/functions/{name}/versions"))
    }

    /// `version` is the beginning of a digest.
    pub fn delete_version(&self, name: &Name, version: &str) -> Result<FunctionView, ClientError> {
        let path = format!("/v1/functions/{name}/versions/{}", escaped(version));
        self.json(Ask { method: Method::DELETE, path, headers: Vec::new(), body: None, wait: SOON })
    }

    pub fn rollback(&self, name: &Name, to: Option<String>) -> Result<FunctionView, ClientError> {
        self.change(Method::POST, format!("/v1/functions/{name}/rollback"), &RollbackRequest { to })
    }

    pub fn invoke(&self, name: &Name, invocation: &Invocation) -> Result<Invoked, ClientError> {
        let mut headers = Vec::new();
        headers.extend(invocation.content_type.clone().map(|kind| ("content-type", kind)));
        headers.extend(invocation.seed.map(|seed| ("weft-seed", seed.to_string())));
        let path = format!("/v1/functions/{name}/invoke");
        let wait = invocation.timeout.map_or(Wait::Forever, Wait::Whole);
        let response = self.send(Ask { method: Method::POST, path, headers, body: Some(&invocation.body), wait })?;
        let header = |name| text(response.headers(), name).map(str::to_owned);
        let timing = header("server-timing").unwrap_or_default();
        Ok(Invoked {
            status: response.status().as_u16(),
            content_type: header("content-type"),
            invocation: header("weft-invocation"),
            version: header("weft-version"),
            seed: header("weft-seed").and_then(|seed| seed.parse().ok()),
            cold_start_us: timing_us(&timing, "cold"),
            run_us: timing_us(&timing, "run"),
            body: self.whole(response)?,
        })
    }

    /// The last `tail` lines, of those after line `after`.
    pub fn logs(&self, whose: &Whose, tail: Option<u32>, after: Option<u64>) -> Result<LogList, ClientError> {
        self.get(logs_path(whose, tail, after))
    }

    /// The same, and then each line as it is written. `last` is the id of the last event that was seen before.
    pub fn follow_logs(
        &self,
        whose: &Whose,
        tail: Option<u32>,
        after: Option<u64>,
        last: Option<&str>,
    ) -> Result<Events<BufReader<Body>>, ClientError> {
        self.follow(logs_path(whose, tail, after), last)
    }

    fn follow(&self, path: String, last: Option<&str>) -> Result<Events<BufReader<Body>>, ClientError> {
        let mut headers = vec![("accept", "text/event-stream".to_owned())];
        headers.extend(last.map(|id| ("last-event-id", id.to_owned())));
        let response = self.send(Ask { method: Method::GET, path, headers, body: None, wait: SILENCE })?;
        Ok(Events::new(BufReader::new(response.into_body().into_reader())))
    }

    /// Submits a job. With a key, the same request sent again makes no second one.
    pub fn submit_job(&self, spec: &JobSpec, key: Option<&str>) -> Result<JobView, ClientError> {
        let body = serde_json::to_vec(spec).map_err(|error| ClientError::Cut(error.to_string()))?;
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
        let path = "/v1/jobs".to_owned();
        self.json(Ask { method: Method::POST, path, headers, body: Some(&body), wait: DEPLOY })
    }

    /// One page.
    pub fn jobs(
        &self,
        limit: Option<usize>,
        after: Option<&str>,
        state: Option<State>,
    ) -> Result<JobList, ClientError> {
        let limit = limit.map(|n| n.to_string());
        let state = state.map(|state| state.word().to_owned());
        self.get(format!("/v1/jobs{}", query(&[("limit", limit), ("after", owned(after)), ("state", state)])))
    }

    pub fn job(&self, name: &Name) -> Result<JobDetail, ClientError> {
        self.get(format!("/v1/jobs/{name}"))
    }

    /// One page.
    pub fn job_history(&self, name: &Name, after: Option<u64>) -> Result<JobHistory, ClientError> {
        self.get(format!("/v1/jobs/{name}/history{}", query(&[("after", after.map(|epoch| epoch.to_string()))])))
    }

    /// What is planned about it, and what was decided.
    pub fn job_plan(&self, name: &Name) -> Result<PlanView, ClientError> {
        self.get(format!("/v1/jobs/{name}/plan"))
    }

    /// What happened, and then what happens, until the job is over. `last` is the id of the last event that was seen.
    pub fn follow_job(&self, name: &Name, last: Option<&str>) -> Result<Events<BufReader<Body>>, ClientError> {
        self.follow(format!("/v1/jobs/{name}/events"), last)
    }

    pub fn stop_job(&self, name: &Name) -> Result<JobView, ClientError> {
        self.order(format!("/v1/jobs/{name}/stop"))
    }

    pub fn resume_job(&self, name: &Name) -> Result<JobView, ClientError> {
        self.order(format!("/v1/jobs/{name}/resume"))
    }

    pub fn scale_job(&self, name: &Name, change: &ShapeChange) -> Result<JobDetail, ClientError> {
        self.change(Method::POST, format!("/v1/jobs/{name}/scale"), change)
    }

    pub fn kill_worker(&self, name: &Name, worker: u32) -> Result<(), ClientError> {
        self.tell(format!("/v1/jobs/{name}/workers/{worker}/kill"))
    }

    /// Has something done that answers with nothing.
    fn tell(&self, path: String) -> Result<(), ClientError> {
        self.send(Ask { method: Method::POST, path, headers: Vec::new(), body: Some(&[]), wait: SOON }).map(drop)
    }

    pub fn delete_job(&self, name: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/jobs/{name}"))
    }

    pub fn prune_jobs(&self) -> Result<JobsPruned, ClientError> {
        self.order("/v1/jobs/prune".to_owned())
    }

    /// Asks for a study. With a key, the same request sent again makes no second one.
    pub fn create_tune(&self, spec: &TuneSpec, key: Option<&str>) -> Result<TuneView, ClientError> {
        let body = serde_json::to_vec(spec).map_err(|error| ClientError::Cut(error.to_string()))?;
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
        let path = "/v1/tunes".to_owned();
        self.json(Ask { method: Method::POST, path, headers, body: Some(&body), wait: DEPLOY })
    }

    /// One page.
    pub fn tunes(
        &self,
        limit: Option<usize>,
        after: Option<&str>,
        state: Option<TuneState>,
    ) -> Result<TuneList, ClientError> {
        let limit = limit.map(|n| n.to_string());
        let state = state.map(|state| state.word().to_owned());
        self.get(format!("/v1/tunes{}", query(&[("limit", limit), ("after", owned(after)), ("state", state)])))
    }

    pub fn tune(&self, name: &Name) -> Result<TuneDetail, ClientError> {
        self.get(format!("/v1/tunes/{name}"))
    }

    /// One page, of those with numbers above `after`.
    pub fn trials(&self, name: &Name, after: Option<u32>) -> Result<TrialList, ClientError> {
        self.get(format!("/v1/tunes/{name}/trials{}", query(&[("after", after.map(|trial| trial.to_string()))])))
    }

    /// What happened, and then what happens, until the study is over. `last` is the id of the last event that was seen.
    pub fn follow_tune(&self, name: &Name, last: Option<&str>) -> Result<Events<BufReader<Body>>, ClientError> {
        self.follow(format!("/v1/tunes/{name}/events"), last)
    }

    pub fn stop_tune(&self, name: &Name) -> Result<TuneView, ClientError> {
        self.order(format!("/v1/tunes/{name}/stop"))
    }

    pub fn resume_tune(&self, name: &Name) -> Result<TuneView, ClientError> {
        self.order(format!("/v1/tunes/{name}/resume"))
    }

    pub fn delete_tune(&self, name: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/tunes/{name}"))
    }

    /// What a job's model makes of samples.
    pub fn infer_job(&self, name: &Name, request: &InferRequest) -> Result<InferAnswer, ClientError> {
        self.change_within(Method::POST, format!("/v1/jobs/{name}/infer"), request, DEPLOY)
    }

    /// Begins an upload, or tells how far it has come.
    pub fn begin_upload(&self, request: &UploadRequest) -> Result<UploadView, ClientError> {
        self.change(Method::POST, "/v1/uploads".to_owned(), request)
    }

    pub fn send_part(&self, digest: &str, index: usize, part: &[u8]) -> Result<UploadView, ClientError> {
        let headers = vec![
            ("content-type", "application/octet-stream".to_owned()),
            ("weft-digest", Digest::of(part).to_string()),
        ];
        let path = format!("/v1/uploads/{}/parts/{index}", escaped(digest));
        self.json(Ask { method: Method::PUT, path, headers, body: Some(part), wait: DEPLOY })
    }

    pub fn delete_upload(&self, digest: &str) -> Result<(), ClientError> {
        self.delete(format!("/v1/uploads/{}", escaped(digest)))
    }

    pub fn create_dataset(&self, name: &Name, spec: &DataSetSpec) -> Result<DataSetView, ClientError> {
        self.change_within(Method::PUT, format!("/v1/datasets/{name}"), spec, BUILD)
    }

    pub fn append_dataset(&self, name: &Name, spec: &DataSetSpec) -> Result<DataSetView, ClientError> {
        self.change_within(Method::POST, format!("/v1/datasets/{name}/append"), spec, BUILD)
    }

    /// One page.
    pub fn datasets(&self, after: Option<&str>) -> Result<DataSetList, ClientError> {
        self.get(format!("/v1/datasets{}", query(&[("after", owned(after))])))
    }

    /// `version` is the beginning of a digest.
    pub fn dataset(&self, name: &Name, version: Option<&str>) -> Result<DataSetDetail, ClientError> {
        self.get(format!("/v1/datasets/{name}{}", query(&[("version", owned(version))])))
    }

    /// A version's manifest, as it is stored.
    pub fn dataset_manifest(&self, name: &Name, version: &str) -> Result<Vec<u8>, ClientError> {
        self.fetch(format!("/v1/datasets/{name}/manifest{}", query(&[("version", owned(Some(version)))])))
    }

    /// One of a version's blocks, as it is stored.
    pub fn dataset_block(&self, name: &Name, version: &str, block: &Digest) -> Result<Vec<u8>, ClientError> {
        self.fetch(format!("/v1/datasets/{name}/blocks/{block}{}", query(&[("version", owned(Some(version)))])))
    }

    /// All of something that is no JSON, or is read by somebody else.
    fn fetch(&self, path: String) -> Result<Vec<u8>, ClientError> {
        let response = self.send(Ask { method: Method::GET, path, headers: Vec::new(), body: None, wait: STALLED })?;
        self.whole(response)
    }

    pub fn delete_dataset(&self, name: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/datasets/{name}"))
    }

    /// Has a data set start a job whenever it has grown.
    pub fn give_order(&self, dataset: &Name, spec: &JobSpec) -> Result<StandingOrderView, ClientError> {
        self.change_within(Method::PUT, format!("/v1/datasets/{dataset}/on-append"), spec, DEPLOY)
    }

    pub fn standing_order(&self, dataset: &Name) -> Result<StandingOrderView, ClientError> {
        self.get(format!("/v1/datasets/{dataset}/on-append"))
    }

    pub fn take_order_back(&self, dataset: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/datasets/{dataset}/on-append"))
    }

    /// One page.
    pub fn standing_orders(&self, after: Option<&str>) -> Result<StandingOrderList, ClientError> {
        self.get(format!("/v1/on-append{}", query(&[("after", owned(after))])))
    }

    /// Makes an upload a model.
    pub fn create_model(&self, name: &Name, upload: &str) -> Result<ModelView, ClientError> {
        let request = ModelRequest { upload: upload.to_owned() };
        self.change_within(Method::PUT, format!("/v1/models/{name}"), &request, BUILD)
    }

    /// One page.
    pub fn models(&self, after: Option<&str>) -> Result<ModelList, ClientError> {
        self.get(format!("/v1/models{}", query(&[("after", owned(after))])))
    }

    /// What a model's file says, and all of its tensors.
    pub fn model(&self, name: &Name) -> Result<ModelDetail, ClientError> {
        let page = |after: Option<&str>| -> Result<ModelDetail, ClientError> {
            self.get(format!("/v1/models/{name}{}", query(&[("limit", owned(Some("10000"))), ("after", owned(after))])))
        };
        let mut all = page(None)?;
        while let Some(after) = all.next.take() {
            let more = page(Some(&after))?;
            all.tensors.extend(more.tensors);
            all.next = more.next;
        }
        Ok(all)
    }

    /// The file of a model.
    pub fn fetch_model(&self, name: &Name, format: &str) -> Result<Body, ClientError> {
        let path = format!("/v1/models/{name}/file{}", query(&[("format", Some(format.to_owned()))]));
        let response = self.send(Ask { method: Method::GET, path, headers: Vec::new(), body: None, wait: STALLED })?;
        Ok(response.into_body().into_reader())
    }

    pub fn delete_model(&self, name: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/models/{name}"))
    }

    /// One page of values: a job's, or those that belong to none.
    pub fn params(&self, job: Option<&Name>, prefix: &str, after: Option<&str>) -> Result<ParamList, ClientError> {
        let words = [("job", job.map(Name::to_string)), ("prefix", owned(Some(prefix))), ("after", owned(after))];
        self.get(format!("/v1/params{}", query(&words)))
    }

    /// What a value is, its version and its bytes.
    pub fn param(&self, name: &Key, job: Option<&Name>) -> Result<(String, u64, Body), ClientError> {
        let path = format!("/v1/params/{name}{}", query(&[("job", job.map(Name::to_string))]));
        let response = self.send(Ask { method: Method::GET, path, headers: Vec::new(), body: None, wait: STALLED })?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let form = header("weft-form").unwrap_or_else(|| "bytes".to_owned());
        let version = header("weft-param-version").and_then(|version| version.parse().ok()).unwrap_or_default();
        Ok((form, version, response.into_body().into_reader()))
    }

    pub fn set_param(
        &self,
        name: &Key,
        job: Option<&Name>,
        form: &str,
        durable: bool,
        body: &[u8],
    ) -> Result<ParamSet, ClientError> {
        let words = [("job", job.map(Name::to_string)), ("durable", Some(durable.to_string()))];
        let headers = vec![("content-type", "application/octet-stream".to_owned()), ("weft-form", form.to_owned())];
        let path = format!("/v1/params/{name}{}", query(&words));
        self.json(Ask { method: Method::PUT, path, headers, body: Some(body), wait: DEPLOY })
    }

    pub fn delete_param(&self, name: &Key, job: Option<&Name>) -> Result<(), ClientError> {
        self.delete(format!("/v1/params/{name}{}", query(&[("job", job.map(Name::to_string))])))
    }

    /// All of a job's, or everything.
    pub fn delete_params(&self, job: Option<&Name>) -> Result<ParamsDeleted, ClientError> {
        let path = format!("/v1/params{}", query(&[("job", job.map(Name::to_string))]));
        self.json(Ask { method: Method::DELETE, path, headers: Vec::new(), body: None, wait: SOON })
    }

    /// What the node charges.
    pub fn prices(&self) -> Result<PriceTable, ClientError> {
        self.get("/v1/prices".to_owned())
    }

    /// The tenant that the key belongs to.
    pub fn usage(&self) -> Result<TenantView, ClientError> {
        self.get("/v1/usage".to_owned())
    }

    pub fn create_tenant(&self, request: &TenantRequest) -> Result<TenantCreated, ClientError> {
        self.change(Method::POST, "/v1/tenants".to_owned(), request)
    }

    /// One page.
    pub fn tenants(&self, limit: Option<usize>, after: Option<&str>) -> Result<TenantList, ClientError> {
        self.get(format!("/v1/tenants{}", query(&[("limit", limit.map(|n| n.to_string())), ("after", owned(after))])))
    }

    pub fn tenant(&self, name: &Name) -> Result<TenantView, ClientError> {
        self.get(format!("/v1/tenants/{name}"))
    }

    pub fn set_quota(&self, name: &Name, patch: &QuotaPatch) -> Result<TenantView, ClientError> {
        self.change(Method::PATCH, format!("/v1/tenants/{name}/quota"), patch)
    }

    pub fn rotate_key(&self, name: &Name) -> Result<KeyRotated, ClientError> {
        self.order(format!("/v1/tenants/{name}/rotate-key"))
    }

    pub fn delete_tenant(&self, name: &Name) -> Result<(), ClientError> {
        self.delete(format!("/v1/tenants/{name}"))
    }

    pub fn node(&self) -> Result<NodeView, ClientError> {
        self.get("/v1/node".to_owned())
    }

    pub fn devices(&self) -> Result<DeviceList, ClientError> {
        self.get("/v1/devices".to_owned())
    }

    pub fn reset_device(&self, device: DeviceId) -> Result<(), ClientError> {
        self.tell(format!("/v1/devices/{device}/reset"))
    }

    /// Whether a node answers, within a short time and without a key.
    pub fn is_alive(&self) -> bool {
        let wait = Wait::Whole(Duration::from_secs(2));
        let ask = Ask { method: Method::GET, path: "/livez".to_owned(), headers: Vec::new(), body: None, wait };
        self.send(ask).is_ok()
    }

    /// Everything the node holds, as a tar stream.
    pub fn backup(&self) -> Result<Body, ClientError> {
        let path = "/v1/backup".to_owned();
        let response = self.send(Ask { method: Method::GET, path, headers: Vec::new(), body: None, wait: STALLED })?;
        Ok(response.into_body().into_reader())
    }

    fn get<T: serde::de::DeserializeOwned>(&self, path: String) -> Result<T, ClientError> {
        self.json(Ask { method: Method::GET, path, headers: Vec::new(), body: None, wait: SOON })
    }

    /// What the node says of something, as it says it.
    pub fn value(&self, path: &str) -> Result<serde_json::Value, ClientError> {
        self.get(path.to_owned())
    }

    /// Posts something as it is; under the same key it is done once.
    pub fn send_value(
        &self,
        path: &str,
        body: &serde_json::Value,
        key: &str,
    ) -> Result<serde_json::Value, ClientError> {
        let headers = vec![("content-type", "application/json".to_owned()), ("idempotency-key", key.to_owned())];
        let body = body.to_string().into_bytes();
        self.json(Ask { method: Method::POST, path: path.to_owned(), headers, body: Some(&body), wait: DEPLOY })
    }

    fn delete(&self, path: String) -> Result<(), ClientError> {
        self.send(Ask { method: Method::DELETE, path, headers: Vec::new(), body: None, wait: SOON }).map(drop)
    }

    /// A request that says everything with its path.
    fn order<T: serde::de::DeserializeOwned>(&self, path: String) -> Result<T, ClientError> {
        self.json(Ask { method: Method::POST, path, headers: Vec::new(), body: Some(&[]), wait: SOON })
    }

    fn change<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.change_within(method, path, body, SOON)
    }

    fn change_within<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: &impl Serialize,
        wait: Wait,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Cut(error.to_string()))?;
        let headers = vec![("content-type", "application/json".to_owned())];
        self.json(Ask { method, path, headers, body: Some(&body), wait })
    }
}

fn logs_path(whose: &Whose, tail: Option<u32>, after: Option<u64>) -> String {
    let parameters = query(&[("tail", tail.map(|n| n.to_string())), ("after", after.map(|id| id.to_string()))]);
    match whose {
        Whose::Function(name) => format!("/v1/functions/{name}/logs{parameters}"),
        Whose::Job(name) => format!("/v1/jobs/{name}/logs{parameters}"),
    }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

/// `?name=value&…` of those that have a value.
fn query(parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Percent-encoded, but for what never needs it.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => (byte as char).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A metric of a `Server-Timing` header, which is in milliseconds there.
fn timing_us(header: &str, metric: &str) -> Option<u64> {
    let entry = header.split(',').map(str::trim).find(|entry| entry.split(';').next() == Some(metric))?;
    let milliseconds = entry.split(';').find_map(|part| part.trim().strip_prefix("dur="))?;
    Some((milliseconds.parse::<f64>().ok()? * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_is_read_in_microseconds() {
        let header = "cold;dur=0.085, run;desc=\"x\";dur=12.5, empty";
        assert_eq!((timing_us(header, "cold"), timing_us(header, "run")), (Some(85), Some(12_500)));
        assert_eq!((timing_us(header, "empty"), timing_us(header, "none")), (None, None));
    }

    #[test]
    fn a_query_has_only_what_is_given() {
        assert_eq!(query(&[("limit", None), ("after", None)]), "");
        assert_eq!(
            query(&[("limit", Some("3".to_owned())), ("after", Some("a/b".to_owned()))]),
            "?limit=3&after=a%2Fb"
        );
    }
}

//! A real S3 server (`s3s-fs`) in this process: it checks signatures and conditional puts, and can be made to misbehave.

use std::convert::Infallible;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::IF_NONE_MATCH;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use weft::blob::{Credentials, Patience, S3};

pub const KEY_ID: &str = "AKIAWEFTTEST";
pub const SECRET: &str = "a-secret-that-nobody-may-see";
pub const BUCKET: &str = "bucket";

/// How often a request that waits is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What the server does with the requests that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Fine,
    /// Never answers.
    Silent,
    /// Answers so many requests with 503 before it is fine again.
    Busy(usize),
    /// Does what it is asked and then breaks the connection, so many times.
    Mute(usize),
    /// Accepts so many parts of objects, and no more.
    FullAfterParts(usize),
    /// As old ones did.
    IgnoresConditions,
}

struct State {
    mood: Mood,
    /// Keys of objects that are not answered for now.
    held: Vec<String>,
    /// What is in the keys of objects that are refused when they are put.
    unwritable: Vec<String>,
    requests: Vec<(Method, String)>,
}

/// A server on a free port with one bucket. Dropping it stops it.
pub struct Server {
    runtime: Option<Runtime>,
    folder: TempDir,
    endpoint: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(BUCKET))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let files = FileSystem::new(folder.path()).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let service = builder.build();
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        // Not `block_on`: a test may be on a runtime of its own.
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(entered);
        let state = Arc::new(Mutex::new(State {
            mood: Mood::Fine,
            held: Vec::new(),
            unwritable: Vec::new(),
            requests: Vec::new(),
        }));
        let root = folder.path().to_owned();
        runtime.spawn(serve(listener, service, root, state.clone()));
        Ok(Self { runtime: Some(runtime), folder, endpoint, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn set_mood(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// From now on, requests for these objects wait, and no others do: until it is called again without them.
    pub fn hold(&self, keys: Vec<String>) {
        self.state().held = keys;
    }

    /// From now on, objects whose keys contain one of these are refused when they are put, and no others are: until it is
    /// called again without them.
    pub fn refuse_puts(&self, parts_of_keys: Vec<String>) {
        self.state().unwritable = parts_of_keys;
    }

    /// How many requests of this method have come whose path and query contain `text`.
    pub fn requests(&self, method: &str, text: &str) -> usize {
        self.state().requests.iter().filter(|(found, path)| found.as_str() == method && path.contains(text)).count()
    }

    /// Stops it for good; connections are refused from here on.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// How blobs below `prefix` are reached with the right key, by somebody with little patience.
    pub fn place(&self, prefix: &str) -> S3 {
        let credentials = Credentials { key_id: KEY_ID.to_owned(), secret: SECRET.to_owned() };
        let patience = Patience { request: Duration::from_secs(30), retries: 3, altogether: Duration::from_secs(60) };
        let s3 = S3::new(BUCKET, prefix, Some(self.endpoint.clone()), Some("us-east-1".to_owned()));
        S3 { credentials: Some(credentials), patience, ..s3 }
    }

    /// The file that holds an object.
    pub fn object(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    /// The keys of all objects that can be seen.
    pub fn keys(&self) -> Result<Vec<String>> {
        let root = self.folder.path().join(BUCKET);
        let mut keys = Vec::new();
        below(&root, &root, &mut keys)?;
        keys.sort();
        Ok(keys)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn below(root: &Path, folder: &Path, keys: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            below(root, &path, keys)?;
        } else {
            keys.push(path.strip_prefix(root)?.to_str().context("a key that is no text")?.to_owned());
        }
    }
    Ok(())
}

async fn serve(listener: TcpListener, service: S3Service, root: PathBuf, state: Arc<Mutex<State>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let (service, root, state) = (service.clone(), root.clone(), state.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(&service, &root, &state, request));
            // A client that goes away is no news.
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await.ok();
        });
    }
}

/// What breaks the connection instead of answering.
type Broken = Box<dyn std::error::Error + Send + Sync>;

async fn answer(
    service: &S3Service,
    root: &Path,
    state: &Mutex<State>,
    request: Request<Incoming>,
) -> Result<Response<s3s::Body>, Broken> {
    let path = request.uri().to_string();
    let is_part = path.contains("partNumber=");
    let is_held = || {
        let state = state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.held.iter().any(|key| path.contains(key.as_str()))
    };
    while is_held() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let (mood, is_unwritable) = {
        let mut state = state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_unwritable =
            request.method() == Method::PUT && state.unwritable.iter().any(|part| path.contains(part.as_str()));
        state.requests.push((request.method().clone(), path));
        let mood = state.mood;
        state.mood = match mood {
            Mood::Busy(1) | Mood::Mute(1) => Mood::Fine,
            Mood::Busy(more) => Mood::Busy(more - 1),
            Mood::Mute(more) => Mood::Mute(more - 1),
            Mood::FullAfterParts(left) if is_part => Mood::FullAfterParts(left.saturating_sub(1)),
            other => other,
        };
        (mood, is_unwritable)
    };
    let refuse = |status| {
        let mut response = Response::new(s3s::Body::empty());
        *response.status_mut() = status;
        Ok(response)
    };
    if is_unwritable {
        // Whoever still sends would hear of a broken connection instead.
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        return refuse(StatusCode::FORBIDDEN);
    }
    match mood {
        Mood::Silent => match pending::<Infallible>().await {},
        Mood::Busy(_) => return refuse(StatusCode::SERVICE_UNAVAILABLE),
        Mood::FullAfterParts(0) if is_part => {
            // Whoever still sends would hear of a broken connection instead.
            let mut body = request.into_body();
            while let Some(Ok(_)) = body.frame().await {}
            return refuse(StatusCode::INSUFFICIENT_STORAGE);
        }
        Mood::IgnoresConditions if request.headers().contains_key(IF_NONE_MATCH) => {
            // The header is signed; without the object, there is nothing that it could protect.
            std::fs::remove_file(root.join(request.uri().path().trim_start_matches('/'))).ok();
        }
        Mood::Fine | Mood::Mute(_) | Mood::FullAfterParts(_) | Mood::IgnoresConditions => {}
    }
    let response = service.call(request.map(s3s::Body::from)).await.map_err(|error| format!("{error:?}"))?;
    if matches!(mood, Mood::Mute(_)) {
        return Err("the answer is lost".into());
    }
    Ok(response)
}

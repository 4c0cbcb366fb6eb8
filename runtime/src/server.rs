//! The server: sockets, TLS, timeouts, and the orderly stop.
//!
//! HTTP has threads of its own; guests that compute for longer than an epoch are elsewhere (see [`crate::sandbox`]). It
//! speaks HTTP/1.1: what HTTP/2 would bring is for the proxy in front, and a slow reader is easier to bound here.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::api::{Api, Connection};
use crate::config::{LogFormat, Settings};
use crate::data_dir;
use crate::node::{Access, Node};
use crate::sandbox::Sandbox;

mod answer;
mod connections;
mod half_close;
mod head_timer;
mod write_timeout;

use answer::Answer;
use connections::{Connections, OpenConnection};
use half_close::HalfClose;
use head_timer::HeadTimer;
use write_timeout::WriteTimeout;

/// Connections that the system accepts on our behalf before we do. One that finds no room tries again after a second.
const BACKLOG: u32 = 4_096;

/// The largest request head.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// What blocking work gets to finish when everything else has.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop.
pub fn serve(settings: Settings, access: Access) -> anyhow::Result<()> {
    init_logging(&settings)?;
    data_dir::keep_others_out();
    // A guest's first turn is on one of these threads.
    let threads = Sandbox::asking_threads(settings.sandbox().cores);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("weft-http")
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(run(settings, access));
    runtime.shutdown_timeout(LAST_WORDS);
    outcome
}

fn init_logging(settings: &Settings) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log_level)
        .with_context(|| format!("`log_level` = `{}`", settings.log_level))?;
    let ansi = io::IsTerminal::is_terminal(&io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(ansi);
    let installed = match settings.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    installed.map_err(|error| anyhow::anyhow!("logging: {error}"))
}

async fn run(settings: Settings, access: Access) -> anyhow::Result<()> {
    let address = settings.listen;
    ensure!(
        access != Access::Developer || address.ip().is_loopback(),
        "`--dev` asks for no key, so it only listens on loopback; `{address}` is not"
    );
    let tls = if settings.has_tls() { Some(tls(&settings)?) } else { None };
    let listener = listen(address)
        .with_context(|| format!("cannot listen on {address}; another `--listen` address or port may be free"))?;
    let (node, operator_key) = Node::start(settings, access).await?;
    // Before anybody is told where the node is: whoever knows may stop it, and it is to stop in order.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    announce(listener.local_addr()?, tls.is_some(), access, operator_key.map(|key| key.reveal().to_string()))
        .context("standard output is closed: the node has nowhere to say where it listens")?;
    let (close, closing) = watch::channel(false);
    let accepting = tokio::spawn(accept(listener, tls, node.clone(), closing));
    let mut told_to_stop = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    told_to_stop().await;
    let grace = node.settings.grace.0;
    tracing::info!(?grace, "stopping: finishing what is in flight");
    tokio::select! {
        () = finish(&node, close, accepting) => {}
        () = tokio::time::sleep(grace) => tracing::warn!("work was still in flight after the grace period"),
        // Told again: at once.
        () = told_to_stop() => {}
    }
    node.flush().await?;
    node.params.save().await?;
    tracing::info!("stopped");
    Ok(())
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // What a node before us has left behind in the system does not keep us from its port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The only lines on standard output: where the node is, and the key that will not be shown again.
fn announce(address: SocketAddr, tls: bool, access: Access, operator_key: Option<String>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if let Some(key) = operator_key {
        writeln!(stdout, "operator key, shown this once: {key}")?;
    }
    if access == Access::Developer {
        writeln!(stdout, "development node: no key is needed, one tenant `dev`")?;
    }
    writeln!(stdout, "listening on {}://{address}", if tls { "https" } else { "http" })
}

/// Not ready, then idle, then closed. Until it is idle the node goes on accepting, so that whoever asks hears that it is
/// not ready. Connections close when what they are sending is sent.
async fn finish(node: &Node, close: watch::Sender<bool>, accepting: JoinHandle<()>) {
    node.begin_drain();
    node.idle().await;
    close.send_replace(true);
    if let Err(error) = accepting.await {
        tracing::error!(%error, "the task that accepts connections failed");
    }
}

fn tls(settings: &Settings) -> anyhow::Result<TlsAcceptor> {
    let (cert, key) = (&settings.tls_cert, &settings.tls_key);
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(cert).with_context(|| format!("`tls_cert` = `{}`", cert.display()))?.collect();
    let chain = chain.with_context(|| format!("`tls_cert` = `{}`", cert.display()))?;
    ensure!(!chain.is_empty(), "`tls_cert` = `{}` holds no certificate", cert.display());
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("`tls_key` = `{}`", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("`tls_cert` and `tls_key` do not fit together")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts until told to close, then waits for the connections that are open.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, node: Arc<Node>, mut closing: watch::Receiver<bool>) {
    let connections = Connections::new(node.settings.max_connections);
    let api = Api::new(node.clone());
    loop {
        let accepted = tokio::select! {
            accepted = next(&listener, &connections) => accepted,
            _ = closing.changed() => break,
        };
        let (socket, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: some will be free again soon.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let open = connections.opened(peer.ip().into(), place);
        tokio::spawn(connection(socket, open, tls.clone(), api.clone(), node.clone(), closing.clone()));
    }
    drop(listener);
    connections.all_closed().await;
}

async fn next(
    listener: &TcpListener,
    connections: &Connections,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = connections.place().await.ok_or_else(|| io::Error::other("no more connections are taken"))?;
    let (socket, peer) = listener.accept().await?;
    Ok((socket, peer, place))
}

async fn connection(
    socket: TcpStream,
    open: OpenConnection,
    tls: Option<TlsAcceptor>,
    api: Api,
    node: Arc<Node>,
    closing: watch::Receiver<bool>,
) {
    let (read_limit, write_limit) = (node.settings.header_timeout.0, node.settings.write_timeout.0);
    let connection = open.connection.clone();
    let spoken = async {
        socket.set_nodelay(true)?;
        let socket = WriteTimeout::new(socket, write_limit);
        match tls {
            None => speak(socket, connection, api, read_limit, closing).await,
            Some(tls) => {
                let handshake = tokio::time::timeout(read_limit, tls.accept(socket));
                speak(handshake.await??, connection, api, read_limit, closing).await
            }
        }
    };
    let outcome = tokio::select! {
        outcome = spoken => outcome,
        () = open.connection.told_to_close() => Err(anyhow::anyhow!("it was closed to make room")),
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended badly");
    }
}

async fn speak(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Arc<Connection>,
    api: Api,
    read_limit: Duration,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let io = TokioIo::new(HalfClose::new(io, connection.clone()));
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        let answering = connection.begin_request();
        request.extensions_mut().insert(answering.connection());
        let answer = api.answer(request);
        async move { Ok::<_, Infallible>(answer.await.map(|body| Answer::new(body, answering))) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(HeadTimer::default()).header_read_timeout(read_limit).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let mut connection = pin!(builder.serve_connection(io, service));
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = closing.changed() => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

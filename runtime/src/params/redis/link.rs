//! The way to a server or a cluster: connections, and asking again until there is an answer.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ::redis as client;
use bytes::Bytes;
use client::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use client::cluster::ClusterClientBuilder;
use client::cluster_async::ClusterConnection;
use client::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value as Reply};

use super::answer;
use super::scripts::Script;
use crate::params::ParamError;
use crate::params::address::without_password;
use crate::tenant::StoreId;

/// Connections to a server: one can have one large value under way at a time.
const CONNECTIONS: usize = 4;

/// How long a server may take to answer before the connection is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long it may take to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Pauses between two tries, from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The tenants whose stores are to be collected.
const TENANTS: &str = "weft:tenants";

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("`{address}` is no address of a Redis: {reason}; use redis://, rediss:// or redis+cluster://HOST:PORT,...")]
    Address { address: String, reason: String },
    #[error("cannot use the Redis at {name}: {reason}")]
    Refused { name: String, reason: String },
}

enum Connections {
    Single(Vec<ConnectionManager>),
    Cluster(ClusterConnection),
}

pub struct Link {
    connections: Connections,
    next: AtomicUsize,
    patience: Duration,
    /// Without the password.
    name: String,
    /// To listen at, one after another.
    pub(super) listen: Vec<client::Client>,
}

impl Link {
    /// `redis://[user:password@]host:port[/db]`, `rediss://` for TLS, or `redis+cluster://`, `rediss+cluster://` with nodes
    /// of a cluster, separated by commas. Whom to trust beside the system's authorities is a file in PEM.
    pub async fn open(address: &str, ca: Option<&Path>, patience: Duration) -> Result<Self, ConnectError> {
        let bad = |reason: String| ConnectError::Address { address: without_password(address), reason };
        let failed = |error: RedisError| bad(error.to_string());
        // The TLS of everything here; whoever comes first decides for the process.
        rustls::crypto::ring::default_provider().install_default().ok();
        let certificates = match ca {
            Some(path) => {
                let unreadable = |error| bad(format!("cannot read `{}`: {error}", path.display()));
                let root_cert = Some(std::fs::read(path).map_err(unreadable)?);
                Some(client::TlsCertificates { client_tls: None, root_cert })
            }
            None => None,
        };
        let server = |address: &str| match &certificates {
            Some(certificates) if address.starts_with("rediss") => {
                client::Client::build_with_tls(address, certificates.clone())
            }
            _ => client::Client::open(address),
        };
        let (scheme, rest) = address.split_once("://").ok_or_else(|| bad("no scheme".to_owned()))?;
        let name = without_password(address);
        let next = AtomicUsize::new(0);
        if let Some(scheme) = scheme.strip_suffix("+cluster") {
            // What is before the @ is for all of them.
            let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
            let at = if user.is_empty() { "" } else { "@" };
            let nodes: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{user}{at}{host}")).collect();
            let listen: Result<Vec<_>, _> = nodes.iter().map(|node| server(node)).collect();
            let mut builder = ClusterClientBuilder::new(nodes);
            if let Some(certificates) = certificates.clone() {
                builder = builder.certs(certificates);
            }
            let cluster = builder
                .connection_timeout(CONNECT_WITHIN)
                .response_timeout(ANSWER_WITHIN)
                .retries(2)
                .build()
                .map_err(failed)?;
            let connection = cluster.get_async_connection().await;
            let connection =
                connection.map_err(|error| ConnectError::Refused { name: name.clone(), reason: error.to_string() })?;
            let connections = Connections::Cluster(connection);
            return Ok(Self { connections, next, patience, name, listen: listen.map_err(failed)? });
        }
        let server = server(address).map_err(failed)?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_number_of_retries(0);
        let manager = || ConnectionManager::new_lazy_with_config(server.clone(), config.clone()).map_err(failed);
        let connections = Connections::Single((0..CONNECTIONS).map(|_| manager()).collect::<Result<_, _>>()?);
        Ok(Self { connections, next, patience, name, listen: vec![server] })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long a server that does not answer is asked again.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether it can be used as it is set up.
    pub async fn check(&self) -> Result<(), ConnectError> {
        let refused = |error: ParamError| ConnectError::Refused { name: self.name.clone(), reason: error.to_string() };
        self.run(&client::cmd("PING")).await.map_err(refused)?;
        let mut command = client::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        // Not everybody may ask, and whoever may not goes on without being warned.
        if let Ok(reply) = self.run(&command).await
            && !format!("{reply:?}").contains("noeviction")
        {
            tracing::warn!(
                "the Redis at {} evicts what it has no room for, and weights would be lost: set `maxmemory-policy noeviction`",
                self.name
            );
        }
        Ok(())
    }

    /// Asks until there is an answer. To be asked again must not matter.
    pub async fn run(&self, command: &Cmd) -> Result<Reply, ParamError> {
        let began = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let error = match self.once(command).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if let Some(error) = self.final_error(&error) {
                return Err(error);
            }
            if began.elapsed() + pause > self.patience {
                let waited = began.elapsed().as_secs();
                return Err(ParamError::Unavailable(format!("{} did not answer for {waited} s: {error}", self.name)));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    pub async fn script(&self, script: &Script, keys: &[String], arguments: &[Bytes]) -> Result<Reply, ParamError> {
        let command = |name: &str, script: &str| {
            let mut command = client::cmd(name);
            command.arg(script).arg(keys.len()).arg(keys);
            arguments.iter().for_each(|argument| {
                command.arg(&argument[..]);
            });
            command
        };
        match self.run(&command("EVALSHA", script.digest())).await {
            Err(ParamError::Damaged(reason)) if reason == NO_SCRIPT => self.run(&command("EVAL", script.source)).await,
            answer => answer,
        }
    }

    pub async fn add_tenant(&self, tenant: &StoreId) -> Result<(), ParamError> {
        let mut command = client::cmd("SADD");
        command.arg(TENANTS).arg(tenant.as_str());
        self.run(&command).await.map(drop)
    }

    pub async fn remove_tenant(&self, tenant: &StoreId) -> Result<(), ParamError> {
        let mut command = client::cmd("SREM");
        command.arg(TENANTS).arg(tenant.as_str());
        self.run(&command).await.map(drop)
    }

    pub async fn tenants(&self) -> Result<Vec<String>, ParamError> {
        let mut command = client::cmd("SMEMBERS");
        command.arg(TENANTS);
        match self.run(&command).await? {
            Reply::Set(members) => members.into_iter().map(answer::text).collect(),
            reply => answer::texts(reply),
        }
    }

    async fn once(&self, command: &Cmd) -> Result<Reply, RedisError> {
        let reply = match &self.connections {
            Connections::Single(all) => {
                all[self.next.fetch_add(1, Relaxed) % all.len()].clone().req_packed_command(command).await
            }
            Connections::Cluster(cluster) => cluster.clone().req_packed_command(command).await,
        };
        reply.and_then(Reply::extract_error)
    }

    /// What asking again would not change.
    fn final_error(&self, error: &RedisError) -> Option<ParamError> {
        if error.code() == Some("OOM") {
            let what = format!("{} has reached its `maxmemory`: {error}", self.name);
            return Some(ParamError::Full(what));
        }
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Some(ParamError::Damaged(NO_SCRIPT.to_owned())),
            ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                Some(ParamError::Unavailable(format!("{}: {error}", self.name)))
            }
            ErrorKind::Server(
                ServerErrorKind::ResponseError | ServerErrorKind::CrossSlot | ServerErrorKind::ExecAbort,
            )
            | ErrorKind::Extension
            | ErrorKind::UnexpectedReturnType => {
                let again = matches!(error.code(), Some("MISCONF" | "NOREPLICAS" | "BUSY" | "UNKILLABLE"));
                (!again).then(|| ParamError::Damaged(format!("{}: {error}", self.name)))
            }
            _ => None,
        }
    }
}

/// A server that was restarted does not know the script yet.
const NO_SCRIPT: &str = "no such script";

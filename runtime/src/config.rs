//! The settings of a node: flags over environment over file over defaults.
//!
//! One list declares each setting's name, type, default and text; the flag, the `WEFT_…` variable, the key in the TOML
//! file and `weft config show` all come from it. Raw [`Options`] become checked [`Settings`] once, at start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use weft_core::plan::prices::PriceTable;

use crate::blob::BlobPlace;
use crate::params::StoreAddress;
use crate::prices;
use crate::sandbox::{CompileLimits, SandboxLimits};
use crate::tenant::Quota;
use crate::units::{Size, Span};

/// Where a setting's value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Default,
    File,
    /// A flag or a variable; clap has already let the flag win.
    Given,
}

/// Settings that do not fit together, or a file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("configuration file `{}`: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("configuration file `{}`: {error}", path.display())]
    Malformed { path: PathBuf, error: Box<toml::de::Error> },
    #[error("`{setting}` {problem}")]
    Invalid { setting: &'static str, problem: String },
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident ($variable:literal): $type:ty = $default:expr,)+) => {
        /// What was given for each setting, by flag, variable or file.
        #[derive(Args, Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Options {
            $($(#[doc = $doc])+ #[arg(long, env = $variable, hide_env_values = true, value_name = "VALUE")] pub $name: Option<$type>,)+
            /// Limits of new tenants, by name; only in the file.
            #[arg(skip)]
            pub quota: Option<Quota>,
        }

        /// The settings of a node.
        #[derive(Clone, Debug, Serialize)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)+
            pub quota: Quota,
            #[serde(skip)]
            sources: Vec<(&'static str, Source)>,
        }

        impl Settings {
            /// Puts what was given over what the file says over the defaults.
            pub fn resolve(given: Options, file: Options) -> Result<Self, ConfigError> {
                let mut sources = Vec::new();
                let settings = Self {
                    $($name: {
                        let (value, source) = match (given.$name, file.$name) {
                            (Some(value), _) => (value, Source::Given),
                            (None, Some(value)) => (value, Source::File),
                            (None, None) => ($default, Source::Default),
                        };
                        sources.push((stringify!($name), source));
                        value
                    },)+
                    quota: file.quota.unwrap_or_default(),
                    sources,
                };
                settings.check()?;
                Ok(settings)
            }

            /// Each setting: name, variable, value, where it is from, and what it means.
            pub fn table(&self) -> Vec<SettingRow> {
                let rows = [$((stringify!($name), $variable, serde_json::json!(self.$name), concat!($($doc),+).trim())),+];
                let sources = self.sources.iter().map(|(_, source)| *source);
                rows.into_iter().zip(sources).map(|((name, variable, value, meaning), source)| {
                    SettingRow { name, variable, value, source, meaning }
                }).collect()
            }
        }
    };
}

/// A line of `weft config show`.
#[derive(Clone, Debug, Serialize)]
pub struct SettingRow {
    pub name: &'static str,
    pub variable: &'static str,
    pub value: serde_json::Value,
    pub source: Source,
    pub meaning: &'static str,
}

/// How the node's own log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// Instances of workers that were given up and have not ended yet, and of those that look at a trainer.
const TRAINERS_LEAVING: u32 = 128;

settings! {
    /// Address and port to listen on.
    listen ("WEFT_LISTEN"): SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420),
    /// Where everything is kept.
    data_dir ("WEFT_DATA_DIR"): PathBuf = PathBuf::from("weft-data"),
    /// Where blobs are kept: empty for the data directory, `s3://BUCKET/PREFIX`, or `memory:` to forget them at the end.
    blob_store ("WEFT_BLOB_STORE"): String = String::new(),
    /// Where S3 is, as `https://HOST[:PORT]`, or `http://…` without TLS; empty for Amazon's.
    s3_endpoint ("WEFT_S3_ENDPOINT"): String = String::new(),
    /// The region of S3; empty for `AWS_REGION`, or else us-east-1.
    s3_region ("WEFT_S3_REGION"): String = String::new(),
    /// Where parameters are kept: empty for this node's memory and data directory, or a Redis that nodes share:
    /// redis://[USER:PASSWORD@]HOST:PORT[/DB], rediss:// with TLS, redis+cluster://HOST:PORT,HOST:PORT for a cluster.
    params_store ("WEFT_PARAMS_STORE"): StoreAddress = StoreAddress::default(),
    /// PEM file with an authority to trust for `params_store`, beside the system's.
    params_ca_cert ("WEFT_PARAMS_CA_CERT"): PathBuf = PathBuf::new(),
    /// How often this node's own parameters are written to disk; what was set as durable is there at once.
    params_snapshot_every ("WEFT_PARAMS_SNAPSHOT_EVERY"): Span = Span(Duration::from_secs(30)),
    /// Devices that functions may compute on: all, none, or names as `weft devices` lists them, as in cpu,gpu:0;
    /// gpu:0*2 opens one twice, to try out what several do
    devices ("WEFT_VISIBLE_DEVICES"): String = "all".to_owned(),
    /// PEM file with the certificate chain; with `tls_key`, the node speaks HTTPS.
    tls_cert ("WEFT_TLS_CERT"): PathBuf = PathBuf::new(),
    /// PEM file with the certificate's private key.
    tls_key ("WEFT_TLS_KEY"): PathBuf = PathBuf::new(),
    /// How the node's own log is written: text or json.
    log_format ("WEFT_LOG_FORMAT"): LogFormat = LogFormat::Text,
    /// What the node's own log holds: error, warn, info, debug, or a tracing filter.
    log_level ("WEFT_LOG_LEVEL"): String = "info".to_owned(),
    /// Whether /metrics answers without the operator's key.
    open_metrics ("WEFT_OPEN_METRICS"): bool = false,
    /// Instances of all tenants at once.
    max_instances ("WEFT_MAX_INSTANCES"): u32 = 1_024,
    /// Workers of training jobs at once, of all tenants; a worker's further functions (`fan_out`) count too.
    max_workers ("WEFT_MAX_WORKERS"): u32 = 1_024,
    /// Cores that a function of a job may compute on for each GiB of its memory, as in 0.57; 0 for as many as are free.
    cores_per_gib ("WEFT_CORES_PER_GIB"): f64 = 0.0,
    /// What things cost: a file as in /etc/weft/prices.toml, or prices that come with Weft: node, feng, lambdaml, p2p, smlt
    /// or cloud. The settings below replace single ones of them.
    prices ("WEFT_PRICES"): String = "node".to_owned(),
    /// What a second of a CPU device's time costs.
    price_cpu_second ("WEFT_PRICE_CPU_SECOND"): f64 = 0.000_012,
    /// What a second of a GPU's time costs.
    price_gpu_second ("WEFT_PRICE_GPU_SECOND"): f64 = 0.000_3,
    /// What a GiB of a worker's memory costs for a second.
    price_gib_second ("WEFT_PRICE_GIB_SECOND"): f64 = 0.000_001_7,
    /// What starting a function's instance costs.
    price_start ("WEFT_PRICE_START"): f64 = 0.000_000_2,
    /// What a GiB that workers exchange costs.
    price_gib_moved ("WEFT_PRICE_GIB_MOVED"): f64 = 0.0,
    /// Guests that compute at once; 0 means one per core.
    cores ("WEFT_CORES"): u32 = 0,
    /// Memory of all instances and bodies in flight; 0 means three quarters of the machine's.
    max_memory ("WEFT_MAX_MEMORY"): Size = Size(0),
    /// Linear memory of one instance, whatever a quota says.
    max_instance_memory ("WEFT_MAX_INSTANCE_MEMORY"): Size = Size(4 << 30),
    /// Bytes of one invocation's request.
    max_body ("WEFT_MAX_BODY"): Size = Size(16 << 20),
    /// Bytes that one host call, or a response, may carry out of the sandbox; of inference, those of all numbers.
    max_payload ("WEFT_MAX_PAYLOAD"): Size = Size(16 << 20),
    /// Invocations of all tenants that may wait for an instance.
    max_waiting ("WEFT_MAX_WAITING"): u32 = 4_096,
    /// Invocations of one tenant that may wait for an instance.
    max_waiting_per_tenant ("WEFT_MAX_WAITING_PER_TENANT"): u32 = 1_024,
    /// How long an invocation waits for an instance, or any other request for its place, before it is told to come back later.
    queue_timeout ("WEFT_QUEUE_TIMEOUT"): Span = Span(Duration::from_secs(10)),
    /// Connections at once.
    max_connections ("WEFT_MAX_CONNECTIONS"): u32 = 10_000,
    /// Connections on which one tenant's requests are answered at once; 0 means half of `max_connections`.
    max_connections_per_tenant ("WEFT_MAX_CONNECTIONS_PER_TENANT"): u32 = 0,
    /// How long a client may take to send a request's head, and how long a connection may be idle.
    header_timeout ("WEFT_HEADER_TIMEOUT"): Span = Span(Duration::from_secs(30)),
    /// How long a client may take to send a request's body.
    body_timeout ("WEFT_BODY_TIMEOUT"): Span = Span(Duration::from_secs(60)),
    /// How long a client may take to accept more of an answer.
    write_timeout ("WEFT_WRITE_TIMEOUT"): Span = Span(Duration::from_secs(30)),
    /// How long a client may take to fetch the whole of a model.
    answer_timeout ("WEFT_ANSWER_TIMEOUT"): Span = Span(Duration::from_secs(3_600)),
    /// How long work in flight may take after SIGTERM.
    grace ("WEFT_GRACE"): Span = Span(Duration::from_secs(30)),
    /// Wall-clock and CPU time of compiling one component.
    compile_timeout ("WEFT_COMPILE_TIMEOUT"): Span = Span(Duration::from_secs(120)),
    /// Address space of compiling one component.
    compile_memory ("WEFT_COMPILE_MEMORY"): Size = Size(2 << 30),
    /// Components compiled at once.
    compile_jobs ("WEFT_COMPILE_JOBS"): u32 = 1,
    /// Uploads that may wait for the compiler.
    compile_waiting ("WEFT_COMPILE_WAITING"): u32 = 64,
    /// How long an upload waits for the compiler before it is told to come back later.
    compile_queue_timeout ("WEFT_COMPILE_QUEUE_TIMEOUT"): Span = Span(Duration::from_secs(300)),
    /// How long it may take to make a data set of files that have arrived, or to add to one.
    build_timeout ("WEFT_BUILD_TIMEOUT"): Span = Span(Duration::from_secs(3_600)),
    /// Bytes of one compiled component.
    max_artifact ("WEFT_MAX_ARTIFACT"): Size = Size(512 << 20),
    /// Compiled components that are kept in memory, in bytes.
    loaded_bytes ("WEFT_LOADED_BYTES"): Size = Size(1 << 30),
}

impl Options {
    /// Reads a TOML file; a key that is no setting is an error that names it.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        toml::from_str(&text).map_err(|error| ConfigError::Malformed { path: path.to_owned(), error: Box::new(error) })
    }
}

impl Settings {
    fn check(&self) -> Result<(), ConfigError> {
        let invalid = |setting, problem: &str| Err(ConfigError::Invalid { setting, problem: problem.to_owned() });
        if self.tls_cert.as_os_str().is_empty() != self.tls_key.as_os_str().is_empty() {
            return invalid("tls_cert", "and `tls_key` go together: give both or neither");
        }
        if let Err(error) = BlobPlace::parse(&self.blob_store, &self.s3_endpoint, &self.s3_region) {
            return invalid(error.setting, &error.problem);
        }
        for (setting, value) in [
            ("max_instances", self.max_instances),
            ("max_workers", self.max_workers),
            ("max_connections", self.max_connections),
            ("compile_jobs", self.compile_jobs),
            ("compile_waiting", self.compile_waiting),
        ] {
            if value == 0 {
                return invalid(setting, "must be at least 1");
            }
        }
        let too_many = "must be at most 5000: each one reserves 16 GiB of address space";
        for (setting, value) in [("max_instances", self.max_instances), ("max_workers", self.max_workers)] {
            // Some more for workers that are on their way out while others take their places.
            if value > 5_000 - TRAINERS_LEAVING {
                return invalid(setting, too_many);
            }
        }
        for (setting, price) in [
            ("price_cpu_second", self.price_cpu_second),
            ("price_gpu_second", self.price_gpu_second),
            ("price_gib_second", self.price_gib_second),
            ("price_start", self.price_start),
            ("price_gib_moved", self.price_gib_moved),
            ("cores_per_gib", self.cores_per_gib),
        ] {
            if !(price >= 0.0 && price.is_finite()) {
                return invalid(setting, "must be 0 or more");
            }
        }
        self.price_table()?;
        if self.max_instance_memory.0 > 4 << 30 {
            return invalid("max_instance_memory", "must be at most 4GiB");
        }
        for (setting, span) in [
            ("header_timeout", self.header_timeout),
            ("body_timeout", self.body_timeout),
            ("write_timeout", self.write_timeout),
            ("answer_timeout", self.answer_timeout),
            ("queue_timeout", self.queue_timeout),
            ("compile_queue_timeout", self.compile_queue_timeout),
            ("build_timeout", self.build_timeout),
            ("params_snapshot_every", self.params_snapshot_every),
        ] {
            if span.0.is_zero() {
                return invalid(setting, "must be longer than 0");
            }
        }
        if self.compile_timeout.0 < Duration::from_secs(1) {
            return invalid("compile_timeout", "must be at least 1s");
        }
        if self.compile_memory.0 < 256 << 20 {
            return invalid("compile_memory", "must be at least 256MiB");
        }
        Ok(())
    }

    /// What things cost: the table that is named, with the prices that were given beside it.
    pub fn price_table(&self) -> Result<PriceTable, ConfigError> {
        let invalid = |error: prices::NoPrices| ConfigError::Invalid { setting: "prices", problem: error.to_string() };
        let mut table = prices::named(&self.prices).map_err(invalid)?;
        let is_given = |name| self.sources.iter().any(|(of, source)| *of == name && *source != Source::Default);
        if is_given("price_cpu_second") {
            table.core_second = self.price_cpu_second;
            table.device_second.remove("cpu");
        }
        if is_given("price_gpu_second") {
            table.device_second.insert("gpu".to_owned(), self.price_gpu_second);
        }
        for (name, given, price) in [
            ("price_gib_second", self.price_gib_second, &mut table.gib_second),
            ("price_start", self.price_start, &mut table.start),
            ("price_gib_moved", self.price_gib_moved, &mut table.traffic_gib),
        ] {
            if is_given(name) {
                *price = given;
            }
        }
        Ok(table)
    }

    pub fn has_tls(&self) -> bool {
        !self.tls_cert.as_os_str().is_empty()
    }

    /// Connections on which one tenant's requests are answered at once.
    pub fn connections_per_tenant(&self) -> u32 {
        match self.max_connections_per_tenant {
            0 => (self.max_connections / 2).max(1),
            given => given,
        }
    }

    /// Where blobs are kept; what does not parse was refused at start.
    pub fn blob_place(&self) -> BlobPlace {
        BlobPlace::parse(&self.blob_store, &self.s3_endpoint, &self.s3_region).unwrap_or(BlobPlace::Folder)
    }

    /// Memory that is handed out, whatever for: instances, bodies, parameters, code, jobs, and tensors where they are in the
    /// machine's memory. In bytes; a container's limit counts as the machine's.
    pub fn memory(&self) -> u64 {
        match self.max_memory.0 {
            0 => weft_gpu::pool::host_memory() / 4 * 3,
            given => given,
        }
    }

    pub fn sandbox(&self) -> SandboxLimits {
        let cores = match self.cores {
            0 => SandboxLimits::default().cores,
            given => given as usize,
        };
        SandboxLimits {
            instances: self.max_instances,
            trainers: self.max_workers.saturating_add(TRAINERS_LEAVING),
            waiting: self.max_waiting,
            waiting_per_tenant: self.max_waiting_per_tenant,
            memory: self.max_instance_memory.0,
            payload: self.max_payload.0,
            cores,
        }
    }

    pub fn compile(&self) -> CompileLimits {
        CompileLimits {
            time: self.compile_timeout.0,
            memory: self.compile_memory.0,
            artifact: self.max_artifact.0,
            jobs: self.compile_jobs,
            waiting: self.compile_waiting,
            patience: self.queue_timeout.0,
            upload_patience: self.compile_queue_timeout.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_toml(text: &str) -> Result<Options, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn what_is_given_wins_over_the_file_and_the_file_over_defaults() {
        let file = from_toml("max_instances = 7\nmax_body = \"1MiB\"\n[quota]\nfunctions = 3").unwrap();
        let given = Options { max_instances: Some(9), ..Options::default() };
        let settings = Settings::resolve(given, file).unwrap();
        assert_eq!((settings.max_instances, settings.max_body, settings.quota.functions), (9, Size(1 << 20), 3));
        assert_eq!(settings.listen.port(), 7420);
        let source = |name| settings.table().into_iter().find(|row| row.name == name).map(|row| row.source);
        assert_eq!(source("max_instances"), Some(Source::Given));
        assert_eq!(source("max_body"), Some(Source::File));
        assert_eq!(source("listen"), Some(Source::Default));
    }

    #[test]
    fn prices_are_those_of_a_table_with_what_is_given_beside_it() {
        let table = |text: &str| Settings::resolve(Options::default(), from_toml(text).unwrap()).unwrap().price_table();
        let (node, smlt) = (table("").unwrap(), table("prices = \"smlt\"\nprice_cpu_second = 3.0").unwrap());
        assert_eq!((node.core_second, node.gib_second, node.start), (0.000_012, 0.000_001_7, 0.000_000_2));
        assert_eq!((smlt.core_second, smlt.gib_second, smlt.device("cpu")), (3.0, 1.666_67e-5, Some(3.0)));
        let error = Settings::resolve(Options::default(), from_toml("prices = \"none\"").unwrap()).unwrap_err();
        assert!(error.to_string().contains("`prices`") && error.to_string().contains("`lambdaml`"), "{error}");
    }

    #[test]
    fn the_constants_of_the_settings_are_those_of_the_nodes_prices() {
        let settings = Settings::resolve(Options::default(), Options::default()).unwrap();
        let table = settings.price_table().unwrap();
        let Settings { price_cpu_second, price_gpu_second, price_gib_second, price_start, price_gib_moved, .. } =
            settings;
        assert_eq!((table.core_second, table.device("gpu")), (price_cpu_second, Some(price_gpu_second)));
        assert_eq!(
            (table.gib_second, table.start, table.traffic_gib),
            (price_gib_second, price_start, price_gib_moved)
        );
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = from_toml("max_instnces = 7").unwrap_err().to_string();
        assert!(error.contains("max_instnces"), "{error}");
    }

    #[test]
    fn settings_that_do_not_fit_are_refused() {
        for text in [
            "max_instances = 0",
            "tls_cert = \"a.pem\"",
            "blob_store = \"s3:\"",
            "compile_timeout = \"5ms\"",
            "max_instance_memory = \"5GiB\"",
        ] {
            assert!(Settings::resolve(Options::default(), from_toml(text).unwrap()).is_err(), "{text}");
        }
    }
}

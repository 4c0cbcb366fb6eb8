//! The `weft` command: flags in, verbs out.
//!
//! One file per noun. Verbs speak HTTP to a node through [`Client`], like any other client; only `new`, `build`, `serve`,
//! `train-local`, `infer`, `config`, `doctor`, `devices`, `bench`, `restore` and `profile` work on this machine. A verb returns an error and never
//! ends the process: what an error means as text and as an exit code is decided in [`failure`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::sandbox::run_compile_child;

mod backup;
mod bench;
mod build;
mod client;
mod config;
mod confirm;
mod dataset;
mod deploy;
mod devices;
mod doctor;
mod failure;
mod function;
mod infer;
mod invoke;
mod job;
mod logs;
mod model;
mod new;
mod node;
mod output;
mod params;
mod pipeline;
mod plan;
mod prices;
mod profile;
mod samples;
mod sse;
mod tenant;
mod train;
mod train_local;
mod tune;
mod upload;

pub use client::{Body, Client, ClientError, Invocation, Invoked};
pub use failure::Exit;
pub use sse::{Event, Events};

use output::Output;

/// Where a node listens unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7420";

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  the request was refused, the function or the job failed, or something here went wrong
  2  wrong usage
  3  no node could be reached, or its answer was cut short
  4  the key is missing, unknown, or not allowed to do this
  5  the node failed, is too busy, or is stopping: try again later
  130  interrupted by Ctrl-C; a job or study that was followed goes on, and what was trained without a node is kept";

#[derive(Parser)]
#[command(name = "weft", version, about, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// Flags that every verb takes.
#[derive(Args, Clone, Debug, Default)]
struct Global {
    /// Print one JSON value on stdout, for programs
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Print only what was asked for: no confirmations, no remarks
    #[arg(short, long, global = true, help_heading = "Global options")]
    quiet: bool,
    /// The node to speak to [default: the profile's, or http://127.0.0.1:7420]
    #[arg(long, env = "WEFT_URL", global = true, value_name = "URL", help_heading = "Global options")]
    url: Option<String>,
    /// The API key; `-` reads it from stdin, `@FILE` from a file
    #[arg(
        long,
        env = "WEFT_KEY",
        hide_env_values = true,
        global = true,
        value_name = "KEY",
        help_heading = "Global options"
    )]
    key: Option<String>,
    /// A saved node and key; see `weft profile`
    #[arg(long, env = "WEFT_PROFILE", global = true, value_name = "NAME", help_heading = "Global options")]
    profile: Option<String>,
    /// PEM file with the only authorities to trust, for a private CA
    #[arg(long, env = "WEFT_CA_CERT", global = true, value_name = "FILE", help_heading = "Global options")]
    ca_cert: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a node
    Serve(config::ServeArgs),
    /// Start a project for a function
    New(new::NewArgs),
    /// Build a function's crate into a component
    Build(build::BuildArgs),
    /// Deploy a component, or build a crate and deploy it
    Deploy(deploy::DeployArgs),
    /// Invoke a function
    Invoke(invoke::InvokeArgs),
    /// List the deployed functions
    Functions(function::ListArgs),
    /// Look at one function, its versions, or remove them
    #[command(subcommand)]
    Function(function::FunctionVerb),
    /// Make data sets of files, and look at them
    #[command(subcommand)]
    Dataset(dataset::DataSetVerb),
    /// Look at models, and save them as files
    #[command(subcommand)]
    Model(model::ModelVerb),
    /// Train a function on a node, and follow it
    Train(Box<train::TrainArgs>),
    /// Find out what training would take with more or fewer workers, larger or smaller ones, and which of them to take
    Plan(Box<plan::PlanArgs>),
    /// List the training jobs
    Jobs(job::ListArgs),
    /// Look at one job, follow, stop, resume or delete it
    #[command(subcommand)]
    Job(job::JobVerb),
    /// Train a function many times with other settings, and find the best
    Tune(Box<tune::TuneArgs>),
    /// List the studies
    Tunes(tune::ListArgs),
    /// Train a function on this machine, without a node
    TrainLocal(Box<train_local::TrainLocalArgs>),
    /// Run the steps of a file: preprocess, tune, train, evaluate, push; what has not changed is not done again
    Pipeline(pipeline::PipelineArgs),
    /// Use a trained model on samples: a job's, or one on this machine
    Infer(Box<infer::InferArgs>),
    /// Look at values of the parameter store, and delete them
    #[command(subcommand)]
    Params(params::ParamsVerb),
    /// Show what things cost
    #[command(subcommand)]
    Prices(prices::PricesVerb),
    /// Read what a function logs
    Logs(logs::LogsArgs),
    /// Show what this tenant may use and has used
    Usage,
    /// Create and change tenants (operator)
    #[command(subcommand)]
    Tenant(tenant::TenantVerb),
    /// Show how the node is doing, and its devices (operator)
    Node {
        #[command(subcommand)]
        verb: Option<node::NodeVerb>,
    },
    /// Save everything a node holds in one file (operator)
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup; no node is needed
    Restore(backup::RestoreArgs),
    /// Save nodes and keys under a name
    #[command(subcommand)]
    Profile(profile::ProfileVerb),
    /// Show or check a node's settings
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Look for what is missing or wrong on this machine
    Doctor(config::SettingsArgs),
    /// List what this machine can compute on
    Devices,
    /// Measure this machine
    #[command(subcommand)]
    Bench(bench::BenchVerb),
    /// Print a shell's completion script
    Completions { shell: clap_complete::Shell },
    /// What a node starts to compile a component
    #[command(hide = true)]
    CompileChild { memory: u64, output: u64, seconds: u64 },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let Cli { global, verb } = Cli::parse();
    // Before anything else: this process is about to limit itself, and must not hold threads or files by then.
    if let Verb::CompileChild { memory, output, seconds } = verb {
        return run_compile_child(memory, output, seconds);
    }
    let out = Output::new(global.json, global.quiet);
    match dispatch(verb, &global, &out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, &out),
    }
}

fn dispatch(verb: Verb, global: &Global, out: &Output) -> anyhow::Result<()> {
    match verb {
        Verb::Serve(args) => config::serve(args),
        Verb::New(args) => new::run(args, out),
        Verb::Build(args) => build::run(args, out),
        Verb::Deploy(args) => deploy::run(args, &global.client()?, out),
        Verb::Invoke(args) => invoke::run(args, global, out),
        Verb::Functions(args) => function::list(args, &global.client()?, out),
        Verb::Function(verb) => function::run(verb, &global.client()?, out),
        Verb::Dataset(verb) => dataset::run(verb, &global.client()?, out),
        Verb::Model(verb) => model::run(verb, &global.client()?, out),
        Verb::TrainLocal(args) => train_local::run(*args, out),
        Verb::Train(args) => train::run(*args, &global.client()?, out),
        Verb::Plan(args) => plan::run(*args, global, out),
        Verb::Jobs(args) => job::list(args, &global.client()?, out),
        Verb::Job(verb) => job::run(verb, &global.client()?, out),
        Verb::Tune(args) => tune::run(*args, &global.client()?, out),
        Verb::Tunes(args) => tune::list(args, &global.client()?, out),
        Verb::Pipeline(args) => pipeline::run(args, &global.client()?, out),
        Verb::Infer(args) => infer::run(*args, global, out),
        Verb::Params(verb) => params::run(verb, &global.client()?, out),
        Verb::Prices(verb) => prices::run(verb, global, out),
        Verb::Logs(args) => logs::run(args, &global.client()?, out),
        Verb::Usage => tenant::usage(&global.client()?, out),
        Verb::Tenant(verb) => tenant::run(verb, &global.client()?, out),
        Verb::Node { verb } => node::run(verb, &global.client()?, out),
        Verb::Backup(args) => backup::save(args, &global.client()?, out),
        Verb::Restore(args) => backup::restore(args, out),
        Verb::Profile(verb) => profile::run(verb, global, out),
        Verb::Config(verb) => config::run(verb, out),
        Verb::Doctor(args) => doctor::run(args, out),
        Verb::Devices => devices::run(out),
        Verb::Bench(verb) => bench::run(verb, out),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weft", &mut script);
            Ok(out.bytes(&script)?)
        }
        Verb::CompileChild { memory, output, seconds } => {
            run_compile_child(memory, output, seconds);
            Ok(())
        }
    }
}

impl Global {
    /// A client for the node that the flags, the variables and the profile name.
    fn client(&self) -> anyhow::Result<Client> {
        let profiles = match profile::default_path() {
            Some(path) => profile::Profiles::load(&path)?,
            None => profile::Profiles::default(),
        };
        let target = profiles.target(self)?;
        Ok(Client::new(&target.url, target.key.as_deref(), target.ca_cert.as_deref())?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// clap checks this only in debug builds.
    fn check(command: &clap::Command, path: &str) {
        let mut flags = HashSet::new();
        for argument in command.get_arguments() {
            let long = argument.get_long().map(|long| format!("--{long}"));
            let short = argument.get_short().map(|short| format!("-{short}"));
            for flag in long.into_iter().chain(short) {
                assert!(flags.insert(flag.clone()), "`{path}` has two meanings for `{flag}`");
            }
        }
        for verb in command.get_subcommands() {
            check(verb, &format!("{path} {}", verb.get_name()));
        }
    }

    #[test]
    fn every_flag_of_a_verb_has_one_meaning() {
        let mut command = Cli::command();
        command.build();
        check(&command, "weft");
    }

    #[test]
    fn global_flags_go_before_and_after_the_verb() {
        for line in [["weft", "--url", "http://a", "functions"], ["weft", "functions", "--url", "http://a"]] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.global.url.as_deref(), Some("http://a"));
        }
    }
}

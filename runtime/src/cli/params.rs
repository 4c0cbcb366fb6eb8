//! `weft params`: what a tenant has in the parameter store.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use super::Client;
use super::confirm::confirm;
use super::failure::UsageError;
use super::output::{Output, bytes, harmless, moment};
use crate::api::types::{ParamList, ParamView};
use crate::names::Name;
use crate::params::Key;

/// Whose values.
#[derive(Args)]
pub struct OfJob {
    /// Those of a job [default: those that belong to none]
    #[arg(long, value_name = "JOB")]
    job: Option<Name>,
}

#[derive(Subcommand)]
pub enum ParamsVerb {
    /// List values by name
    List {
        #[command(flatten)]
        of: OfJob,
        /// Only names that begin so
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Print a value: numbers of a tensor or a counter, or its bytes
    Get {
        name: Key,
        #[command(flatten)]
        of: OfJob,
        /// Write its bytes to a file instead
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Set a value from a file; `-` is stdin
    Set {
        name: Key,
        file: PathBuf,
        #[command(flatten)]
        of: OfJob,
        /// What it is: bytes, counter, or a type and a shape as in 'f32 [2, 3]'
        #[arg(long, default_value = "bytes")]
        form: String,
        /// Return only once it would survive a crash
        #[arg(long)]
        durable: bool,
    },
    /// Delete values
    Delete {
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        names: Vec<Key>,
        #[command(flatten)]
        of: OfJob,
        /// All of the job's, or without a job everything of this tenant, also what a Redis lost
        #[arg(long)]
        all: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub fn run(verb: ParamsVerb, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        ParamsVerb::List { of, prefix } => list(&of, &prefix, client, out),
        ParamsVerb::Get { name, of, output } => get(&name, &of, output.as_deref(), client, out),
        ParamsVerb::Set { name, file, of, form, durable } => {
            let body = read(&file)?;
            let set = client.set_param(&name, of.job.as_ref(), &form, durable, &body)?;
            let sentence = format!("set `{name}`, {}, version {}", bytes(body.len() as u64), set.version);
            out.done(&set, sentence)
        }
        ParamsVerb::Delete { of, all: true, yes, .. } => {
            let whose = of.job.as_ref().map_or("this tenant".to_owned(), |job| format!("job `{job}`"));
            confirm(&format!("delete all values of {whose}?"), yes)?;
            let deleted = client.delete_params(of.job.as_ref())?;
            out.done(&deleted, format_args!("deleted {} values", deleted.deleted))
        }
        ParamsVerb::Delete { names, of, yes, .. } => {
            let listed: Vec<&str> = names.iter().map(Key::as_str).collect();
            confirm(&format!("delete `{}`?", listed.join("`, `")), yes)?;
            for name in &names {
                client.delete_param(name, of.job.as_ref())?;
            }
            out.done(&json!({ "deleted": listed }), format_args!("deleted `{}`", listed.join("`, `")))
        }
    }
}

fn list(of: &OfJob, prefix: &str, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = ParamList { params: Vec::new(), next: None, jobs: Vec::new() };
    loop {
        let page = client.params(of.job.as_ref(), prefix, all.next.as_deref())?;
        all.params.extend(page.params);
        (all.next, all.jobs) = (page.next, page.jobs);
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |param: &ParamView| {
            let expires = param.expires_at.as_deref().map_or("never".to_owned(), moment);
            vec![param.name.clone(), param.form.clone(), bytes(param.bytes), param.version.to_string(), expires]
        };
        let rows: Vec<Vec<String>> = all.params.iter().map(row).collect();
        let mut text = out.table(&["NAME", "FORM", "SIZE", "VERSION", "EXPIRES"], &rows);
        if of.job.is_none() && !all.jobs.is_empty() {
            text.push_str(&format!("jobs with values of their own (`--job`): {}\n", all.jobs.join(", ")));
        }
        text
    })
}

fn get(name: &Key, of: &OfJob, output: Option<&Path>, client: &Client, out: &Output) -> anyhow::Result<()> {
    let (form, version, mut body) = client.param(name, of.job.as_ref())?;
    if let Some(path) = output {
        let mut file = File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        let size = io::copy(&mut body, &mut file).context("the answer broke off")?;
        file.flush()?;
        let sentence = format!("saved `{name}`, {form}, in `{}`, {}", path.display(), bytes(size));
        return out
            .done(&json!({ "name": name, "form": form, "version": version, "file": path, "bytes": size }), sentence);
    }
    let mut data = Vec::new();
    body.read_to_end(&mut data).context("the answer broke off")?;
    match numbers(&form, &data) {
        Some(numbers) => {
            let value = json!({ "name": name, "form": form, "version": version, "values": numbers });
            out.show(&value, || numbers.iter().map(|number| format!("{number}\n")).collect())
        }
        None => match std::str::from_utf8(&data) {
            Ok(text) => out.show(&json!({ "name": name, "form": form, "version": version, "text": text }), || {
                harmless(text) + "\n"
            }),
            Err(_) => Err(UsageError(format!("`{name}` is no text: save it with `--output FILE`")).into()),
        },
    }
}

/// The elements of a tensor or the number of a counter; `None` for bytes.
fn numbers(form: &str, data: &[u8]) -> Option<Vec<serde_json::Value>> {
    fn all<const SIZE: usize, T: Into<serde_json::Value>>(
        data: &[u8],
        read: fn([u8; SIZE]) -> T,
    ) -> Vec<serde_json::Value> {
        data.as_chunks::<SIZE>().0.iter().map(|bytes| read(*bytes).into()).collect()
    }
    Some(match form.split(' ').next()? {
        "f32" => all(data, f32::from_le_bytes),
        "f16" => all(data, |bytes| half::f16::from_le_bytes(bytes).to_f32()),
        "i32" => all(data, i32::from_le_bytes),
        "u32" => all(data, u32::from_le_bytes),
        "u8" => all(data, u8::from_le_bytes),
        "counter" => all(data, i64::from_le_bytes),
        _ => return None,
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut data = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().read_to_end(&mut data),
        false => File::open(path).and_then(|mut file| file.read_to_end(&mut data)),
    };
    read.with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(data)
}

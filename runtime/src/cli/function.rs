//! `weft functions` and `weft function …`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::client::Client;
use super::confirm::confirm;
use super::output::{Output, bytes, moment, short_version};
use crate::api::types::{FunctionList, FunctionView, VersionView};
use crate::names::Name;

#[derive(Args)]
pub struct ListArgs {
    /// At most so many
    #[arg(long)]
    limit: Option<usize>,
}

#[derive(Subcommand)]
pub enum FunctionVerb {
    /// Show one function
    Show { name: Name },
    /// List the stored versions of a function
    Versions { name: Name },
    /// Run an earlier version again
    Rollback {
        name: Name,
        /// The beginning of the version's digest [default: the one that ran before]
        #[arg(long, value_name = "DIGEST", value_parser = digest_prefix)]
        to: Option<String>,
    },
    /// Delete a function, or one of its versions
    Delete {
        name: Name,
        /// Delete only the version whose digest begins like this
        #[arg(long, value_name = "DIGEST", value_parser = digest_prefix)]
        version: Option<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub fn list(args: ListArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = FunctionList { functions: Vec::new(), next: None };
    loop {
        let left = args.limit.map(|limit| limit.saturating_sub(all.functions.len()));
        if left == Some(0) {
            break;
        }
        let page = client.functions(left, all.next.as_deref())?;
        all.functions.extend(page.functions);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |function: &FunctionView| {
            vec![
                function.name.clone(),
                short_version(&function.version).to_owned(),
                function.versions.to_string(),
                bytes(function.size),
                moment(&function.updated_at),
            ]
        };
        let rows: Vec<Vec<String>> = all.functions.iter().map(row).collect();
        out.table(&["NAME", "VERSION", "VERSIONS", "SIZE", "UPDATED"], &rows)
    })
}

pub fn run(verb: FunctionVerb, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        FunctionVerb::Show { name } => {
            let function = client.function(&name)?;
            out.show(&function, || describe(&function, out))
        }
        FunctionVerb::Versions { name } => versions(&name, client, out),
        FunctionVerb::Rollback { name, to } => {
            let function = client.rollback(&name, to)?;
            let version = short_version(&function.version);
            out.done(&function, format_args!("`{name}` now runs version {version}"))
        }
        FunctionVerb::Delete { name, version: Some(version), yes } => {
            confirm(&format!("delete version {version} of `{name}`?"), yes)?;
            let function = client.delete_version(&name, &version)?;
            out.done(&function, format_args!("deleted version {version} of `{name}`"))
        }
        FunctionVerb::Delete { name, version: None, yes } => {
            confirm(&format!("delete function `{name}` with all its versions?"), yes)?;
            client.delete_function(&name)?;
            out.done(&json!({"deleted": name}), format_args!("deleted function `{name}`"))
        }
    }
}

fn describe(function: &FunctionView, out: &Output) -> String {
    let imports = if function.imports.is_empty() { "nothing".to_owned() } else { function.imports.join(", ") };
    out.fields(&[
        ("name", function.name.clone()),
        ("version", function.version.clone()),
        ("size", bytes(function.size)),
        ("imports", imports),
        ("versions", format!("{}, {} stored", function.versions, bytes(function.stored_bytes))),
        ("created", moment(&function.created_at)),
        ("updated", moment(&function.updated_at)),
    ])
}

fn versions(name: &Name, client: &Client, out: &Output) -> anyhow::Result<()> {
    let list = client.versions(name)?;
    out.show(&list, || {
        let row = |version: &VersionView| {
            vec![
                if version.active { "*" } else { "" }.to_owned(),
                short_version(&version.version).to_owned(),
                bytes(version.size),
                moment(&version.deployed_at),
            ]
        };
        let rows: Vec<Vec<String>> = list.versions.iter().map(row).collect();
        out.table(&["", "VERSION", "SIZE", "DEPLOYED"], &rows)
    })
}

fn digest_prefix(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let fits = (1..=64).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(digits.to_owned()) } else { Err("expected the first hexadecimal digits of a version".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_by_hexadecimal_digits() {
        assert_eq!(digest_prefix("sha256:0aF"), Ok("0aF".to_owned()));
        for bad in ["", "sha256:", "xyz", "../..", &"0".repeat(65)] {
            assert!(digest_prefix(bad).is_err(), "{bad}");
        }
    }
}

//! `weft tenant …` for the operator, and `weft usage` for a tenant.

use clap::Subcommand;
use serde_json::{Value, json};

use super::client::Client;
use super::confirm::confirm;
use super::output::{Output, Style, bytes, moment};
use crate::api::types::{TenantList, TenantRequest, TenantView};
use crate::names::Name;
use crate::tenant::{Quota, QuotaPatch, StoreId};
use crate::units::{Size, Span};

#[derive(Subcommand)]
pub enum TenantVerb {
    /// Create a tenant and print its key, this once
    Create {
        name: Name,
        /// Limits that differ from the node's defaults, such as `memory=2GiB` or `wall_ms=30s`
        #[arg(value_name = "QUOTA=VALUE", value_parser = quota_value)]
        quota: Vec<(String, u64)>,
        /// Share the parameters of a tenant on another node with the same Redis: the `store` that `tenant show` tells there
        #[arg(long)]
        store: Option<StoreId>,
    },
    /// List the tenants
    List {
        /// At most so many
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Show what a tenant may use and has used
    Show { name: Name },
    /// Replace a tenant's key and print the new one, this once
    RotateKey { name: Name },
    /// Change some of a tenant's limits
    SetQuota {
        name: Name,
        /// New limits, such as `memory=2GiB` or `wall_ms=30s`
        #[arg(value_name = "QUOTA=VALUE", value_parser = quota_value, required = true)]
        quota: Vec<(String, u64)>,
    },
    /// Delete a tenant with all it has: functions, jobs, data sets, models, parameters and logs
    Delete {
        name: Name,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub fn run(verb: TenantVerb, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        TenantVerb::Create { name, quota, store } => {
            let (quota, store) = (patch(&quota)?, store.map(String::from));
            let request = TenantRequest { name: name.to_string(), quota, store };
            let created = client.create_tenant(&request)?;
            out.note(format_args!("created `{name}`; its key is shown only now:"));
            out.show(&created, || format!("{}\n", created.key))
        }
        TenantVerb::List { limit } => list(limit, client, out),
        TenantVerb::Show { name } => show(&client.tenant(&name)?, out),
        TenantVerb::RotateKey { name } => {
            let rotated = client.rotate_key(&name)?;
            out.note(format_args!("the old key of `{name}` no longer works; the new one is shown only now:"));
            out.show(&rotated, || format!("{}\n", rotated.key))
        }
        TenantVerb::SetQuota { name, quota } => show(&client.set_quota(&name, &patch(&quota)?)?, out),
        TenantVerb::Delete { name, yes } => {
            let all = "functions, jobs, data sets, models, parameters and logs";
            confirm(&format!("delete tenant `{name}` with all it has: {all}?"), yes)?;
            client.delete_tenant(&name)?;
            out.done(&json!({"deleted": name}), format_args!("deleted tenant `{name}`"))
        }
    }
}

/// The tenant that the caller's key belongs to.
pub fn usage(client: &Client, out: &Output) -> anyhow::Result<()> {
    show(&client.usage()?, out)
}

fn list(limit: Option<usize>, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = TenantList { tenants: Vec::new(), next: None };
    loop {
        let left = limit.map(|limit| limit.saturating_sub(all.tenants.len()));
        if left == Some(0) {
            break;
        }
        let page = client.tenants(left, all.next.as_deref())?;
        all.tenants.extend(page.tenants);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |tenant: &TenantView| {
            vec![
                tenant.name.clone(),
                moment(&tenant.created_at),
                tenant.now.functions.to_string(),
                bytes(tenant.now.stored_bytes),
                tenant.usage.invocations.to_string(),
                format!("{:.1} s", tenant.usage.cpu_seconds()),
            ]
        };
        let rows: Vec<Vec<String>> = all.tenants.iter().map(row).collect();
        out.table(&["NAME", "CREATED", "FUNCTIONS", "STORED", "INVOCATIONS", "CPU"], &rows)
    })
}

fn show(tenant: &TenantView, out: &Output) -> anyhow::Result<()> {
    out.show(tenant, || {
        let heading = |text: &str| format!("\n{}\n", out.paint(Style::Bold, text));
        let used = &tenant.usage;
        [
            out.fields(&[
                ("tenant", tenant.name.clone()),
                ("created", moment(&tenant.created_at)),
                ("store", tenant.store.clone()),
            ]),
            heading("Limits"),
            out.table(&["QUOTA", "LIMIT", "NOW"], &quota_rows(tenant)),
            heading("Used since it was created"),
            out.fields(&[
                ("invocations", format!("{} ({} failed)", used.invocations, used.failures)),
                ("CPU", format!("{:.3} s", used.cpu_seconds())),
                ("memory", format!("{:.3} GiB-seconds", used.memory_gib_seconds())),
                ("received", bytes(used.bytes_in)),
                ("sent", bytes(used.bytes_out)),
                ("deploys", used.deploys.to_string()),
                ("logged", bytes(used.log_bytes)),
                ("training", format!("{} jobs, {} workers", used.jobs, used.workers)),
                ("devices", format!("{:.3} s", used.device_seconds())),
                ("exchanged", bytes(used.moved_bytes)),
                ("parameters", format!("{} values, {}", used.params_operations, bytes(used.params_moved_bytes))),
                ("cost", format!("{:.6}", used.cost())),
            ]),
        ]
        .concat()
    })
}

fn quota_rows(tenant: &TenantView) -> Vec<Vec<String>> {
    let now = |name: &str| match name {
        "functions" => tenant.now.functions.to_string(),
        "stored_bytes" => bytes(tenant.now.stored_bytes),
        "memory" => bytes(tenant.now.memory),
        _ => String::new(),
    };
    let row = |(name, limit): (&'static str, u64)| vec![name.to_owned(), limit_text(name, limit), now(name)];
    tenant.quota.entries().into_iter().map(row).collect()
}

/// What a limit is counted in follows from its name.
enum Unit {
    Bytes,
    Milliseconds,
    Count,
}

fn unit(name: &str) -> Unit {
    match name {
        _ if name.ends_with("bytes") || name.ends_with("memory") => Unit::Bytes,
        _ if name.ends_with("_ms") => Unit::Milliseconds,
        _ => Unit::Count,
    }
}

/// A limit as it would be given.
pub fn limit_text(name: &str, limit: u64) -> String {
    match unit(name) {
        Unit::Bytes => Size(limit).to_string(),
        Unit::Milliseconds => Span(std::time::Duration::from_millis(limit)).to_string(),
        Unit::Count => limit.to_string(),
    }
}

/// Reads `memory=2GiB`, `wall_ms=30s`, `functions=7`.
fn quota_value(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write it as `quota=value`, such as `memory=2GiB`")?;
    if !Quota::NAMES.contains(&name) {
        return Err(format!("there is no quota `{name}`; there are: {}", Quota::NAMES.join(", ")));
    }
    let number = value.parse::<u64>();
    let number = match unit(name) {
        Unit::Bytes => value.parse::<Size>().map(|size| size.0).map_err(|error| error.to_string()),
        Unit::Milliseconds => number.or_else(|_| {
            let span = value.parse::<Span>().map_err(|error| error.to_string())?;
            u64::try_from(span.0.as_millis()).map_err(|error| error.to_string())
        }),
        Unit::Count => number.map_err(|_| format!("`{value}` is not a whole number")),
    }?;
    patch(&[(name.to_owned(), number)]).map_err(|_| format!("`{value}` is too much for `{name}`"))?;
    Ok((name.to_owned(), number))
}

fn patch(quota: &[(String, u64)]) -> serde_json::Result<QuotaPatch> {
    let fields = quota.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    serde_json::from_value(Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_take_sizes_spans_and_numbers() {
        for (text, name, expected) in [
            ("memory=2GiB", "memory", 2 << 30),
            ("log_bytes=64KiB", "log_bytes", 64 << 10),
            ("stored_bytes=1000", "stored_bytes", 1_000),
            ("wall_ms=30s", "wall_ms", 30_000),
            ("cpu_ms=250", "cpu_ms", 250),
            ("functions=7", "functions", 7),
        ] {
            assert_eq!(quota_value(text), Ok((name.to_owned(), expected)), "{text}");
        }
    }

    #[test]
    fn an_unknown_quota_is_answered_with_the_known_ones() {
        let error = quota_value("memroy=2GiB").unwrap_err();
        assert!(Quota::NAMES.iter().all(|name| error.contains(name)), "{error}");
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for bad in ["memory", "memory=", "functions=2GiB", "functions=5000000000", "wall_ms=soon"] {
            assert!(quota_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_limit_is_shown_as_it_would_be_given() {
        for (name, value) in Quota::default().entries() {
            assert_eq!(quota_value(&format!("{name}={}", limit_text(name, value))), Ok((name.to_owned(), value)));
        }
    }

    #[test]
    fn several_quotas_make_one_patch() {
        let patch = patch(&[("functions".to_owned(), 3), ("memory".to_owned(), 9)]).unwrap();
        assert_eq!(patch, QuotaPatch { functions: Some(3), memory: Some(9), ..QuotaPatch::default() });
    }
}

//! `weft dataset on-append`: a job for whatever is new in a data set.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::api::types::{StandingOrderList, StandingOrderView};
use crate::cli::client::Client;
use crate::cli::failure::UsageError;
use crate::cli::output::{Output, harmless, moment, short_version};
use crate::cli::train::TrainingOptions;
use crate::job::JobSpec;
use crate::names::Name;

/// Have a data set start a job whenever it has grown; show, list or take back such an order
#[derive(Args)]
pub struct OnAppendArgs {
    /// The data set; left out to list all orders
    name: Option<Name>,
    /// The job as JSON, in the words of `POST /v1/jobs`
    #[arg(long, value_name = "SPEC.json", conflicts_with = "function")]
    train: Option<PathBuf>,
    /// A deployed trainer, for a job of the flags below
    #[arg(long, value_name = "FUNCTION")]
    function: Option<String>,
    /// What its jobs are called; each gets the version's number at its end [default: names are made up]
    #[arg(long, value_name = "NAME", requires = "function")]
    job: Option<Name>,
    /// The model to start from
    #[arg(long, value_name = "MODEL", requires = "function")]
    init_from: Option<String>,
    /// Take the order back; its jobs stay
    #[arg(long, conflicts_with_all = ["train", "function"])]
    delete: bool,
    #[command(flatten)]
    options: Box<TrainingOptions>,
}

pub fn run(args: OnAppendArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let OnAppendArgs { name, train, function, job, init_from, delete, options } = args;
    let Some(name) = name else {
        if train.is_some() || function.is_some() || delete {
            return Err(UsageError("say of which data set: `weft dataset on-append NAME …`".to_owned()).into());
        }
        return list(client, out);
    };
    if delete {
        client.take_order_back(&name)?;
        let sentence = format_args!("data set `{name}` starts no job any more when it has grown");
        return out.done(&json!({"deleted": name}), sentence);
    }
    let spec = match (train, function) {
        (Some(file), _) => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
            let spec: JobSpec =
                serde_json::from_str(&text).with_context(|| format!("`{}` is no job", file.display()))?;
            options.over(spec)
        }
        (None, Some(function)) => {
            options.over(JobSpec { name: job.map(Into::into), init_from, ..JobSpec::new(function, None) })
        }
        (None, None) => {
            let order = client.standing_order(&name)?;
            return out.show(&order, || describe(&order, out));
        }
    };
    let order = client.give_order(&name, &spec)?;
    let sentence = format_args!("data set `{name}` starts a job of `{}` whenever it has grown", order.spec.function);
    out.done(&order, sentence)
}

fn describe(order: &StandingOrderView, out: &Output) -> String {
    let mut rows = vec![
        ("data set", order.dataset.clone()),
        ("function", order.spec.function.clone()),
        ("since", moment(&order.created_at)),
        ("seen", short_version(&order.seen).to_owned()),
        ("started", order.started.to_string()),
    ];
    rows.extend(order.job.iter().map(|job| ("latest job", job.clone())));
    if !order.problem.is_empty() {
        rows.push(("problem", harmless(&order.problem)));
    }
    out.fields(&rows)
}

fn list(client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = StandingOrderList { orders: Vec::new(), next: None };
    loop {
        let page = client.standing_orders(all.next.as_deref())?;
        all.orders.extend(page.orders);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |order: &StandingOrderView| {
            vec![
                order.dataset.clone(),
                order.spec.function.clone(),
                order.started.to_string(),
                order.job.clone().unwrap_or_default(),
                harmless(&order.problem),
            ]
        };
        let rows: Vec<Vec<String>> = all.orders.iter().map(row).collect();
        out.table(&["DATASET", "FUNCTION", "STARTED", "LATEST JOB", "PROBLEM"], &rows)
    })
}

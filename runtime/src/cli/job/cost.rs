//! `weft job cost`: what a job cost by stage and by worker, and what a rented machine would have cost.

use serde::Serialize;
use weft_core::cost::{Breakdown, WorkerCost};
use weft_core::plan::prices::{Comparison, Peer, PriceTable, compare, preset};
use weft_core::usage::Stages;

use super::all_epochs;
use crate::api::types::JobDetail;
use crate::cli::client::Client;
use crate::cli::failure::UsageError;
use crate::cli::output::{Output, Style};
use crate::cli::plan::calibrate::Calibration;
use crate::cli::plan::model::{Beside, beside};
use crate::cli::train::seconds;
use crate::job::{EpochRecord, State, costs, total};
use crate::names::Name;

/// Prices that have rented machines, for nodes whose own have none.
const WITH_MACHINES: &str = "cloud";

/// What a job cost.
#[derive(Debug, Serialize)]
struct Report {
    job: String,
    state: State,
    /// All of it.
    cost: f64,
    stages: Vec<StageRow>,
    workers: Vec<WorkerCost>,
    /// What was spent and is in no epoch of the history: of one that is not over, or was done again.
    elsewhere: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rented: Option<Rented>,
    /// What its first tenth promised, beside what it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction: Option<Beside>,
}

#[derive(Debug, Serialize)]
struct StageRow {
    stage: &'static str,
    /// Of all workers together.
    seconds: f64,
    cost: f64,
}

/// The same on a machine that one rents.
#[derive(Debug, Serialize)]
struct Rented {
    machine: String,
    /// Whose prices.
    prices: String,
    #[serde(flatten)]
    comparison: Comparison,
}

pub fn run(name: &Name, rented: Option<&str>, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detail = client.job(name)?;
    let epochs = all_epochs(name, client)?.epochs;
    let mut report = report(&detail, &epochs, rented, &client.prices()?)?;
    report.prediction = predicted(&detail, epochs, client)?;
    out.show(&report, || text(&report, out))
}

fn report(
    detail: &JobDetail,
    epochs: &[EpochRecord],
    machine: Option<&str>,
    prices: &PriceTable,
) -> anyhow::Result<Report> {
    let costs = costs(epochs.iter());
    let (_, stages) = total(epochs.iter());
    let known = costs.stages.total();
    Ok(Report {
        job: detail.job.name.clone(),
        state: detail.job.state,
        cost: detail.spending.cost,
        stages: rows(&costs, &stages),
        elsewhere: if (detail.spending.cost - known).abs() < 1e-9 * known { 0.0 } else { detail.spending.cost - known },
        rented: compared(detail, epochs, &costs, &stages, machine, prices)?,
        workers: costs.workers,
        prediction: None,
    })
}

/// What the analytic model says of a job that is over.
fn predicted(detail: &JobDetail, epochs: Vec<EpochRecord>, client: &Client) -> anyhow::Result<Option<Beside>> {
    if !detail.job.state.is_over() {
        return Ok(None);
    }
    // A model that was deleted has no size any more, and then the job's own first epochs speak for the exchange.
    let model = detail.models.last().and_then(|name| client.model(&name.parse().ok()?).ok());
    let parameters = model.map(|model| model.model.parameters);
    let whole = JobDetail { history: epochs, ..detail.clone() };
    Ok(beside(&whole, Calibration::load()?.as_ref(), parameters))
}

fn rows(costs: &Breakdown, stages: &Stages) -> Vec<StageRow> {
    let named = stages.named();
    let seconds = |stage| named.iter().find(|(name, _)| *name == stage).map_or(0.0, |(_, seconds)| *seconds);
    costs.stages.named().map(|(stage, cost)| StageRow { stage, seconds: seconds(stage), cost }).into()
}

/// The comparison of the peer-to-peer paper, with what the job measured: a machine computes all that the functions
/// computed side by side one after the other, as fast as one of them.
fn compared(
    detail: &JobDetail,
    epochs: &[EpochRecord],
    costs: &Breakdown,
    stages: &Stages,
    machine: Option<&str>,
    prices: &PriceTable,
) -> anyhow::Result<Option<Rented>> {
    let others = preset(WITH_MACHINES)?;
    let has_machine = |table: &PriceTable| match machine {
        Some(machine) => table.machine_second.contains_key(machine),
        None => !table.machine_second.is_empty(),
    };
    let table = if has_machine(prices) { prices } else { &others };
    let found = match machine {
        Some(machine) => table.machine_second.get_key_value(machine),
        None => table.machine_second.iter().min_by(|one, other| one.1.total_cmp(other.1)),
    };
    let Some((name, machine_second)) = found else {
        let known: Vec<&str> =
            [prices, &others].iter().flat_map(|it| it.machine_second.keys()).map(String::as_str).collect();
        let asked = machine.unwrap_or_default();
        return Err(UsageError(format!("no price table has a machine `{asked}`: use {}", known.join(", "))).into());
    };
    let serverless_seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
    let machine_seconds = stages.data + stages.compute + stages.update + stages.validate;
    let durations: Vec<f64> = costs.workers.iter().map(|worker| worker.seconds).collect();
    let busy: f64 = durations.iter().sum();
    if serverless_seconds <= 0.0 || machine_seconds <= 0.0 || busy <= 0.0 {
        return Ok(None);
    }
    let peer = Peer {
        functions: detail.shape.lanes(),
        // What a function's second cost on average, devices and starts included.
        function_second: costs.stages.total() / busy / f64::from(detail.shape.fan_out.max(1)),
        caller_second: 0.0,
        serverless_seconds,
        machine_second: *machine_second,
        machine_seconds,
        durations,
    };
    let prices = if has_machine(prices) { "node" } else { WITH_MACHINES };
    Ok(Some(Rented { machine: name.clone(), prices: prices.to_owned(), comparison: compare(&peer) }))
}

fn text(report: &Report, out: &Output) -> String {
    let cost = |cost: f64| format!("{cost:.9}");
    let share = |part: f64| format!("{:.1} %", 100.0 * part / report.cost.max(f64::MIN_POSITIVE));
    let mut stages: Vec<Vec<String>> = report
        .stages
        .iter()
        .filter(|row| row.cost > 0.0 || row.seconds > 0.0)
        .map(|row| vec![row.stage.to_owned(), format!("{:.3}", row.seconds), cost(row.cost), share(row.cost)])
        .collect();
    if report.elsewhere != 0.0 {
        stages.push(vec![
            "in no epoch that is kept".to_owned(),
            String::new(),
            cost(report.elsewhere),
            share(report.elsewhere),
        ]);
    }
    let workers: Vec<Vec<String>> = report
        .workers
        .iter()
        .map(|it| {
            let name = it.worker.map_or_else(|| "all others".to_owned(), |worker| worker.to_string());
            vec![name, seconds(it.seconds), seconds(it.device_seconds), cost(it.cost), share(it.cost)]
        })
        .collect();
    let heading = |text: &str| format!("\n{}\n", out.paint(Style::Bold, text));
    let mut text = [
        out.fields(&[
            ("job", report.job.clone()),
            ("state", report.state.word().to_owned()),
            ("cost", cost(report.cost)),
        ]),
        heading("By stage"),
        out.table(&["STAGE", "SECONDS", "COST", ""], &stages),
        heading("By worker"),
        out.table(&["WORKER", "AT WORK", "DEVICE", "COST", ""], &workers),
    ]
    .concat();
    if let Some(beside) = &report.prediction {
        text += &(heading("Predicted and measured") + &in_words(beside) + "\n");
    }
    if let Some(rented) = &report.rented {
        let Comparison { serverless, serverless_by_duration, rented: machine, dearer, faster, .. } = &rented.comparison;
        let mut rows = vec![("functions, each until the last was done", cost(*serverless))];
        rows.extend(serverless_by_duration.map(|it| ("functions, each for its own time", cost(it))));
        rows.push(("the machine", cost(*machine)));
        rows.push(("functions are", format!("{faster:.2} times as fast for {dearer:.2} times the price")));
        let title = format!(
            "Beside a rented {} that computes as fast as one function, by the prices of `{}`",
            rented.machine, rented.prices
        );
        text += &(heading(&title) + &out.fields(&rows));
    }
    text
}

/// A prediction beside what came.
fn in_words(beside: &Beside) -> String {
    let by = if beside.is_calibrated { "its first epochs and the calibrated channel" } else { "its first epochs" };
    let Beside { predicted, measured, error, .. } = beside;
    format!("{predicted:.2} s by {by}, {measured:.2} s measured: {:+.1} %", 100.0 * error)
}

/// The stages that cost most, in a line.
pub fn in_a_line(costs: &Breakdown) -> Option<String> {
    let all = costs.stages.total();
    if costs.is_empty() || all <= 0.0 {
        return None;
    }
    let mut parts = costs.stages.named();
    parts.sort_by(|one, other| other.1.total_cmp(&one.1));
    let shown = parts.iter().filter(|(_, cost)| *cost >= 0.01 * all);
    let words: Vec<String> = shown.map(|(stage, cost)| format!("{stage} {:.0} %", 100.0 * cost / all)).collect();
    Some(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::cost::StageCosts;

    #[test]
    fn the_dearest_stages_come_first() {
        let worker = WorkerCost { worker: Some(0), seconds: 1.0, device_seconds: 1.0, cost: 10.0 };
        let stages = StageCosts { compute: 7.0, start: 2.95, send: 0.05, ..StageCosts::default() };
        let costs = Breakdown { stages, workers: vec![worker] };
        assert_eq!(in_a_line(&costs).unwrap(), "compute 70 %, start 30 %");
        assert_eq!(in_a_line(&Breakdown::default()), None);
    }
}

//! What other programs read of a study.
//!
//! - [`csv`]: a line for each trial; [`json`]: all of it
//! - [`optuna`]: a journal file of Optuna's, for its dashboard and for going on with it there
//! - [`tensorboard`]: event files for the dashboard of hyper-parameters

use serde_json::{Value as Json, json};

use super::space::Value;
use super::study::{Direction, State};
use super::table::{Row, Table};

pub mod optuna;
pub mod tensorboard;

/// The columns of [`csv`] before those of the parameters.
const COLUMNS: [&str; 11] =
    ["trial", "state", "value", "epoch", "workers", "cost", "seconds", "job", "started_ms", "ended_ms", "reason"];

/// A header and a line for each trial (RFC 4180). Columns of parameters are called `param.NAME`; what does not count is empty.
pub fn csv(table: &Table) -> String {
    let parameters = table.space.parameters();
    let header = COLUMNS.iter().map(|name| (*name).to_owned());
    let named = parameters.iter().map(|parameter| format!("param.{}", parameter.name));
    let mut text = line(header.chain(named));
    for row in &table.rows {
        let own = [
            row.number.to_string(),
            row.word().to_owned(),
            number(table.value(row)),
            row.epoch().to_string(),
            row.workers.to_string(),
            number(Some(row.cost)),
            number(Some(row.seconds)),
            row.job.clone().unwrap_or_default(),
            row.started.map_or_else(String::new, |at| at.to_string()),
            row.ended.map_or_else(String::new, |at| at.to_string()),
            reason(row).unwrap_or_default().to_owned(),
        ];
        let values = parameters.iter().map(|parameter| row.point.get(&parameter.name).map(Value::to_string));
        text += &line(own.into_iter().chain(values.map(Option::unwrap_or_default)));
    }
    text
}

/// The study with its space and all trials with all their reports.
pub fn json(table: &Table) -> Json {
    let trial = |row: &Row| {
        let reports: Vec<Json> =
            row.reports.iter().map(|report| json!({"epoch": report.epoch, "value": report.value})).collect();
        json!({
            "trial": row.number,
            "state": row.word(),
            "reason": reason(row),
            "value": table.value(row),
            "params": row.point,
            "reports": reports,
            "workers": row.workers,
            "cost": row.cost,
            "seconds": row.seconds,
            "job": row.job,
            "started_ms": row.started,
            "ended_ms": row.ended,
        })
    };
    json!({
        "study": table.name,
        "goal": table.goal,
        "direction": table.direction,
        "space": table.space,
        "best": table.best().map(|(row, _)| row.number),
        "trials": table.rows.iter().map(trial).collect::<Vec<_>>(),
    })
}

fn reason(row: &Row) -> Option<&str> {
    match &row.state {
        State::Failed(why) => Some(why),
        _ => None,
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cell = |cell: String| {
        if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    };
    cells.map(cell).collect::<Vec<_>>().join(",") + "\r\n"
}

/// What Optuna and others call the direction.
fn is_maximised(direction: Direction) -> bool {
    direction == Direction::Maximise
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::table::tests::table;

    #[test]
    fn a_trial_is_a_line_and_what_needs_quotes_has_them() {
        let text = csv(&table());
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(
            lines[0],
            "trial,state,value,epoch,workers,cost,seconds,job,started_ms,ended_ms,reason,param.lr,param.optimizer,param.units"
        );
        assert_eq!(lines[2], "1,done,0.9,2,1,0.25,1.5,job-1,1767225600000,1767225600500,,0.01,adam,32");
        assert_eq!(
            lines[3],
            "2,failed,,0,1,0.25,1.5,job-2,1767225601000,1767225601500,\"its loss was \"\"NaN\"\", <again>\",0.1,sgd,"
        );
    }

    #[test]
    fn json_has_the_space_as_it_is_written_and_all_reports() {
        let json = json(&table());
        assert_eq!(json["space"][2], "units=int:16..64:16 if optimizer=adam");
        assert_eq!(json["best"], 4);
        assert_eq!(json["direction"], "maximise");
        assert_eq!(json["trials"][4]["params"], serde_json::json!({"lr": 0.02, "optimizer": "adam", "units": 64}));
        assert_eq!(json["trials"][4]["reports"][1], serde_json::json!({"epoch": 2, "value": 0.95}));
        assert_eq!(json["trials"][2]["value"], Json::Null);
    }
}

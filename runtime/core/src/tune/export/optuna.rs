//! A study as a journal of Optuna's (`JournalStorage` on a `JournalFileBackend`): a line of JSON for each operation, which
//! Optuna plays again when it opens the file.
//!
//! A trial is one operation that creates it with all that is known of it, as Optuna itself writes when it takes over a trial
//! that ended elsewhere. Values of choices are kept as their places, and each value has its distribution beside it.

use serde_json::{Map, Value as Json, json};

use crate::tune::space::{Domain, Value};
use crate::tune::study::State;
use crate::tune::table::{Row, Table};

/// Operations of the journal.
const CREATE_STUDY: u8 = 0;
const SET_STUDY_USER_ATTRIBUTE: u8 = 2;
const SET_STUDY_SYSTEM_ATTRIBUTE: u8 = 3;
const CREATE_TRIAL: u8 = 4;

/// States of a trial.
const RUNNING: u8 = 0;
const COMPLETE: u8 = 1;
const PRUNED: u8 = 2;
const FAIL: u8 = 3;
const WAITING: u8 = 4;

/// Who wrote the operations. Optuna takes what others wrote as it is.
const WRITER: &str = "weft";

/// The journal of a study.
pub fn journal(table: &Table) -> String {
    let direction = if super::is_maximised(table.direction) { 2 } else { 1 };
    let metric = json!({ "study:metric_names": [table.goal] });
    let space = json!({ "weft:space": table.space });
    let mut lines = vec![
        json!({"op_code": CREATE_STUDY, "worker_id": WRITER, "study_name": table.name, "directions": [direction]}),
        json!({"op_code": SET_STUDY_SYSTEM_ATTRIBUTE, "worker_id": WRITER, "study_id": 0, "system_attr": metric}),
        json!({"op_code": SET_STUDY_USER_ATTRIBUTE, "worker_id": WRITER, "study_id": 0, "user_attr": space}),
    ];
    lines.extend(table.rows.iter().map(|row| trial(table, row)));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn trial(table: &Table, row: &Row) -> Json {
    let state = match row.state {
        State::Waiting => WAITING,
        State::Running | State::Pausing | State::Stopping(_) => RUNNING,
        State::Done => COMPLETE,
        // What is paused may go on in Weft, but not where it is exported to.
        State::Paused | State::Pruned | State::Stopped => PRUNED,
        State::Failed(_) => FAIL,
    };
    let is_over = !matches!(state, WAITING | RUNNING);
    let (mut distributions, mut params) = (Map::new(), Map::new());
    for parameter in table.space.parameters() {
        let Some(value) = row.point.get(&parameter.name) else { continue };
        let (distribution, internal) = distribution(&parameter.domain, value);
        distributions.insert(parameter.name.clone(), distribution.to_string().into());
        params.insert(parameter.name.clone(), internal);
    }
    let reports: Map<String, Json> =
        row.reports.iter().map(|report| (report.epoch.to_string(), report.value.into())).collect();
    let mut attributes = json!({"workers": row.workers, "cost": row.cost, "seconds": row.seconds});
    if let Some(job) = &row.job {
        attributes["job"] = job.clone().into();
    }
    if let State::Failed(why) = &row.state {
        attributes["reason"] = why.clone().into();
    }
    let mut line = json!({
        "op_code": CREATE_TRIAL,
        "worker_id": WRITER,
        "study_id": 0,
        "state": state,
        "value": table.value(row).filter(|_| is_over),
        "values": null,
        "datetime_start": row.started.map(moment),
        "distributions": distributions,
        "params": params,
        "user_attrs": attributes,
        "system_attrs": {},
        "intermediate_values": reports,
    });
    // Optuna looks for this word to know whether there is an end.
    if is_over && let Some(ended) = row.ended.or(row.started) {
        line["datetime_complete"] = moment(ended).into();
    }
    line
}

/// What a value was chosen from, and the value as Optuna keeps it.
fn distribution(domain: &Domain, value: &Value) -> (Json, Json) {
    let number = json!(value.number());
    match domain {
        Domain::Number { low, high, log, step } => (
            json!({"name": "FloatDistribution", "attributes": {"step": step, "low": low, "high": high, "log": log}}),
            number,
        ),
        Domain::Integer { low, high, log, step } => (
            json!({"name": "IntDistribution", "attributes": {"log": log, "step": step, "low": low, "high": high}}),
            number,
        ),
        Domain::Choice(values) => choice(values, value),
        Domain::Constant(constant) => choice(std::slice::from_ref(constant), value),
    }
}

fn choice(values: &[Value], value: &Value) -> (Json, Json) {
    let place = values.iter().position(|known| known.is_same(value)).unwrap_or(0);
    (json!({"name": "CategoricalDistribution", "attributes": {"choices": values}}), place.into())
}

/// A moment as Python reads it, also before 3.11.
fn moment(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute, second, milli) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}000+00:00")
}

/// Days since 1970-01-01 to a date of the Gregorian calendar, by taking off years and then months.
fn date(mut days: u64) -> (u64, u64, u64) {
    // Four centuries are always as long, so however late it is, little is left to take off.
    const FOUR_CENTURIES: u64 = 146_097;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970 + 400 * (days / FOUR_CENTURIES);
    days %= FOUR_CENTURIES;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::table::tests::table;

    fn lines() -> Vec<Json> {
        journal(&table()).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_trial_has_its_state_its_values_and_its_distributions() {
        let lines = lines();
        assert_eq!(lines.len(), 3 + 5);
        assert_eq!(lines[0]["directions"], json!([2]));
        let trial = &lines[3 + 1];
        assert_eq!((&trial["op_code"], &trial["state"], &trial["value"]), (&json!(4), &json!(1), &json!(0.9)));
        assert_eq!(trial["params"], json!({"lr": 0.01, "optimizer": 1, "units": 32.0}));
        assert_eq!(trial["intermediate_values"], json!({"1": 0.8, "2": 0.9}));
        assert_eq!(trial["datetime_start"], "2026-01-01T00:00:00.000000+00:00");
        let units: Json = serde_json::from_str(trial["distributions"]["units"].as_str().unwrap()).unwrap();
        assert_eq!(units["name"], "IntDistribution");
        assert_eq!(units["attributes"], json!({"low": 16, "high": 64, "step": 16, "log": false}));
        let states: Vec<u64> = lines[3..].iter().map(|line| line["state"].as_u64().unwrap()).collect();
        assert_eq!(states, [1, 1, 3, 2, 1]);
    }

    #[test]
    fn what_runs_has_no_end_and_no_value_yet() {
        let mut table = table();
        table.rows[4].state = State::Running;
        let journal = journal(&table);
        let last: Json = serde_json::from_str(journal.lines().last().unwrap()).unwrap();
        assert_eq!((&last["state"], &last["value"]), (&json!(0), &Json::Null));
        assert_eq!(last.get("datetime_complete"), None);
        assert_eq!(last["intermediate_values"]["2"], 0.95);
    }

    #[test]
    fn days_become_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_453, (2025, 12, 31)),
            (47_541, (2100, 3, 1)),
            (u64::MAX / 86_400_000, (584_556_019, 4, 3)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}

//! A study as event files of TensorBoard, for its dashboard of hyper-parameters: one file that says what was searched, and
//! for each trial a folder with its values, a curve of its reports, and how it ended.
//!
//! What is in the files is protocol buffers (`tensorboard/plugins/hparams/{api,plugin_data}.proto`, and of TensorFlow
//! `event.proto` and `summary.proto`), of which so few messages are needed that they are written by hand: [`proto`]. Records
//! are framed as TensorFlow frames them: [`frame`].

use proto::Message;

use crate::tune::space::{Domain, Value};
use crate::tune::study::State;
use crate::tune::table::{Row, Table};

mod frame;
mod proto;

/// What a trial's best value is called, beside the curve of the goal.
const BEST: &str = "best";

/// Of `DataType`.
const STRING: u64 = 1;
const FLOAT64: u64 = 3;
/// Of `Status`.
const UNKNOWN: u64 = 0;
const SUCCESS: u64 = 1;
const FAILURE: u64 = 2;
const RUNNING: u64 = 3;

/// Files by their paths in the folder that TensorBoard is pointed at.
pub fn files(table: &Table) -> Vec<(String, Vec<u8>)> {
    let begin = table.rows.iter().filter_map(|row| row.started).min().unwrap_or(0);
    let mut files = vec![(file_name(begin), experiment(table, begin))];
    files.extend(table.rows.iter().map(|row| {
        let started = row.started.unwrap_or(begin);
        (format!("trial-{:04}/{}", row.number, file_name(started)), trial(table, row, started))
    }));
    files
}

/// TensorBoard looks for `tfevents` in the names of files.
fn file_name(unix_ms: u64) -> String {
    format!("events.out.tfevents.{}.weft", unix_ms / 1_000)
}

fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1e3
}

fn experiment(table: &Table, begin: u64) -> Vec<u8> {
    let mut experiment = Message::default();
    experiment.text(6, &table.name);
    experiment.double(3, seconds(begin));
    for parameter in table.space.parameters() {
        let mut info = Message::default();
        info.text(1, &parameter.name);
        info.text(3, &parameter.to_string());
        match &parameter.domain {
            Domain::Number { low, high, .. } => interval(&mut info, *low, *high),
            Domain::Integer { low, high, .. } => interval(&mut info, *low as f64, *high as f64),
            Domain::Choice(values) => choices(&mut info, values),
            Domain::Constant(value) => choices(&mut info, std::slice::from_ref(value)),
        }
        experiment.message(4, &info);
    }
    for tag in [table.goal.as_str(), BEST] {
        let (mut name, mut metric) = (Message::default(), Message::default());
        name.text(2, tag);
        metric.message(1, &name);
        metric.text(3, if tag == BEST { "best of all epochs" } else { tag });
        experiment.message(5, &metric);
    }
    let mut file = frame::begin(seconds(begin));
    file.extend(about(seconds(begin), "_hparams_/experiment", 2, &experiment));
    file
}

fn interval(info: &mut Message, low: f64, high: f64) {
    info.varint(4, FLOAT64);
    let mut interval = Message::default();
    interval.double(1, low);
    interval.double(2, high);
    info.message(6, &interval);
}

fn choices(info: &mut Message, values: &[Value]) {
    // One type for all: where one is a word, all are.
    let are_numbers = values.iter().all(|value| value.number().is_some());
    info.varint(4, if are_numbers { FLOAT64 } else { STRING });
    let mut list = Message::default();
    values.iter().for_each(|value| list.message(1, &any(value, are_numbers)));
    info.message(5, &list);
}

/// A `google.protobuf.Value`.
fn any(value: &Value, is_number: bool) -> Message {
    let mut any = Message::default();
    match value.number().filter(|_| is_number) {
        Some(number) => any.double(2, number),
        None => any.text(3, &value.to_string()),
    }
    any
}

fn trial(table: &Table, row: &Row, started: u64) -> Vec<u8> {
    let mut start = Message::default();
    for parameter in table.space.parameters() {
        let Some(value) = row.point.get(&parameter.name) else { continue };
        let is_number = match &parameter.domain {
            Domain::Choice(values) => values.iter().all(|value| value.number().is_some()),
            _ => value.number().is_some(),
        };
        let mut entry = Message::default();
        entry.text(1, &parameter.name);
        entry.message(2, &any(value, is_number));
        start.message(1, &entry);
    }
    start.text(4, &format!("trial {}", row.number));
    start.double(5, seconds(started));
    let mut file = frame::begin(seconds(started));
    file.extend(about(seconds(started), "_hparams_/session_start_info", 3, &start));
    let ended = row.ended.unwrap_or(started);
    for report in &row.reports {
        // When an epoch ended is not kept; evenly between the start and the end is close enough for a curve.
        let share = f64::from(report.epoch) / f64::from(row.epoch());
        let at = seconds(started) + share * (seconds(ended) - seconds(started)).max(0.0);
        file.extend(scalar(at, u64::from(report.epoch), &table.goal, report.value));
    }
    if let Some(best) = table.value(row) {
        file.extend(scalar(seconds(ended), u64::from(row.epoch()), BEST, best));
    }
    let status = match row.state {
        State::Done | State::Pruned => SUCCESS,
        State::Failed(_) => FAILURE,
        State::Running | State::Pausing | State::Stopping(_) => RUNNING,
        State::Waiting | State::Paused | State::Stopped => UNKNOWN,
    };
    let mut end = Message::default();
    end.varint(1, status);
    end.double(2, seconds(ended));
    file.extend(about(seconds(ended), "_hparams_/session_end_info", 4, &end));
    file
}

/// A record of a number.
fn scalar(at: f64, step: u64, tag: &str, value: f64) -> Vec<u8> {
    let mut entry = Message::default();
    entry.text(1, tag);
    entry.float(2, value as f32);
    frame::summary(at, step, &entry)
}

/// A record that holds one of the dashboard's own messages, under its number in `HParamsPluginData`.
fn about(at: f64, tag: &str, number: u32, message: &Message) -> Vec<u8> {
    let mut content = Message::default();
    content.message(number, message);
    let mut plugin = Message::default();
    plugin.text(1, "hparams");
    plugin.message(2, &content);
    let mut metadata = Message::default();
    metadata.message(1, &plugin);
    // A summary must have a value: a tensor of `float` with the shape (0).
    let (mut dimension, mut shape, mut tensor) = (Message::default(), Message::default(), Message::default());
    dimension.varint(1, 0);
    shape.message(2, &dimension);
    tensor.varint(1, 1);
    tensor.message(2, &shape);
    let mut entry = Message::default();
    entry.text(1, tag);
    entry.message(9, &metadata);
    entry.message(8, &tensor);
    frame::summary(at, 0, &entry)
}

#[cfg(test)]
mod tests {
    use super::frame::tests::records;
    use super::*;
    use crate::tune::table::tests::table;

    #[test]
    fn there_is_a_folder_for_each_trial_and_every_record_is_whole() {
        let files = files(&table());
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "events.out.tfevents.1767225599.weft");
        assert_eq!(names[2], "trial-0001/events.out.tfevents.1767225600.weft");
        let counts: Vec<usize> = files.iter().map(|(_, bytes)| records(bytes).len()).collect();
        // The version, and the experiment; the version, the start, a report each, the best, and the end.
        assert_eq!(counts, [2, 6, 6, 3, 5, 6]);
    }

    #[test]
    fn values_and_names_are_in_the_records() {
        let files = files(&table());
        let has = |file: usize, text: &str| files[file].1.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert!(has(0, "units=int:16..64:16 if optimizer=adam") && has(0, "digits & more"));
        assert!(has(2, "_hparams_/session_start_info") && has(2, "adam") && !has(1, "units"));
    }
}

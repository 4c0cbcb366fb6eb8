use super::what_if::{BadQuestion, Case};
use super::*;

/// Logistic regression on Higgs: 8 GB, 28 weights; ten scans of the data by ADMM.
fn higgs() -> Work {
    Work {
        data: 8_000.0,
        model: 224e-6,
        epochs: 10.0,
        scaling: Curve::default(),
        compute: Measured::exactly(96.0),
        rounds: Rounds::Admm { scans: 10 },
        pattern: Pattern::Scatter,
    }
}

fn constants(name: &str) -> Constants {
    constants::preset(name).unwrap()
}

#[track_caller]
fn is_within(ours: f64, theirs: f64, part: f64) {
    assert!((ours / theirs - 1.0).abs() <= part, "{ours} is not within {part} of {theirs}");
}

/// LambdaML, table 3, from the constants of table 6. Ten workers and large models come out within 5 % for the leader and
/// within 29 % for scatter-reduce. Fifty workers with 224 bytes are nothing but latency, which the paper gives as 80 ms
/// ± 20: there the model is off by half for the leader.
#[test]
fn the_papers_rounds_through_s3_are_reproduced() {
    let s3 = constants("faas-s3").channel.rate(0.0);
    is_within(Pattern::Leader.seconds(10, 89.0, s3), 17.3, 0.01);
    is_within(Pattern::Leader.seconds(10, 12.0, s3), 3.3, 0.05);
    is_within(Pattern::Scatter.seconds(10, 12.0, s3), 3.1, 0.12);
    is_within(Pattern::Scatter.seconds(10, 89.0, s3), 8.5, 0.29);
    is_within(Pattern::Scatter.seconds(50, 224e-6, s3), 9.8, 0.21);
    is_within(Pattern::Leader.seconds(50, 224e-6, s3), 9.2, 0.55);
}

/// LambdaML, section 5.1.1: one machine 960 s, ten functions 107 s.
#[test]
fn the_papers_time_of_ten_functions_follows_from_that_of_one_machine() {
    let predicted = predict(&constants("faas-s3"), &higgs(), 10);
    is_within(predicted.seconds, 107.0, 0.05);
    assert!(predicted.least < predicted.seconds && predicted.seconds < predicted.most);
    assert!(predicted.why().contains("computing"), "{}", predicted.why());
}

/// LambdaML, table 5: ten functions take 96 s, which leaves 80 s for computing, and ten machines 233 s.
#[test]
fn the_papers_time_of_machines_follows_from_that_of_functions() {
    let faas = constants("faas-s3");
    let rest = predict(&faas, &Work { compute: Measured::exactly(0.0), ..higgs() }, 10).seconds;
    let work = Work { compute: Measured::exactly(96.0 - rest), ..higgs() };
    is_within(predict(&faas, &work, 10).seconds, 96.0, 1e-9);
    let machines = predict(&constants("iaas-t2"), &Work { pattern: Pattern::Ring, ..work.clone() }, 10);
    is_within(machines.seconds, 233.0, 0.04);
    // Ten jobs at once, as in the table.
    is_within(10.0 * machines.cost, 0.31, 0.1);
    is_within(10.0 * predict(&faas, &work, 10).cost, 0.47, 0.035);
}

#[test]
fn rounds_are_counted_by_rule() {
    let samples = 45_000;
    assert_eq!(Rounds::Gradient { samples, batch: 128 }.per_epoch(10), 36.0);
    assert_eq!(Rounds::KAverage { samples, batch: 128, k: 16 }.per_epoch(10), 3.0);
    assert_eq!(Rounds::Model.per_epoch(10), 1.0);
    assert_eq!(Rounds::Admm { scans: 10 }.per_epoch(10), 0.1);
}

#[test]
fn one_worker_exchanges_nothing_and_loads_all() {
    let predicted = predict(&constants("faas-s3"), &higgs(), 1);
    assert_eq!(predicted.stages.communicate, 0.0);
    is_within(predicted.stages.load, 8_000.0 / 65.0, 0.01);
    is_within(predicted.stages.compute, 960.0, 1e-12);
}

#[test]
fn more_epochs_with_more_workers_come_from_the_curve() {
    let work = Work { scaling: Curve(vec![(1, 1.0), (11, 2.0)]), ..higgs() };
    assert_eq!(predict(&constants("faas-s3"), &work, 6).epochs, 15.0);
    let starts = constants("faas-s3").start;
    assert_eq!((starts.at(1), starts.at(10)), (Some(1.2), Some(1.2)));
    is_within(starts.at(30).unwrap(), 6.1, 1e-9);
    is_within(starts.at(300).unwrap(), 52.0, 1e-9);
    assert_eq!(Curve::default().at(3), None);
}

#[test]
fn presets_are_checked_and_survive_being_written() {
    for name in constants::PRESETS {
        let constants = constants(name);
        constants.check().unwrap();
        let written = serde_json::to_string(&constants).unwrap();
        assert_eq!(serde_json::from_str::<Constants>(&written).unwrap(), constants);
    }
    assert!(constants::preset("gpu").unwrap_err().to_string().contains("`iaas-t2`"));
    let mut wrong = constants("faas-s3");
    wrong.channel.bandwidth.value = 0.0;
    assert!(wrong.check().unwrap_err().to_string().contains("`channel bandwidth` is 0"));
    let mut wrong = constants("faas-s3");
    wrong.start.0.reverse();
    assert!(wrong.check().unwrap_err().to_string().contains("100 workers"));
}

fn case() -> Case {
    Case { constants: constants("faas-s3"), work: Work { model: 89.0, rounds: Rounds::Model, ..higgs() }, workers: 10 }
}

#[test]
fn a_faster_network_shortens_only_the_exchange() {
    let mut asked = case();
    asked.ask("bandwidth=10GB/s").unwrap();
    asked.ask("latency=1ms").unwrap();
    let (before, after) = (predict(&case().constants, &case().work, 10), predict(&asked.constants, &asked.work, 10));
    is_within(after.stages.communicate, 10.0 * 28.0 * (8.9 / 10_000.0 + 1e-3), 1e-9);
    assert!(before.stages.communicate > 60.0);
    assert_eq!((before.stages.load, before.stages.compute), (after.stages.load, after.stages.compute));
}

#[test]
fn every_word_changes_what_it_names() {
    let questions = [
        "bandwidth=1GiB/s",
        "latency=0ms",
        "storage-bandwidth=2GB/s",
        "storage-latency=30us",
        "start=1.5m",
        "workers=50",
        "epochs=20",
        "compute=1h",
        "model=12 MB",
        "data=0B",
        "price=2e-5",
    ];
    for question in questions {
        let mut asked = case();
        asked.ask(question).unwrap();
        assert_ne!(asked, case(), "{question}");
    }
}

#[test]
fn a_question_without_an_answer_says_how_it_is_asked() {
    for (question, words) in [
        ("bandwidth", "write `NAME=VALUE`"),
        ("speed=3", "`storage-latency`"),
        ("bandwidth=10", "as in `bandwidth=10GB/s`"),
        ("bandwidth=0GB/s", "as in `bandwidth=10GB/s`"),
        ("latency=-1ms", "as in `latency=1ms`"),
        ("latency=infs", "as in `latency=1ms`"),
        ("epochs=1e1.5", "as in `epochs=20`"),
        ("workers=0", "as in `workers=50`"),
        ("workers=many", "as in `workers=50`"),
        ("price=NaN", "as in `price=0.00002`"),
    ] {
        let mut asked = case();
        let error: BadQuestion = asked.ask(question).unwrap_err();
        assert!(error.to_string().contains(words), "{question}: {error}");
        assert_eq!(asked, case());
    }
}

use super::*;

fn texts(sweep: &Sweep) -> Vec<String> {
    sweep.parameters.iter().map(Parameter::to_string).collect()
}

#[test]
fn a_sweep_of_theirs_is_a_search_of_ours() {
    let text = "\
program: train.py
method: bayes
name: my-sweep
metric:
  name: accuracy
  goal: maximize
  target: 0.99
parameters:
  lr:
    distribution: log_uniform_values
    min: 1e-4
    max: 1e-1
  batch:
    values: [32, 64, 128]
  optimizer:
    values: ['sgd', \"adam\"]
  layers: {min: 1, max: 4}
  units3: {min: 16, max: 256, q: 16, if: layers>=3}
  dropout: {min: 0.0, max: 0.5}
  width: {distribution: q_log_uniform_values, min: 16, max: 1024}
  momentum: {value: 0.9}
early_terminate:
  type: hyperband
  min_iter: 2
  eta: 4
  s: 2
run_cap: 40
";
    let sweep = Sweep::read(text).unwrap();
    assert_eq!(
        texts(&sweep),
        [
            "lr=log:0.0001..0.1",
            "batch=32|64|128",
            "optimizer=sgd|adam",
            "layers=int:1..4",
            "units3=int:16..256:16 if layers>=3",
            "dropout=0.0..0.5",
            "width=int:log:16..1024",
            "momentum=0.9",
        ]
    );
    assert_eq!(sweep.sampler, Some(SamplerKind::Auto));
    assert_eq!(sweep.pruner, Some(Pruner::Hyperband(4)));
    assert_eq!((sweep.goal.as_deref(), sweep.direction), (Some("accuracy"), Some(Direction::Maximise)));
    assert_eq!((sweep.target, sweep.trials, sweep.least_epochs, sweep.epochs), (Some(0.99), Some(40), Some(2), None));
    assert_eq!(sweep.ignored, ["program", "name", "early_terminate.s"]);
}

#[test]
fn older_and_rarer_forms_are_taken() {
    let text = "\
method: grid
parameters:
  lr: {distribution: log_uniform, min: -9.210340371976182, max: 0}
  steps: {distribution: q_uniform, min: 0, max: 1, q: 0.25}
  size: {distribution: q_uniform, min: 10, max: 99, q: 20}
  flag: {values: [true, false]}
  only: {values: [7]}
";
    let sweep = Sweep::read(text).unwrap();
    let texts = texts(&sweep);
    assert!(texts[0].starts_with("lr=log:0.0001") || texts[0].starts_with("lr=log:0.00009999"), "{}", texts[0]);
    assert_eq!(texts[1..], ["steps=0.0..1.0:0.25", "size=int:10..90:20", "flag=true|false", "only=7"]);
    assert_eq!(sweep.sampler, Some(SamplerKind::Grid(5)));
}

#[test]
fn what_is_wrong_is_named_with_its_key_and_its_line() {
    let parameter = |body: &str| format!("method: random\nparameters:\n  lr:\n    {body}\n");
    for (text, line, parts) in [
        ("method: random\n".to_owned(), 1, ["parameters", "nothing to search"]),
        ("methods: random\n".to_owned(), 1, ["methods", "there is no such key"]),
        ("method: genetic\nparameters: {a: {value: 1}}\n".to_owned(), 1, ["method", "`cma-es`"]),
        ("metric: accuracy\n".to_owned(), 1, ["metric", "map is expected"]),
        ("metric:\n  name: a\n  goal: up\n".to_owned(), 3, ["metric.goal", "neither `maximize`"]),
        ("metric: {target: nan}\n".to_owned(), 1, ["metric.target", "no finite number"]),
        ("run_cap: 0\n".to_owned(), 1, ["run_cap", "whole number from 1"]),
        ("early_terminate: {eta: 3}\n".to_owned(), 1, ["early_terminate.type", "missing"]),
        ("early_terminate:\n  type: envelope\n".to_owned(), 2, ["early_terminate.type", "`hyperband:3`"]),
        ("early_terminate: {type: hyperband, eta: 1}\n".to_owned(), 1, ["early_terminate.type", "no pruner"]),
        (parameter("min: 1"), 3, ["parameters.lr", "`min` and `max`"]),
        (parameter("{min: 1, max: 2, values: [1]}"), 3, ["parameters.lr", "either"]),
        (parameter("{min: 2.5, max: 1.5}"), 3, ["parameters.lr", "wrong way round"]),
        (parameter("{distribution: normal, min: 1, max: 2}"), 4, ["parameters.lr.distribution", "`uniform`"]),
        (parameter("{distribution: odd, min: 1, max: 2}"), 4, ["parameters.lr.distribution", "`int_uniform`"]),
        (parameter("{mu: 1}"), 4, ["parameters.lr.mu", "`min` and `max`"]),
        (parameter("{distribution: log_uniform_values, min: 0, max: 1}"), 3, ["parameters.lr", "above zero"]),
        (parameter("{distribution: int_uniform, min: 1.5, max: 3}"), 4, ["parameters.lr.min", "no whole number"]),
        (parameter("{distribution: uniform, min: 1}"), 4, ["parameters.lr.max", "missing"]),
        (parameter("{distribution: uniform, min: a, max: 3}"), 4, ["parameters.lr.min", "no finite number"]),
        (parameter("{distribution: q_log_uniform_values, min: 1, max: 8, q: 2}"), 4, ["parameters.lr.q", "steps of 1"]),
        (parameter("{values: []}"), 4, ["parameters.lr.values", "empty"]),
        (parameter("{values: 3}"), 4, ["parameters.lr.values", "list is expected"]),
        (parameter("{values: [1, 1.0]}"), 4, ["parameters.lr.values", "twice"]),
        (parameter("{values: [a|b, c]}"), 3, ["parameters.lr", "told apart"]),
        (parameter("{values: [1, 2], probabilities: [0.1, 0.9]}"), 4, ["parameters.lr.probabilities", "as likely"]),
        (parameter("{parameters: {a: {value: 1}}}"), 4, ["parameters.lr.parameters", "name of its own"]),
        (parameter("{min: 1, max: 2, if: layers}"), 3, ["parameters.lr", "compares nothing"]),
        (parameter("{min: 1, max: 2, lok: true}"), 4, ["parameters.lr.lok", "there is no such key"]),
    ] {
        let error = Sweep::read(&text).unwrap_err();
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{text}: {error}");
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("line {line}: `{}", parts[0])), "{error}");
    }
}

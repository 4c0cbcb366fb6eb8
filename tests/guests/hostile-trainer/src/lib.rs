//! A trainer that misbehaves as its hyper-parameter `harm` tells it to, for tests of what the host does about it. With
//! `none` it is a linear classifier of twenty numbers into two classes.
//!
//! What can be done in any call is done in the one that `when` names: see [`harm`]. The others belong to one call. What it
//! says of itself has no parameters to follow: there, the seed says what to do (see [`describe`]).
//!
//! | in         | `harm`           | what it does                                                           |
//! |------------|------------------|------------------------------------------------------------------------|
//! | `init`     | `twice`          | declares a name a second time                                          |
//! |            | `changing`       | declares a weight whose size differs from instance to instance         |
//! |            | `growing`        | declares a weight that is larger in each instance                      |
//! |            | `many`           | declares 100,000 tensors                                               |
//! |            | `no-name`, `long-name`, `odd-name` | declares a tensor by such a name                     |
//! |            | `no-number`      | declares a weight that is NaN at first                                 |
//! |            | `vast`           | declares a weight of a terabyte                                        |
//! |            | `early`          | computes with a weight that has no value yet                           |
//! |            | `no-norm`        | clips gradients to a norm below zero                                   |
//! |            | `no-steps`       | lowers the learning rate over no steps at all                          |
//! | `step`     | `tape`           | records operations for ever                                            |
//! |            | `tape-of-views`  | records views, which take no device memory, for ever                   |
//! |            | `operands`       | joins the same tensor of nothing with itself 2,000 times               |
//! |            | `deep`           | goes back through 100,000 operations, which is allowed                 |
//! |            | `backward-twice` | goes back from the same loss a second time                             |
//! |            | `no-backward`    | never goes back from its loss                                          |
//! |            | `backward-of-nothing` | goes back from a loss that descends from no weight                |
//! |            | `overwrite`      | changes a weight between its use and `backward`                        |
//! |            | `nan`            | has a loss that is NaN                                                 |
//! |            | `weight-nan`     | assigns NaN to a weight, after its loss                                 |
//! |            | `vector-loss`, `whole-loss` | has a loss of several numbers, or of a whole one            |
//! |            | `declared-loss`  | gives back a weight as its loss                                        |
//! |            | `samples`        | says that it saw more samples than it was given                        |
//! |            | `straggle`       | as worker 1 never comes to an end of the second epoch                  |
//! |            | `slow-leak`      | keeps a few thousand tensors of each step                              |
//! | `evaluate` | `metric-twice`   | measures the same twice                                                |
//! |            | `vector-metric`  | measures several numbers as one                                        |
//! |            | `metric-name`    | gives a metric a name of a mebibyte                                    |
//! |            | `metric-control` | gives a metric a name with a line break                                |
//! |            | `metrics`        | measures 65 things                                                     |
//! |            | `new-metrics`    | measures other things in each call                                     |
//! | `infer`    | `rows`           | leaves a sample out                                                    |
//! |            | `empty-rows`     | gives rows of nothing                                                  |
//! |            | `wide-rows`      | gives rows of a megabyte                                               |

use std::cell::RefCell;

use weft_sdk::hyper::{HyperParameter, Setting};
use weft_sdk::model::Initial;
use weft_sdk::nn::{Linear, Mode};
use weft_sdk::optim::{self, Sgd};
use weft_sdk::tensor::TensorType;
use weft_sdk::{HyperParameters, Metric, Path, Report, Result, Tensor, Trainer, data, job};

mod describe;
mod harm;

#[derive(HyperParameters)]
struct Known {
    /// What to do; `none` for nothing.
    #[hyper(default = "none")]
    harm: String,
    /// In which call to do it.
    #[hyper(default = "step", choices = ["init", "step", "update", "evaluate", "infer"])]
    when: String,
}

struct Parameters(Known);

impl HyperParameters for Parameters {
    fn describe() -> Vec<HyperParameter> {
        describe::with_harm(Known::describe(), job::seed())
    }

    fn parse(settings: Vec<Setting>) -> Result<Self> {
        let known = |setting: &Setting| ["harm", "when"].contains(&setting.name.as_str());
        Known::parse(settings.into_iter().filter(known).collect()).map(Self)
    }
}

struct Hostile {
    harm: String,
    when: String,
    linear: Linear,
    scale: Tensor,
    offsets: Tensor,
    kept: RefCell<Vec<Tensor>>,
}

/// Does harm, if it is told to.
#[weft_sdk::trainer]
impl Trainer for Hostile {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters(Known { harm, when }) = parameters;
        Sgd::default().declare()?;
        let linear = Linear::new(path, 20, 2)?;
        let scale = path.weight("scale", &[], Initial::Constant(1.0))?;
        let offsets = path.weight("offsets", &[2], Initial::Constant(0.0))?;
        declare(&harm, path, &scale)?;
        if when == "init" {
            harm::does(&harm)?;
        }
        Ok(Self { harm, when, linear, scale, offsets, kept: RefCell::default() })
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.linear.forward(x)?.mul(&self.scale)?.add(&self.offsets)
    }

    fn step(&self) -> Result<Report> {
        self.harm_in("step")?;
        let output = self.output(Mode::Training)?;
        let loss = self.loss(&output, &data::labels()?)?;
        let samples = data::samples();
        let report = |loss| Ok(Report { loss, samples });
        match self.harm.as_str() {
            "tape" => loop {
                self.grow(&loss, 1 << 16)?;
            },
            "tape-of-views" => {
                let mut view = loss.reshape(&[1])?;
                loop {
                    view = view.reshape(&[1, 1])?.reshape(&[1])?;
                }
            }
            "operands" => {
                let nothing = self.scale.reshape(&[1])?.narrow(0, 0, 0)?;
                Tensor::concat(&vec![&nothing; 2_000], 0)?;
            }
            "deep" => self.grow(&loss, 100_000)?.backward()?,
            "backward-twice" => {
                loss.backward()?;
                loss.backward()?;
            }
            "backward-of-nothing" => loss.detach()?.backward()?,
            "overwrite" => {
                self.scale.assign(&Tensor::scalar(2.0)?)?;
                loss.backward()?;
            }
            "straggle" if (job::worker(), job::epoch()) == (1, 1) => harm::does("loop")?,
            "nan" => {
                loss.backward()?;
                return report(loss.affine(0.0, -1.0)?.log()?);
            }
            "no-backward" => return report(loss),
            "weight-nan" => {
                loss.backward()?;
                self.scale.assign(&Tensor::scalar(f32::NAN)?)?;
            }
            "vector-loss" => return report(loss.expand(&[3])?),
            "whole-loss" => return report(loss.cast(TensorType::I32)?),
            "declared-loss" => return report(self.offsets.clone()),
            "samples" => {
                loss.backward()?;
                return Ok(Report { loss, samples: samples + 1 });
            }
            "slow-leak" => {
                for _ in 0..5_000 {
                    self.kept.borrow_mut().push(Tensor::scalar(1.0)?);
                }
                loss.backward()?;
            }
            _ => loss.backward()?,
        }
        report(loss)
    }

    fn update(&self) -> Result<()> {
        self.harm_in("update")
    }

    fn evaluate(&self) -> Result<Vec<Metric>> {
        self.harm_in("evaluate")?;
        let output = self.output(Mode::Evaluation)?;
        let loss = self.loss(&output, &data::labels()?)?;
        Ok(match self.harm.as_str() {
            "metric-twice" => vec![Metric::loss(loss.clone()), Metric::loss(loss)],
            "metric-name" => vec![Metric::new("m".repeat(1 << 20), loss)],
            "metric-control" => vec![Metric::new("a\nb", loss)],
            "metrics" => (0..65).map(|number| Metric::new(format!("m{number}"), loss.clone())).collect(),
            "new-metrics" => {
                let call: f32 = data::features()?.sum()?.item()?;
                (0..60).map(|number| Metric::new(format!("m{number}-{call}"), loss.clone())).collect()
            }
            "vector-metric" => vec![Metric::new("outputs", output)],
            _ => vec![Metric::loss(loss)],
        })
    }

    fn infer(&self) -> Result<Tensor> {
        self.harm_in("infer")?;
        let output = self.output(Mode::Evaluation)?;
        match self.harm.as_str() {
            "rows" => output.narrow(0, 0, output.size(0) - 1),
            "empty-rows" => output.narrow(1, 0, 0),
            "wide-rows" => output.narrow(1, 0, 1)?.expand(&[output.size(0), 1 << 18]),
            _ => Ok(output),
        }
    }
}

/// The harm that only `init` can do.
fn declare(harm: &str, path: &Path, scale: &Tensor) -> Result<()> {
    let weight = |name: &str, dimensions: &[u32]| path.weight(name, dimensions, Initial::Constant(0.0)).map(drop);
    match harm {
        "twice" => weight("scale", &[]),
        "changing" => weight("other", &[1 + job::id().bytes().map(u32::from).sum::<u32>() % 7]),
        "growing" => weight("other", &[(1 + u32::from_str_radix(&job::id(), 16).unwrap_or(0)) << 16]),
        "many" => (0..100_000).try_for_each(|number| weight(&number.to_string(), &[1])),
        "no-name" => weight("", &[1]),
        "long-name" => weight(&"long".repeat(10_000), &[1]),
        "odd-name" => weight("../\u{202e}\0", &[1]),
        "no-number" => path.weight("other", &[1], Initial::Constant(f32::NAN)).map(drop),
        "vast" => weight("other", &[1 << 19, 1 << 19]),
        "early" => scale.exp().map(drop),
        "no-norm" => optim::clip_gradients(-1.0),
        "no-steps" => optim::Schedule::cosine(0, 0.5).declare(),
        _ => Ok(()),
    }
}

impl Hostile {
    fn harm_in(&self, call: &str) -> Result<()> {
        if self.when == call { harm::does(&self.harm) } else { Ok(()) }
    }

    /// `x` after so many more recorded operations, all of them still held by the tape.
    fn grow(&self, x: &Tensor, operations: u32) -> Result<Tensor> {
        let mut x = x.clone();
        for _ in 0..operations {
            x = x.mul(&self.scale)?;
        }
        self.kept.borrow_mut().push(x.clone());
        Ok(x)
    }
}

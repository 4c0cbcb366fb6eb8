//! A pole to be balanced on a cart, learned by policy gradient: a trainer that makes its own data.
//!
//! 4 numbers in, 64 hidden ones, 2 actions: 450 parameters. A step plays `episodes` of at most 200 moves by the policy as
//! it is, and then makes moves that were followed by more than usual likelier (REINFORCE, the returns normalized over the
//! batch). The metric `reward` is the mean length of an episode; the task counts as solved from 195 on, which expect
//! within some hundred steps at a learning rate of 0.01.
//!
//! The policy is asked thousands of times per step, so its weights are read once and it is computed here; the device
//! does the one pass that gradients are needed of.

use weft_sdk::nn::{Activation, Linear, LinearConfig, Mode};
use weft_sdk::optim::{self, Adam};
use weft_sdk::{Context, HyperParameters, Metric, Path, Report, Result, Tensor, Trainer, job};

mod cart;
mod policy;

use cart::Cart;
use policy::Policy;

#[derive(HyperParameters)]
struct Parameters {
    /// How many episodes a step plays.
    #[hyper(default = 16, low = 1, high = 1024)]
    episodes: u32,
    /// How many moves an episode has at most.
    #[hyper(default = 200, low = 1, high = 10000)]
    moves: u32,
    /// How much less a reward counts for each move that it is away.
    #[hyper(default = 0.99, low = 0.0, high = 1.0)]
    discount: f32,
    /// How wide the hidden layer is.
    #[hyper(default = 64, low = 1, high = 1024, log)]
    width: u32,
}

struct CartPole {
    hidden: Linear,
    last: Linear,
    episodes: u32,
    moves: u32,
    discount: f32,
}

/// Balances a pole on a cart, by policy gradient.
#[weft_sdk::trainer(makes_data, eager)]
impl Trainer for CartPole {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { episodes, moves, discount, width } = parameters;
        Adam::default().declare()?;
        optim::clip_gradients(1.0)?;
        Ok(Self {
            hidden: LinearConfig::new(4, width).activation(Activation::Tanh).init(&path.at("hidden"))?,
            last: Linear::new(&path.at("last"), width, 2)?,
            episodes,
            moves,
            discount,
        })
    }

    /// How much each of the two pushes is preferred.
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.last.forward(&self.hidden.forward(x)?)
    }

    fn step(&self) -> Result<Report> {
        let policy = self.policy()?;
        let mut played = Played::default();
        for _ in 0..self.episodes {
            played.episode(&policy, self.moves, self.discount);
        }
        played.normalize_returns();

        let count = played.actions.len() as u32;
        let states = Tensor::new(&played.states, &[count, 4])?;
        let actions = Tensor::new(&played.actions, &[count])?.one_hot(2)?;
        let returns = Tensor::new(&played.returns, &[count, 1])?;
        let chosen = self.forward(&states, Mode::Training)?.log_softmax()?.mul(&actions)?;
        let loss = chosen.mul(&returns)?.sum()?.affine(-1.0 / count as f32, 0.0)?;
        loss.backward()?;
        Ok(Report { loss, samples: count })
    }

    fn evaluate(&self) -> Result<Vec<Metric>> {
        let policy = self.policy()?;
        let lengths: u32 = (0..self.episodes).map(|_| Played::default().episode(&policy, self.moves, 1.0)).sum();
        let reward = lengths as f32 / self.episodes as f32;
        Ok(vec![Metric::loss(Tensor::scalar(-reward)?), Metric::new("reward", Tensor::scalar(reward)?)])
    }
}

impl CartPole {
    fn policy(&self) -> Result<Policy> {
        let layer = |layer: &Linear| -> Result<(Vec<f32>, Vec<f32>)> {
            let bias = layer.bias.as_ref().context("a linear layer has a bias")?;
            Ok((layer.weight.to_vec()?, bias.to_vec()?))
        };
        Ok(Policy::new(layer(&self.hidden)?, layer(&self.last)?))
    }
}

/// What came of playing, move after move.
#[derive(Default)]
struct Played {
    states: Vec<f32>,
    actions: Vec<u32>,
    /// The rewards from each move to the end of its episode, those that are far counting less.
    returns: Vec<f32>,
}

impl Played {
    /// Plays one episode to its end and says how long it was.
    fn episode(&mut self, policy: &Policy, moves: u32, discount: f32) -> u32 {
        let mut cart = Cart::new(job::random_f64);
        let begin = self.actions.len();
        while self.actions.len() - begin < moves as usize && !cart.has_fallen() {
            let state = cart.state();
            let right = job::random_f64() < f64::from(policy.probability_of_right(&state));
            self.states.extend(state);
            self.actions.push(u32::from(right));
            cart.push(right);
        }
        let length = self.actions.len() - begin;
        let mut following = 0.0;
        self.returns.resize(self.actions.len(), 0.0);
        for value in self.returns[begin..].iter_mut().rev() {
            following = 1.0 + discount * following;
            *value = following;
        }
        length as u32
    }

    /// To a mean of 0 and a deviation of 1, so that half of the moves count as better than usual.
    fn normalize_returns(&mut self) {
        let count = self.returns.len().max(1) as f32;
        let mean = self.returns.iter().sum::<f32>() / count;
        let variance = self.returns.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
        let scale = 1.0 / (variance.sqrt() + 1e-6);
        self.returns.iter_mut().for_each(|value| *value = (*value - mean) * scale);
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::native::{Batch, Session};

    use super::*;

    #[test]
    fn returns_count_what_follows_less_and_less() {
        let policy = Policy::new((vec![0.0; 4], vec![0.0]), (vec![0.0; 2], vec![0.0; 2]));
        let mut played = Played::default();
        let length = played.episode(&policy, 3, 0.5);
        assert_eq!((length, played.states.len(), played.actions.len()), (3, 12, 3));
        assert_eq!(played.returns, [1.75, 1.5, 1.0]);
        played.normalize_returns();
        assert!(played.returns.iter().sum::<f32>().abs() < 1e-4);
    }

    #[test]
    fn it_learns_to_balance_the_pole() {
        let mut session = Session::<CartPole>::new(&[]).unwrap();
        assert_eq!(session.parameters(), 450);
        let mut reward = 0.0;
        for step in 0..400 {
            session.step(&Batch::empty(), 0.01).unwrap();
            if step % 20 == 19 {
                reward = session.evaluate(&Batch::empty()).unwrap()["reward"];
                if reward >= 195.0 {
                    return;
                }
            }
        }
        panic!("{reward} after 400 steps");
    }
}

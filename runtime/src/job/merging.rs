//! What the contributions of a round become: one row of numbers, and then a model, as the job's rule says.

use std::ops::Range;
use std::sync::Arc;

use weft_core::sync::admm::{Local, Residuals, is_penalised};
use weft_core::sync::{Handover, Rule, Sync, merge};

use super::checkpoint::Training;
use super::contribution::Payload;
use super::model::{GlobalModel, WorkerState};
use super::numbers::Numbers;
use super::replica::Replica;
use super::team::{Contributions, Halt};
use crate::train::declared::{Plan, Role};

/// What all workers that took part handed over, as one.
#[derive(Debug, Default)]
pub struct Merged {
    /// A mean or a sum; nothing where nobody computed anything.
    pub numbers: Option<Vec<f32>>,
    pub buffers: Option<Vec<f32>>,
}

/// How the merged numbers become a model.
pub struct Merger {
    pub rule: Rule,
    pub exchange: Handover,
    /// Where the weights lie that are penalised, by a rule that does.
    penalised: Vec<Range<usize>>,
    /// Whether what workers send is encoded, and so a difference where it is weights.
    pub is_encoded: bool,
}

impl Merger {
    pub fn new(sync: &Sync, workers: u32, is_encoded: bool, plan: &Plan) -> Self {
        let weights = plan.places(Role::Weight).into_iter();
        let penalised = weights.filter(|(declaration, _)| is_penalised(&declaration.name, &sync.unpenalised));
        let penalised = penalised.map(|(_, range)| range).collect();
        Self { rule: sync.rule, exchange: sync.rule.exchange(workers), penalised, is_encoded }
    }

    /// Merges contributions that came here, in the order of the workers.
    pub fn merge(&self, contributions: &mut Contributions, replica: Option<&Replica>) -> Result<Merged, Halt> {
        for (_, contribution) in contributions.iter_mut() {
            if let Some(Payload::Encoded(encoded)) = &contribution.payload {
                let Some(replica) = replica else {
                    return Err(Halt::Failed("encoded numbers came, and nothing to decode them".to_owned()));
                };
                contribution.payload = Some(replica.decode(encoded)?.into());
            }
        }
        let mut parts: Vec<(&[f32], u64)> = Vec::new();
        for (_, contribution) in contributions.iter().filter(|(_, contribution)| contribution.samples > 0) {
            if let Some(Payload::Plain(numbers)) = &contribution.payload {
                parts.push((numbers, contribution.samples));
            }
        }
        let mut merged = Merged { numbers: None, buffers: Self::merge_buffers(contributions) };
        if let Some((first, _)) = parts.first() {
            let mut numbers = vec![0.0; first.len()];
            match self.exchange.is_sum() {
                true => merge::sum(&mut numbers, &parts.iter().map(|(part, _)| *part).collect::<Vec<_>>()),
                false => merge::mean(&mut numbers, &parts),
            }
            merged.numbers = Some(numbers);
        }
        Ok(merged)
    }

    /// The mean of buffers that came here.
    pub fn merge_buffers(contributions: &Contributions) -> Option<Vec<f32>> {
        let buffers: Vec<(&[f32], u64)> = contributions
            .iter()
            .filter(|(_, contribution)| contribution.samples > 0)
            .map(|(_, contribution)| (&contribution.buffers[..], contribution.samples))
            .collect();
        let mut means = vec![0.0; buffers.first()?.0.len()];
        merge::mean(&mut means, &buffers);
        Some(means)
    }

    /// Makes the next model of what was merged. Statistics are returned: a worker makes the model of them.
    pub fn apply(
        &self,
        merged: Merged,
        training: &mut Training,
        replica: Option<&mut Replica>,
    ) -> Result<Numbers, Halt> {
        let before = &training.model;
        let mut next = GlobalModel {
            weights: Numbers::default(),
            buffers: merged.buffers.map_or_else(|| before.buffers.clone(), Numbers::from),
            of: None,
            version: before.version + 1,
        };
        let mut statistics = Vec::new();
        next.weights = match merged.numbers {
            sum if self.exchange.is_sum() => {
                statistics = sum.unwrap_or_default();
                before.weights.clone()
            }
            None => before.weights.clone(),
            Some(gradients) if self.exchange.shares_optimizer() => match replica {
                Some(replica) => replica.descend(&gradients, training.progress.learning.rate)?.into(),
                None => return Err(Halt::Failed("there is no optimizer for the gradients".to_owned())),
            },
            Some(mut mean) => {
                if self.is_encoded && self.exchange.is_model() {
                    merge::add(&mut mean, &before.weights);
                }
                self.rule.finish(&mut mean, &self.penalised);
                mean.into()
            }
        };
        training.model = Arc::new(next);
        Ok(statistics.into())
    }

    /// What stays with workers goes on from here; one that was left out joins with the mean of the others' moments.
    pub fn take_worker_states(&self, contributions: &mut Contributions, training: &mut Training) {
        let states = &mut training.worker_states;
        let mut is_there = vec![false; states.len()];
        let mut samples = vec![0; states.len()];
        for (worker, contribution) in contributions.iter_mut() {
            let index = *worker as usize;
            if let (Some(place), Some(state)) = (states.get_mut(index), contribution.worker_state.take()) {
                *place = state;
                (is_there[index], samples[index]) = (true, contribution.samples);
            }
        }
        if is_there.iter().all(|there| *there) {
            return;
        }
        let parts: Vec<(&[f32], u64)> = states
            .iter()
            .zip(&samples)
            .filter(|(state, samples)| !state.moments.is_empty() && **samples > 0)
            .map(|(state, samples)| (&state.moments[..], *samples))
            .collect();
        let Some((first, _)) = parts.first() else { return };
        let mut moments = vec![0.0; first.len()];
        merge::mean(&mut moments, &parts);
        let there = states.iter().zip(&is_there).filter(|(_, there)| **there);
        let steps = there.map(|(state, _)| state.steps).max().unwrap_or(0);
        for (place, _) in states.iter_mut().zip(is_there).filter(|(_, there)| !there) {
            let WorkerState { locals, residual, weights, duals, .. } = WorkerState::clone(place);
            *place = Arc::new(WorkerState { moments: moments.clone(), steps, locals, residual, weights, duals });
        }
    }
}

/// The end of a round of workers that have duals: these grow by how far each worker is from the model, and its optimizer
/// begins anew. Says how far the workers are from agreeing.
pub fn grow_duals(rule: Rule, before: &GlobalModel, training: &mut Training, samples: &[u64]) -> Option<Residuals> {
    let model = training.model.clone();
    let locals: Vec<Local<'_>> = training
        .worker_states
        .iter()
        .zip(samples)
        .filter(|(state, samples)| !state.weights.is_empty() && **samples > 0)
        .map(|(state, samples)| Local { weights: &state.weights, duals: &state.duals, samples: *samples })
        .collect();
    let residuals = rule.residuals(&locals, &before.weights, &model.weights);
    for state in &mut training.worker_states {
        let state = Arc::make_mut(state);
        state.duals.resize(model.weights.len(), 0.0);
        if !state.weights.is_empty() {
            let distances = state.weights.iter().zip(&model.weights[..]).map(|(x, z)| x - z);
            state.duals.iter_mut().zip(distances).for_each(|(dual, distance)| *dual += distance);
        }
        state.moments.fill(0.0);
        state.steps = 0;
    }
    residuals
}

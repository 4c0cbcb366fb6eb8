//! Workers that exchange without functions: threads that do what the real machine orders, over any channel.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::Handle;
use weft::job::channel::Channel;
use weft::job::exchange::{Exchange, ExchangeTimes, MergeOutcome, Offer, Results, Scheme, Taken};
use weft_core::sync::barrier::{MergePart, MergeResult};
use weft_core::sync::{Action, Barrier, Event, OnLoss, Who};

/// How long nothing may be heard of any worker.
const SILENCE: Duration = Duration::from_secs(120);

/// What a worker is told.
enum Order {
    Send { round: u64, generation: u32 },
    Merge { round: u64, merge: usize, generation: u32, parts: Vec<MergePart>, total: u64 },
    Take { results: Arc<[MergeResult]> },
}

/// What it answers.
enum Answer {
    Event(Event),
    Taken { worker: u32, results: Results, times: ExchangeTimes },
    Failed(anyhow::Error),
}

/// One all-reduce.
pub struct Reduced {
    /// From the first order until the last worker had its results.
    pub took: Duration,
    /// By worker.
    pub results: Vec<Results>,
    pub times: Vec<ExchangeTimes>,
}

/// Workers with a thread each. Worker i sends the i-th contribution, again in every round, over the i-th channel.
pub fn all_reduce(
    runtime: &Handle,
    scheme: &Scheme,
    channels: &[Arc<dyn Channel>],
    contributions: &[Offer],
    rounds: usize,
) -> Result<Vec<Reduced>> {
    std::thread::scope(|scope| {
        let (outbox, answers) = mpsc::channel();
        let mut orders = Vec::new();
        for (worker, (channel, contribution)) in (0..).zip(channels.iter().zip(contributions)) {
            let (sender, inbox) = mpsc::channel();
            orders.push(sender);
            let who = Who { worker, claim: 1 };
            let exchange = Exchange::new(who, scheme.clone(), channel.clone());
            let (runtime, outbox) = (runtime.clone(), outbox.clone());
            scope.spawn(move || work(&runtime, exchange, who, contribution, &inbox, &outbox));
        }
        drop(outbox);
        let mut field = Field::new(scheme, orders, answers);
        (0..rounds).map(|_| field.round(runtime, &channels[0])).collect()
    })
}

/// Until nobody has orders any more.
fn work(
    runtime: &Handle,
    mut exchange: Exchange,
    who: Who,
    contribution: &Offer,
    inbox: &Receiver<Order>,
    outbox: &Sender<Answer>,
) {
    for order in inbox {
        let answer = runtime.block_on(obey(&mut exchange, who, contribution, order));
        // An error is a field that has given up.
        outbox.send(answer.unwrap_or_else(Answer::Failed)).ok();
    }
}

async fn obey(exchange: &mut Exchange, who: Who, contribution: &Offer, order: Order) -> Result<Answer> {
    Ok(Answer::Event(match order {
        Order::Send { round, generation } => {
            exchange.send(round, contribution.clone()).await?;
            Event::Trained { who, round, generation, samples: contribution.samples }
        }
        Order::Merge { round, merge, generation, parts, total } => match exchange.merge(merge, &parts, total).await? {
            MergeOutcome::Done => Event::Merged { who, round, merge, generation },
            MergeOutcome::Missing(sources) => Event::Missing { who, round, merge, generation, sources },
        },
        Order::Take { results } => match exchange.take(&results).await? {
            Taken::Done(results) => {
                return Ok(Answer::Taken { worker: who.worker, results, times: exchange.take_times() });
            }
            Taken::Missing(merges) => bail!("the results of merges {merges:?} are not there"),
        },
    }))
}

/// The coordinator's side.
struct Field {
    scheme: Scheme,
    barrier: Barrier,
    orders: Vec<Sender<Order>>,
    answers: Receiver<Answer>,
}

impl Field {
    fn new(scheme: &Scheme, orders: Vec<Sender<Order>>, answers: Receiver<Answer>) -> Self {
        let workers = scheme.plan.workers;
        let (mut barrier, _) = Barrier::new(workers, OnLoss::Wait, 3);
        for who in (0..workers).filter_map(|worker| barrier.claim(worker)).collect::<Vec<_>>() {
            barrier.handle(Event::Ready(who));
        }
        Self { scheme: scheme.clone(), barrier, orders, answers }
    }

    fn tell(&self, worker: u32, order: Order) -> Result<()> {
        self.orders[worker as usize].send(order).map_err(|_| anyhow!("worker {worker} is gone"))
    }

    fn hear(&self) -> Result<Answer> {
        match self.answers.recv_timeout(SILENCE).context("nothing was heard of any worker")? {
            Answer::Failed(error) => Err(error),
            answer => Ok(answer),
        }
    }

    fn round(&mut self, runtime: &Handle, channel: &Arc<dyn Channel>) -> Result<Reduced> {
        let began = Instant::now();
        let mut actions = self.barrier.begin(|_| true, Some(self.scheme.plan.clone()));
        let results = 'complete: loop {
            for action in actions {
                match action {
                    Action::Assign { who, round, generation } => {
                        self.tell(who.worker, Order::Send { round, generation })?;
                    }
                    Action::Merge { who, round, merge, generation, parts, total } => {
                        self.tell(who.worker, Order::Merge { round, merge, generation, parts, total })?;
                    }
                    Action::Complete { results, .. } => break 'complete results,
                    action => bail!("the machine wants {action:?}"),
                }
            }
            actions = match self.hear()? {
                Answer::Event(event) => self.barrier.handle(event),
                Answer::Taken { worker, .. } => bail!("worker {worker} took something before its time"),
                Answer::Failed(error) => return Err(error),
            };
        };
        let shared: Arc<[MergeResult]> = results.into();
        for worker in 0..self.scheme.plan.workers {
            self.tell(worker, Order::Take { results: shared.clone() })?;
        }
        let mut taken: Vec<Option<(Results, ExchangeTimes)>> = self.orders.iter().map(|_| None).collect();
        for _ in 0..taken.len() {
            match self.hear()? {
                Answer::Taken { worker, results, times } => taken[worker as usize] = Some((results, times)),
                _ => bail!("a worker does not take its results"),
            }
        }
        let took = began.elapsed();
        let (results, times) = taken.into_iter().flatten().unzip();
        // As a job does: the slots of a round go when the next one is complete.
        runtime.block_on(channel.forget(self.barrier.round().saturating_sub(1)))?;
        Ok(Reduced { took, results, times })
    }
}

//! All orders of events of one stretch, for few workers, rounds and losses.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::*;

#[derive(Clone)]
struct State {
    arrivals: Arrivals,
    /// What each worker will say.
    jobs: BTreeMap<Who, Event>,
    clocks: Vec<u64>,
    losses: u32,
    is_complete: bool,
}

type Key = ((Vec<Seat>, u64, bool), Vec<(Who, Event)>, u32);

impl State {
    fn key(&self) -> Key {
        let jobs = self.jobs.iter().map(|(who, event)| (*who, event.clone())).collect();
        (self.arrivals.essence(), jobs, self.losses)
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(who) => assert_eq!(self.jobs.insert(who, Event::Ready(who)), None),
                Action::Assign { who, stretch, clock } => {
                    assert_eq!(self.jobs.insert(who, Event::Done { who, stretch, clock }), None);
                }
                Action::Apply { worker, clock, .. } | Action::Average { who: Who { worker, .. }, clock, .. } => {
                    assert_eq!(self.clocks[worker as usize], clock, "once, and in order");
                    self.clocks[worker as usize] += 1;
                }
                Action::Complete { rounds, finished, .. } => {
                    assert!(rounds.iter().all(|(worker, count)| self.clocks[*worker as usize] == *count));
                    assert!(!finished.is_empty());
                    if self.arrivals.on_loss == OnLoss::Wait {
                        assert!(self.arrivals.places.iter().all(|place| place.clock == place.rounds));
                    }
                    self.is_complete = true;
                }
                Action::Abandon(who) => {
                    self.jobs.remove(&who);
                }
                Action::GiveUp { .. } => panic!("there are more attempts than losses"),
            }
        }
    }

    fn tell(&mut self, event: Event) {
        let actions = self.arrivals.handle(event.clone());
        self.obey(actions);
        // Whatever comes twice changes nothing.
        let before = self.arrivals.essence();
        assert_eq!(self.arrivals.handle(event), []);
        assert_eq!(self.arrivals.essence(), before);
    }
}

/// Looks at every state that a stretch can be in. Returns how many there are.
fn explore(rounds: &[u64], pace: LoosePace, on_loss: OnLoss, losses: u32) -> usize {
    let (arrivals, starts) = Arrivals::new(rounds.len() as u32, pace, on_loss, 100);
    let (jobs, clocks) = (BTreeMap::new(), vec![0; rounds.len()]);
    let mut first = State { arrivals, jobs, clocks, losses, is_complete: false };
    first.obey(starts);
    let actions = first.arrivals.begin(rounds);
    first.obey(actions);

    let mut numbers = HashMap::from([(first.key(), 0_usize)]);
    let mut queue = VecDeque::from([first]);
    // By state, in the order in which they are looked at: from which others it goes on to this one.
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut looked_at = 0;
    while let Some(state) = queue.pop_front() {
        let number = looked_at;
        looked_at += 1;
        if state.is_complete {
            ends.push(number);
            continue;
        }
        assert!(!state.jobs.is_empty(), "nothing will ever happen again: {:?}", state.arrivals);
        let mut next = Vec::new();
        for (who, event) in &state.jobs {
            let mut told = state.clone();
            told.jobs.remove(who);
            told.tell(event.clone());
            next.push((told, true));
        }
        for who in (0..rounds.len() as u32).filter_map(|worker| state.arrivals.claim(worker)) {
            if state.losses > 0 {
                let mut lost = state.clone();
                let unsaid = lost.jobs.remove(&who);
                lost.losses -= 1;
                lost.tell(Event::Lost(who));
                if let Some(event) = unsaid {
                    assert_eq!(lost.arrivals.handle(event), [], "an old claim counts nothing");
                }
                next.push((lost, false));
            }
        }
        for (next, is_good) in next {
            let fresh = numbers.len();
            let to = *numbers.entry(next.key()).or_insert(fresh);
            if to == fresh {
                before.push(Vec::new());
                queue.push_back(next);
            }
            if is_good {
                before[to].push(number);
            }
        }
    }
    // From everywhere it comes to an end if nothing more goes wrong.
    let mut ends_well = vec![false; before.len()];
    while let Some(number) = ends.pop() {
        if !std::mem::replace(&mut ends_well[number], true) {
            ends.extend(&before[number]);
        }
    }
    assert!(ends_well.iter().all(|ends| *ends), "{rounds:?}, {pace:?}, {on_loss:?}: a dead end");
    looked_at
}

fn explore_all(rounds: &[u64], losses: u32) {
    let quorum = |quorum, max_age| LoosePace::Quorum { quorum, max_age };
    let paces = [
        LoosePace::Staleness(0),
        LoosePace::Staleness(1),
        LoosePace::OnArrival,
        LoosePace::Overwrite,
        quorum(2, None),
        quorum(2, Some(0)),
        quorum(3, Some(1)),
    ];
    for (pace, on_loss) in paces.into_iter().flat_map(|pace| [(pace, OnLoss::Wait), (pace, OnLoss::Drop)]) {
        let states = explore(rounds, pace, on_loss, losses);
        println!("{rounds:?} rounds, {pace:?}, {on_loss:?}: {states} states");
        assert!(states > 20);
    }
}

#[test]
fn no_order_of_events_with_two_workers_is_a_dead_end() {
    explore_all(&[3, 3], 2);
    explore_all(&[1, 4], 2);
}

#[test]
fn no_order_of_events_with_three_workers_is_a_dead_end() {
    explore_all(&[2, 2, 2], 2);
    explore_all(&[3, 1, 2], 1);
}

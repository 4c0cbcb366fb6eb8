//! Every order of events that four guests and two turns can go through.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::super::{Keeps, Share, TeamId};
use super::*;

/// Where a guest is, as it knows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    /// Between two calls.
    Away,
    Waits(Ticket),
    /// It was woken, and has not begun.
    Woken(Ticket),
    Computes(TurnId),
}

/// What can happen to a guest, or to its turn, next.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin,
    /// It goes away while it waits, or before it has used what it was given.
    Cancel,
    Claim,
    /// It has used a little, or a lot, and wants to go on.
    Yield(u64),
    End,
    GiveUp,
    /// The ticker finds its turn overdue.
    Overdue,
    /// The ticker finds it inside a kernel.
    Aside,
    /// The ticker finds that it keeps a turn and does not use it.
    Idle,
}

const EVENTS: [Event; 10] = [
    Event::Begin,
    Event::Cancel,
    Event::Claim,
    Event::Yield(0),
    Event::Yield(200),
    Event::End,
    Event::GiveUp,
    Event::Overdue,
    Event::Aside,
    Event::Idle,
];

#[derive(Clone)]
struct World {
    state: State,
    cores: usize,
    shares: Vec<Arc<Share>>,
    guests: Vec<Guest>,
    now: Instant,
}

impl World {
    fn new(cores: usize, shares: Vec<Arc<Share>>) -> Self {
        let mut state = State::new(cores);
        for share in &shares {
            assert!(state.join(share));
        }
        let guests = vec![Guest::Away; shares.len()];
        Self { state, cores, shares, guests, now: Instant::now() }
    }

    /// Whether the event can happen now; if so it has.
    fn happens(&mut self, index: usize, event: Event) -> bool {
        let (share, now) = (self.shares[index].id, self.now);
        let used = Duration::from_millis;
        let kept = self.state.kept_by(self.state.members[&share]);
        match (event, self.guests[index]) {
            (Event::Begin, Guest::Away) => {
                self.guests[index] = match self.state.ask(share, now).unwrap() {
                    Asked::Turn(turn) => Guest::Computes(turn),
                    Asked::Waits(ticket) => Guest::Waits(ticket),
                };
            }
            (Event::Cancel, Guest::Waits(ticket) | Guest::Woken(ticket)) => {
                self.state.withdraw(ticket);
                self.guests[index] = Guest::Away;
            }
            (Event::Claim, Guest::Woken(ticket)) => {
                let turn = self.state.claim(ticket, now).expect("it was woken for a turn");
                self.guests[index] = Guest::Computes(turn);
            }
            (Event::Yield(milliseconds), Guest::Computes(turn)) => {
                let ticket = self.state.yields(turn, used(milliseconds)).expect("it has the turn");
                self.guests[index] = Guest::Waits(ticket);
            }
            (Event::End, Guest::Computes(turn)) => {
                self.state.ends(turn, used(1), now);
                self.guests[index] = Guest::Away;
            }
            (Event::GiveUp, Guest::Away) if kept.is_some() => self.state.gives_up(share),
            (Event::Overdue, Guest::Computes(turn)) => _ = self.state.is_relieved(turn),
            (Event::Aside, Guest::Computes(turn)) => _ = self.state.goes_aside(turn),
            (Event::Idle, Guest::Away) => match kept {
                Some(kept) => self.state.expires(kept),
                None => return false,
            },
            _ => return false,
        }
        for ticket in self.state.take_granted() {
            let woken = self.guests.iter_mut().find(|guest| **guest == Guest::Waits(ticket));
            *woken.expect("only one that waits is woken") = Guest::Woken(ticket);
        }
        true
    }

    fn count(&self, standing: impl Fn(&Standing) -> bool) -> usize {
        self.state.turns.values().filter(|turn| standing(&turn.standing)).count()
    }

    fn check(&self) {
        let context = || format!("{:?}, {:?}", self.guests, self.state.turns);
        let woken = self.guests.iter().filter(|guest| matches!(guest, Guest::Woken(_))).count();
        let waiting = self.guests.iter().filter(|guest| matches!(guest, Guest::Waits(_))).count();
        let had = self.count(|standing| matches!(standing, Standing::Held | Standing::Kept(_)));
        // None is lost, and none is made.
        assert_eq!(self.state.line.free() + had + woken, self.cores, "turns: {}", context());
        let relieved = self.count(|standing| *standing == Standing::Relieved);
        assert_eq!(self.state.reserves + relieved, self.cores, "reserves: {}", context());
        // The line agrees with the guests about who waits, and nobody waits while a turn is free.
        assert_eq!(self.state.waiting(), waiting, "in line: {}", context());
        assert!(self.state.line.free() == 0 || waiting == 0, "a turn is free: {}", context());
        // Who computes has a turn of its own, whatever became of it.
        for guest in &self.guests {
            if let Guest::Computes(turn) = guest {
                assert!(self.state.turns.contains_key(turn), "without a turn: {}", context());
            }
        }
    }

    /// What tells two states apart: who has what, and who is before whom.
    fn signature(&self) -> Vec<usize> {
        let members: Vec<Member> = self.shares.iter().map(|share| self.state.members[&share.id]).collect();
        let guests = self.guests.iter().zip(&members).flat_map(|(guest, &member)| {
            let standing = |turn: &TurnId| match self.state.turns[turn].standing {
                Standing::Held => 3,
                Standing::Left => 4,
                Standing::Relieved => 5,
                Standing::Kept(_) => 6,
            };
            let place = match guest {
                Guest::Away => 0,
                Guest::Waits(_) => 1,
                Guest::Woken(_) => 2,
                Guest::Computes(turn) => standing(turn),
            };
            let keeps = usize::from(self.state.kept_by(member).is_some());
            let behind = |other: &&Member| self.state.line.is_owed_more(**other, member, Duration::ZERO);
            [place, keeps, members.iter().filter(behind).count()]
        });
        guests.chain([self.state.reserves]).collect()
    }
}

/// Visits every state that can be reached, and checks each.
fn explore(world: World) -> usize {
    let mut seen = HashSet::from([world.signature()]);
    let mut open = VecDeque::from([world]);
    while let Some(world) = open.pop_front() {
        for guest in 0..world.guests.len() {
            for event in EVENTS {
                let mut next = world.clone();
                if next.happens(guest, event) {
                    next.check();
                    if seen.insert(next.signature()) {
                        open.push_back(next);
                    }
                }
            }
        }
    }
    seen.len()
}

fn weight() -> NonZeroU32 {
    NonZeroU32::new(32).unwrap()
}

#[test]
fn no_guest_waits_while_a_turn_is_free_whatever_the_order_of_events() {
    let team = TeamId::next();
    let guests = || {
        vec![
            Share::of_tenant("a"),
            Share::of_tenant("b"),
            Share::of_worker("b", weight(), team),
            Share::of_worker("c", weight(), team),
        ]
    };
    for cores in 1..=2 {
        let states = explore(World::new(cores, guests()));
        println!("{cores} turns: {states} states");
        assert!(states > 1_000, "{states} states");
    }
}

#[test]
fn workers_of_one_job_find_none_either() {
    let team = TeamId::next();
    let guests = (0..4).map(|_| Share::of_worker("a", weight(), team)).collect();
    let states = explore(World::new(2, guests));
    assert!(states > 1_000, "{states} states");
}

#[test]
fn a_relieved_guest_that_yields_after_the_other_left_goes_on() {
    let shares = vec![Share::of_tenant("a"), Share::of_tenant("b")];
    let mut world = World::new(1, shares);
    for (guest, event) in [
        (0, Event::Begin),
        (1, Event::Begin),
        (0, Event::Overdue),
        (1, Event::Claim),
        (1, Event::End),
        (0, Event::Yield(20)),
    ] {
        assert!(world.happens(guest, event), "{event:?}: {:?}", world.guests);
        world.check();
    }
    assert!(matches!(world.guests[0], Guest::Woken(_)), "{:?}", world.guests);
}

#[test]
fn a_guest_inside_a_kernel_leaves_its_turn_to_as_many_as_wait_for_it() {
    let shares = (0..4).map(|index| Share::new(&format!("tenant {index}"), weight(), Keeps::Never)).collect();
    let mut world = World::new(1, shares);
    (0..4).for_each(|guest| assert!(world.happens(guest, Event::Begin)));
    for guest in 0..3 {
        assert!(world.happens(guest, Event::Aside));
        let next = (0..4).find(|&guest| matches!(world.guests[guest], Guest::Woken(_))).expect("somebody is next");
        assert!(world.happens(next, Event::Claim));
        world.check();
    }
    let computing = world.guests.iter().filter(|guest| matches!(guest, Guest::Computes(_))).count();
    assert_eq!((computing, world.count(|standing| *standing == Standing::Left), world.state.reserves), (4, 3, 1));
}

#[test]
fn a_relieved_guest_that_enters_a_kernel_gives_its_reserve_back() {
    let shares = (0..2).map(|index| Share::new(&format!("tenant {index}"), weight(), Keeps::Never)).collect();
    let mut world = World::new(1, shares);
    for (guest, event) in [(0, Event::Begin), (1, Event::Begin), (0, Event::Overdue)] {
        assert!(world.happens(guest, event));
    }
    assert_eq!(world.state.reserves, 0);
    assert!(world.happens(0, Event::Aside));
    world.check();
    assert_eq!((world.state.reserves, world.count(|standing| *standing == Standing::Left)), (1, 1));
}

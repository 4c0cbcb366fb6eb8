//! Every order of events that a few who share can go through.

use std::collections::{HashSet, VecDeque};

use super::*;

/// One that takes part, and what it waits for or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Guest {
    Away,
    Waits(Ticket),
    /// It was told that it has its units, and has not claimed them.
    Told(Ticket),
    Holds,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Takes at once what is free, or waits.
    Begin,
    Withdraw,
    Claim,
    /// Used some time and goes on.
    Use,
    /// Goes back in line before it gives up what it has.
    Yield,
    End,
}

const EVENTS: [Event; 6] = [Event::Begin, Event::Withdraw, Event::Claim, Event::Use, Event::Yield, Event::End];

#[derive(Clone)]
struct World {
    line: Line,
    units: usize,
    members: Vec<(Member, usize)>,
    guests: Vec<Guest>,
}

impl World {
    /// One guest for each of these owners, with the units that it wants.
    fn new(units: usize, guests: &[(&str, usize)]) -> Self {
        let mut line = Line::new(units);
        let weight = NonZeroU32::new(2).unwrap();
        let members = guests.iter().map(|&(owner, wants)| (line.join(&Owner::from(owner), weight), wants)).collect();
        Self { line, units, members, guests: vec![Guest::Away; guests.len()] }
    }

    /// Whether the event can happen to this guest now; if so it has.
    fn happens(&mut self, guest: usize, event: Event) -> bool {
        let (member, wants) = self.members[guest];
        self.guests[guest] = match (event, self.guests[guest]) {
            (Event::Begin, Guest::Away) if self.line.take(member, wants) => Guest::Holds,
            (Event::Begin, Guest::Away) => Guest::Waits(self.line.ask(member, wants)),
            (Event::Withdraw, Guest::Waits(ticket) | Guest::Told(ticket)) => {
                self.line.withdraw(ticket);
                Guest::Away
            }
            (Event::Claim, Guest::Told(ticket)) => {
                assert!(self.line.claim(ticket), "it was told, but has nothing");
                Guest::Holds
            }
            (Event::Use, Guest::Holds) => {
                self.line.charge(member, Duration::from_millis(40));
                Guest::Holds
            }
            (Event::Yield, Guest::Holds) => {
                let ticket = self.line.ask(member, wants);
                self.line.release(member, wants);
                Guest::Waits(ticket)
            }
            (Event::End, Guest::Holds) => {
                self.line.release(member, wants);
                Guest::Away
            }
            _ => return false,
        };
        for ticket in self.line.take_granted() {
            let told = self.guests.iter_mut().find(|guest| **guest == Guest::Waits(ticket));
            *told.expect("only one that waits is given something") = Guest::Told(ticket);
        }
        true
    }

    fn check(&self) {
        let held: usize = (self.guests.iter().zip(&self.members))
            .filter(|(guest, _)| matches!(guest, Guest::Holds | Guest::Told(_)))
            .map(|(_, (_, wants))| wants)
            .sum();
        assert_eq!(self.line.free() + held, self.units, "{:?}", self.guests);
        if let Some(next) = self.line.next() {
            let wants = self.members.iter().find(|(member, _)| *member == next).unwrap().1;
            assert!(wants > self.line.free(), "{next:?} waits for what is free: {:?}", self.guests);
        }
        let waiting = self.guests.iter().filter(|guest| matches!(guest, Guest::Waits(_))).count();
        assert_eq!(waiting, self.line.waiting(), "one that waits is not in line");
    }

    /// What tells two states apart: who has what, and who is before whom.
    fn signature(&self) -> Vec<usize> {
        let state = self.guests.iter().map(|guest| match guest {
            Guest::Away => 0,
            Guest::Waits(_) => 1,
            Guest::Told(_) => 2,
            Guest::Holds => 3,
        });
        let ranks = self.members.iter().map(|&(member, _)| {
            let behind = |&&(other, _): &&(Member, usize)| self.line.is_owed_more(other, member, Duration::ZERO);
            self.members.iter().filter(behind).count()
        });
        state.chain(ranks).collect()
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

#[test]
fn nothing_is_free_while_the_next_in_line_waits_whatever_the_order_of_events() {
    for units in 1..=2 {
        let states = explore(World::new(units, &[("a", 1), ("a", 1), ("b", 1), ("c", 1)]));
        assert!(states > 500, "{states} states");
    }
}

#[test]
fn the_same_holds_where_some_want_more_units_than_others() {
    let states = explore(World::new(2, &[("a", 2), ("a", 1), ("b", 2), ("c", 1)]));
    assert!(states > 500, "{states} states");
}

#[test]
fn nobody_goes_past_one_that_needs_more_than_is_free() {
    let mut world = World::new(2, &[("a", 1), ("b", 2), ("c", 1)]);
    for guest in 0..3 {
        assert!(world.happens(guest, Event::Begin));
    }
    assert!(matches!(world.guests[..], [Guest::Holds, Guest::Waits(_), Guest::Waits(_)]));
    world.happens(0, Event::End);
    assert!(matches!(world.guests[..], [Guest::Away, Guest::Told(_), Guest::Waits(_)]));
}

//! Who waits for what there is not enough of (cores, turns), and who gets it next.
//!
//! Pure: no threads, no clock, no waking. There is one place where units change hands, [`Line::dispatch`], and every
//! change ends with it. So it cannot happen that something is free while the next in line waits, whatever the order of
//! events: nobody has to remember to look. Whom a change gave units is told by [`Line::take_granted`], for whoever keeps
//! the line to wake.
//!
//! Who is next is decided by [`Shares`]. Nobody goes past one that needs more units than are free: it would never get
//! them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::share::{Member, Owner, Shares};

/// A place in line. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub member: Member,
    /// Tickets of one member are served in the order in which they came.
    number: u64,
}

/// What is shared, who waits for it, and who was given some.
#[derive(Clone, Debug)]
pub struct Line {
    shares: Shares,
    free: usize,
    /// How many units each of those who wait wants.
    waiting: BTreeMap<Ticket, usize>,
    /// Those who were given units and have not claimed them yet.
    granted: BTreeMap<Ticket, usize>,
    /// Those of them whom nobody has been told of.
    news: Vec<Ticket>,
    /// How often each member waits, was given units, or holds some: it competes while that is not zero.
    engaged: BTreeMap<Member, usize>,
    asked: u64,
}

impl Line {
    pub fn new(units: usize) -> Self {
        Self {
            shares: Shares::default(),
            free: units,
            waiting: BTreeMap::new(),
            granted: BTreeMap::new(),
            news: Vec::new(),
            engaged: BTreeMap::new(),
            asked: 0,
        }
    }

    pub fn join(&mut self, owner: &Owner, weight: NonZeroU32) -> Member {
        self.shares.join(owner, weight)
    }

    /// The member neither waits nor holds anything any more.
    pub fn leave(&mut self, member: Member) {
        self.engaged.remove(&member);
        self.shares.leave(member);
    }

    /// Takes units at once, if nobody waits and there are enough.
    pub fn take(&mut self, member: Member, units: usize) -> bool {
        let taken = self.waiting.is_empty() && self.free >= units;
        if taken {
            self.free -= units;
            self.engage(member);
        }
        taken
    }

    /// Waits for units.
    pub fn ask(&mut self, member: Member, units: usize) -> Ticket {
        self.asked += 1;
        let ticket = Ticket { member, number: self.asked };
        self.waiting.insert(ticket, units);
        self.engage(member);
        self.dispatch();
        ticket
    }

    /// Whether the ticket was given its units, which from now on are its member's to release.
    pub fn claim(&mut self, ticket: Ticket) -> bool {
        self.granted.remove(&ticket).is_some()
    }

    /// The ticket is not wanted any more, whether it was given units or not.
    pub fn withdraw(&mut self, ticket: Ticket) {
        if self.waiting.remove(&ticket).is_some() {
            self.disengage(ticket.member);
        } else if let Some(units) = self.granted.remove(&ticket) {
            self.free += units;
            self.disengage(ticket.member);
        }
        self.dispatch();
    }

    /// Gives units back.
    pub fn release(&mut self, member: Member, units: usize) {
        self.free += units;
        self.disengage(member);
        self.dispatch();
    }

    /// Time that the member used.
    pub fn charge(&mut self, member: Member, used: Duration) {
        self.settle(member, Duration::ZERO, used);
    }

    /// Replaces what the member was charged in advance by what it used.
    pub fn settle(&mut self, member: Member, advance: Duration, used: Duration) {
        self.shares.settle(member, advance, used);
        // Who is next may be another now, who needs fewer units.
        self.dispatch();
    }

    /// Those who were given units since this was last asked.
    pub fn take_granted(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.news)
    }

    /// Who would get what this member gives back.
    pub fn next(&self) -> Option<Member> {
        self.shares.next_of(|member| self.is_waiting(member))
    }

    /// Whether somebody who waits is owed more than this member, or the member itself waits with another ticket.
    pub fn is_due(&self, member: Member) -> bool {
        let next = self.shares.next_of(|other| other == member || self.is_waiting(other));
        next != Some(member) || self.is_waiting(member)
    }

    /// Whether the member could use so much time and still be owed more than the other.
    pub fn is_owed_more(&self, member: Member, other: Member, by: Duration) -> bool {
        self.shares.is_owed_more(member, other, by)
    }

    pub fn is_waiting(&self, member: Member) -> bool {
        self.tickets_of(member).next().is_some()
    }

    /// The members that wait, each as often as it does.
    pub fn those_waiting(&self) -> impl Iterator<Item = Member> {
        self.waiting.keys().map(|ticket| ticket.member)
    }

    /// How many tickets wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn free(&self) -> usize {
        self.free
    }

    /// How many units are given and not claimed yet.
    pub fn unclaimed(&self) -> usize {
        self.granted.values().sum()
    }

    /// Whether there is nobody to share with.
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    fn tickets_of(&self, member: Member) -> impl Iterator<Item = (&Ticket, &usize)> {
        self.waiting.range(Ticket { member, number: 0 }..=Ticket { member, number: u64::MAX })
    }

    /// Gives free units to those who wait, in the order of what they are owed.
    fn dispatch(&mut self) {
        while self.free > 0
            && !self.waiting.is_empty()
            && let Some(member) = self.next()
        {
            let Some((&ticket, &units)) = self.tickets_of(member).next() else { return };
            if units > self.free {
                return;
            }
            self.waiting.remove(&ticket);
            self.free -= units;
            self.granted.insert(ticket, units);
            self.news.push(ticket);
        }
    }

    fn engage(&mut self, member: Member) {
        let engaged = self.engaged.entry(member).or_default();
        *engaged += 1;
        if *engaged == 1 {
            self.shares.ready(member);
        }
    }

    fn disengage(&mut self, member: Member) {
        let Some(engaged) = self.engaged.get_mut(&member) else { return };
        *engaged -= 1;
        if *engaged == 0 {
            // The entry of a member that has not left stays: it will be engaged again, most likely.
            if !self.shares.has(member) {
                self.engaged.remove(&member);
            }
            self.shares.idle(member);
        }
    }
}

#[cfg(test)]
mod tests;

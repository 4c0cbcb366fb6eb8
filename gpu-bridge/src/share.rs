//! Who is next: turns by weight.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// Somebody who shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u64);

/// Turns by weight.
#[derive(Debug, Default)]
pub struct Shares {
    members: BTreeMap<Member, (f64, f64, bool)>,
    next: u64,
    now: f64,
}

impl Shares {
    pub fn join(&mut self, weight: NonZeroU32) -> Member {
        let member = Member(self.next);
        self.next += 1;
        self.members.insert(member, (f64::from(weight.get()), self.now, false));
        member
    }

    pub fn leave(&mut self, member: Member) {
        self.members.remove(&member);
    }

    pub fn ready(&mut self, member: Member) {
        let now = self.now;
        if let Some((_, start, ready)) = self.members.get_mut(&member)
            && !*ready
        {
            *start = start.max(now);
            *ready = true;
        }
    }

    pub fn idle(&mut self, member: Member) {
        if let Some((.., ready)) = self.members.get_mut(&member) {
            *ready = false;
        }
    }

    pub fn next(&self) -> Option<Member> {
        let ready = self.members.iter().filter(|(_, (.., ready))| *ready);
        ready.min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1)).map(|(member, _)| *member)
    }

    pub fn charge(&mut self, member: Member, used: Duration) {
        if let Some((weight, start, _)) = self.members.get_mut(&member) {
            self.now = self.now.max(*start);
            *start += used.as_secs_f64() / *weight;
        }
    }
}

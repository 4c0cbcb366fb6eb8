//! Who is next: start-time fair queueing by weight.
//!
//! Pure: no threads and no clock, so a device of any kind can use it, and tests can run an hour in a moment. Each member
//! has a virtual time, which runs ahead by the device time it used divided by its weight; the one that is furthest
//! behind is owed most. Whoever comes back after idling starts at the present, less what it was owed, up to [`CREDIT`]:
//! idling earns no more than that. Without any, a member that always has work would lose its share whenever the system
//! takes its thread off a core between two calls, because from here that looks like idling.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

/// One that shares. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u64);

/// Nanoseconds of a member with weight 1, in parts so small that no weight rounds them away.
type Virtual = u128;

const PARTS: Virtual = 1 << 32;

/// The most device time that one that comes back may use before the others are owed as much as it is.
///
/// It must outlast what a system keeps a thread waiting for a core, some milliseconds, times the ratio of weights; and
/// for so long, one that comes back can keep the others waiting.
pub const CREDIT: Duration = Duration::from_millis(50);

/// The members of one device, and what each is owed.
#[derive(Debug, Default)]
pub struct Shares {
    members: BTreeMap<Member, State>,
    /// Those with work, by how far behind they are.
    ready: BTreeSet<(Virtual, Member)>,
    /// How far the one that is furthest behind has come. Never goes back.
    present: Virtual,
    joined: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    weight: NonZeroU32,
    time: Virtual,
    ready: bool,
}

impl Shares {
    /// A new member, idle at first.
    pub fn join(&mut self, weight: NonZeroU32) -> Member {
        let member = Member(self.joined);
        self.joined += 1;
        self.members.insert(member, State { weight, time: self.present, ready: false });
        member
    }

    pub fn leave(&mut self, member: Member) {
        self.idle(member);
        self.members.remove(&member);
    }

    /// The member has work: from now on it competes, with no more than its credit.
    pub fn ready(&mut self, member: Member) {
        if let Some(state) = self.members.get_mut(&member)
            && !state.ready
        {
            state.ready = true;
            state.time = state.time.max(self.present.saturating_sub(virtual_time(CREDIT, state.weight)));
            self.ready.insert((state.time, member));
        }
    }

    /// The member has no work. What it used beyond its share is remembered.
    pub fn idle(&mut self, member: Member) {
        if let Some(state) = self.members.get_mut(&member)
            && state.ready
        {
            state.ready = false;
            self.ready.remove(&(state.time, member));
            self.advance();
        }
    }

    /// The ready member that is owed most; of several, the one that joined first.
    pub fn next(&self) -> Option<Member> {
        self.next_of(|_| true)
    }

    /// The one that is owed most of those ready members that are `wanted`.
    pub fn next_of(&self, wanted: impl Fn(Member) -> bool) -> Option<Member> {
        self.ready.iter().map(|&(_, member)| member).find(|&member| wanted(member))
    }

    /// Device time that the member used.
    pub fn charge(&mut self, member: Member, used: Duration) {
        let Some(state) = self.members.get_mut(&member) else { return };
        let before = state.time;
        state.time = before.saturating_add(virtual_time(used, state.weight));
        if state.ready {
            self.ready.remove(&(before, member));
            self.ready.insert((state.time, member));
            self.advance();
        }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn advance(&mut self) {
        if let Some(&(time, _)) = self.ready.first() {
            self.present = self.present.max(time);
        }
    }
}

/// By how much a member's time runs ahead.
fn virtual_time(used: Duration, weight: NonZeroU32) -> Virtual {
    used.as_nanos().saturating_mul(PARTS) / Virtual::from(weight.get())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weight(weight: u32) -> NonZeroU32 {
        NonZeroU32::new(weight).unwrap()
    }

    /// Serves the one that is owed most, again and again, each time for what `cost` says.
    fn serve(shares: &mut Shares, turns: usize, cost: impl Fn(Member) -> u64) -> BTreeMap<Member, u64> {
        let mut served = BTreeMap::new();
        for _ in 0..turns {
            let member = shares.next().unwrap();
            shares.charge(member, Duration::from_nanos(cost(member)));
            *served.entry(member).or_default() += cost(member);
        }
        served
    }

    #[test]
    fn nobody_is_next_where_nobody_has_work() {
        let mut shares = Shares::default();
        let member = shares.join(weight(1));
        assert_eq!(shares.next(), None);
        shares.ready(member);
        assert_eq!(shares.next(), Some(member));
        shares.idle(member);
        assert_eq!(shares.next(), None);
        shares.leave(member);
        assert!(shares.is_empty());
    }

    #[test]
    fn of_two_that_are_owed_the_same_the_first_to_join_is_next() {
        let mut shares = Shares::default();
        let (first, second) = (shares.join(weight(1)), shares.join(weight(1)));
        shares.ready(second);
        shares.ready(first);
        assert_eq!(shares.next(), Some(first));
        assert_eq!(shares.next_of(|member| member != first), Some(second));
    }

    #[test]
    fn a_member_that_left_is_nobody() {
        let mut shares = Shares::default();
        let gone = shares.join(weight(1));
        shares.ready(gone);
        shares.leave(gone);
        shares.ready(gone);
        shares.charge(gone, Duration::from_secs(1));
        assert_eq!(shares.next(), None);
        assert_ne!(shares.join(weight(1)), gone);
    }

    #[test]
    fn going_idle_for_a_moment_does_not_forgive_what_was_used() {
        let mut shares = Shares::default();
        let (greedy, other) = (shares.join(weight(1)), shares.join(weight(1)));
        shares.ready(greedy);
        shares.ready(other);
        shares.charge(greedy, Duration::from_millis(5));
        shares.idle(greedy);
        shares.ready(greedy);
        assert_eq!(shares.next(), Some(other));
    }

    proptest! {
        #[test]
        fn long_runs_come_to_the_weights(
            members in prop::collection::vec((1_u32..1_000, 1_u64..1_000_000), 1..8),
        ) {
            let mut shares = Shares::default();
            let mut costs = BTreeMap::new();
            for &(share, cost) in &members {
                let member = shares.join(weight(share));
                shares.ready(member);
                costs.insert(member, (share, cost));
            }
            serve(&mut shares, 3_000, |member| costs[&member].1);
            // By how much two that always have work can differ, per weight: what each is served at once.
            let time = |member: &Member| shares.members[member].time / PARTS;
            for (a, &(a_weight, a_cost)) in &costs {
                for (b, &(b_weight, b_cost)) in &costs {
                    let bound = a_cost / u64::from(a_weight) + b_cost / u64::from(b_weight) + 3_000;
                    prop_assert!(time(a).abs_diff(time(b)) <= u128::from(bound));
                }
            }
        }

        #[test]
        fn idling_earns_no_more_than_the_credit(
            share in 1_u32..100,
            turns in 1_usize..500,
            cost in 10_000_u64..1_000_000,
        ) {
            let mut shares = Shares::default();
            let (busy, idler) = (shares.join(weight(1)), shares.join(weight(share)));
            shares.ready(busy);
            serve(&mut shares, turns, |_| cost);
            shares.ready(idler);
            // But for the credit, each gets its share of what follows, not of what was before.
            let credit = CREDIT.as_nanos() as u64;
            let turns = 4 * (share as usize + 1) + (credit / cost) as usize;
            let served = serve(&mut shares, turns, |_| cost);
            let (busy, idler) = (served.get(&busy).copied().unwrap_or(0), served[&idler]);
            prop_assert!(idler <= (busy + 2 * cost) * u64::from(share) + credit);
        }

        #[test]
        fn one_that_is_kept_from_its_core_between_calls_still_gets_its_share(
            share in 1_u32..4,
            absences in prop::collection::vec((1_u64..30, 1_u64..10), 20..40),
        ) {
            const MILLISECOND: u64 = 1_000_000;
            let mut shares = Shares::default();
            let (steady, unlucky) = (shares.join(weight(1)), shares.join(weight(share)));
            let (mut steady_time, mut unlucky_time) = (0, 0);
            shares.ready(steady);
            for (between, away) in absences {
                shares.ready(unlucky);
                for _ in 0..100 + between {
                    let member = shares.next().unwrap();
                    shares.charge(member, Duration::from_nanos(MILLISECOND));
                    *(if member == steady { &mut steady_time } else { &mut unlucky_time }) += MILLISECOND;
                }
                shares.idle(unlucky);
                shares.charge(steady, Duration::from_nanos(away * MILLISECOND));
                steady_time += away * MILLISECOND;
            }
            let ratio = unlucky_time as f64 / steady_time as f64 / f64::from(share);
            prop_assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
        }

        #[test]
        fn a_newcomer_neither_starves_nor_is_starved(
            weights in prop::collection::vec(1_u32..20, 1..6),
            newcomer in 1_u32..20,
            turns in 0_usize..300,
        ) {
            let mut shares = Shares::default();
            let old: Vec<Member> = weights.iter().map(|&share| shares.join(weight(share))).collect();
            old.iter().for_each(|&member| shares.ready(member));
            serve(&mut shares, turns, |_| 1_000);
            let new = shares.join(weight(newcomer));
            shares.ready(new);
            let total: u32 = weights.iter().sum::<u32>() + newcomer;
            let served = serve(&mut shares, 4 * total as usize, |_| 1_000);
            for member in old.iter().chain([&new]) {
                prop_assert!(served.get(member).is_some_and(|&time| time >= 1_000), "{member:?}: {served:?}");
            }
        }
    }
}

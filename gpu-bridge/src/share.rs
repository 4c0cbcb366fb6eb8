//! Who is next: start-time fair queueing by weight, between owners first and then between the members of each.
//!
//! Pure: no threads and no clock, so a device of any kind can use it, and tests can run an hour in a moment. Each member
//! has a virtual time, which runs ahead by the device time it used divided by its weight; the one that is furthest
//! behind is owed most. An owner has a virtual time too, which runs ahead by what all its members used: so an owner with
//! a hundred members gets as much as an owner with one.
//!
//! Whoever comes back after idling starts at the present, less what it was owed, up to [`CREDIT`]: idling earns no more
//! than that. Without any, a member that always has work would lose its share whenever the system takes its thread off a
//! core between two calls, because from here that looks like idling.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// Whose members they are: a tenant's name.
pub type Owner = Arc<str>;

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
#[derive(Clone, Debug, Default)]
pub struct Shares {
    owners: Queue<Owner>,
    groups: BTreeMap<Owner, Group>,
    members: BTreeMap<Member, Owner>,
    joined: u64,
}

/// The members of one owner.
#[derive(Clone, Debug, Default)]
struct Group {
    queue: Queue<Member>,
}

impl Shares {
    /// A new member, idle at first.
    pub fn join(&mut self, owner: &Owner, weight: NonZeroU32) -> Member {
        self.forget_owners();
        let member = Member(self.joined);
        self.joined += 1;
        if !self.groups.contains_key(owner) {
            self.owners.join(owner.clone(), NonZeroU32::MIN);
        }
        self.groups.entry(owner.clone()).or_default().queue.join(member, weight);
        self.members.insert(member, owner.clone());
        member
    }

    pub fn leave(&mut self, member: Member) {
        self.idle(member);
        if let Some(owner) = self.members.remove(&member)
            && let Some(group) = self.groups.get_mut(&owner)
        {
            group.queue.leave(&member);
        }
    }

    /// The member has work: from now on it competes, with no more than its credit.
    pub fn ready(&mut self, member: Member) {
        if let Some((owner, group)) = group_of(&self.members, &mut self.groups, member) {
            group.queue.ready(&member);
            self.owners.ready(owner);
        }
    }

    /// The member has no work. What it used beyond its share is remembered.
    pub fn idle(&mut self, member: Member) {
        if let Some((owner, group)) = group_of(&self.members, &mut self.groups, member) {
            group.queue.idle(&member);
            if group.queue.ready.is_empty() {
                self.owners.idle(owner);
            }
        }
    }

    /// The ready member that is owed most; of several, the one that joined first.
    pub fn next(&self) -> Option<Member> {
        self.next_of(|_| true)
    }

    /// The one that is owed most of those ready members that are `wanted`.
    pub fn next_of(&self, wanted: impl Fn(Member) -> bool) -> Option<Member> {
        let groups = self.owners.in_order().filter_map(|owner| self.groups.get(owner));
        groups.flat_map(|group| group.queue.in_order()).copied().find(|&member| wanted(member))
    }

    /// Device time that the member used.
    pub fn charge(&mut self, member: Member, used: Duration) {
        self.settle(member, Duration::ZERO, used);
    }

    /// Replaces what the member was charged in advance by what it used.
    pub fn settle(&mut self, member: Member, advance: Duration, used: Duration) {
        if let Some((owner, group)) = group_of(&self.members, &mut self.groups, member) {
            group.queue.settle(&member, advance, used);
            self.owners.settle(owner, advance, used);
        }
    }

    /// Whether `member` could use so much time and still be owed more than `other`.
    pub fn is_owed_more(&self, member: Member, other: Member, by: Duration) -> bool {
        let (Some(owner), Some(others)) = (self.members.get(&member), self.members.get(&other)) else { return false };
        if owner != others {
            return self.owners.is_owed_more(owner, others, by);
        }
        self.groups.get(owner).is_some_and(|group| group.queue.is_owed_more(&member, &other, by))
    }

    /// Whether the member has joined, and has not left.
    pub fn has(&self, member: Member) -> bool {
        self.members.contains_key(&member)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Forgets owners without members, but not before the others have caught up with what they used: one that leaves
    /// and comes back has nothing forgiven.
    fn forget_owners(&mut self) {
        let owners = &mut self.owners;
        self.groups.retain(|owner, group| {
            let keep = !group.queue.states.is_empty() || owners.is_ahead(owner);
            if !keep {
                owners.leave(owner);
            }
            keep
        });
    }
}

fn group_of<'a>(
    members: &'a BTreeMap<Member, Owner>,
    groups: &'a mut BTreeMap<Owner, Group>,
    member: Member,
) -> Option<(&'a Owner, &'a mut Group)> {
    let owner = members.get(&member)?;
    Some((owner, groups.get_mut(owner)?))
}

/// One level of sharing: those who share at it, and what each is owed.
#[derive(Clone, Debug)]
struct Queue<K> {
    states: BTreeMap<K, State>,
    /// Those with work, in the order of how far behind they are. They are few, and come and go all the time.
    ready: Vec<(Virtual, K)>,
    /// How far the one that is furthest behind has come. Never goes back.
    present: Virtual,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { states: BTreeMap::new(), ready: Vec::new(), present: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    weight: NonZeroU32,
    time: Virtual,
    ready: bool,
}

impl<K: Clone + Ord> Queue<K> {
    fn join(&mut self, key: K, weight: NonZeroU32) {
        self.states.insert(key, State { weight, time: self.present, ready: false });
    }

    fn leave(&mut self, key: &K) {
        self.idle(key);
        self.states.remove(key);
    }

    fn ready(&mut self, key: &K) {
        if let Some(state) = self.states.get_mut(key)
            && !state.ready
        {
            state.ready = true;
            state.time = state.time.max(self.present.saturating_sub(virtual_time(CREDIT, state.weight)));
            insert(&mut self.ready, (state.time, key.clone()));
        }
    }

    fn idle(&mut self, key: &K) {
        if let Some(state) = self.states.get_mut(key)
            && state.ready
        {
            state.ready = false;
            remove(&mut self.ready, &(state.time, key.clone()));
            self.advance();
        }
    }

    /// The ready ones; first the one that is owed most.
    fn in_order(&self) -> impl Iterator<Item = &K> {
        self.ready.iter().map(|(_, key)| key)
    }

    fn settle(&mut self, key: &K, advance: Duration, used: Duration) {
        let Some(state) = self.states.get_mut(key) else { return };
        let (before, weight) = (state.time, state.weight);
        let time = before.saturating_sub(virtual_time(advance, weight)).saturating_add(virtual_time(used, weight));
        state.time = time;
        if state.ready && time != before {
            remove(&mut self.ready, &(before, key.clone()));
            insert(&mut self.ready, (time, key.clone()));
            self.advance();
        }
    }

    fn is_owed_more(&self, key: &K, other: &K, by: Duration) -> bool {
        let (Some(state), Some(other)) = (self.states.get(key), self.states.get(other)) else { return false };
        state.time.saturating_add(virtual_time(by, state.weight)) < other.time
    }

    /// Whether it used more than those who have work now.
    fn is_ahead(&self, key: &K) -> bool {
        self.states.get(key).is_some_and(|state| state.time > self.present)
    }

    fn advance(&mut self) {
        if let Some((time, _)) = self.ready.first() {
            self.present = self.present.max(*time);
        }
    }
}

/// Puts one into a list that is in order.
fn insert<T: Ord>(ordered: &mut Vec<T>, one: T) {
    let at = ordered.partition_point(|other| *other < one);
    ordered.insert(at, one);
}

fn remove<T: Ord>(ordered: &mut Vec<T>, one: &T) {
    if let Ok(at) = ordered.binary_search(one) {
        ordered.remove(at);
    }
}

/// By how much a member's time runs ahead.
fn virtual_time(used: Duration, weight: NonZeroU32) -> Virtual {
    match u32::try_from(used.as_nanos()) {
        // Up to four seconds, which is almost always, it is a division of machine words.
        Ok(nanoseconds) => Virtual::from((u64::from(nanoseconds) << PARTS.trailing_zeros()) / u64::from(weight.get())),
        Err(_) => used.as_nanos().saturating_mul(PARTS) / Virtual::from(weight.get()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weight(weight: u32) -> NonZeroU32 {
        NonZeroU32::new(weight).unwrap()
    }

    /// The one whose members most tests are about.
    fn owner() -> Owner {
        Owner::from("owner")
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
        let member = shares.join(&owner(), weight(1));
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
        let (first, second) = (shares.join(&owner(), weight(1)), shares.join(&owner(), weight(1)));
        shares.ready(second);
        shares.ready(first);
        assert_eq!(shares.next(), Some(first));
        assert_eq!(shares.next_of(|member| member != first), Some(second));
    }

    #[test]
    fn a_member_that_left_is_nobody() {
        let mut shares = Shares::default();
        let gone = shares.join(&owner(), weight(1));
        shares.ready(gone);
        shares.leave(gone);
        shares.ready(gone);
        shares.charge(gone, Duration::from_secs(1));
        assert_eq!(shares.next(), None);
        assert_ne!(shares.join(&owner(), weight(1)), gone);
    }

    #[test]
    fn going_idle_for_a_moment_does_not_forgive_what_was_used() {
        let mut shares = Shares::default();
        let (greedy, other) = (shares.join(&owner(), weight(1)), shares.join(&owner(), weight(1)));
        shares.ready(greedy);
        shares.ready(other);
        shares.charge(greedy, Duration::from_millis(5));
        shares.idle(greedy);
        shares.ready(greedy);
        assert_eq!(shares.next(), Some(other));
    }

    #[test]
    fn an_owner_with_many_members_gets_as_much_as_one_with_one() {
        let mut shares = Shares::default();
        let many: Vec<Member> = (0..40).map(|_| shares.join(&Owner::from("many"), weight(64))).collect();
        let one = shares.join(&Owner::from("one"), weight(1));
        many.iter().chain([&one]).for_each(|&member| shares.ready(member));
        let served = serve(&mut shares, 800, |_| 1_000);
        assert_eq!(served[&one], 400_000);
        assert!(many.iter().all(|member| served[member] == 10_000), "{served:?}");
    }

    #[test]
    fn an_owner_that_leaves_and_comes_back_has_nothing_forgiven() {
        let mut shares = Shares::default();
        let (greedy, modest) = (Owner::from("greedy"), Owner::from("modest"));
        let other = shares.join(&modest, weight(1));
        shares.ready(other);
        for _ in 0..10 {
            let member = shares.join(&greedy, weight(1));
            shares.ready(member);
            shares.charge(member, Duration::from_millis(5));
            shares.leave(member);
        }
        let again = shares.join(&greedy, weight(1));
        shares.ready(again);
        let served = serve(&mut shares, 10, |_| 4_999_999);
        assert_eq!(served.get(&again), None, "the other is owed ten times as much");
    }

    #[test]
    fn owners_that_left_are_forgotten_once_the_others_have_caught_up() {
        let mut shares = Shares::default();
        let stays = shares.join(&owner(), weight(1));
        shares.ready(stays);
        for tenant in 0..100 {
            let member = shares.join(&Owner::from(format!("tenant {tenant}")), weight(1));
            shares.ready(member);
            shares.charge(member, Duration::from_millis(1));
            shares.leave(member);
        }
        shares.charge(stays, Duration::from_secs(1));
        shares.join(&owner(), weight(1));
        assert_eq!((shares.groups.len(), shares.owners.states.len()), (1, 1));
    }

    #[test]
    fn what_was_charged_in_advance_is_replaced_by_what_was_used() {
        let mut shares = Shares::default();
        let (first, second) = (shares.join(&owner(), weight(1)), shares.join(&owner(), weight(1)));
        shares.ready(first);
        shares.ready(second);
        let advance = Duration::from_millis(1);
        shares.charge(first, advance);
        assert_eq!(shares.next(), Some(second));
        assert!(shares.is_owed_more(second, first, advance / 2) && !shares.is_owed_more(second, first, advance));
        shares.settle(first, advance, Duration::ZERO);
        assert_eq!(shares.next(), Some(first));
    }

    proptest! {
        #[test]
        fn long_runs_come_to_the_weights(
            members in prop::collection::vec((1_u32..1_000, 1_u64..1_000_000), 1..8),
        ) {
            let mut shares = Shares::default();
            let mut costs = BTreeMap::new();
            for &(share, cost) in &members {
                let member = shares.join(&owner(),weight(share));
                shares.ready(member);
                costs.insert(member, (share, cost));
            }
            serve(&mut shares, 3_000, |member| costs[&member].1);
            // By how much two that always have work can differ, per weight: what each is served at once.
            let time = |member: &Member| shares.groups[&owner()].queue.states[member].time / PARTS;
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
            let (busy, idler) = (shares.join(&owner(),weight(1)), shares.join(&owner(),weight(share)));
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
            let (steady, unlucky) = (shares.join(&owner(),weight(1)), shares.join(&owner(),weight(share)));
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
            let old: Vec<Member> = weights.iter().map(|&share| shares.join(&owner(),weight(share))).collect();
            old.iter().for_each(|&member| shares.ready(member));
            serve(&mut shares, turns, |_| 1_000);
            let new = shares.join(&owner(),weight(newcomer));
            shares.ready(new);
            let total: u32 = weights.iter().sum::<u32>() + newcomer;
            let served = serve(&mut shares, 4 * total as usize, |_| 1_000);
            for member in old.iter().chain([&new]) {
                prop_assert!(served.get(member).is_some_and(|&time| time >= 1_000), "{member:?}: {served:?}");
            }
        }
    }
}

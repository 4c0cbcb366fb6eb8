//! Who gets a turn, who keeps it, and that none is lost, with the clocks and threads that they are for.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::state::{KEPT, KEPT_FROM_PEERS};
use super::*;
use crate::clock::thread_cpu;
use crate::tenant::{Account, Quota};

mod orders;

fn tenant(name: &str) -> Arc<Tenant> {
    Tenant::unregistered(name.parse().unwrap(), Quota::default(), Account::new("max_memory", 0, None))
}

/// Burns about a millisecond per turn until told to stop; counts its turns.
async fn burn(seat: Arc<Seat>, turns: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        let start = thread_cpu();
        while thread_cpu() - start < Duration::from_micros(300) {
            std::hint::spin_loop();
        }
        turns.fetch_add(1, Relaxed);
        seat.end_turn().await;
    }
}

/// Lets guests of these shares compute until they have had so many turns; how many each had.
async fn race(turns: &Arc<Turns>, guests: &[(Arc<Tenant>, Arc<Share>)], total: u64) -> Vec<u64> {
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Vec<_> = guests.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    let mut running = Vec::new();
    for ((tenant, share), count) in guests.iter().zip(&counts) {
        let seat = turns.seat(tenant.clone(), share.clone(), None);
        let guest = Box::pin(burn(seat.clone(), count.clone(), stop.clone()));
        running.push(tokio::spawn(Turns::run(seat, guest)));
    }
    while counts.iter().map(|count| count.load(Relaxed)).sum::<u64>() < total {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Relaxed);
    for guest in running {
        guest.await.unwrap();
    }
    counts.iter().map(|count| count.load(Relaxed)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_share_evenly_however_many_guests_they_have() {
    let turns = Turns::new(1);
    let (many, one) = (tenant("many"), tenant("one"));
    let mut guests = vec![(one.clone(), one.share.clone())];
    guests.extend((0..10).map(|_| (many.clone(), many.share.clone())));
    guests.extend((0..10).map(|_| (many.clone(), Share::new("many", Share::ORDINARY, Keeps::Never))));
    let counts = race(&turns, &guests, 400).await;
    let (one, many) = (counts[0] as f64, counts[1..].iter().sum::<u64>() as f64);
    assert!((0.6..1.6).contains(&(one / many)), "one guest had {one} turns, twenty had {many}");
    assert_eq!(turns.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_of_more_weight_have_more_turns() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = |weight| Share::new("a", NonZeroU32::new(weight).unwrap(), Keeps::Never);
    let guests: Vec<_> = [1, 2, 4].map(|weight| (tenant.clone(), share(weight))).into();
    let counts = race(&turns, &guests, 700).await;
    let [one, two, four] = [0, 1, 2].map(|index| counts[index] as f64);
    assert!((1.7..2.3).contains(&(two / one)) && (3.4..4.6).contains(&(four / one)), "{one}, {two}, {four} turns");
}

/// One that only wants turns.
fn wants_turns(turns: &Arc<Turns>, tenant: &Arc<Tenant>, share: &Arc<Share>) -> Place {
    Place { seat: turns.seat(tenant.clone(), share.clone(), None), ticket: None }
}

fn begins(place: &mut Place) -> bool {
    place.poll_turn(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn ends(place: &mut Place) {
    place.ticket = place.seat.stop(Waker::noop());
}

#[test]
fn a_waiter_that_goes_away_gives_its_turn_on() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let [mut holder, mut waiting, mut last] = [(); 3].map(|()| wants_turns(&turns, &tenant, &tenant.share));
    assert!(begins(&mut holder) && !begins(&mut waiting) && !begins(&mut last));
    ends(&mut holder);
    drop(waiting);
    assert!(begins(&mut last));
}

/// Lets the share take the only turn and end its call; gives one of the tenant's, which waits.
fn kept_from_another(turns: &Arc<Turns>, tenant: &Arc<Tenant>, share: &Arc<Share>) -> Place {
    let mut first = wants_turns(turns, tenant, share);
    let mut other = wants_turns(turns, tenant, &tenant.share);
    assert!(begins(&mut first) && !begins(&mut other));
    ends(&mut first);
    assert!(!begins(&mut other), "the turn was not kept");
    other
}

#[test]
fn a_worker_keeps_its_turn_between_calls_until_it_gives_it_up() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = Share::of_worker("a", Share::ORDINARY, TeamId::next());
    let mut other = kept_from_another(&turns, &tenant, &share);
    assert!(!turns.is_due(&share) || turns.inner.locked().state.turns().all(|(_, turn)| turn.call.elapsed() >= KEPT));
    let mut second = wants_turns(&turns, &tenant, &share);
    assert!(begins(&mut second), "it has the turn");
    ends(&mut second);
    std::thread::sleep(KEPT);
    assert!(turns.is_due(&share), "one of the tenant's waits");
    turns.give_up(&share);
    turns.give_up(&share);
    assert!(begins(&mut other), "the turn was given up");
}

#[test]
fn a_share_that_is_owed_much_more_is_waited_for() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let heavy = NonZeroU32::new(32_000).unwrap();
    let share = Share::of_worker("a", heavy, TeamId::next());
    // What the tenant's share has had is far more than what the heavy one has.
    let mut light = wants_turns(&turns, &tenant, &tenant.share);
    let mut owed = wants_turns(&turns, &tenant, &share);
    assert!(begins(&mut light) && !begins(&mut owed));
    let burning = thread_cpu();
    while thread_cpu() - burning < Duration::from_millis(5) {
        std::hint::spin_loop();
    }
    ends(&mut light);
    assert!(begins(&mut owed) && !begins(&mut light));
    ends(&mut owed);
    turns.give_up(&share);
    assert!(!begins(&mut light), "the other is owed more");
}

#[test]
fn a_turn_is_kept_for_longer_from_workers_of_the_same_job() {
    let (turns, tenant, team) = (Turns::new(1), tenant("a"), TeamId::next());
    let shares = [(); 2].map(|()| Share::of_worker("a", Share::ORDINARY, team));
    let [mut first, mut peer] = shares.each_ref().map(|share| wants_turns(&turns, &tenant, share));
    let began = Instant::now();
    assert!(begins(&mut first) && !begins(&mut peer));
    ends(&mut first);
    std::thread::sleep(KEPT);
    assert!(!turns.is_due(&shares[0]) || began.elapsed() >= KEPT_FROM_PEERS);
    std::thread::sleep(KEPT_FROM_PEERS);
    assert!(turns.is_due(&shares[0]));
}

#[test]
fn a_kept_turn_that_nobody_uses_goes_to_the_next() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = Share::of_worker("a", Share::ORDINARY, TeamId::next());
    let mut other = kept_from_another(&turns, &tenant, &share);
    std::thread::sleep(IDLE);
    turns.relieve();
    assert!(begins(&mut other), "it was idle for too long");
}

#[test]
fn a_share_that_is_gone_leaves_nothing_behind() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = Share::of_worker("a", Share::ORDINARY, TeamId::next());
    let mut other = kept_from_another(&turns, &tenant, &share);
    drop(share);
    assert!(begins(&mut other), "the turn that it kept is free");
}

#[test]
fn an_overdue_turn_lets_one_more_in_and_no_more_than_that() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let [mut long, mut second, mut third] = [(); 3].map(|()| wants_turns(&turns, &tenant, &tenant.share));
    assert!(begins(&mut long) && !begins(&mut second) && !begins(&mut third));
    std::thread::sleep(OVERDUE);
    turns.relieve();
    turns.relieve();
    assert!(begins(&mut second), "not relieved");
    assert!(!begins(&mut third), "relieved twice");
    ends(&mut long);
    assert!(!begins(&mut third), "the turn was handed on twice");
    ends(&mut second);
    assert!(begins(&mut third));
}

#[test]
fn a_guest_inside_a_kernel_leaves_its_turn_and_waits_for_another() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let [mut long, mut second] = [(); 2].map(|()| wants_turns(&turns, &tenant, &tenant.share));
    assert!(begins(&mut long));
    let aside = long.seat.aside();
    assert!(!begins(&mut second));
    std::thread::sleep(ASIDE);
    turns.relieve();
    assert!(long.seat.has_left() && begins(&mut second), "its turn went to the next");
    let seat = second.seat.clone();
    let over = Arc::new(AtomicBool::new(false));
    let other = std::thread::spawn({
        let over = over.clone();
        move || {
            std::thread::sleep(Duration::from_millis(20));
            over.store(true, Relaxed);
            assert!(seat.stop(Waker::noop()).is_none());
        }
    });
    drop(aside);
    assert!(over.load(Relaxed), "it came back before the other was done");
    assert!(!long.seat.has_left());
    other.join().unwrap();
    ends(&mut long);
    assert!(begins(&mut second));
}

#[test]
fn a_guest_whose_kernel_was_cancelled_does_not_wait_for_a_turn() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let cancel = Cancel::default();
    let seat = turns.seat(tenant.clone(), tenant.share.clone(), Some(cancel.clone()));
    let mut long = Place { seat, ticket: None };
    let mut second = wants_turns(&turns, &tenant, &tenant.share);
    assert!(begins(&mut long));
    let aside = long.seat.aside();
    assert!(!begins(&mut second));
    std::thread::sleep(ASIDE);
    turns.relieve();
    assert!(begins(&mut second));
    cancel.cancel();
    drop(aside);
    ends(&mut long);
    assert_eq!(turns.waiting(), 0);
    ends(&mut second);
    assert!(begins(&mut long), "no turn was lost");
}

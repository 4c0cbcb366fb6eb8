//! Who gets a turn, who keeps it, and that none is lost.

use super::*;
use crate::tenant::{Account, Quota};

fn tenant(name: &str) -> Arc<Tenant> {
    Tenant::unregistered(name.parse().unwrap(), Quota::default(), Account::new("max_memory", 0, None))
}

/// Burns about a millisecond per turn until told to stop; counts its turns.
async fn burn(clock: Arc<TurnClock>, turns: Arc<AtomicU64>, stop: Arc<AtomicU64>) {
    while stop.load(Relaxed) == 0 {
        let start = thread_cpu();
        while thread_cpu() - start < Duration::from_micros(300) {
            std::hint::spin_loop();
        }
        turns.fetch_add(1, Relaxed);
        clock.end_turn().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_share_evenly_however_many_guests_they_have() {
    let turns = Turns::new(1);
    let stop = Arc::new(AtomicU64::new(0));
    let (many, one) = (tenant("many"), tenant("one"));
    let (many_turns, one_turns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut guests = Vec::new();
    for index in 0..21 {
        let (tenant, count) = if index < 20 { (&many, &many_turns) } else { (&one, &one_turns) };
        let clock = Arc::<TurnClock>::default();
        let guest = Box::pin(burn(clock.clone(), count.clone(), stop.clone()));
        guests.push(tokio::spawn(turns.run(tenant.clone(), tenant.share.clone(), clock, guest)));
    }
    while one_turns.load(Relaxed) + many_turns.load(Relaxed) < 400 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(1, Relaxed);
    for guest in guests {
        guest.await.unwrap();
    }
    let (one, many) = (one_turns.load(Relaxed) as f64, many_turns.load(Relaxed) as f64);
    assert!((0.6..1.6).contains(&(one / many)), "one guest had {one} turns, twenty had {many}");
    assert_eq!(turns.waiting(), 0);
    assert_eq!(turns.state().free, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_of_more_weight_have_more_turns() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let stop = Arc::new(AtomicU64::new(0));
    let counts = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let mut guests = Vec::new();
    for (weight, count) in [1, 2, 4].into_iter().zip(&counts) {
        let share = Share::new(NonZeroU32::new(weight).unwrap(), Keeps::Never);
        let clock = Arc::<TurnClock>::default();
        let guest = Box::pin(burn(clock.clone(), count.clone(), stop.clone()));
        guests.push(tokio::spawn(turns.run(tenant.clone(), share, clock, guest)));
    }
    while counts.iter().map(|count| count.load(Relaxed)).sum::<u64>() < 700 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(1, Relaxed);
    for guest in guests {
        guest.await.unwrap();
    }
    let [one, two, four] = counts.map(|count| count.load(Relaxed) as f64);
    assert!((1.7..2.3).contains(&(two / one)) && (3.4..4.6).contains(&(four / one)), "{one}, {two}, {four} turns");
}

#[tokio::test]
async fn a_waiter_that_goes_away_gives_its_turn_on() {
    let turns = Turns::new(1);
    let tenant = tenant("a");
    let run = |future| turns.run(tenant.clone(), tenant.share.clone(), Arc::default(), Box::pin(future));
    let mut holder = run(std::future::ready(()));
    let mut waiting = run(std::future::ready(()));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(turn) = holder.line.poll_turn(&mut context) else { panic!("the turn was free") };
    assert!(waiting.line.poll_turn(&mut context).is_pending());
    holder.line.end_turn(turn, Waker::noop());
    drop(waiting);
    let state = turns.state();
    assert_eq!((state.free, state.granted.len()), (1, 0));
}

/// One that only wants turns, of a share that keeps them or of the tenant's.
fn wants_turns(turns: &Arc<Turns>, tenant: &Arc<Tenant>, share: &Arc<Share>) -> InTurn<std::future::Ready<()>> {
    turns.run(tenant.clone(), share.clone(), Arc::default(), std::future::ready(()))
}

/// Lets the share take the only turn and end its call; gives one of the tenant's, which waits.
fn kept_from_another(turns: &Arc<Turns>, tenant: &Arc<Tenant>, share: &Arc<Share>) -> InTurn<std::future::Ready<()>> {
    let mut context = Context::from_waker(Waker::noop());
    let mut first = wants_turns(turns, tenant, share);
    let mut other = wants_turns(turns, tenant, &tenant.share);
    let Poll::Ready(turn) = first.line.poll_turn(&mut context) else { panic!("the turn was free") };
    assert!(other.line.poll_turn(&mut context).is_pending());
    first.line.end_turn(turn, Waker::noop());
    assert!(other.line.poll_turn(&mut context).is_pending(), "the turn was not kept");
    other
}

#[test]
fn a_worker_keeps_its_turn_between_calls_until_it_gives_it_up() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = Share::of_worker(Share::ORDINARY, TeamId::next());
    let mut context = Context::from_waker(Waker::noop());
    let mut other = kept_from_another(&turns, &tenant, &share);
    assert!(!turns.is_due(&share));
    let mut second = wants_turns(&turns, &tenant, &share);
    let Poll::Ready(turn) = second.line.poll_turn(&mut context) else { panic!("it has the turn") };
    second.line.end_turn(turn, Waker::noop());
    std::thread::sleep(KEPT);
    assert!(turns.is_due(&share), "one of the tenant's waits");
    turns.give_up(&share);
    turns.give_up(&share);
    let Poll::Ready(turn) = other.line.poll_turn(&mut context) else { panic!("the turn was given up") };
    other.line.end_turn(turn, Waker::noop());
    assert_eq!(turns.state().free, 1);
}

#[test]
fn a_share_that_is_owed_much_more_is_waited_for() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = Share::of_worker(Share::ORDINARY, TeamId::next());
    let mut context = Context::from_waker(Waker::noop());
    let mut owed = wants_turns(&turns, &tenant, &share);
    let mut ahead = wants_turns(&turns, &tenant, &tenant.share);
    let Poll::Ready(turn) = owed.line.poll_turn(&mut context) else { panic!("the turn was free") };
    tenant.share.virtual_time.store(EXPECTED_NS + 2 * OWED_NS, Relaxed);
    assert!(ahead.line.poll_turn(&mut context).is_pending());
    owed.line.end_turn(turn, Waker::noop());
    turns.give_up(&share);
    assert!(ahead.line.poll_turn(&mut context).is_pending(), "it is owed more");
    share.virtual_time.store(2 * OWED_NS, Relaxed);
    turns.give_up(&share);
    assert!(ahead.line.poll_turn(&mut context).is_ready(), "it is not owed so much any more");
}

#[test]
fn a_turn_is_kept_for_longer_from_workers_of_the_same_job() {
    let (turns, tenant, team) = (Turns::new(1), tenant("a"), TeamId::next());
    let shares = [(); 2].map(|()| Share::of_worker(Share::ORDINARY, team));
    let mut context = Context::from_waker(Waker::noop());
    let [mut first, mut peer] = shares.each_ref().map(|share| wants_turns(&turns, &tenant, share));
    let Poll::Ready(turn) = first.line.poll_turn(&mut context) else { panic!("the turn was free") };
    assert!(peer.line.poll_turn(&mut context).is_pending());
    first.line.end_turn(turn, Waker::noop());
    std::thread::sleep(KEPT);
    let age = turns.state().taken[turn].as_ref().unwrap().since.elapsed();
    assert!(!turns.is_due(&shares[0]) || age >= KEPT_FROM_PEERS);
    std::thread::sleep(KEPT_FROM_PEERS);
    assert!(turns.is_due(&shares[0]));
}

#[test]
fn a_kept_turn_that_nobody_uses_goes_to_the_next() {
    let (turns, tenant) = (Turns::new(1), tenant("a"));
    let share = Share::of_worker(Share::ORDINARY, TeamId::next());
    let mut context = Context::from_waker(Waker::noop());
    let mut other = kept_from_another(&turns, &tenant, &share);
    std::thread::sleep(IDLE);
    turns.relieve();
    let Poll::Ready(turn) = other.line.poll_turn(&mut context) else { panic!("it was idle for too long") };
    other.line.end_turn(turn, Waker::noop());
    let state = turns.state();
    assert_eq!((state.free, state.reserves), (1, 1));
}

#[test]
fn an_overdue_turn_lets_one_more_in_and_no_more_than_that() {
    let turns = Turns::new(1);
    let tenant = tenant("a");
    let run = || turns.run(tenant.clone(), tenant.share.clone(), Arc::default(), Box::pin(std::future::ready(())));
    let (mut long, mut second, mut third) = (run(), run(), run());
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(long_turn) = long.line.poll_turn(&mut context) else { panic!("the turn was free") };
    assert!(second.line.poll_turn(&mut context).is_pending());
    assert!(third.line.poll_turn(&mut context).is_pending());
    turns.relieve();
    assert!(second.line.poll_turn(&mut context).is_pending(), "the turn is not overdue yet");
    std::thread::sleep(OVERDUE);
    turns.relieve();
    turns.relieve();
    let Poll::Ready(second_turn) = second.line.poll_turn(&mut context) else { panic!("not relieved") };
    assert!(third.line.poll_turn(&mut context).is_pending(), "relieved twice");
    long.line.end_turn(long_turn, Waker::noop());
    assert!(third.line.poll_turn(&mut context).is_pending(), "the turn was handed on twice");
    second.line.end_turn(second_turn, Waker::noop());
    assert!(third.line.poll_turn(&mut context).is_ready());
    assert_eq!(turns.state().reserves, 1);
}

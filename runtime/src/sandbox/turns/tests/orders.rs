//! The real turns and places, and not only their rules, in all orders of what can happen to three guests, up to a depth:
//! whoever is given a turn is woken, and nobody waits unwoken while a turn is free.
//!
//! Every order is run from its start. The next one differs in the last event for which there is another; so no order is
//! left out, and none is run twice. Who of two that wait is next can depend on the nanoseconds that they had: an order
//! that is not possible any more for that reason ends where it is.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::super::state::Standing;
use super::*;

/// How many events an order has.
const DEPTH: usize = 8;

/// Longer than any turn may be kept or overdue.
const LATER: Duration = Duration::from_secs(1);

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Where a guest is, as it knows itself.
enum At {
    Away,
    /// With the waker of its latest look.
    Waits(Arc<Woken>),
    Computes,
    InAKernel,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A guest asks for a turn, or looks whether it has one: also without having been woken, and always with another waker.
    Poll(usize),
    /// Goes away while it waits, or after it was given a turn and before it has used it.
    Drop(usize),
    Stop(usize),
    Yield(usize),
    GiveUp(usize),
    EnterKernel(usize),
    /// Its kernels were cancelled, so it waits for no turn.
    LeaveKernel(usize),
    /// The ticker comes by when everything has lasted too long.
    Relieve,
}

struct Guest {
    share: Arc<Share>,
    place: Place,
    at: At,
    /// Whether it has kernels.
    computes_on_a_device: bool,
}

struct World {
    turns: Arc<Turns>,
    tenant: Arc<Tenant>,
    cores: usize,
    guests: Vec<Guest>,
}

/// A waker that counts, and its count.
fn counting() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    (woken.clone(), Waker::from(woken))
}

impl World {
    fn new(cores: usize, guests: &[(Arc<Share>, bool)]) -> Self {
        let (turns, tenant) = (Turns::new(cores), tenant("a"));
        let guest = |(share, computes_on_a_device): &(Arc<Share>, bool)| Guest {
            share: share.clone(),
            place: place(&turns, &tenant, share),
            at: At::Away,
            computes_on_a_device: *computes_on_a_device,
        };
        let guests = guests.iter().map(guest).collect();
        Self { turns, tenant, cores, guests }
    }

    /// What can happen now.
    fn possible(&self) -> Vec<Event> {
        let inner = self.turns.inner.locked();
        let keeps = inner.state.turns().any(|(_, turn)| matches!(turn.standing, Standing::Kept(_)));
        let mut events = Vec::new();
        for (index, guest) in self.guests.iter().enumerate() {
            match guest.at {
                At::Away if keeps && guest.share.keeps != Keeps::Never => {
                    events.extend([Event::Poll(index), Event::GiveUp(index)]);
                }
                At::Away => events.push(Event::Poll(index)),
                At::Waits(_) => events.extend([Event::Poll(index), Event::Drop(index)]),
                At::Computes if guest.computes_on_a_device => {
                    events.extend([Event::Stop(index), Event::Yield(index), Event::EnterKernel(index)]);
                }
                At::Computes => events.extend([Event::Stop(index), Event::Yield(index)]),
                At::InAKernel => events.push(Event::LeaveKernel(index)),
            }
        }
        if inner.state.turns().next().is_some() {
            events.push(Event::Relieve);
        }
        events
    }

    fn happens(&mut self, event: Event) {
        let (woken, waker) = counting();
        let Self { turns, tenant, guests, .. } = self;
        match event {
            Event::Poll(index) => {
                let Guest { place, at, .. } = &mut guests[index];
                let was_given = matches!(at, At::Waits(woken) if woken.0.load(Relaxed) > 0);
                let has_begun = place.poll_turn(&mut Context::from_waker(&waker)).is_ready();
                assert!(has_begun || !was_given, "it was woken for no turn");
                *at = if has_begun { At::Computes } else { At::Waits(woken) };
            }
            Event::Drop(index) => {
                let guest = &mut guests[index];
                guest.place = place(turns, tenant, &guest.share);
                guest.at = At::Away;
            }
            Event::Stop(index) | Event::Yield(index) => {
                let Guest { place, at, .. } = &mut guests[index];
                if matches!(event, Event::Yield(_)) {
                    drop(place.seat.end_turn());
                }
                place.ticket = place.seat.stop(&waker);
                *at = if place.ticket.is_some() { At::Waits(woken) } else { At::Away };
            }
            Event::GiveUp(index) => turns.give_up(&guests[index].share),
            Event::EnterKernel(index) => {
                std::mem::forget(guests[index].place.seat.aside());
                guests[index].at = At::InAKernel;
            }
            Event::LeaveKernel(index) => {
                drop(guests[index].place.seat.aside());
                guests[index].at = At::Computes;
            }
            Event::Relieve => turns.relieve_at(Instant::now() + LATER),
        }
    }

    fn unwoken(&self) -> usize {
        let is_unwoken = |guest: &&Guest| matches!(&guest.at, At::Waits(woken) if woken.0.load(Relaxed) == 0);
        self.guests.iter().filter(is_unwoken).count()
    }

    fn check(&self) {
        let inner = self.turns.inner.locked();
        let unwoken = self.unwoken();
        assert_eq!(inner.state.waiting(), unwoken, "one that was given a turn was not woken, or one that was not was");
        assert!(inner.state.free() == 0 || unwoken == 0, "a turn is free, and {unwoken} wait unwoken");
        assert_eq!(inner.wakers.len(), unwoken, "wakers of nobody are kept");
        let used = inner.state.turns().filter(|(_, turn)| !matches!(turn.standing, Standing::Kept(_))).count();
        assert_eq!(inner.flags.len(), used, "flags of no turn are kept");
    }

    /// Whoever computes stops, and whoever was woken begins and stops, until nobody is left.
    fn comes_to_an_end(mut self) {
        for _ in 0..2 * self.guests.len() {
            for index in 0..self.guests.len() {
                match &self.guests[index].at {
                    At::Waits(woken) if woken.0.load(Relaxed) > 0 => self.happens(Event::Poll(index)),
                    At::InAKernel => self.happens(Event::LeaveKernel(index)),
                    _ => {}
                }
                if matches!(self.guests[index].at, At::Computes) {
                    self.happens(Event::Stop(index));
                }
            }
            self.happens(Event::Relieve);
            self.check();
        }
        let inner = self.turns.inner.locked();
        let left = self.guests.iter().filter(|guest| !matches!(guest.at, At::Away)).count();
        assert_eq!((left, inner.state.waiting(), inner.state.free()), (0, 0, self.cores), "somebody waits for ever");
    }
}

fn place(turns: &Arc<Turns>, tenant: &Arc<Tenant>, share: &Arc<Share>) -> Place {
    // Looked at only by a guest that comes back from a kernel: there is no other thread that it could wait for.
    let cancel = Cancel::default();
    cancel.cancel();
    Place { seat: turns.seat(tenant.clone(), share.clone(), Some(cancel)), ticket: None }
}

/// Runs all orders of so many events; says how many there are.
fn explore(cores: usize, guests: impl Fn() -> Vec<(Arc<Share>, bool)>) -> usize {
    let mut choices: Vec<(usize, usize)> = Vec::new();
    let mut orders = 0;
    loop {
        let mut world = World::new(cores, &guests());
        let mut happened = Vec::new();
        for at in 0..DEPTH {
            let possible = world.possible();
            if at == choices.len() {
                choices.push((0, possible.len()));
            }
            let Some(&event) = possible.get(choices[at].0) else {
                choices.truncate(at + 1);
                break;
            };
            happened.push(event);
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                world.happens(event);
                world.check();
            }));
            assert!(checked.is_ok(), "after {happened:?}");
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.comes_to_an_end()));
        assert!(ended.is_ok(), "at the end of {happened:?}");
        orders += 1;
        // The last event for which there is another.
        while choices.last().is_some_and(|(chosen, of)| chosen + 1 >= *of) {
            choices.pop();
        }
        match choices.last_mut() {
            Some((chosen, _)) => *chosen += 1,
            None => return orders,
        }
    }
}

#[test]
fn whoever_is_given_a_turn_is_woken_in_all_orders() {
    for cores in 1..=2 {
        let tenants = || ["a", "b", "c"].map(|name| (Share::of_tenant(name), false)).into();
        let orders = explore(cores, tenants);
        println!("{cores} turns, calls of three tenants: {orders} orders");
        assert!(orders > 10_000, "{orders} orders");
    }
}

#[test]
fn whoever_is_given_a_turn_is_woken_where_workers_keep_theirs() {
    for cores in 1..=2 {
        let team = TeamId::next();
        let worker = |name| (Share::of_worker(name, Share::ORDINARY, team), false);
        let orders = explore(cores, || vec![(Share::of_tenant("a"), false), worker("a"), worker("b")]);
        println!("{cores} turns, a call and two workers: {orders} orders");
        assert!(orders > 10_000, "{orders} orders");
    }
}

#[test]
fn whoever_is_given_a_turn_is_woken_where_guests_are_inside_kernels() {
    let team = TeamId::next();
    let worker = || (Share::of_worker("b", Share::ORDINARY, team), true);
    let orders = explore(1, || vec![(Share::of_tenant("a"), true), worker(), (Share::of_tenant("c"), false)]);
    println!("a turn, guests with kernels: {orders} orders");
    assert!(orders > 10_000, "{orders} orders");
}

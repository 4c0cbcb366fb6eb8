use super::*;

fn ask(tenant: u64, name: &str, lanes: u32) -> Ask {
    Ask { tenant: TenantId(tenant), name: name.to_owned(), lanes, bytes: 1, suspect: false }
}

/// How long a job may bar the queue.
const BARS_FOR: Duration = Duration::from_secs(60);

fn queue(limit: u32, patience: u32) -> Queue {
    Queue::new(limit, patience, BARS_FOR)
}

/// One pass over a queue: starts whatever may run and finds room, and gives the names.
fn pass(queue: &mut Queue, jobs: u32, lanes: u32, mut room: impl FnMut(&Ask) -> bool) -> Vec<String> {
    let in_the_way = |ask: &Ask| (!room(ask)).then_some(InTheWay::Others);
    pass_at(queue, Instant::now(), Allowed { jobs, lanes, bytes: 99 }, in_the_way)
}

/// The same at a time, where it is told what is in a job's way.
fn pass_at(
    queue: &mut Queue,
    now: Instant,
    allowed: Allowed,
    mut in_the_way: impl FnMut(&Ask) -> Option<InTheWay>,
) -> Vec<String> {
    let (mut pass, mut started) = (Pass::default(), Vec::new());
    while let Some(ask) = queue.next(&mut pass, now, |_| Some(allowed)) {
        match in_the_way(&ask) {
            None => {
                assert!(queue.started(&ask, &pass));
                started.push(ask.name);
            }
            Some(in_the_way) => queue.no_room(&ask, &mut pass, in_the_way),
        }
    }
    started
}

const EVERYTHING: Allowed = Allowed { jobs: 9, lanes: 9, bytes: 99 };

#[test]
fn a_job_that_its_own_tenant_keeps_from_fitting_bars_nobody() {
    let mut queue = queue(100, 1);
    queue.push(ask(1, "parked", 1));
    for number in 0..5 {
        queue.push(ask(2, &format!("b{number}"), 1));
    }
    let parked = |ask: &Ask| (ask.name == "parked").then_some(InTheWay::OwnTenant);
    let started = pass_at(&mut queue, Instant::now(), EVERYTHING, parked);
    assert_eq!(started, ["b0", "b1", "b2", "b3", "b4"]);
    // Once only others are in its way, they have to wait for it.
    queue.push(ask(2, "b5", 1));
    assert!(pass(&mut queue, 9, 9, |ask| ask.name != "parked").is_empty());
}

#[test]
fn a_job_bars_the_queue_for_a_bounded_time_and_so_do_all_of_its_tenants_together() {
    let (mut queue, start) = (queue(100, 1), Instant::now());
    for name in ["parked", "parked too"] {
        queue.push(ask(1, name, 1));
    }
    for number in 0..3 {
        queue.push(ask(2, &format!("b{number}"), 1));
    }
    let mut at = |now: Instant| {
        let parked = |ask: &Ask| ask.name.starts_with("parked").then_some(InTheWay::Others);
        (pass_at(&mut queue, now, EVERYTHING, parked), queue.bar_ends())
    };
    assert_eq!(at(start), (vec!["b0".to_owned()], Some(start + BARS_FOR)));
    assert_eq!(at(start + BARS_FOR / 2), (Vec::new(), Some(start + BARS_FOR)));
    let later = start + BARS_FOR;
    assert_eq!(at(later), (vec!["b1".to_owned()], Some(later + BARS_FOR)), "others have their turn again");
    assert_eq!(at(later + BARS_FOR).0, ["b2"]);
}

#[test]
fn suspects_start_one_at_a_time_and_others_pass_them() {
    let mut queue = queue(100, 1);
    for name in ["a1", "a2"] {
        queue.push(Ask { suspect: true, ..ask(1, name, 1) });
    }
    queue.push(ask(1, "a3", 1));
    queue.push(Ask { suspect: true, ..ask(2, "b1", 1) });
    queue.push(ask(2, "b2", 1));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1", "b2", "a3"]);
    assert!(!queue.end_trial(TenantId(1), "a3") && queue.end_trial(TenantId(1), "a1"));
    assert_eq!(pass(&mut queue, 9, 9, |ask| ask.name != "b1"), ["a2"], "one that finds no room lets others try");
    queue.end(&Ask { suspect: true, ..ask(1, "a2", 1) });
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["b1"], "one that is over is on trial no more");
}

#[test]
fn tenants_take_turns() {
    let mut queue = queue(100, 9);
    for (tenant, name) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")] {
        queue.push(ask(tenant, name, 1));
    }
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1", "b1", "c1", "a2", "a3"]);
}

#[test]
fn a_full_quota_lets_others_pass() {
    let mut queue = queue(100, 9);
    queue.push(ask(1, "a1", 1));
    queue.push(ask(1, "a2", 1));
    queue.push(ask(2, "b1", 1));
    assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a1", "b1"]);
    queue.end(&ask(1, "a1", 1));
    assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a2"]);
}

#[test]
fn a_job_that_finds_no_room_lets_as_many_pass_as_patience_says_and_no_more() {
    let mut queue = queue(4, 2);
    queue.push(ask(1, "a1", 3));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1"]);
    queue.push(ask(2, "large", 4));
    queue.push(ask(1, "a2", 1));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a2"], "a small one passes");
    queue.end(&ask(1, "a2", 1));
    queue.push(ask(2, "b1", 1));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["b1"], "one of its own tenant's too");
    queue.end(&ask(2, "b1", 1));
    queue.push(ask(3, "c1", 1));
    assert!(pass(&mut queue, 9, 9, |_| true).is_empty(), "now it is the large one's turn");
    queue.end(&ask(1, "a1", 3));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["large"]);
    queue.end(&ask(2, "large", 4));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["c1"]);
}

#[test]
fn a_job_that_found_no_device_keeps_its_place() {
    let mut queue = queue(100, 9);
    queue.push(ask(1, "a1", 1));
    queue.push(ask(2, "b1", 1));
    assert_eq!(pass(&mut queue, 1, 9, |ask| ask.name == "b1"), ["b1"]);
    assert_eq!(queue.position(TenantId(1), "a1"), Some(0));
    assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a1"]);
}

#[test]
fn the_names_of_those_that_wait_come_in_their_order_and_of_one_tenant_only() {
    let mut queue = queue(100, 9);
    for name in ["a1", "a2", "a3"] {
        queue.push(ask(1, name, 1));
    }
    queue.push(ask(2, "b1", 1));
    assert_eq!(pass(&mut queue, 1, 9, |ask| ask.name == "a1"), ["a1"]);
    let names: Vec<&str> = queue.names(TenantId(1)).collect();
    assert_eq!(names, ["a2", "a3"]);
    for (before, name) in names.into_iter().enumerate() {
        assert_eq!(queue.position(TenantId(1), name), Some(before));
    }
    assert_eq!(queue.names(TenantId(3)).count(), 0);
}

#[test]
fn what_is_set_aside_is_not_tried_before_it_is_due_and_holds_nobody_up() {
    let mut queue = queue(100, 1);
    queue.set_aside(ask(1, "a1", 1));
    queue.push(ask(1, "a2", 1));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a2"]);
    assert_eq!(queue.waiting(TenantId(1)), 1);
    queue.due(TenantId(1), "a1");
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1"]);
}

#[test]
fn a_waiting_job_can_leave_also_while_it_is_tried() {
    let mut queue = queue(100, 9);
    queue.push(ask(1, "a1", 1));
    assert!(queue.remove(TenantId(1), "a1") && !queue.remove(TenantId(1), "a1"));
    queue.push(ask(1, "a2", 1));
    let mut looking = Pass::default();
    let tried = queue.next(&mut looking, Instant::now(), |_| Some(EVERYTHING)).unwrap();
    assert!(queue.remove(TenantId(1), "a2"));
    assert!(!queue.started(&tried, &looking), "it was stopped before it had started");
    assert!(queue.running.is_empty() && queue.lanes == 0 && queue.turns.is_empty());
}

/// The node of the search below: a device of so many bytes, which only jobs of this name's size fit into.
const DEVICE: u32 = 3;
const PATIENCE: u32 = 2;
const JOBS: u32 = 2;

#[derive(Clone)]
struct World {
    queue: Queue,
    running: Vec<Ask>,
    pushed: u32,
    /// What calls hold of the device.
    called: u32,
    /// The job whose workers are being replaced: what they had is free for a moment.
    changing: Option<Ask>,
    now: Instant,
}

impl World {
    fn free(&self) -> u32 {
        DEVICE - self.called - self.running.iter().map(|ask| ask.lanes).sum::<u32>()
    }

    /// What is in a job's way.
    fn in_the_way(&self, ask: &Ask) -> Option<InTheWay> {
        let own: u32 = self.running.iter().filter(|other| other.tenant == ask.tenant).map(|own| own.lanes).sum();
        match own + ask.lanes <= DEVICE {
            _ if ask.lanes <= self.free() => None,
            true => Some(InTheWay::Others),
            false => Some(InTheWay::OwnTenant),
        }
    }

    fn may_run(&self, waiting: &Waiting) -> bool {
        self.queue.used(waiting.ask.tenant).jobs < JOBS
    }

    /// A job that may run and would fit now.
    fn overlooked(&self) -> Option<&Waiting> {
        let mut waiting = self.queue.waiting.values().flatten();
        waiting.find(|waiting| self.may_run(waiting) && waiting.ask.lanes <= self.free())
    }

    /// One pass, and what must hold after it.
    fn schedule(&mut self) {
        let mut looking = Pass::default();
        let allowed = |_| Some(Allowed { jobs: JOBS, lanes: 9, bytes: 99 });
        while let Some(ask) = self.queue.next(&mut looking, self.now, allowed) {
            match self.in_the_way(&ask) {
                None => {
                    assert!(self.queue.started(&ask, &looking));
                    self.running.push(ask);
                }
                Some(in_the_way) => self.queue.no_room(&ask, &mut looking, in_the_way),
            }
        }
        for tenant in [TenantId(1), TenantId(2)] {
            let jobs = self.running.iter().chain(&self.changing).filter(|ask| ask.tenant == tenant).count();
            assert!(self.queue.used(tenant).jobs as usize == jobs && jobs <= JOBS as usize, "counted wrong");
        }
        for waiting in self.queue.waiting.values().flatten() {
            assert!(waiting.passed <= PATIENCE, "{waiting:?} was passed too often");
            assert!(!waiting.tried);
        }
        if self.overlooked().is_some() && self.changing.is_none() {
            let is_barring = |waiting: &&Waiting| {
                let is_patient = waiting.passed >= PATIENCE && self.may_run(waiting);
                is_patient && self.in_the_way(&waiting.ask) == Some(InTheWay::Others)
            };
            let barring = self.queue.waiting.values().flatten().find(is_barring);
            assert!(barring.is_some(), "there is room, and nobody for whom it is kept: {:?}", self.queue);
            assert!(self.queue.bar_ends().is_some_and(|end| end > self.now), "nobody would look again");
        }
    }

    /// A running job takes one more lane, if it may.
    fn grow(&mut self, index: usize) {
        let before = self.running[index].clone();
        let next = ask(before.tenant.0, &before.name, before.lanes + 1);
        if self.free() == 0 {
            return;
        }
        let keeps_room = self.overlooked().is_some();
        let allowed = Allowed { jobs: JOBS, lanes: 9, bytes: 99 };
        if self.queue.rebook(&before, &next, allowed).is_ok() {
            assert!(!keeps_room, "it has taken what was kept for another: {:?}", self.queue);
            self.running[index] = next;
        }
    }

    /// The workers of a running job are replaced by as many: their lanes are free until the new ones have them.
    fn replace(&mut self) {
        match self.changing.take() {
            None => {
                self.changing = self.running.pop();
                let ask = self.changing.as_ref().unwrap();
                self.queue.changes(ask.tenant, &ask.name);
            }
            Some(ask) => {
                assert!(ask.lanes <= self.free(), "somebody has taken what was its own: {:?}", self.running);
                self.queue.changed(ask.tenant, &ask.name);
                self.running.push(ask);
            }
        }
    }

    /// Nothing ends but the time: room is not kept for ever.
    fn wait(&self) {
        let mut later = self.clone();
        if later.changing.is_some() {
            later.replace();
            later.schedule();
        }
        for _ in 0..=2 * later.pushed {
            if later.overlooked().is_none() {
                return;
            }
            later.now += BARS_FOR;
            later.schedule();
        }
        assert!(later.overlooked().is_none(), "room is kept for ever: {:?}", later.queue);
    }

    /// Everything ends: everybody has had a turn.
    fn drain(&self) {
        let mut drained = self.clone();
        drained.called = 0;
        if drained.changing.is_some() {
            drained.replace();
        }
        drained.schedule();
        for _ in 0..2 * self.pushed {
            if drained.running.is_empty() {
                break;
            }
            let over = drained.running.remove(0);
            drained.queue.end(&over);
            drained.schedule();
        }
        assert!(drained.queue.waiting.is_empty(), "a job is never started: {:?}", drained.queue);
    }

    /// Everything that can happen next.
    fn explore(&self, depth: u32) {
        self.wait();
        self.drain();
        if depth == 0 {
            return;
        }
        let then = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            next.schedule();
            next.explore(depth - 1);
        };
        for tenant in 1..=2 {
            for lanes in 1..=DEVICE {
                then(&|next| {
                    next.pushed += 1;
                    next.queue.push(ask(tenant, &format!("{}", next.pushed), lanes));
                });
            }
        }
        for index in 0..self.running.len() {
            then(&|next| {
                let over = next.running.remove(index);
                next.queue.end(&over);
            });
        }
        for index in 0..self.running.len() {
            then(&|next| next.grow(index));
        }
        if self.changing.is_some() || !self.running.is_empty() {
            then(&Self::replace);
        }
        if self.called > 0 {
            then(&|next| next.called = 0);
        } else if self.free() > 0 && self.changing.is_none() {
            then(&|next| next.called = 1);
        }
        if self.queue.bar_ends().is_some() {
            then(&|next| next.now += BARS_FOR);
        }
    }
}

#[test]
fn in_every_order_of_arrivals_and_ends_room_is_used_and_nobody_starves() {
    let queue = queue(100, PATIENCE);
    World { queue, running: Vec::new(), pushed: 0, called: 0, changing: None, now: Instant::now() }.explore(6);
}

#[test]
fn a_running_job_is_counted_as_what_it_has_become_if_that_is_allowed() {
    let mut queue = queue(5, 1);
    let allowed = Allowed { jobs: 9, lanes: 4, bytes: 99 };
    for name in ["a", "b"] {
        queue.push(ask(1, name, 1));
    }
    assert_eq!(pass(&mut queue, 9, 4, |_| true), ["a", "b"]);
    let (one, three, four) = (ask(1, "a", 1), ask(1, "a", 3), ask(1, "a", 4));
    assert!(queue.rebook(&one, &four, allowed).unwrap_err().contains("`workers` of 4"));
    queue.rebook(&one, &three, allowed).unwrap();
    queue.push(ask(2, "c", 2));
    assert!(pass(&mut queue, 9, 9, |_| true).is_empty(), "the node has one place left");
    assert!(queue.rebook(&three, &ask(1, "a", 5), EVERYTHING).unwrap_err().contains("`max_workers` of 5"));
    let large = Ask { bytes: 200, ..three.clone() };
    assert!(queue.rebook(&three, &large, allowed).unwrap_err().contains("`worker_memory` of 99"));
    // Whoever becomes smaller may, whatever the limits are by now.
    queue.rebook(&three, &ask(1, "a", 2), Allowed { jobs: 0, lanes: 0, bytes: 0 }).unwrap();
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["c"]);
    for (tenant, name, lanes) in [(1, "a", 2), (1, "b", 1), (2, "c", 2)] {
        queue.end(&ask(tenant, name, lanes));
    }
    assert!(queue.running.is_empty() && queue.lanes == 0);
}

#[test]
fn a_job_that_waits_may_ask_for_something_else_where_it_is() {
    let mut queue = queue(4, 1);
    for (name, lanes) in [("large", 9), ("next", 1)] {
        queue.push(ask(1, name, lanes));
    }
    assert!(queue.ask_for(ask(1, "large", 2)) && !queue.ask_for(ask(1, "nobody", 1)));
    assert_eq!(pass(&mut queue, 9, 9, |_| true), ["large", "next"]);
}

//! Calls on shared cores: they pause, go on, are cancelled and end in any order, and nobody waits for ever.

use weft_gpu_loom::explore;
use weft_gpu_loom::run::Cancel;
use weft_gpu_loom::shared::{Cores, Handle};

/// Has another thread do something with a handle of its own.
fn beside(handle: Handle, work: impl FnOnce(&Handle) + 'static) -> loom::thread::JoinHandle<()> {
    loom::thread::spawn(move || work(&handle))
}

#[test]
fn two_calls_of_one_thread_take_turns() {
    explore(3, || {
        let cores = Cores::new(1);
        let other =
            beside(cores.open("other"), |handle| handle.run(&Cancel::default(), 2).expect("it is not cancelled"));
        cores.open("own").run(&Cancel::default(), 2).expect("it is not cancelled");
        other.join().expect("nobody panics");
    });
}

#[test]
fn two_calls_of_two_threads_take_turns() {
    explore(2, || {
        let cores = Cores::new(2);
        let other =
            beside(cores.open("other"), |handle| handle.run_both(&Cancel::default(), 2).expect("it is not cancelled"));
        cores.open("own").run_both(&Cancel::default(), 2).expect("it is not cancelled");
        other.join().expect("nobody panics");
    });
}

#[test]
fn a_call_that_waits_is_woken_by_its_cancel() {
    explore(3, || {
        let cores = Cores::new(1);
        let cancel = Cancel::default();
        let waits = {
            let cancel = cancel.clone();
            beside(cores.open("other"), move |handle| drop(handle.run(&cancel, 1)))
        };
        let canceller = loom::thread::spawn(move || cancel.cancel());
        cores.open("own").run(&Cancel::default(), 2).expect("it is not cancelled");
        waits.join().expect("nobody panics");
        canceller.join().expect("nobody panics");
    });
}

#[test]
fn a_call_of_two_threads_that_is_cancelled_in_a_pause_gives_its_cores_up() {
    explore(2, || {
        let cores = Cores::new(2);
        let cancel = Cancel::default();
        let other =
            beside(cores.open("other"), |handle| handle.run(&Cancel::default(), 2).expect("it is not cancelled"));
        let canceller = {
            let cancel = cancel.clone();
            loom::thread::spawn(move || cancel.cancel())
        };
        drop(cores.open("own").run_both(&cancel, 2));
        other.join().expect("nobody panics");
        canceller.join().expect("nobody panics");
    });
}

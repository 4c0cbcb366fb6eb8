//! The crew: everybody who comes does so once, and all are done when a call is over.

use loom::sync::Arc;
use weft_gpu_loom::crew::Crew;
use weft_gpu_loom::{Places, explore};

/// A call: everybody who comes does so once, the caller among them, and all are done when it is over.
fn call(crew: &Crew, threads: usize) {
    let places = Places::new(threads);
    crew.run(threads, &|worker| places.write(worker)).expect("nobody panics");
    let written = places.read();
    assert!(written[0] == 1 && written.iter().all(|times| *times <= 1), "{written:?}");
}

#[test]
fn a_call_is_over_when_all_who_came_are_done() {
    explore(4, || call(&Crew::new(2), 2));
}

#[test]
fn a_helper_that_comes_late_does_not_see_the_next_call_as_this_one() {
    explore(3, || {
        let crew = Crew::new(2);
        call(&crew, 2);
        call(&crew, 2);
    });
}

#[test]
fn two_helpers_have_places_of_their_own() {
    explore(2, || call(&Crew::new(3), 3));
}

#[test]
fn of_two_callers_one_works_alone() {
    explore(2, || {
        let crew = Arc::new(Crew::new(2));
        let other = {
            let crew = crew.clone();
            loom::thread::spawn(move || call(&crew, 2))
        };
        call(&crew, 2);
        other.join().expect("nobody panics");
    });
}

#[test]
fn a_crew_that_was_never_used_comes_to_an_end() {
    explore(4, || drop(Crew::new(3)));
}

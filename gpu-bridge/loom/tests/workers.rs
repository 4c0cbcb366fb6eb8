//! The tiles of a call: in all orders in which its threads can take them from each other, each is run exactly once.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use weft_gpu_loom::crew::Crew;
use weft_gpu_loom::run::{Cancel, Pace, Tiles, Workers};
use weft_gpu_loom::{Places, explore};

/// A call on a crew of two, of so many tiles. Two that run one tile at a time would be found as a race for its place.
fn call(tiles: usize, length: Tiles) {
    let (crew, cancel, places) = (Crew::new(2), Cancel::default(), Places::new(tiles));
    let body = |_: &mut Pace<'_>, tile: usize| {
        places.write(tile);
        Ok(())
    };
    let workers = Workers::new(&cancel, None, 2, tiles, length, body);
    crew.run(2, &|worker| workers.work(worker)).expect("nobody panics");
    workers.result().expect("no tile fails");
    assert_eq!(places.read(), vec![1; tiles], "not each tile was run once");
}

#[test]
fn each_tile_is_run_exactly_once() {
    for tiles in [2, 3, 5] {
        explore(2, move || call(tiles, Tiles::Short));
    }
}

#[test]
fn each_long_tile_is_run_exactly_once_and_the_caller_waits_for_it() {
    for tiles in [2, 3] {
        explore(2, move || call(tiles, Tiles::Long));
    }
}

/// Threads alone, without the crew's own meeting, so that more preemptions can be tried.
#[test]
fn tiles_of_the_other_share_are_taken_once() {
    explore(5, || {
        let places = Arc::new(Places::new(3));
        let body = {
            let places = Arc::clone(&places);
            move |_: &mut Pace<'_>, tile: usize| {
                places.write(tile);
                Ok(())
            }
        };
        // As long as the test: loom's objects are made in it.
        let cancel: &'static Cancel = Box::leak(Box::new(Cancel::default()));
        let workers = Arc::new(Workers::new(cancel, None, 2, 3, Tiles::Short, body));
        let helper = loom::thread::spawn({
            let workers = Arc::clone(&workers);
            move || workers.work(1)
        });
        workers.work(0);
        helper.join().expect("nobody panics");
        assert_eq!(places.read(), [1, 1, 1]);
    });
}

#[test]
fn the_error_of_the_first_tile_that_fails_is_told_whoever_ran_it() {
    explore(3, || {
        let (crew, cancel, run) = (Crew::new(2), Cancel::default(), AtomicUsize::new(0));
        let body = |_: &mut Pace<'_>, tile: usize| {
            run.fetch_add(1, Ordering::Relaxed);
            match tile {
                0 => Ok(()),
                tile => Err(weft_gpu_loom::failure(tile)),
            }
        };
        let workers = Workers::new(&cancel, None, 2, 3, Tiles::Short, body);
        crew.run(2, &|worker| workers.work(worker)).expect("nobody panics");
        let told = workers.result().expect_err("two tiles fail").to_string();
        assert!(told.contains("tile 1"), "{told}");
        assert!((2..=3).contains(&run.load(Ordering::Relaxed)), "{} tiles were run", run.load(Ordering::Relaxed));
    });
}

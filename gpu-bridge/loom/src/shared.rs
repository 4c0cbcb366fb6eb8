//! Cores that calls take turns on: what `gpu-bridge/src/device/cpu/shared.rs` is there, and calls to explore.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::AtomicU64;

use crate::Places;
use crate::error::Result;
use crate::run::{Cancel, Pace, Tiles, Turn, Workers, alone};
use crate::share::Member;

#[path = "../../src/device/cpu/shared/call.rs"]
mod call;
#[path = "../../src/device/cpu/shared/turns.rs"]
#[expect(dead_code, reason = "not all of it is explored")]
mod turns;

use call::Call;
use turns::Turns;

/// A turn is over at once, and nothing is kept between two calls.
const QUANTUM: Duration = Duration::ZERO;
const GRACE: Duration = Duration::ZERO;

/// Some cores, and a place for each.
pub struct Cores {
    turns: Arc<Turns>,
    places: Places,
}

impl Cores {
    pub fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self { turns: Arc::new(Turns::new(cores)), places: Places::new(cores) })
    }

    pub fn open(self: &Arc<Self>, owner: &str) -> Handle {
        let member = self.turns.join(&owner.into(), NonZeroU32::MIN);
        Handle { turns: Arc::clone(&self.turns), member, time: AtomicU64::new(0), cores: Arc::clone(self) }
    }
}

/// One owner's way to the cores.
pub struct Handle {
    turns: Arc<Turns>,
    member: Member,
    time: AtomicU64,
    cores: Arc<Cores>,
}

impl Handle {
    /// A call on one thread, of so many tiles.
    pub fn run(&self, cancel: &Cancel, tiles: usize) -> Result<()> {
        let call = Call::begin(self, 1, cancel)?;
        alone(cancel, Some(&call), tiles, |pace, _| {
            self.cores.places.write(pace.worker());
            Ok(())
        })
    }

    /// A call that needs two cores: the caller and a helper, with so many tiles for both. Whoever has the cores writes to
    /// their places, so a call that goes on without its cores is found.
    pub fn run_both(&self, cancel: &Cancel, tiles: usize) -> Result<()> {
        let call = Call::begin(self, 2, cancel)?;
        let body = {
            let cores = Arc::clone(&self.cores);
            move |pace: &mut Pace<'_>, _: usize| {
                cores.places.write(pace.worker());
                Ok(())
            }
        };
        // SAFETY: the helper, which is the only one to have these, has ended before the call and its handle do.
        let (turn, flag) = unsafe {
            let turn = std::mem::transmute::<&dyn Turn, &'static dyn Turn>(&call);
            (turn, std::mem::transmute::<&Cancel, &'static Cancel>(cancel))
        };
        let workers = Arc::new(Workers::new(flag, Some(turn), 2, tiles, Tiles::Long, body));
        let helper = loom::thread::spawn({
            let workers = Arc::clone(&workers);
            move || workers.work(1)
        });
        workers.work(0);
        helper.join().expect("nobody panics");
        call.gathered();
        Arc::into_inner(workers).map_or(Ok(()), Workers::result)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.turns.leave(self.member);
    }
}

//! Cores that calls take turns on: what `gpu-bridge/src/device/cpu/shared.rs` is there, and calls to explore.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::AtomicU64;

use crate::Places;
use crate::error::Result;
use crate::run::{Cancel, Crowd, Turn};
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
        Crowd::default().work(&call, cancel, 0, tiles, || self.cores.places.write(0))
    }

    /// A call that needs two cores: the caller and a helper, of so many tiles each. Whoever has the cores writes to their
    /// places, so a call that goes on without its cores is found.
    pub fn run_both(&self, cancel: &Cancel, tiles: usize) -> Result<()> {
        let call = Call::begin(self, 2, cancel)?;
        // SAFETY: the helper, which is the only one to have this, has ended before the call and its handle do.
        let helped: &Call<'static> = unsafe { std::mem::transmute(&call) };
        let crowd = Arc::new(Crowd::default());
        let helper = loom::thread::spawn({
            let (cancel, crowd, cores) = (cancel.clone(), Arc::clone(&crowd), Arc::clone(&self.cores));
            move || crowd.work(helped, &cancel, 1, tiles, || cores.places.write(1))
        });
        let own = crowd.work(&call, cancel, 0, tiles, || self.cores.places.write(0));
        let helpers = helper.join().expect("nobody panics");
        call.gathered();
        own.and(helpers)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.turns.leave(self.member);
    }
}

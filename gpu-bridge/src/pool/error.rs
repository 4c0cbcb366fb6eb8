//! Why there is no lease.

use super::{DeviceId, Error, Wish};

/// A request that the pool could not grant. Nothing is reserved for it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PoolError {
    #[error(
        "no device for {wanted} bytes on {}: {}; at most {fits} would fit now, {largest} on an empty device",
        describe(.wish), list(.rooms)
    )]
    NothingFits {
        wanted: usize,
        wish: Wish,
        /// The devices that the wish allows.
        rooms: Vec<Room>,
        /// The most that the same request could have now.
        fits: usize,
        /// The most that it could ever have.
        largest: usize,
    },
    #[error("there is no {}; there are: {}", describe(.wish), names(.devices))]
    NoSuchDevice { wish: Wish, devices: Vec<DeviceId> },
    #[error(
        "`{entry}` in the list of visible devices is none of: {}; `all`, `none`, or names or indices with commas between",
        names(.devices)
    )]
    UnknownVisible { entry: String, devices: Vec<DeviceId> },
    #[error("a lease of weight 0 would never have its turn; the least is 1")]
    NoWeight,
    #[error("a lease of 0 bytes could hold no tensor; ask for what the job needs")]
    NoBytes,
    #[error("there are no devices")]
    Empty,
    #[error(transparent)]
    Device(#[from] Error),
}

/// What a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub device: DeviceId,
    pub free: usize,
    pub capacity: usize,
}

fn describe(wish: &Wish) -> String {
    match wish {
        Wish::Auto | Wish::Near(_) => "any device".into(),
        Wish::Cpu => "the cpu".into(),
        Wish::Gpu => "a gpu".into(),
        Wish::Exactly(device) => format!("`{device}`"),
    }
}

fn list(rooms: &[Room]) -> String {
    let rooms = rooms.iter().map(|room| format!("`{}` has {} of {} free", room.device, room.free, room.capacity));
    rooms.collect::<Vec<_>>().join(", ")
}

fn names(devices: &[DeviceId]) -> String {
    if devices.is_empty() {
        return "none".into();
    }
    devices.iter().map(|device| format!("`{device}`")).collect::<Vec<_>>().join(", ")
}

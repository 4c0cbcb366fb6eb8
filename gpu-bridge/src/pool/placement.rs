//! Which device a lease is given.

use super::{Books, PoolError, Request, Room, Slot, Wish};
use crate::device::Kind;

/// The place of the best device in `slots`, of those that were not `tried` and have room.
/// `host` is how many bytes of the host's memory are free.
pub(super) fn choose(
    slots: &[Slot],
    books: &Books,
    request: &Request,
    tried: &[usize],
    host: usize,
) -> Result<usize, PoolError> {
    if slots.is_empty() {
        return Err(PoolError::Empty);
    }
    // What the request must leave to others is not there for it.
    let capacity = |index: usize| {
        let memory = slots[index].info.memory;
        memory - request.spare.of(memory)
    };
    let free = |index: usize| {
        let free = capacity(index).saturating_sub(books.reserved(index));
        match host.checked_sub(request.host) {
            None => 0,
            Some(left) if slots[index].info.kind.is_host() => free.min(left),
            Some(_) => free,
        }
    };
    let fits = |index: &usize| free(*index) >= request.bytes && !tried.contains(index);
    if let Wish::Near(id) = request.device
        && let Some(near) = slots.iter().position(|slot| slot.id == id).filter(fits)
    {
        return Ok(near);
    }
    let allowed = allowed(slots, request.device);
    if allowed.is_empty() {
        let devices = slots.iter().map(|slot| slot.id).collect();
        return Err(PoolError::NoSuchDevice { wish: request.device, devices });
    }
    let total: u64 = allowed.iter().map(|&index| books.weight(index)).sum();
    let load = |index: usize| {
        let bytes = books.reserved(index) as f64 / slots[index].info.memory.max(1) as f64;
        bytes + books.weight(index) as f64 / total.max(1) as f64
    };
    let best = allowed.iter().copied().filter(fits).min_by(|&a, &b| {
        let rank = |index: usize| rank(slots[index].info.kind);
        rank(a).cmp(&rank(b)).then(load(a).total_cmp(&load(b)))
    });
    best.ok_or_else(|| {
        let room = |&index: &usize| Room { device: slots[index].id, free: free(index), capacity: capacity(index) };
        let rooms: Vec<Room> = allowed.iter().map(room).collect();
        PoolError::NothingFits {
            wanted: request.bytes,
            wish: request.device,
            fits: rooms.iter().map(|room| room.free).max().unwrap_or(0),
            largest: rooms.iter().map(|room| room.capacity).max().unwrap_or(0),
            rooms,
        }
    })
}

fn allowed(slots: &[Slot], wish: Wish) -> Vec<usize> {
    let of = |wanted: &dyn Fn(&Slot) -> bool| -> Vec<usize> {
        slots.iter().enumerate().filter(|(_, slot)| wanted(slot)).map(|(index, _)| index).collect()
    };
    // Cores that pretend to be a GPU are slower than the cores themselves: only where there is no other.
    let real_or = |all: Vec<usize>| {
        let real: Vec<usize> = all.iter().copied().filter(|&index| slots[index].info.kind != Kind::Software).collect();
        if real.is_empty() { all } else { real }
    };
    match wish {
        Wish::Auto | Wish::Near(_) => real_or(of(&|_| true)),
        Wish::Gpu => real_or(of(&|slot| slot.info.kind.is_gpu())),
        Wish::Cpu => of(&|slot| slot.info.kind == Kind::Cpu),
        Wish::Exactly(id) => of(&|slot| slot.id == id),
    }
}

fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Discrete | Kind::Integrated | Kind::Virtual => 0,
        Kind::Cpu => 1,
        Kind::Software => 2,
    }
}

//! What no decision leaves: how many workers there may be, and how large.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::spec::LEAST_MEMORY;

/// The least and the most that there may be of workers and of their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub least_workers: u32,
    pub most_workers: u32,
    /// Bytes of each function.
    pub least_memory: u64,
    pub most_memory: u64,
    /// Memory is chosen in steps of so many bytes, counted from the least.
    pub memory_step: u64,
}

/// Why nothing fits between bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBounds {
    #[error("there is no number of workers from {least} to {most}: there must be one at least")]
    Workers { least: u32, most: u32 },
    #[error(
        "there is no size of memory from {least} to {most} bytes: the least that a worker can have is {LEAST_MEMORY}"
    )]
    Memory { least: u64, most: u64 },
    #[error("memory cannot be chosen in steps of 0 bytes")]
    Step,
}

/// What there is room for now: it changes while other jobs come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Room {
    /// Workers that the tenant's quota allows this job.
    pub quota: u32,
    /// Workers that the node has room for, with those that the job has already.
    pub workers: u32,
    /// Memory below which the job cannot be trained, as far as is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub least_memory: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Room {
    /// As many as one likes.
    pub const ENDLESS: Self = Self { quota: u32::MAX, workers: u32::MAX, least_memory: 0 };
}

impl Bounds {
    /// Refuses bounds between which there is nothing.
    pub fn check(&self) -> Result<(), BadBounds> {
        if self.least_workers == 0 || self.least_workers > self.most_workers {
            return Err(BadBounds::Workers { least: self.least_workers, most: self.most_workers });
        }
        if self.least_memory < LEAST_MEMORY || self.least_memory > self.most_memory {
            return Err(BadBounds::Memory { least: self.least_memory, most: self.most_memory });
        }
        if self.memory_step == 0 { Err(BadBounds::Step) } else { Ok(()) }
    }

    /// The bounds with no more workers than there is room for, and with one at least; and with no less memory than is needed.
    pub fn within(&self, room: Room) -> Self {
        let most_workers = self.most_workers.min(room.quota).min(room.workers).max(1);
        let least_memory = self.least_memory.max(room.least_memory).min(self.most_memory);
        Self { most_workers, least_workers: self.least_workers.min(most_workers), least_memory, ..*self }
    }

    pub fn workers(&self, workers: u32) -> u32 {
        workers.clamp(self.least_workers, self.most_workers)
    }

    /// The nearest memory that is within bounds and a whole number of steps above the least.
    pub fn memory(&self, memory: u64) -> u64 {
        let above = memory.clamp(self.least_memory, self.most_memory) - self.least_memory;
        let steps = above.saturating_add(self.memory_step / 2) / self.memory_step;
        self.least_memory + steps.min((self.most_memory - self.least_memory) / self.memory_step) * self.memory_step
    }

    pub fn hold(&self, workers: u32, memory: u64) -> bool {
        (self.least_workers..=self.most_workers).contains(&workers)
            && (self.least_memory..=self.most_memory).contains(&memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: Bounds = Bounds {
        least_workers: 2,
        most_workers: 8,
        least_memory: 256 * MIB,
        most_memory: 1500 * MIB,
        memory_step: 64 * MIB,
    };

    #[test]
    fn memory_is_a_whole_number_of_steps_within_bounds() {
        for (asked, given) in [(0, 256), (287, 256), (289, 320), (512, 512), (1500, 1472), (9000, 1472)] {
            assert_eq!(BOUNDS.memory(asked * MIB), given * MIB, "{asked} MiB");
        }
        assert_eq!(BOUNDS.memory(u64::MAX), 1472 * MIB);
    }

    #[test]
    fn little_room_is_stronger_than_the_least_that_was_asked_for() {
        let tight = BOUNDS.within(Room { quota: 5, workers: 1, ..Room::ENDLESS });
        assert_eq!((tight.least_workers, tight.most_workers), (1, 1));
        assert_eq!(BOUNDS.within(Room { quota: 0, workers: 0, ..Room::ENDLESS }).workers(7), 1);
        assert_eq!(BOUNDS.within(Room { quota: 5, workers: 7, ..Room::ENDLESS }).workers(7), 5);
    }

    #[test]
    fn bounds_without_anything_between_them_are_refused() {
        assert_eq!(BOUNDS.check(), Ok(()));
        assert!(matches!(Bounds { least_workers: 9, ..BOUNDS }.check(), Err(BadBounds::Workers { .. })));
        assert!(matches!(Bounds { least_workers: 0, ..BOUNDS }.check(), Err(BadBounds::Workers { .. })));
        assert!(matches!(Bounds { least_memory: 1600 * MIB, ..BOUNDS }.check(), Err(BadBounds::Memory { .. })));
        assert_eq!(Bounds { memory_step: 0, ..BOUNDS }.check(), Err(BadBounds::Step));
    }
}

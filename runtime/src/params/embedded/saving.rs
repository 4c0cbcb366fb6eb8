//! Snapshots of everything, written while everything goes on.
//!
//! A snapshot is written by a thread that may wait, straight into its file. It takes a space a page at a time, and locks it
//! for no longer than that; each space is saved as it was at one moment (see [`super::copy`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::OwnedMutexGuard;

use super::Embedded;
use super::disk::{Disk, DiskError, SnapshotFile};
use super::frame::Record;
use super::spaces::{Slot, Spaces};
use super::state::PAGE;
use crate::locks::SharedLock;
use crate::params::Space;

impl Embedded {
    /// Replaces the snapshot, if something has changed since the last one. One at a time: two would write to the same file,
    /// and the older one must not take the place of the newer one, which has deleted the journals before it. Whoever finds
    /// nothing to save has waited for the snapshot that was being written.
    pub(super) async fn save_changes(self: &Arc<Self>) -> Result<(), DiskError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let saving = Arc::new(self.saving.clone().lock_owned().await);
        if !self.changed.swap(false, Relaxed) {
            return Ok(());
        }
        let written = self.clone().snapshot(disk, saving.clone()).await;
        if written.is_err() {
            // Before anybody else may save: they would find nothing to do.
            self.changed.store(true, Relaxed);
        }
        drop(saving);
        written
    }

    /// Nobody else saves before the thread that writes is done, whatever becomes of whoever waits for it.
    async fn snapshot(self: Arc<Self>, disk: &Arc<Disk>, saving: Arc<OwnedMutexGuard<()>>) -> Result<(), DiskError> {
        // What is journaled from here on is in the next journal; what came before is seen below.
        let next = disk.next_journal().await?;
        let disk = disk.clone();
        let write = move || {
            let _saving = saving;
            let number = self.spaces.begin_snapshot();
            let everything = |file: &mut SnapshotFile| {
                write_spaces(&self.spaces, number, file)?;
                // No later version is among what was written.
                Ok(self.clock.load(Relaxed))
            };
            disk.write_snapshot(next, everything).inspect(|()| self.spaces.snapshot_is_on_disk(number))
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|error| Err(DiskError::Ended(error.to_string())))
    }
}

/// Everything, for the snapshot of this number.
fn write_spaces(spaces: &Spaces, snapshot: u64, file: &mut SnapshotFile) -> io::Result<()> {
    for (space, slot) in spaces.all() {
        let written = write_space(&space, &slot, snapshot, file);
        // What it has kept is let go of here, not under the lock.
        let copying = slot.state.writing().end_copy();
        drop(copying);
        written?;
    }
    Ok(())
}

/// What workers exchange is left out: it is worth nothing to a job that is started again, and may be many times its model.
fn write_space(space: &Space, slot: &Slot, snapshot: u64, file: &mut SnapshotFile) -> io::Result<()> {
    let claims: Vec<Record> = {
        let mut state = slot.state.writing();
        if state.is_empty() {
            return Ok(());
        }
        slot.note_snapshot(snapshot);
        state.begin_copy();
        state.claims.iter().map(|(key, claim)| Record::claim(space, key, claim.epoch)).collect()
    };
    for claim in claims {
        file.add(&claim)?;
    }
    loop {
        let Some(page) = slot.state.writing().copy(PAGE) else { return Ok(()) };
        for (key, stored) in page {
            file.add(&Record::Put { space: space.clone(), key, entry: stored.entry, durable: stored.durable })?;
        }
    }
}

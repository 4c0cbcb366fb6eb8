//! npz, several npy in a zip archive, as `numpy.savez` and `numpy.savez_compressed` write it.

use super::array::Array;
use super::error::ReadError;
use super::names::Role;
use super::source::Opened;
use super::zip::{self, Member};
use super::{Options, npy};

/// An archive whose members are known.
pub(super) struct Npz {
    archive: Opened,
    members: Vec<Member>,
}

impl Npz {
    pub fn open(archive: Opened, options: &Options) -> Result<Self, ReadError> {
        let archive = archive.expanded(options.spool_in.as_deref())?;
        let members = zip::members(&archive)?;
        Ok(Self { archive, members })
    }

    /// The places of the features and the labels.
    pub fn find(&self, options: &Options, labels: bool) -> Result<(usize, Option<usize>), ReadError> {
        options.arrays.find(&self.names(), labels).map_err(|problem| self.archive.wrong(problem))
    }

    /// The place of the labels in an archive that is there for them.
    pub fn labels(&self, options: &Options) -> Result<usize, ReadError> {
        options.arrays.one(&self.names(), Role::Labels).map_err(|problem| self.archive.wrong(problem))
    }

    pub fn array(&self, index: usize) -> Result<Array, ReadError> {
        npy::open(zip::input(&self.archive, &self.members[index])?, &self.archive.limits)
    }

    fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| member.name.strip_suffix(".npy").unwrap_or(&member.name)).collect()
    }
}

//! What one slot holds, and how it is written down.
//!
//! In memory a message shares its numbers with whoever computed them. Where it leaves the process it becomes a header and
//! the bytes of its numbers, least significant byte first; the header has all lengths, the slot, and checksums. Whatever
//! comes back is compared with the header before anything is allocated for it, so a damaged message is an error and never
//! other numbers.

use bytes::Bytes;
use weft_core::sync::Slot;

use super::Numbers;

/// The numbers of a message: as they are, or as a codec wrote them.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Plain(Numbers),
    /// The frame of a codec, which has a checksum of its own.
    Encoded(Bytes),
}

impl Content {
    fn bytes(&self) -> Bytes {
        match self {
            Self::Plain(numbers) => numbers.to_bytes(),
            Self::Encoded(bytes) => bytes.clone(),
        }
    }

    pub fn byte_count(&self) -> u64 {
        match self {
            Self::Plain(numbers) => numbers.byte_count(),
            Self::Encoded(bytes) => bytes.len() as u64,
        }
    }
}

impl From<Vec<f32>> for Content {
    fn from(numbers: Vec<f32>) -> Self {
        Self::Plain(numbers.into())
    }
}

/// What one slot holds: a worker's part, or the result of a merge.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What the numbers were computed from.
    pub samples: u64,
    pub payload: Content,
    /// Numbers that no codec touches; they come after those of the payload.
    pub buffers: Numbers,
}

/// Why bytes are not the message that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    #[error("{0} bytes are fewer than a header has")]
    Short(usize),
    #[error("it is no message, or one of another version")]
    Unknown,
    #[error("its header has other bytes than were written")]
    Header,
    #[error("it is the message of slot `{0}`")]
    OtherSlot(Slot),
    #[error("its header says {said} bytes, and there are {found}")]
    Length { said: u64, found: u64 },
    #[error("{0} bytes are no whole number of numbers")]
    Uneven(u64),
    #[error("its numbers have other bytes than were written")]
    Checksum,
}

const MAGIC: &[u8; 8] = b"weftmsg1";
const PLAIN: u32 = 0;
const ENCODED: u32 = 1;
/// Set where the numbers have a checksum: some places have their own.
const IS_SUMMED: u32 = 1;

/// Bytes of a header. What comes after it is aligned if the header is.
pub const HEADER: usize = 80;

/// Whether the checksum covers the numbers too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    /// Header and numbers.
    All,
    /// The header alone, where whoever keeps the bytes makes sure of them itself.
    Header,
}

impl Message {
    pub fn plain(samples: u64, numbers: impl Into<Numbers>) -> Self {
        Self { samples, payload: Content::Plain(numbers.into()), buffers: Numbers::default() }
    }

    /// Bytes of its numbers, as they are counted.
    pub fn byte_count(&self) -> u64 {
        self.payload.byte_count() + self.buffers.byte_count()
    }

    /// The header, the payload and the buffers, which follow one another.
    pub fn to_wire(&self, slot: Slot, summed: Summed) -> [Bytes; 3] {
        let (payload, buffers) = (self.payload.bytes(), self.buffers.to_bytes());
        let kind = match self.payload {
            Content::Plain(_) => PLAIN,
            Content::Encoded(_) => ENCODED,
        };
        let (flags, checksum) = match summed {
            Summed::All => (IS_SUMMED, checksum(&payload, &buffers)),
            Summed::Header => (0, 0),
        };
        let Slot { round, layer, shard, worker, claim } = slot;
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(MAGIC);
        [kind, flags].iter().for_each(|word| header.extend(word.to_le_bytes()));
        [round, claim].iter().for_each(|long| header.extend(long.to_le_bytes()));
        [layer, shard, worker, 0].iter().for_each(|word| header.extend(word.to_le_bytes()));
        let lengths = [self.samples, payload.len() as u64, buffers.len() as u64];
        lengths.iter().for_each(|long| header.extend(long.to_le_bytes()));
        header.extend(checksum.to_le_bytes());
        header.extend(crc32fast::hash(&header).to_le_bytes());
        [header.into(), payload, buffers]
    }

    /// The message of a slot, from a header and what follows it: the payload, and then the buffers.
    pub fn from_wire(slot: Slot, mut wire: Bytes) -> Result<Self, BadMessage> {
        if wire.len() < HEADER {
            return Err(BadMessage::Short(wire.len()));
        }
        let header = Header::read(&wire.split_to(HEADER))?;
        let payload = usize::try_from(header.payload).ok().filter(|&payload| payload <= wire.len());
        let payload = payload.ok_or(BadMessage::Length { said: header.payload, found: wire.len() as u64 })?;
        let payload = wire.split_to(payload);
        header.message(slot, payload, wire)
    }

    /// The message of a slot, from a header with the buffers behind it and a payload that lies elsewhere. Without a payload
    /// elsewhere, it lies between them.
    pub fn from_parts(slot: Slot, mut wire: Bytes, payload: Option<Bytes>) -> Result<Self, BadMessage> {
        match payload {
            Some(payload) if wire.len() >= HEADER => {
                let header = Header::read(&wire.split_to(HEADER))?;
                header.message(slot, payload, wire)
            }
            _ => Self::from_wire(slot, wire),
        }
    }
}

fn checksum(payload: &[u8], buffers: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(payload);
    hasher.update(buffers);
    hasher.finalize()
}

/// A header as it was written.
struct Header {
    slot: Slot,
    is_encoded: bool,
    samples: u64,
    payload: u64,
    buffers: u64,
    /// Of payload and buffers.
    checksum: Option<u32>,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, BadMessage> {
        let header: &[u8; HEADER] = bytes.try_into().map_err(|_| BadMessage::Short(bytes.len()))?;
        if !header.starts_with(MAGIC) {
            return Err(BadMessage::Unknown);
        }
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        if word(HEADER - 4) != crc32fast::hash(&header[..HEADER - 4]) {
            return Err(BadMessage::Header);
        }
        let (kind, flags) = (word(8), word(12));
        if kind > ENCODED || flags > IS_SUMMED || word(44) != 0 || (flags == 0 && word(72) != 0) {
            return Err(BadMessage::Unknown);
        }
        Ok(Self {
            slot: Slot { round: long(16), claim: long(24), layer: word(32), shard: word(36), worker: word(40) },
            is_encoded: kind == ENCODED,
            samples: long(48),
            payload: long(56),
            buffers: long(64),
            checksum: (flags == IS_SUMMED).then(|| word(72)),
        })
    }

    /// The message that it is the header of. Nothing is allocated before every length was compared with what there is.
    fn message(self, slot: Slot, payload: Bytes, buffers: Bytes) -> Result<Message, BadMessage> {
        if self.slot != slot {
            return Err(BadMessage::OtherSlot(self.slot));
        }
        for (said, found) in [(self.payload, &payload), (self.buffers, &buffers)] {
            if said != found.len() as u64 {
                return Err(BadMessage::Length { said, found: found.len() as u64 });
            }
        }
        if self.checksum.is_some_and(|sum| sum != checksum(&payload, &buffers)) {
            return Err(BadMessage::Checksum);
        }
        let numbers = |bytes: Bytes| {
            let count = bytes.len() as u64;
            Numbers::from_bytes(bytes).ok_or(BadMessage::Uneven(count))
        };
        let payload = if self.is_encoded { Content::Encoded(payload) } else { Content::Plain(numbers(payload)?) };
        Ok(Message { samples: self.samples, payload, buffers: numbers(buffers)? })
    }
}

/// Gives bytes the header checksum that they should have: for tests that damage the rest of a header.
pub fn seal(wire: &mut [u8]) {
    if let Some((header, _)) = wire.split_at_mut_checked(HEADER) {
        let checksum = crc32fast::hash(&header[..HEADER - 4]);
        header[HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot { round: 12, layer: 0, shard: 3, worker: 7, claim: 1 };

    fn joined(message: &Message, summed: Summed) -> Vec<u8> {
        message.to_wire(SLOT, summed).concat()
    }

    fn messages() -> Vec<Message> {
        let encoded = Message {
            samples: u64::MAX,
            payload: Content::Encoded(Bytes::from_static(b"frame")),
            buffers: vec![1.5, f32::NEG_INFINITY].into(),
        };
        vec![Message::plain(0, Vec::new()), Message::plain(9, vec![1.0, -0.0, f32::MIN_POSITIVE]), encoded]
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for message in messages() {
            for summed in [Summed::All, Summed::Header] {
                let wire = joined(&message, summed);
                assert_eq!(Message::from_wire(SLOT, wire.clone().into()).as_ref(), Ok(&message));
                // Wherever its bytes begin.
                let moved = Bytes::from([&[0], &wire[..]].concat()).slice(1..);
                assert_eq!(Message::from_wire(SLOT, moved).as_ref(), Ok(&message));
                let [header, payload, buffers] = message.to_wire(SLOT, summed);
                let apart = Message::from_parts(SLOT, [header, buffers].concat().into(), Some(payload));
                assert_eq!(apart.as_ref(), Ok(&message));
            }
        }
    }

    #[test]
    fn every_bit_counts() {
        for message in messages() {
            let wire = joined(&message, Summed::All);
            for at in 0..wire.len() {
                for bit in 0..8 {
                    let mut damaged = wire.clone();
                    damaged[at] ^= 1 << bit;
                    assert!(Message::from_wire(SLOT, damaged.into()).is_err(), "byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_refused() {
        let wire = joined(&messages()[2], Summed::Header);
        for end in 0..wire.len() {
            assert!(Message::from_wire(SLOT, Bytes::copy_from_slice(&wire[..end])).is_err(), "{end}");
        }
        assert!(Message::from_wire(SLOT, [wire, vec![0]].concat().into()).is_err());
    }

    #[test]
    fn lengths_that_lie_are_refused_before_anything_is_allocated() {
        let wire = joined(&messages()[1], Summed::Header);
        for (payload, buffers) in [(u64::MAX, 0), (u64::MAX, 13), (0, u64::MAX), (13, 0), (11, 1), (1 << 40, 0)] {
            let mut lying = wire.clone();
            lying[56..64].copy_from_slice(&payload.to_le_bytes());
            lying[64..72].copy_from_slice(&buffers.to_le_bytes());
            seal(&mut lying);
            let read = Message::from_wire(SLOT, lying.into());
            assert!(
                matches!(read, Err(BadMessage::Length { .. } | BadMessage::Uneven(_))),
                "{payload} {buffers}: {read:?}"
            );
        }
    }

    #[test]
    fn the_message_of_another_slot_is_refused() {
        let wire = joined(&messages()[1], Summed::All);
        let other = Slot { claim: 2, ..SLOT };
        assert_eq!(Message::from_wire(other, wire.into()), Err(BadMessage::OtherSlot(SLOT)));
    }
}

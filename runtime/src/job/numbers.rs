//! Numbers that whoever computed them shares with whoever needs them, and how they are written down where they leave the
//! process.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model;

/// Numbers that are shared, not copied: a range of a vector, or of bytes that came from elsewhere.
#[derive(Clone)]
pub struct Numbers(Held);

#[derive(Clone)]
enum Held {
    Vector {
        vector: Arc<Vec<f32>>,
        range: Range<usize>,
    },
    /// Aligned and as many as whole numbers take, which [`Numbers::from_bytes`] has made sure of.
    Bytes(Bytes),
}

impl Numbers {
    /// Those of a range of these, which must be within them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        Some(Self(match &self.0 {
            Held::Vector { vector, range: whole } => {
                Held::Vector { vector: vector.clone(), range: whole.start + range.start..whole.start + range.end }
            }
            Held::Bytes(bytes) => Held::Bytes(bytes.slice(range.start * SIZE..range.end * SIZE)),
        }))
    }

    /// Bytes as numbers. They are copied only if they do not lie where numbers can.
    pub fn from_bytes(bytes: Bytes) -> Option<Self> {
        if cfg!(target_endian = "little") && bytemuck::try_cast_slice::<u8, f32>(&bytes).is_ok() {
            return Some(Self(Held::Bytes(bytes)));
        }
        let (numbers, rest) = bytes.as_chunks::<SIZE>();
        rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>().into())
    }

    /// The bytes of these numbers, without copying them.
    pub fn to_bytes(&self) -> Bytes {
        if cfg!(target_endian = "big") {
            return self.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>().into();
        }
        match &self.0 {
            Held::Vector { .. } => Bytes::from_owner(Viewed(self.clone())),
            Held::Bytes(bytes) => bytes.clone(),
        }
    }

    /// The numbers as a vector of the caller's own, copied unless nobody else holds them.
    pub fn into_vec(self) -> Vec<f32> {
        match self.0 {
            Held::Vector { vector, range } if range == (0..vector.len()) => {
                Arc::try_unwrap(vector).unwrap_or_else(|shared| shared.to_vec())
            }
            held => Self(held).to_vec(),
        }
    }

    pub fn byte_count(&self) -> u64 {
        size_of_val(&self[..]) as u64
    }
}

/// The same for the same bits, on every machine.
pub fn checksum(numbers: &[f32]) -> u32 {
    crc32fast::hash(&model::le_bytes(numbers))
}

/// The bytes of a number.
const SIZE: usize = size_of::<f32>();

impl Deref for Numbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            // Both were checked when it was made.
            Held::Vector { vector, range } => vector.get(range.clone()).unwrap_or_default(),
            Held::Bytes(bytes) => bytemuck::try_cast_slice(bytes).unwrap_or_default(),
        }
    }
}

impl From<Vec<f32>> for Numbers {
    fn from(vector: Vec<f32>) -> Self {
        Arc::new(vector).into()
    }
}

impl From<Arc<Vec<f32>>> for Numbers {
    fn from(vector: Arc<Vec<f32>>) -> Self {
        let range = 0..vector.len();
        Self(Held::Vector { vector, range })
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

/// How many there are; a message of millions of them would be no help.
impl fmt::Debug for Numbers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} numbers", self.len())
    }
}

/// Numbers as the bytes that they are.
struct Viewed(Numbers);

impl AsRef<[u8]> for Viewed {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// As their bytes, least significant byte first. Where orders and contributions are written down, numbers in shared memory
/// are written in full: what is read means the same wherever it is read, and nothing can turn out to be unwritable. Whoever
/// wants to say less puts them into a slot first, and names that.
impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&model::le_bytes(self))
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = as_bytes::deserialize(deserializer)?;
        let count = bytes.len();
        let uneven = || D::Error::custom(format!("{count} bytes are no whole number of numbers"));
        Self::from_bytes(bytes).ok_or_else(uneven)
    }
}

/// For `#[serde(with = …)]`: a vector of numbers as its bytes.
pub(super) mod as_numbers {
    use super::*;

    pub fn serialize<S: Serializer>(numbers: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&model::le_bytes(numbers))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        Ok(Numbers::deserialize(deserializer)?.into_vec())
    }
}

/// For `#[serde(with = …)]`: bytes as such, in formats that know them.
pub(super) mod as_bytes {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_byte_buf(Owned)
    }

    struct Owned;

    impl<'de> Visitor<'de> for Owned {
        type Value = Bytes;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("bytes")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
            Ok(Bytes::copy_from_slice(bytes))
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
            Ok(bytes.into())
        }

        /// As formats have them that know no bytes.
        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Bytes, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = sequence.next_element::<u8>()? {
                bytes.push(byte);
            }
            Ok(bytes.into())
        }
    }
}

/// For `#[serde(with = …)]`: what is shared in this process is written as what it is.
pub(super) mod as_owned {
    use super::*;

    pub fn serialize<T: Serialize, S: Serializer>(shared: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
        (**shared).serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// The same for what may be absent.
pub(super) mod as_owned_option {
    use super::*;

    pub fn serialize<T: Serialize, S: Serializer>(shared: &Option<Arc<T>>, serializer: S) -> Result<S::Ok, S::Error> {
        shared.as_deref().serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<T>>, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_bytes_and_numbers_again_without_a_copy() {
        let vector = Arc::new(vec![1.0_f32, 2.0, 3.0, 4.0]);
        let part = Numbers::from(vector.clone()).slice(1..3).unwrap();
        let bytes = part.to_bytes();
        assert_eq!(bytes.as_ptr(), vector[1..].as_ptr().cast());
        let again = Numbers::from_bytes(bytes).unwrap();
        assert_eq!((again.as_ptr(), &again[..]), (vector[1..].as_ptr(), &[2.0, 3.0][..]));
        let inner = again.slice(1..2).unwrap();
        assert_eq!((inner.as_ptr(), &inner[..]), (vector[2..].as_ptr(), &[3.0][..]));
    }

    #[test]
    fn a_checksum_tells_bits_apart() {
        assert_eq!(checksum(&[1.0, 0.0]), checksum(&[1.0, 0.0]));
        assert_ne!(checksum(&[1.0, 0.0]), checksum(&[1.0, -0.0]));
    }

    #[test]
    fn a_slice_stays_within() {
        let numbers = Numbers::from(vec![1.0, 2.0]);
        assert!(numbers.slice(0..3).is_none() && numbers.slice(3..3).is_none() && numbers.slice(2..2).is_some());
        assert!(Numbers::from_bytes(vec![0; 7].into()).is_none());
    }

    #[test]
    fn a_vector_that_nobody_else_holds_is_moved() {
        let vector = vec![1.0_f32, 2.0];
        let place = vector.as_ptr();
        let moved = Numbers::from(vector).into_vec();
        assert_eq!(moved.as_ptr(), place);
        let shared = Arc::new(vec![1.0_f32, 2.0]);
        let copied = Numbers::from(shared.clone()).into_vec();
        assert_ne!(copied.as_ptr(), shared.as_ptr());
        assert_eq!(Numbers::from(shared).slice(1..2).unwrap().into_vec(), [2.0]);
    }

    #[test]
    fn numbers_are_read_as_they_were_written_bit_by_bit() {
        let odd = [f32::NAN, -0.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::NEG_INFINITY];
        let part = Numbers::from([&[7.0], &odd[..], &[7.0]].concat()).slice(1..6).unwrap();
        let packed = rmp_serde::to_vec(&part).unwrap();
        assert_eq!(packed.len(), 2 + 4 * odd.len(), "bytes, and how many");
        for read in [
            rmp_serde::from_slice::<Numbers>(&packed).unwrap(),
            serde_json::from_slice(&serde_json::to_vec(&part).unwrap()).unwrap(),
        ] {
            assert_eq!(read.iter().map(|it| it.to_bits()).collect::<Vec<_>>(), odd.map(f32::to_bits));
        }
        let uneven = rmp_serde::to_vec(&serde_json::json!([1, 2, 3])).unwrap();
        let error = rmp_serde::from_slice::<Numbers>(&uneven).unwrap_err();
        assert!(error.to_string().contains("3 bytes are no whole number of numbers"), "{error}");
    }
}

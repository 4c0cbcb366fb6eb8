//! Records of an event file: a length, the checksum of the length, the bytes, and the checksum of the bytes. Checksums are
//! CRC-32C, turned and moved, so that the checksum of something that holds checksums is still a good one.

use super::proto::Message;

/// CRC-32C of each byte.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    // Castagnoli's polynomial, the lowest power in the highest bit.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |rest, byte| rest >> 8 ^ TABLE[((rest ^ u32::from(*byte)) & 0xff) as usize])
}

fn masked(bytes: &[u8]) -> u32 {
    crc(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn record(event: &Message) -> Vec<u8> {
    let bytes = event.bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked(&length).to_le_bytes());
    record.extend(bytes);
    record.extend(masked(bytes).to_le_bytes());
    record
}

/// What a file begins with: the version of all that follows.
pub fn begin(at: f64) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, at);
    event.text(3, "brain.Event:2");
    record(&event)
}

/// One value of a summary, at a time and a step.
pub fn summary(at: f64, step: u64, value: &Message) -> Vec<u8> {
    let (mut summary, mut event) = (Message::default(), Message::default());
    summary.message(1, value);
    event.double(1, at);
    event.varint(2, step);
    event.message(5, &summary);
    record(&event)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The records of a file; panics where a checksum is wrong or the file ends in the middle.
    pub fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(bytes[8..12], masked(&bytes[..8]).to_le_bytes());
            let record = &bytes[12..12 + length];
            assert_eq!(bytes[12 + length..16 + length], masked(record).to_le_bytes());
            records.push(record);
            bytes = &bytes[16 + length..];
        }
        records
    }

    /// RFC 3720, B.4.
    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_is_framed_is_read_again() {
        let mut file = begin(1.5);
        file.extend(summary(2.5, 7, &Message::default()));
        let records = records(&file);
        assert_eq!(records.len(), 2);
        assert!(records[0].ends_with(b"brain.Event:2"));
    }
}

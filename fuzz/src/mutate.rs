//! How one input becomes another.

/// Numbers that look random, the same for the same seed (SplitMix64).
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// A length of less than so many bits, the short ones as likely as the long ones.
    pub fn length(&mut self, bits: usize) -> usize {
        let bits = self.below(bits);
        self.below(1 << bits)
    }

    fn one_of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// Numbers at which programs change their minds.
const EDGES: [u64; 14] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 40,
    u64::MAX / 2,
    u64::MAX / 2 + 1,
    u64::MAX,
];

/// Words of the formats that are read here.
const WORDS: [&[u8]; 28] = [
    b"nan",
    b"inf",
    b"1e999",
    b"-0",
    b"-1",
    b"0.5",
    b",",
    b";",
    b"\t",
    b"\n",
    b"\r\n",
    b"\"",
    b":",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"null",
    b"true",
    b"\0",
    b"\xff\xfe",
    b"\xf0\x9f\x92\xa9",
    b"99999999999999999999",
    b"PK\x05\x06",
    b"PK\x01\x02",
    b"\x1f\x8b\x08",
];

/// Changes an input in one to sixteen ways. `other` is another input to take pieces from, `compared` a source of numbers
/// that were compared in the latest run.
pub fn mutate(
    input: &mut Vec<u8>,
    other: &[u8],
    longest: usize,
    noise: &mut Noise,
    mut compared: impl FnMut(u64) -> Option<[u64; 2]>,
) {
    for _ in 0..1_usize << noise.below(5) {
        let at = noise.below(input.len() + 1);
        match noise.below(12) {
            0 | 1 if at < input.len() => input[at] ^= 1 << noise.below(8),
            2 if at < input.len() => input[at] = noise.next() as u8,
            3 if at < input.len() => input[at] = input[at].wrapping_add(noise.below(33) as u8).wrapping_sub(16),
            4 => {
                let edge = EDGES[noise.below(EDGES.len())];
                put_number(input, at, edge, noise);
            }
            5 => {
                let word = noise.one_of(&WORDS);
                input.splice(at..at, word.iter().copied());
            }
            6 => {
                let end = input.len().min(at + 1 + noise.length(8));
                input.drain(at.min(end)..end);
            }
            7 => {
                let from = noise.below(input.len() + 1);
                let end = input.len().min(from + 1 + noise.length(8));
                let piece = input[from..end].to_vec();
                input.splice(at..at, piece);
            }
            8 => {
                let from = noise.below(other.len() + 1);
                let end = other.len().min(from + 1 + noise.length(10));
                let over = input.len().min(at + if noise.below(2) == 0 { end - from } else { 0 });
                input.splice(at..over, other[from..end].iter().copied());
            }
            9 => input.truncate(at),
            _ => {
                if let Some(pair) = compared(noise.next()) {
                    replace_compared(input, pair, noise);
                }
            }
        }
        input.truncate(longest);
    }
}

fn put_number(input: &mut [u8], at: usize, number: u64, noise: &mut Noise) {
    let width = [1, 2, 4, 8][noise.below(4)];
    let bytes = ordered(number, width, noise.below(2) == 0);
    let end = input.len().min(at + width);
    input[at..end].copy_from_slice(&bytes[..end - at]);
}

fn ordered(number: u64, width: usize, is_big: bool) -> Vec<u8> {
    if is_big { number.to_be_bytes()[8 - width..].to_vec() } else { number.to_le_bytes()[..width].to_vec() }
}

/// Where the input has one of two numbers that were compared, puts the other, in binary or in decimal.
fn replace_compared(input: &mut Vec<u8>, [one, other]: [u64; 2], noise: &mut Noise) {
    let (from, to) = if noise.below(2) == 0 { (one, other) } else { (other, one) };
    // Often a comparison is about one less or one more.
    let to = to.wrapping_add(noise.below(3) as u64).wrapping_sub(1);
    let (from, to) = if noise.below(4) == 0 {
        (from.to_string().into_bytes(), to.to_string().into_bytes())
    } else {
        let narrowest = [1, 2, 4, 8].into_iter().find(|width| from >> (8 * width - 1) >> 1 == 0).unwrap_or(8);
        let (width, is_big) = (narrowest.max([1, 2, 4, 8][noise.below(4)]), noise.below(2) == 0);
        (ordered(from, width, is_big), ordered(to, width, is_big))
    };
    let places: Vec<usize> =
        input.windows(from.len()).enumerate().filter(|(_, window)| *window == from).map(|(at, _)| at).collect();
    if let Some(&at) = places.get(noise.below(places.len())) {
        input.splice(at..at + from.len(), to);
    }
}

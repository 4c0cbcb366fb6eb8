//! Choices that are made by a string of bytes: the same bytes, the same program.

/// Where choices come from. Once the bytes have run out every choice is the first.
pub struct Bytes<'a> {
    rest: &'a [u8],
}

/// Sizes that break what does not expect them.
const HOSTILE_SIZES: [usize; 12] =
    [0, 1, 7, 64, 65_537, 1 << 31, (1 << 32) + 1, 1 << 40, 1 << 62, usize::MAX / 2 + 1, usize::MAX - 1, usize::MAX];

const HOSTILE_FLOATS: [f32; 10] = [
    0.0,
    -0.0,
    -1.0,
    1.0,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN_POSITIVE / 8.0,
    -f32::EPSILON,
];

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&first, rest)) => {
                self.rest = rest;
                first
            }
            None => 0,
        }
    }

    /// A number below `count`; 0 if there is none.
    pub fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=256 => usize::from(self.byte()) % count,
            _ => (usize::from(self.byte()) << 8 | usize::from(self.byte())) % count,
        }
    }

    /// A number from `low` to `high`, both among them.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Whether something that happens once in `times` happens.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    pub fn flip(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// An attribute that is usually this.
    pub fn size(&mut self, usual: usize) -> usize {
        if self.once_in(32) { self.pick(&HOSTILE_SIZES) } else { usual }
    }

    /// An attribute that is usually in `[low, high)`.
    pub fn float(&mut self, low: f32, high: f32) -> f32 {
        if self.once_in(20) {
            return self.pick(&HOSTILE_FLOATS);
        }
        low + (high - low) * f32::from(self.byte()) / 256.0
    }
}

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

    /// In `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    pub fn hostile_float(&mut self) -> f32 {
        HOSTILE_FLOATS[(self.next() % HOSTILE_FLOATS.len() as u64) as usize]
    }

    pub fn bytes(mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

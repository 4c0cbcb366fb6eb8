//! Documents as bags of words: few of many columns, some far more common than others, and a teacher that listens to an
//! eighth of the rarer ones.

use super::Random;

pub const COLUMNS: u32 = 47_236;
/// Different words of a document: uniform, 76 in the mean, which is 0.16 % of the columns.
const LEAST_WORDS: u32 = 20;
const MOST_WORDS: u32 = 132;
/// Words that are in nearly every document say nothing.
const COMMON: u32 = 64;
/// The teacher listens to one of so many words.
const LISTENS: u32 = 8;
const NOISE: f64 = 0.03;
/// Prime, and no divisor of the columns: common words lie all over them.
const STRIDE: u64 = 20_011;

pub fn rule() -> String {
    format!(
        "{LEAST_WORDS} to {MOST_WORDS} different words of {COLUMNS}, drawn by Zipf's law (rank r with weight 1/r) until there \
         are enough; rank r is column (r - 1) * {STRIDE} mod {COLUMNS}; with H(n) = 1 + 1/2 + ... + 1/n, the value is H(times \
         drawn) * H(r), scaled to length 1; the teacher has +1 or -1 for one of {LISTENS} words rarer than the {COMMON} \
         most common; class 1 where the sum of value * teacher > 0, a fair coin where it is 0; then {NOISE} of the labels are \
         flipped"
    )
}

pub struct Teacher {
    /// H(rank), which is also the weight of all ranks up to it.
    harmonic: Vec<f64>,
    /// By rank.
    weights: Vec<i8>,
    /// The ranks drawn for a document, and then its words.
    drawn: Vec<u32>,
    words: Vec<(u32, f64)>,
}

impl Teacher {
    pub fn new(random: &mut Random) -> Self {
        let sums = (1..=COLUMNS).scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        });
        let weight = |rank| {
            let bits = random.bits();
            let listens = rank >= COMMON && (bits >> 1).is_multiple_of(LISTENS);
            if listens { (bits & 1) as i8 * 2 - 1 } else { 0 }
        };
        Self {
            harmonic: sums.collect(),
            weights: (0..COLUMNS).map(weight).collect(),
            drawn: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Adds a sample and gives its label.
    pub fn sample(&mut self, random: &mut Random, columns: &mut Vec<u32>, values: &mut Vec<f32>) -> bool {
        let wanted = LEAST_WORDS + random.bits() % (MOST_WORDS - LEAST_WORDS + 1);
        self.draw(random, wanted as usize);
        let mut score = 0.0;
        self.words.clear();
        for same in self.drawn.chunk_by(|one, next| one == next) {
            let rank = same[0];
            // Ranks count from 0 here, and nothing is drawn more often than there are columns.
            let value = self.harmonic[same.len() - 1] * self.harmonic[rank as usize];
            score += value * f64::from(self.weights[rank as usize]);
            let column = u64::from(rank) * STRIDE % u64::from(COLUMNS);
            self.words.push((column as u32, value));
        }
        self.words.sort_unstable_by_key(|(column, _)| *column);
        let length = self.words.iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
        columns.extend(self.words.iter().map(|(column, _)| column));
        values.extend(self.words.iter().map(|(_, value)| (value / length) as f32));
        let class = if score == 0.0 { random.happens(0.5) } else { score > 0.0 };
        class != random.happens(NOISE)
    }

    /// Ranks, ascending, until `wanted` of them are different.
    fn draw(&mut self, random: &mut Random, wanted: usize) {
        self.drawn.clear();
        let (all, mut different) = (self.harmonic[self.harmonic.len() - 1], 0);
        while different < wanted {
            let missing = wanted - different;
            for _ in 0..missing {
                let place = random.uniform() * all;
                let rank = self.harmonic.partition_point(|sum| *sum <= place) as u32;
                self.drawn.push(rank.min(COLUMNS - 1));
            }
            self.drawn.sort_unstable();
            different = self.drawn.chunk_by(|one, next| one == next).count();
        }
    }
}

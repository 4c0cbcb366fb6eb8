//! Right files, damaged: whatever is in a file, it is read or refused, with little memory.
//!
//! A failure prints how to repeat it. `WEFT_SOAK=n` damages `n` times as many.

use weft::dataset::read::{Format, Options};

use super::files::{f32s, gz, idx, npy_of, read, right_files};
use super::memory::peak;

/// Files that are damaged, for each right one.
const FILES: u64 = 1_500;

/// Of files of a few kilobytes.
const MOST_BYTES: usize = 8 << 20;

/// Numbers that look random, the same for the same seed (SplitMix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

/// Does one to four bad things to a file.
fn damage(bytes: &mut Vec<u8>, noise: &mut Noise) {
    const HOSTILE: [u64; 8] = [0, 1, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0000, 1 << 40, u64::MAX / 2 + 1, u64::MAX];
    const WORDS: [&[u8]; 12] =
        [b"nan", b"1e999", b"-1", b",", b"\n", b"\"", b":", b"99999999999", b"{", b")", b"\0", b"PK\x05\x06"];
    for _ in 0..=noise.below(4) {
        let at = noise.below(bytes.len() + 1);
        // Headers are where most can go wrong.
        let at = if noise.below(2) == 0 { at % 128 } else { at }.min(bytes.len());
        match noise.below(8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << noise.below(8),
            2 => bytes.truncate(at),
            3 => {
                let from = noise.below(bytes.len() + 1);
                let piece = bytes[from..bytes.len().min(from + noise.below(64))].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let end = bytes.len().min(at + noise.below(32));
                bytes.drain(at..end);
            }
            5 => {
                let number = HOSTILE[noise.below(HOSTILE.len())];
                let big = noise.below(2) == 0;
                let lie = if big { number.to_be_bytes() } else { number.to_le_bytes() };
                let length = [1, 2, 4, 8][noise.below(4)];
                let lie = if big { &lie[8 - length..] } else { &lie[..length] };
                let end = bytes.len().min(at + length);
                bytes[at..end].copy_from_slice(&lie[..end - at]);
            }
            6 => {
                let word = WORDS[noise.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            _ if at < bytes.len() => bytes[at] = noise.next() as u8,
            _ => bytes.push(noise.next() as u8),
        }
    }
}

/// Says how to repeat what panicked.
struct Repeat<'a>(&'a str, u64);

impl Drop for Repeat<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(name, seed) = self;
            eprintln!(
                "`{name}`; repeat with: WEFT_FUZZ_SEED={seed} cargo test --release -p weft-tests --test data fuzz"
            );
        }
    }
}

/// Damages the right files of a format, and those compressed.
fn fuzz(format: Format, ends: &str) {
    let files: Vec<_> = right_files().into_iter().filter(|(name, _)| name.ends_with(ends)).collect();
    fuzz_files(Some(format), None, files);
}

/// Damages files, which are the labels of `features` if there are any.
fn fuzz_files(format: Option<Format>, features: Option<(&str, Vec<u8>)>, files: Vec<(&str, Vec<u8>)>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("WEFT_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..FILES * number("WEFT_SOAK").unwrap_or(1),
    };
    let folder = tempfile::tempdir().unwrap();
    let options = Options { format, ..Options::default() };
    if let Some((name, bytes)) = &features {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    assert!(!files.is_empty());
    let (mut right, mut wrong) = (0, 0);
    for (name, bytes) in &files {
        let path = folder.path().join(name);
        let names: Vec<&str> = features.iter().map(|(name, _)| *name).chain([*name]).collect();
        for seed in seeds.clone() {
            let _repeat = Repeat(name, seed);
            let mut noise = Noise(seed);
            let mut bytes = bytes.clone();
            match noise.below(8) {
                // What is inside a right compressed file, and a compressed file itself.
                0 => {
                    damage(&mut bytes, &mut noise);
                    bytes = gz(&bytes);
                }
                1 => {
                    bytes = gz(&bytes);
                    damage(&mut bytes, &mut noise);
                }
                _ => damage(&mut bytes, &mut noise),
            }
            // A new file: some file systems wait for the disk when an old one is written anew.
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, &bytes).unwrap();
            let (result, most) = peak(|| read(folder.path(), &names, &options));
            assert!(most < MOST_BYTES, "`{name}` of {} bytes took {most}", bytes.len());
            match result {
                Ok(_) => right += 1,
                Err(error) => {
                    assert!(error.to_string().contains(name), "{error}");
                    wrong += 1;
                }
            }
        }
    }
    // Otherwise what is damaged is not what matters.
    assert!(seeds.end - seeds.start == 1 || (right > 0 && wrong > 0), "{right} read, {wrong} refused");
}

#[test]
fn labels_are_read_or_refused() {
    let labels = vec![
        ("y.npy", npy_of("<f4", "(6,)", &f32s(&[0.0, 1.0, 2.0, 0.5, -1.0, 3.0]))),
        ("columns.npy", npy_of("|i1", "(6, 2)", &[3; 12])),
        ("y.idx", idx(8, &[6], &[0, 1, 2, 3, 4, 5])),
        ("y.csv", b"cat\ndog\ncat\ncow\ncat\ndog\n".to_vec()),
        ("columns.csv", b"a,b\n1,2\n3,4\n5,6\n7,8\n9,10\n11,12\n".to_vec()),
    ];
    fuzz_files(None, Some(("x.npy", npy_of("|u1", "(6, 2)", &[7; 12]))), labels);
}

macro_rules! target {
    ($($name:ident, $format:expr, $ends:expr;)*) => {
        $(
            #[test]
            fn $name() {
                fuzz($format, $ends);
            }
        )*
    };
}

target! {
    idx_files_are_read_or_refused, Format::Idx, ".idx";
    npy_files_are_read_or_refused, Format::Npy, ".npy";
    npz_files_are_read_or_refused, Format::Npz, ".npz";
    csv_files_are_read_or_refused, Format::Csv, ".csv";
    libsvm_files_are_read_or_refused, Format::LibSvm, ".libsvm";
    cifar_files_are_read_or_refused, Format::Cifar, ".bin";
    safetensors_files_are_read_or_refused, Format::SafeTensors, ".safetensors";
}

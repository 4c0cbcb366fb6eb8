//! The data set that comes with Weft: 1,797 handwritten digits of 8 x 8 pixels, so that examples need no network.
//!
//! `runtime/data/README.md` says where it comes from.

/// A csv file, gzipped: 64 pixels from 0 to 16 by line, and then the digit.
pub const CSV_GZ: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// The shape of one sample.
pub const SHAPE: [usize; 3] = [1, 8, 8];
/// How many there are.
pub const COUNT: usize = 1_797;
/// The share to train on, as other people split it: 1,437 and 360.
pub const SPLIT: f64 = 0.8;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn every_line_has_its_pixels_and_a_digit() {
        let mut text = String::new();
        flate2::read::GzDecoder::new(CSV_GZ).read_to_string(&mut text).unwrap();
        let lines: Vec<Vec<u8>> =
            text.lines().map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
        assert_eq!(lines.len(), COUNT);
        let pixels = SHAPE.iter().product::<usize>();
        assert!(
            lines.iter().all(|line| line.len() == pixels + 1 && line[pixels] < 10 && line.iter().max() <= Some(&16))
        );
    }
}

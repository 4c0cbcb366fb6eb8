//! Images to another size: bilinear, with pixel centres at halves (what other libraries call `align_corners=False`), and
//! without a filter before shrinking.

use crate::dataset::rows::Element;

/// Between which two places of a line a new place lies, and how near it is to the second.
#[derive(Clone, Copy, Debug)]
struct Place {
    first: usize,
    second: usize,
    nearness: f64,
}

fn places(from: usize, to: usize) -> Vec<Place> {
    let scale = from as f64 / to as f64;
    let place = |index: usize| {
        let centre = ((index as f64 + 0.5) * scale - 0.5).clamp(0.0, (from - 1) as f64);
        let first = centre as usize;
        Place { first, second: (first + 1).min(from - 1), nearness: centre - first as f64 }
    };
    (0..to).map(place).collect()
}

/// How images of one size become images of another.
#[derive(Debug)]
pub struct Resize {
    element: Element,
    /// Height and width.
    from: (usize, usize),
    lines: Vec<Place>,
    columns: Vec<Place>,
}

impl Resize {
    /// None where a side is zero.
    pub fn new(element: Element, from: (usize, usize), to: (usize, usize)) -> Option<Self> {
        let sides = [from.0, from.1, to.0, to.1];
        (!sides.contains(&0)).then(|| Self {
            element,
            from,
            lines: places(from.0, to.0),
            columns: places(from.1, to.1),
        })
    }

    /// Adds every image of `images`, as many as there are, to `into`.
    pub fn run(&self, images: &[u8], into: &mut Vec<u8>) {
        into.reserve(images.len() / (self.from.0 * self.from.1) * self.lines.len() * self.columns.len());
        match self.element {
            Element::U8 => {
                self.run_as(images.as_chunks::<1>().0, into, |[byte]| f64::from(byte), |value| [(value + 0.5) as u8])
            }
            Element::I32 => self.run_as(
                images.as_chunks::<4>().0,
                into,
                |bytes| f64::from(i32::from_le_bytes(bytes)),
                |value| (value.round() as i32).to_le_bytes(),
            ),
            Element::F32 => self.run_as(
                images.as_chunks::<4>().0,
                into,
                |bytes| f64::from(f32::from_le_bytes(bytes)),
                |value| (value as f32).to_le_bytes(),
            ),
        }
    }

    fn run_as<const SIZE: usize>(
        &self,
        images: &[[u8; SIZE]],
        into: &mut Vec<u8>,
        number: impl Fn([u8; SIZE]) -> f64,
        bytes: impl Fn(f64) -> [u8; SIZE],
    ) {
        for image in images.chunks_exact(self.from.0 * self.from.1) {
            for line in &self.lines {
                let [above, below] =
                    [line.first, line.second].map(|line| &image[line * self.from.1..(line + 1) * self.from.1]);
                for column in &self.columns {
                    let [above, below] = [above, below].map(|line| {
                        let (first, second) = (number(line[column.first]), number(line[column.second]));
                        first + (second - first) * column.nearness
                    });
                    into.extend_from_slice(&bytes(above + (below - above) * line.nearness));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, one pixel at a time: each source pixel weighs by its distance from the new one, in units of pixels.
    fn naive(image: &[f64], from: (usize, usize), to: (usize, usize)) -> Vec<f64> {
        let weight = |index: usize, from: usize, to: usize, source: usize| {
            let centre = (index as f64 + 0.5) * from as f64 / to as f64 - 0.5;
            (1.0 - (centre.clamp(0.0, (from - 1) as f64) - source as f64).abs()).max(0.0)
        };
        let pixel = |y, x| {
            let sources = (0..from.0).flat_map(|line| (0..from.1).map(move |column| (line, column)));
            let parts = sources.map(|(line, column)| {
                weight(y, from.0, to.0, line) * weight(x, from.1, to.1, column) * image[line * from.1 + column]
            });
            parts.sum()
        };
        (0..to.0).flat_map(|y| (0..to.1).map(move |x| (y, x))).map(|(y, x)| pixel(y, x)).collect()
    }

    prop_compose! {
        fn images()(from in (1..9_usize, 1..9_usize), to in (1..20_usize, 1..20_usize))
            (bytes in prop::collection::vec(any::<u8>(), from.0 * from.1), from in Just(from), to in Just(to))
            -> (Vec<u8>, (usize, usize), (usize, usize)) { (bytes, from, to) }
    }

    proptest! {
        #[test]
        fn bytes_are_the_definition_rounded((bytes, from, to) in images()) {
            let mut resized = Vec::new();
            Resize::new(Element::U8, from, to).unwrap().run(&bytes, &mut resized);
            let exact = naive(&bytes.iter().map(|byte| f64::from(*byte)).collect::<Vec<_>>(), from, to);
            prop_assert_eq!(resized.len(), exact.len());
            for (byte, exact) in resized.iter().zip(exact) {
                prop_assert!((f64::from(*byte) - exact).abs() <= 0.5 + 1e-9);
            }
        }

        #[test]
        fn floats_are_the_definition((bytes, from, to) in images()) {
            let image: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) / 7.0).collect();
            let mut resized = Vec::new();
            let bytes: Vec<u8> = image.iter().flat_map(|value| value.to_le_bytes()).collect();
            Resize::new(Element::F32, from, to).unwrap().run(&bytes, &mut resized);
            let exact = naive(&image.iter().map(|value| f64::from(*value)).collect::<Vec<_>>(), from, to);
            for (bytes, exact) in resized.as_chunks().0.iter().zip(exact) {
                prop_assert!((f64::from(f32::from_le_bytes(*bytes)) - exact).abs() < 1e-5);
            }
        }

        #[test]
        fn the_same_size_changes_nothing((bytes, from, _) in images()) {
            let mut resized = Vec::new();
            Resize::new(Element::U8, from, from).unwrap().run(&bytes, &mut resized);
            prop_assert_eq!(resized, bytes);
        }
    }

    #[test]
    fn channels_are_resized_one_by_one() {
        let mut resized = Vec::new();
        Resize::new(Element::U8, (1, 1), (2, 2)).unwrap().run(&[3, 9], &mut resized);
        assert_eq!(resized, [3, 3, 3, 3, 9, 9, 9, 9]);
    }
}

//! CIFAR-10 in its binary version: a byte for the class, and 32 x 32 red, green and blue bytes, sample after sample.

use super::error::ReadError;
use super::labels::LabelKind;
use super::source::{Input, Opened};
use super::{Options, Samples};
use crate::dataset::rows::{Element, Features, Labels, Rows, Values};

const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;
/// Bytes of one sample.
pub(super) const SAMPLE: u64 = 1 + PIXELS as u64;
const CLASSES: u8 = 10;

pub(super) struct Cifar {
    input: Input,
    features: Features,
    count: Option<u64>,
}

impl Cifar {
    pub fn open(file: &Opened, options: &Options) -> Result<Self, ReadError> {
        if matches!(options.labels, LabelKind::Values | LabelKind::Names) {
            return Err(file.wrong("labels of CIFAR-10 are numbers of classes"));
        }
        let input = file.input();
        let count = match input.left() {
            Some(length) if length == 0 || length % SAMPLE != 0 => {
                return Err(input.wrong_at(
                    length - length % SAMPLE,
                    format!(
                        "{length} bytes are no whole number of samples of {SAMPLE}: it is truncated, or not CIFAR-10"
                    ),
                ));
            }
            length => length.map(|length| length / SAMPLE),
        };
        Ok(Self { input, features: Features::Dense { element: Element::U8, shape: SHAPE.to_vec() }, count })
    }
}

impl Samples for Cifar {
    fn features(&self) -> &Features {
        &self.features
    }

    fn labels(&self) -> Option<Labels> {
        Some(Labels::Class)
    }

    fn count(&self) -> Option<u64> {
        self.count
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let Values::Dense(bytes) = &mut into.features else { return Err(super::mixed()) };
        for count in 0..most {
            let Some(&class) = self.input.fill()?.first() else {
                if count == 0 && self.input.offset() == 0 {
                    return Err(self.input.wrong("the file is empty"));
                }
                return Ok(count);
            };
            if class >= CLASSES {
                return Err(self.input.wrong(format!("the class {class}: CIFAR-10 has 0 to 9")));
            }
            self.input.consume(1);
            into.labels.extend_from_slice(&i32::from(class).to_le_bytes());
            self.input.append(PIXELS, bytes, "a sample")?;
        }
        Ok(most)
    }
}

//! What labels mean: classes or values. Decided from all of them, before the first sample is handed out.

use super::array::Array;
use super::error::{Place, ReadError};
use super::source::Input;
use crate::dataset::rows::Labels;

/// The highest class there may be.
pub const MAX_CLASS: i32 = 65_535;

/// What labels are taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelKind {
    /// Small whole numbers and text are classes, other numbers values.
    #[default]
    Auto,
    /// Whole numbers, each the number of a class.
    Class,
    /// Numbers to come close to.
    Values,
    /// Text, each another class, also where it looks like a number. Only in tables.
    Names,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The number of a class.
    Class,
    /// -1 is class 0 and +1 is class 1.
    MinusPlus,
    /// So many values of each sample.
    Values(u32),
}

impl Meaning {
    pub fn labels(self) -> Labels {
        match self {
            Self::Class | Self::MinusPlus => Labels::Class,
            Self::Values(width) => Labels::Values { width },
        }
    }

    /// A number as it is kept. `None` if it is not what was seen when this was decided.
    pub fn encode(self, value: f64) -> Option<[u8; 4]> {
        let class =
            |value: f64| ((0.0..=f64::from(MAX_CLASS)).contains(&value) && value.fract() == 0.0).then_some(value);
        match self {
            Self::Class => class(value).map(|class| (class as i32).to_le_bytes()),
            Self::MinusPlus => class((value + 1.0) / 2.0).map(|class| (class as i32).to_le_bytes()),
            Self::Values(_) => Some(value as f32).filter(|value| value.is_finite()).map(f32::to_le_bytes),
        }
    }
}

/// What all labels are, seen one by one.
pub(super) struct Tally {
    wanted: LabelKind,
    /// Whether the file says that labels are whole numbers, so that one that is no class is a mistake.
    whole_type: bool,
    fraction: Option<(Place, f64)>,
    negative: Option<(Place, f64)>,
    large: Option<(Place, f64)>,
    /// Whether there is nothing but -1 and +1.
    units: bool,
}

impl Tally {
    pub fn new(wanted: LabelKind, whole_type: bool) -> Self {
        Self { wanted, whole_type, fraction: None, negative: None, large: None, units: true }
    }

    /// A label, and whether it was written as a whole number.
    pub fn add(&mut self, place: Place, value: f64, whole_type: bool) -> Result<(), (Place, String)> {
        if !(value as f32).is_finite() {
            return Err((place, format!("the label {value} is not finite as a 32-bit float")));
        }
        self.whole_type &= whole_type;
        if value.fract() != 0.0 {
            self.fraction.get_or_insert((place, value));
        } else if value < 0.0 {
            self.negative.get_or_insert((place, value));
        } else if value > f64::from(MAX_CLASS) {
            self.large.get_or_insert((place, value));
        }
        self.units &= value.abs() == 1.0;
        Ok(())
    }

    /// What they are, of `width` numbers each.
    pub fn decide(self, width: u32) -> Result<Meaning, (Place, String)> {
        if self.wanted == LabelKind::Values || width > 1 {
            return Ok(Meaning::Values(width));
        }
        let must = self.wanted == LabelKind::Class;
        if let Some((place, value)) = self.fraction {
            let problem = format!("the label {value} is no class: classes are the whole numbers 0, 1, 2 …");
            return if must { Err((place, problem)) } else { Ok(Meaning::Values(1)) };
        }
        if self.negative.is_some() && self.units {
            return Ok(Meaning::MinusPlus);
        }
        let must = must || self.whole_type;
        let advice = "take labels as values if they are quantities";
        match (self.negative, self.large) {
            (Some((place, value)), _) if must => {
                Err((place, format!("the label {value} is no class: only -1 with +1 may be negative; {advice}")))
            }
            (_, Some((place, value))) if must => {
                Err((place, format!("the label {value} is over the limit of {MAX_CLASS} for classes; {advice}")))
            }
            (None, None) => Ok(Meaning::Class),
            _ => Ok(Meaning::Values(1)),
        }
    }
}

/// Labels that are an array.
pub(super) struct LabelArray {
    array: Array,
    meaning: Meaning,
}

impl LabelArray {
    /// `open` is called twice: to see what the labels are, and to read them.
    pub fn new(wanted: LabelKind, open: impl Fn() -> Result<Array, ReadError>) -> Result<Self, ReadError> {
        let mut array = open()?;
        let (Ok(width), true) = (u32::try_from(array.width()), array.is_flat()) else {
            return Err(array.input.wrong("labels must be one number or one row of numbers for each sample"));
        };
        if wanted == LabelKind::Names {
            return Err(array.input.wrong("labels that are numbers in an array have no names"));
        }
        let whole = !array.number().is_float();
        let mut tally = Tally::new(wanted, whole);
        loop {
            let read = array.numbers_of(4096, |input, offset, value| {
                tally
                    .add(input.place(offset), value, whole)
                    .map_err(|(place, problem)| ReadError::content(&input.name, place, problem))
            })?;
            if read == 0 {
                break;
            }
        }
        array.finish()?;
        let meaning =
            tally.decide(width).map_err(|(place, problem)| ReadError::content(&array.input.name, place, problem))?;
        Ok(Self { array: open()?, meaning })
    }

    pub fn labels(&self) -> Labels {
        self.meaning.labels()
    }

    pub fn count(&self) -> u64 {
        self.array.count()
    }

    pub fn input(&self) -> &Input {
        &self.array.input
    }

    pub fn read(&mut self, most: usize, into: &mut Vec<u8>) -> Result<usize, ReadError> {
        let meaning = self.meaning;
        self.array.numbers_of(most, |input, offset, value| match meaning.encode(value) {
            Some(bytes) => {
                into.extend_from_slice(&bytes);
                Ok(())
            }
            None => Err(input.wrong_at(offset, CHANGED)),
        })
    }

    pub fn finish(&mut self) -> Result<(), ReadError> {
        self.array.finish()
    }
}

/// Why a second look at a file can fail where the first did not.
pub(super) const CHANGED: &str = "the file was changed while it was read";

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(kind: LabelKind, whole: bool, values: &[f64]) -> Result<Meaning, String> {
        let mut tally = Tally::new(kind, true);
        for (index, &value) in values.iter().enumerate() {
            tally.add(Place::Line(index as u64), value, whole).map_err(|(_, problem)| problem)?;
        }
        tally.decide(1).map_err(|(place, problem)| format!("{place}: {problem}"))
    }

    #[test]
    fn small_whole_numbers_are_classes_whatever_their_type() {
        assert_eq!(decide(LabelKind::Auto, true, &[0.0, 9.0]), Ok(Meaning::Class));
        assert_eq!(decide(LabelKind::Auto, false, &[0.0, 65_535.0]), Ok(Meaning::Class));
    }

    #[test]
    fn minus_and_plus_one_are_two_classes() {
        assert_eq!(decide(LabelKind::Auto, true, &[1.0, -1.0]), Ok(Meaning::MinusPlus));
        assert_eq!(Meaning::MinusPlus.encode(-1.0), Some(0_i32.to_le_bytes()));
        assert_eq!(Meaning::MinusPlus.encode(1.0), Some(1_i32.to_le_bytes()));
        assert_eq!(Meaning::MinusPlus.encode(0.0), None);
    }

    #[test]
    fn other_floats_are_values() {
        for values in [&[0.5, 1.0][..], &[-3.0, 2.0], &[250_000.0]] {
            assert_eq!(decide(LabelKind::Auto, false, values), Ok(Meaning::Values(1)));
        }
    }

    #[test]
    fn integers_that_are_no_class_are_refused_where_they_are() {
        assert!(decide(LabelKind::Auto, true, &[0.0, -2.0]).unwrap_err().starts_with(", line 1: the label -2"));
        assert!(decide(LabelKind::Auto, true, &[65_536.0]).unwrap_err().contains("65535"));
        assert!(decide(LabelKind::Class, false, &[0.5]).unwrap_err().contains("0.5"));
        assert_eq!(decide(LabelKind::Values, true, &[-2.0]), Ok(Meaning::Values(1)));
    }
}

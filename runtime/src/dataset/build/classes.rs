//! One list of class names for all sources, each of which numbers its classes as it meets them.

use std::collections::HashMap;

use super::BuildError;
use crate::dataset::manifest::{MOST_CLASSES, MOST_NAME_BYTES, Manifest};
use crate::dataset::rows::{Labels, Rows};

/// The names of a data set's classes.
pub struct Classes {
    pub names: Vec<String>,
    numbers: HashMap<String, u32>,
    labels: Option<Labels>,
    /// Names were given, so sources cannot bring others.
    fixed: bool,
    /// Some source numbers its classes without naming them.
    nameless: bool,
}

/// What the classes of one source are in the data set, as far as it has named them.
#[derive(Default)]
pub struct SourceNames(Vec<u32>);

impl Classes {
    pub fn new(old: Option<&Manifest>, given: &[String], labels: Option<Labels>) -> Result<Self, BuildError> {
        let had = old.map_or(&[][..], |old| &old.class_names);
        let starts_alike = given.is_empty() || given.starts_with(had);
        if !starts_alike {
            return Err(BuildError::ClassNames(format!("the data set has other class names: {}", list(had))));
        }
        if !given.is_empty() && labels != Some(Labels::Class) {
            return Err(BuildError::ClassNames("class names are given, and the labels are no classes".to_owned()));
        }
        let counted = old.map_or(0, Manifest::classes);
        if !given.is_empty() && given.len() < counted {
            return Err(BuildError::ClassNames(format!("{} class names for {counted} classes", given.len())));
        }
        let mut classes = Self {
            names: Vec::new(),
            numbers: HashMap::new(),
            labels,
            fixed: false,
            nameless: counted > had.len() && given.is_empty(),
        };
        for name in if given.is_empty() { had } else { given } {
            if classes.numbers.contains_key(name) {
                return Err(BuildError::ClassNames(format!("two classes are called `{}`", name.escape_debug())));
            }
            classes.add(name)?;
        }
        classes.fixed = !given.is_empty();
        Ok(classes)
    }

    fn add(&mut self, name: &str) -> Result<u32, BuildError> {
        if name.is_empty() || name.len() > MOST_NAME_BYTES {
            let start: String = name.chars().take(40).collect();
            let text = format!("a class name has 1 to {MOST_NAME_BYTES} bytes: `{}`", start.escape_debug());
            return Err(BuildError::ClassNames(text));
        }
        if self.names.len() == MOST_CLASSES {
            return Err(BuildError::ClassNames(format!("more than {MOST_CLASSES} classes")));
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Turns a source's labels into the data set's, and refuses those that are none.
    pub fn map(
        &mut self,
        rows: &mut Rows,
        of_source: &mut SourceNames,
        names: Option<&[String]>,
        part: &'static str,
        before: u64,
    ) -> Result<(), BuildError> {
        match self.labels {
            None => return Ok(()),
            Some(Labels::Values { width }) => return check_values(rows, width, part, before),
            Some(Labels::Class) => {}
        }
        for name in names.unwrap_or(&[]).iter().skip(of_source.0.len()) {
            let number = match self.numbers.get(name) {
                Some(number) => *number,
                None if self.fixed => {
                    let name = name.chars().take(80).collect::<String>().escape_debug().to_string();
                    return Err(BuildError::OtherName { part, name, known: list(&self.names) });
                }
                None if self.nameless => {
                    let text = "some classes have names and some have only numbers: give the class names";
                    return Err(BuildError::ClassNames(text.to_owned()));
                }
                None => self.add(name)?,
            };
            of_source.0.push(number);
        }
        self.nameless |= names.is_none() && self.names.is_empty();
        for (sample, bytes) in rows.labels.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let (label, sample) = (i32::from_le_bytes(*bytes), before + sample as u64);
            let class = usize::try_from(label).ok().filter(|class| *class < MOST_CLASSES);
            let class = class.ok_or(BuildError::Label { part, sample, label })?;
            if names.is_some() {
                let known = of_source.0.get(class);
                let names = of_source.0.len();
                let number = known.ok_or(BuildError::NoName { part, sample, label, names })?;
                *bytes = number.to_le_bytes();
            } else if !self.names.is_empty() && class >= self.names.len() {
                return Err(BuildError::NoName { part, sample, label, names: self.names.len() });
            }
        }
        Ok(())
    }
}

fn check_values(rows: &Rows, width: u32, part: &'static str, before: u64) -> Result<(), BuildError> {
    let mut values = crate::dataset::block::numbers(&rows.labels, f32::from_le_bytes).enumerate();
    match values.find(|(_, value)| !value.is_finite()) {
        Some((index, value)) => {
            let sample = before + (index / width.max(1) as usize) as u64;
            Err(BuildError::LabelNotFinite { part, sample, value })
        }
        None => Ok(()),
    }
}

/// Some names, for a message.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text: Vec<_> = names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    if names.len() > SHOWN {
        text.push("…".to_owned());
    }
    if text.is_empty() { "none".to_owned() } else { text.join(", ") }
}

//! Tables of numbers as text, one of whose columns may be the label.
//!
//! A table with labels is read twice: whether they are classes, and which, is known only after the last row.

use std::collections::{BTreeSet, HashMap};

use super::error::{ReadError, excerpt};
use super::labels::{CHANGED, LabelKind, MAX_CLASS, Meaning, Tally};
use super::names::Role;
use super::source::Opened;
use super::table::Table;
use super::text::{number, wide_number};
use super::{Header, LabelColumn, Options, Samples};
use crate::dataset::rows::{Element, Features, Labels, Rows, Values};

const NO_ROWS: &str = "the file has no rows but its header";

pub(super) struct Csv {
    table: Table,
    layout: Layout,
    features: Features,
    labels: Option<LabelsOf>,
    names: Option<Vec<String>>,
    count: Option<u64>,
    /// Whether a row has been read.
    any: bool,
}

/// What the columns are.
struct Layout {
    columns: usize,
    label: Option<usize>,
    has_header: bool,
    /// Where the first row is, for rows that differ from it.
    first_line: String,
}

/// What becomes of the cell of the label.
enum LabelsOf {
    Numbers(Meaning),
    Names(HashMap<Vec<u8>, i32>),
}

impl Csv {
    /// A table with features, or one that is there for the labels.
    pub fn open(file: &Opened, options: &Options, label: &LabelColumn, role: Role) -> Result<Self, ReadError> {
        let table = || {
            let limits = &file.limits;
            Table::new(file.input(), options.delimiter, limits.max_line_bytes, limits.max_columns)
        };
        let layout = Layout::find(table()?, options.header, label, role)?;
        let (labels, names, count) = match layout.label {
            Some(label) => {
                let mut survey = table()?;
                layout.skip_header(&mut survey)?;
                let (labels, names, count) = labels_of(survey, &layout, label, options)?;
                (Some(labels), names, Some(count))
            }
            None => (None, None, None),
        };
        let mut table = table()?;
        layout.skip_header(&mut table)?;
        let width = layout.columns - usize::from(layout.label.is_some());
        let features = Features::Dense { element: Element::F32, shape: vec![width] };
        Ok(Self { table, layout, features, labels, names, count, any: false })
    }
}

impl Layout {
    fn find(mut table: Table, header: Header, label: &LabelColumn, role: Role) -> Result<Self, ReadError> {
        if !table.next()? {
            return Err(table.input.wrong("the file has no rows"));
        }
        let columns = table.columns();
        let first: Vec<Vec<u8>> = table.cells().map(<[u8]>::to_vec).collect();
        let first_line = table.place().to_string().trim_start_matches(", ").to_string();
        let label_index = match label {
            LabelColumn::None => None,
            LabelColumn::Last => Some(columns - 1),
            LabelColumn::Index(index) if *index < columns => Some(*index),
            LabelColumn::Index(index) => {
                return Err(
                    table.wrong(format!("no column {index} for the label: the first is 0, the last {}", columns - 1))
                );
            }
            LabelColumn::Name(name) => {
                let found = first.iter().position(|cell| cell == name.as_bytes());
                Some(found.ok_or_else(|| {
                    let have: Vec<String> = first.iter().take(10).map(|cell| format!("`{}`", excerpt(cell))).collect();
                    table.wrong(format!(
                        "no column `{}` for the label; it has {}",
                        name.escape_debug(),
                        have.join(", ")
                    ))
                })?)
            }
        };
        if role == Role::Features && label_index.is_some() && columns == 1 {
            return Err(table.wrong("the only column is the label: there are no features"));
        }
        let has_header = match header {
            _ if matches!(label, LabelColumn::Name(_)) => true,
            Header::Yes => true,
            Header::No => false,
            Header::Auto => looks_like_header(&first, label_index, &mut table)?,
        };
        if has_header && columns > 1 && first[0].is_empty() {
            return Err(table.wrong(
                "column 1 has no name, so it looks like row numbers: remove it (in pandas: `to_csv(index=False)`)",
            ));
        }
        Ok(Self { columns, label: label_index, has_header, first_line })
    }

    fn skip_header(&self, table: &mut Table) -> Result<(), ReadError> {
        if self.has_header && !table.next()? {
            return Err(table.input.wrong(CHANGED));
        }
        Ok(())
    }

    /// Goes to the next row and counts its cells.
    fn next(&self, table: &mut Table) -> Result<bool, ReadError> {
        let more = table.next()?;
        if more && table.columns() != self.columns {
            let (have, expected, first) = (table.columns(), self.columns, &self.first_line);
            return Err(table.wrong(format!("{have} cells, where {first} has {expected}")));
        }
        Ok(more)
    }
}

/// A first row is a header if none of its features is a number, or if it only counts the columns, as pandas does where
/// they have no names.
fn looks_like_header(first: &[Vec<u8>], label: Option<usize>, table: &mut Table) -> Result<bool, ReadError> {
    if first.len() == 1 {
        let text = number(&first[0]).is_none();
        return Ok(text && table.next()? && table.columns() == 1 && number(table.cell(0)).is_some());
    }
    // Fewer could well be a sample.
    if first.len() > 3 && first.iter().enumerate().all(|(index, cell)| *cell == index.to_string().as_bytes()) {
        return Ok(true);
    }
    let features = first.iter().enumerate().filter(|&(index, _)| Some(index) != label);
    let mut named = features.filter(|(_, cell)| !cell.is_empty()).peekable();
    Ok(named.peek().is_some() && named.all(|(_, cell)| number(cell).is_none()))
}

/// Looks at all labels of a table.
fn labels_of(
    mut table: Table,
    layout: &Layout,
    label: usize,
    options: &Options,
) -> Result<(LabelsOf, Option<Vec<String>>, u64), ReadError> {
    let mut count = 0;
    let mut tally = Tally::new(options.labels, true);
    let mut names: Option<BTreeSet<Vec<u8>>> = match (options.labels, &options.classes) {
        (LabelKind::Names, _) | (LabelKind::Auto, Some(_)) => Some(BTreeSet::new()),
        _ => None,
    };
    let known: Option<BTreeSet<&[u8]>> =
        options.classes.as_ref().map(|names| names.iter().map(|name| name.as_bytes()).collect());
    let guess = names.is_none() && options.labels == LabelKind::Auto;
    let mut bytes = 0;
    while layout.next(&mut table)? {
        let cell = table.cell(label);
        let value = wide_number(cell);
        if cell.is_empty() {
            return Err(table.wrong(format!("column {}: the label is empty", label + 1)));
        }
        if count == 0 && guess && value.is_none() {
            names = Some(BTreeSet::new());
        }
        count += 1;
        match (&mut names, value) {
            (None, Some(value)) => {
                let whole = std::str::from_utf8(cell).is_ok_and(|text| text.parse::<i64>().is_ok());
                tally
                    .add(table.place(), value, whole)
                    .map_err(|(place, problem)| ReadError::content(&table.input.name, place, problem))?;
            }
            (None, None) => {
                return Err(table.wrong(format!(
                    "column {}: the label `{}` is not a number, and those before it are; take labels as names if all are",
                    label + 1,
                    excerpt(cell)
                )));
            }
            (Some(_), Some(_)) if guess => {
                return Err(table.wrong(format!(
                    "column {}: the label `{}` is a number, and those before it are not; take labels as names if all are",
                    label + 1,
                    excerpt(cell)
                )));
            }
            (Some(names), _) => {
                if names.contains(cell) {
                    continue;
                }
                if known.as_ref().is_some_and(|known| !known.contains(cell)) {
                    let problem = format!("column {}: `{}` is none of the known classes", label + 1, excerpt(cell));
                    return Err(table.wrong(problem));
                }
                bytes += cell.len();
                if bytes > options.limits.max_class_name_bytes || names.len() > MAX_CLASS as usize {
                    return Err(table.wrong(format!(
                        "column {}: more classes than the limits of {} and of {} bytes for their names \
                         (`max_class_name_bytes`); is this the label?",
                        label + 1,
                        MAX_CLASS + 1,
                        options.limits.max_class_name_bytes
                    )));
                }
                if std::str::from_utf8(cell).is_err() {
                    return Err(table.wrong(format!("column {}: `{}` is no UTF-8", label + 1, excerpt(cell))));
                }
                names.insert(cell.to_vec());
            }
        }
    }
    if count == 0 {
        return Err(table.input.wrong(NO_ROWS));
    }
    let Some(names) = names else {
        let meaning =
            tally.decide(1).map_err(|(place, problem)| ReadError::content(&table.input.name, place, problem))?;
        return Ok((LabelsOf::Numbers(meaning), None, count));
    };
    let names: Vec<String> = match &options.classes {
        Some(known) => known.clone(),
        None => names.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect(),
    };
    let classes = names.iter().zip(0..).map(|(name, class)| (name.clone().into_bytes(), class)).collect();
    Ok((LabelsOf::Names(classes), Some(names), count))
}

impl Samples for Csv {
    fn features(&self) -> &Features {
        &self.features
    }

    fn labels(&self) -> Option<Labels> {
        self.labels.as_ref().map(|labels| match labels {
            LabelsOf::Numbers(meaning) => meaning.labels(),
            LabelsOf::Names(_) => Labels::Class,
        })
    }

    fn count(&self) -> Option<u64> {
        self.count
    }

    fn class_names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let Values::Dense(bytes) = &mut into.features else { return Err(super::mixed()) };
        for count in 0..most {
            if !self.layout.next(&mut self.table)? {
                return if self.any { Ok(count) } else { Err(self.table.input.wrong(NO_ROWS)) };
            }
            self.any = true;
            for (index, cell) in self.table.cells().enumerate() {
                if Some(index) == self.layout.label {
                    continue;
                }
                match number(cell) {
                    Some(value) if value.is_finite() => bytes.extend_from_slice(&value.to_le_bytes()),
                    other => return Err(self.table.wrong(bad_cell(index, cell, other.is_some()))),
                }
            }
            if let (Some(labels), Some(label)) = (&self.labels, self.layout.label) {
                let cell = self.table.cell(label);
                let label = match labels {
                    LabelsOf::Numbers(meaning) => wide_number(cell).and_then(|value| meaning.encode(value)),
                    LabelsOf::Names(classes) => classes.get(cell).map(|class| class.to_le_bytes()),
                };
                into.labels.extend_from_slice(&label.ok_or_else(|| self.table.wrong(CHANGED))?);
            }
        }
        Ok(most)
    }
}

fn bad_cell(index: usize, cell: &[u8], is_number: bool) -> String {
    let (column, cell) = (index + 1, excerpt(cell));
    if cell.is_empty() {
        format!("column {column}: the cell is empty; fill in or remove missing values")
    } else if is_number {
        format!("column {column}: `{cell}` is not finite as a 32-bit float; fill in or remove missing values")
    } else {
        format!("column {column}: `{cell}` is not a number (if this row is a header, say so)")
    }
}

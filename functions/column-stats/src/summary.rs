//! Count, mean, spread and range of one column, in one pass.
//!
//! Mean and spread are Welford's: `mean += d / n`, `m2 += d (x - mean)` with `d = x - mean` before. The textbook
//! `sum(x^2) - n mean^2` loses every digit when the mean is large against the spread.

use std::fmt::Write;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub missing: u64,
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean.
    m2: f64,
    min: f64,
    max: f64,
}

impl Summary {
    pub fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.m2 += distance * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn standard_deviation(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.m2 / (self.count - 1) as f64).sqrt())
    }
}

/// Written by hand: a JSON crate would be half of the component.
pub fn to_json(rows: u64, names: &[String], columns: &[Summary]) -> String {
    let mut json = format!("{{\"rows\":{rows},\"columns\":[");
    for (index, (name, column)) in names.iter().zip(columns).enumerate() {
        json.push_str(if index == 0 { "\n" } else { ",\n" });
        let known = |value: f64| (column.count > 0).then_some(value);
        json.push_str("{\"name\":");
        push_text(&mut json, name);
        // Writing to a string cannot fail.
        let _ = write!(json, ",\"count\":{},\"missing\":{}", column.count, column.missing);
        push_number(&mut json, "mean", known(column.mean));
        push_number(&mut json, "standard_deviation", column.standard_deviation());
        push_number(&mut json, "min", known(column.min));
        push_number(&mut json, "max", known(column.max));
        json.push('}');
    }
    json.push_str("]}");
    json
}

/// What overflowed is `null`, like what is not known: JSON has no infinity.
fn push_number(json: &mut String, name: &str, value: Option<f64>) {
    let _ = match value.filter(|value| value.is_finite()) {
        Some(value) => write!(json, ",\"{name}\":{value:?}"),
        None => write!(json, ",\"{name}\":null"),
    };
}

fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            '\0'..='\x1f' => {
                let _ = write!(json, "\\u{:04x}", letter as u32);
            }
            _ => json.push(letter),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(values: &[f64]) -> Summary {
        let mut summary = Summary::default();
        values.iter().for_each(|&value| summary.add(value));
        summary
    }

    #[test]
    fn spread_survives_a_mean_that_dwarfs_it() {
        let summary = summary(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
        assert_eq!(summary.mean, 1e9 + 10.0);
        assert_eq!(summary.standard_deviation(), Some(30.0_f64.sqrt()));
    }

    #[test]
    fn range_holds_for_negative_columns() {
        let summary = summary(&[-3.0, -1.0, -2.0]);
        assert_eq!((summary.min, summary.max), (-3.0, -1.0));
    }

    #[test]
    fn names_are_escaped() {
        let json = to_json(0, &["a\"\\\n".to_owned()], &[Summary::default()]);
        assert!(json.contains(r#""name":"a\"\\\u000a""#), "{json}");
    }

    #[test]
    fn overflow_is_null_rather_than_invalid_json() {
        let json = to_json(2, &["x".to_owned()], &[summary(&[f64::MAX, -f64::MAX])]);
        assert!(json.contains(r#""standard_deviation":null"#), "{json}");
    }
}

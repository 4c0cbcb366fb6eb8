//! Statistics of the columns of a CSV table: what one looks at before training on it.
//!
//! ```text
//! $ printf 'age,height\n31,1.7\n45,\n' | weft invoke column-stats
//! {"rows":2,"columns":[
//! {"name":"age","count":2,"missing":0,"mean":38.0,"standard_deviation":9.899494936611665,"min":31.0,"max":45.0},
//! {"name":"height","count":1,"missing":1,"mean":1.7,"standard_deviation":null,"min":1.7,"max":1.7}]}
//! ```
//!
//! The first record names the columns. A field that is empty, `NA`, `NaN` or `null` is missing; any other must be a
//! finite number, or the answer is an error that names its line and column. The standard deviation is that of a sample
//! (divided by `count - 1`). The table is read once, and no more of it is kept than one record.

mod csv;
mod summary;

use csv::Records;
use summary::Summary;
use weft_sdk::{Context, Error, Request, Response, Result, job};

/// How many records pass between two questions whether anybody still waits for the answer.
const RECORDS_PER_CHECK: u64 = 4096;

#[weft_sdk::function]
fn column_stats(request: Request) -> Result<Response> {
    Ok(Response::json(statistics(request.text()?)?))
}

fn statistics(table: &str) -> Result<String> {
    let mut records = Records::new(table);
    let (_, names) = records.next().bad_input("the table is empty: its first line must name the columns")??;
    let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();

    let mut columns = vec![Summary::default(); names.len()];
    let mut rows = 0;
    for record in records {
        let (line, fields) = record?;
        if fields.len() != names.len() {
            return Err(Error::bad_input(format!(
                "line {line} has {} fields, but the header names {}",
                fields.len(),
                names.len()
            )));
        }
        for ((field, column), name) in fields.iter().zip(&mut columns).zip(&names) {
            match number(field) {
                Ok(Some(value)) => column.add(value),
                Ok(None) => column.missing += 1,
                Err(field) => {
                    return Err(Error::bad_input(format!(
                        "line {line}, column `{name}`: `{field}` is not a finite number"
                    )));
                }
            }
        }
        rows += 1;
        if rows % RECORDS_PER_CHECK == 0 && job::should_stop() {
            return Err(Error::Cancelled);
        }
    }
    Ok(summary::to_json(rows, &names, &columns))
}

/// The value of a field, `None` when it is missing, or the text that is neither.
fn number(field: &str) -> Result<Option<f64>, &str> {
    let field = field.trim();
    if field.is_empty() || ["na", "nan", "null"].iter().any(|missing| field.eq_ignore_ascii_case(missing)) {
        return Ok(None);
    }
    field.parse().ok().filter(|value: &f64| value.is_finite()).map(Some).ok_or(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(table: &str) -> String {
        match statistics(table) {
            Err(Error::BadInput(message)) => message,
            other => panic!("not refused as bad input: {other:?}"),
        }
    }

    #[test]
    fn a_table_is_summed_up_by_column() {
        let json = statistics("age,height\n31,1.7\n45,\n").expect("statistics");
        let expected = concat!(
            r#"{"rows":2,"columns":["#,
            "\n",
            r#"{"name":"age","count":2,"missing":0,"mean":38.0,"standard_deviation":9.899494936611665,"min":31.0,"max":45.0},"#,
            "\n",
            r#"{"name":"height","count":1,"missing":1,"mean":1.7,"standard_deviation":null,"min":1.7,"max":1.7}]}"#,
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn missing_values_are_counted_not_averaged() {
        let json = statistics("x\nNA\nnull\nnan\n\"\"\n4\n").expect("statistics");
        assert!(json.contains(r#""count":1,"missing":4,"mean":4.0"#), "{json}");
    }

    #[test]
    fn a_header_alone_is_an_empty_table() {
        let json = statistics("x,y").expect("statistics");
        assert!(json.contains(r#""count":0,"missing":0,"mean":null"#), "{json}");
    }

    #[test]
    fn text_in_a_column_is_refused_by_line_and_column() {
        assert_eq!(refusal("age,height\n31,1.7\n45,tall\n"), "line 3, column `height`: `tall` is not a finite number");
        assert_eq!(refusal("x\ninf\n"), "line 2, column `x`: `inf` is not a finite number");
    }

    #[test]
    fn a_record_of_another_length_is_refused_by_line() {
        assert_eq!(refusal("a,b\n1,2\n\n3\n"), "line 4 has 1 fields, but the header names 2");
    }

    #[test]
    fn an_empty_body_is_refused() {
        assert!(refusal("").contains("must name the columns"));
    }
}

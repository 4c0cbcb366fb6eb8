//! `weft prices`: what a node charges, and the tables that come with Weft.

use std::path::PathBuf;

use clap::Subcommand;
use weft_core::plan::prices::{PRESETS, PriceTable, preset};

use super::Global;
use super::output::{Output, Style};
use crate::prices::from_file;

#[derive(Subcommand)]
pub enum PricesVerb {
    /// Show a price table: the node's, unless another is named
    Show {
        /// One that comes with Weft; `weft prices presets` lists them
        #[arg(long, value_name = "NAME")]
        preset: Option<String>,
        /// A file, as the setting `prices` takes it
        #[arg(long, conflicts_with = "preset")]
        file: Option<PathBuf>,
    },
    /// List the tables that come with Weft
    Presets,
}

pub fn run(verb: PricesVerb, global: &Global, out: &Output) -> anyhow::Result<()> {
    match verb {
        PricesVerb::Show { preset: Some(name), .. } => show(&preset(&name)?, out),
        PricesVerb::Show { file: Some(path), .. } => show(&from_file(&path)?, out),
        PricesVerb::Show { .. } => show(&global.client()?.prices()?, out),
        PricesVerb::Presets => presets(out),
    }
}

fn show(table: &PriceTable, out: &Output) -> anyhow::Result<()> {
    out.show(table, || {
        let mut head = vec![("as of", table.as_of.clone())];
        if !table.note.is_empty() {
            head.push(("note", table.note.clone()));
        }
        // What costs nothing is left out, but for what everybody asks about.
        let is_shown = |name: &str, price: f64| price > 0.0 || ["core_second", "gib_second"].contains(&name);
        let rows: Vec<Vec<String>> = table
            .rows()
            .into_iter()
            .filter(|(name, price)| is_shown(name, *price))
            .map(|(name, price)| {
                let meaning = meaning(&name);
                vec![name, amount(price), meaning]
            })
            .collect();
        format!("{}\n{}", out.fields(&head), out.table(&["PRICE", "", "OF"], &rows))
    })
}

fn presets(out: &Output) -> anyhow::Result<()> {
    let mut tables = Vec::new();
    for name in PRESETS {
        tables.push((name, preset(name)?));
    }
    let value: std::collections::BTreeMap<_, _> = tables.iter().map(|(name, table)| (*name, table)).collect();
    out.show(&value, || {
        let rows: Vec<Vec<String>> = tables
            .iter()
            .map(|(name, table)| {
                let (core, gib) = (amount(table.core_second), amount(table.gib_second));
                vec![(*name).to_owned(), table.as_of.clone(), core, gib, table.note.clone()]
            })
            .collect();
        let table = out.table(&["NAME", "AS OF", "CORE-SECOND", "GIB-SECOND", "NOTE"], &rows);
        let hint = "`weft prices show --preset NAME` shows one; a node takes it with the setting `prices`";
        format!("{table}\n{}\n", out.paint(Style::Dim, hint))
    })
}

/// A price in as many digits as it has, without an exponent.
pub fn amount(price: f64) -> String {
    let text = format!("{price:.12}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short.is_empty() { "0".to_owned() } else { short.to_owned() }
}

fn meaning(name: &str) -> String {
    match name.split_once('.') {
        Some(("device_second", kind)) => format!("a second of a device: {kind}"),
        Some((_, machine)) => format!("a second of a rented machine: {machine}"),
        None => match name {
            "core_second" => "a second of one core",
            "gib_second" => "a second of a GiB of a function's memory",
            "request" => "a call of a function",
            "start" => "the start of a function's instance",
            "storage_gib_month" => "a GiB that is stored for a month",
            "traffic_gib" => "a GiB that is moved",
            "billed_by" => "seconds that a function's time is rounded up to",
            _ => "",
        }
        .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_written_out() {
        let texts = [0.000_012, 1.666_67e-5, 2.0, 0.0, 0.000_000_2].map(amount);
        assert_eq!(texts, ["0.000012", "0.0000166667", "2", "0", "0.0000002"]);
    }

    #[test]
    fn every_row_of_a_table_has_a_meaning() {
        for name in PRESETS {
            for (row, _) in preset(name).unwrap().rows() {
                assert!(!meaning(&row).is_empty(), "{row}");
            }
        }
    }
}

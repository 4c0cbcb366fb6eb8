//! A bar for each parameter, by how much it mattered.

use std::fmt::Write;

use super::{RIGHT, TOP, WIDTH, nothing};
use crate::drawing::{begin, escaped, put};
use crate::tune::table::Table;

/// Room for the names.
const NAMES: f64 = 150.0;
const BAR: f64 = 22.0;
const ROW: f64 = 34.0;
const COLOUR: &str = "#26808e";

pub fn draw(table: &Table, shares: Option<&[(String, f64)]>) -> String {
    let title = format!("{}: what {} depended on", table.name, table.goal);
    let Some(shares) = shares else {
        return nothing(&title, "too few trials have come to different values to tell what mattered");
    };
    let height = TOP + ROW * shares.len() as f64 + 30.0;
    let mut svg = String::new();
    begin(&mut svg, &title, (WIDTH, height), 20.0);
    // Room for the number behind the longest bar.
    let room = WIDTH - RIGHT - 50.0 - NAMES;
    let largest = shares.iter().map(|(_, share)| *share).fold(f64::MIN_POSITIVE, f64::max);
    for (place, (name, share)) in shares.iter().enumerate() {
        let y = TOP + ROW * place as f64;
        let (length, text_y) = (room * share / largest, y + BAR / 2.0 + 4.0);
        put!(svg, r#"<text x="{:.1}" y="{text_y:.1}" text-anchor="end">{}</text>"#, NAMES - 10.0, escaped(name));
        put!(svg, r#"<rect x="{NAMES}" y="{y:.1}" width="{length:.1}" height="{BAR}" fill="{COLOUR}"/>"#);
        put!(svg, r#"<text x="{:.1}" y="{text_y:.1}">{:.0} %</text>"#, NAMES + length + 8.0, 100.0 * share);
    }
    put!(
        svg,
        r##"<text x="20" y="{:.1}" fill="#666666">of what the goal varied over the space, by a model of all trials</text>"##,
        height - 10.0
    );
    put!(svg, "</svg>");
    svg
}

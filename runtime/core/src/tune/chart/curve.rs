//! The value of each trial in the order of their ends, and the best so far as a line.

use std::fmt::Write;

use super::{LEFT, RIGHT, TOP, WIDTH, nothing, short};
use crate::drawing::{Axis, begin, escaped, put};
use crate::tune::table::Table;

const HEIGHT: f64 = 420.0;
const BOTTOM: f64 = 60.0;
const POINT: &str = "#8fb0d0";
const LINE: &str = "#0a7d32";

pub fn draw(table: &Table) -> String {
    let title = format!("{}: best {} so far", table.name, table.goal);
    let curve = table.curve();
    let Some(&(_, _, best)) = curve.last() else { return nothing(&title, "no trial has come to a value yet") };
    let values = || curve.iter().map(|(_, value, _)| *value);
    // Trials that went wrong altogether would make all others one line at the edge: a third beyond what most of them came to
    // is shown, and what lies further out is drawn at the edge.
    let mut sorted: Vec<f64> = values().collect();
    sorted.sort_by(f64::total_cmp);
    let (least, largest) = (sorted[0], sorted[sorted.len() - 1]);
    let (low, high) = (sorted[sorted.len() / 10], sorted[sorted.len() - 1 - sorted.len() / 10]);
    let reach = 2.0 * (high - low).max(1e-12);
    let (least, largest) =
        if sorted.len() < 10 { (least, largest) } else { (least.max(low - reach), largest.min(high + reach)) };
    let x = Axis::over(curve.len() as f64, LEFT, WIDTH - RIGHT);
    let y = Axis::between(least.min(best), largest.max(best), HEIGHT - BOTTOM, TOP);
    let mut svg = String::new();
    begin(&mut svg, &title, (WIDTH, HEIGHT), LEFT);
    for tick in x.ticks().filter(|tick| tick.fract() == 0.0) {
        let at = x.at(tick);
        put!(svg, r##"<line x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}" stroke="#e5e5e5"/>"##, y.end, y.start);
        put!(svg, r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle">{tick}</text>"#, y.start + 18.0);
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        put!(svg, r##"<line x1="{:.1}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}" stroke="#e5e5e5"/>"##, x.start, x.end);
        put!(svg, r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#, x.start - 8.0, at + 4.0, y.label(tick));
    }
    put!(svg, r##"<path d="M{:.1} {:.1}V{:.1}H{:.1}" fill="none" stroke="#333333"/>"##, x.start, y.end, y.start, x.end);
    put!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">trials that ended</text>"#,
        (x.start + x.end) / 2.0,
        HEIGHT - 16.0
    );
    let middle = (y.start + y.end) / 2.0;
    let goal = escaped(&table.goal);
    put!(
        svg,
        r#"<text x="16" y="{middle:.1}" text-anchor="middle" transform="rotate(-90 16 {middle:.1})">{goal}</text>"#
    );
    for (place, (number, value, _)) in curve.iter().enumerate() {
        let (at_x, at_y) = (x.at((place + 1) as f64), y.at(*value));
        put!(svg, r#"<circle cx="{at_x:.1}" cy="{at_y:.1}" r="3" fill="{POINT}">"#);
        put!(svg, "<title>trial {number}: {}</title></circle>", short(*value));
    }
    let mut path = String::new();
    for (place, (_, _, best)) in curve.iter().enumerate() {
        let (at_x, at_y) = (x.at((place + 1) as f64), y.at(*best));
        let step = if place == 0 { format!("M{at_x:.1} {at_y:.1}") } else { format!("H{at_x:.1}V{at_y:.1}") };
        path.push_str(&step);
    }
    put!(svg, r#"<path d="{path}H{:.1}" fill="none" stroke="{LINE}" stroke-width="2"/>"#, x.end);
    put!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end" font-weight="bold" fill="{LINE}">{}</text>"#,
        x.end - 4.0,
        y.at(best) - 6.0,
        short(best)
    );
    put!(svg, "</svg>");
    svg
}

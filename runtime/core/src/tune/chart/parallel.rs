//! Parallel coordinates: an axis for each parameter and one for the goal, and a line for each trial, coloured by what it
//! came to. Parameters lie on their axes as samplers see them, so a logarithmic range is a logarithmic axis.

use std::fmt::Write;

use super::{LEFT, RIGHT, TOP, WIDTH, nothing, short};
use crate::drawing::{Axis, begin, colour, escaped, put};
use crate::tune::space::{Domain, Parameter, Value};
use crate::tune::table::{Row, Table};

const HEIGHT: f64 = 420.0;
const BOTTOM: f64 = 50.0;
/// Room of an axis at least; with many parameters the picture becomes wider.
const COLUMN: f64 = 110.0;
/// The most values of an axis that are written beside it.
const LABELS: u64 = 8;

pub fn draw(table: &Table) -> String {
    let title = format!("{}: {} by parameters", table.name, table.goal);
    let mut ranked = table.ranked();
    let (Some(best), Some(worst)) = (ranked.first(), ranked.last()) else {
        return nothing(&title, "no trial has come to a value yet");
    };
    let (best, worst) = (best.1, worst.1);
    let free: Vec<&Parameter> =
        table.space.parameters().iter().filter(|parameter| parameter.domain.is_free()).collect();
    let width = WIDTH.max(LEFT + RIGHT + 40.0 + COLUMN * free.len() as f64);
    let (top, bottom) = (TOP + 20.0, HEIGHT - BOTTOM);
    let column = |place: usize| LEFT + (width - RIGHT - 40.0 - LEFT) * place as f64 / free.len() as f64;
    let goal = Axis::between(best.min(worst), best.max(worst), bottom, top);
    let mut svg = String::new();
    begin(&mut svg, &title, (width, HEIGHT), 20.0);
    // The best are drawn last, over the others.
    ranked.reverse();
    let count = ranked.len();
    for (place, (row, value)) in ranked.iter().enumerate() {
        // By rank: values often differ by little near the best and by much elsewhere.
        let share = if count > 1 { place as f64 / (count - 1) as f64 } else { 1.0 };
        draw_trial(&mut svg, row, *value, &free, &column, (top, bottom), &goal, share);
    }
    for (place, parameter) in free.iter().enumerate() {
        let at = column(place);
        put!(svg, r##"<line x1="{at:.1}" y1="{top:.1}" x2="{at:.1}" y2="{bottom:.1}" stroke="#333333"/>"##);
        put!(
            svg,
            r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle" font-weight="bold">{}</text>"#,
            top - 12.0,
            escaped(&parameter.name)
        );
        for (coordinate, label) in labels(&parameter.domain) {
            let (text_x, text_y) = (at - 6.0, bottom + (top - bottom) * coordinate + 4.0);
            put!(
                svg,
                r##"<text x="{text_x:.1}" y="{text_y:.1}" text-anchor="end" font-size="10" paint-order="stroke" stroke="#ffffff" stroke-width="3">{}</text>"##,
                escaped(&label)
            );
        }
    }
    let at = column(free.len());
    put!(svg, r##"<line x1="{at:.1}" y1="{top:.1}" x2="{at:.1}" y2="{bottom:.1}" stroke="#333333"/>"##);
    let name = escaped(&table.goal);
    put!(svg, r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle" font-weight="bold">{name}</text>"#, top - 12.0);
    for tick in goal.ticks() {
        let text_y = goal.at(tick) + 4.0;
        put!(svg, r#"<text x="{:.1}" y="{text_y:.1}" font-size="10">{}</text>"#, at + 6.0, goal.label(tick));
    }
    put!(
        svg,
        r##"<text x="20" y="{:.1}" fill="#666666">{count} trials, the darker the better; a line that breaks off leaves out what does not count</text>"##,
        HEIGHT - 14.0
    );
    put!(svg, "</svg>");
    svg
}

#[expect(
    clippy::too_many_arguments,
    reason = "one trial and all that its line depends on; a struct would be used once"
)]
fn draw_trial(
    svg: &mut String,
    row: &Row,
    value: f64,
    free: &[&Parameter],
    column: &impl Fn(usize) -> f64,
    (top, bottom): (f64, f64),
    goal: &Axis,
    share: f64,
) {
    let mut path = String::new();
    // Whether the pen is on the paper: a parameter that does not count lifts it.
    let mut is_down = false;
    for (place, parameter) in free.iter().enumerate() {
        match row.point.get(&parameter.name) {
            Some(value) => {
                let y = bottom + (top - bottom) * parameter.domain.coordinate(value);
                let command = if is_down { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {y:.1}", column(place));
                is_down = true;
            }
            None => is_down = false,
        }
    }
    let command = if is_down { 'L' } else { 'M' };
    let _ = write!(path, "{command}{:.1} {:.1}", column(free.len()), goal.at(value));
    let (opacity, width) = if share >= 1.0 { (1.0, 2.5) } else { (0.35 + 0.5 * share, 1.2) };
    put!(
        svg,
        r#"<path d="{path}" fill="none" stroke="{}" stroke-opacity="{opacity:.2}" stroke-width="{width}">"#,
        colour(share)
    );
    let point: Vec<String> = row.point.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    let text = escaped(&format!("trial {}: {}; {}", row.number, short(value), point.join(", ")));
    put!(svg, "<title>{text}</title></path>");
}

fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => short(*number),
        other => other.to_string(),
    }
}

/// What is written beside an axis, and where.
fn labels(domain: &Domain) -> Vec<(f64, String)> {
    let count = domain.count().filter(|count| *count <= LABELS);
    let coordinates: Vec<f64> = match count {
        Some(count) => (0..count).map(|piece| domain.middle_of_piece(piece)).collect(),
        None => [0.0, 0.25, 0.5, 0.75, 1.0].to_vec(),
    };
    coordinates.into_iter().map(|coordinate| (coordinate, cut(&shown(&domain.value(coordinate))))).collect()
}

/// A label that leaves its neighbours room.
fn cut(text: &str) -> String {
    if text.chars().count() <= 12 { text.to_owned() } else { text.chars().take(11).chain(['…']).collect() }
}

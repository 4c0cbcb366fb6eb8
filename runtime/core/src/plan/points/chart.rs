//! Time against cost as a picture: an SVG that needs nothing but itself.

use std::fmt::Write;

use super::{Limits, Point};
use crate::drawing::{Axis, begin, escaped, put};
use crate::plan::words::{money, spoken};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;

/// Draws points, with lines as long as their intervals; the recommended one has a ring and its setting in bold, and limits
/// are dashed lines.
pub fn chart(title: &str, points: &[Point], recommended: Option<usize>, limits: &Limits) -> String {
    let sound: Vec<(usize, &Point)> = points.iter().enumerate().filter(|(_, it)| it.is_sound()).collect();
    // An interval of a guess may be so wide that nothing else could be told apart.
    let largest = |value: fn(&Point) -> (f64, f64), limit: Option<f64>| {
        let values = sound.iter().map(|(_, it)| value(it)).map(|(expected, most)| most.min(2.0 * expected));
        let largest = values.fold(0.0, f64::max);
        limit.filter(|it| it.is_finite() && *it < 3.0 * largest).map_or(largest, |it| largest.max(it))
    };
    let seconds = largest(|it| (it.seconds.expected, it.seconds.most), limits.seconds);
    let cost = largest(|it| (it.cost.expected, it.cost.most), limits.cost);
    let x = Axis::over(seconds, LEFT, WIDTH - RIGHT);
    let y = Axis::over(cost, HEIGHT - BOTTOM, TOP);
    let mut svg = String::new();
    draw(&mut svg, title, &sound, recommended, limits, &x, &y);
    svg
}

fn draw(
    svg: &mut String,
    title: &str,
    points: &[(usize, &Point)],
    recommended: Option<usize>,
    limits: &Limits,
    x: &Axis,
    y: &Axis,
) {
    begin(svg, title, (WIDTH, HEIGHT), LEFT);
    let (left, right, top, bottom) = (x.start, x.end, y.end, y.start);
    for tick in x.ticks() {
        let at = x.at(tick);
        put!(svg, r##"<line x1="{at:.1}" y1="{top:.1}" x2="{at:.1}" y2="{bottom:.1}" stroke="#e5e5e5"/>"##);
        let (text_y, label) = (bottom + 18.0, short_time(tick));
        put!(svg, r#"<text x="{at:.1}" y="{text_y:.1}" text-anchor="middle">{label}</text>"#);
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        put!(svg, r##"<line x1="{left:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" stroke="#e5e5e5"/>"##);
        let (text_x, text_y, label) = (left - 8.0, at + 4.0, money(tick));
        put!(svg, r#"<text x="{text_x:.1}" y="{text_y:.1}" text-anchor="end">{label}</text>"#);
    }
    put!(svg, r##"<path d="M{left:.1} {top:.1}V{bottom:.1}H{right:.1}" fill="none" stroke="#333333"/>"##);
    let (middle_x, middle_y) = ((left + right) / 2.0, (top + bottom) / 2.0);
    put!(svg, r#"<text x="{middle_x:.1}" y="{:.1}" text-anchor="middle">time of the whole job</text>"#, HEIGHT - 14.0);
    put!(
        svg,
        r#"<text x="16" y="{middle_y:.1}" text-anchor="middle" transform="rotate(-90 16 {middle_y:.1})">cost of the whole job</text>"#
    );
    if let Some(limit) = limits.seconds.filter(|it| *it <= x.to) {
        let at = x.at(limit);
        put!(
            svg,
            r##"<line x1="{at:.1}" y1="{top:.1}" x2="{at:.1}" y2="{bottom:.1}" stroke="#b00020" stroke-dasharray="5 4"/>"##
        );
        put!(
            svg,
            r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#b00020">limit {}</text>"##,
            at - 4.0,
            top + 12.0,
            spoken(limit)
        );
    }
    if let Some(limit) = limits.cost.filter(|it| *it <= y.to) {
        let at = y.at(limit);
        put!(
            svg,
            r##"<line x1="{left:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" stroke="#b00020" stroke-dasharray="5 4"/>"##
        );
        put!(
            svg,
            r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#b00020">limit {}</text>"##,
            right - 4.0,
            at - 5.0,
            money(limit)
        );
    }
    let mut labels: Vec<(f64, f64)> = Vec::new();
    for (index, point) in points {
        draw_point(svg, point, recommended == Some(*index), x, y, &mut labels);
    }
    put!(svg, "</svg>");
}

fn draw_point(svg: &mut String, point: &Point, is_best: bool, x: &Axis, y: &Axis, labels: &mut Vec<(f64, f64)>) {
    let (at_x, at_y) = (x.at(point.seconds.expected), y.at(point.cost.expected));
    let colour = if is_best { "#0a7d32" } else { "#1f5fa8" };
    let (from, to) = (x.at(point.seconds.least), x.at(point.seconds.most));
    put!(
        svg,
        r#"<line x1="{from:.1}" y1="{at_y:.1}" x2="{to:.1}" y2="{at_y:.1}" stroke="{colour}" stroke-opacity="0.5"/>"#
    );
    let (from, to) = (y.at(point.cost.least), y.at(point.cost.most));
    put!(
        svg,
        r#"<line x1="{at_x:.1}" y1="{from:.1}" x2="{at_x:.1}" y2="{to:.1}" stroke="{colour}" stroke-opacity="0.5"/>"#
    );
    let fill = if point.is_measured { colour } else { "#ffffff" };
    put!(svg, r#"<circle cx="{at_x:.1}" cy="{at_y:.1}" r="4" fill="{fill}" stroke="{colour}">"#);
    let setting = escaped(&point.setting());
    put!(svg, "<title>{setting}: {}, {}</title></circle>", spoken(point.seconds.expected), money(point.cost.expected));
    // Labels that would lie on one another are left out; the recommended one never is.
    let is_free = labels.iter().all(|(x, y)| (x - at_x).abs() > 150.0 || (y - at_y).abs() > 14.0);
    if !is_free && !is_best {
        return;
    }
    labels.push((at_x, at_y));
    let (anchor, text_x) = if at_x > WIDTH * 0.7 { ("end", at_x - 10.0) } else { ("start", at_x + 10.0) };
    let text_y = at_y - 8.0;
    if is_best {
        put!(svg, r#"<circle cx="{at_x:.1}" cy="{at_y:.1}" r="9" fill="none" stroke="{colour}" stroke-width="2"/>"#);
        put!(
            svg,
            r#"<text x="{text_x:.1}" y="{text_y:.1}" text-anchor="{anchor}" font-weight="bold" fill="{colour}">{setting} (recommended)</text>"#
        );
    } else {
        put!(svg, r#"<text x="{text_x:.1}" y="{text_y:.1}" text-anchor="{anchor}">{setting}</text>"#);
    }
}

/// A tick of the axis of time, which is zero or a round number.
fn short_time(seconds: f64) -> String {
    if seconds == 0.0 { "0".to_owned() } else { spoken(seconds) }
}

//! What pictures are made of: axes with round steps, colours, and text that stands for itself. A picture is an SVG that needs
//! nothing but itself, and the same values give the same bytes.

use std::fmt::Write;

/// Writing to a text cannot fail, so what `write!` returns is dropped here and nowhere else.
macro_rules! put {
    ($svg:expr, $($arg:tt)*) => {
        let _ = writeln!($svg, $($arg)*);
    };
}
pub(crate) use put;

/// An axis: which values it shows, and where.
pub(crate) struct Axis {
    from: f64,
    pub to: f64,
    step: f64,
    pub start: f64,
    pub end: f64,
}

impl Axis {
    /// From zero to a round number above the largest value, in four to ten round steps.
    pub fn over(largest: f64, start: f64, end: f64) -> Self {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = round_step(largest);
        Self { from: 0.0, to: (largest / step).ceil() * step, step, start, end }
    }

    /// From a round number below the least value to one above the largest.
    pub fn between(least: f64, largest: f64, start: f64, end: f64) -> Self {
        let spread = largest - least;
        // Where all values are alike there is nothing to tell apart, but still something to show.
        let (least, largest) = if spread > 1e-9 * least.abs().max(largest.abs()) {
            (least, largest)
        } else {
            let around = if least == 0.0 { 1.0 } else { 0.1 * least.abs() };
            (least - around, largest + around)
        };
        let step = round_step(largest - least);
        Self { from: (least / step).floor() * step, to: (largest / step).ceil() * step, step, start, end }
    }

    pub fn at(&self, value: f64) -> f64 {
        let part = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.start + part * (self.end - self.start)
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> {
        let steps = ((self.to - self.from) / self.step).round() as u32;
        (0..=steps).map(|step| self.from + f64::from(step) * self.step)
    }

    /// A tick with as many digits as the steps need.
    pub fn label(&self, tick: f64) -> String {
        // What is left of a sum that should have been zero is no value.
        let tick = if tick.abs() < 1e-9 * self.step { 0.0 } else { tick };
        if !(1e-4..1e6).contains(&self.step) {
            return if tick == 0.0 { "0".to_owned() } else { format!("{tick:.1e}") };
        }
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        format!("{tick:.digits$}")
    }
}

/// A round step of which four to ten make the range.
fn round_step(range: f64) -> f64 {
    let magnitude = 10_f64.powf((range / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * magnitude).into_iter().find(|it| range / it <= 7.0);
    step.unwrap_or(10.0 * magnitude)
}

/// Begins a picture of this width and height, with a title over it.
pub(crate) fn begin(svg: &mut String, title: &str, (width, height): (f64, f64), left: f64) {
    put!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="12">"#
    );
    put!(svg, r##"<rect width="{width}" height="{height}" fill="#ffffff"/>"##);
    put!(svg, r#"<title>{}</title>"#, escaped(title));
    put!(svg, r#"<text x="{left}" y="22" font-size="15" font-weight="bold">{}</text>"#, escaped(title));
}

/// A colour for a share from zero (the worst) to one (the best): from yellow over green to blue, darker for better.
pub(crate) fn colour(share: f64) -> String {
    const STOPS: [[f64; 3]; 4] =
        [[237.0, 217.0, 120.0], [122.0, 190.0, 132.0], [38.0, 128.0, 142.0], [38.0, 40.0, 110.0]];
    let place = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) } * (STOPS.len() - 1) as f64;
    let stop = (place as usize).min(STOPS.len() - 2);
    let part = place - stop as f64;
    let of = |channel: usize| (STOPS[stop][channel] * (1.0 - part) + STOPS[stop + 1][channel] * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", of(0), of(1), of(2))
}

/// Text that stands for itself in XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            it if it.is_control() => safe.push(' '),
            it => safe.push(it),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_between_values_has_round_ticks_around_them() {
        let axis = Axis::between(0.913, 0.987, 0.0, 100.0);
        let labels: Vec<String> = axis.ticks().map(|tick| axis.label(tick)).collect();
        assert_eq!(labels.first().map(String::as_str), Some("0.90"));
        assert_eq!(labels.last().map(String::as_str), Some("1.00"));
        assert!((4..=10).contains(&labels.len()), "{labels:?}");
        assert_eq!(axis.at(0.5), 0.0, "what is below the axis is drawn at its end");
    }

    #[test]
    fn values_that_are_all_alike_are_in_the_middle() {
        for value in [0.0, 0.5, -3.0, 1e-12, 1e12] {
            let axis = Axis::between(value, value, 0.0, 100.0);
            assert!((axis.at(value) - 50.0).abs() < 20.0, "{value}: {}", axis.at(value));
            assert!(axis.ticks().count() < 20);
        }
    }

    #[test]
    fn labels_tell_ticks_apart() {
        for (least, largest) in [(-1.0, 1.0), (0.0, 1e-7), (1.0, 1e9), (100.0, 103.0)] {
            let axis = Axis::between(least, largest, 0.0, 1.0);
            let mut labels: Vec<String> = axis.ticks().map(|tick| axis.label(tick)).collect();
            let count = labels.len();
            labels.dedup();
            assert_eq!(labels.len(), count, "{labels:?}");
        }
    }

    #[test]
    fn better_is_darker() {
        let light = |share: f64| {
            let text = colour(share);
            (1..7).step_by(2).map(|at| u32::from_str_radix(&text[at..at + 2], 16).unwrap()).sum::<u32>()
        };
        assert!(light(0.0) > light(0.5) && light(0.5) > light(1.0));
        assert_eq!(colour(f64::NAN), colour(0.0));
    }
}

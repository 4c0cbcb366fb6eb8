//! A few samples as text, for people: images as shades, anything else as numbers.

use std::fmt::Write;

use super::block::{self, BlockError, numbers};
use super::manifest::{BlockRef, Manifest};
use super::rows::{Element, Features, Labels, Values};

/// Numbers of a sample that are shown.
const MOST_NUMBERS: usize = 16;
/// Images are shown in at most so many columns; a character is about twice as high as it is wide.
const MOST_COLUMNS: usize = 64;
const SHADES: &[u8] = b" .:-=+*#%@";

/// The first samples of a block, which is the first of a split as a rule.
pub fn preview(manifest: &Manifest, block: &BlockRef, bytes: &[u8], samples: usize) -> Result<String, BlockError> {
    let rows = block::decode(bytes, block, &manifest.features, manifest.labels)?;
    let mut text = String::new();
    for sample in 0..samples.min(rows.count) {
        let label = label_text(manifest, &rows.labels, sample);
        let _ = writeln!(text, "sample {sample}{label}");
        match &rows.features {
            Values::Dense(bytes) => dense_text(manifest, bytes, sample, &mut text),
            Values::Sparse { starts, columns, values } => {
                // Decoding checked the starts.
                let range = starts[sample] as usize..starts[sample + 1] as usize;
                let pairs = columns[range.clone()].iter().zip(&values[range.clone()]);
                let shown: Vec<_> =
                    pairs.take(MOST_NUMBERS).map(|(column, value)| format!("{column}:{value}")).collect();
                numbers_text(&shown, range.len(), &mut text);
            }
        }
    }
    Ok(text)
}

fn label_text(manifest: &Manifest, labels: &[u8], sample: usize) -> String {
    let Some(kind) = manifest.labels else { return String::new() };
    let label = labels.get(sample * kind.size()..(sample + 1) * kind.size()).unwrap_or(&[]);
    match kind {
        Labels::Class => {
            let class = numbers(label, i32::from_le_bytes).next().unwrap_or(0);
            let name = usize::try_from(class).ok().and_then(|class| manifest.class_names.get(class));
            // Names come from files: what could move a cursor is written out.
            name.map_or_else(|| format!(", class {class}"), |name| format!(", class {class} ({})", name.escape_debug()))
        }
        Labels::Values { .. } => {
            let values: Vec<_> =
                numbers(label, f32::from_le_bytes).take(MOST_NUMBERS).map(|value| value.to_string()).collect();
            format!(", label {}", values.join(" "))
        }
    }
}

fn dense_text(manifest: &Manifest, bytes: &[u8], sample: usize, text: &mut String) {
    let Features::Dense { element, shape } = &manifest.features else { return };
    let size = manifest.features.sample_bytes().unwrap_or(0);
    let bytes = bytes.get(sample * size..(sample + 1) * size).unwrap_or(&[]);
    let width = manifest.features.width();
    let number = |index: usize| -> f64 {
        let four = || bytes.get(4 * index..4 * index + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 4]);
        match element {
            Element::U8 => bytes.get(index).map_or(0.0, |byte| f64::from(*byte)),
            Element::I32 => f64::from(i32::from_le_bytes(four())),
            Element::F32 => f64::from(f32::from_le_bytes(four())),
        }
    };
    match shape.as_slice() {
        [height, columns] | [1, height, columns] if *height > 1 && *columns > 1 => {
            image_text(*height, *columns, number, text);
        }
        _ => {
            let shown: Vec<_> = (0..width.min(MOST_NUMBERS))
                .map(|index| {
                    if *element == Element::F32 {
                        (number(index) as f32).to_string()
                    } else {
                        number(index).to_string()
                    }
                })
                .collect();
            numbers_text(&shown, width, text);
        }
    }
}

fn numbers_text(shown: &[String], all: usize, text: &mut String) {
    let more = if all > shown.len() { format!(" … ({all} in all)") } else { String::new() };
    let _ = writeln!(text, "  {}{more}", shown.join(" "));
}

/// Each pixel, or each so many, as two characters that are darker the lower it is.
fn image_text(height: usize, width: usize, number: impl Fn(usize) -> f64, text: &mut String) {
    let step = width.max(height).div_ceil(MOST_COLUMNS);
    let pixels = |line: usize| (0..width).step_by(step).map(move |column| line * width + column);
    let lines = || (0..height).step_by(step);
    let (low, high) = lines()
        .flat_map(pixels)
        .map(&number)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| (low.min(number), high.max(number)));
    let range = if high > low { high - low } else { 1.0 };
    for line in lines() {
        let shades: String = pixels(line)
            .flat_map(|pixel| {
                let shade = ((number(pixel) - low) / range * (SHADES.len() - 1) as f64).round() as usize;
                [char::from(SHADES[shade.min(SHADES.len() - 1)]); 2]
            })
            .collect();
        let _ = writeln!(text, "  {}", shades.trim_end());
    }
}

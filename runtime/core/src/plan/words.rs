//! Numbers with units, as people write them.

/// A number that is finite.
pub fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|it: &f64| it.is_finite())
}

/// A number with one of these units behind it, in the unit that has the factor 1.
pub fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|it: char| it.is_ascii_alphabetic() && it != 'e').unwrap_or(text.len());
    let (value, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number(value.trim()).map(|value| value * factor)
}

/// Seconds, of `2s`, `80ms`, `30us`, `1.5m` or `2h`.
pub fn seconds(text: &str) -> Option<f64> {
    with_unit(text, &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("m", 60.0), ("h", 3600.0)])
}

/// Seconds as a person says them: `850 ms`, `12.3 s`, `4.2 min`, `1.5 h`.
pub fn spoken(seconds: f64) -> String {
    match seconds {
        it if it < 1.0 => format!("{:.3} ms", it * 1e3),
        it if it < 120.0 => format!("{it:.1} s"),
        it if it < 7_200.0 => format!("{:.1} min", it / 60.0),
        it => format!("{:.1} h", it / 3600.0),
    }
}

/// Money as a person says it: enough digits to tell prices of functions apart, and no more.
pub fn money(amount: f64) -> String {
    match amount {
        it if it >= 100.0 => format!("{it:.0}"),
        it if it >= 0.1 => format!("{it:.3}"),
        it if it >= 1e-5 || it == 0.0 => format!("{it:.6}"),
        it => format!("{it:.2e}"),
    }
}

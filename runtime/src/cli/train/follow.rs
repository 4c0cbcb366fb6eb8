//! `--follow` as it is written on a command line.

use weft_core::spec::Follow;

use crate::units::Span;

/// `replay=0.2,epochs=2,versions=5,idle=1h`, any of it left out.
pub fn follow(text: &str) -> Result<Follow, String> {
    let part = |part: &str| match part.split_once('=') {
        Some(("idle", span)) => {
            let span: Span = span.parse().map_err(|error| format!("`{part}`: {error}"))?;
            Ok(format!("idle_ms={}", span.0.as_millis()))
        }
        Some(("idle_ms", _)) => Err("write `idle=SPAN`, as in `idle=1h`".to_owned()),
        _ => Ok(part.to_owned()),
    };
    let parts: Result<Vec<String>, String> = text.split(',').map(part).collect();
    parts?.join(",").parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_with_its_unit() {
        let hour = Follow { idle_ms: 3_600_000, replay: 0.5, ..Follow::default() };
        assert_eq!(follow("replay=0.5,idle=1h"), Ok(hour));
        assert_eq!(follow(""), Ok(Follow::default()));
        assert!(follow("idle=soon").unwrap_err().contains("idle=soon"));
        assert!(follow("reply=1").is_err());
    }
}

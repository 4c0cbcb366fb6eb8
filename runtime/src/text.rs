//! Texts of others, as far as they are kept.

/// The most bytes that are kept of an error's text: it goes into answers, logs and records.
pub const MOST_ERROR: usize = 4 << 10;

/// Bytes that say how many are missing.
const MARK: usize = 64;

/// At most so many bytes of a text, those included that say how many are missing. It is cut in the middle: what matters is
/// said first or last.
pub fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let side = most.saturating_sub(MARK) / 2;
    let start = text.floor_char_boundary(side);
    let end = text.ceil_char_boundary(text.len() - side);
    format!("{}… ({} more bytes) …{}", &text[..start], end - start, &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters_and_says_so() {
        let short = cut(format!("first{}last", "ä".repeat(1 << 20)), 100);
        assert!(short.len() <= 100, "{} bytes", short.len());
        assert!(short.starts_with("firstä") && short.ends_with("älast"), "{short}");
        assert!(short.contains("more bytes"), "{short}");
        assert_eq!(cut(short.clone(), 100), short, "what was cut is not cut again");
        assert_eq!(cut("short".to_owned(), 5), "short");
    }
}

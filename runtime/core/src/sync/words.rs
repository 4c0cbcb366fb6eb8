//! Values that are written as one word each.

/// Reads and writes an enum without fields as its words.
macro_rules! words {
    ($name:ident, $what:literal, $($word:literal => $variant:ident),+ $(,)?) => {
        impl $name {
            /// All of them, in the order of their words.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    other => {
                        let words = [$(concat!("`", $word, "`")),+].join(", ");
                        Err(format!("`{}` is not {}: there are {words}", other.chars().take(80).collect::<String>(), $what))
                    }
                }
            }
        }
    };
}

pub(crate) use words;

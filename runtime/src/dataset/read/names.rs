//! Which of the arrays of a file are the features and which the labels, by their names.

use super::error::excerpt;

/// One half of a file that holds both what to train on and what to test with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Train,
    Test,
}

impl Half {
    fn word(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// Which arrays are meant.
#[derive(Clone, Debug, Default)]
pub struct ArrayNames {
    pub features: Option<String>,
    pub labels: Option<String>,
    /// Which to take where there is `x_train` and `x_test`, as in Keras' `mnist.npz`.
    pub part: Option<Half>,
}

const FEATURES: [&str; 8] = ["x", "data", "images", "image", "features", "inputs", "samples", "arr_0"];
const LABELS: [&str; 8] = ["y", "labels", "label", "targets", "target", "classes", "outputs", "arr_1"];

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Features,
    Labels,
}

impl ArrayNames {
    /// The place among `names` of the features, and of the labels if there are any and `labels` wants them.
    pub(super) fn find(&self, names: &[&str], labels: bool) -> Result<(usize, Option<usize>), String> {
        let features = self.one(names, Role::Features)?;
        let labels = match (&self.labels, labels) {
            (_, false) => None,
            (Some(_), true) => Some(self.one(names, Role::Labels)?),
            (None, true) => self.guess(names, Role::Labels).filter(|&labels| labels != features),
        };
        Ok((features, labels))
    }

    /// The place among `names` of what has this role.
    pub(super) fn one(&self, names: &[&str], role: Role) -> Result<usize, String> {
        let (asked, word) = match role {
            Role::Features => (&self.features, "features"),
            Role::Labels => (&self.labels, "labels"),
        };
        if let Some(asked) = asked {
            let found = names.iter().position(|name| name == asked);
            return found.ok_or_else(|| format!("it has no array `{}`; it has {}", asked.escape_debug(), list(names)));
        }
        match names {
            [] => Err("it has no arrays".into()),
            [_] => Ok(0),
            _ => self.guess(names, role).ok_or_else(|| {
                let has_parts = (Self { part: Some(Half::Train), ..Self::default() }).guess(names, role).is_some();
                let advice = if has_parts { "say whether the training or the test part" } else { "name it" };
                format!("which of its arrays has the {word} is not clear: {advice}; it has {}", list(names))
            }),
        }
    }

    fn guess(&self, names: &[&str], role: Role) -> Option<usize> {
        let known = if role == Role::Features { FEATURES } else { LABELS };
        let find = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let of_part = |part: Half| {
            let word = part.word();
            known.iter().find_map(|name| find(&format!("{name}_{word}")).or_else(|| find(&format!("{word}_{name}"))))
        };
        self.part.and_then(of_part).or_else(|| known.iter().find_map(|name| find(name)))
    }
}

/// The names for an error, not too many of them.
fn list(names: &[&str]) -> String {
    const MOST: usize = 10;
    let shown: Vec<String> = names.iter().take(MOST).map(|name| format!("`{}`", excerpt(name.as_bytes()))).collect();
    let more = if names.len() > MOST { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERAS: [&str; 4] = ["x_test", "x_train", "y_train", "y_test"];

    fn part(part: Half) -> ArrayNames {
        ArrayNames { part: Some(part), ..Default::default() }
    }

    #[test]
    fn pairs_are_known_by_their_names() {
        for names in [["x", "y"], ["X", "y"], ["data", "labels"], ["images", "labels"], ["features", "targets"]] {
            assert_eq!(ArrayNames::default().find(&names, true), Ok((0, Some(1))), "{names:?}");
        }
    }

    #[test]
    fn an_array_alone_is_the_features() {
        assert_eq!(ArrayNames::default().find(&["y"], true), Ok((0, None)));
    }

    #[test]
    fn a_part_is_chosen() {
        assert_eq!(part(Half::Train).find(&KERAS, true), Ok((1, Some(2))));
        assert_eq!(part(Half::Test).find(&KERAS, true), Ok((0, Some(3))));
        assert!(ArrayNames::default().find(&KERAS, true).unwrap_err().contains("training or the test part"));
    }

    #[test]
    fn a_part_asked_for_may_be_all_there_is() {
        assert_eq!(part(Half::Test).find(&["y", "x"], true), Ok((1, Some(0))));
    }

    #[test]
    fn a_name_that_is_missing_is_told_with_those_that_are_there() {
        let names = ArrayNames { features: Some("pixels".into()), ..Default::default() };
        assert!(names.find(&["x", "y"], true).unwrap_err().contains("`x`, `y`"));
    }
}

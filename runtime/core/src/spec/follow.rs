//! How a job follows a data set that grows.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BadSpec, JobSpec, MAX_EPOCHS};

/// The share of the samples of earlier versions that is trained on again, unless told otherwise.
const DEFAULT_REPLAY: f64 = 0.2;

/// After its epochs the job waits for new versions of its data set, and trains on the new samples of each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Follow {
    /// Of the samples of earlier versions, the share that is trained on again beside the new ones: from 0 to 1.
    pub replay: f64,
    /// Epochs on each version after the first.
    pub epochs: u64,
    /// Ends the job after so many versions beside the first; 0 for never.
    #[serde(skip_serializing_if = "is_zero")]
    pub versions: u64,
    /// Ends the job when it has waited so many milliseconds; 0 for never.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_ms: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Default for Follow {
    fn default() -> Self {
        Self { replay: DEFAULT_REPLAY, epochs: 1, versions: 0, idle_ms: 0 }
    }
}

/// As on a command line: `replay=0.2,epochs=2,versions=5`; spans are numbers of milliseconds here.
impl FromStr for Follow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut follow = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (word, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not WORD=VALUE"))?;
            let wrong = |error: &dyn std::fmt::Display| format!("`{word}={value}`: {error}");
            match word {
                "replay" => follow.replay = value.parse().map_err(|error| wrong(&error))?,
                "epochs" => follow.epochs = value.parse().map_err(|error| wrong(&error))?,
                "versions" => follow.versions = value.parse().map_err(|error| wrong(&error))?,
                "idle_ms" => follow.idle_ms = value.parse().map_err(|error| wrong(&error))?,
                _ => return Err(format!("`{word}` is none of `replay`, `epochs`, `versions`, `idle_ms`")),
            }
        }
        Ok(follow)
    }
}

impl JobSpec {
    /// Refuses what cannot be followed.
    pub(super) fn check_follow(&self) -> Result<(), BadSpec> {
        let Some(Follow { replay, epochs, .. }) = &self.follow else { return Ok(()) };
        let wrong = |problem: String| Err(BadSpec::new("follow", problem));
        if !(0.0..=1.0).contains(replay) {
            return wrong(format!("a `replay` of {replay} is not between 0 and 1"));
        }
        if !(1..=MAX_EPOCHS).contains(epochs) {
            return wrong(format!("{epochs} `epochs` are not between 1 and {MAX_EPOCHS}"));
        }
        if self.dataset.is_none() {
            return wrong("there is no data set to follow: give `dataset`".to_owned());
        }
        if self.stratified {
            return wrong("which classes replayed samples have is not known: leave out `stratified`".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut JobSpec)) -> String {
        let mut spec = JobSpec { follow: Some(Follow::default()), ..JobSpec::new("f", Some("d".to_owned())) };
        change(&mut spec);
        spec.check().map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        let all = Follow { replay: 0.5, epochs: 3, versions: 7, idle_ms: 60_000 };
        assert_eq!("replay=0.5,epochs=3,versions=7,idle_ms=60000".parse(), Ok(all));
        assert_eq!("".parse(), Ok(Follow::default()));
        assert!("replays=1".parse::<Follow>().unwrap_err().contains("none of"));
        assert!("epochs=many".parse::<Follow>().unwrap_err().contains("epochs=many"));
        assert!("replay".parse::<Follow>().unwrap_err().contains("WORD=VALUE"));
        assert_eq!(serde_json::from_str::<Follow>("{}").unwrap(), Follow::default());
        assert!(serde_json::from_str::<Follow>(r#"{"reply": 1}"#).is_err());
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let follow = |change: fn(&mut Follow)| refused(|spec| spec.follow.iter_mut().for_each(change));
        assert_eq!(refused(|_| ()), "");
        assert!(follow(|follow| follow.replay = 1.5).contains("between 0 and 1"));
        assert!(follow(|follow| follow.replay = f64::NAN).contains("between 0 and 1"));
        assert!(follow(|follow| follow.epochs = 0).contains("epochs"));
        assert!(refused(|spec| spec.dataset = None).contains("no data set"));
        assert!(refused(|spec| spec.stratified = true).contains("stratified"));
    }
}

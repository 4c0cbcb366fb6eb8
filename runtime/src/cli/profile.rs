//! `weft profile`: nodes and keys that are saved under a name, in a file that only its owner can read.
//!
//! A profile's key is only ever sent to that profile's url: naming another url leaves the key at home.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::failure::UsageError;
use super::output::Output;
use super::{Client, DEFAULT_URL, Global};
use crate::names::Name;

#[derive(Subcommand)]
pub enum ProfileVerb {
    /// Save the node given with `--url`, and its `--key` and `--ca-cert`; replaces what was saved under the name
    Set { name: Name },
    /// List what is saved, without keys
    List,
    /// Use a profile unless told otherwise
    Use { name: Name },
    /// Forget a profile and its key
    Delete { name: Name },
}

/// A saved node. Deliberately not `Debug`: it holds a key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<PathBuf>,
}

/// The file of profiles.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    pub profiles: BTreeMap<String, Profile>,
}

/// `weft/profiles.toml` in the user's folder for settings; none if there is no such folder.
pub fn default_path() -> Option<PathBuf> {
    path_in(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"))
}

fn path_in(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let config_home = config_home.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.map(PathBuf::from).filter(|path| path.is_absolute()).map(|home| home.join(".config"));
    Some(config_home.or(home)?.join("weft/profiles.toml"))
}

impl Profiles {
    /// A file that does not exist has no profiles.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            // The error's own text would quote the line, which may be the key's.
            Ok(text) => toml::from_str(&text).map_err(|error: toml::de::Error| {
                anyhow::anyhow!("profiles in `{}` are malformed: {}", path.display(), error.message())
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read profiles in `{}`", path.display())),
        }
    }

    /// Replaces the file at once.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            // A link into someone's collection of settings stays a link.
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let folder = path.parent().context("no folder")?;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            // Made with mode 0600.
            let mut staged = tempfile::NamedTempFile::with_prefix_in(".profiles-", folder)?;
            staged.write_all(toml::to_string(self)?.as_bytes())?;
            staged.as_file().sync_all()?;
            staged.persist(&path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write profiles to `{}`", path.display()))
    }

    fn get(&self, name: &str) -> anyhow::Result<&Profile> {
        self.profiles.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let known =
                if names.is_empty() { "none is saved".to_owned() } else { format!("there are: {}", names.join(", ")) };
            UsageError(format!("there is no profile `{name}`; {known}")).into()
        })
    }

    /// Which node to speak to: flags and variables first, then the profile, then the default.
    pub(super) fn target(&self, global: &Global) -> anyhow::Result<Profile> {
        let name = global.profile.as_deref().filter(|name| !name.is_empty());
        let profile = match name.or(self.current.as_deref()) {
            Some(name) => Some(self.get(name)?),
            None => None,
        };
        let given = global.url.as_deref().filter(|url| !url.is_empty());
        let url = given.or(profile.map(|profile| profile.url.as_str())).unwrap_or(DEFAULT_URL);
        let same_node = |profile: &&Profile| profile.url.trim_end_matches('/') == url.trim_end_matches('/');
        let profile = profile.filter(same_node);
        Ok(Profile {
            url: url.to_owned(),
            key: read_key(global.key.as_deref())?.or_else(|| profile.and_then(|profile| profile.key.clone())),
            ca_cert: global.ca_cert.clone().or_else(|| profile.and_then(|profile| profile.ca_cert.clone())),
        })
    }
}

/// The key itself, or where it is: `-` is stdin, `@FILE` a file.
fn read_key(given: Option<&str>) -> anyhow::Result<Option<String>> {
    let key = match given {
        None | Some("") => return Ok(None),
        Some("-") => {
            let mut line = String::new();
            io::stdin().read_line(&mut line).context("cannot read the key from stdin")?;
            line
        }
        Some(given) => match given.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read the key in `{path}`"))?,
            None => given.to_owned(),
        },
    };
    Ok(Some(key.trim().to_owned()))
}

pub fn run(verb: ProfileVerb, global: &Global, out: &Output) -> anyhow::Result<()> {
    let path = default_path().context("no place for profiles: set HOME or XDG_CONFIG_HOME")?;
    let mut profiles = Profiles::load(&path)?;
    match verb {
        ProfileVerb::Set { name } => set(&mut profiles, &path, name, global, out),
        ProfileVerb::List => list(&profiles, out),
        ProfileVerb::Use { name } => {
            profiles.get(name.as_str())?;
            profiles.current = Some(name.to_string());
            profiles.save(&path)?;
            out.done(&json!({"current": name}), format_args!("using `{name}` from now on"))
        }
        ProfileVerb::Delete { name } => {
            profiles.get(name.as_str())?;
            profiles.profiles.remove(name.as_str());
            profiles.current = profiles.current.filter(|current| current != name.as_str());
            profiles.save(&path)?;
            out.done(&json!({"deleted": name}), format_args!("deleted profile `{name}`"))
        }
    }
}

fn set(profiles: &mut Profiles, path: &Path, name: Name, global: &Global, out: &Output) -> anyhow::Result<()> {
    let url = global.url.clone().filter(|url| !url.is_empty());
    let url = url.ok_or_else(|| UsageError("give the node's address with `--url`".to_owned()))?;
    let ca_cert = global
        .ca_cert
        .as_ref()
        .map(|path| path.canonicalize().with_context(|| format!("CA certificate `{}`", path.display())));
    let profile = Profile { url, key: read_key(global.key.as_deref())?, ca_cert: ca_cert.transpose()? };
    // What no client would take is better refused now.
    Client::new(&profile.url, profile.key.as_deref(), profile.ca_cert.as_deref())?;
    let key = if profile.key.is_some() { "with a key" } else { "without a key" };
    let value = json!({"name": name, "url": profile.url, "has_key": profile.key.is_some()});
    let sentence = format!("saved `{name}`: {} {key}", profile.url);
    profiles.profiles.insert(name.to_string(), profile);
    profiles.current.get_or_insert_with(|| name.to_string());
    profiles.save(path)?;
    out.done(&value, sentence)
}

fn list(profiles: &Profiles, out: &Output) -> anyhow::Result<()> {
    let is_current = |name: &String| profiles.current.as_ref() == Some(name);
    let value = |(name, profile): (&String, &Profile)| {
        json!({
            "name": name,
            "current": is_current(name),
            "url": profile.url,
            "has_key": profile.key.is_some(),
            "ca_cert": profile.ca_cert,
        })
    };
    let row = |(name, profile): (&String, &Profile)| {
        vec![
            if is_current(name) { "*" } else { "" }.to_owned(),
            name.clone(),
            profile.url.clone(),
            if profile.key.is_some() { "saved" } else { "none" }.to_owned(),
        ]
    };
    let values: Vec<_> = profiles.profiles.iter().map(value).collect();
    out.show(&values, || {
        let rows: Vec<Vec<String>> = profiles.profiles.iter().map(row).collect();
        out.table(&["", "NAME", "URL", "KEY"], &rows)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn profiles() -> Profiles {
        let profile =
            Profile { url: "https://node:7420".to_owned(), key: Some("weft_secret".to_owned()), ca_cert: None };
        Profiles { current: Some("prod".to_owned()), profiles: [("prod".to_owned(), profile)].into() }
    }

    #[test]
    fn a_saved_file_loads_again_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(Some(folder.path().into()), None).unwrap();
        profiles().save(&path).unwrap();
        profiles().save(&path).unwrap();
        assert!(Profiles::load(&path).unwrap() == profiles());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_malformed_file_is_named_but_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        std::fs::write(&path, "[profiles.a]\nurl = 'x'\nkey = weft_secret").unwrap();
        let error = format!("{:#}", Profiles::load(&path).err().unwrap());
        assert!(error.contains("profiles.toml") && !error.contains("weft_secret"), "{error}");
    }

    #[test]
    fn a_key_stays_with_its_url() {
        let key = |global: Global| profiles().target(&global).unwrap().key;
        assert_eq!(key(Global::default()).as_deref(), Some("weft_secret"));
        assert_eq!(
            key(Global { url: Some("https://node:7420/".to_owned()), ..Global::default() }).as_deref(),
            Some("weft_secret")
        );
        assert_eq!(key(Global { url: Some("https://other".to_owned()), ..Global::default() }), None);
        let both =
            Global { url: Some("https://other".to_owned()), profile: Some("prod".to_owned()), ..Global::default() };
        assert_eq!(key(both), None);
    }

    #[test]
    fn what_is_given_wins_over_the_profile() {
        let global = Global { key: Some("weft_other".to_owned()), ..Global::default() };
        let target = profiles().target(&global).unwrap();
        assert_eq!((target.url.as_str(), target.key.as_deref()), ("https://node:7420", Some("weft_other")));
        assert_eq!(Profiles::default().target(&Global::default()).unwrap().url, DEFAULT_URL);
    }

    #[test]
    fn a_key_can_be_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "weft_filed\n").unwrap();
        let given = format!("@{}", file.path().display());
        assert_eq!(read_key(Some(&given)).unwrap().as_deref(), Some("weft_filed"));
    }

    #[test]
    fn settings_are_kept_where_the_user_keeps_them() {
        let path = |config: Option<&str>, home: Option<&str>| path_in(config.map(Into::into), home.map(Into::into));
        assert_eq!(path(Some("/x"), Some("/h")), Some("/x/weft/profiles.toml".into()));
        assert_eq!(path(Some("relative"), Some("/h")), Some("/h/.config/weft/profiles.toml".into()));
        assert_eq!(path(None, None), None);
    }
}

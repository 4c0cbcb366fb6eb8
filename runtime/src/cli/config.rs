//! `weft serve` and `weft config`: from flags and a file to settings.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Output, Style};
use super::tenant::limit_text;
use crate::config::{ConfigError, Options, SettingRow, Settings};
use crate::node::Access;

/// What is read when no file is named.
const DEFAULT_FILE: &str = "weft.toml";

/// A node's settings, and the file that has some of them.
#[derive(Args)]
pub struct SettingsArgs {
    /// TOML file with settings [default: weft.toml, if there is one]
    #[arg(long, env = "WEFT_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// No keys: whoever can connect is the tenant `dev` and the operator. For one's own machine only
    #[arg(long)]
    dev: bool,
    /// Make a new operator key and show it; the old one stops working
    #[arg(long, conflicts_with = "dev")]
    new_operator_key: bool,
}

#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Show every setting, its value and where that is from
    Show(SettingsArgs),
    /// Say whether the settings fit together
    Check(SettingsArgs),
}

impl SettingsArgs {
    /// The file that is read, if any.
    pub fn file(&self) -> Option<&Path> {
        let default = Path::new(DEFAULT_FILE);
        self.config.as_deref().or_else(|| default.is_file().then_some(default))
    }

    pub fn resolve(self) -> Result<Settings, ConfigError> {
        let file = self.file().map(Options::from_file).transpose()?.unwrap_or_default();
        Settings::resolve(self.options, file)
    }
}

pub fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let access = match (args.dev, args.new_operator_key) {
        (true, _) => Access::Developer,
        (_, true) => Access::NewOperatorKey,
        _ => Access::Keys,
    };
    crate::server::serve(args.settings.resolve()?, access)
}

pub fn run(verb: ConfigVerb, out: &Output) -> anyhow::Result<()> {
    match verb {
        ConfigVerb::Show(args) => {
            let file = args.file().map(Path::to_owned);
            show(&args.resolve()?, file.as_deref(), out)
        }
        ConfigVerb::Check(args) => {
            args.resolve()?;
            out.show(&json!({"ok": true}), || "ok\n".to_owned())
        }
    }
}

fn show(settings: &Settings, file: Option<&Path>, out: &Output) -> anyhow::Result<()> {
    let table = settings.table();
    let value = json!({"file": file, "settings": table, "quota": settings.quota});
    out.show(&value, || {
        let row = |row: &SettingRow| {
            let source = format!("{:?}", row.source).to_lowercase();
            vec![row.name.to_owned(), plain(&row.value), source, row.variable.to_owned()]
        };
        let rows: Vec<Vec<String>> = table.iter().map(row).collect();
        let limits = settings.quota.entries();
        let limits: Vec<_> = limits.into_iter().map(|(name, limit)| (name, limit_text(name, limit))).collect();
        let heading = |text: &str| format!("\n{}\n", out.paint(Style::Bold, text));
        let file = file.map_or_else(|| "none".to_owned(), |file| file.display().to_string());
        [
            out.fields(&[("file", file)]),
            heading("Settings"),
            out.table(&["SETTING", "VALUE", "SOURCE", "VARIABLE"], &rows),
            heading("Quota of new tenants"),
            out.fields(&limits),
        ]
        .concat()
    })
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

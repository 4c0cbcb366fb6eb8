//! Asking before something is gone for good.

use std::io::{self, IsTerminal, Write};

use super::failure::UsageError;

/// Asks, unless `--yes` was given. Anything but yes is an error.
pub fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(UsageError(format!("{question} there is nobody to ask: give `--yes`")).into());
    }
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => anyhow::bail!("nothing was changed"),
    }
}

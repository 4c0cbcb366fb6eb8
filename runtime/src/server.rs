//! A stand-in until the server is here.

pub fn serve(_settings: crate::config::Settings, _dev: bool) -> anyhow::Result<()> {
    anyhow::bail!("this build has no server")
}

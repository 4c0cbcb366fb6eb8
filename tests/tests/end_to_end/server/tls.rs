//! HTTPS.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tempfile::TempDir;
use weft_tests::command::User;
use weft_tests::node::{Node, Options};
use weft_tests::wire::Wire;

/// A certificate for 127.0.0.1, its key, and a key that is not its.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    other_key: PathBuf,
    _folder: TempDir,
}

impl Pair {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str, text: String| -> Result<PathBuf> {
            let path = folder.path().join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        Ok(Self {
            certificate: file("cert.pem", cert.pem())?,
            key: file("key.pem", signing_key.serialize_pem())?,
            other_key: file("other.pem", KeyPair::generate()?.serialize_pem())?,
            _folder: folder,
        })
    }
}

fn options(certificate: &std::path::Path, key: &std::path::Path) -> Options {
    Options::default().dev().set("tls-cert", certificate.display()).set("tls-key", key.display())
}

fn with_tls() -> Result<(Node, Pair)> {
    let pair = Pair::new()?;
    Ok((options(&pair.certificate, &pair.key).start()?, pair))
}

#[test]
fn the_command_line_speaks_to_a_node_whose_authority_it_is_given() -> Result<()> {
    let (node, pair) = with_tls()?;
    ensure!(node.url().starts_with("https://"), "{}", node.url());
    let user = User::of(&node.anybody())?;
    let status = user.json(&["--ca-cert", &pair.certificate.display().to_string(), "node"])?;
    ensure!(status["draining"] == false, "{status}");
    Ok(())
}

#[test]
fn a_node_whose_authority_is_unknown_is_not_trusted() -> Result<()> {
    let (node, _pair) = with_tls()?;
    let ended = User::of(&node.anybody())?.weft(&["node"])?;
    ensure!(ended.code == Some(3) && ended.stderr.contains("--ca-cert"), "{ended:?}");
    Ok(())
}

#[test]
fn plain_http_to_a_tls_port_is_closed_and_harms_nobody() -> Result<()> {
    let (node, pair) = with_tls()?;
    let mut wire = Wire::connect(&node.anybody())?;
    wire.request("GET", "/livez", &[], b"")?;
    let said = wire.until_closed(Duration::from_secs(5))?;
    ensure!(!said.starts_with(b"HTTP"), "{said:?}");
    User::of(&node.anybody())?.must(&["--ca-cert", &pair.certificate.display().to_string(), "node"])?;
    Ok(())
}

#[test]
fn a_handshake_that_never_comes_is_not_waited_for() -> Result<()> {
    let pair = Pair::new()?;
    let node = options(&pair.certificate, &pair.key).set("header-timeout", "1s").start()?;
    Wire::connect(&node.anybody())?.until_closed(Duration::from_secs(8))?;
    Ok(())
}

#[test]
fn a_key_of_another_certificate_is_refused_at_start() -> Result<()> {
    let pair = Pair::new()?;
    let error = options(&pair.certificate, &pair.other_key).start().err().context("it started")?.to_string();
    ensure!(error.contains("`tls_cert` and `tls_key` do not fit together"), "{error}");
    Ok(())
}

#[test]
fn a_certificate_that_is_not_there_is_named_at_start() -> Result<()> {
    let pair = Pair::new()?;
    let error = options("absent.pem".as_ref(), &pair.key).start().err().context("it started")?.to_string();
    ensure!(error.contains("`absent.pem`"), "{error}");
    Ok(())
}

#[test]
fn a_certificate_without_a_key_is_refused_at_start() -> Result<()> {
    let pair = Pair::new()?;
    let options = Options::default().dev().set("tls-cert", pair.certificate.display());
    let error = options.start().err().context("it started")?.to_string();
    ensure!(error.contains("give both or neither"), "{error}");
    Ok(())
}

//! A real browser, for what only a browser can prove: which requests a page of another origin can make it send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// How long a page may take: the browser's first start on a busy machine is most of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A site of the test's own. `/page` is its page, which tells the test by posting to `/report`; whatever else the browser
/// asks for goes to the node as it is, byte for byte. That is what the browser's requests to a name look like to the node
/// when the name is first the site's and then, because its owner says so, the node's.
pub struct Site {
    port: u16,
    reports: Receiver<String>,
}

impl Site {
    /// Serves a page that runs `script`, which has `report(text)` to call once.
    pub fn serve(script: &str, node_url: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (sender, reports) = channel();
        let (_, node) = node_url.split_once("://").context("no address")?;
        let (node, page) = (node.to_owned(), page(script));
        // Ends with the test's process: it holds nothing that anybody waits for.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (node, page, sender) = (node.clone(), page.clone(), sender.clone());
                std::thread::spawn(move || serve(stream, &node, &page, &sender).ok());
            }
        });
        Ok(Self { port, reports })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Opens the page in a browser under this name, which leads to this machine, and gives what the page reports.
    pub fn open_as(&self, name: &str) -> Result<String> {
        let _browser = Browser::open(&format!("http://{name}:{}/page", self.port), name)?;
        self.reports.recv_timeout(PATIENCE).context("the page has not reported")
    }
}

fn page(script: &str) -> String {
    format!(
        "<!doctype html><title>page</title><body><script>\n\
         const report = text => fetch('/report', {{ method: 'POST', body: text }});\n\
         (async () => {{ {script} }})().catch(error => report('the page failed: ' + error));\n</script>"
    )
}

fn serve(stream: TcpStream, node: &str, page: &str, reports: &Sender<String>) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            bail!("half a request");
        }
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:").map(str::to_owned));
    let mut body = vec![0; length.map_or(Ok(0), |length| length.trim().parse())?];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let answer = match path {
        "/page" => own("text/html", page),
        "/report" => {
            reports.send(String::from_utf8_lossy(&body).into_owned())?;
            own("text/plain", "thanks")
        }
        _ => {
            let mut onwards = TcpStream::connect(node)?;
            let head = head.replace("Connection: keep-alive", "Connection: close");
            onwards.write_all(&[head.as_bytes(), &body].concat())?;
            let mut answer = Vec::new();
            onwards.read_to_end(&mut answer)?;
            answer
        }
    };
    Ok((&stream).write_all(&answer)?)
}

fn own(kind: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}")
        .into_bytes()
}

/// A browser without a window. Dropping it ends it.
struct Browser {
    process: Child,
    _profile: TempDir,
}

impl Browser {
    fn open(url: &str, name: &str) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let process = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--host-resolver-rules=MAP {name} 127.0.0.1"))
            .args(["--remote-debugging-port=0", url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("chromium could not be started: `scripts/setup.sh test` installs it")?;
        Ok(Self { process, _profile: profile })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

//! Where a node would run: its data directory, its port, its pool.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use rustix::fs::{Access, access};

use super::Finding;
use crate::cli::Client;
use crate::config::Settings;
use crate::data_dir::FORMAT;
use crate::sandbox::Sandbox;

pub fn look(settings: &Settings) -> Vec<Finding> {
    vec![pool(settings), data_dir(&settings.data_dir), port(settings.listen, settings.has_tls())]
}

fn pool(settings: &Settings) -> Finding {
    match Sandbox::new(settings.sandbox()) {
        Ok(_) => Finding::ok("pool", format!("{} instances can be reserved", settings.max_instances)),
        Err(error) => Finding::problem("pool", format!("{error:#}")),
    }
}

fn data_dir(path: &Path) -> Finding {
    let shown = path.display();
    if !path.exists() {
        let parent = path.ancestors().skip(1).find(|parent| parent.as_os_str().is_empty() || parent.exists());
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return match access(parent, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Finding::ok("data directory", format!("`{shown}` does not exist yet and will be created")),
            Err(_) => Finding::problem("data directory", format!("`{shown}` does not exist and cannot be created"))
                .remedy("name another with `--data-dir`, or make it as a user who may"),
        };
    }
    if !path.is_dir() {
        return Finding::problem("data directory", format!("`{shown}` is not a folder"))
            .remedy("name another with `--data-dir`");
    }
    if access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding::problem("data directory", format!("`{shown}` is not writable for this user"))
            .remedy("run the node as the folder's owner");
    }
    let format = match fs::read_to_string(path.join("format")) {
        Ok(format) => format.trim().chars().take(20).collect(),
        Err(_) if path.join("meta.redb").exists() => "unknown".to_owned(),
        Err(_) => return Finding::ok("data directory", format!("`{shown}` holds no node's data yet")),
    };
    if format != FORMAT.to_string() {
        return Finding::problem(
            "data directory",
            format!("`{shown}` has format {format:?}; this version reads {FORMAT}"),
        )
        .remedy("use the version of weft that wrote it, or restore a backup into a new directory");
    }
    if is_locked(path) {
        return Finding::note(
            "data directory",
            format!("`{shown}` has format {format} and is in use by a running node"),
        );
    }
    Finding::ok("data directory", format!("`{shown}` has format {format} and is not in use"))
}

fn is_locked(path: &Path) -> bool {
    let lock = File::options().append(true).open(path.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

fn port(listen: SocketAddr, tls: bool) -> Finding {
    let error = match TcpListener::bind(listen) {
        Ok(_) => return Finding::ok("port", format!("{listen} is free")),
        Err(error) => error,
    };
    if error.kind() != ErrorKind::AddrInUse {
        return Finding::problem("port", format!("cannot listen on {listen}: {error}"))
            .remedy("name another address with `--listen`");
    }
    let host = if listen.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
    let url = format!("{}://{}", if tls { "https" } else { "http" }, SocketAddr::new(host, listen.port()));
    match Client::new(&url, None, None) {
        Ok(client) if client.is_alive() => Finding::note("port", format!("a node already answers at {url}")),
        _ => Finding::problem("port", format!("another program listens on {listen}"))
            .remedy("stop it, or name another address with `--listen`"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use crate::data_dir::DataDir;

    #[test]
    fn a_data_directory_is_seen_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        assert_eq!(data_dir(&path).state, State::Ok);
        let owner = DataDir::open(&path).unwrap();
        assert_eq!(data_dir(&path).state, State::Note);
        drop(owner);
        assert_eq!(data_dir(&path).state, State::Ok);
        fs::write(path.join("format"), "99\n").unwrap();
        assert_eq!(data_dir(&path).state, State::Problem);
    }

    #[test]
    fn a_port_that_is_taken_by_no_node_is_a_problem() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || drop(listener.accept()));
        assert_eq!(port(address, false).state, State::Problem);
    }
}

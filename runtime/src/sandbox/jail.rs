//! What the compiler's process may ask of the system: to read what it was given, to write what it made, and for memory.
//!
//! It reads bytes that a tenant chose, as the node's user. Were it ever made to do what they say, it should find no files,
//! no network, no other processes and no more privileges.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// System calls that neither name anything outside the process nor reach beyond it.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// From here on this thread, and whatever it would start, is refused everything else. There is no way back.
pub fn enter() -> io::Result<()> {
    let rules: BTreeMap<_, _> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind::PermissionDenied;
    use std::net::TcpStream;
    use std::process::Command;

    use super::*;
    use crate::sandbox::precompile;

    /// A filter is one thread's, so the rest of the tests is not affected.
    #[test]
    fn a_jailed_thread_compiles_and_can_do_nothing_else() {
        // A component of one module, of one function that answers 7.
        let component = b"\0asm\x0d\0\x01\0\x01\x22\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\
            \x03\x02\x01\0\x07\x05\x01\x01f\0\0\x0a\x06\x01\x04\0\x41\x07\x0b";
        let jailed = std::thread::spawn(move || {
            File::open("/proc/self/status").unwrap();
            enter().unwrap();
            let denied = |what: &str, error: Option<io::Error>| {
                assert_eq!(error.map(|error| error.kind()), Some(PermissionDenied), "{what}");
            };
            denied("reading a file", File::open("/proc/self/status").err());
            denied("writing a file", File::create("/tmp/from-the-jail").err());
            denied("removing a file", std::fs::remove_file("/tmp/from-the-jail").err());
            denied("the network", TcpStream::connect(("127.0.0.1", 9)).err());
            denied("another program", Command::new("/bin/true").spawn().err());
            denied("another thread", std::thread::Builder::new().spawn(|| {}).err());
            let init = rustix::process::Pid::INIT;
            denied("a signal", rustix::process::test_kill_process(init).err().map(io::Error::from));
            precompile(component).unwrap()
        });
        assert!(!jailed.join().unwrap().is_empty());
    }
}

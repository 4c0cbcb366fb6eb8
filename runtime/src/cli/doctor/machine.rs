//! The processor, the memory and the kernel.

use std::fs;
use std::str::FromStr;

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::cli::output::bytes;
use crate::config::Settings;
use crate::sandbox::swap_is_off;

/// The first kernel with the ioctl that finds the pages a guest has written.
const PAGE_SCAN_KERNEL: (u32, u32) = (6, 7);
/// Mappings that one instance may need: memories, tables and a stack, each with its guards.
const MAPS_PER_INSTANCE: u64 = 16;
/// Open files beside connections: the database, blobs, the compiler's pipes.
const OTHER_FILES: u64 = 256;

pub fn look(settings: &Settings) -> Vec<Finding> {
    vec![
        processor(),
        memory(settings),
        swap(),
        kernel(),
        mappings(settings),
        overcommit(),
        address_space(),
        open_files(settings),
    ]
}

/// A number or a word in a file of `/proc` or `/sys`.
fn read<T: FromStr>(path: &str) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    Finding::ok("cpu", format!("{cores} cores, {name}, {}", vectors()))
}

#[cfg(target_arch = "x86_64")]
fn vectors() -> String {
    let found = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    let names: Vec<&str> = found.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    if names.is_empty() { "sse2 only".to_owned() } else { names.join(" ") }
}

#[cfg(target_arch = "aarch64")]
fn vectors() -> String {
    if std::arch::is_aarch64_feature_detected!("sve") { "neon sve" } else { "neon" }.to_owned()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn vectors() -> String {
    "no known vector instructions".to_owned()
}

fn memory(settings: &Settings) -> Finding {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit);
    let (total, free) = (info.totalram as u64 * unit, (info.freeram + info.bufferram) as u64 * unit);
    let (wanted, group) = (settings.memory(), read::<u64>("/sys/fs/cgroup/memory.max"));
    let detail = format!("{}, {} of it free; guests may have {}", bytes(total), bytes(free), bytes(wanted));
    match group.filter(|limit| *limit < total) {
        Some(limit) if limit < wanted => {
            Finding::problem("memory", format!("{detail}, but this container only {}", bytes(limit)))
                .remedy(format!("set `max_memory` to about {}", bytes(limit / 4 * 3)))
        }
        None if wanted > total => {
            Finding::problem("memory", detail).remedy("set `max_memory` to less than the machine has")
        }
        _ => Finding::ok("memory", detail),
    }
}

fn swap() -> Finding {
    if swap_is_off() {
        return Finding::ok("swap", "off");
    }
    let detail = "on: instances are cleared in full, because a page that was swapped out would be missed by a scan";
    Finding::note("swap", detail).remedy("`swapoff -a` makes resetting an instance faster")
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    match version(&release) {
        Some(version) if version >= PAGE_SCAN_KERNEL => Finding::ok("kernel", release),
        Some(_) => {
            let (major, minor) = PAGE_SCAN_KERNEL;
            let detail = format!("{release}: instances are cleared in full, without a scan for written pages");
            Finding::note("kernel", detail)
                .remedy(format!("Linux {major}.{minor} or later makes resetting an instance faster"))
        }
        None => Finding::note("kernel", format!("`{release}` is not a version of Linux that is known")),
    }
}

/// The first two numbers of `6.18.44-generic` or `rustc 1.95.0 (…)`.
pub fn version(text: &str) -> Option<(u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn mappings(settings: &Settings) -> Finding {
    let needed = u64::from(settings.max_instances) * MAPS_PER_INSTANCE;
    match read::<u64>("/proc/sys/vm/max_map_count") {
        Some(limit) if limit < needed => {
            let detail = format!("vm.max_map_count is {limit}; {} instances may need {needed}", settings.max_instances);
            Finding::note("mappings", detail)
                .remedy(format!("`sysctl -w vm.max_map_count={needed}`, or lower `max_instances`"))
        }
        Some(limit) => Finding::ok("mappings", format!("vm.max_map_count is {limit}")),
        None => Finding::note("mappings", "vm.max_map_count cannot be read"),
    }
}

fn overcommit() -> Finding {
    match read::<u32>("/proc/sys/vm/overcommit_memory") {
        Some(2) => {
            let detail = "vm.overcommit_memory is 2: address space counts as memory, and the pool reserves terabytes";
            Finding::problem("overcommit", detail).remedy("`sysctl -w vm.overcommit_memory=0`")
        }
        Some(mode) => Finding::ok("overcommit", format!("vm.overcommit_memory is {mode}")),
        None => Finding::note("overcommit", "vm.overcommit_memory cannot be read"),
    }
}

fn address_space() -> Finding {
    match getrlimit(Resource::As).current {
        None => Finding::ok("address space", "unlimited"),
        Some(limit) => Finding::note("address space", format!("limited to {}", bytes(limit)))
            .remedy("`ulimit -v unlimited`, or LimitAS=infinity in the unit; the pool may not fit otherwise"),
    }
}

fn open_files(settings: &Settings) -> Finding {
    let needed = u64::from(settings.max_connections) + OTHER_FILES;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            let detail = format!("limited to {limit}; {} connections may need {needed}", settings.max_connections);
            Finding::note("open files", detail).remedy(format!(
                "`ulimit -n {needed}`, or LimitNOFILE={needed} in the unit, or lower `max_connections`"
            ))
        }
        Some(limit) => Finding::ok("open files", format!("limited to {limit}")),
        None => Finding::ok("open files", "unlimited"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_text() {
        assert_eq!(version("6.18.44-generic"), Some((6, 18)));
        assert_eq!(version("rustc 1.95.0 (abc 2026-01-01)"), Some((1, 95)));
        assert_eq!(version("unknown"), None);
    }
}

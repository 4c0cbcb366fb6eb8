//! The host's memory, which the cores compute in and others need too.

use std::path::{Path, PathBuf};

/// Counts the host's memory for everybody who uses it, not only for leases.
pub trait HostMemory: Send + Sync {
    /// Sets bytes aside for a lease, if they are free.
    fn take(&self, bytes: usize) -> bool;

    fn give_back(&self, bytes: usize);

    /// What leases could take now.
    fn free(&self) -> usize;

    /// What leases could ever take.
    fn limit(&self) -> usize;
}

/// Bytes of memory that this process may use: the machine's, or less if one of its control groups says so.
pub fn host_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = u64::from(info.mem_unit).saturating_mul(info.totalram);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |limit| limit.min(machine))
}

/// The lowest limit on memory of the control groups in `/proc/self/cgroup`, and of those that they are in. Within a
/// container, a group may be named as the host sees it and mounted as the root: groups that are not there are passed over.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let group = group.trim_start_matches('/');
        match controllers {
            // The second version has one hierarchy, of no name.
            "" => files_up(root, group, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                files_up(&root.join("memory"), group, "memory.limit_in_bytes")
            }
            _ => Vec::new(),
        }
    });
    // What is not limited is called `max`, or is a number beyond all machines.
    limits.filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

/// The file of a group and of all groups above it, up to the root.
fn files_up(root: &Path, group: &str, file: &str) -> Vec<PathBuf> {
    Path::new(group).ancestors().map(|group| root.join(group).join(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = std::env::temp_dir().join(format!("weft-groups-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("memory.max", "9000\n");
        write("a/memory.max", "500\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "700\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_limit("0::/a/b\n", &root), Some(500));
        assert_eq!(group_limit("0::/\n", &root), Some(9_000));
        // Named as the host sees it, and mounted as the root.
        assert_eq!(group_limit("0::/machine/x\n", &root), Some(9_000));
        assert_eq!(group_limit("4:cpu,cpuacct:/c\n3:memory:/c\n", &root), Some(700));
        assert_eq!(group_limit("", &root), None);
        assert!(host_memory() > 0);
        std::fs::remove_dir_all(root).unwrap();
    }
}

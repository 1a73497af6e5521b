//! Mounts, as `/proc/PID/mountinfo` tells (proc_pid_mountinfo(5)).

/// Type and source of the mounts by which a node shows the files of all (`osmos mount`): how root's
/// are called, and how those that the system's helper has made for a user.
const OF_ALL_NODES: [[&str; 2]; 2] = [["fuse", "osmos"], ["fuse.osmos", "osmos"]];

/// Whether the device `(major, minor)` is one that shows the files of all nodes.
pub fn is_of_all_nodes(mounts: &str, (major, minor): (u32, u32)) -> bool {
    let number = format!("{major}:{minor}");
    mounts.lines().any(|line| {
        // The third field is the device; behind the dash are type and source.
        let Some((mount, of)) = line.split_once(" - ") else { return false };
        let is_one = OF_ALL_NODES.iter().any(|one| of.split(' ').take(2).eq(one.iter().copied()));
        mount.split(' ').nth(2) == Some(&number) && is_one
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_mount_of_all_nodes_is_known_by_its_device_and_type() {
        let mounts = "29 1 0:27 / /home/a/x rw - fuse.sshfs b rw\n\
                      30 1 0:28 / /home/a/mfs rw,nosuid shared:1 - fuse.osmos osmos rw\n\
                      31 1 0:29 / /mfs rw,nosuid - fuse osmos rw\n31 1 0:30 / /x rw - fuse y rw\n";
        assert!(is_of_all_nodes(mounts, (0, 28)) && is_of_all_nodes(mounts, (0, 29)));
        assert!(!is_of_all_nodes(mounts, (0, 27)) && !is_of_all_nodes(mounts, (0, 30)));
        assert!(!is_of_all_nodes("nonsense", (0, 28)));
    }
}

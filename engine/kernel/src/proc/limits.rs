//! What a process may have, as `/proc/PID/limits` tells (proc(5)): of one that runs and is not ours
//! to ask.

use crate::{KernelError, Result};

/// Bytes; u64::MAX is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Soft and hard limit (RLIMIT_STACK).
    pub stack: (u64, u64),
    /// Soft limit (RLIMIT_AS).
    pub address_space: u64,
    /// Soft limit (RLIMIT_DATA).
    pub data: u64,
    /// Soft limit (RLIMIT_FSIZE).
    pub file_size: u64,
}

pub fn read(pid: i32) -> Result<Limits> {
    let path = format!("/proc/{pid}/limits");
    let text = std::fs::read_to_string(&path)
        .map_err(|source| super::failed(format!("read {path}"), source))?;
    parse(&text).ok_or_else(|| KernelError::errno(format!("parse {path}"), libc::EINVAL))
}

fn parse(text: &str) -> Option<Limits> {
    Some(Limits {
        stack: limit(text, "Max stack size ")?,
        address_space: limit(text, "Max address space ")?.0,
        data: limit(text, "Max data size ")?.0,
        file_size: limit(text, "Max file size ")?.0,
    })
}

fn limit(text: &str, name: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    Some((next()?, next()?))
}

#[cfg(test)]
mod test {
    use super::*;
    use nix::sys::resource::{Resource, getrlimit};

    #[test]
    fn own_limits_are_those_that_the_kernel_tells_us() {
        let limits = read(std::process::id() as i32).unwrap();
        assert_eq!(limits.stack, getrlimit(Resource::RLIMIT_STACK).unwrap());
        assert_eq!(limits.address_space, getrlimit(Resource::RLIMIT_AS).unwrap().0);
        assert_eq!(limits.data, getrlimit(Resource::RLIMIT_DATA).unwrap().0);
        assert_eq!(limits.file_size, getrlimit(Resource::RLIMIT_FSIZE).unwrap().0);
    }

    #[test]
    fn what_is_not_told_is_not_guessed() {
        assert_eq!(
            parse("Max stack size            8388608              unlimited   bytes\n"),
            None
        );
        let line = "Max stack size            lots                 unlimited            bytes\n";
        assert_eq!(limit(line, "Max stack size "), None);
    }
}

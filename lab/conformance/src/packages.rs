//! Servers and runtimes from packages, each with a script that starts it, has it work and judges
//! what came of it, for the most part by means of its own.

use crate::subject::Subject;

/// What all scripts begin with.
const COMMON: &str = include_str!("packages/common.sh");
const SCRIPTS: [(&str, &str); 8] = [
    ("go", include_str!("packages/go.sh")),
    ("javac", include_str!("packages/javac.sh")),
    ("nginx", include_str!("packages/nginx.sh")),
    ("openmpi", include_str!("packages/openmpi.sh")),
    ("postgresql", include_str!("packages/postgresql.sh")),
    ("python", include_str!("packages/python.sh")),
    ("redis", include_str!("packages/redis.sh")),
    ("sqlite", include_str!("packages/sqlite.sh")),
];

pub fn subjects() -> Vec<Subject> {
    let subject = |(name, script): &(&str, &str)| {
        let text = format!("{COMMON}\n{script}");
        super::outside::outside(name, ["/bin/sh", "-c", &text, name].map(String::from).to_vec())
    };
    SCRIPTS.iter().map(subject).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use std::process::Command;

    #[test]
    fn scripts_are_such_that_a_shell_can_read_them() {
        for subject in subjects() {
            let [shell, option, text, name] = &subject.command[..] else { panic!() };
            let read = Command::new(shell).args(["-n", option, text, name]).output().unwrap();
            assert!(read.status.success(), "{name}: {}", String::from_utf8_lossy(&read.stderr));
        }
    }
}

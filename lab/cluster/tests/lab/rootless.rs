//! Without root there is a lab, too: with less, and it says with how much less.

use crate::machine::{self, PROGRAM, World};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

const NOBODY: u32 = 65_534;

/// Runs the lab program as an ordinary user whose runtime directory is `dir`.
fn as_nobody(program: &str, dir: &str, words: &[&str]) -> Output {
    Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(program)
        .args(words)
        .env("XDG_RUNTIME_DIR", dir)
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .output()
        .expect("setpriv (util-linux) runs")
}

#[test]
fn an_ordinary_user_has_a_lab_without_limits_and_is_told() {
    machine::alone("rootless::an_ordinary_user_has_a_lab_without_limits_and_is_told", || {
        let tried = as_nobody("unshare", "/run", &["--user", "true"]);
        if !tried.status.success() {
            let why = String::from_utf8_lossy(&tried.stderr);
            return needs::skip(&format!("it needs user namespaces for all: {}", why.trim()));
        }
        // The program may lie where only root can go.
        let dir = tempfile::tempdir_in("/run").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let program = dir.path().join("osmos-lab-program");
        std::fs::copy(PROGRAM, &program).unwrap();
        let (program, dir) = (program.to_str().unwrap(), dir.path().to_str().unwrap());
        let before = World::look();

        let up = as_nobody(program, dir, &["up", "--bare", "--nodes", "2", "--link", "1gbit"]);
        let told = String::from_utf8_lossy(&up.stderr);
        assert!(up.status.success(), "{told}");
        assert!(told.contains("no CPU speeds and no memory limits: cgroups need root"), "{told}");
        let exec = |words: &[&str]| {
            let mut line = vec!["exec", "2", "--"];
            line.extend(words);
            as_nobody(program, dir, &line)
        };
        let output = exec(&["sh", "-c", "hostname; echo $$; touch /tmp/mine; exit 6"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout.starts_with(b"node2\n"), "{errors}");
        assert_eq!(output.status.code(), Some(6));
        assert!(!std::path::Path::new("/tmp/mine").exists());
        if needs::has("bash") {
            let reach = exec(&["bash", "-c", "exec 3<> /dev/tcp/node1/1"]);
            assert!(String::from_utf8_lossy(&reach.stderr).contains("Connection refused"));
        } else {
            needs::skip_part("reaching another node by its name", &needs::lack("bash"));
        }

        assert!(as_nobody(program, dir, &["down"]).status.success());
        before.assert_unchanged("down of an ordinary user's lab");
    });
}

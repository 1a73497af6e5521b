//! `osmos lab exec` as it is typed: status, signals, directory, names.

use crate::machine::{self, PROGRAM, lab, lab_ok};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A lab of two bare nodes for the time of a story.
struct Up(String);

impl Up {
    fn new() -> Up {
        let name = machine::name();
        lab_ok(&["up", "--bare", "--nodes", "2", "--name", &name]);
        Up(name)
    }

    fn exec(&self, words: &[&str]) -> std::process::Output {
        let mut line = vec!["exec", "--name", &self.0];
        line.extend(words);
        lab(&line)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        lab(&["down", "--name", &self.0]);
    }
}

#[test]
fn the_status_is_that_of_the_command() {
    machine::alone("typed::the_status_is_that_of_the_command", || {
        let up = Up::new();
        let status = |words: &[&str]| up.exec(words).status.code();
        assert_eq!(status(&["1", "--", "true"]), Some(0));
        assert_eq!(status(&["node2", "--", "sh", "-c", "exit 42"]), Some(42));
        assert_eq!(status(&["1", "sh", "-c", "kill -TERM $$"]), Some(128 + 15));
        assert_eq!(status(&["1", "--", "no-such-program"]), Some(127));
        assert_eq!(status(&["1", "--", "/etc/passwd"]), Some(126));
        assert_eq!(status(&["3", "--", "true"]), Some(125));
        assert_eq!(lab(&["exec", "--name", "nobody", "1", "true"]).status.code(), Some(125));
    });
}

#[test]
fn errors_name_the_lab_and_the_way_out() {
    machine::alone("typed::errors_name_the_lab_and_the_way_out", || {
        let up = Up::new();
        let text = String::from_utf8(up.exec(&["7", "--", "true"]).stderr).unwrap();
        assert!(text.contains("has no node `7`: it has nodes 1 to 2"), "{text}");
        let text =
            String::from_utf8(lab(&["exec", "--name", "nobody", "1", "true"]).stderr).unwrap();
        assert!(text.contains("there is no lab `nobody`: osmos lab up"), "{text}");
    });
}

#[test]
fn a_command_starts_where_it_was_typed_if_the_node_has_that() {
    machine::alone("typed::a_command_starts_where_it_was_typed_if_the_node_has_that", || {
        let up = Up::new();
        let pwd = |dir: &str| {
            let words = ["exec", "--name", &up.0, "1", "--", "/bin/pwd"];
            let output = Command::new(PROGRAM).args(words).current_dir(dir).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(pwd("/usr/lib"), "/usr/lib\n");
        let hidden = tempfile::tempdir_in("/tmp").unwrap();
        assert_eq!(pwd(hidden.path().to_str().unwrap()), "/\n");
    });
}

#[test]
fn a_signal_to_the_outer_half_reaches_the_command() {
    machine::alone("typed::a_signal_to_the_outer_half_reaches_the_command", || {
        let up = Up::new();
        let script = "trap 'echo heard; exit 5' USR1; echo begun; while :; do sleep 0.01; done";
        let mut child = Command::new(PROGRAM)
            .args(["exec", "--name", &up.0, "1", "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "heard");
        assert_eq!(child.wait().unwrap().code(), Some(5));
    });
}

#[test]
fn listings_have_their_published_shape() {
    machine::alone("typed::listings_have_their_published_shape", || {
        let up = Up::new();
        let rows: serde_json::Value = serde_json::from_str(&lab_ok(&["ps", "--json"])).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 2);
        let row = &rows[1];
        assert_eq!(row["lab"], up.0);
        assert_eq!((&row["node"], &row["status"]), (&2.into(), &"up".into()));
        assert_eq!(row["address"], "10.77.0.2");
        assert_eq!(row["processes"], 1);
        assert!(row["cpu_share"].as_f64().unwrap() > 0.0);
        let keys = ["cpu_used_s", "throttled_s", "memory_used_bytes", "keeper_pid"];
        assert!(keys.iter().all(|key| row[*key].is_number()), "{row}");
        assert!(row["daemon_pid"].is_null());
        assert!(lab_ok(&["ps"]).lines().count() == 3);
    });
}

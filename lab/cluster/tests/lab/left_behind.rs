//! Nothing stays after `down`, whatever was killed before.

use crate::machine::{self, PROGRAM, World, lab, lab_ok};
use lab::{Lab, LabName, Spec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};

fn bare(nodes: u32) -> Spec {
    let name: LabName = machine::name().parse().unwrap();
    let mut spec = Spec::new(name, nodes).unwrap();
    spec.osmos = PROGRAM.into();
    spec.has_daemons = false;
    spec.link = Some("1gbit".parse().unwrap());
    spec.memory = Some("256m".parse().unwrap());
    spec
}

fn kill_9(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// A command in node 1 that has begun and goes on until its input, also returned, ends.
fn busy(lab: &Lab) -> (Child, ChildStdin) {
    let script = "setsid sleep 1000 & sleep 1000 & echo begun; cat";
    let mut child = lab
        .node(1)
        .command("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    let input = child.stdin.take().unwrap();
    (child, input)
}

#[test]
fn a_lab_with_running_commands_leaves_nothing() {
    machine::alone("left_behind::a_lab_with_running_commands_leaves_nothing", || {
        let before = World::look();
        let lab = Lab::up(&bare(3)).unwrap();
        assert!(World::look() != before, "the comparison does not see a lab");
        let (mut running, _input) = busy(&lab);
        assert!(lab.node(1).process_count() >= 4);
        lab.down().unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
        before.assert_unchanged("down of a busy lab");
    });
}

/// Who clears away what others left may have looked at a lab that ended, and then there is another
/// one of that name.
#[test]
fn a_lab_is_not_taken_for_the_one_that_had_its_name_before() {
    machine::alone("left_behind::a_lab_is_not_taken_for_the_one_that_had_its_name_before", || {
        let make = |suffix: &str| {
            let mut spec = bare(1);
            spec.name = format!("{}-{suffix}", spec.name).parse().unwrap();
            for round in 0..25 {
                let lab = Lab::up(&spec).unwrap();
                let status = lab.node(1).command("true").status().unwrap();
                assert!(status.success(), "lab {suffix}, round {round}: {status}");
                lab.down().unwrap();
            }
        };
        std::thread::scope(|scope| {
            for suffix in ["a", "b", "c"] {
                scope.spawn(move || make(suffix));
            }
        });
    });
}

#[test]
fn a_dropped_lab_is_down() {
    machine::alone("left_behind::a_dropped_lab_is_down", || {
        let before = World::look();
        drop(Lab::up(&bare(2)).unwrap());
        before.assert_unchanged("drop of a lab");
    });
}

const MAKER: &str = "OSMOS_LAB_TEST_MAKER";
const MADE_AND_KILLED: &str =
    "left_behind::a_lab_ends_with_the_program_that_made_it_and_the_next_clears_it_away";

#[test]
fn a_lab_ends_with_the_program_that_made_it_and_the_next_clears_it_away() {
    machine::alone(MADE_AND_KILLED, || {
        if std::env::var_os(MAKER).is_some() {
            let _lab = Lab::up(&bare(2)).unwrap();
            println!("made");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            return;
        }
        let before = World::look();
        let mut maker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", MADE_AND_KILLED, "--nocapture"])
            .env(MAKER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(maker.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("made")));
        let made = Lab::open(&machine::name().parse().unwrap()).unwrap();
        let (mut running, _input) = busy(&made);
        maker.kill().unwrap();
        maker.wait().unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
        // The command is gone before the switch is.
        while Lab::open(&machine::name().parse().unwrap()).is_ok() {
            std::thread::yield_now();
        }
        let mut other = bare(1);
        other.name = format!("{}b", machine::name()).parse().unwrap();
        Lab::up(&other).unwrap().down().unwrap();
        before.assert_unchanged("the next lab after kill -9 of a maker");
    });
}

#[test]
fn killing_a_node_takes_that_node_only_and_down_the_rest() {
    machine::alone("left_behind::killing_a_node_takes_that_node_only_and_down_the_rest", || {
        let before = World::look();
        let lab = Lab::up(&bare(3)).unwrap();
        let (mut running, _input) = busy(&lab);
        kill_9(lab.node(1).keeper().unwrap().pid);
        assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
        // The command is gone before the keeper is.
        while lab.node(1).keeper().is_ok() {
            std::thread::yield_now();
        }
        let refused = lab.node(1).command("true").output().unwrap();
        assert_eq!(refused.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("node 1 of lab"));
        assert!(lab.node(2).command("true").status().unwrap().success());
        lab.down().unwrap();
        before.assert_unchanged("down after kill -9 of a node's keeper");
    });
}

#[test]
fn killing_the_switch_takes_all_and_down_the_rest() {
    machine::alone("left_behind::killing_the_switch_takes_all_and_down_the_rest", || {
        let before = World::look();
        let lab = Lab::up(&bare(3)).unwrap();
        let (mut running, _input) = busy(&lab);
        let switch = machine::status(lab.node(1).keeper().unwrap().pid)["PPid"].clone();
        kill_9(switch.parse().unwrap());
        assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
        lab.down().unwrap();
        before.assert_unchanged("down after kill -9 of the switch");
    });
}

#[test]
fn killing_the_outer_half_of_a_command_leaves_the_lab_whole() {
    machine::alone("left_behind::killing_the_outer_half_of_a_command_leaves_the_lab_whole", || {
        let before = World::look();
        let lab = Lab::up(&bare(1)).unwrap();
        let (mut running, _input) = busy(&lab);
        running.kill().unwrap();
        assert_eq!(running.wait().unwrap().signal(), Some(9));
        assert!(lab.node(1).command("true").status().unwrap().success());
        lab.down().unwrap();
        before.assert_unchanged("down after kill -9 of lab exec");
    });
}

#[test]
fn a_lab_ends_in_a_container_whose_process_1_waits_for_nobody() {
    const NAME: &str = "left_behind::a_lab_ends_in_a_container_whose_process_1_waits_for_nobody";
    machine::alone_without_reaper(NAME, || {
        let before = World::look();
        let lab = Lab::up(&bare(1)).unwrap();
        // Only the outer half is killed, and nobody is left to wait for the inner ones.
        for (mut running, _input) in [busy(&lab), busy(&lab)] {
            running.kill().unwrap();
            running.wait().unwrap();
        }
        lab.down().unwrap();
        before.assert_unchanged("down where nobody waits for orphans");
    });
}

#[test]
fn a_stopped_command_does_not_hold_the_lab() {
    machine::alone("left_behind::a_stopped_command_does_not_hold_the_lab", || {
        let before = World::look();
        let lab = Lab::up(&bare(1)).unwrap();
        let (mut running, _input) = busy(&lab);
        kill(Pid::from_raw(running.id() as i32), Signal::SIGSTOP).unwrap();
        lab.down().unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
        before.assert_unchanged("down while lab exec is stopped");
    });
}

#[test]
fn a_service_is_a_child_of_its_keeper_and_goes_with_it() {
    machine::alone("left_behind::a_service_is_a_child_of_its_keeper_and_goes_with_it", || {
        let before = World::look();
        let lab = Lab::up(&bare(1)).unwrap();
        let name = machine::name();
        // Streams of its own: a service keeps those that it is given.
        let started = Command::new(PROGRAM)
            .args(["lab-front", &name, "1", "system", "detached", "--", "sleep", "1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(started.unwrap().success());
        let pid = lab.node(1).daemon_pid().unwrap();
        let status = machine::status(pid);
        assert_eq!(status["PPid"], lab.node(1).keeper().unwrap().pid.to_string());
        assert_eq!(status["Name"], "sleep");
        let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(cgroups.contains(&format!("/osmos-lab/{name}/node1/system")), "{cgroups}");
        kill_9(pid);
        while lab.node(1).daemon_pid().is_some() {
            std::thread::yield_now();
        }
        lab.down().unwrap();
        before.assert_unchanged("down after kill -9 of a service");
    });
}

#[test]
fn an_interrupted_up_leaves_what_down_removes() {
    machine::alone("left_behind::an_interrupted_up_leaves_what_down_removes", || {
        let before = World::look();
        let name = machine::name();
        let words = ["up", "--bare", "--nodes", "6", "--name", &name];
        for delay_ms in (0..120).step_by(8) {
            let mut up = Command::new(PROGRAM).args(words).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(delay_ms));
            up.kill().unwrap();
            up.wait().unwrap();
            lab_ok(&["down", "--name", &name]);
            before.assert_unchanged(&format!("down after up was killed at {delay_ms} ms"));
        }
    });
}

#[test]
fn down_removes_the_directory_of_an_up_that_was_killed_before_it_made_its_lab() {
    let name = "down_removes_the_directory_of_an_up_that_was_killed_before_it_made_its_lab";
    machine::alone(&format!("left_behind::{name}"), || {
        let before = World::look();
        std::fs::create_dir("/run/osmos-lab").unwrap();
        lab_ok(&["down", "--name", &machine::name()]);
        before.assert_unchanged("down of a lab that was not made");
    });
}

#[test]
fn an_interrupted_up_can_simply_be_repeated() {
    machine::alone("left_behind::an_interrupted_up_can_simply_be_repeated", || {
        let before = World::look();
        let name = machine::name();
        let mut up = Command::new(PROGRAM)
            .args(["up", "--bare", "--nodes", "40", "--name", &name])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let record = format!("/run/osmos-lab/{name}/lab.json");
        while !std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"pid\"")) {
            std::thread::yield_now();
        }
        up.kill().unwrap();
        up.wait().unwrap();
        lab_ok(&["up", "--bare", "--nodes", "1", "--name", &name]);
        assert_eq!(lab_ok(&["exec", "--name", &name, "1", "--", "echo", "whole"]), "whole\n");
        lab_ok(&["down", "--name", &name]);
        before.assert_unchanged("down after a repeated up");
    });
}

#[test]
fn down_of_no_lab_is_no_error_and_a_second_up_is_one() {
    machine::alone("left_behind::down_of_no_lab_is_no_error_and_a_second_up_is_one", || {
        let before = World::look();
        let name = machine::name();
        lab_ok(&["down", "--name", &name]);
        let words = ["up", "--bare", "--nodes", "1", "--name", &name];
        lab_ok(&words);
        let second = lab(&words);
        assert_eq!(second.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&second.stderr).contains("is up already"));
        lab_ok(&["exec", "--name", &name, "1", "--", "true"]);
        lab_ok(&["down", "--name", &name]);
        lab_ok(&["down", "--name", &name]);
        before.assert_unchanged("down twice");
    });
}

#[test]
fn an_up_that_fails_clears_itself_away() {
    machine::alone("left_behind::an_up_that_fails_clears_itself_away", || {
        let before = World::look();
        let mut spec = bare(2);
        spec.osmos = "/bin/true".into();
        let error = Lab::up(&spec).unwrap_err();
        assert!(format!("{error:#}").contains("/bin/true does not keep labs"), "{error:#}");
        before.assert_unchanged("up with a program that keeps no labs");
    });
}

#[test]
fn commands_racing_with_down_see_a_lab_or_none() {
    machine::alone("left_behind::commands_racing_with_down_see_a_lab_or_none", || {
        let before = World::look();
        let name = machine::name();
        for _ in 0..5 {
            lab_ok(&["up", "--bare", "--nodes", "2", "--name", &name]);
            let mut running: Vec<Child> = (0..6)
                .map(|_| {
                    Command::new(PROGRAM)
                        .args(["exec", "--name", &name, "2", "--", "cat"])
                        .stdin(Stdio::piped())
                        .stderr(Stdio::null())
                        .stdout(Stdio::null())
                        .spawn()
                        .unwrap()
                })
                .collect();
            lab_ok(&["down", "--name", &name]);
            for child in &mut running {
                let status = child.wait().unwrap().code();
                assert!(matches!(status, Some(125 | 137)), "{status:?}");
            }
            before.assert_unchanged("down with commands on their way in");
        }
    });
}

#[test]
fn a_command_gives_and_takes_bytes_until_its_node_goes() {
    machine::alone("left_behind::a_command_gives_and_takes_bytes_until_its_node_goes", || {
        let lab = Lab::up(&bare(1)).unwrap();
        let mut echo = lab
            .node(1)
            .command("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = echo.stdin.take().unwrap();
        input.write_all(b"there and back").unwrap();
        drop(input);
        let mut text = String::new();
        echo.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "there and back");
        assert!(echo.wait().unwrap().success());
    });
}

//! Processes that share memory are in one place, whatever moves them and whatever fails.

use crate::groups_named::AS_USER;
use crate::stage::{Program, Seen, Stage, until, until_true};
use std::time::Duration;

const GROUP: &str = include_str!("group.py");

struct Group {
    program: Program,
    /// The maker first.
    pids: Vec<i32>,
}

impl Group {
    fn start(stage: &Stage, how: &[&str]) -> Group {
        Group::run(stage, how, GROUP)
    }

    fn run(stage: &Stage, how: &[&str], script: &str) -> Group {
        Group::run_as(stage, &[], how, script)
    }

    fn run_as(stage: &Stage, user: &[&str], how: &[&str], script: &str) -> Group {
        let python = ["--", "python3", "-IS", "-c", script];
        let words = [user, &["osmos", "run"], how, &python].concat();
        let program = stage.start(1, &words);
        let kids = program.line();
        let kids = kids.split(' ').map(|kid| kid.parse().expect("a pid"));
        let pids: Vec<i32> = std::iter::once(program.pid).chain(kids).collect();
        until_true("all are managed", || pids.iter().all(|pid| stage.place(*pid).is_some()));
        Group { program, pids }
    }

    fn is_on(&self, stage: &Stage, node: u64) -> bool {
        self.pids.iter().all(|pid| stage.place(*pid) == Some(node))
    }

    /// All get on, and see that the others do.
    fn assert_whole(&mut self) {
        assert_eq!(self.program.ask(""), "all");
    }
}

#[test]
fn a_group_moves_as_one_whoever_of_it_is_moved() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-moves", 3);
    let mut group = Group::start(&stage, &["--home"]);
    for (member, to, node) in
        [(1, "2", 2), (0, "home", 1), (3, "3", 3), (2, "2", 2), (2, "home", 1)]
    {
        stage.migrate(group.pids[member], to);
        until_true("all are there", || group.is_on(&stage, node));
        group.assert_whole();
    }
    stage.await_no_supervisors();
}

/// Several times as much as a node may use: reading it would fill it.
#[test]
fn what_a_group_does_not_use_of_its_memory_takes_none_when_it_moves() {
    if !needs::can_run(&["python3", "setpriv"]) {
        return;
    }
    let Some(stage) = Stage::with_memory("group-sparse", 2, "400m") else { return };
    let script = GROUP.replace("mmap.mmap(-1, SIZE)", "mmap.mmap(-1, SIZE + (2 << 30))");
    assert_ne!(script, GROUP);
    // The kernel lets the supervisors of the administrator's programs alone look for what is used.
    for user in [&[][..], &AS_USER] {
        let mut group = Group::run_as(&stage, user, &["--home"], &script);
        for _ in 0..2 {
            for (to, node) in [("2", 2), ("home", 1)] {
                stage.migrate(group.program.pid, to);
                until_true("all are there", || group.is_on(&stage, node));
                group.assert_whole();
            }
        }
        group.program.close_input();
        assert_eq!(group.program.end(), 0);
        stage.await_no_supervisors();
    }
}

#[test]
fn a_group_that_is_made_away_comes_home_as_one() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-made", 2);
    // It sleeps until it is there.
    let late = format!("import time; time.sleep(1)\n{GROUP}");
    let mut group = Group::run(&stage, &["--node", "2"], &late);
    until_true("all are there", || group.is_on(&stage, 2));
    group.assert_whole();
    stage.migrate(group.pids[2], "home");
    until_true("all are home", || group.is_on(&stage, 1));
    group.assert_whole();
}

#[test]
fn a_group_with_one_that_cannot_leave_stays_and_whoever_asks_is_told_which() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-stays", 2);
    // modify_ldt(2) in the last child: a process with segments of its own does not move.
    let bound = GROUP.replace(
        "        work(me)",
        "        if me == 2:\n            import ctypes\n            ctypes.CDLL(None).syscall(\
         154, 1, ctypes.byref((ctypes.c_uint * 4)(0, 0, 1, 1)), 16)\n        work(me)",
    );
    let mut group = Group::run(&stage, &["--home"], &bound);
    let (moved, bound) = (group.pids[0].to_string(), group.pids[3]);
    let complaint = stage.complaint(1, &["osmos", "migrate", &moved, "2"]);
    assert!(complaint.contains(&format!("process {bound}, which it shares")), "{complaint}");
    let why = stage.text(1, &["osmos", "why", &bound.to_string()]);
    assert!(why.contains("modify_ldt"), "{why}");
    until_true("all rest", || group.is_on(&stage, 1));
    group.assert_whole();
    stage.await_no_supervisors();
}

/// Computes on a node, where it stays.
fn start_busy(stage: &Stage, node: u32) -> Vec<Program> {
    let words = ["osmos", "run", "--home", "--", "sh", "-c", "while :; do :; done"];
    (0..4).map(|_| stage.start(node, &words)).collect()
}

#[test]
fn the_balancing_takes_a_group_as_one_where_it_gets_more_and_on_and_back() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-balanced", 3);
    // Three that compute, beside four that stay.
    let at_home = start_busy(&stage, 1);
    let mut group = Group::start(&stage, &[]);
    until_true("all are where nobody computes", || {
        group.is_on(&stage, 2) || group.is_on(&stage, 3)
    });
    group.assert_whole();
    let (there, other) = if group.is_on(&stage, 2) { (2, 3) } else { (3, 2) };
    let _there = start_busy(&stage, there);
    until_true("all are on the other node", || group.is_on(&stage, other.into()));
    group.assert_whole();
    at_home.iter().for_each(|program| stage.signal(1, program.pid, "KILL"));
    let _other = start_busy(&stage, other);
    until_true("all are home", || group.is_on(&stage, 1));
    group.assert_whole();
    stage.await_no_supervisors();
}

#[test]
fn a_group_that_gets_no_more_elsewhere_stays_and_says_who_is_bound_to_whom() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-alone", 2);
    // One of it alone would be better off beside it, where nobody computes.
    let mut group = Group::start(&stage, &[]);
    // Whoever asks on node 1 computes there, and is a reason for the whole group to leave.
    let pids = group.pids.clone();
    let why = || pids.iter().map(|pid| stage.text(2, &["osmos", "why", &format!("1:{pid}")]));
    let bound = "such memory binds 4 processes together: ";
    let text = until("one is refused", || why().find(|text| text.contains(bound)));
    let (_, named) = text.split_once(bound).expect("their numbers");
    group.pids.iter().for_each(|pid| assert!(named.contains(&pid.to_string()), "{pid}: {text}"));
    let first = group.pids.iter().min().expect("a member");
    let goes_along = format!("it goes with process {first}, which it shares memory with");
    until_true("the others are told", || {
        why().filter(|why| why.contains(&goes_along)).count() == 3
    });
    group.assert_whole();
    assert!(group.is_on(&stage, 1));
}

#[test]
fn a_member_that_begins_another_program_is_balanced_alone() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-parts", 2);
    let another = "signal.signal(signal.SIGUSR1, lambda *_: os.execvp('sh', ['sh', '-c', 'while \
                   :; do :; done']))\nkids = []";
    let group = Group::run(&stage, &[], &GROUP.replace("kids = []", another));
    let (first, leaver) = (group.pids[0], group.pids[3]);
    let goes_along = format!("it goes with process {first}, which it shares memory with");
    until_true("it is known to be of the group", || {
        stage.text(1, &["osmos", "why", &leaver.to_string()]).contains(&goes_along)
    });
    stage.signal(1, leaver, "USR1");
    until_true("it is elsewhere than the others", || {
        let others = stage.place(first);
        let rest = group.pids[..3].iter().all(|pid| stage.place(*pid) == others);
        rest && others.is_some() && stage.place(leaver).is_some_and(|at| Some(at) != others)
    });
}

/// What is killed while a group moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The supervisor of all bodies.
    Body,
    /// That of one member at home, which may die of it.
    Deputy,
}

impl Fault {
    /// Returns whom it has killed.
    fn happen(self, stage: &Stage, group: &Group) -> Vec<i32> {
        let victims = match self {
            Fault::Body => stage.supervisors(2, "body"),
            Fault::Deputy => stage.deputy_supervisor(group.pids[2]).into_iter().collect(),
        };
        victims.iter().for_each(Seen::try_kill);
        victims.iter().map(|victim| victim.pid).collect()
    }

    fn may_happen(self, stage: &Stage, group: &Group) -> bool {
        let has_begun = match self {
            Fault::Body => !stage.supervisors(2, "body").is_empty(),
            Fault::Deputy => stage.deputy_supervisor(group.pids[2]).is_some(),
        };
        has_begun || group.is_on(stage, 2)
    }
}

#[test]
fn a_group_is_in_one_place_whatever_is_killed_while_it_moves() {
    if !needs::can_run(&["python3"]) {
        return;
    }
    let stage = Stage::new("group-faults", 2);
    let has_ended = |pid: &i32| stage.process(1, *pid).is_none_or(|process| process.is_zombie());
    for round in 0..10 {
        let fault = if round % 2 == 0 { Fault::Body } else { Fault::Deputy };
        let mut group = Group::start(&stage, &["--home"]);
        let moving = stage.begin(1, &["osmos", "migrate", &group.pids[0].to_string(), "2"]);
        until_true("it is under way", || fault.may_happen(&stage, &group));
        // Anywhere between there and the end.
        std::thread::sleep(Duration::from_millis(round * 25));
        let victims = fault.happen(&stage, &group);
        moving.wait_with_output().expect("it ends");
        if fault == Fault::Body {
            // It was away, with all others; or is home with nothing of ours; or came to a berth
            // that was granted later.
            let is_plain = || group.is_on(&stage, 1) && stage.supervisors(1, "deputy").is_empty();
            let lives = || {
                let body = stage.body(2, group.pids[0]);
                body.is_some_and(|(_, supervisor)| !victims.contains(&supervisor.pid))
            };
            let is_away = || group.is_on(&stage, 2) && lives();
            until_true("it has settled", || has_ended(&group.pids[0]) || is_plain() || is_away());
            if has_ended(&group.pids[0]) {
                until_true("all have ended", || group.pids.iter().all(has_ended));
                continue;
            }
        }
        let killed = group.pids[2];
        let is_together = |group: &Group| group.is_on(&stage, 1) || group.is_on(&stage, 2);
        until_true("it has settled", || is_together(&group) || has_ended(&killed));
        if has_ended(&killed) {
            assert_eq!(group.program.ask(&format!("without {killed}")), "gone", "{round}");
            group.pids.remove(2);
        }
        until_true("all are in one place", || is_together(&group));
        group.assert_whole();
    }
}

//! Moves that something breaks at a moment that nobody has chosen, while memory is copied ahead, in
//! the freeze, or just behind it: the program goes on at the source or at the target, in one of
//! them and with its memory as it was, unless what was killed is what it had come to live on.

use crate::stage::{Program, REWRITING, Stage, until, until_true};
use lab::Disturbance;
use std::time::{Duration, Instant};

/// What breaks a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The supervisors of bodies on the node that it goes to are killed.
    Target,
    /// Those on the node that it comes from.
    Source,
    /// The supervisor at home.
    Home,
    /// Nodes up to this number and the others do not reach each other for a while.
    Cut(u32),
    /// The command that has asked for the move.
    Command,
}

const FAULTS: [Fault; 6] =
    [Fault::Target, Fault::Source, Fault::Home, Fault::Cut(1), Fault::Cut(2), Fault::Command];

/// A move takes so long at most when nothing else runs; most faults meet it on its way.
const MOVE_MS: u64 = 800;
/// Longer than anybody stands frozen for a network, shorter than anything is given up for lost.
const CUT: Duration = Duration::from_secs(3);

/// The same numbers for the same seed (xorshift64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn start(stage: &Stage) -> Program {
    let words = ["osmos", "run", "--home", "--", "python3", "-IS", "-c", REWRITING];
    let program = stage.start(1, &words);
    assert_eq!(program.line(), "ready");
    program
}

/// Begins a move, breaks it, and waits until both are over.
fn break_move(stage: &Stage, pid: i32, (from, to): (u32, u32), fault: Fault, after: Duration) {
    let name = if to == 1 { "home".to_string() } else { to.to_string() };
    let begun = Instant::now();
    let mut mover = stage.begin(1, &["osmos", "migrate", &pid.to_string(), &name]);
    // Nothing else tells where it has got to, and nothing else is to: any moment will do.
    std::thread::sleep(after.saturating_sub(begun.elapsed()));
    match fault {
        Fault::Target => stage.supervisors(to, "body").iter().for_each(|one| one.try_kill()),
        Fault::Source => stage.supervisors(from, "body").iter().for_each(|one| one.try_kill()),
        Fault::Home => stage.deputy_supervisor(pid).iter().for_each(|one| one.try_kill()),
        Fault::Cut(cut_after) => {
            stage.disturb(&Disturbance { cut_after: Some(cut_after), ..Disturbance::default() });
            std::thread::sleep(CUT);
            stage.disturb(&Disturbance::default());
        }
        Fault::Command => mover.kill().expect("our child"),
    }
    until_true("the command ends", || mover.try_wait().expect("our child").is_some());
}

/// Whether the process may be lost for such a fault.
fn may_be_lost(stage: &Stage, pid: i32, to: u32, fault: Fault) -> bool {
    match fault {
        Fault::Cut(_) | Fault::Command => false,
        Fault::Source | Fault::Home => true,
        // Only if it had arrived.
        Fault::Target => {
            let lost = until("the loss is told", || stage.events(1, "lost", pid).pop());
            lost["node"] == to
        }
    }
}

/// It lives in one place, once whatever was broken off has been cleared away.
fn assert_in_one_place(stage: &Stage, pid: i32, what: &str) {
    until_true(&format!("it is in one place ({what})"), || {
        let Some(place) = stage.place(pid) else { return false };
        let bodies: Vec<u64> = [2, 3]
            .into_iter()
            .filter(|node| stage.body(*node, pid).is_some())
            .map(u64::from)
            .collect();
        let expected = if place == 1 { vec![] } else { vec![place] };
        bodies == expected
    });
}

fn break_moves(name: &str, seed: u64, count: u32) {
    let stage = Stage::new(name, 3);
    let mut draw = Draw(seed);
    let mut program = start(&stage);
    let (mut at, mut lost, mut moved) = (1, 0, 0);
    for number in 0..count {
        let nodes: Vec<u32> = (1..=3).filter(|node| *node != at).collect();
        let (to, fault) = (draw.one_of(&nodes), draw.one_of(&FAULTS));
        let after = Duration::from_millis(draw.below(MOVE_MS));
        let what = format!("move {number} of seed {seed}: {at} to {to}, {fault:?} after {after:?}");
        let pid = program.pid;
        break_move(&stage, pid, (at, to), fault, after);
        match program.ask_or_end("and now?") {
            Some(answer) => {
                assert!(answer.starts_with("True "), "{what}: {answer}");
                assert_in_one_place(&stage, pid, &what);
                let place = stage.place(pid).expect("it is managed") as u32;
                moved += u32::from(place == to);
                at = place;
            }
            None => {
                assert_eq!(program.end(), 128 + 9, "{what}");
                assert!(may_be_lost(&stage, pid, to, fault), "{what}");
                lost += 1;
                (program, at) = (start(&stage), 1);
            }
        }
    }
    let again = |stage: &Stage| stage.place(program.pid) == Some(1);
    until_true("it comes home", || again(&stage) || stage.try_migrate(program.pid, "home"));
    assert!(program.ask("at home?").starts_with("True "));
    program.close_input();
    assert_eq!(program.end(), 0);
    stage.await_no_supervisors();
    let stayed = count - moved - lost;
    println!("{count} moves broken (seed {seed}): {moved} moved, {stayed} stayed, {lost} lost");
}

#[test]
fn a_move_that_breaks_leaves_the_program_whole_at_one_end() {
    if needs::can_run(&["python3"]) {
        break_moves("broken", 88_172_645_463_325_252, 15);
    }
}

/// Three hundred more in six parts, each of some minutes.
macro_rules! parts {
    ($($part:ident $seed:literal,)*) => {$(
        #[test]
        #[ignore = "the same, fifty times: by hand"]
        fn $part() {
            if needs::can_run(&["python3"]) {
                break_moves(concat!("broken-", $seed), 6_364_136_223_846_793_005 ^ $seed, 50);
            }
        }
    )*};
}

parts! {
    fifty_moves_that_break_one 1,
    fifty_moves_that_break_two 2,
    fifty_moves_that_break_three 3,
    fifty_moves_that_break_four 4,
    fifty_moves_that_break_five 5,
    fifty_moves_that_break_six 6,
}

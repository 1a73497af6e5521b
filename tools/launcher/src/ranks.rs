//! What has become of each rank of a job, and what becomes of the job. Pure.

use client::signals::signal_name;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::ops::Range;
use wire::ids::NodeId;
use wire::jobs::Rank;

/// What a shell makes of a process that a signal has ended, besides the signal's number.
pub const BY_SIGNAL: u8 = 128;
/// Of a job of which Osmos has lost something, or that could not begin.
pub const LOST: u8 = 125;
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Running {
        pid: i32,
    },
    Ended {
        pid: i32,
        status: i32,
    },
    /// By the number of an error.
    NotStarted {
        errno: i32,
    },
    /// With its node.
    Lost,
}

/// All ranks of a job, by the nodes where they begin.
pub struct Ranks {
    states: Vec<State>,
    /// Those that have not ended.
    running: u32,
    /// Those that have not ended well.
    failed: u32,
    nodes: Vec<(NodeId, Range<u32>)>,
}

impl Ranks {
    /// Ranks follow each other from node to node.
    pub fn new(nodes: &[(NodeId, u32)]) -> Ranks {
        let mut first = 0;
        let nodes = nodes.iter().map(|(node, count)| {
            let begin = first;
            first += count;
            (*node, begin..first)
        });
        let nodes: Vec<(NodeId, Range<u32>)> = nodes.collect();
        Ranks { states: vec![State::Starting; first as usize], running: first, failed: 0, nodes }
    }

    pub fn size(&self) -> u32 {
        self.states.len() as u32
    }

    /// The ranks of the node with that place in the list of nodes.
    pub fn of(&self, place: usize) -> Range<u32> {
        self.nodes.get(place).map_or(0..0, |(_, ranks)| ranks.clone())
    }

    pub fn node(&self, place: usize) -> NodeId {
        self.nodes[place].0
    }

    /// Where a rank began.
    pub fn place_of(&self, rank: u32) -> Option<usize> {
        self.nodes.iter().position(|(_, ranks)| ranks.contains(&rank))
    }

    pub fn state(&self, rank: u32) -> Option<State> {
        self.states.get(rank as usize).copied()
    }

    /// What a node says of a rank is believed of its own ranks only, and in the order in which
    /// things happen. False: it is not.
    pub fn set(&mut self, place: usize, rank: u32, new: State) -> bool {
        if !self.of(place).contains(&rank) {
            return false;
        }
        let state = &mut self.states[rank as usize];
        let is_next = match (*state, new) {
            (State::Starting, State::Running { .. } | State::NotStarted { .. }) => true,
            (State::Running { pid }, State::Ended { pid: ended, .. }) => pid == ended,
            (State::Starting | State::Running { .. }, State::Lost) => true,
            _ => false,
        };
        if is_next {
            *state = new;
            self.running -= u32::from(is_over(new));
            self.failed += u32::from(has_failed(new));
        }
        is_next
    }

    /// The node is lost, and with it what has not ended.
    pub fn lose(&mut self, place: usize) -> u32 {
        self.of(place).filter(|rank| self.set(place, *rank, State::Lost)).count() as u32
    }

    pub fn are_over(&self) -> bool {
        self.running == 0
    }

    pub fn running(&self) -> u32 {
        self.running
    }

    pub fn failed_count(&self) -> u32 {
        self.failed
    }

    /// Those that have not ended well.
    pub fn failed(&self) -> impl Iterator<Item = (u32, State)> + '_ {
        let all = (0..).zip(self.states.iter().copied());
        all.filter(|(_, state)| has_failed(*state))
    }

    /// That of the first rank that has not ended well.
    pub fn exit_status(&self) -> u8 {
        self.failed().next().map_or(0, |(_, state)| code(state))
    }

    pub fn listed(&self) -> Vec<Rank> {
        let listed = self.nodes.iter().flat_map(|(node, ranks)| {
            ranks.clone().map(|rank| {
                let state = self.states[rank as usize];
                let pid = match state {
                    State::Running { pid } | State::Ended { pid, .. } => Some(pid),
                    _ => None,
                };
                Rank { rank, node: *node, pid, state: cause(state, *node) }
            })
        });
        listed.collect()
    }
}

fn is_over(state: State) -> bool {
    !matches!(state, State::Starting | State::Running { .. })
}

/// It has ended, and not well.
pub fn has_failed(state: State) -> bool {
    is_over(state) && code(state) != 0
}

/// As of wait(2), which knows nothing else of a process that has ended.
fn ended(pid: i32, status: i32) -> WaitStatus {
    let unknown = WaitStatus::Exited(Pid::from_raw(pid), i32::from(LOST));
    WaitStatus::from_raw(Pid::from_raw(pid), status).unwrap_or(unknown)
}

/// What a shell would say.
fn code(state: State) -> u8 {
    match state {
        State::Starting | State::Running { .. } => 0,
        State::Ended { pid, status } => match ended(pid, status) {
            WaitStatus::Exited(_, code) => code as u8,
            WaitStatus::Signaled(_, signal, _) => BY_SIGNAL + signal as u8,
            _ => LOST,
        },
        State::NotStarted { errno: nix::libc::ENOENT } => NOT_FOUND,
        State::NotStarted { .. } => CANNOT_EXECUTE,
        State::Lost => LOST,
    }
}

/// How it is with a rank, in words.
pub fn cause(state: State, node: NodeId) -> String {
    match state {
        State::Starting => "starting".to_owned(),
        State::Running { .. } => "running".to_owned(),
        State::Ended { pid, status } => match ended(pid, status) {
            WaitStatus::Exited(_, 0) => "done".to_owned(),
            WaitStatus::Exited(_, code) => format!("exit status {code}"),
            WaitStatus::Signaled(_, signal, has_core) => {
                let core = if has_core { " (core dumped)" } else { "" };
                format!("killed by {}{core}", signal_name(signal as i32))
            }
            _ => format!("ended with status {status:#x}"),
        },
        State::NotStarted { errno } => {
            format!("not started: {}", std::io::Error::from_raw_os_error(errno))
        }
        State::Lost => format!("lost with node {node}"),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn two_nodes() -> Ranks {
        Ranks::new(&[(NodeId(1), 2), (NodeId(4), 3)])
    }

    #[test]
    fn ranks_follow_each_other_from_node_to_node() {
        let ranks = two_nodes();
        assert_eq!((ranks.size(), ranks.of(0), ranks.of(1)), (5, 0..2, 2..5));
        assert_eq!(
            [ranks.place_of(1), ranks.place_of(2), ranks.place_of(5)],
            [Some(0), Some(1), None]
        );
    }

    #[test]
    fn a_node_is_believed_of_its_own_ranks_and_in_order() {
        let mut ranks = two_nodes();
        let running = |pid| State::Running { pid };
        assert!(!ranks.set(0, 2, running(7)), "it is another node's");
        assert!(!ranks.set(1, 2, State::Ended { pid: 7, status: 0 }), "it has not begun");
        assert!(ranks.set(1, 2, running(7)));
        assert!(!ranks.set(1, 2, running(8)), "it has begun");
        assert!(!ranks.set(1, 2, State::Ended { pid: 8, status: 0 }), "that is another");
        assert!(ranks.set(1, 2, State::Ended { pid: 7, status: 0 }));
        assert!(!ranks.set(1, 2, State::Lost), "it has ended");
    }

    #[test]
    fn the_first_failure_says_how_the_job_ends() {
        let mut ranks = two_nodes();
        for rank in 0..5 {
            let place = ranks.place_of(rank).unwrap();
            ranks.set(place, rank, State::Running { pid: rank as i32 + 1 });
        }
        assert_eq!((ranks.exit_status(), ranks.running(), ranks.are_over()), (0, 5, false));
        ranks.set(1, 4, State::Ended { pid: 5, status: 3 << 8 });
        ranks.set(1, 3, State::Ended { pid: 4, status: 11 | 0x80 });
        ranks.set(0, 0, State::Ended { pid: 1, status: 0 });
        assert_eq!(ranks.exit_status(), 128 + 11);
        assert_eq!(ranks.lose(1), 1);
        assert_eq!(ranks.lose(0), 1);
        assert!(ranks.are_over());
        assert_eq!((ranks.running(), ranks.failed_count()), (0, 4));
        let words: Vec<String> = ranks.listed().into_iter().map(|rank| rank.state).collect();
        let expected = [
            "done",
            "lost with node 1",
            "lost with node 4",
            "killed by SIGSEGV (core dumped)",
            "exit status 3",
        ];
        assert_eq!(words, expected);
        assert_eq!(ranks.exit_status(), 125);
    }

    #[test]
    fn what_never_ran_is_told_as_a_shell_tells_it() {
        let mut ranks = Ranks::new(&[(NodeId(1), 1)]);
        assert!(ranks.set(0, 0, State::NotStarted { errno: nix::libc::ENOENT }));
        assert_eq!(ranks.exit_status(), 127);
        assert!(ranks.listed()[0].state.starts_with("not started: No such file"));
    }
}

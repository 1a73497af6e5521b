//! The jobs whose launchers are on this node, and those that have ended lately. Pure.
//!
//! A launcher tells its daemon of its job, over a connection that stands for it: when that ends,
//! the job has. What it tells is bounded and cut here, and who it is was not said by it but by the
//! kernel. A daemon that begins knows of none until launchers have called again.

use crate::supervisor::Identity;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use wire::control::{COMMAND_LINE_CHARS_MAX, Failure};
use wire::jobs::{JOB_NAME_CHARS_MAX, JOB_NODES_MAX, Job, JobState};

/// Jobs that run, in all ...
pub const JOBS_MAX: usize = 1_024;
/// ... and of one user.
pub const JOBS_OF_USER_MAX: usize = 256;
/// Jobs that have ended and are remembered, in all ...
const ENDED_MAX: usize = 1_024;
/// ... of one user ...
const ENDED_OF_USER_MAX: usize = 64;
/// ... and for how long.
const ENDED_KEPT: Duration = Duration::from_secs(60 * 60);
/// PATH_MAX of Linux.
const LOGS_CHARS_MAX: usize = 4_096;
/// Bytes of the name of an abstract socket, by unix(7).
const SOCKET_BYTES_MAX: usize = 107;
/// What one answer tells of the jobs of one user, and of all: less than an answer may have.
const LISTED_OF_USER_BYTES_MAX: usize = 1 << 20;
const LISTED_BYTES_MAX: usize = 3 << 20;

/// Names a connection of this daemon's control socket.
pub type ConnectionId = u64;

/// This moment, and in seconds since the epoch.
pub type Moment = (Instant, f64);

/// A job that runs, or whose launcher is still there to tell how it has ended.
#[derive(Debug, PartialEq)]
pub struct Held<W> {
    pub of: Job,
    /// Where its launcher hears what is asked of it.
    pub socket: String,
    launcher: Identity,
    connection: ConnectionId,
    /// Who waits for its end.
    waiting: Vec<W>,
}

#[derive(Debug)]
struct Ended {
    of: Job,
    at: Instant,
}

/// `W` is who waits for the end of a job.
#[derive(Debug)]
pub struct Jobs<W> {
    /// By the pid of the launcher.
    held: BTreeMap<i32, Held<W>>,
    /// In the order in which they have ended.
    ended: VecDeque<Ended>,
}

impl<W> Default for Jobs<W> {
    fn default() -> Jobs<W> {
        Jobs { held: BTreeMap::new(), ended: VecDeque::new() }
    }
}

/// A job as it has ended, and who is to hear of that.
pub type Told<W> = (Job, Vec<W>);

/// What is known of the job of a launcher.
#[derive(Debug, PartialEq, Eq)]
pub enum Known<R, E> {
    Runs(R),
    Ended(E),
    Not,
}

impl<W> Jobs<W> {
    /// An earlier job whose launcher had the number of this one has ended.
    pub fn begin(&mut self, launcher: Identity, now: Moment) -> Option<Told<W>> {
        let pid = launcher.pid;
        let is_other = self.held.get(&pid).is_some_and(|held| held.launcher != launcher);
        is_other.then(|| self.end(pid, now)).flatten()
    }

    /// A launcher tells of its job, or tells again what has become of it. That it is this one, and
    /// that no earlier one is in the way, was looked at before. Returns who is to hear that it has
    /// ended, if it has.
    ///
    /// # Errors
    /// There are too many, or another of this user's is called so.
    pub fn hold(
        &mut self,
        (launcher, connection): (Identity, ConnectionId),
        of: Job,
        socket: String,
        now: Moment,
    ) -> Result<Option<Told<W>>, Failure> {
        if socket.is_empty() || socket.len() > SOCKET_BYTES_MAX || socket.contains('\0') {
            let text = format!("not the name of a socket: it has 1 to {SOCKET_BYTES_MAX} bytes");
            return Err(refused("bad-job", text));
        }
        let (of, pid) = (cut(of, now), launcher.pid);
        self.check_room(pid, of.uid)?;
        self.check_name(pid, &of)?;
        let before = self.held.remove(&pid);
        let mut waiting = before.map(|held| held.waiting).unwrap_or_default();
        let has_ended = of.state == JobState::Ended;
        let told = has_ended.then(|| (of.clone(), std::mem::take(&mut waiting)));
        self.held.insert(pid, Held { of, socket, launcher, connection, waiting });
        Ok(told)
    }

    fn check_room(&self, pid: i32, uid: u32) -> Result<(), Failure> {
        if self.held.contains_key(&pid) {
            return Ok(());
        }
        let of_user = self.held.values().filter(|held| held.of.uid == uid).count();
        let text = match (of_user >= JOBS_OF_USER_MAX, self.held.len() >= JOBS_MAX) {
            (true, _) => format!("user {uid} has {JOBS_OF_USER_MAX} jobs on this node already"),
            (_, true) => format!("there are {JOBS_MAX} jobs on this node already"),
            _ => return Ok(()),
        };
        Err(refused("too-many-jobs", text))
    }

    fn check_name(&self, pid: i32, of: &Job) -> Result<(), Failure> {
        let is_taken = |held: &&Held<W>| {
            let other = &held.of;
            other.job.pid.0 != pid
                && other.uid == of.uid
                && other.name == of.name
                && other.state != JobState::Ended
        };
        if of.name.is_empty() || of.state == JobState::Ended {
            return Ok(());
        }
        match self.held.values().find(is_taken) {
            None => Ok(()),
            Some(other) => {
                let Job { name, job, .. } = &other.of;
                let text = format!("job {} is called {name} already: choose another", job.pid);
                Err(refused("name-taken", text))
            }
        }
    }

    /// A connection has ended, and with it the job that it stood for; another one may stand for
    /// that by now.
    pub fn left(&mut self, pid: i32, connection: ConnectionId, now: Moment) -> Option<Told<W>> {
        let is_it = self.held.get(&pid).is_some_and(|held| held.connection == connection);
        is_it.then(|| self.end(pid, now)).flatten()
    }

    fn end(&mut self, pid: i32, (now, now_s): Moment) -> Option<Told<W>> {
        let Held { mut of, waiting, .. } = self.held.remove(&pid)?;
        if of.state != JobState::Ended {
            // Its launcher has said nothing of that, and will not.
            of = Job { state: JobState::Ended, exit_status: None, running: 0, ..of };
            of.ended = Some(now_s);
        }
        let is_same_user = |ended: &Ended| ended.of.uid == of.uid;
        if self.ended.iter().filter(|ended| is_same_user(ended)).count() >= ENDED_OF_USER_MAX
            && let Some(oldest) = self.ended.iter().position(is_same_user)
        {
            self.ended.remove(oldest);
        }
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { of: of.clone(), at: now });
        Some((of, waiting))
    }

    /// Forgets what has ended long ago.
    pub fn expire(&mut self, now: Instant) {
        let is_old = |ended: &Ended| now.saturating_duration_since(ended.at) >= ENDED_KEPT;
        while self.ended.front().is_some_and(is_old) {
            self.ended.pop_front();
        }
    }

    /// The job of the launcher with this pid; of several that have ended the last one.
    pub fn find(&self, pid: i32) -> Known<&Held<W>, &Job> {
        match self.held.get(&pid) {
            Some(held) if held.of.state == JobState::Ended => Known::Ended(&held.of),
            Some(held) => Known::Runs(held),
            None => {
                let mut ended = self.ended.iter().rev().map(|ended| &ended.of);
                let last = ended.find(|of| of.job.pid.0 == pid);
                last.map_or(Known::Not, Known::Ended)
            }
        }
    }

    /// Somebody waits for the end of a job that runs.
    ///
    /// # Errors
    /// It does not: `waiting` again.
    pub fn wait(&mut self, pid: i32, waiting: W) -> Result<(), W> {
        match self.held.get_mut(&pid) {
            Some(held) if held.of.state != JobState::Ended => {
                held.waiting.push(waiting);
                Ok(())
            }
            _ => Err(waiting),
        }
    }

    /// Those that do not wait any more are dropped.
    pub fn retain_waiting(&mut self, waits: impl Fn(&W) -> bool) {
        self.held.values_mut().for_each(|held| held.waiting.retain(&waits));
    }

    /// Those that run come first, and of each the newest.
    pub fn all(&self) -> Vec<Job> {
        let mut held: Vec<&Job> = self.held.values().map(|held| &held.of).collect();
        held.sort_by(|a, b| b.started.total_cmp(&a.started));
        let ended = self.ended.iter().rev().map(|ended| &ended.of);
        held.into_iter().chain(ended).cloned().collect()
    }
}

fn refused(code: &str, text: String) -> Failure {
    Failure { code: code.to_owned(), text }
}

/// With no more in it than is kept of a job.
fn cut(of: Job, (_, now_s): Moment) -> Job {
    let chars = |text: String, max| text.chars().take(max).collect::<String>();
    let mut nodes = of.nodes;
    nodes.truncate(JOB_NODES_MAX);
    Job {
        name: chars(of.name, JOB_NAME_CHARS_MAX),
        // Whoever lists it looks it up.
        user: None,
        command: chars(of.command, COMMAND_LINE_CHARS_MAX),
        ended: (of.state == JobState::Ended).then(|| of.ended.unwrap_or(now_s)),
        logs: of.logs.map(|logs| chars(logs, LOGS_CHARS_MAX)),
        nodes,
        ..of
    }
}

/// As many of them as one answer may have, the first ones, and of no user more than his share.
pub fn fitting(jobs: Vec<Job>) -> Vec<Job> {
    let (mut in_all, mut of_users) = (0, BTreeMap::<u32, usize>::new());
    let mut fits = |of: &Job| {
        let bytes = serde_json::to_vec(of).map_or(LISTED_BYTES_MAX, |text| text.len() + 1);
        let of_user = of_users.entry(of.uid).or_default();
        let is_fitting =
            in_all + bytes <= LISTED_BYTES_MAX && *of_user + bytes <= LISTED_OF_USER_BYTES_MAX;
        if is_fitting {
            in_all += bytes;
            *of_user += bytes;
        }
        is_fitting
    };
    jobs.into_iter().filter(|of| fits(of)).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::{GlobalPid, HomePid, NodeId};

    const ANNA: u32 = 1000;
    const BERT: u32 = 1001;

    fn job(pid: i32, uid: u32, name: &str) -> Job {
        Job {
            job: GlobalPid { home: NodeId(1), pid: HomePid(pid) },
            name: name.to_owned(),
            uid,
            user: Some("root".to_owned()),
            command: "awk".to_owned(),
            state: JobState::Running,
            started: f64::from(pid),
            ended: None,
            ranks: 4,
            running: 4,
            failed: 0,
            nodes: vec![(NodeId(1), 4)],
            exit_status: None,
            logs: None,
        }
    }

    fn ended(of: Job, exit_status: u8) -> Job {
        Job { state: JobState::Ended, exit_status: Some(exit_status), running: 0, ..of }
    }

    struct Table(Jobs<&'static str>, Instant);

    impl Table {
        fn new() -> Table {
            Table(Jobs::default(), Instant::now())
        }

        fn hold_by(
            &mut self,
            started_ticks: u64,
            connection: u64,
            of: Job,
        ) -> Result<Vec<Told<&'static str>>, Failure> {
            let launcher = Identity { pid: of.job.pid.0, started_ticks };
            let mut told = Vec::from_iter(self.0.begin(launcher, (self.1, 7.0)));
            let socket = "socket".to_owned();
            told.extend(self.0.hold((launcher, connection), of, socket, (self.1, 7.0))?);
            Ok(told)
        }

        fn hold(&mut self, of: Job) -> Result<Vec<Told<&'static str>>, Failure> {
            let connection = of.job.pid.0 as u64;
            self.hold_by(1, connection, of)
        }

        fn left(&mut self, pid: i32) -> Option<Told<&'static str>> {
            self.0.left(pid, pid as u64, (self.1, 9.0))
        }

        fn code(&mut self, of: Job) -> String {
            self.hold(of).expect_err("it is refused").code
        }

        fn numbers(&self) -> Vec<i32> {
            self.0.all().iter().map(|of| of.job.pid.0).collect()
        }
    }

    #[test]
    fn a_job_has_ended_when_its_launcher_has_said_so_or_is_gone() {
        let mut table = Table::new();
        table.hold(job(5, ANNA, "five")).unwrap();
        table.hold(job(6, ANNA, "six")).unwrap();
        assert!(matches!(table.0.find(5), Known::Runs(held) if held.socket == "socket"));
        assert_eq!(table.0.wait(5, "anna"), Ok(()));
        assert_eq!(table.0.wait(6, "bert"), Ok(()));
        assert_eq!(table.0.wait(7, "carl"), Err("carl"), "there is none");
        // It says so: whoever waits hears it, and nobody has to wait any more.
        let said = table.hold(ended(job(5, ANNA, "five"), 3)).unwrap();
        let of = Job { ended: Some(7.0), user: None, ..ended(job(5, ANNA, "five"), 3) };
        assert_eq!(said, [(of.clone(), vec!["anna"])]);
        assert_eq!(table.0.find(5), Known::Ended(&of));
        assert_eq!(table.0.wait(5, "carl"), Err("carl"));
        assert_eq!(table.left(5), Some((of.clone(), vec![])));
        assert_eq!(table.0.find(5), Known::Ended(&of));
        // It is killed.
        let (of, told) = table.left(6).unwrap();
        assert_eq!((of.state, of.exit_status, of.ended), (JobState::Ended, None, Some(9.0)));
        assert_eq!((of.running, told), (0, vec!["bert"]));
        assert_eq!(table.left(6), None);
        assert_eq!(table.numbers(), [6, 5]);
    }

    #[test]
    fn a_launcher_that_calls_again_has_the_same_job_and_one_of_its_number_another() {
        let mut table = Table::new();
        table.hold_by(1, 10, job(5, ANNA, "")).unwrap();
        assert_eq!(table.0.wait(5, "anna"), Ok(()));
        assert_eq!(table.hold_by(1, 11, Job { running: 3, ..job(5, ANNA, "") }), Ok(vec![]));
        assert_eq!(table.0.left(5, 10, (table.1, 9.0)), None, "another connection stands for it");
        assert!(matches!(table.0.find(5), Known::Runs(held) if held.of.running == 3));
        let told = table.hold_by(2, 12, job(5, BERT, "")).unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0.uid, told[0].0.exit_status, &told[0].1), (ANNA, None, &vec!["anna"]));
        assert!(matches!(table.0.find(5), Known::Runs(held) if held.of.uid == BERT));
        assert!(table.0.left(5, 12, (table.1, 9.0)).is_some());
        assert!(matches!(table.0.find(5), Known::Ended(of) if of.uid == BERT), "the last one");
    }

    #[test]
    fn no_two_jobs_of_a_user_that_run_have_one_name() {
        let mut table = Table::new();
        table.hold(job(5, ANNA, "fold")).unwrap();
        assert_eq!(table.code(job(6, ANNA, "fold")), "name-taken");
        table.hold(job(7, BERT, "fold")).unwrap();
        table.hold(job(5, ANNA, "fold")).unwrap();
        table.hold(job(8, ANNA, "")).unwrap();
        table.hold(job(9, ANNA, "")).unwrap();
        table.hold(ended(job(5, ANNA, "fold"), 0)).unwrap();
        table.hold(job(6, ANNA, "fold")).unwrap();
        table.hold(ended(job(5, ANNA, "fold"), 0)).unwrap();
        table.left(6);
        table.hold(job(10, ANNA, "fold")).unwrap();
    }

    #[test]
    fn there_are_no_more_jobs_than_may_be_and_none_is_longer_than_it_may_be() {
        let mut table = Table::new();
        for pid in 0..JOBS_OF_USER_MAX as i32 {
            table.hold(job(pid, ANNA, "")).unwrap();
        }
        assert_eq!(table.code(job(5_000, ANNA, "")), "too-many-jobs");
        table.hold(job(3, ANNA, "")).unwrap();
        let others = JOBS_MAX - JOBS_OF_USER_MAX;
        for pid in 1_000..1_000 + others as i32 {
            table.hold(job(pid, 10_000 + pid as u32, "")).unwrap();
        }
        assert_eq!(table.code(job(5_000, BERT, "")), "too-many-jobs");
        table.left(3);
        let long = |count| "x".repeat(count);
        let of = Job {
            name: long(1_000),
            command: long(10_000),
            logs: Some(long(10_000)),
            nodes: vec![(NodeId(1), 1); 5_000],
            ..job(5_000, BERT, "")
        };
        table.hold(of).unwrap();
        let Known::Runs(Held { of, .. }) = table.0.find(5_000) else { panic!("it runs") };
        let lengths = [of.name.len(), of.command.len(), of.logs.as_ref().unwrap().len()];
        assert_eq!(lengths, [JOB_NAME_CHARS_MAX, COMMAND_LINE_CHARS_MAX, LOGS_CHARS_MAX]);
        assert_eq!((of.nodes.len(), of.user.clone()), (JOB_NODES_MAX, None));
        for socket in ["", "a\0b", &long(SOCKET_BYTES_MAX + 1)] {
            let launcher = (Identity { pid: 5_000, started_ticks: 1 }, 1);
            let held = table.0.hold(launcher, job(5_000, BERT, ""), socket.into(), (table.1, 7.0));
            assert_eq!(held.unwrap_err().code, "bad-job");
        }
    }

    #[test]
    fn what_has_ended_is_remembered_for_a_while_and_so_much_of_each_user() {
        let mut table = Table::new();
        table.hold(job(1, BERT, "")).unwrap();
        table.left(1);
        for pid in 100..100 + ENDED_OF_USER_MAX as i32 + 2 {
            table.hold(job(pid, ANNA, "")).unwrap();
            table.left(pid);
        }
        assert!(matches!(table.0.find(101), Known::Not));
        assert!(matches!(table.0.find(102), Known::Ended(_)));
        assert!(matches!(table.0.find(1), Known::Ended(_)), "he has no part in that");
        for pid in 1_000..1_000 + ENDED_MAX as i32 {
            table.hold(job(pid, 10_000 + pid as u32, "")).unwrap();
            table.left(pid);
        }
        assert_eq!(table.numbers().len(), ENDED_MAX);
        table.0.expire(table.1 + ENDED_KEPT - Duration::from_secs(1));
        assert_eq!(table.numbers().len(), ENDED_MAX);
        table.0.expire(table.1 + ENDED_KEPT);
        assert!(table.numbers().is_empty());
    }

    #[test]
    fn an_answer_holds_no_more_than_it_may_and_no_user_fills_it_alone() {
        let large = |uid| Job { logs: Some("\u{1}".repeat(LOGS_CHARS_MAX)), ..job(5, uid, "") };
        let jobs: Vec<Job> = (0..200).map(|_| large(ANNA)).chain([job(6, BERT, "")]).collect();
        let listed = fitting(jobs);
        assert!(listed.len() > 30 && listed.len() < 50, "{}", listed.len());
        assert_eq!(listed.last(), Some(&job(6, BERT, "")));
        let all = fitting((0..400).map(|number| large(number / 40)).collect());
        let bytes = serde_json::to_vec(&all).unwrap().len();
        assert!(bytes < wire::limits::CONTROL_BYTES_MAX && bytes > LISTED_BYTES_MAX / 2, "{bytes}");
    }
}

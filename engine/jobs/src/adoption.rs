//! Has this node's daemon take ranks in: they are processes under Osmos then, and move.
//!
//! A rank runs whether or not it is taken in, so nobody waits for the daemon here. Requests go out
//! one after the other and answers are heard by a thread of their own.

use nix::sys::socket::{getsockopt, sockopt};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use wire::control::{ManageOptions, Reply, Request};
use wire::ids::GlobalPid;
use wire::jobs::Moving;

/// The longest answer to one of these requests.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// A daemon that takes no request for so long has other troubles.
const PATIENCE: Duration = Duration::from_secs(2);

/// A rank that was not taken in, and why.
pub type NotTaken = (u32, String);

/// Ranks of which the answer is still to come, in their order.
type Asked = Arc<Mutex<VecDeque<u32>>>;

pub struct Adoption {
    door: Option<PathBuf>,
    /// None: nothing ends with this server.
    job: Option<GlobalPid>,
    options: ManageOptions,
    /// To the daemon there is now.
    stream: Option<(UnixStream, Asked)>,
    say: Arc<dyn Fn(NotTaken) + Send + Sync>,
}

impl Adoption {
    /// `say` hears, in another thread, of each rank that is not taken in.
    pub fn new(
        door: Option<PathBuf>,
        job: Option<GlobalPid>,
        moving: &Moving,
        say: impl Fn(NotTaken) + Send + Sync + 'static,
    ) -> Adoption {
        let options = ManageOptions {
            placement: moving.placement.clone(),
            storm_ms: moving.storm_ms,
            cpu_baseline: false,
            freeze_budget_ms: moving.freeze_budget_ms,
            way: moving.way,
            is_mobile: false,
            is_timed: false,
        };
        Adoption { door, job, options, stream: None, say: Arc::new(say) }
    }

    /// Who the daemon is, which may have to trace ranks. None: there is none now.
    pub fn tracer(&mut self) -> Option<i32> {
        let (stream, _) = self.stream()?;
        let daemon = getsockopt(stream, sockopt::PeerCredentials).ok()?;
        Some(daemon.pid()).filter(|pid| *pid > 0)
    }

    pub fn adopt(&mut self, rank: u32, pid: i32) {
        let options = Some(Box::new(self.options.clone()));
        let request = Request::Adopt { pid, options, job: self.job };
        let mut line = serde_json::to_vec(&request).expect("numbers and words can be encoded");
        line.push(b'\n');
        let Some((stream, asked)) = self.stream() else {
            return (self.say)((rank, "no daemon answers on its node".to_owned()));
        };
        // Before the answer can come.
        lock(asked).push_back(rank);
        if stream.write_all(&line).is_err() {
            // Whoever hears answers says so of all that were asked.
            self.stream = None;
        }
    }

    fn stream(&mut self) -> Option<&mut (UnixStream, Asked)> {
        if self.stream.is_none() {
            self.stream = self.connect().ok();
        }
        self.stream.as_mut()
    }

    fn connect(&self) -> io::Result<(UnixStream, Asked)> {
        let door = self.door.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let stream = UnixStream::connect(door)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let asked = Asked::default();
        let (answers, waiting, say) = (stream.try_clone()?, asked.clone(), self.say.clone());
        std::thread::Builder::new()
            .name("adoption".into())
            .spawn(move || hear(BufReader::new(answers), &waiting, say.as_ref()))?;
        Ok((stream, asked))
    }
}

fn lock(asked: &Asked) -> MutexGuard<'_, VecDeque<u32>> {
    asked.lock().expect("nobody panics with it")
}

fn hear(mut answers: impl BufRead, asked: &Asked, say: &(dyn Fn(NotTaken) + Send + Sync)) {
    loop {
        let mut line = Vec::new();
        let read = answers.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            break;
        }
        let Some(rank) = lock(asked).pop_front() else { break };
        match serde_json::from_slice(&line) {
            Ok(Reply::Done) => {}
            Ok(Reply::Error(failure)) => say((rank, failure.text)),
            Ok(other) => say((rank, format!("the daemon answered {other:?}"))),
            Err(error) => say((rank, format!("the daemon's answer is none: {error}"))),
        }
    }
    let left: Vec<u32> = lock(asked).drain(..).collect();
    for rank in left {
        say((rank, "the daemon of its node has ended".to_owned()));
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn each_answer_is_for_the_rank_that_was_asked_about() {
        let asked = Asked::default();
        lock(&asked).extend([4, 6, 7, 8]);
        let lines = concat!(
            "{\"reply\":\"done\"}\n",
            "{\"reply\":\"error\",\"code\":\"not-lent\",\"text\":\"it stays\"}\n",
            "nothing\n",
        );
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        hear(Cursor::new(lines), &asked, &move |of| heard.lock().unwrap().push(of));
        let told = told.lock().unwrap();
        let ranks: Vec<u32> = told.iter().map(|(rank, _)| *rank).collect();
        assert_eq!(ranks, [6, 7, 8]);
        assert_eq!(told[0].1, "it stays");
        assert!(told[2].1.contains("has ended"), "{}", told[2].1);
    }
}

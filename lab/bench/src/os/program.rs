//! `osmos bench-os WORDS`: the programs whose processes are measured. They are driven round by
//! round ([`crate::engine::driven`]): so many steps, and what one took.
//!
//! * `create BYTES touched|untouched`: a child is forked and waited for; the program has that much
//!   memory, which the child has to have copied, page by page, or leaves alone
//! * `suspend`: of two children one is stopped and the other goes on
//! * `send ADDRESS BYTES` and `receive`: a stream of messages of one size

use super::Took;
use anyhow::{Context, Result, bail, ensure};
use kernel::workers::Parent;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use std::ffi::OsString;
use std::hint::black_box;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// The largest program of the paper has 10 MB.
const BYTES_MAX: usize = 1 << 30;
const STEPS_MAX: u64 = 1 << 20;
/// What the receiver of a stream takes at a time, at most.
const PIECE_BYTES: usize = 1 << 16;

pub fn run(words: &[OsString]) -> Result<()> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        ["create", bytes, touched] => {
            let mut memory = vec![1; number(bytes)?.min(BYTES_MAX)];
            let parent = Parent::of_one_thread()?;
            serve(|| create(&parent, &mut memory, touched == "touched"))
        }
        ["suspend"] => suspend(),
        ["pause"] => pause(),
        ["send", address, bytes] => send(address, number(bytes)?),
        ["receive"] => receive(),
        _ => bail!("bench-os create|suspend|pause|send|receive ..."),
    }
}

fn number(word: &str) -> Result<usize> {
    word.parse().with_context(|| format!("`{word}` is no number"))
}

/// Does as many steps as each line of input says, and answers with the median, the 10th and the
/// 90th percentile and the mean of what one took, us.
fn serve(mut step: impl FnMut() -> Result<Duration>) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "ready {}", getpid())?;
    for line in std::io::stdin().lock().lines() {
        let steps = line?.trim().parse::<u64>().context("no number of steps")?.min(STEPS_MAX);
        let took: Result<Vec<f64>> =
            (0..steps).map(|_| step().map(|took| took.as_secs_f64() * 1e6)).collect();
        let Took { median, p10, p90, mean } = Took::of_steps(took?)?;
        writeln!(output, "{median} {p10} {p90} {mean}")?;
    }
    Ok(())
}

/// From before the fork until the end of the child is known.
fn create(parent: &Parent, memory: &mut [u8], is_touched: bool) -> Result<Duration> {
    let began = Instant::now();
    let statuses = parent.fork_each(1, |_| {
        if is_touched {
            for place in (0..memory.len()).step_by(PAGE) {
                memory[place] = memory[place].wrapping_add(1);
            }
            black_box(&memory);
        }
        0
    })?;
    let took = began.elapsed();
    ensure!(statuses == [0], "a child ended with {statuses:?}");
    Ok(took)
}

/// A child that does nothing, and ends with its parent or its input.
struct Paused(Child);

impl Paused {
    fn start() -> Result<Paused> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(own);
        command.args(["bench-os", "pause"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a child")?;
        let mut byte = [0];
        child.stdout.as_mut().context("it has no output")?.read_exact(&mut byte)?;
        Ok(Paused(child))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(self.pid(), signal)?)
    }

    /// Until the kernel has told that it stands still, or goes on.
    fn await_change(&self) -> Result<()> {
        match waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED))? {
            WaitStatus::Stopped(..) | WaitStatus::Continued(_) => Ok(()),
            other => bail!("a child that should stand still or go on: {other:?}"),
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pause() -> Result<()> {
    let mut output = std::io::stdout();
    output.write_all(b".")?;
    output.flush()?;
    // Its parent holds the other end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// One stops and the other goes on, in turn: as whole jobs do that take turns. A step is over when
/// both have happened.
fn suspend() -> Result<()> {
    let (mut runs, mut stands) = (Paused::start()?, Paused::start()?);
    let mut has_begun = false;
    serve(|| {
        if !has_begun {
            // Not sooner: one that stands still cannot be moved.
            stands.signal(Signal::SIGSTOP)?;
            stands.await_change()?;
            has_begun = true;
        }
        let began = Instant::now();
        runs.signal(Signal::SIGSTOP)?;
        stands.signal(Signal::SIGCONT)?;
        runs.await_change()?;
        stands.await_change()?;
        let took = began.elapsed();
        std::mem::swap(&mut runs, &mut stands);
        Ok(took)
    })
}

/// A step is one message.
fn send(address: &str, bytes: usize) -> Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("no {address}"))?;
    let message = vec![1; bytes.clamp(1, BYTES_MAX)];
    serve(|| {
        let began = Instant::now();
        stream.write_all(&message)?;
        Ok(began.elapsed())
    })
}

/// Says where it listens, takes one stream to its end, and says in how many seconds, from the first
/// byte to the last, how many bytes have come.
fn receive() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:0").context("cannot listen")?;
    let mut output = std::io::stdout();
    writeln!(output, "{}", listener.local_addr()?.port())?;
    let (mut stream, _) = listener.accept().context("nobody comes")?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut began, mut total) = (None, 0);
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            break;
        }
        began.get_or_insert_with(Instant::now);
        total += count;
    }
    let took_s = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    writeln!(output, "{took_s} {total}")?;
    Ok(())
}

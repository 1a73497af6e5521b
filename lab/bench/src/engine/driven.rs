//! A measured program that is driven round by round through its standard streams.
//!
//! So two programs can take turns while both are up, and no start is in any figure.

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// No round is longer; one that is has gone wrong.
const ROUND_TIMEOUT_MS: u16 = 60_000;

pub struct Driven {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pid: i32,
}

impl Driven {
    /// Starts a program and waits until it says that it is ready.
    pub fn start(command: &mut Command) -> Result<Driven> {
        let (child, input, mut output) = spawn(command)?;
        let mut driven_child = EndedOnError(Some(child));
        let line = read_line(&mut output)?;
        let pid = line.strip_prefix("ready ").and_then(|pid| pid.trim().parse().ok());
        let pid = pid.with_context(|| format!("the program says `{}`, not ready", line.trim()))?;
        let child = driven_child.0.take().context("the program is not there")?;
        Ok(Driven { child, input: Some(input), output, pid })
    }

    /// As it knows itself: at home, that is.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// One round of so many steps; what it answers.
    pub fn round<const COUNT: usize>(&mut self, steps: u64) -> Result<[f64; COUNT]> {
        let input = self.input.as_mut().context("the program has no input")?;
        writeln!(input, "{steps}").context("the program has ended")?;
        let line = read_line(&mut self.output)?;
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        let numbers = numbers.with_context(|| format!("a round gave `{}`", line.trim()))?;
        <[f64; COUNT]>::try_from(numbers)
            .map_err(|numbers| anyhow::anyhow!("a round gave {} numbers", numbers.len()))
    }

    /// Ends it by the end of its input; it must end well.
    pub fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }

    /// Ends it by a signal, which the lab passes on.
    pub fn terminate(mut self) -> Result<ExitStatus> {
        terminate(&self.child);
        Ok(self.child.wait()?)
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            terminate(&self.child);
            let _ = self.child.wait();
        }
    }
}

/// A program that prints one line and then serves another.
pub struct Serving {
    child: Child,
    output: BufReader<ChildStdout>,
    pub line: String,
}

impl Serving {
    pub fn start(command: &mut Command) -> Result<Serving> {
        let (child, _input, mut output) = spawn(command)?;
        let mut serving_child = EndedOnError(Some(child));
        let line = read_line(&mut output)?.trim().to_owned();
        let child = serving_child.0.take().context("the program is not there")?;
        Ok(Serving { child, output, line })
    }

    /// What it says when it has served.
    pub fn next_line(&mut self) -> Result<String> {
        Ok(read_line(&mut self.output)?.trim().to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        terminate(&self.child);
        let _ = self.child.wait();
    }
}

struct EndedOnError(Option<Child>);

impl Drop for EndedOnError {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            terminate(child);
            let _ = child.wait();
        }
    }
}

fn spawn(command: &mut Command) -> Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let input = child.stdin.take().context("a child without input")?;
    let output = child.stdout.take().context("a child without output")?;
    Ok((child, input, BufReader::new(output)))
}

fn read_line(output: &mut BufReader<ChildStdout>) -> Result<String> {
    if output.buffer().is_empty() {
        let mut watched = [PollFd::new(output.get_ref().as_fd(), PollFlags::POLLIN)];
        if poll(&mut watched, PollTimeout::from(ROUND_TIMEOUT_MS))? == 0 {
            bail!("the program has said nothing for {ROUND_TIMEOUT_MS} ms");
        }
    }
    let mut line = String::new();
    ensure!(output.read_line(&mut line)? > 0, "the program has ended");
    Ok(line)
}

fn terminate(child: &Child) {
    // Not waited for yet, so the pid is its own; failure means that it has ended.
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
}

#[cfg(test)]
mod test {
    use super::*;

    fn shell(script: &str) -> Result<Driven> {
        Driven::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn rounds_are_answered_with_numbers_until_the_input_ends() {
        let mut driven = shell("echo ready $$; while read n; do echo $n 2.5; done").unwrap();
        assert!(driven.pid() > 0);
        assert_eq!(driven.round(7).unwrap(), [7.0, 2.5]);
        assert!(driven.round::<3>(1).is_err());
        driven.end().unwrap();
    }

    #[test]
    fn a_program_that_is_not_ready_or_fails_is_an_error() {
        assert!(shell("echo hello; exec sleep 60").is_err());
        assert!(shell("exit 0").is_err());
        assert!(shell("echo ready 1; read n; exit 3").unwrap().end().is_err());
        assert!(shell("echo ready 1; read n; exit 3").unwrap().round::<1>(1).is_err());
    }

    #[test]
    fn a_program_that_never_ends_is_terminated() {
        let status = shell("echo ready 1; exec sleep 60").unwrap().terminate().unwrap();
        assert!(!status.success());
    }
}

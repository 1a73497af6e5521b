//! One rank and its streams. What it writes is read only as far as there is room for it at the
//! other end, and what comes for it is kept until it reads it: so a pipe is as full as it would be
//! between two processes of one machine.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use wire::jobs::{STREAM_BYTES_MAX, STREAM_WINDOW_BYTES, Stream};

pub struct Rank {
    pub pid: i32,
    pub input: Option<ToRank>,
    pub output: Option<FromRank>,
    pub error: Option<FromRank>,
}

impl Rank {
    /// # Errors
    /// Its pipes cannot be made so that nobody waits for them.
    pub fn new(child: &mut Child) -> io::Result<Rank> {
        let input = child.stdin.take().map(ToRank::new).transpose()?;
        let output = child.stdout.take().map(|pipe| FromRank::new(Pipe::Output(pipe)));
        let error = child.stderr.take().map(|pipe| FromRank::new(Pipe::Error(pipe)));
        let (output, error) = (output.transpose()?, error.transpose()?);
        Ok(Rank { pid: child.id() as i32, input, output, error })
    }

    pub fn stream(&mut self, stream: Stream) -> &mut Option<FromRank> {
        match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        }
    }
}

fn never_wait(pipe: impl AsFd) -> io::Result<()> {
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

enum Pipe {
    Output(ChildStdout),
    Error(ChildStderr),
}

/// What it writes.
pub struct FromRank {
    pipe: Pipe,
    /// Sent, and not taken yet.
    under_way: usize,
}

/// What came of an attempt to read.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    NothingYet,
    End,
}

impl FromRank {
    fn new(pipe: Pipe) -> io::Result<FromRank> {
        let stream = FromRank { pipe, under_way: 0 };
        never_wait(stream.as_fd())?;
        Ok(stream)
    }

    /// How much may be sent of it now, if so much may be of all.
    pub fn room(&self, of_all: usize) -> usize {
        (STREAM_WINDOW_BYTES - self.under_way).min(STREAM_BYTES_MAX).min(of_all)
    }

    /// Reads what is there, at most as much as there is room for; that is under way then.
    pub fn read(&mut self, place: &mut [u8]) -> Got {
        let result = match &mut self.pipe {
            Pipe::Output(pipe) => pipe.read(place),
            Pipe::Error(pipe) => pipe.read(place),
        };
        match result {
            Ok(0) => Got::End,
            Ok(count) => {
                self.under_way += count;
                Got::Bytes(count)
            }
            Err(error) if is_later(&error) => Got::NothingYet,
            Err(_) => Got::End,
        }
    }

    /// So much was taken. False if there was not so much.
    pub fn taken(&mut self, bytes: usize) -> bool {
        let left = self.under_way.checked_sub(bytes);
        self.under_way = left.unwrap_or(0);
        left.is_some()
    }
}

impl AsFd for FromRank {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Pipe::Output(pipe) => pipe.as_fd(),
            Pipe::Error(pipe) => pipe.as_fd(),
        }
    }
}

/// What it reads.
pub struct ToRank {
    pipe: ChildStdin,
    waiting: VecDeque<u8>,
    /// Nothing comes after what waits.
    is_ending: bool,
}

impl ToRank {
    fn new(pipe: ChildStdin) -> io::Result<ToRank> {
        never_wait(&pipe)?;
        Ok(ToRank { pipe, waiting: VecDeque::new(), is_ending: false })
    }

    /// False if it is more than there is room for, or comes after the end.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        let fits = self.waiting.len() + bytes.len() <= STREAM_WINDOW_BYTES && !self.is_ending;
        if fits {
            self.waiting.extend(bytes);
        }
        fits
    }

    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Writes what the pipe takes; returns how much that was.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn write(&mut self) -> io::Result<usize> {
        let mut written = 0;
        while !self.waiting.is_empty() {
            match self.pipe.write(self.waiting.as_slices().0) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    written += count;
                }
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// All of it was written, and that was all.
    pub fn is_done(&self) -> bool {
        self.is_ending && self.waiting.is_empty()
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl AsFd for ToRank {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::process::{Command, Stdio};

    fn begin(script: &str) -> (Child, Rank) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let rank = Rank::new(&mut child).unwrap();
        (child, rank)
    }

    #[test]
    fn no_more_is_read_than_may_be_under_way() {
        let (mut child, mut rank) = begin("head -c 1000000 /dev/zero");
        let stream = rank.output.as_mut().unwrap();
        let mut place = vec![0; STREAM_BYTES_MAX];
        let mut total = 0;
        loop {
            let room = stream.room(usize::MAX);
            if room == 0 {
                assert!(!stream.taken(STREAM_WINDOW_BYTES + 1), "more than was sent");
            }
            match stream.read(&mut place[..room.max(1)]) {
                Got::Bytes(count) => total += count,
                Got::NothingYet => std::thread::yield_now(),
                Got::End => break,
            }
            assert!(stream.under_way <= STREAM_WINDOW_BYTES);
        }
        assert_eq!(total, 1_000_000);
        child.wait().unwrap();
    }

    #[test]
    fn input_is_bounded_and_what_comes_after_its_end_is_refused() {
        let (mut child, mut rank) = begin("exec sleep 600");
        let input = rank.input.as_mut().unwrap();
        // The pipe takes some of it; nobody reads it.
        let mut taken = 0;
        while input.add(&[7; STREAM_BYTES_MAX]) {
            taken += input.write().unwrap();
        }
        assert!(input.is_waiting() && taken > 0);
        assert!(input.waiting.len() <= STREAM_WINDOW_BYTES);
        input.end();
        assert!(!input.is_done());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(input.write().is_err(), "nobody reads it");
        assert!(!input.add(&[]));
    }
}

//! What is said between the harness and the agent in a machine: one connection for each command.
//!
//! The first frame starts a command; then its input goes one way, and its output, its errors and at
//! last its wait status the other. If the connection ends before, so does the command.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};

/// Where agents listen, on the cable between machine and harness.
pub const PORT: u16 = 7;
/// Of one frame: the words of a command may be whole scripts.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// A command and who runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub words: Vec<String>,
    /// User and group.
    pub uid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Start(Start),
    Input(Vec<u8>),
    InputEnd,
    Output(Vec<u8>),
    Errors(Vec<u8>),
    /// The wait status.
    Ended(i32),
    /// It could not be started.
    Failed(String),
}

impl Frame {
    pub fn write(&self, stream: &mut impl Write) -> Result<()> {
        let start;
        let status;
        let (kind, bytes): (u8, &[u8]) = match self {
            Frame::Start(command) => {
                start = serde_json::to_vec(command)?;
                (b's', &start)
            }
            Frame::Input(bytes) => (b'i', bytes),
            Frame::InputEnd => (b'.', &[]),
            Frame::Output(bytes) => (b'o', bytes),
            Frame::Errors(bytes) => (b'e', bytes),
            Frame::Ended(wait_status) => {
                status = wait_status.to_le_bytes();
                (b'x', &status)
            }
            Frame::Failed(text) => (b'f', text.as_bytes()),
        };
        ensure!(bytes.len() <= FRAME_BYTES_MAX, "a frame of {} bytes is too long", bytes.len());
        let mut message = Vec::with_capacity(bytes.len() + 5);
        message.push(kind);
        message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        message.extend_from_slice(bytes);
        stream.write_all(&message).context("the other side has gone")
    }

    /// None at the end of the stream.
    pub fn read(stream: &mut impl Read) -> Result<Option<Frame>> {
        let mut head = [0; 5];
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read.context("the other side has gone")?,
        }
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        ensure!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes is too long");
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).context("a frame ends early")?;
        Ok(Some(match head[0] {
            b's' => Frame::Start(serde_json::from_slice(&bytes).context("no command")?),
            b'i' => Frame::Input(bytes),
            b'.' => Frame::InputEnd,
            b'o' => Frame::Output(bytes),
            b'e' => Frame::Errors(bytes),
            b'x' => {
                let status = bytes.as_slice().try_into().context("no wait status")?;
                Frame::Ended(i32::from_le_bytes(status))
            }
            b'f' => Frame::Failed(String::from_utf8_lossy(&bytes).into_owned()),
            other => bail!("a frame of kind {other}"),
        }))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let words = vec!["sh".to_string(), "-c".into(), "exit 3".into()];
        let frames = [
            Frame::Start(Start { words, uid: 1001 }),
            Frame::Input(vec![0, 255, 10]),
            Frame::InputEnd,
            Frame::Output(Vec::new()),
            Frame::Errors(b"no".to_vec()),
            Frame::Ended(-1),
            Frame::Failed("not found".into()),
        ];
        let mut stream = Vec::new();
        for frame in &frames {
            frame.write(&mut stream).unwrap();
        }
        let mut rest = stream.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut rest).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn a_frame_that_is_too_long_or_of_no_kind_is_refused() {
        assert!(Frame::read(&mut &[b'o', 255, 255, 255, 255][..]).is_err());
        assert!(Frame::read(&mut &[b'?', 0, 0, 0, 0][..]).is_err());
        assert!(Frame::read(&mut &[b'o', 4, 0, 0, 0, 1][..]).is_err());
        assert!(Frame::Output(vec![0; FRAME_BYTES_MAX + 1]).write(&mut Vec::new()).is_err());
    }
}

//! Recordings: what a brain was told, and what it made of it, so that any decision of a real
//! cluster can be played again, bit for bit, on any machine.
//!
//! A recording is a row of frames, each its length (u32, little-endian) and a postcard. The first
//! says who the brain is and how it was configured; each further one is an input with a digest of
//! the outputs that it led to, or a question that changed the brain.

use crate::brain::{Brain, Identity};
use crate::config::Config;
use crate::input::Input;
use crate::output::{Outbox, Output};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use wire::ids::{GlobalPid, NodeId};

/// No input is larger: a sample of as many processes as a node watches.
const FRAME_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Frame {
    Began { identity: Identity, config: Box<Config> },
    Told { at: Time, input: Input, outputs: u64 },
    Asked { at: Time, process: Option<GlobalPid>, excluding: Vec<NodeId>, answer: Option<NodeId> },
}

/// The first frame of a brain's recording.
pub fn began(identity: Identity, config: &Config) -> Vec<u8> {
    encode(&Frame::Began { identity, config: Box::new(config.clone()) })
}

/// The frame of an input and what it led to.
pub fn told(at: Time, input: &Input, outputs: &[Output]) -> Vec<u8> {
    encode(&Frame::Told { at, input: input.clone(), outputs: digest(outputs) })
}

/// The frame of a question for the best node.
pub fn asked(
    at: Time,
    process: Option<GlobalPid>,
    excluding: &[NodeId],
    answer: Option<NodeId>,
) -> Vec<u8> {
    encode(&Frame::Asked { at, process, excluding: excluding.to_vec(), answer })
}

/// What cannot be encoded leaves an empty frame, which no replay takes for anything else.
fn encode(frame: &Frame) -> Vec<u8> {
    let body = postcard::to_stdvec(frame).unwrap_or_default();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// FNV-1a of the encoded outputs.
fn digest(outputs: &[Output]) -> u64 {
    let bytes = postcard::to_stdvec(outputs).unwrap_or_default();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Why a recording could not be replayed to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("frame {0} is cut off or no frame of this version")]
    Frame(u64),
    #[error("frame {0} comes before the brain has begun")]
    NotBegun(u64),
    #[error("frame {frame}, at {at_us} us: the brain of today decides otherwise than the recorded")]
    Differs { frame: u64, at_us: u64 },
}

/// Plays recorded inputs to a fresh brain.
#[derive(Default)]
pub struct Replay {
    brain: Option<Brain>,
    frames: u64,
}

impl Replay {
    pub fn new() -> Replay {
        Replay::default()
    }

    /// How many frames have been replayed.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Plays the first frame of `bytes`; returns what is left, and what the brain said.
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<(&'a [u8], Vec<Output>), ReplayError> {
        let number = self.frames;
        let broken = || ReplayError::Frame(number);
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX || length > rest.len() {
            return Err(broken());
        }
        let (body, rest) = rest.split_at(length);
        let frame = postcard::from_bytes(body).map_err(|_| broken())?;
        self.frames += 1;
        Ok((rest, self.play(number, frame)?))
    }

    fn play(&mut self, number: u64, frame: Frame) -> Result<Vec<Output>, ReplayError> {
        if let Frame::Began { identity, config } = frame {
            self.brain = Some(Brain::new(identity, *config));
            return Ok(Vec::new());
        }
        let brain = self.brain.as_mut().ok_or(ReplayError::NotBegun(number))?;
        let mut outbox = Outbox::new();
        let (at, is_equal) = match frame {
            Frame::Began { .. } => return Ok(Vec::new()),
            Frame::Told { at, input, outputs } => {
                brain.handle(at, input, &mut outbox);
                (at, digest(outbox.outputs()) == outputs)
            }
            Frame::Asked { at, process, excluding, answer } => {
                (at, brain.best_node(at, process, &excluding) == answer)
            }
        };
        if !is_equal {
            return Err(ReplayError::Differs { frame: number, at_us: at.0 });
        }
        Ok(outbox.drain().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::LoadSample;
    use crate::time::Span;

    fn recording(seed: u64) -> Vec<u8> {
        let identity = Identity { node: NodeId(1), incarnation: 1, seed };
        let config = Config::default();
        let mut bytes = began(identity, &config);
        let mut brain = Brain::new(identity, config);
        let mut outbox = Outbox::new();
        let mut at = Time::from_micros(1_000_000);
        let others = (2..6).map(|node| Input::MemberJoined { node: NodeId(node) });
        let sample = LoadSample { cores: 1, speed: 0.3, others: 1.7, ..LoadSample::default() };
        let looks = (0..40).map(|_| Input::LoadSampled(sample.clone()));
        for input in std::iter::once(Input::Started).chain(others).chain(looks) {
            at = at + Span::from_millis(250);
            brain.handle(at, input.clone(), &mut outbox);
            bytes.extend(told(at, &input, outbox.outputs()));
            outbox.drain();
        }
        let answer = brain.best_node(at, None, &[]);
        bytes.extend(asked(at, None, &[], answer));
        bytes
    }

    fn replay(mut bytes: &[u8]) -> Result<u64, ReplayError> {
        let mut replay = Replay::new();
        while !bytes.is_empty() {
            (bytes, _) = replay.step(bytes)?;
        }
        Ok(replay.frames())
    }

    #[test]
    fn what_was_recorded_is_decided_again() {
        assert_eq!(replay(&recording(7)), Ok(47));
    }

    #[test]
    fn another_brain_is_noticed() {
        let first = recording(7);
        let other = recording(8);
        let head =
            |bytes: &[u8]| 4 + u32::from_le_bytes(bytes[..4].try_into().expect("4")) as usize;
        let mixed = [&first[..head(&first)], &other[head(&other)..]].concat();
        assert!(matches!(replay(&mixed), Err(ReplayError::Differs { .. })));
    }

    #[test]
    fn a_recording_that_is_cut_off_or_damaged_is_refused() {
        let whole = recording(7);
        assert_eq!(replay(&whole[..whole.len() - 1]), Err(ReplayError::Frame(46)));
        assert_eq!(replay(&[255; 40]), Err(ReplayError::Frame(0)));
        assert_eq!(replay(&told(Time::ZERO, &Input::Started, &[])), Err(ReplayError::NotBegun(0)));
    }
}

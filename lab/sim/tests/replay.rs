//! What the brain of a node was told, recorded as the daemon records it, is decided again bit for
//! bit by `osmos sim --replay`.

use brain::{Brain, Config, Identity, Input, LoadSample, Outbox, Output, Span, Time};
use std::process::ExitCode;
use wire::ids::NodeId;

/// Two brains that hear each other; the first is recorded.
fn recording() -> Vec<u8> {
    let config = Config::default();
    let identity = |node| Identity { node: NodeId(node), incarnation: 1, seed: u64::from(node) };
    let mut brains = [1, 2].map(|node| Brain::new(identity(node), config.clone()));
    let mut bytes = brain::began(identity(1), &config);
    let mut outbox = Outbox::new();
    let mut waiting: Vec<(usize, Input)> = Vec::new();
    for node in 0..2 {
        waiting.push((node, Input::Started));
        waiting.push((node, Input::MemberJoined { node: NodeId(2 - node as u32) }));
    }
    for nth in 0..200u64 {
        let now = Time::ZERO + Span::from_millis(250 * nth);
        for node in 0..2 {
            let others = if node == 0 { 0.3 + (nth % 7) as f64 / 3.0 } else { 0.1 };
            let sample = LoadSample { cores: 1, speed: 1.0, others, ..LoadSample::default() };
            waiting.push((node, Input::LoadSampled(sample)));
        }
        while let Some((node, input)) = waiting.pop() {
            brains[node].handle(now, input.clone(), &mut outbox);
            if node == 0 {
                bytes.extend(brain::told(now, &input, outbox.outputs()));
            }
            for output in outbox.drain() {
                if let Output::SendDatagram { bytes, .. } = output {
                    let from = NodeId(node as u32 + 1);
                    waiting.push((1 - node, Input::DatagramReceived { from, bytes }));
                }
            }
        }
    }
    bytes
}

fn replay(bytes: &[u8]) -> ExitCode {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("recording");
    std::fs::write(&path, bytes).expect("a file");
    let words = ["osmos sim".into(), "--replay".into(), path.into_os_string()];
    sim::command::main(words.into())
}

#[test]
fn a_recording_is_decided_again_bit_for_bit() {
    let bytes = recording();
    assert!(bytes.len() > 30_000, "{} bytes", bytes.len());
    assert_eq!(replay(&bytes), ExitCode::SUCCESS);
}

#[test]
fn a_recording_of_other_decisions_is_refused() {
    let mut bytes = recording();
    // The last byte is one of the digest of the last outputs.
    let last = bytes.last_mut().expect("it is not empty");
    *last ^= 1;
    assert_eq!(replay(&bytes), ExitCode::FAILURE);
}

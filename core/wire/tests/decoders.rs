//! Every decoder, fed with what is none of its messages: no panic, no memory beyond what the bytes
//! can justify, and what it does accept is a message that it would have written.
//!
//! One test, because what is allocated is counted for the whole program.

mod samples;

use cap::Cap;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use samples::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::alloc::System;
use std::fmt::Debug;
use wire::ids::{GuestAddr, Ticket};
use wire::image::Image;
use wire::peer;
use wire::secure::{BerthHandshake, Opener, Sealer};
use wire::supervisor::{Preface, Role};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What a decoder may take before it has seen that a length lies: serde reserves at most so much
/// for all lists that are open.
const RESERVED_BYTES_MAX: usize = 8 << 20;
/// A byte may stand for so many in memory, all moves of growing lists included.
const GROWTH_MAX: usize = 256;
const CASES: u32 = 400;

/// The same cases every time: a failure is repeated by running the test again.
fn runner() -> TestRunner {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

fn check_cost<T>(name: &str, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let before = ALLOCATOR.total_allocated();
    let decoded = decode(bytes);
    let cost = ALLOCATOR.total_allocated() - before;
    let allowed = RESERVED_BYTES_MAX + GROWTH_MAX * bytes.len();
    assert!(cost <= allowed, "{name}: {cost} bytes allocated for {} given", bytes.len());
    decoded
}

/// A way to write and read one kind of message.
struct Format<T> {
    name: &'static str,
    samples: Vec<T>,
    encode: fn(&T) -> Vec<u8>,
    decode: fn(&[u8]) -> Option<T>,
}

/// Bytes that are nothing, and bytes that nearly are one of the samples.
fn hostile(encoded: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let fault = (any::<proptest::sample::Index>(), any::<u8>(), 0u8..4);
    let faults = proptest::collection::vec(fault, 1..6);
    let spoiled = (proptest::sample::select(encoded), faults).prop_map(|(mut bytes, faults)| {
        for (index, value, kind) in faults {
            match (bytes.len(), kind) {
                (0, _) => bytes.push(value),
                (length, 0) => bytes[index.index(length)] = value,
                (length, 1) => bytes.truncate(index.index(length)),
                (length, 2) => bytes.insert(index.index(length), value),
                // A length that promises far more than there is.
                (length, _) => {
                    let at = index.index(length);
                    drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([1])));
                }
            }
        }
        bytes
    });
    prop_oneof![1 => proptest::collection::vec(any::<u8>(), 0..600), 3 => spoiled]
}

impl<T: PartialEq + Debug> Format<T> {
    fn check(&self) {
        let encoded: Vec<Vec<u8>> = self.samples.iter().map(self.encode).collect();
        for (sample, bytes) in self.samples.iter().zip(&encoded) {
            assert_eq!(check_cost(self.name, bytes, self.decode).as_ref(), Some(sample));
        }
        runner()
            .run(&hostile(encoded), |bytes| {
                if let Some(message) = check_cost(self.name, &bytes, self.decode) {
                    let again = (self.decode)(&(self.encode)(&message));
                    prop_assert_eq!(again.as_ref(), Some(&message));
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }
}

fn postcard_format<T>(name: &'static str, samples: Vec<T>) -> Format<T>
where
    T: Serialize + DeserializeOwned,
{
    let encode = |message: &T| postcard::to_stdvec(message).expect("a message of ours");
    Format { name, samples, encode, decode: |bytes| postcard::from_bytes(bytes).ok() }
}

fn peer_format<T>(name: &'static str, samples: Vec<T>) -> Format<T>
where
    T: Serialize + DeserializeOwned,
{
    let encode = |message: &T| peer::encode(message).expect("a message of ours");
    Format { name, samples, encode, decode: |bytes| peer::decode(bytes).ok() }
}

fn line_format<T>(name: &'static str, samples: Vec<T>) -> Format<T>
where
    T: Serialize + DeserializeOwned,
{
    let encode = |message: &T| serde_json::to_vec(message).expect("a message of ours");
    Format { name, samples, encode, decode: |bytes| serde_json::from_slice(bytes).ok() }
}

fn check_supervisors() {
    postcard_format("to a deputy", to_deputy()).check();
    postcard_format("from a deputy", from_deputy()).check();
    postcard_format("to a body", to_body()).check();
    postcard_format("from a body", from_body()).check();
}

fn check_prefaces() {
    let roles = [Role::Peer, Role::Deputy, Role::Image, Role::Stream, Role::Late];
    let roles = roles.into_iter().chain([Role::Files, Role::Job]);
    Format {
        name: "preface",
        samples: roles.map(|role| Preface { role, ticket: Ticket([4; 16]) }).collect(),
        encode: |preface| preface.encode().to_vec(),
        decode: |bytes| Preface::decode(bytes.try_into().ok()?),
    }
    .check();
}

fn check_streams() {
    Format {
        name: "part of a stream",
        samples: parts(),
        encode: Vec::clone,
        decode: |bytes| wire::stream::decode(bytes).ok().map(|_| bytes.to_vec()),
    }
    .check();
}

fn check_late_pages() {
    let spans = vec![(GuestAddr(0x1000), GuestAddr(0x2000))];
    Format {
        name: "answer with late pages",
        samples: vec![
            [wire::late::encode(spans), vec![3; 4096]].concat(),
            wire::late::encode(vec![]),
        ],
        encode: Vec::clone,
        decode: |bytes| wire::late::decode(bytes).ok().map(|_| bytes.to_vec()),
    }
    .check();
    postcard_format("question for late pages", questions()).check();
    postcard_format("call about a file", file_calls()).check();
    postcard_format("answer about a file", file_answers()).check();
    postcard_format("whose files are served", vec![served()]).check();
}

fn check_jobs() {
    postcard_format("to a job server", to_job_server()).check();
    postcard_format("from a launcher to ranks", to_ranks()).check();
    postcard_format("from ranks to their launcher", from_ranks()).check();
}

fn check_forwarding_and_images() {
    postcard_format("to the away side", to_away()).check();
    postcard_format("to home", to_home()).check();
    postcard_format("image", vec![image()]).check();
    postcard_format("prospect", vec![prospect()]).check();
    // What is decoded is checked before it is used: that must not panic either.
    let whole = Image { later_threads: 0, ..image() };
    let mut format = postcard_format("image that is checked", vec![whole]);
    format.decode = |bytes| {
        let image: Image = postcard::from_bytes(bytes).ok()?;
        image.check(1).ok().map(|()| image)
    };
    format.check();
}

fn check_peers() {
    peer_format("hello", vec![hello()]).check();
    peer_format("selected", selected()).check();
    peer_format("peer message", peer_messages()).check();
}

fn check_control() {
    line_format("request of a tool", requests()).check();
    line_format("reply of a daemon", replies()).check();
}

/// What one side of a link seals and the other opens.
fn link() -> (Sealer, Opener) {
    let side = |made: Result<BerthHandshake, _>| made.expect("a handshake");
    let mut caller = side(BerthHandshake::initiator(&[1; 32]));
    let mut called = side(BerthHandshake::responder(&[1; 32]));
    let mut message = [0; 64];
    let length = caller.write(&mut message).expect("it fits");
    called.read(&message[..length]).expect("it is right");
    let length = called.write(&mut message).expect("it fits");
    caller.read(&message[..length]).expect("it is right");
    (caller.finish().expect("a link").0, called.finish().expect("a link").1)
}

/// Frames that the other side did not make, or not for now.
fn check_sealed_frames() {
    let (mut sealer, opener) = link();
    let mut genuine = vec![0; 4096];
    let length = sealer.seal(b"the first frame", &mut genuine).expect("it fits");
    genuine.truncate(length);
    let opener = std::cell::RefCell::new(opener);
    let open = |bytes: &[u8]| {
        let mut plain = vec![0; 8192];
        let length = opener.borrow_mut().open(bytes, &mut plain).ok()?;
        plain.truncate(length);
        Some(plain)
    };
    runner()
        .run(&hostile(vec![genuine.clone()]), |bytes| {
            prop_assume!(bytes != genuine);
            prop_assert!(open(&bytes).is_none());
            Ok(())
        })
        .expect("no frame but the genuine one is opened");
    assert_eq!(open(&genuine).as_deref(), Some(&b"the first frame"[..]), "it is still the next");
    assert!(open(&genuine).is_none(), "a frame played again is refused");
}

#[test]
fn no_decoder_panics_or_takes_more_memory_than_its_bytes_justify() {
    check_control();
    check_supervisors();
    check_prefaces();
    check_streams();
    check_late_pages();
    check_jobs();
    check_forwarding_and_images();
    check_peers();
    check_sealed_frames();
}

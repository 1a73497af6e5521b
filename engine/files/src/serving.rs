//! The connection: calls come in, workers carry them out, answers go out as they are ready.
//!
//! Calls that concern one file are carried out by one worker, in the order in which they came: the
//! other node need not wait for one before it makes the next. A disk that does not answer holds up
//! its worker, and nobody who asks whether the server is there.

use crate::handles::WORKERS;
use crate::operations::Server;
use link::{LinkReader, LinkWriter};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use wire::files::{Answer, Ask, CONTENT_BYTES_MAX, Call, Served, Told, decode, encode};

/// Bytes of calls that wait for workers: the other node is held up beyond it.
const WAITING_MAX: usize = 64 << 20;

struct Job {
    call: Call,
    content: Vec<u8>,
    _room: Room,
}

/// Serves until the other node is gone, or says what nobody says who is one of ours.
pub fn serve(
    server: &Arc<Server>,
    (mut reader, mut writer): (LinkReader, LinkWriter),
    served: Served,
) -> io::Result<()> {
    writer.send(&served).map_err(io::Error::other)?;
    let writer = Arc::new(Mutex::new(writer));
    let waiting = Arc::new(Waiting::default());
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let (to, jobs) = channel();
        let (server, writer) = (server.clone(), writer.clone());
        let name = format!("files-{number}");
        std::thread::Builder::new().name(name).spawn(move || work(&server, &jobs, &writer))?;
        workers.push(to);
    }
    loop {
        let message = reader.receive_bytes().map_err(io::Error::other)?;
        let (call, content): (Call, &[u8]) = decode(message).map_err(io::Error::other)?;
        if content.len() > CONTENT_BYTES_MAX as usize {
            return Err(io::Error::other(format!("a call with {} bytes", content.len())));
        }
        match call.ask {
            Ask::Ping => answer(&writer, &Answer { id: call.id, result: Ok(Told::Done) }, &[])?,
            Ask::Forget(files) => server.forget(&files),
            _ => {
                let room = waiting.take(content.len());
                let worker: &Sender<Job> = &workers[(call.ask.file() % WORKERS) as usize];
                let job = Job { call, content: content.to_vec(), _room: room };
                worker.send(job).map_err(|_| io::Error::other("a worker has ended"))?;
            }
        }
    }
}

fn work(server: &Server, jobs: &Receiver<Job>, writer: &Mutex<LinkWriter>) {
    for Job { call, content, _room } in jobs {
        let mut told = Vec::new();
        let result = server.carry_out(call.ask, &content, &mut told);
        let result = result.map_err(|errno| errno.raw_os_error().unsigned_abs() as u16);
        if answer(writer, &Answer { id: call.id, result }, &told).is_err() {
            return;
        }
    }
}

fn answer(writer: &Mutex<LinkWriter>, answer: &Answer, content: &[u8]) -> io::Result<()> {
    let mut writer = writer.lock().expect("nobody panics with it");
    writer.send_bytes(&[&encode(answer), content]).map_err(io::Error::other)
}

/// What calls take that wait.
#[derive(Default)]
struct Waiting {
    bytes: Mutex<usize>,
    less: std::sync::Condvar,
}

struct Room {
    of: Arc<Waiting>,
    bytes: usize,
}

impl Waiting {
    fn take(self: &Arc<Waiting>, bytes: usize) -> Room {
        let held = self.bytes.lock().expect("nobody panics with it");
        let is_full = |held: &mut usize| *held + bytes > WAITING_MAX;
        *self.less.wait_while(held, is_full).expect("nobody panics with it") += bytes;
        Room { of: self.clone(), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.of.bytes.lock().expect("nobody panics with it") -= self.bytes;
        self.of.less.notify_one();
    }
}

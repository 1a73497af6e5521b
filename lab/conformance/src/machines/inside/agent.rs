//! Runs commands for the harness, each with a connection of its own.

use crate::machines::image::Identity;
use crate::machines::protocol::{Frame, PORT, Start};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
const PIECE_BYTES: usize = 64 << 10;

/// Everybody who is told something writes whole frames.
type Teller = Arc<Mutex<TcpStream>>;

pub fn serve() -> Result<()> {
    let line = std::fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    let identity = Identity::of_command_line(&line)?;
    // Only the harness is on this cable.
    let listener = TcpListener::bind((identity.control, PORT))
        .with_context(|| format!("cannot listen on {}:{PORT}", identity.control))?;
    for stream in listener.incoming() {
        let stream = stream.context("cannot take connections")?;
        std::thread::spawn(move || {
            if let Err(error) = attend(stream) {
                eprintln!("machine-init: {error:#}");
            }
        });
    }
    Ok(())
}

fn attend(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let Some(Frame::Start(start)) = Frame::read(&mut stream)? else {
        bail!("the harness does not begin with a command");
    };
    let teller: Teller = Arc::new(Mutex::new(stream.try_clone()?));
    let mut child = match command(&start).spawn() {
        Ok(child) => child,
        Err(error) => return tell(&teller, &Frame::Failed(error.to_string())),
    };
    let input = child.stdin.take();
    let group = Pid::from_raw(child.id() as i32);
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let tellers = [
        pass_on(child.stdout.take(), &teller, Frame::Output),
        pass_on(child.stderr.take(), &teller, Frame::Errors),
    ];
    std::thread::spawn(move || {
        if feed(&mut stream, input).is_err() && !ended.load(Ordering::Acquire) {
            // Whoever asked for it has gone.
            let _ = killpg(group, Signal::SIGKILL);
        }
    });
    let status = finish(&mut child, tellers)?;
    has_ended.store(true, Ordering::Release);
    tell(&teller, &Frame::Ended(status))
}

/// The command ends when its process does; what it left behind may hold its streams for longer, and
/// those are heard to their end, as a pipe of a shell is.
fn finish(child: &mut Child, tellers: [Option<JoinHandle<()>>; 2]) -> Result<i32> {
    let status = child.wait().context("lost the command")?;
    for thread in tellers.into_iter().flatten() {
        let _ = thread.join();
    }
    Ok(status.into_raw())
}

fn command(start: &Start) -> Command {
    let mut command = Command::new(start.words.first().map_or("", String::as_str));
    command.args(start.words.iter().skip(1)).env_clear().env("PATH", SEARCH_PATH);
    command.env("LC_ALL", "C").env("HOME", home(start.uid)).current_dir("/");
    command.uid(start.uid).gid(start.uid);
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn home(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let own = fields.find(|fields| fields.get(2) == Some(&uid.to_string().as_str()));
    own.and_then(|fields| Some(fields.get(5)?.to_string())).unwrap_or_else(|| "/".into())
}

/// Gives the command its input, until there is no more of it; fails if the connection ends first.
fn feed(stream: &mut TcpStream, mut input: Option<ChildStdin>) -> Result<()> {
    loop {
        match Frame::read(stream)? {
            Some(Frame::Input(bytes)) => {
                // Commands need not read their input.
                if input.as_mut().is_some_and(|input| input.write_all(&bytes).is_err()) {
                    input = None;
                }
            }
            Some(Frame::InputEnd) => input = None,
            Some(other) => bail!("the harness says {other:?} out of turn"),
            None => bail!("the harness has gone"),
        }
    }
}

fn pass_on(
    stream: Option<impl Read + Send + 'static>,
    teller: &Teller,
    frame: fn(Vec<u8>) -> Frame,
) -> Option<JoinHandle<()>> {
    let (mut stream, teller) = (stream?, Arc::clone(teller));
    Some(std::thread::spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            if tell(&teller, &frame(piece[..count].to_vec())).is_err() {
                break;
            }
        }
    }))
}

fn tell(teller: &Teller, frame: &Frame) -> Result<()> {
    frame.write(&mut *teller.lock().expect("no thread panics with it"))
}

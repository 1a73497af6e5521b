//! Commands in a machine, from outside.

use crate::machines::protocol::{Frame, PORT, Start};
use crate::subject::Ending;
use anyhow::{Context, Result, bail, ensure};
use lab::Switch;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A machine on the same cable answers at once, if it is there.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long a command of the harness's own may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(120);
const PIECE_BYTES: usize = 64 << 10;

/// What came of a command.
#[derive(Debug)]
pub struct Ended {
    pub ending: Ending,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Remote {
    switch: Switch,
    address: Ipv4Addr,
}

impl Remote {
    pub fn new(switch: Switch, address: Ipv4Addr) -> Remote {
        Remote { switch, address }
    }

    /// Runs a command to its end.
    pub fn output(&self, uid: u32, words: &[&str], input: &[u8]) -> Result<Ended> {
        let mut stream = self.start(uid, words)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        for piece in input.chunks(PIECE_BYTES) {
            Frame::Input(piece.to_vec()).write(&mut stream)?;
        }
        Frame::InputEnd.write(&mut stream)?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match Frame::read(&mut stream)? {
                Some(Frame::Output(bytes)) => stdout.extend(bytes),
                Some(Frame::Errors(bytes)) => stderr.extend(bytes),
                Some(Frame::Ended(status)) => {
                    let ending = Ending::from_wait_status(status);
                    return Ok(Ended { ending, stdout, stderr });
                }
                Some(Frame::Failed(text)) => bail!("cannot run {}: {text}", words[0]),
                other => bail!("the machine says {other:?} instead of how {} ended", words[0]),
            }
        }
    }

    /// Runs a command that has to succeed; returns what it printed.
    pub fn must(&self, uid: u32, words: &[&str]) -> Result<String> {
        let ended = self.output(uid, words, &[])?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        ensure!(
            ended.ending == Ending::Exit(0),
            "`{}` gave {}: {} {}",
            words.join(" "),
            ended.ending,
            text(&ended.stdout),
            text(&ended.stderr)
        );
        Ok(text(&ended.stdout))
    }

    /// Runs a command with this process's own streams; returns the exit status of a shell.
    pub fn exec(&self, uid: u32, words: &[&str]) -> Result<u8> {
        let mut stream = self.start(uid, words)?;
        let mut sender = stream.try_clone()?;
        // Ends with this process: nobody else can end a read of its input.
        std::thread::spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            while let Ok(count @ 1..) = std::io::stdin().read(&mut piece) {
                if Frame::Input(piece[..count].to_vec()).write(&mut sender).is_err() {
                    return;
                }
            }
            // The machine may be through with it.
            let _ = Frame::InputEnd.write(&mut sender);
        });
        loop {
            match Frame::read(&mut stream)? {
                Some(Frame::Output(bytes)) => {
                    let mut output = std::io::stdout().lock();
                    output.write_all(&bytes).and_then(|()| output.flush())?;
                }
                Some(Frame::Errors(bytes)) => std::io::stderr().write_all(&bytes)?,
                Some(Frame::Ended(status)) => {
                    return Ok(match Ending::from_wait_status(status) {
                        Ending::Exit(status) => status as u8,
                        Ending::Signal(signal) => 128 + signal as u8,
                    });
                }
                Some(Frame::Failed(text)) => bail!("cannot run {}: {text}", words[0]),
                other => bail!("the machine says {other:?} instead of how {} ended", words[0]),
            }
        }
    }

    fn start(&self, uid: u32, words: &[&str]) -> Result<TcpStream> {
        let address = SocketAddr::from((self.address, PORT));
        let mut stream = self.switch.inside(|| {
            TcpStream::connect_timeout(&address, CONNECT_PATIENCE)
                .context("the machine does not answer")
        })?;
        stream.set_nodelay(true)?;
        let words = words.iter().map(|word| word.to_string()).collect();
        Frame::Start(Start { words, uid }).write(&mut stream)?;
        Ok(stream)
    }
}

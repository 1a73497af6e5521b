//! A pseudo-terminal in a lab node: what a user types, and what he sees.

use crate::stage::{Stage, text, until};
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A session of its own whose terminal we hold.
pub struct Terminal {
    master: File,
    /// Of its other end.
    path: String,
    screen: Arc<Mutex<Vec<u8>>>,
    /// What of the screen was read already.
    read: usize,
    child: Child,
}

impl Terminal {
    /// Starts a program on node 1 as the leader of a new session on a new terminal.
    pub fn open(stage: &Stage, words: &[&str]) -> Terminal {
        let (master, slave, path) = open_pair().expect("a pseudo-terminal");
        let slave = || Stdio::from(slave.try_clone().expect("a descriptor"));
        // A shell hands on what it was started with ignored, as tests in the background are.
        let heeding = ["env", "--default-signal=INT,QUIT", "setsid", "--ctty", "--wait"];
        let mut command = stage.command(1, &heeding);
        let child = command.args(words).stdin(slave()).stdout(slave()).stderr(slave()).spawn();
        drop(command);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut reader = master.try_clone().expect("a descriptor");
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error says that nobody has the terminal open any more.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                shown.lock().expect("a screen").extend_from_slice(&buffer[..length]);
            }
        });
        Terminal { master, path, screen, read: 0, child: child.expect("a program on the terminal") }
    }

    pub fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the terminal takes it");
    }

    /// Waits until the text appears after what was read before; returns what stands between.
    pub fn expect(&mut self, wanted: &str) -> String {
        let (screen, start) = (self.screen.clone(), self.read);
        let shown = || text(&screen.lock().expect("a screen")[start..]);
        let (before, end) = until(&format!("the terminal shows {wanted:?}"), || {
            let shown = shown();
            let at = shown.find(wanted)?;
            Some((shown[..at].to_owned(), at + wanted.len()))
        });
        self.read += end;
        before
    }

    pub fn resize(&self, columns: u32) {
        let words = ["-F", &self.path, "columns", &columns.to_string()];
        let status = Command::new("stty").args(words).status().expect("stty");
        assert!(status.success(), "stty {words:?}: {status}");
    }

    /// All that it ever showed.
    pub fn shown(&self) -> String {
        text(&self.screen.lock().expect("a screen"))
    }
}

/// Both ends of a new pseudo-terminal, kept from programs that other tests start meanwhile.
fn open_pair() -> std::io::Result<(File, File, String)> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
    let path = ptsname_r(&master)?;
    let slave = options.open(&path)?;
    Ok((File::from(OwnedFd::from(master)), slave, path))
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- terminal\n{}\n---", self.shown());
        }
        // Whatever still runs on the terminal is hung up, or ends with the lab.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

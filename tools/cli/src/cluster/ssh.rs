//! One machine that is reached by the user's own ssh: his configuration, agent, keys and jump hosts
//! count, and what has to be typed is asked for once, since all that follows goes through the first
//! connection.
//!
//! Scripts go to a shell through its standard input, so that nothing has to be quoted for whatever
//! login shell the user has there, and nothing of them is seen in a list of processes.

use crate::output;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

/// What a machine may print to one script.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
/// Of what it complains of, the last lines are shown.
const COMPLAINT_LINES_MAX: usize = 5;

/// A machine, and the connection to it.
pub struct Remote {
    host: String,
    /// By which further commands find the connection.
    socket: PathBuf,
}

impl Remote {
    /// Opens the connection, which may ask the user for something. `directory` is private to him.
    pub fn connect(host: &str, directory: &Path, number: usize) -> Result<Remote> {
        check(host)?;
        let remote = Remote { host: host.to_owned(), socket: directory.join(number.to_string()) };
        let status = remote
            .ssh()
            .args(["-M", "-N", "-f", "-o", "ControlPersist=yes", "--", host])
            .stdin(Stdio::inherit())
            .stdout(Stdio::null())
            .status()
            .context("cannot run ssh: is it installed?")?;
        ensure!(status.success(), "ssh cannot connect: `ssh {host}` has to work first");
        Ok(remote)
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Has a shell there carry out a script, and returns what it prints.
    pub fn run(&self, script: &str) -> Result<String> {
        let mut child = self.start("exec sh -s")?;
        let mut input = child.stdin.take().context("it has no standard input")?;
        // One that ends before it has read all of it says why.
        let _ = input.write_all(script.as_bytes());
        drop(input);
        finish(child)
    }

    /// The same with a file as its standard input; `command` has no single quotes and nothing of
    /// the user's.
    pub fn feed(&self, command: &str, file: &mut File) -> Result<String> {
        let mut child = self.start(&format!("exec sh -c '{command}'"))?;
        let mut input = child.stdin.take().context("it has no standard input")?;
        let _ = std::io::copy(file, &mut input);
        drop(input);
        finish(child)
    }

    fn start(&self, command: &str) -> Result<Child> {
        self.ssh()
            .args(["-T", "--", &self.host, command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run ssh")
    }

    /// What ends the connection.
    pub fn closing(&self) -> impl FnOnce() + 'static {
        let mut end = self.ssh();
        end.args(["-q", "-O", "exit", "--", &self.host]);
        move || {
            // Without anybody to tell it, it ends when the machine does.
            let _ = end.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }

    fn ssh(&self) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-o").arg(format!("ControlPath={}", self.socket.display()));
        command
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.closing()();
    }
}

/// A host is a word for ssh, and no option of it.
pub fn check(host: &str) -> Result<()> {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    if host.is_empty() || host.starts_with('-') || !host.chars().all(is_plain) {
        bail!("`{}` is no host: HOST or USER@HOST, as ssh knows it", output::printable(host));
    }
    Ok(())
}

fn finish(child: Child) -> Result<String> {
    let output = bounded(child)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = complaint.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(COMPLAINT_LINES_MAX)..];
    match last {
        [] => bail!("the command there failed ({})", output.status),
        last => bail!("{}", output::printable(&last.join("; "))),
    }
}

/// Waits for the end; of what it prints no more is kept than is looked at.
fn bounded(mut child: Child) -> Result<Output> {
    let (stdout, stderr) = (keep(child.stdout.take()), keep(child.stderr.take()));
    let status = child.wait().context("cannot wait for ssh")?;
    let lost = |_| anyhow::anyhow!("what ssh printed was lost");
    let (stdout, stderr) = (stdout.join().map_err(lost)?, stderr.join().map_err(lost)?);
    Ok(Output { status, stdout, stderr })
}

/// Reads to the end.
fn keep(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
            // The rest goes nowhere, or its writer would wait.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_word_and_no_option() {
        for host in ["two", "anna@two.example.org", "fe80::1%eth0", "größe"] {
            assert!(check(host).is_ok(), "{host}");
        }
        for host in ["", "-oProxyCommand=touch /tmp/x", "a b", "a\nb", "\u{1b}[2J"] {
            let error = check(host).unwrap_err().to_string();
            assert!(error.contains("is no host") && !error.contains('\u{1b}'), "{error}");
        }
    }

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("started")
    }

    #[test]
    fn a_complaint_is_the_last_lines_and_steers_no_terminal() {
        assert_eq!(finish(shell("echo out; echo err >&2")).expect("done"), "out\n");
        let script =
            "for i in 1 2 3 4 5 6 7; do printf 'line %d\\033[2J\\n\\n' $i >&2; done; exit 3";
        let error = finish(shell(script)).unwrap_err().to_string();
        assert_eq!(error, "line 3?[2J; line 4?[2J; line 5?[2J; line 6?[2J; line 7?[2J");
        let error = finish(shell("exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn who_prints_without_end_is_read_to_the_end_and_not_kept() {
        let child = shell("head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2");
        let output = bounded(child).expect("ended");
        assert_eq!(output.stdout.len() as u64, OUTPUT_BYTES_MAX);
    }
}

//! One machine that is reached by the user's own ssh: his configuration, agent, keys and jump hosts
//! count, and what has to be typed is asked for once, since all that follows goes through the first
//! connection.
//!
//! This machine is one of them where its own daemon is to be root's: then the same scripts run
//! here.
//!
//! Scripts go to a shell through its standard input, so that nothing has to be quoted for whatever
//! login shell the user has there, and nothing of them is seen in a list of processes.

use crate::output;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

/// What a machine may print to one script.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
/// Of what it complains of, the last lines are shown.
const COMPLAINT_LINES_MAX: usize = 5;

/// Says whether who logs in may do all there without being asked, and why not.
const MAY: &str = "\
[ \"$(id -u)\" = 0 ] && { echo root; exit; }
command -v sudo >/dev/null || { echo 'it has no sudo' >&2; exit 1; }
sudo -n true && echo sudo
";

/// A machine, and the connection to it.
pub struct Remote {
    host: String,
    /// By which further commands find the connection; none to this machine.
    socket: Option<PathBuf>,
    /// Whose daemon is meant, and as whom scripts run.
    authority: Authority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Who logs in.
    User,
    /// Root, who logs in himself.
    Root,
    /// Root, by sudo.
    Sudo,
}

impl Remote {
    /// Opens the connection, which may ask the user for something. `directory` is private to him.
    pub fn connect(host: &str, directory: &Path, number: usize) -> Result<Remote> {
        check(host)?;
        let socket = directory.join(number.to_string());
        let mut open = ssh(&socket);
        let status = open
            .args(["-M", "-N", "-f", "-o", "ControlPersist=yes", "--", host])
            .stdin(Stdio::inherit())
            .stdout(Stdio::null())
            .status()
            .context("cannot run ssh: is it installed?")?;
        ensure!(status.success(), "ssh cannot connect: `ssh {host}` has to work first");
        let (host, socket) = (host.to_owned(), Some(socket));
        Ok(Remote { host, socket, authority: Authority::User })
    }

    /// This machine.
    pub fn here() -> Remote {
        let host = "this machine".to_owned();
        Remote { host, socket: None, authority: Authority::User }
    }

    /// From here on scripts run as root. Nobody is asked for a password: what sudo keeps of one is
    /// for the terminal at which it was typed.
    pub fn become_root(mut self) -> Result<Remote> {
        let said = self.run(MAY).map_err(|error| {
            anyhow::anyhow!(
                "cannot become root there: {error:#}. Sudo has to do without a password, by a \
                 line `USER ALL=(ALL) NOPASSWD: ALL` in a file of /etc/sudoers.d, or root has to \
                 log in: root@HOST"
            )
        })?;
        let is_root = said.lines().any(|line| line == "root");
        self.authority = if is_root { Authority::Root } else { Authority::Sudo };
        Ok(self)
    }

    /// Whether the daemon that is meant is root's, a service of the system.
    pub fn is_system(&self) -> bool {
        self.authority != Authority::User
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Has a shell there carry out a script, and returns what it prints.
    pub fn run(&self, script: &str) -> Result<String> {
        let mut child = self.start(&format!("exec {}sh -s", self.prefix()))?;
        let mut input = child.stdin.take().context("it has no standard input")?;
        // One that ends before it has read all of it says why.
        let _ = input.write_all(script.as_bytes());
        drop(input);
        finish(child)
    }

    /// The same with bytes as its standard input; `command` has no single quotes and nothing of
    /// the user's.
    pub fn feed(&self, command: &str, mut bytes: &[u8]) -> Result<String> {
        let mut child = self.start(&format!("exec {}sh -c '{command}'", self.prefix()))?;
        let mut input = child.stdin.take().context("it has no standard input")?;
        let _ = std::io::copy(&mut bytes, &mut input);
        drop(input);
        finish(child)
    }

    fn start(&self, command: &str) -> Result<Child> {
        let mut shell = match &self.socket {
            Some(socket) => {
                let mut ssh = ssh(socket);
                ssh.args(["-T", "--", &self.host, command]);
                ssh
            }
            None => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]);
                shell
            }
        };
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run ssh")
    }

    /// Sudo takes all variables away: one of them is looked at.
    fn prefix(&self) -> &'static str {
        match self.authority {
            Authority::User | Authority::Root => "",
            Authority::Sudo => "sudo -n env SSH_CONNECTION=\"$SSH_CONNECTION\" ",
        }
    }

    /// What ends the connection; nothing to this machine.
    pub fn closing(&self) -> impl FnOnce() + 'static {
        let end = self.socket.as_ref().map(|socket| {
            let mut end = ssh(socket);
            end.args(["-q", "-O", "exit", "--", &self.host]);
            end
        });
        move || {
            let Some(mut end) = end else { return };
            // Without anybody to tell it, it ends when the machine does.
            let _ = end.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

fn ssh(socket: &Path) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-o").arg(format!("ControlPath={}", socket.display()));
    command
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

    #[test]
    fn scripts_run_here_as_they_do_elsewhere() {
        let here = Remote::here();
        assert!(!here.is_system());
        assert_eq!(here.run("echo $((6 * 7))\n").expect("done"), "42\n");
        assert_eq!(here.feed("tr a-z A-Z", b"fed").expect("done"), "FED");
        let refused = here.run("echo no >&2; exit 1\n").unwrap_err().to_string();
        assert_eq!(refused, "no");
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

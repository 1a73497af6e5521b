//! Where programs are run: in node 1 of a lab, or directly on this machine where no flavour needs
//! Osmos, or on a node that somebody else has made. All are driven in the same way: by commands,
//! with or without `osmos lab exec` or the like before.

use anyhow::{Context, Result, bail, ensure};
use lab::{Lab, Spec};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The lab is made for the tests and has their name.
pub const LAB: &str = "conformance";
/// Node 1 is everybody's home.
const NODES: u32 = 3;
const AWAY: [u32; 2] = [2, 3];
/// What one answer of a console may be: more is a fault.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Ends every answer of a console.
const MARK: &str = "-- conformance console:";

/// A place to run programs in. The lab is taken down, and files are removed, when it is dropped.
pub struct Stage {
    prefix: Vec<String>,
    directory: String,
    /// Nodes that programs are moved to; empty where there is no Osmos.
    away: Vec<u32>,
    /// If it was made for this.
    _lab: Option<Lab>,
    _files: Option<tempfile::TempDir>,
}

impl Stage {
    /// This machine itself.
    pub fn machine() -> Result<Stage> {
        let files = tempfile::Builder::new().prefix("osmos-conformance-").tempdir()?;
        let directory = files.path().to_str().context("the temporary directory has an odd name")?;
        let directory = directory.to_string();
        let prefix = Vec::new();
        Ok(Stage { prefix, directory, away: Vec::new(), _lab: None, _files: Some(files) })
    }

    /// Node 1 of a new lab that the program `osmos` makes, without these kernel features.
    ///
    /// # Errors
    /// [`lab::NoLab`] if this machine cannot have one.
    pub fn lab(osmos: &Path, without: &[String]) -> Result<Stage> {
        let spec = Spec { without: without.to_vec(), ..Spec::unlimited(osmos, LAB, NODES)? };
        let lab = Lab::up(&spec)?;
        lab.down_when_interrupted()?;
        let word =
            |word: OsString| word.into_string().ok().context("the path of osmos is not text");
        let prefix = lab.node(1).prefix().into_iter().map(word).collect::<Result<_>>()?;
        let directory = format!("/tmp/osmos-{LAB}");
        Ok(Stage { prefix, directory, away: AWAY.to_vec(), _lab: Some(lab), _files: None })
    }

    /// The node that these words before a command lead to, whose cluster has these other nodes.
    ///
    /// # Errors
    /// If they do not find each other.
    pub fn over(prefix: Vec<String>, away: Vec<u32>) -> Result<Stage> {
        let directory = format!("/tmp/osmos-{LAB}");
        let stage = Stage { prefix, directory, away, _lab: None, _files: None };
        stage.await_nodes()?;
        Ok(stage)
    }

    /// Joining takes a moment; a move to a node that is not yet known would be refused.
    fn await_nodes(&self) -> Result<()> {
        let nodes = self.away.len() + 1;
        let script = format!(
            "for step in $(seq 200); do n=$(osmos nodes --json | tr ',' '\\n' | grep -c alive); \
             [ \"$n\" -ge {nodes} ] && exit 0; sleep 0.1; done; exit 1"
        );
        let output = self.command(&["sh", "-c", &script]).output()?;
        ensure!(output.status.success(), "the {nodes} nodes do not find each other");
        Ok(())
    }

    /// The nodes that programs can be moved to.
    pub fn away(&self) -> &[u32] {
        &self.away
    }

    /// Where its files are.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// A command that runs here, not started yet.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut all = self.prefix.iter().map(String::as_str).chain(words.iter().copied());
        let mut command = Command::new(all.next().expect("a command has a first word"));
        command.args(all).stdin(Stdio::null());
        command
    }

    /// Writes a file; the directories on its way are made.
    pub fn put(&self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = format!("{}/{name}", self.directory);
        let script = format!(
            "mkdir -p \"$(dirname '{path}')\" && cat > '{path}' && chmod {mode:o} '{path}'"
        );
        let mut child = self.command(&["sh", "-c", &script]).stdin(Stdio::piped()).spawn()?;
        let written = child.stdin.take().expect("it is piped").write_all(bytes);
        let status = child.wait()?;
        ensure!(status.success() && written.is_ok(), "cannot write {path} in the lab: {status}");
        Ok(())
    }

    pub fn console(&self) -> Result<Console> {
        let mut child =
            self.command(&["sh"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Console { child, input, output })
    }
}

/// A shell that stays, so that a small command costs no new entry into the lab.
pub struct Console {
    child: Child,
    /// Always there, until the console is dropped.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Console {
    /// Runs a script in a subshell; returns its exit status and what it printed, errors included.
    pub fn run(&mut self, script: &str) -> Result<(i32, Vec<u8>)> {
        let input = self.input.as_mut().context("the console has no input")?;
        writeln!(input, "({script}\n) < /dev/null 2>&1; s=$?; echo; echo '{MARK}' $s")
            .context("the console has ended")?;
        let mut answer = Vec::new();
        loop {
            let start = answer.len();
            let got = (&mut self.output)
                .take((ANSWER_BYTES_MAX - start) as u64)
                .read_until(b'\n', &mut answer)?;
            ensure!(
                got > 0,
                "the console has ended, or answers more than {ANSWER_BYTES_MAX} bytes"
            );
            if let Some(status) = answer[start..].strip_prefix(MARK.as_bytes()) {
                let status = String::from_utf8_lossy(status).trim().parse()?;
                answer.truncate(start.saturating_sub(1));
                return Ok((status, answer));
            }
        }
    }

    /// Runs a script that has to succeed.
    pub fn must(&mut self, script: &str) -> Result<Vec<u8>> {
        let (status, answer) = self.run(script)?;
        if status != 0 {
            bail!("`{script}` gave {status}: {}", String::from_utf8_lossy(&answer).trim());
        }
        Ok(answer)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // The shell ends with its input.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_console_gives_status_and_exact_output_of_each_script() {
        let stage = Stage::machine().unwrap();
        let mut console = stage.console().unwrap();
        assert_eq!(console.run("printf abc; exit 3").unwrap(), (3, b"abc".to_vec()));
        assert_eq!(console.run("printf 'a\\n\\n'; cat").unwrap(), (0, b"a\n\n".to_vec()));
        assert_eq!(console.run("echo wrong >&2").unwrap(), (0, b"wrong\n".to_vec()));
        assert!(console.must("false").is_err());
        assert!(console.run("kill $$; exec sleep 1").is_err(), "the console itself was ended");
    }

    #[test]
    fn files_put_on_a_stage_have_their_mode_and_go_with_it() {
        let stage = Stage::machine().unwrap();
        stage.put("a/b", b"bytes", 0o640).unwrap();
        let path = Path::new(stage.directory()).join("a/b");
        assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
        drop(stage);
        assert!(!path.exists());
    }
}

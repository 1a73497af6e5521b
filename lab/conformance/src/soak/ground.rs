//! The lab in which a soak happens, and the files that its programs need on each node.

use crate::soak::programs::{GUESTS, PROGRAMS};
use anyhow::{Context, Result};
use client::Client;
use lab::{Lab, Node, Spec};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// On each node; every node has a /tmp of its own.
pub const DIRECTORY: &str = "/tmp/soak";
/// Below it: where the programs run, and where their oracles did.
pub const RUN: &str = "run";
pub const NATIVE: &str = "native";
/// Tells programs to end, when it is there.
const STOP: &str = "stop";
/// Of the conformance tests' words, so much is packed: about a third of a second.
const WORDS_BYTES: usize = 300 << 10;

pub struct Ground {
    lab: Lab,
}

impl Ground {
    /// A lab of equal nodes without CPU limits, furnished. It is taken down when this is dropped.
    pub fn prepare(osmos: &Path, nodes: u32, without: &[String]) -> Result<Ground> {
        let name = format!("soak-{}", std::process::id());
        let spec = Spec { without: without.to_vec(), ..Spec::unlimited(osmos, &name, nodes)? };
        let guests = compile_guests()?;
        let ground = Ground { lab: Lab::up(&spec)? };
        ground.lab.down_when_interrupted()?;
        for node in ground.nodes() {
            furnish(&node, &guests)?;
        }
        Ok(ground)
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.lab.nodes()
    }

    pub fn node(&self, number: u32) -> Node<'_> {
        self.lab.node(number)
    }

    /// A command on a node, in a directory of the ground.
    pub fn command(&self, node: u32, place: &str, words: &[String]) -> Command {
        let mut command = self.node(node).command("sh");
        let enter = format!("cd {DIRECTORY}/{place} && exec \"$@\"");
        command.args(["-c", &enter, "sh"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A connection to the daemon of a node, from outside the node.
    pub fn client(&self, node: u32) -> Result<Client> {
        self.node(node).client()
    }

    /// A file of the ground as this process can open it.
    pub fn path(&self, node: u32, place: &str, name: &str) -> Result<PathBuf> {
        self.node(node).path(&format!("{DIRECTORY}/{place}/{name}"))
    }

    /// Tells the programs of one place on all nodes to end.
    pub fn stop(&self, place: &str) -> Result<()> {
        for node in self.nodes() {
            let path = self.path(node.id().0, place, STOP)?;
            fs::write(&path, b"").with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// The guests, compiled: names and contents.
fn compile_guests() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let directory = crate::suite::guest_dir();
    crate::guests::compile(&GUESTS, &directory)?;
    let read = |name: &'static str| {
        let path = directory.join(name);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok((name, bytes))
    };
    GUESTS.into_iter().map(read).collect()
}

fn furnish(node: &Node<'_>, guests: &[(&'static str, Vec<u8>)]) -> Result<()> {
    let root = node.path(DIRECTORY)?;
    for place in [RUN, NATIVE, "programs", "guests"] {
        let directory = root.join(place);
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    for program in PROGRAMS {
        fs::write(root.join("programs").join(program.file), program.source)?;
    }
    for (name, bytes) in guests {
        let path = root.join("guests").join(name);
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let (_, mut words) = crate::inputs::all()
        .find(|(name, _)| *name == "words")
        .context("the conformance tests have no input called words")?;
    words.truncate(WORDS_BYTES);
    fs::write(root.join("words"), words)?;
    Ok(())
}

//! The switch of a lab from outside: where machines are plugged in that are no nodes of it.
//!
//! A virtual machine beside the nodes is a process of the lab's PID namespace whose network card is
//! a tap device of the switch's network namespace: so it is on the nodes' network, it ends with the
//! lab, and nothing of it is seen in the machine's own network.

use crate::lab::Lab;
use crate::network;
use crate::process::Keeper;
use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::process::{Command, Output};

/// Holds nothing open: it can outlive its lab, and then every use of it fails.
#[derive(Clone, Debug)]
pub struct Switch {
    keeper: Keeper,
}

impl Lab {
    /// Where machines are plugged in.
    pub fn switch(&self) -> Result<Switch> {
        let keeper = self.record().switch.clone().context("the lab has no switch")?;
        Ok(Switch { keeper })
    }
}

impl Switch {
    /// Does something on a thread in the switch's network; what that opens stays there.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.on_thread(&[("net", CloneFlags::CLONE_NEWNET)], act)
    }

    /// Runs a program to its end in the switch's network and PID namespace. What it leaves behind
    /// is reaped by the switch, and ends with it.
    pub fn output(&self, command: &mut Command) -> Result<Output> {
        let kinds = [("net", CloneFlags::CLONE_NEWNET), ("pid", CloneFlags::CLONE_NEWPID)];
        self.on_thread(&kinds, || {
            let program = command.get_program().to_string_lossy().into_owned();
            command.output().with_context(|| format!("cannot run {program}"))
        })
    }

    /// Plugs a tap device into the bridge; the nodes reach whoever has it.
    pub fn plug(&self, link: &str) -> Result<()> {
        self.inside(|| network::plug(link))
    }

    /// Gives a tap device an address of its own, apart from the bridge: a cable to this end only.
    pub fn attend(&self, link: &str, address: Ipv4Addr, prefix_bits: u8) -> Result<()> {
        self.inside(|| network::attend(link, address, prefix_bits))
    }

    /// Draws the cable of a link, or puts it back.
    pub fn set_link(&self, link: &str, is_up: bool) -> Result<()> {
        self.inside(|| network::set_link(link, is_up))
    }

    /// Namespaces are those of threads: a thread that has joined some ends there.
    fn on_thread<T: Send>(
        &self,
        kinds: &[(&str, CloneFlags)],
        act: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let open = |kind: &str| -> io::Result<File> {
            File::open(format!("/proc/{}/ns/{kind}", self.keeper.pid))
        };
        let mut files = Vec::with_capacity(kinds.len());
        for (kind, flag) in kinds {
            let file = open(kind).with_context(|| format!("cannot open its {kind} namespace"))?;
            files.push((file, *flag));
        }
        // Compared after opening: what is open now is the switch's and not a later process's.
        ensure!(self.keeper.is_alive(), "the lab has ended");
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                for (file, flag) in files {
                    setns(file, flag).context("cannot enter the lab's switch: that needs root")?;
                }
                act()
            });
            thread.join().expect("it returns its errors")
        })
    }
}

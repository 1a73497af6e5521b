//! This machine in a cluster that is brought up: its daemon makes the tokens with which the others
//! join. It is the user's own, or, as those of the others, root's as a service of the system.

use super::program::OwnProgram;
use super::ssh::Remote;
use super::{Ground, machine, tell};
use crate::commands::{daemon, membership};
use crate::daemon_options::DaemonOptions;
use anyhow::{Context, Result, bail, ensure};
use client::{Client, Error};
use std::path::PathBuf;
use wire::control::{Status, runtime_dir_default};

pub struct Here {
    pub status: Status,
    socket: PathBuf,
    /// By which tokens are made where this user may ask for none.
    root: Option<Remote>,
}

impl Here {
    /// The daemon here, started if none runs.
    pub fn up(ground: &Ground<'_>, sudo: bool, program: &OwnProgram) -> Result<Here> {
        let here = match sudo {
            true => Here::up_as_service(ground, program)?,
            false => Here::up_as_user(ground)?,
        };
        ensure!(
            here.status.cluster.is_some(),
            "the daemon here is of an older version: `osmos up --replace` first"
        );
        Ok(here)
    }

    fn up_as_user(ground: &Ground<'_>) -> Result<Here> {
        let socket = match Client::connect(ground.socket) {
            Err(Error::NoDaemon(_)) => {
                let status = daemon::begin(ground.platform)?;
                tell("this machine", &format!("node {} is up", status.node));
                ground.platform.daemon_files(&DaemonOptions::default()).socket
            }
            Err(error) => return Err(error.into()),
            Ok(_) => ground.socket.to_owned(),
        };
        let status = membership::ask_status(&mut Client::connect(&socket)?)?;
        Ok(Here { status, socket, root: None })
    }

    fn up_as_service(ground: &Ground<'_>, program: &OwnProgram) -> Result<Here> {
        let socket = systems_socket();
        if ground.socket != socket && Client::connect(ground.socket).is_ok() {
            bail!(
                "a daemon runs here that is not root's ({}): end it by `osmos down` first, or \
                 leave out `--sudo`",
                ground.socket.display()
            );
        }
        let root = root_here()?;
        let found = machine::look(&root).context("this machine")?;
        if program.put(&root, &found).context("this machine")? {
            tell(root.host(), &format!("the program was copied to {}", machine::place(&root)));
        }
        let status = match found.status {
            Some(status) => status,
            None => {
                let status = machine::start(&root).context("this machine")?.status;
                tell(root.host(), &format!("node {} is up, as a service", status.node));
                status
            }
        };
        Ok(Here { status, socket, root: Some(root) })
    }

    pub fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.socket)?)
    }

    /// By a connection for each: several join at the same time.
    pub fn token(&self) -> Result<String> {
        match &self.root {
            Some(root) => machine::token(root),
            None => membership::new_token(&mut self.client()?),
        }
    }
}

/// Another daemon takes the place of the one here, of this version.
pub fn upgrade(ground: &Ground<'_>, is_system: bool, program: &OwnProgram) -> Result<Status> {
    if !is_system {
        return daemon::replace(ground.platform);
    }
    let root = root_here()?;
    program.put(&root, &machine::look(&root)?)?;
    machine::replace(&root)
}

/// Ends the daemon here. None is no error.
pub fn down(ground: &Ground<'_>, is_system: bool) -> Result<()> {
    if is_system {
        return machine::down(&root_here()?).map(drop);
    }
    match Client::connect(ground.socket) {
        Ok(mut client) => membership::down(&mut client, false),
        Err(Error::NoDaemon(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn root_here() -> Result<Remote> {
    Remote::here().become_root().context("this machine")
}

fn systems_socket() -> PathBuf {
    runtime_dir_default(0, None).join(wire::control::SOCKET_NAME)
}

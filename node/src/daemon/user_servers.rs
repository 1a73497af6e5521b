//! Shows this node's files to users of other nodes, and lets ranks of their jobs begin here, if its
//! owner wants that.

use super::Daemon;
use super::requests::failure;
use crate::accounts;
use crate::control::Caller;
use crate::keys;
use crate::policy;
use crate::user_servers::{Kind, NoServer};
use serde::Serialize;
use std::time::Instant;
use wire::control::{Failure, Reply, Request};
use wire::files::{self, Served};
use wire::ids::{GlobalPid, HomePid, NodeId, Ticket};
use wire::jobs;
use wire::owner::FileAccess;
use wire::supervisor::Berth;

/// Only root speaks for another user, and only to its own daemon.
pub(super) fn other_user() -> Failure {
    failure("not-allowed", "only root may ask for what another user is to have")
}

/// Whom the caller names, where a server for a user is asked for.
pub(super) fn user_named(request: &mut Request) -> Option<&mut Option<u32>> {
    match request {
        Request::ServeFiles { user } | Request::ServeJob { user, .. } => Some(user),
        _ => None,
    }
}

/// As whom a server runs.
struct User {
    uid: u32,
    gid: u32,
    /// Where it has to become him.
    groups: Option<Vec<u32>>,
}

impl Daemon {
    /// The caller is a user of this node, or was made one by the table of users.
    pub(super) fn serve_files(
        &mut self,
        caller: Caller,
        user: Option<u32>,
    ) -> Result<Reply, Failure> {
        let uid = self.check_served(caller, user)?;
        // To his own node a user asks for what is his anyway.
        let access = match caller.node {
            Some(_) => self.wishes.state.files,
            None => FileAccess::Write,
        };
        if access == FileAccess::Off {
            let text = format!(
                "node {node} shows its files to nobody: `osmos share read` or `osmos share write` \
                 there changes that",
                node = self.me()
            );
            return Err(failure("files-not-shown", text));
        }
        let may_write = access == FileAccess::Write;
        let told = |key, User { uid, gid, groups }| {
            let served = Served { uid, gid, may_write };
            files::ToServer::Serve { key, served, groups }
        };
        let berth = self.begin_server(Kind::Files, uid, told);
        let berth = berth.map_err(|error| failure("no-file-server", error.to_string()))?;
        Ok(Reply::FileServer(Box::new(berth)))
    }

    /// Has a job server started for the job of a launcher, on another node or this one.
    pub(super) fn serve_job(
        &mut self,
        caller: Caller,
        job: GlobalPid,
        user: Option<u32>,
    ) -> Result<Reply, Failure> {
        let uid = self.check_served(caller, user)?;
        let home = caller.node.unwrap_or(self.me());
        if job.home != home || job.pid <= HomePid(0) {
            let text = format!("job {job} is none of node {home}, where its launcher is to be");
            return Err(failure("bad-job", text));
        }
        self.may_begin_jobs(caller)?;
        let node = self.me();
        let told = |key, User { uid, gid, groups }| jobs::ToServer::Serve {
            key,
            job,
            node,
            uid,
            gid,
            groups,
        };
        let berth = self.begin_server(Kind::Jobs, uid, told);
        let berth = berth.map_err(|error| failure("no-job-server", error.to_string()))?;
        Ok(Reply::JobServer(Box::new(berth)))
    }

    /// Those of this node begin where they are anyway, as long as it is there.
    fn may_begin_jobs(&self, caller: Caller) -> Result<(), Failure> {
        let me = self.me();
        if self.passage.is_going_down() {
            let text = format!("node {me} is going down: no job begins there");
            return Err(failure("draining", text));
        }
        if caller.node.is_none() {
            return Ok(());
        }
        if !self.wishes.state.jobs {
            let text = format!(
                "node {me} begins no jobs of other nodes: `osmos share --jobs on` there changes \
                 that"
            );
            return Err(failure("jobs-not-taken", text));
        }
        if self.passage.is_closing() || self.wishes.is_closed() {
            let text = format!(
                "node {me} takes nothing of other nodes now: it is blocked, drained or about to \
                 leave"
            );
            return Err(failure("closed", text));
        }
        Ok(())
    }

    /// For whom the caller asks, if he may, and if this daemon can serve him.
    fn check_served(&self, caller: Caller, user: Option<u32>) -> Result<u32, Failure> {
        let uid = user.unwrap_or(caller.uid);
        if uid != caller.uid && caller.uid != 0 {
            return Err(other_user());
        }
        let daemon_uid = nix::unistd::geteuid().as_raw();
        if daemon_uid != 0 && uid != daemon_uid {
            let me = self.me();
            let text = format!("the daemon of node {me} is user {daemon_uid}'s, not {uid}'s");
            return Err(failure("not-allowed", text));
        }
        Ok(uid)
    }

    /// Starts a server that runs as this user; where whoever asked for it finds it.
    fn begin_server<T: Serialize>(
        &mut self,
        kind: Kind,
        uid: u32,
        told: impl FnOnce([u8; 32], User) -> T,
    ) -> Result<Berth, NoServer> {
        let random = |error: keys::NoRandomness| NoServer::Failed(std::io::Error::other(error));
        let ticket = keys::random().map(Ticket).map_err(random)?;
        let key = keys::random().map_err(random)?;
        let (gid, groups) = accounts::groups_of(uid);
        let groups = nix::unistd::geteuid().is_root().then_some(groups);
        let told = told(key, User { uid, gid, groups });
        let until = Instant::now() + self.config.berth_timeout;
        let door = self.config.control_socket();
        let start = || self.spawn.user_server(kind, &door);
        self.user_servers.add((kind, uid), (ticket, until), start, &told)?;
        let me = self.members.me();
        Ok(Berth { node: me.node, address: me.address, ticket, key })
    }

    /// As whom a user of another node is served here: shown files, or given ranks of his jobs.
    pub(super) fn user_for_server(
        &self,
        by: NodeId,
        uid: u32,
        request: &Request,
    ) -> Result<u32, Failure> {
        let daemon_uid = nix::unistd::geteuid().as_raw();
        let table = &self.wishes.state.guest_users;
        policy::user_for_server(uid, daemon_uid, table).map_err(|refusal| {
            let me = self.me();
            let what = match request {
                Request::ServeJob { .. } => "begins no jobs on",
                _ => "is shown no files of",
            };
            let text = format!(
                "user {uid} of node {by} {what} node {me}: {refusal}; its table of users says who \
                 may (`osmos up --guest-users` there)"
            );
            failure("not-allowed", text)
        })
    }
}

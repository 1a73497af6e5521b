//! Shows this node's files to users of other nodes, if its owner wants that.

use super::Daemon;
use super::requests::failure;
use crate::accounts;
use crate::control::Caller;
use crate::keys;
use crate::policy;
use std::time::Instant;
use wire::control::{Failure, Reply};
use wire::files::{Served, ToServer};
use wire::ids::{NodeId, Ticket};
use wire::owner::FileAccess;
use wire::supervisor::Berth;

/// Only root speaks for another user, and only to its own daemon.
pub(super) fn other_user() -> Failure {
    failure("not-allowed", "only root may ask for the files that another user is shown")
}

impl Daemon {
    /// The caller is a user of this node, or was made one by the table of users.
    pub(super) fn serve_files(
        &mut self,
        caller: Caller,
        user: Option<u32>,
    ) -> Result<Reply, Failure> {
        let uid = user.unwrap_or(caller.uid);
        if uid != caller.uid && caller.uid != 0 {
            return Err(other_user());
        }
        let me = self.members.me();
        let daemon_uid = nix::unistd::geteuid().as_raw();
        if daemon_uid != 0 && uid != daemon_uid {
            let text =
                format!("the daemon of node {} is user {daemon_uid}'s, not {uid}'s", me.node);
            return Err(failure("not-allowed", text));
        }
        // To his own node a user asks for what is his anyway.
        let access = match caller.node {
            Some(_) => self.wishes.state.files,
            None => FileAccess::Write,
        };
        if access == FileAccess::Off {
            let text = format!(
                "node {node} shows its files to nobody: `osmos share read` or `osmos share write` \
                 there changes that",
                node = me.node
            );
            return Err(failure("files-not-shown", text));
        }
        let failed = |error: String| failure("no-file-server", error);
        let ticket = keys::random().map(Ticket).map_err(|error| failed(error.to_string()))?;
        let key = keys::random().map_err(|error| failed(error.to_string()))?;
        let may_write = access == FileAccess::Write;
        let (gid, groups) = accounts::groups_of(uid);
        let served = Served { uid, gid, may_write };
        let groups = (daemon_uid == 0).then_some(groups);
        let told = ToServer::Serve { key, served, groups };
        let until = Instant::now() + self.config.berth_timeout;
        let door = self.config.control_socket();
        let start = || self.spawn.file_server(&door);
        let added = self.file_servers.add(uid, (ticket, until), start, &told);
        added.map_err(|error| failed(error.to_string()))?;
        let berth = Berth { node: me.node, address: me.address, ticket, key };
        Ok(Reply::FileServer(Box::new(berth)))
    }

    pub(super) fn user_for_files(&self, by: NodeId, uid: u32) -> Result<u32, Failure> {
        let daemon_uid = nix::unistd::geteuid().as_raw();
        let table = &self.wishes.state.guest_users;
        policy::user_for_files(uid, daemon_uid, table).map_err(|refusal| {
            let me = self.me();
            let text = format!(
                "user {uid} of node {by} is shown no files of node {me}: {refusal}; its table of \
                 users says who is (`osmos up --guest-users` there)"
            );
            failure("not-allowed", text)
        })
    }
}

//! What user tools ask, and what they are answered.

use super::Daemon;
use super::acts::Whom;
use super::inquiries::Asker;
use crate::control::{Answer, Asked, Caller};
use crate::journal::wall_clock_s;
use crate::keys::token::Token;
use crate::policy;
use crate::process::{Cause, Launch, ORDERS_MAX, Order};
use crate::procfs;
use crate::service_manager;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tokio::sync::{oneshot, watch};
use wire::control::{Destination, Failure, ManageOptions, Placement, Reply, Request, Status};
use wire::freeze_budget::FreezeBudget;
use wire::ids::{HomePid, NodeId};
use wire::supervisor::{Progress, Way};

/// Storms faster than this would only measure themselves.
const STORM_MS_MIN: u64 = 1;

/// A refusal with its stable word.
pub(super) fn failure(code: &str, text: impl Into<String>) -> Failure {
    Failure { code: code.to_owned(), text: text.into() }
}

impl Daemon {
    pub(super) fn answer_request(&mut self, asked: Asked) {
        let Asked { caller, connection, request, answer, is_off } = asked;
        let daemon_uid = nix::unistd::geteuid().as_raw();
        if let Err(failure) = policy::may_ask(caller, &request, daemon_uid) {
            let _ = answer.send(Answer::One(Reply::Error(failure)));
            return;
        }
        let reply = match request {
            Request::Migrate { pid, to, freeze_budget_ms, way, is_watched } => {
                let wanted = Wanted { to, budget: freeze_budget_ms, way, is_watched, is_off };
                return self.migrate(caller, HomePid(pid), wanted, answer);
            }
            Request::Join { address, token } => return self.join(&address, &token, answer),
            Request::Leave => return self.leave_cluster(caller, answer),
            Request::Down => {
                self.acted_on_all(caller, "take the node down", Whom::GuestsAndAway);
                return self.begin_drain(Some(answer));
            }
            Request::HandOver => {
                tracing::info!("going down for another daemon: everything stays where it is");
                self.passage.hand_over(answer);
                return;
            }
            Request::Owner(order) => return self.take_owner_order(caller, order, answer),
            Request::Events { follow } => {
                let live = follow.then(|| self.journal.follow());
                let recorded = self.journal.recorded();
                let _ = answer.send(Answer::Events { recorded, live });
                return;
            }
            Request::TimeAway { pid } => return self.ask_tally(caller, pid, answer),
            Request::Processes => return self.answer_processes(answer),
            Request::Jobs => return self.answer_jobs(answer),
            Request::AskJob { pid, ask } => return self.ask_job(caller, (pid, ask), answer),
            Request::Doctor => return examine(answer),
            Request::At { node, request } => {
                return self.ask_at(Asker { caller, answer, is_off }, node, *request);
            }
            Request::Everywhere { request } => {
                return self.ask_everywhere(Asker { caller, answer, is_off }, &request);
            }
            Request::Signal { pid, signal } => {
                self.signal(caller, HomePid(pid), signal).map(|()| Reply::Done)
            }
            Request::Manage(options) => self.manage(caller, options),
            Request::Adopt { pid, options, job } => {
                self.adopt_as_asked(caller, HomePid(pid), options.map(|of| *of), job)
            }
            Request::Nodes => Ok(Reply::Nodes { nodes: self.list_nodes() }),
            Request::ServeFiles { user } => self.serve_files(caller, user),
            Request::ServeJob { job, user } => self.serve_job(caller, job, user),
            Request::HoldJob { of, socket } => self.hold_job((caller, connection), *of, socket),
            Request::Spread { ranks, per_node, nodes } => self.spread_ranks(ranks, per_node, nodes),
            Request::Why { pid } => self.why(HomePid(pid)),
            Request::WhatIf { pid, to } => self.what_if(HomePid(pid), to),
            Request::WhatIfNode { cores, speed, memory_bytes } => {
                self.what_if_node(cores, speed, memory_bytes)
            }
            Request::Token => self.make_token(),
            Request::Forget { node, force } => self.forget(node, force),
            Request::RenewSecret => self.renew_secret(),
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Metrics => Ok(Reply::Metrics(Box::new(self.metrics()))),
        };
        // A caller that has gone away needs no answer.
        let _ = answer.send(Answer::One(reply.unwrap_or_else(Reply::Error)));
    }

    fn make_token(&mut self) -> Result<Reply, Failure> {
        let me = self.members.me();
        let token = Token::generate(me.address, me.key)
            .map_err(|error| failure("no-randomness", error.to_string()))?;
        let text = token.to_text();
        self.admissions.open(Instant::now(), token);
        Ok(Reply::Token { token: text })
    }

    fn status(&self) -> Status {
        let me = self.members.me();
        Status {
            node: me.node,
            address: me.address.to_string(),
            daemon_pid: std::process::id() as i32,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: Some(wall_clock_s()),
            cluster: Some(self.keyring.cluster_name()),
            nodes: self.members.count() as u32,
            uptime_s: self.started.elapsed().as_secs_f64(),
            datagrams_dropped: self.keyring.datagrams_dropped(),
            owner: self.owned(),
            name: self.name_of(me.node),
            is_service: service_manager::is_there(),
        }
    }

    /// The caller itself comes under Osmos, and execs its command when it has the answer.
    fn manage(&mut self, caller: Caller, options: ManageOptions) -> Result<Reply, Failure> {
        let pid = caller.pid.map(HomePid).ok_or_else(|| {
            failure("no-pid", "cannot see the calling process: it is in another pid namespace")
        })?;
        self.check_options(caller, &options)?;
        let launch = Launch::Pending { program: procfs::read_program(pid.0), left: None };
        let is_baseline = options.cpu_baseline || self.config.cpu_baseline;
        let is_timed = options.is_timed;
        self.admit_process(caller, pid, options, launch)?;
        if is_timed {
            self.begin_tally(pid)?;
        }
        let left_out = is_baseline.then(|| {
            let baseline = Box::new(self.others.baseline());
            self.give_baseline(pid, baseline)
        });
        Ok(Reply::Managed { node: self.me(), daemon_pid: std::process::id() as i32, left_out })
    }

    pub(super) fn check_options(
        &self,
        caller: Caller,
        options: &ManageOptions,
    ) -> Result<(), Failure> {
        if let Placement::Node(node) = options.placement
            && self.members.get(node).is_none()
        {
            return Err(self.no_such_node(node));
        }
        if options.storm_ms.is_some_and(|ms| ms < STORM_MS_MIN) {
            let text = format!("a storm of 0 ms is none: give {STORM_MS_MIN} ms or more");
            return Err(failure("bad-storm", text));
        }
        if options.storm_ms.is_some() {
            let own = self.processes.values().filter(|process| process.owner.uid == caller.uid);
            let storming = own.filter(|process| process.storm.is_some()).count();
            policy::may_storm(caller.uid, storming, self.wishes.state.storms_per_user_max)?;
        }
        Ok(())
    }

    /// Whoever may kill a process may move it.
    pub(super) fn check_mover(
        &self,
        caller: Caller,
        pid: HomePid,
    ) -> Result<wire::peer::Owner, Failure> {
        let ids = procfs::read_ids(pid.0).ok_or_else(|| no_process(pid))?;
        policy::may_move(caller, pid.0, ids, nix::unistd::geteuid().as_raw())
    }

    fn migrate(
        &mut self,
        caller: Caller,
        pid: HomePid,
        Wanted { to, budget, way, is_watched, is_off }: Wanted,
        answer: oneshot::Sender<Answer>,
    ) {
        match self.check_migrate(caller, pid, to) {
            Ok(to) => {
                self.acted_on(caller, pid, format!("migrate to node {to}"));
                if let (Some(process), Some(_)) = (self.processes.get_mut(&pid), budget) {
                    process.freeze_budget = budget;
                    self.keep_process(pid);
                }
                let mut order = Order::new(to, Cause::User, format!("{caller} asked"));
                (order.is_off, order.way) = (is_off, way);
                order.answer = Some(match is_watched {
                    true => watched(&mut order, answer),
                    false => answer,
                });
                self.order_move(pid, order);
            }
            Err(failure) => {
                let _ = answer.send(Answer::One(Reply::Error(failure)));
            }
        }
    }

    /// May the caller do that, and which node is meant?
    fn check_migrate(
        &mut self,
        caller: Caller,
        pid: HomePid,
        to: Destination,
    ) -> Result<NodeId, Failure> {
        self.adopt(caller, pid, None)?;
        let to = match to {
            Destination::Home => self.me(),
            Destination::Node(node) => {
                self.members.get(node).ok_or_else(|| self.no_such_node(node))?.node
            }
            Destination::Best => self.best_node_for(pid).ok_or_else(|| {
                failure("no-better-node", format!("no node is better for {pid} than its own"))
            })?,
        };
        let me = self.me();
        let process = self.processes.get_mut(&pid).ok_or_else(|| no_process(pid))?;
        if process.moving.is_none() && process.at == to {
            // It may be there for the moment only, and is to stay now.
            process.moved_by_user(to, me);
            let text = format!("cannot move {pid}: it is on node {to} already");
            return Err(failure("already-there", text));
        }
        if process.waiting.len() >= ORDERS_MAX {
            let text = format!("cannot move {pid}: {ORDERS_MAX} moves of it are waiting already");
            return Err(failure("too-many-moves", text));
        }
        Ok(to)
    }

    pub(super) fn no_such_node(&self, node: NodeId) -> Failure {
        let text = format!("there is no node {node}; there are {}", self.listed_nodes());
        failure("no-node", text)
    }

    /// The tool that asked to be managed has closed its connection, by exec or by exit.
    pub(super) fn caller_left(&mut self, pid: HomePid) {
        if let Some(process) = self.processes.get_mut(&pid)
            && let Launch::Pending { left, .. } = &mut process.launch
        {
            left.get_or_insert(Instant::now());
        }
    }
}

/// What this machine has, as the daemon goes by it. That reads files, so it is done elsewhere.
fn examine(answer: oneshot::Sender<Answer>) {
    tokio::task::spawn_blocking(move || {
        let findings = crate::findings(kernel::features::settled());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // A caller that has gone away needs no answer.
        let _ = answer.send(Answer::One(Reply::Findings { version, findings }));
    });
}

/// A move that a user wants.
struct Wanted {
    to: Destination,
    budget: Option<FreezeBudget>,
    way: Option<Way>,
    is_watched: bool,
    is_off: Arc<AtomicBool>,
}

/// Has whoever waits for the answer be told of the order's progress first; returns whom to answer
/// in the end.
fn watched(order: &mut Order, answer: oneshot::Sender<Answer>) -> oneshot::Sender<Answer> {
    let (sender, ended) = oneshot::channel();
    let (progress, told) = watch::channel(Progress::default());
    order.progress = Some(progress);
    // A caller that has gone away needs no answer.
    let _ = answer.send(Answer::Moving { progress: told, ended });
    sender
}

pub(super) fn no_process(pid: HomePid) -> Failure {
    failure("no-process", format!("there is no process {pid}"))
}

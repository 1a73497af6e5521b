//! Who may do what. Pure, so that all of it can be seen, and tested, in one place.
//!
//! * Anyone may look.
//! * Whoever may kill a process may move it: its owner, and root. Nobody else.
//! * The same holds of jobs: their users and root may end them.
//! * The daemon's own user and root may change the cluster.
//! * Root's processes leave only if the owner of their home said so, and nothing goes where he did
//!   not say that it may.
//! * A guest runs as whom this node's table of users names, whatever its home claims.

use crate::control::Caller;
use crate::procfs::Ids;
use wire::control::{Failure, Request};
use wire::ids::NodeId;
use wire::jobs::JobAsk;
use wire::owner::OwnerState;
use wire::peer::{BerthRequest, Owner, Refusal};
use wire::supervisor::Reason;
use wire::users::UserTable;

/// May the caller ask this at all? Requests about a process are checked again against its owner.
pub fn may_ask(caller: Caller, request: &Request, daemon_uid: u32) -> Result<(), Failure> {
    let is_for_all = match request {
        Request::Token | Request::Join { .. } | Request::Down | Request::Owner(_) => false,
        Request::Leave | Request::Forget { .. } | Request::RenewSecret => false,
        Request::HandOver => false,
        Request::Manage(_) | Request::Adopt { .. } | Request::Migrate { .. } => true,
        Request::Processes | Request::Nodes | Request::Why { .. } => true,
        Request::Events { .. } | Request::Status | Request::Metrics => true,
        Request::Doctor => true,
        Request::TimeAway { .. } | Request::ServeFiles { .. } => true,
        Request::WhatIf { .. } | Request::WhatIfNode { .. } => true,
        // Looked at again where they are answered.
        Request::Signal { .. } | Request::At { .. } | Request::Everywhere { .. } => true,
        Request::ServeJob { .. } | Request::HoldJob { .. } | Request::AskJob { .. } => true,
        Request::Jobs | Request::Spread { .. } => true,
    };
    if is_for_all || caller.uid == 0 || caller.uid == daemon_uid {
        return Ok(());
    }
    Err(Failure {
        code: "not-allowed".to_owned(),
        text: format!(
            "only root and user {daemon_uid}, whose daemon this is, may change the cluster; \
             you are user {}",
            caller.uid
        ),
    })
}

/// What only looks, at what anybody may look at.
pub fn only_looks(request: &Request) -> bool {
    matches!(
        request,
        Request::Processes
            | Request::Nodes
            | Request::Why { .. }
            | Request::WhatIf { .. }
            | Request::WhatIfNode { .. }
            | Request::Events { .. }
            | Request::Status
            | Request::Metrics
            | Request::Doctor
            | Request::Jobs
            | Request::Spread { .. }
            | Request::AskJob { ask: JobAsk::Show | JobAsk::Wait, .. }
    )
}

/// The process, born on the node that is asked, to which something is done.
pub fn process_acted_on(request: &Request) -> Option<i32> {
    match request {
        Request::Migrate { pid, .. } | Request::Signal { pid, .. } => Some(*pid),
        _ => None,
    }
}

/// May a tool of one node ask another node this?
pub fn may_pass_on(request: &Request) -> Result<(), Failure> {
    let is_acting = process_acted_on(request).is_some()
        || matches!(request, Request::Owner(_) | Request::ServeFiles { .. })
        || matches!(request, Request::ServeJob { .. } | Request::AskJob { .. });
    if only_looks(request) || is_acting {
        return Ok(());
    }
    Err(Failure {
        code: "not-from-elsewhere".to_owned(),
        text: "a node does that for its own tools only: give the command on that node".to_owned(),
    })
}

/// May a tool ask all nodes this at once?
pub fn may_ask_everywhere(request: &Request) -> Result<(), Failure> {
    match request {
        Request::Processes | Request::Nodes | Request::Events { .. } | Request::Status => Ok(()),
        Request::Metrics | Request::Doctor | Request::Jobs => Ok(()),
        _ => Err(Failure {
            code: "not-everywhere".to_owned(),
            text: "that can be asked of one node at a time only".to_owned(),
        }),
    }
}

/// May the caller send this process a signal? As kill(2) says it: by the real or saved user.
pub fn may_signal(caller: Caller, pid: i32, ids: Ids) -> Result<(), Failure> {
    let [real, _, saved, _] = ids.uids;
    if caller.uid == 0 || [real, saved].contains(&caller.uid) {
        return Ok(());
    }
    Err(Failure {
        code: "not-allowed".to_owned(),
        text: format!(
            "cannot send a signal to {pid}: it belongs to user {real}, you are user {}",
            caller.uid
        ),
    })
}

/// May the caller end a job, or send it a signal? As with processes: its user, and root.
pub fn may_end_job(caller: Caller, pid: i32, uid: u32) -> Result<(), Failure> {
    if caller.uid == 0 || caller.uid == uid {
        return Ok(());
    }
    Err(Failure {
        code: "not-allowed".to_owned(),
        text: format!("job {pid} belongs to user {uid}, you are user {}", caller.uid),
    })
}

/// May the caller move this process, and may this daemon? The owner, if so.
pub fn may_move(caller: Caller, pid: i32, ids: Ids, daemon_uid: u32) -> Result<Owner, Failure> {
    let refuse = |code: &str, why: String| {
        Err(Failure { code: code.to_owned(), text: format!("cannot move {pid}: {why}") })
    };
    let Some(owner) = ids.owner() else {
        let why = "it is a set-user-id program, whose memory is nobody's; it stays home";
        return refuse("set-user-id", why.to_owned());
    };
    if caller.uid != 0 && caller.uid != owner.uid {
        let why = format!("it belongs to user {}, you are user {}", owner.uid, caller.uid);
        return refuse("not-allowed", why);
    }
    if daemon_uid != 0 && daemon_uid != owner.uid {
        let why = format!(
            "it belongs to user {}, this daemon to user {daemon_uid}; root's daemon could",
            owner.uid
        );
        return refuse("not-allowed", why);
    }
    Ok(owner)
}

/// May this user's process be on that node?
///
/// Who holds a process can make it do all that its user may do at home, so root's are a matter of
/// trust of its own.
pub fn may_lend(uid: u32, to: NodeId, owner: &OwnerState) -> Result<(), Reason> {
    let refuse = |code: &str, text: String| Err(Reason { code: code.to_owned(), text });
    if uid == 0 && !owner.lends_root {
        let text = "root's processes stay home, since whoever holds one is root here; \
                    `osmos lend --root on` lets them leave";
        return refuse("root-stays", text.to_owned());
    }
    if !owner.lends_to.has(to) {
        let text = format!("this node lends nothing to node {to}; `osmos lend --to` changes that");
        return refuse("not-lent", text);
    }
    Ok(())
}

/// May a user begin one more program in a storm, where so many of his processes are in one?
pub fn may_storm(uid: u32, storming: usize, max: Option<u32>) -> Result<(), Failure> {
    match max {
        Some(max) if storming >= max as usize => Err(Failure {
            code: "too-many-storms".to_owned(),
            text: format!(
                "user {uid} has {storming} processes in a storm on this node, which allows {max} \
                 (`osmos limit --storms-per-user`): end some first, or run it without --storm"
            ),
        }),
        _ => Ok(()),
    }
}

/// What a node that is asked for a berth looks at.
#[derive(Clone, Copy, Debug)]
pub struct HostState {
    pub daemon_uid: u32,
    pub is_draining: bool,
    /// The kernel feature for which no guest can be kept apart from the node.
    pub lacks: Option<&'static str>,
    pub guests: usize,
    /// Those of them that have a place and have not come.
    pub coming: usize,
    pub memory_free_bytes: u64,
    /// Its owner takes no guests.
    pub is_closed: bool,
    /// Its owner takes at most so many.
    pub guests_max: Option<u32>,
    /// Those of the user whose process is to come, and how many of one user it takes.
    pub guests_of_user: usize,
    pub guests_per_user_max: Option<u32>,
    pub guest_memory: Option<GuestMemory>,
}

/// Memory for all guests together, where the owner limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestMemory {
    pub max_bytes: u64,
    pub used_bytes: u64,
}

/// Guests of one node.
pub const GUESTS_MAX: usize = 4_096;
/// Berths that wait for their process. Each is a supervisor and the init of a sandbox already, and
/// a member may ask for as many as it likes without ever sending anybody.
pub const COMING_MAX: usize = 256;

/// May this process come here, and as which user would it run?
pub fn may_host(asked: &BerthRequest, host: HostState, users: &UserTable) -> Result<u32, Refusal> {
    if host.is_draining {
        return Err(Refusal::Draining);
    }
    if host.is_closed {
        return Err(Refusal::Closed);
    }
    if let Some(max) = host.guests_max.filter(|max| host.guests >= *max as usize) {
        return Err(Refusal::EnoughGuests { max });
    }
    if let Some(max) = host.guests_per_user_max.filter(|max| host.guests_of_user >= *max as usize) {
        return Err(Refusal::EnoughOfUser { uid: asked.owner.uid, max });
    }
    if let Some(GuestMemory { max_bytes, used_bytes }) = host.guest_memory
        && used_bytes.saturating_add(asked.rss_bytes) > max_bytes
    {
        let needed_bytes = asked.rss_bytes;
        return Err(Refusal::GuestMemory { needed_bytes, used_bytes, max_bytes });
    }
    if let Some(feature) = host.lacks {
        return Err(Refusal::NoSandbox { feature: feature.to_owned() });
    }
    if host.guests >= GUESTS_MAX {
        return Err(Refusal::Full { max: GUESTS_MAX as u32 });
    }
    if host.coming >= COMING_MAX {
        return Err(Refusal::Full { max: COMING_MAX as u32 });
    }
    // A margin, since the guest and its supervisor need more than its present memory.
    let needed_bytes = asked.rss_bytes.saturating_add(asked.rss_bytes / 8);
    if needed_bytes > host.memory_free_bytes {
        let free_bytes = host.memory_free_bytes;
        return Err(Refusal::MemoryShort { needed_bytes, free_bytes });
    }
    user_here(asked.owner.uid, host.daemon_uid, users)
}

/// As whom processes run here of a user with that number at home.
pub fn user_here(uid: u32, daemon_uid: u32, users: &UserTable) -> Result<u32, Refusal> {
    if daemon_uid == 0 {
        return users.user_here(uid).ok_or(Refusal::UserRefused { uid });
    }
    // A user's own cluster: he may have another number here. Root's processes are not lent to him.
    match uid {
        0 => Err(Refusal::OwnerNotAllowed { uid }),
        _ => Ok(daemon_uid),
    }
}

/// As whom is a user of another node served here: shown files, or given ranks of his jobs?
///
/// A user's own daemon runs guests of whatever number as him, in a sandbox. What is done as him
/// outside of one is another matter: who has another number there has to be named by the table.
pub fn user_for_server(uid: u32, daemon_uid: u32, users: &UserTable) -> Result<u32, Refusal> {
    let here = users.user_here(uid).ok_or(Refusal::UserRefused { uid })?;
    match daemon_uid {
        0 => Ok(here),
        _ if here == daemon_uid => Ok(here),
        _ => Err(Refusal::OwnerNotAllowed { uid }),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::ids::HomePid;
    use wire::users::{Borrowers, NOBODY};

    const ROOT: Caller = Caller { uid: 0, pid: Some(1), node: None };
    const ANNA: Caller = Caller { uid: 1000, pid: Some(2), node: None };
    const BERT: Caller = Caller { uid: 1001, pid: Some(3), node: None };

    fn ids(uid: u32) -> Ids {
        Ids { uids: [uid; 4], gids: [uid; 4] }
    }

    #[test]
    fn anyone_may_look_but_only_the_daemons_user_and_root_may_change_the_cluster() {
        for caller in [ROOT, ANNA, BERT] {
            assert_eq!(may_ask(caller, &Request::Processes, 1000), Ok(()));
            assert_eq!(may_ask(caller, &Request::Events { follow: true }, 1000), Ok(()));
        }
        let forget = Request::Forget { node: NodeId(2), force: true };
        let orders = [Request::Token, Request::Down, Request::Leave, forget, Request::RenewSecret];
        let orders = orders.into_iter().chain([Request::HandOver]);
        for request in orders {
            assert_eq!(may_ask(ROOT, &request, 1000), Ok(()));
            assert_eq!(may_ask(ANNA, &request, 1000), Ok(()));
            let failure = may_ask(BERT, &request, 1000).unwrap_err();
            assert_eq!(failure.code, "not-allowed");
            assert!(may_ask(ANNA, &request, 0).is_err(), "root's daemon is root's");
        }
    }

    #[test]
    fn whoever_may_kill_a_process_may_move_it_and_nobody_else() {
        assert_eq!(may_move(ANNA, 7, ids(1000), 0), Ok(Owner { uid: 1000, gid: 1000 }));
        assert_eq!(may_move(ROOT, 7, ids(1000), 0), Ok(Owner { uid: 1000, gid: 1000 }));
        let failure = may_move(BERT, 7, ids(1000), 0).unwrap_err();
        assert_eq!(failure.text, "cannot move 7: it belongs to user 1000, you are user 1001");
        assert!(may_move(BERT, 7, ids(0), 0).is_err());
        assert!(may_move(ANNA, 7, ids(1000), 1001).is_err(), "another user's daemon");
    }

    #[test]
    fn a_set_user_id_program_is_moved_by_nobody() {
        let ids = Ids { uids: [1000, 0, 0, 0], gids: [1000; 4] };
        for caller in [ROOT, ANNA] {
            assert_eq!(may_move(caller, 7, ids, 0).unwrap_err().code, "set-user-id");
        }
    }

    fn asked(uid: u32) -> BerthRequest {
        BerthRequest {
            pid: HomePid(7),
            owner: Owner { uid, gid: uid },
            from: NodeId(1),
            rss_bytes: 800,
            cpu_us: 0,
            freeze_us: 0,
            freeze_bytes: 0,
            is_ordered: false,
            is_pinned: false,
            user_milli: 0,
            group: None,
            expected_us: 0,
        }
    }

    /// By the table that nobody has changed.
    fn may_host(asked: &BerthRequest, host: HostState) -> Result<u32, Refusal> {
        super::may_host(asked, host, &UserTable::default())
    }

    const HOST: HostState = HostState {
        daemon_uid: 0,
        is_draining: false,
        lacks: None,
        guests: 0,
        coming: 0,
        memory_free_bytes: 900,
        is_closed: false,
        guests_max: None,
        guests_of_user: 0,
        guests_per_user_max: None,
        guest_memory: None,
    };

    #[test]
    fn a_guest_runs_as_the_table_says_and_never_as_a_privileged_user_by_default() {
        let host = |uid| may_host(&asked(uid), HOST);
        assert_eq!([0, 33, 1000].map(host), [Ok(NOBODY), Ok(NOBODY), Ok(1000)]);
        assert_eq!(host(u32::MAX), Err(Refusal::UserRefused { uid: u32::MAX }));
        let table = |text: &str| UserTable::try_from(text.to_owned()).unwrap();
        let refuse = super::may_host(&asked(0), HOST, &table("0=refuse,*=same"));
        assert_eq!(refuse.unwrap_err().code(), "user-refused");
        assert_eq!(super::may_host(&asked(0), HOST, &UserTable::same()), Ok(0));
    }

    #[test]
    fn all_guests_of_an_ordinary_users_daemon_run_as_that_user() {
        let users_own = HostState { daemon_uid: 1001, ..HOST };
        assert_eq!(may_host(&asked(1000), users_own), Ok(1001));
        let refusal = may_host(&asked(0), users_own).unwrap_err();
        assert_eq!(refusal, Refusal::OwnerNotAllowed { uid: 0 });
    }

    #[test]
    fn root_and_what_is_not_to_be_lent_stays_home_and_the_reason_names_the_way_out() {
        let mut owner = OwnerState::default();
        assert_eq!(may_lend(1000, NodeId(2), &owner), Ok(()));
        let reason = may_lend(0, NodeId(2), &owner).unwrap_err();
        assert_eq!(reason.code, "root-stays");
        assert!(reason.text.contains("osmos lend --root on"), "{}", reason.text);
        owner.lends_root = true;
        assert_eq!(may_lend(0, NodeId(2), &owner), Ok(()));
        owner.lends_to = Borrowers::Only(vec![NodeId(3)]);
        assert_eq!(may_lend(1000, NodeId(3), &owner), Ok(()));
        let reason = may_lend(1000, NodeId(2), &owner).unwrap_err();
        assert_eq!(reason.code, "not-lent");
        assert!(reason.text.contains("node 2"), "{}", reason.text);
    }

    #[test]
    fn a_node_short_of_memory_full_or_going_down_takes_no_guest() {
        let short = HostState { memory_free_bytes: 899, ..HOST };
        let refusal = Refusal::MemoryShort { needed_bytes: 900, free_bytes: 899 };
        assert_eq!(may_host(&asked(1000), short), Err(refusal));
        let full = HostState { guests: GUESTS_MAX, ..HOST };
        assert_eq!(may_host(&asked(1000), full).unwrap_err().code(), "full");
        let expecting = HostState { guests: COMING_MAX, coming: COMING_MAX, ..HOST };
        let refusal = Refusal::Full { max: COMING_MAX as u32 };
        assert_eq!(may_host(&asked(1000), expecting), Err(refusal));
        let open = HostState { lacks: Some("user-namespaces"), ..HOST };
        assert_eq!(may_host(&asked(1000), open).unwrap_err().code(), "no-sandbox");
        let draining = HostState { is_draining: true, ..HOST };
        assert_eq!(may_host(&asked(1000), draining), Err(Refusal::Draining));
    }

    #[test]
    fn what_the_owner_allows_is_kept_to_and_the_refusal_names_it() {
        let closed = HostState { is_closed: true, ..HOST };
        assert_eq!(may_host(&asked(1000), closed), Err(Refusal::Closed));
        let enough = HostState { guests: 2, guests_max: Some(2), ..HOST };
        assert_eq!(may_host(&asked(1000), enough), Err(Refusal::EnoughGuests { max: 2 }));
        assert!(may_host(&asked(1000), HostState { guests: 1, ..enough }).is_ok());
        let many = HostState { guests_of_user: 2, guests_per_user_max: Some(2), ..HOST };
        let refusal = Refusal::EnoughOfUser { uid: 1000, max: 2 };
        assert_eq!(may_host(&asked(1000), many), Err(refusal));
        assert!(may_host(&asked(1000), HostState { guests_of_user: 1, ..many }).is_ok());
        let memory = |used_bytes| Some(GuestMemory { max_bytes: 1_000, used_bytes });
        let small = HostState { guest_memory: memory(201), ..HOST };
        assert_eq!(may_host(&asked(1000), small).unwrap_err().code(), "guest-memory");
        assert!(may_host(&asked(1000), HostState { guest_memory: memory(200), ..HOST }).is_ok());
    }

    #[test]
    fn a_user_has_no_more_storms_than_the_node_allows() {
        assert_eq!(may_storm(1000, 9, None), Ok(()));
        assert_eq!(may_storm(1000, 1, Some(2)), Ok(()));
        let failure = may_storm(1000, 2, Some(2)).unwrap_err();
        assert_eq!(failure.code, "too-many-storms");
        assert!(failure.text.contains("--storms-per-user"), "{}", failure.text);
        assert!(may_storm(1000, 0, Some(0)).is_err());
    }

    #[test]
    fn only_root_and_the_daemons_user_decide_as_its_owner() {
        let request = Request::Owner(wire::owner::OwnerOrder::Expel);
        assert!(may_ask(ROOT, &request, 1000).is_ok() && may_ask(ANNA, &request, 1000).is_ok());
        assert_eq!(may_ask(BERT, &request, 1000).unwrap_err().code, "not-allowed");
        assert!(may_ask(BERT, &Request::WhatIf { pid: 7, to: NodeId(2) }, 1000).is_ok());
    }

    #[test]
    fn who_is_served_is_so_under_his_own_number_or_one_that_the_table_names() {
        let (usual, named) = (UserTable::default(), UserTable::parse("1001=1000", |_| None));
        let named = named.expect("a table");
        assert_eq!(user_for_server(1000, 0, &usual), Ok(1000));
        assert_eq!(user_for_server(0, 0, &usual), Ok(NOBODY));
        assert_eq!(user_for_server(1001, 0, &named), Ok(1000));
        assert_eq!(user_for_server(1002, 0, &named), Err(Refusal::UserRefused { uid: 1002 }));
        // A user's own daemon: guests of any number run as him, and servers are another matter.
        assert_eq!(user_here(1001, 1000, &usual), Ok(1000));
        assert_eq!(user_for_server(1000, 1000, &usual), Ok(1000));
        assert_eq!(user_for_server(1001, 1000, &named), Ok(1000));
        for (uid, table) in [(1001, &usual), (0, &usual), (0, &UserTable::same())] {
            let refused = Err(Refusal::OwnerNotAllowed { uid });
            assert_eq!(user_for_server(uid, 1000, table), refused, "{uid}");
        }
    }
}

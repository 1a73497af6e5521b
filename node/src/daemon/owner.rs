//! The owner of this node and his orders: what stands is kept on disk and told to the brain, which
//! finds other places for guests. What the brain cannot move goes home: an owner's order does not
//! wait for anybody's wish.

use super::Daemon;
use super::requests::failure;
use crate::control::{Answer, Caller};
use crate::policy::GuestMemory;
use crate::process::{Cause, Launch, Order, Process};
use crate::supervisor::SupervisorId;
use crate::user_servers::Kind;
use brain::{Input, Ownership, Priority};
use std::cmp::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wire::control::{Happening, Reply};
use wire::ids::HomePid;
use wire::owner::{Owned, OwnerOrder, OwnerState, PRIORITY_USUAL};
use wire::supervisor::ToBody;
use wire::users::LEND_TO_MAX;

/// Guests that the brain has not found a place for by then are sent home.
const PLACE_PATIENCE: Duration = Duration::from_secs(3);
/// After that the owner is told who is still there.
const WISH_PATIENCE: Duration = Duration::from_secs(30);
/// Between two orders to come home for what did not.
const BRING_INTERVAL: Duration = Duration::from_secs(1);
/// A drained node's own processes need not find a place elsewhere: it has waited long enough then.
const DRAIN_OWN_PATIENCE: Duration = Duration::from_secs(10);
/// Owners who wait for an answer.
const WISHES_MAX: usize = 16;
/// Nice values by which guests of better, usual and worse priority stand back where the node's own
/// load comes first.
const STAND_BACK: [i32; 3] = [5, 10, 15];

/// What is answered when it has come true.
struct Wish {
    order: OwnerOrder,
    since: Instant,
    answer: oneshot::Sender<Answer>,
}

/// What the owner has decided, and what he waits for.
#[derive(Default)]
pub struct Wishes {
    pub state: OwnerState,
    waiting: Vec<Wish>,
    /// Since when no guest shall be here.
    clearing_since: Option<Instant>,
    /// When own processes that are to come home are looked for next.
    next_bring: Option<Instant>,
}

impl Wishes {
    pub fn of(state: OwnerState) -> Wishes {
        let clearing_since = state.drains.then(Instant::now);
        Wishes { state, waiting: Vec::new(), clearing_since, next_bring: None }
    }

    fn brings(&self) -> bool {
        self.waiting.iter().any(|wish| wish.order == OwnerOrder::Bring)
    }

    fn expels(&self) -> bool {
        self.waiting.iter().any(|wish| wish.order == OwnerOrder::Expel)
    }

    /// Whether user orders are turned away, too.
    pub fn is_closed(&self) -> bool {
        self.state.blocks || self.state.drains || self.expels()
    }
}

impl Daemon {
    pub(super) fn take_owner_order(
        &mut self,
        caller: Caller,
        order: OwnerOrder,
        answer: oneshot::Sender<Answer>,
    ) {
        if let Err(text) = self.check_owner_order(&order) {
            let reply = Reply::Error(failure("cannot-do", text));
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(reply));
            return;
        }
        self.wishes.state.apply(&order);
        self.journal.record(None, Happening::Owned(self.wishes.state.clone()));
        self.acted_on_by_owner(caller, &order);
        if let Err(error) = self.state.keep_owner(&self.wishes.state) {
            tracing::error!("{error}");
        }
        match order {
            OwnerOrder::Bring => self.bring_home(|_| true),
            OwnerOrder::Lend { .. } => {
                for pid in self.lend_anew() {
                    self.acted_on(caller, pid, "bring home".to_owned());
                }
            }
            OwnerOrder::Limit { .. } => self.tell_move_limits(),
            OwnerOrder::ShareFiles { .. } => self.user_servers.end_all(Kind::Files),
            OwnerOrder::ShareJobs { on: false } => self.user_servers.end_all(Kind::Jobs),
            _ => {}
        }
        self.wishes.waiting.push(Wish { order, since: Instant::now(), answer });
        self.owner_has_decided();
        self.drop_unwelcome_imprints();
        self.grant_wishes(Instant::now());
    }

    fn check_owner_order(&self, order: &OwnerOrder) -> Result<(), String> {
        if self.passage.is_going_down() {
            return Err("this node is going down".to_owned());
        }
        if self.wishes.waiting.len() >= WISHES_MAX {
            return Err(format!("{WISHES_MAX} orders are being carried out: try again then"));
        }
        if !self.wishes.state.clone().apply(order) {
            let text = match order {
                OwnerOrder::Lend { .. } => {
                    format!("it names more than {LEND_TO_MAX} nodes: name fewer, or `all`")
                }
                _ => "too many homes have a priority of their own: give some the usual one, 50, \
                      back"
                    .to_owned(),
            };
            return Err(text);
        }
        Ok(())
    }

    /// Tells everybody whom it concerns what stands now.
    pub(super) fn owner_has_decided(&mut self) {
        let clears = self.wishes.expels() || self.wishes.state.drains;
        if clears {
            self.wishes.clearing_since.get_or_insert_with(Instant::now);
        } else {
            self.wishes.clearing_since = None;
        }
        let ownership = self.ownership();
        self.tell_brain(Input::OwnerDecided { ownership });
        for id in self.hosting.ids() {
            self.let_stand_back(id);
        }
        if let Err(error) = stand_back_as_session(self.wishes.state.yields) {
            tracing::debug!("the scheduling group of this session: {error}");
        }
    }

    fn ownership(&self) -> Ownership {
        let state = &self.wishes.state;
        let priorities = state.priorities.iter();
        Ownership {
            is_closed: state.blocks,
            expels: self.wishes.expels(),
            drains: state.drains,
            stays: state.stays,
            yields: state.yields,
            guests_max: state.guests_max,
            guest_memory_max_bytes: state.guest_memory_max_bytes,
            priorities: priorities.map(|of| (of.home, Priority(of.priority))).collect(),
        }
    }

    /// A guest's threads come after what this node runs itself, if its owner wants that.
    pub(super) fn let_stand_back(&mut self, id: SupervisorId) {
        let Some(guest) = self.hosting.get_mut(id).filter(|guest| guest.local_pid().is_some())
        else {
            return;
        };
        let priority = self.wishes.state.priority_of(guest.process.home);
        let [better, usual, worse] = STAND_BACK;
        let nice = match (self.wishes.state.yields, priority.cmp(&PRIORITY_USUAL)) {
            (false, _) => 0,
            (true, Ordering::Less) => better,
            (true, Ordering::Equal) => usual,
            (true, Ordering::Greater) => worse,
        };
        if guest.stands_back != Some(nice) {
            guest.stands_back = Some(nice);
            guest.supervisor.send(&ToBody::StandBack { nice }, None);
        }
    }

    /// Memory for guests as the owner limits it.
    pub(super) fn guest_memory(&self, promised_bytes: u64) -> Option<GuestMemory> {
        let max_bytes = self.wishes.state.guest_memory_max_bytes?;
        let here = self.hosting.here();
        let used = here.fold(promised_bytes, |sum, guest| sum.saturating_add(guest.rss_bytes));
        Some(GuestMemory { max_bytes, used_bytes: used })
    }

    pub(super) fn owned(&self) -> Owned {
        let me = self.me();
        let own_here = self.processes.values().filter(|process| process.at == me).count();
        Owned {
            state: self.wishes.state.clone(),
            guests: self.hosting.here().count() as u32,
            own_here: own_here as u32,
            own_away: (self.processes.len() - own_here) as u32,
            imprint_bytes: self.hosting.imprints().bytes(),
        }
    }

    /// Orders home what was born here and is away, or under way, of those.
    pub(super) fn bring_home(&mut self, which: impl Fn(&Process) -> bool) {
        let (me, is_closing) = (self.me(), self.passage.is_closing());
        self.wishes.next_bring = Some(Instant::now() + BRING_INTERVAL);
        let away = self.processes.values();
        let away = away.filter(|process| process.at != me || process.moving.is_some());
        let pids: Vec<HomePid> = away.filter(|p| which(p)).map(|process| process.pid).collect();
        for pid in pids {
            let order = match is_closing {
                true => Order::new(me, Cause::Drain, "this node goes down"),
                false => Order::new(me, Cause::Owner, "the owner of its home brings it back"),
            };
            self.order_move(pid, order);
        }
    }

    /// Those that are at home for the moment only, as programs that have just begun are, and are to
    /// be where their users have put them, stay as those do that were brought home.
    fn keep_who_would_leave(&mut self) {
        let me = self.me();
        for process in self.processes.values_mut().filter(|process| process.at == me) {
            process.moved_by_user(me, me);
        }
    }

    /// What did not come for a reason that passes, as one that has just made a process, is ordered
    /// home again for as long as that is wanted.
    pub(super) fn bring_again(&mut self, now: Instant) {
        let is_wanted = self.passage.is_closing() || self.wishes.brings();
        if is_wanted && self.wishes.next_bring.is_none_or(|next| now >= next) {
            self.bring_home(|process| process.moving.is_none() && process.waiting.is_empty());
        }
    }

    /// Sends home whom the brain could not place, and answers those whose wish has come true.
    pub(super) fn grant_wishes(&mut self, now: Instant) {
        if let Some(since) = self.wishes.clearing_since {
            // Nobody looks for another place for those that their users have put here.
            let is_late = now >= since + PLACE_PATIENCE;
            self.send_guests_home(|guest| is_late || guest.asked.is_pinned);
        }
        if self.wishes.waiting.is_empty() {
            return;
        }
        if self.wishes.brings() {
            self.keep_who_would_leave();
        }
        let mut waiting = std::mem::take(&mut self.wishes.waiting);
        let expelled_before = waiting.iter().any(|wish| wish.order == OwnerOrder::Expel);
        let mut settled = Vec::new();
        let mut nth = 0;
        while nth < waiting.len() {
            match self.outcome_of(&waiting[nth], now) {
                Some(reply) => settled.push((waiting.remove(nth).answer, reply)),
                None => nth += 1,
            }
        }
        let expels_still = waiting.iter().any(|wish| wish.order == OwnerOrder::Expel);
        self.wishes.waiting = waiting;
        if expelled_before && !expels_still {
            self.owner_has_decided();
        }
        for (answer, reply) in settled {
            // A caller that has gone away needs no answer.
            let _ = answer.send(Answer::One(reply));
        }
    }

    /// None as long as it has not come true.
    fn outcome_of(&self, wish: &Wish, now: Instant) -> Option<Reply> {
        let waited = now.saturating_duration_since(wish.since);
        let left = match &wish.order {
            OwnerOrder::Expel => self.guests_left(),
            OwnerOrder::Bring => self.own_left(),
            OwnerOrder::Drain { on: true } => {
                let own_has_left = self.own_movable_here() == 0 || waited >= DRAIN_OWN_PATIENCE;
                let mut left = self.guests_left();
                if !own_has_left && left.is_empty() {
                    left.push("its own".to_owned());
                }
                left
            }
            _ => Vec::new(),
        };
        if left.is_empty() {
            return Some(Reply::Owned(self.owned()));
        }
        if waited < WISH_PATIENCE {
            return None;
        }
        let seconds = WISH_PATIENCE.as_secs();
        let text = format!("after {seconds} s there are still: {}", left.join(", "));
        Some(Reply::Error(failure("still-there", text)))
    }

    pub(super) fn guests_left(&self) -> Vec<String> {
        let guests = self.hosting.guests();
        guests
            .map(|guest| format!("{} of node {}", guest.process.pid, guest.process.home))
            .collect()
    }

    pub(super) fn own_left(&self) -> Vec<String> {
        let me = self.me();
        let away = self.processes.values();
        let away = away.filter(|process| process.at != me || process.moving.is_some());
        away.map(|process| format!("{} on node {}", process.pid, process.at)).collect()
    }

    fn own_movable_here(&self) -> usize {
        let me = self.me();
        let here = self.processes.values().filter(|process| process.at == me);
        here.filter(|p| !p.is_pinned() && p.launch == Launch::Running && !p.has_ended).count()
    }

    /// What all processes of that user that were born here get, in reference cores.
    pub(super) fn user_cores(&self, uid: u32) -> f64 {
        let his = self.processes.values().filter(|process| process.owner.uid == uid);
        his.filter_map(|process| process.progress.rate()).map(|(rate, _)| rate).sum()
    }

    /// The same in thousandths, as nodes tell each other.
    pub(super) fn user_milli(&self, uid: u32) -> u32 {
        (self.user_cores(uid) * 1e3) as u32
    }
}

/// Where the kernel shares a machine out by sessions, nice values do not count between them: this
/// daemon's session, to which all guests belong, stands back as a whole.
fn stand_back_as_session(yields: bool) -> std::io::Result<()> {
    let nice = if yields { STAND_BACK[1] } else { 0 };
    std::fs::write("/proc/self/autogroup", nice.to_string())
}

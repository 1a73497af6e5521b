//! Who is known to share memory with whom: such processes move together ([decision
//! 0034](../../docs/decisions/0034-groups-that-share-memory.md)), and are weighed as one.
//!
//! At home it is learned from supervisors that refuse to move one of them alone, and looked at
//! again from time to time, since a process that ends or begins another program is a member no
//! more. Of guests their supervisors say it when they come or are made.

use crate::process::{LastFreeze, Weight};
use brain::ProcessSample;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::ids::GlobalPid;

/// Between two looks at groups that nothing is known to have changed.
const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// A process that has just been made may begin another program at once.
const LOOK_DELAY: Duration = Duration::from_secs(1);

/// Shared memory that is in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBytes {
    /// About what there is of it.
    pub once: u64,
    /// As it is in the sum of what its members use.
    pub counted: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryGroup {
    pub members: BTreeSet<GlobalPid>,
    pub shared: SharedBytes,
}

#[derive(Debug, Default)]
pub struct MemoryGroups {
    groups: Vec<MemoryGroup>,
    /// Those that were weighed for their group last time.
    weighed: BTreeSet<GlobalPid>,
    /// When to look at them; None: a look is under way, or there are none.
    look_due: Option<Instant>,
    /// Members came or left since that look began.
    has_changed: bool,
}

impl MemoryGroups {
    pub fn of(&self, process: GlobalPid) -> Option<&MemoryGroup> {
        self.groups.iter().find(|group| group.members.contains(&process))
    }

    /// The member as which the group is weighed; the process itself if it is in none.
    pub fn first_of(&self, process: GlobalPid) -> GlobalPid {
        let first = self.of(process).and_then(|group| group.members.first());
        first.copied().unwrap_or(process)
    }

    /// Whether what was decided of the process is meant for all of its group.
    pub fn is_weighed_as_one(&self, process: GlobalPid) -> bool {
        self.weighed.contains(&process)
    }

    /// These, and nobody else, share memory with each other.
    pub fn learn(&mut self, members: BTreeSet<GlobalPid>, now: Instant) {
        let mut shared = SharedBytes::default();
        self.groups.retain(|group| {
            let is_other = group.members.is_disjoint(&members);
            if !is_other {
                shared = group.shared;
            }
            is_other
        });
        if members.len() > 1 {
            self.groups.push(MemoryGroup { members, shared });
            self.changed(now);
        }
    }

    /// One that was made by another, or came along with it, and shares memory with it.
    pub fn join(&mut self, other: GlobalPid, process: GlobalPid, now: Instant) {
        if !self.may_join(other, process, now) {
            let members = BTreeSet::from([other, process]);
            self.groups.push(MemoryGroup { members, shared: SharedBytes::default() });
            self.changed(now);
        }
    }

    /// The same, if that other one shares memory with anybody: a look will tell. Whether it does.
    pub fn may_join(&mut self, other: GlobalPid, process: GlobalPid, now: Instant) -> bool {
        let Some(group) = self.groups.iter_mut().find(|g| g.members.contains(&other)) else {
            return false;
        };
        if group.members.insert(process) {
            self.changed(now);
        }
        true
    }

    /// It has ended, or is a guest here no more.
    pub fn leave(&mut self, process: GlobalPid) {
        for group in &mut self.groups {
            self.has_changed |= group.members.remove(&process);
        }
        self.groups.retain(|group| group.members.len() > 1);
    }

    fn changed(&mut self, now: Instant) {
        let due = now + LOOK_DELAY;
        self.look_due = Some(self.look_due.map_or(due, |other| other.min(due)));
        self.has_changed = true;
    }

    /// Begins a look at all groups, if one is due.
    pub fn begin_look(&mut self, now: Instant) -> Option<Vec<MemoryGroup>> {
        self.look_due.take_if(|due| *due <= now)?;
        self.has_changed = false;
        (!self.groups.is_empty()).then(|| self.groups.clone())
    }

    /// What a look has found, unless members have come or left meanwhile.
    pub fn looked(&mut self, found: Vec<MemoryGroup>, now: Instant) {
        if self.has_changed {
            self.look_due.get_or_insert(now + LOOK_DELAY);
            return;
        }
        self.groups = found;
        self.look_due = (!self.groups.is_empty()).then_some(now + LOOK_PAUSE);
    }

    /// Has each group be weighed as one process, its first member, that is as large and as busy as
    /// all of them. The others stay with it. If one of them has to stay where it is, all do; so do
    /// they with one that is not `managed`.
    pub fn weigh_as_one(
        &mut self,
        samples: &mut [Sampled],
        is_managed: impl Fn(GlobalPid) -> bool,
    ) {
        self.weighed.clear();
        if self.groups.is_empty() {
            return;
        }
        let places = samples.iter().enumerate();
        let places: BTreeMap<GlobalPid, usize> =
            places.map(|(place, sampled)| (sampled.sample.process, place)).collect();
        for group in &self.groups {
            let members = group.members.iter();
            let here: Vec<usize> =
                members.filter_map(|member| places.get(member).copied()).collect();
            let strange = group.members.iter().find(|member| !is_managed(**member));
            self.weighed.extend(weigh_group(samples, &here, group, strange.copied()));
        }
    }
}

impl MemoryGroup {
    /// What a move of all depends on.
    pub fn weight(&self, members: impl Iterator<Item = Weight>) -> Weight {
        let add = |all: Weight, one: Weight| Weight {
            last: LastFreeze {
                us: all.last.us.max(one.last.us),
                bytes: all.last.bytes.saturating_add(one.last.bytes),
            },
            rss_bytes: all.rss_bytes.saturating_add(one.rss_bytes),
            shared_bytes: 0,
        };
        let all = members.fold(Weight::default(), add);
        let SharedBytes { once, counted } = self.shared;
        let rss_bytes = all.rss_bytes.saturating_sub(counted).saturating_add(once);
        Weight { rss_bytes, shared_bytes: once, ..all }
    }
}

/// What is known of a process that runs here.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub sample: ProcessSample,
    pub weight: Weight,
}

/// Returns who stands for all of it; nobody if no two of it are here.
fn weigh_group(
    samples: &mut [Sampled],
    here: &[usize],
    group: &MemoryGroup,
    strange: Option<GlobalPid>,
) -> Option<GlobalPid> {
    let (first, others) = here.split_first().filter(|(_, others)| !others.is_empty())?;
    let weight = group.weight(here.iter().map(|place| samples[*place].weight));
    let mut all = samples[*first].sample.clone();
    let not_managed = |other: GlobalPid| {
        format!("it shares memory with process {}, which is not under osmos", other.pid)
    };
    let mut stays = strange.map(not_managed);
    for sample in others.iter().map(|place| &samples[*place].sample) {
        all.stands_for += sample.stands_for;
        all.demand += sample.demand;
        all.used += sample.used;
        all.forwarded_per_s += sample.forwarded_per_s;
        all.cpu += sample.cpu;
        all.here = all.here.min(sample.here);
        let because = |why: &String| {
            format!("process {}, which it shares memory with, stays: {why}", sample.process.pid)
        };
        stays = stays.or_else(|| sample.stays.as_ref().map(because));
    }
    all.rss_bytes = weight.rss_bytes;
    all.stays = all.stays.or(stays);
    // A turn would be one of all of them.
    all.group = None;
    let process = all.process;
    samples[*first] = Sampled { sample: all, weight };
    for place in others {
        let Sampled { sample, weight } = &mut samples[*place];
        sample.stands_for = 0;
        (sample.demand, sample.used, sample.forwarded_per_s) = (0.0, 0.0, 0.0);
        (sample.rss_bytes, sample.group) = (0, None);
        let text = format!("it goes with process {}, which it shares memory with", process.pid);
        sample.stays = Some(text);
        *weight = Weight::default();
    }
    Some(process)
}

#[cfg(test)]
mod test {
    use super::*;
    use brain::{GroupId, Span};
    use wire::ids::{HomePid, NodeId};

    fn process(pid: i32) -> GlobalPid {
        GlobalPid { home: NodeId(1), pid: HomePid(pid) }
    }

    fn members(pids: &[i32]) -> BTreeSet<GlobalPid> {
        pids.iter().copied().map(process).collect()
    }

    fn sampled(pid: i32, demand: f64, rss_bytes: u64) -> Sampled {
        let sample = ProcessSample {
            process: process(pid),
            stands_for: 1,
            demand,
            used: demand / 2.0,
            here: Span::from_secs(pid as u64),
            cpu: Span::from_secs(10),
            rss_bytes,
            forwarded_per_s: 1.0,
            freeze_estimate: Span::ZERO,
            copy_estimate: Span::ZERO,
            left: None,
            stays: None,
            group: GroupId::new(7),
            user: None,
        };
        let last = LastFreeze { us: pid as u64, bytes: 100 };
        Sampled { sample, weight: Weight::of(last, rss_bytes) }
    }

    fn known(groups: &MemoryGroups) -> Vec<BTreeSet<GlobalPid>> {
        groups.groups.iter().map(|group| group.members.clone()).collect()
    }

    #[test]
    fn a_group_is_weighed_as_its_first_member_and_counts_shared_memory_once() {
        let mut groups = MemoryGroups::default();
        groups.learn(members(&[4, 3, 9]), Instant::now());
        groups.groups[0].shared = SharedBytes { once: 1000, counted: 2500 };
        let mut all: Vec<Sampled> = [2, 3, 4, 9].map(|pid| sampled(pid, 0.75, 2000)).into();
        let alone = all[0].clone();
        assert!(!groups.is_weighed_as_one(process(3)), "it is known, and not weighed yet");
        groups.weigh_as_one(&mut all, |_| true);
        assert!(groups.is_weighed_as_one(process(3)) && !groups.is_weighed_as_one(process(4)));
        assert_eq!(all[0], alone);
        let first = &all[1].sample;
        assert_eq!(first.stands_for, 3);
        assert_eq!((first.demand, first.used, first.forwarded_per_s), (2.25, 1.125, 3.0));
        assert_eq!((first.cpu, first.here), (Span::from_secs(30), Span::from_secs(3)));
        assert_eq!((first.rss_bytes, first.stays.as_deref()), (4500, None));
        assert_eq!(first.group, None, "it takes no turns");
        let last = LastFreeze { us: 9, bytes: 300 };
        assert_eq!(all[1].weight, Weight { last, rss_bytes: 4500, shared_bytes: 1000 });
        for other in &all[2..] {
            assert_eq!((other.sample.demand, other.sample.rss_bytes), (0.0, 0));
            assert_eq!(other.sample.stands_for, 0);
            let why = other.sample.stays.as_deref().unwrap();
            assert_eq!(why, "it goes with process 3, which it shares memory with");
        }
        assert_eq!(groups.first_of(process(9)), process(3));
        assert_eq!(groups.first_of(process(2)), process(2));
    }

    #[test]
    fn a_group_stays_where_one_of_its_members_has_to() {
        let mut groups = MemoryGroups::default();
        groups.learn(members(&[3, 4]), Instant::now());
        let mut all = [3, 4].map(|pid| sampled(pid, 1.0, 1));
        all[1].sample.stays = Some("its user said where it runs".into());
        groups.weigh_as_one(&mut all, |_| true);
        assert_eq!(
            all[0].sample.stays.as_deref(),
            Some("process 4, which it shares memory with, stays: its user said where it runs")
        );
        let mut all = [3, 4].map(|pid| sampled(pid, 1.0, 1));
        groups.learn(members(&[3, 4, 5]), Instant::now());
        groups.weigh_as_one(&mut all, |process| process.pid.0 != 5);
        assert_eq!(
            all[0].sample.stays.as_deref(),
            Some("it shares memory with process 5, which is not under osmos")
        );
    }

    #[test]
    fn one_that_is_alone_here_is_weighed_as_itself() {
        let mut groups = MemoryGroups::default();
        groups.learn(members(&[3, 4]), Instant::now());
        let mut all = [sampled(3, 1.0, 1)];
        groups.weigh_as_one(&mut all, |_| true);
        assert_eq!(all, [sampled(3, 1.0, 1)]);
        assert!(!groups.is_weighed_as_one(process(3)));
    }

    #[test]
    fn what_is_learned_replaces_what_was_known_of_these_processes() {
        let (mut groups, now) = (MemoryGroups::default(), Instant::now());
        groups.learn(members(&[1, 2]), now);
        groups.learn(members(&[5, 6]), now);
        groups.learn(members(&[2, 3]), now);
        assert_eq!(known(&groups), [members(&[5, 6]), members(&[2, 3])]);
        groups.learn(members(&[5]), now);
        assert_eq!(known(&groups), [members(&[2, 3])]);
        groups.join(process(3), process(7), now);
        groups.join(process(8), process(9), now);
        assert!(groups.may_join(process(8), process(10), now));
        assert!(!groups.may_join(process(20), process(21), now));
        assert_eq!(known(&groups), [members(&[2, 3, 7]), members(&[8, 9, 10])]);
        groups.leave(process(9));
        groups.leave(process(8));
        assert_eq!(known(&groups), [members(&[2, 3, 7])]);
    }

    #[test]
    fn a_look_counts_unless_members_came_or_left_since_it_began() {
        let (mut groups, now) = (MemoryGroups::default(), Instant::now());
        assert_eq!(groups.begin_look(now + LOOK_PAUSE), None, "there is nothing to look at");
        groups.learn(members(&[1, 2, 3]), now);
        assert_eq!(groups.begin_look(now), None, "not yet");
        let later = now + LOOK_DELAY;
        assert_eq!(groups.begin_look(later).map(|all| all.len()), Some(1));
        assert_eq!(groups.begin_look(later), None, "one at a time");
        groups.may_join(process(2), process(4), later);
        groups.looked(vec![], later);
        assert_eq!(known(&groups), [members(&[1, 2, 3, 4])]);
        assert!(groups.begin_look(later + LOOK_DELAY).is_some());
        groups.leave(process(4));
        groups.looked(vec![], later);
        assert_eq!(known(&groups), [members(&[1, 2, 3])]);
        assert!(groups.begin_look(later + LOOK_DELAY).is_some());
        let shared = SharedBytes { once: 1, counted: 2 };
        let found = MemoryGroup { members: members(&[1, 2]), shared };
        groups.looked(vec![found.clone()], later);
        assert_eq!(groups.groups, [found]);
        assert_eq!(groups.begin_look(later + LOOK_DELAY), None, "nothing has changed");
        assert!(groups.begin_look(later + LOOK_PAUSE).is_some());
        groups.looked(vec![], later);
        assert_eq!(groups.begin_look(later + 9 * LOOK_PAUSE), None);
    }
}

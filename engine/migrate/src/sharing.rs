//! Who else has a process's memory: with whom it shares it, it stays.
//!
//! Once a process has left, its memory here is emptied, and that of whoever shares it as well. So
//! what cannot be found out counts as shared. It is looked at before anything is touched, to tell
//! whoever asks, and again when the process stands frozen, because only then nobody who shares
//! nothing yet can begin to.

use crate::group::{self, Bonds};
use crate::{MigrateError, Result, files, layout};
use kernel::proc::maps::{self, Mapping};
use kernel::proc::process::{self, Stat};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long a program is waited for that is being started by vfork.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at it. Nothing tells when another process executes its program.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// How long a process is waited for that cannot be looked into, and may be about to begin a
/// program.
const UNSEEN_PATIENCE: Duration = Duration::from_millis(50);
/// All processes are listed again and again in one check, because who was forked meanwhile is in
/// the next listing only: at least so often, and for so long. One that shows nobody new comes
/// within milliseconds even while a build makes a thousand processes a second, but not for a
/// supervisor that others keep from running.
const LISTINGS_MIN: usize = 64;
const LISTING_TIME_MIN: Duration = Duration::from_millis(250);

/// As [`check`], for a process that runs: a vfork is given the time that it mostly takes, and
/// whoever asks is told of all that it shares memory with.
pub fn check_patiently(pid: i32, maps: &[Mapping], bonds: &Bonds) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match check(pid, maps, bonds) {
            Err(MigrateError::Refused(reason))
                if reason.code == SHARED_ADDRESS_SPACE && Instant::now() < deadline =>
            {
                std::thread::sleep(LOOK_INTERVAL);
            }
            Err(MigrateError::Refused(mut reason)) if reason.code == SHARED_MEMORY => {
                let (members, _) = group::of(pid).unwrap_or_default();
                reason.text.push_str(&group::description(&members));
                return Err(MigrateError::Refused(reason));
            }
            verdict => return verdict,
        }
    }
}

const SHARED_ADDRESS_SPACE: &str = "shared-address-space";
const SHARED_MEMORY: &str = wire::memory_group::BOUND;

/// Refuses a process that is not alone in its address space, or shares memory with others than
/// those it is bound to, which go where it goes.
///
/// # Errors
/// Refused, with the other one's number; or with that of one which cannot be looked into.
pub fn check(pid: i32, maps: &[Mapping], bonds: &Bonds) -> Result<()> {
    let may_be_memory = |m: &&Mapping| bonds.has(m) || layout::is_memory_file(m);
    let shared: Vec<&Mapping> = maps.iter().filter(may_be_memory).collect();
    let family = if shared.is_empty() { None } else { Some(Family::of(pid)?) };
    let can_compare = process::share_address_space(pid, pid).is_ok();
    let compared_maps = (!can_compare).then_some(maps);
    let mut seen = HashSet::from([pid]);
    let deadline = Instant::now() + LISTING_TIME_MIN;
    let mut count = 0;
    while count < LISTINGS_MIN || Instant::now() < deadline {
        count += 1;
        let listed = process::all()?;
        let fresh: Vec<i32> = listed.into_iter().filter(|other| seen.insert(*other)).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        for other in fresh {
            // Those that have ended have the same one: none.
            if is_one_address_space(pid, other, compared_maps) && has_memory(other) {
                let text = format!(
                    "it shares all its memory with process {other} (vfork, or clone with CLONE_VM)"
                );
                return Err(MigrateError::refused(SHARED_ADDRESS_SPACE, text));
            }
            if let Some(family) = family.as_ref().filter(|_| !bonds.members.contains(&other)) {
                check_memory(other, (&shared, bonds), family)?;
            }
        }
    }
    let text = "processes come faster than can be seen whether they share its memory";
    Err(MigrateError::refused(SHARED_MEMORY, text))
}

/// As [`check`], of a process that stands frozen, while `work` is done with it: that takes as long,
/// and mostly there is another processor, on which the process ran.
///
/// # Errors
/// As [`check`], or of the work, which is done in either case.
pub fn check_meanwhile<T>(
    pid: i32,
    maps: &[Mapping],
    bonds: &Bonds,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    std::thread::scope(|scope| {
        let begun = std::thread::Builder::new().spawn_scoped(scope, || check(pid, maps, bonds));
        let done = work()?;
        let verdict = match begun.map(|looker| looker.join()) {
            Ok(Ok(verdict)) => verdict,
            // It could not begin.
            _ => check(pid, maps, bonds),
        };
        verdict.map(|()| done)
    })
}

/// Where there is no kcmp(2), whoever has the same mappings (`instead`) counts.
///
/// Who shares an address space with a process that we may look into can be compared with it: the
/// kernel takes an address space as a whole from whoever may look into it as soon as one of those
/// in it takes on other credentials (`commit_creds`). So one that cannot be compared is another.
fn is_one_address_space(pid: i32, other: i32, instead: Option<&[Mapping]>) -> bool {
    match instead {
        None => process::share_address_space(pid, other).unwrap_or(false),
        Some(maps) => maps::read(other).is_ok_and(|others| !maps.is_empty() && others == maps),
    }
}

fn has_memory(pid: i32) -> bool {
    // One that does not let us see has some.
    read_maps(pid).map_or_else(|error| !error.is_gone(), |maps| !maps.is_empty())
}

fn check_memory(other: i32, (shared, bonds): (&[&Mapping], &Bonds), family: &Family) -> Result<()> {
    let is_same = |m: &Mapping, ours: &&&Mapping| {
        let is_it = (m.inode, m.device) == (ours.inode, ours.device);
        // Of a file that is none of a group's memory only who writes to it matters.
        is_it && (bonds.has(ours) || files::may_write_to(other, m))
    };
    match read_maps(other) {
        Ok(maps) => match shared.iter().find(|ours| maps.iter().any(|m| is_same(m, ours))) {
            Some(ours) => {
                let text = format!("it shares memory at {:#x} with process {other}", ours.start);
                Err(MigrateError::refused(SHARED_MEMORY, text))
            }
            None => Ok(()),
        },
        Err(error) if error.is_gone() => Ok(()),
        Err(_) if !family.may_have_for_long(other) => Ok(()),
        Err(_) => {
            let text = format!(
                "it has shared memory at {:#x}, and process {other}, which may be forked from the \
                 same program, does not let us see whether it shares it",
                shared[0].start
            );
            Err(MigrateError::refused(SHARED_MEMORY, text))
        }
    }
}

/// The mappings of a process; of any of its threads if the first has ended.
pub(crate) fn read_maps(pid: i32) -> kernel::Result<Vec<Mapping>> {
    let maps = maps::read(pid)?;
    if !maps.is_empty() {
        return Ok(maps);
    }
    // A thread of the kernel, a process that has ended, or one whose first thread has.
    let others = process::threads(pid)?.into_iter().filter(|tid| *tid != pid);
    others
        .map(maps::read)
        .find(|maps| maps.as_ref().is_ok_and(|m| !m.is_empty()))
        .unwrap_or(Ok(maps))
}

/// What is known of where a process's memory comes from. Shared memory without a name is handed on
/// by fork alone, and what a program shares it no longer has when it executes another.
struct Family {
    own: Stat,
    /// If it was forked and executed no program since: those before it, up to one that did.
    ancestors: Vec<i32>,
    /// The one user whom all that were forked since its program was begun have, if that is known.
    user: Option<u32>,
}

/// Linux nests no deeper than it has processes; nobody forks so often without executing anything.
const ANCESTORS_MAX: usize = 256;

impl Family {
    fn of(pid: i32) -> Result<Family> {
        let own = process::stat(&pid.to_string())?;
        let unseen = |whom| {
            let text = format!("it has shared memory, and {whom}, which may share it");
            MigrateError::refused(SHARED_MEMORY, text)
        };
        if hides_processes() {
            return Err(unseen("/proc hides other users' processes (hidepid)"));
        }
        match ancestors_of(&own) {
            Some(ancestors) => Ok(Family { own, ancestors, user: only_user(pid) }),
            None => Err(unseen("the process that it was forked from cannot be seen")),
        }
    }

    /// The same, unless that passes: whoever is forked has other memory as soon as it begins its
    /// program, and one of another user mostly does.
    fn may_have_for_long(&self, other: i32) -> bool {
        let deadline = Instant::now() + UNSEEN_PATIENCE;
        while self.may_have(other) {
            if Instant::now() >= deadline {
                return true;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        false
    }

    /// Whether a process that cannot be looked into may have memory of this one.
    fn may_have(&self, other: i32) -> bool {
        let stat = process::stat(&other.to_string());
        stat.map_or(true, |stat| may_share(&self.own, &self.ancestors, &stat))
            && !self.user.is_some_and(|user| is_another_users(other, user))
    }
}

/// The user of a process whose program was begun for him, without rights to become another: then
/// what was forked from the same program is his, too, in whatever order they began and ended.
fn only_user(pid: i32) -> Option<u32> {
    let user = process::program_user(pid).ok()?.filter(|user| *user != 0)?;
    let status = process::status(pid).ok()?;
    let has_rights = process::status_field(&status, "CapPrm")?.bytes().any(|digit| digit != b'0');
    (!has_rights && process::status_numbers(&status, "Uid").iter().all(|of| *of == user))
        .then_some(user)
}

/// Whether a process has nothing of this user; and no user namespace, in which he could be another.
fn is_another_users(pid: i32, user: u32) -> bool {
    let map = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/uid_map")).ok();
    let is_plain = map("self").is_some_and(|ours| map(&pid.to_string()) == Some(ours));
    let status = process::status(pid).unwrap_or_default();
    let users = process::status_numbers(&status, "Uid");
    is_plain && !users.is_empty() && !users.contains(&user)
}

fn ancestors_of(own: &Stat) -> Option<Vec<i32>> {
    let mut ancestors = Vec::new();
    let mut youngest = own.clone();
    while youngest.is_copied() {
        if youngest.parent == 0 || ancestors.len() == ANCESTORS_MAX {
            return None;
        }
        ancestors.push(youngest.parent);
        youngest = process::stat(&youngest.parent.to_string()).ok()?;
    }
    Some(ancestors)
}

fn may_share(own: &Stat, ancestors: &[i32], other: &Stat) -> bool {
    if other.is_kernel_thread() || other.has_ended() {
        return false;
    }
    if own.is_copied() {
        // From whomever: the process between the two may have ended.
        other.is_copied() || ancestors.contains(&other.pid)
    } else {
        // Its program has memory of its own, and hands it to those that are forked from it.
        other.is_copied() && other.start_ticks >= own.start_ticks
    }
}

/// Whether `/proc` shows us only our own processes (proc(5), hidepid).
pub(crate) fn hides_processes() -> bool {
    if nix::unistd::geteuid().is_root() {
        return false;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo");
    mounts.map_or(true, |mounts| mounts.lines().any(is_hiding))
}

fn is_hiding(mount: &str) -> bool {
    let Some((place, kind)) = mount.split_once(" - ") else { return false };
    let is_proc = place.split(' ').nth(4) == Some("/proc") && kind.starts_with("proc ");
    let mut options = kind.split([' ', ',']).filter_map(|word| word.strip_prefix("hidepid="));
    is_proc && options.any(|way| !matches!(way, "0" | "off"))
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const COPIED: u64 = 0x40;
    fn alone() -> Bonds {
        Bonds::default()
    }

    fn process(pid: i32, flags: u64, start_ticks: u64) -> Stat {
        Stat { pid, flags, start_ticks, state: b'S', ..Stat::default() }
    }

    #[test]
    fn who_cannot_be_looked_into_counts_unless_it_cannot_be_of_the_family() {
        let own = process(10, 0, 100);
        assert!(may_share(&own, &[], &process(11, COPIED, 100)), "forked from it");
        assert!(!may_share(&own, &[], &process(9, COPIED, 99)), "older than it");
        assert!(!may_share(&own, &[], &process(12, 0, 200)), "executed a program");
        assert!(!may_share(&own, &[], &process(13, 0x20_0040, 200)), "of the kernel");
        let ended = Stat { state: b'Z', ..process(11, COPIED, 100) };
        assert!(!may_share(&own, &[], &ended), "ended");
        let forked = process(10, COPIED, 100);
        assert!(may_share(&forked, &[4], &process(4, 0, 50)), "its parent");
        assert!(may_share(&forked, &[4], &process(9, COPIED, 60)), "its parent's other child");
        assert!(!may_share(&forked, &[4], &process(5, 0, 60)), "executed a program");
    }

    #[test]
    fn a_proc_that_hides_processes_is_told_from_one_that_does_not() {
        let mount =
            |options: &str| format!("24 30 0:22 / /proc rw,relatime - proc proc rw{options}");
        assert!(!is_hiding(&mount("")));
        assert!(!is_hiding(&mount(",hidepid=0")));
        assert!(!is_hiding(&mount(",gid=4,hidepid=off")));
        assert!(is_hiding(&mount(",hidepid=invisible,gid=4")));
        assert!(is_hiding(&mount(",hidepid=2")));
        assert!(!is_hiding("24 30 0:22 / /mnt rw - ext4 /dev/sda rw,hidepid=2"));
    }

    /// A process of no relatives, for as long as `look` needs it.
    fn with_a_stranger(look: impl FnOnce(i32)) {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        look(child.id() as i32);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_without_relatives_shares_nothing() {
        with_a_stranger(|pid| check_patiently(pid, &maps::read(pid).unwrap(), &alone()).unwrap());
    }

    #[test]
    fn one_that_has_ended_shares_nothing_with_others_that_have() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let mut another = std::process::Command::new("true").spawn().unwrap();
        let pids = [ended.id() as i32, another.id() as i32];
        let is_zombie = |pid: i32| process::stat(&pid.to_string()).unwrap().state == b'Z';
        while !pids.into_iter().all(is_zombie) {
            std::thread::yield_now();
        }
        let verdict = check(pids[0], &[], &alone());
        ended.wait().unwrap();
        another.wait().unwrap();
        verdict.unwrap();
    }

    #[test]
    fn processes_that_come_and_go_all_the_time_hinder_nobody() {
        let is_over = AtomicBool::new(false);
        let spawn = || {
            while !is_over.load(Ordering::Relaxed) {
                std::process::Command::new("true").status().unwrap();
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(spawn)));
            with_a_stranger(|pid| {
                let maps = maps::read(pid).unwrap();
                let verdicts: Vec<_> = (0..200).map(|_| check(pid, &maps, &alone())).collect();
                is_over.store(true, Ordering::Relaxed);
                let refused = verdicts.iter().filter(|verdict| verdict.is_err()).count();
                assert_eq!(refused, 0, "of {}", verdicts.len());
            });
        });
    }
}

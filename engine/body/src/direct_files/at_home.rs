//! What home says of files that lie there, and what becomes of them here.

use super::ahead::{Ahead, Lies};
use super::taking_over::may_have_any;
use super::{DirectFiles, Known, take_again};
use crate::state::Shared;
use kernel::seccomp::Notification;
use std::collections::HashMap;
use std::sync::Arc;
use wire::forward::{Opened, ToHome};
use wire::limits::AHEAD_FILES_MAX;
use wire::read_ahead::{Asked, Given, Told};

/// Takes what home says.
pub fn hear(shared: &Arc<Shared>, told: Told) {
    let waiting = match told {
        Told::Lies(opened) => return super::opened(shared, &opened, lies(&opened)),
        Told::Given { id, given } => given_or_not(shared, id, given),
        Told::Bytes { id, stretch, at, bytes } => {
            let mut known = shared.direct_files.known();
            let ahead = known.values_mut().find_map(|file| match file {
                Known::Ahead(ahead) if ahead.id() == id => Some(ahead),
                _ => None,
            });
            ahead.map_or_else(Vec::new, |ahead| ahead.hear(stretch, at, bytes))
        }
        Told::Changed { id } => changed(shared, id),
    };
    take_again(shared, waiting);
}

fn lies(opened: &Opened) -> Known {
    Known::Lies(Lies::of(opened.size))
}

/// Home has answered whether a file is read ahead.
fn given_or_not(shared: &Arc<Shared>, id: u64, given: Given) -> Vec<Notification> {
    // It reads what the kernel knows of the memory, and locks nothing meanwhile.
    let may_be = may_have_any(shared);
    let mut known = shared.direct_files.known();
    let others = known.values().filter(|file| matches!(file, Known::Ahead(_))).count();
    let is_any_here = known.values().any(|file| matches!(file, Known::Open(_)));
    let Some((descriptor, waiting, lies)) = take_wanted(&mut known, id) else {
        // Home was told when that came to be.
        return vec![];
    };
    let is_one = lies.is_some() && may_be && others < AHEAD_FILES_MAX && !is_any_here;
    let file = match (given, lies) {
        (Given::Granted { position, size }, Some(lies)) if is_one => {
            Some(Known::Ahead(Box::new(Ahead::of(id, (position, size), lies))))
        }
        (Given::Granted { .. }, lies) => {
            shared.queue(ToHome::Ahead(Asked::Leaves { id }));
            lies.map(|lies| Known::Lies(lies.doubled()))
        }
        (Given::NotNow, lies) => lies.map(|lies| Known::Lies(lies.doubled())),
        (Given::Never, _) => None,
    };
    if let Some(file) = file {
        known.insert(descriptor, file);
    }
    waiting
}

/// A file that home was asked for by that number, who waits for it, and what it was, unless it has
/// got another name.
fn take_wanted(
    known: &mut HashMap<i32, Known>,
    asked: u64,
) -> Option<(i32, Vec<Notification>, Option<Lies>)> {
    let is_it = |file: &Known| matches!(file, Known::Wanted { id, .. } if *id == asked);
    let descriptor = known.iter().find(|(_, file)| is_it(file)).map(|(number, _)| *number)?;
    match known.remove(&descriptor)? {
        Known::Wanted { waiting, is_lost, lies, .. } => {
            Some((descriptor, waiting, lies.filter(|_| !is_lost)))
        }
        _ => None,
    }
}

/// What was sent of a file is not what it contains. Home does all that is done with it.
fn changed(shared: &Shared, id: u64) -> Vec<Notification> {
    let mut known = shared.direct_files.known();
    for (descriptor, file) in known.iter_mut() {
        if let Known::Ahead(ahead) = file
            && ahead.id() == id
        {
            let waiting = ahead.take_waiting();
            tell_position(shared, *descriptor, ahead);
            *file = Known::Lies(ahead.lies().doubled());
            return waiting;
        }
    }
    let Some((descriptor, waiting, lies)) = take_wanted(&mut known, id) else { return vec![] };
    known.extend(lies.map(|lies| (descriptor, Known::Lies(lies.doubled()))));
    waiting
}

/// From now on home does all that is done with a file.
pub fn go_home(shared: &Shared, descriptor: i32, file: &mut Known) {
    if let Known::Ahead(ahead) = file {
        tell_position(shared, descriptor, ahead);
        shared.queue(ahead.leaves());
        *file = Known::Lies(ahead.lies());
    }
}

/// The same for all, once the guest may learn of something by a file of this node: home would not
/// know that it did. Those who wait make their calls again.
pub fn all_go_home(shared: &Shared) -> Vec<Notification> {
    let mut waiting = Vec::new();
    for (descriptor, file) in shared.direct_files.known().iter_mut() {
        if let Known::Ahead(ahead) = file {
            waiting.extend(ahead.take_waiting());
        }
        go_home(shared, *descriptor, file);
    }
    waiting
}

/// Before whatever is sent next.
pub fn tell_position(shared: &Shared, descriptor: i32, ahead: &mut Ahead) {
    if let Some(position) = ahead.untold() {
        shared.queue(ToHome::UsedDirectly { descriptor, position, has_written: false });
    }
}

/// Whether the bytes of one of these are awaited: the call is made after that.
pub fn has_wait(files: &DirectFiles, is_meant: impl Fn(i32) -> bool, n: &Notification) -> bool {
    files.known().iter_mut().any(|(descriptor, file)| match file {
        Known::Ahead(ahead) => is_meant(*descriptor) && ahead.has_wait(n),
        _ => false,
    })
}

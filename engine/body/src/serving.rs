//! The threads of this supervisor beside the main one, from when the body runs.

use crate::arrival::Link;
use crate::state::Shared;
use crate::{files, late, modesty, notices, replies};
use link::LinkReader;
use std::sync::Arc;

/// What there is one of for all bodies of a sandbox.
pub(crate) fn begin_for_all(shared: &Arc<Shared>) {
    spawn("modesty", shared, |shared| modesty::watch(&shared));
    begin_for_filter(shared);
}

/// What there is one of for all bodies under one filter.
pub(crate) fn begin_for_filter(shared: &Arc<Shared>) {
    spawn("notices", shared, |shared| notices::serve(&shared.family, &shared.listener));
}

/// What each body has beside its own thread.
pub(crate) fn begin(shared: &Arc<Shared>, home: LinkReader, late_link: Option<Link>) {
    if shared.files.is_any() {
        spawn("files", shared, |shared| files::serve(&shared));
    }
    if let (Some(late), Some(link)) = (shared.late.clone(), late_link) {
        spawn("late", shared, move |shared| {
            late::serve(&late, link, &|order| shared.order(order));
        });
    }
    spawn("replies", shared, move |shared| replies::serve(&shared, home));
}

fn spawn(name: &str, shared: &Arc<Shared>, serve: impl FnOnce(Arc<Shared>) + Send + 'static) {
    let shared = shared.clone();
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(move || serve(shared)).expect("a supervisor can start its threads");
}

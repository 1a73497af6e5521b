//! As whom a server runs: before it looks at anything of another machine's, and for good.

use nix::unistd::{Gid, Uid, getresgid, getresuid, setgroups, setresgid, setresuid};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use std::io;
use wire::files::Served;

/// # Errors
/// The kernel does not let it: then it must not go on.
pub fn become_user(served: &Served, groups: Option<&[u32]>) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(served.uid), Gid::from_raw(served.gid));
    if let Some(groups) = groups {
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        setgroups(&groups)?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
    }
    let users = getresuid()?;
    let is_user = [users.real, users.effective, users.saved].iter().all(|is| *is == uid);
    let own = getresgid()?;
    let is_group = groups.is_none() || [own.real, own.effective, own.saved] == [gid, gid, gid];
    if !is_user || !is_group {
        return Err(io::Error::other(format!("it is not user {uid}")));
    }
    nix::sys::prctl::set_no_new_privs()?;
    // Another process of this user has no business in it, and it holds the key of its connection.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Whoever makes a file has said already what of its mode he does not want.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    Ok(())
}

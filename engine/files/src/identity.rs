//! As whom a server runs: before it looks at anything of another machine's, and for good.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use std::io;
use wire::files::Served;

/// # Errors
/// The kernel does not let it: then it must not go on.
pub fn become_user(served: &Served, groups: Option<&[u32]>) -> io::Result<()> {
    kernel::user::become_user(served.uid, served.gid, groups)?;
    nix::sys::prctl::set_no_new_privs()?;
    // Another process of this user has no business in it, and it holds the key of its connection.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Whoever makes a file has said already what of its mode he does not want.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    Ok(())
}

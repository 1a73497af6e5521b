//! Becoming the user for whom a process of ours works: before it looks at anything of another
//! machine's, and for good.

use nix::unistd::{Gid, Uid, getresgid, getresuid, setgroups, setresgid, setresuid};
use std::io;

/// `groups`: none where this process is that user already, as a user's own daemon is.
///
/// # Errors
/// The kernel does not let it, or it would not be him afterwards: then it must not go on.
pub fn become_user(uid: u32, gid: u32, groups: Option<&[u32]>) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if let Some(groups) = groups {
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        setgroups(&groups)?;
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
    }
    let users = getresuid()?;
    let is_user = [users.real, users.effective, users.saved].iter().all(|is| *is == user);
    let own = getresgid()?;
    let is_group = groups.is_none() || [own.real, own.effective, own.saved] == [group; 3];
    if !is_user || !is_group {
        return Err(io::Error::other(format!("it is not user {uid}")));
    }
    Ok(())
}

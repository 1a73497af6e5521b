//! The accounts of this machine: in which group a guest runs here.
//!
//! Not in the one that its home claims: the number may be that of a group to which this machine's
//! disks belong. Only the file is asked. A directory service may take its time, and the daemon has
//! none.

use std::fs::File;
use std::io::Read;
use wire::users::NOBODY;

const ACCOUNTS: &str = "/etc/passwd";
/// What comes after that is not looked at.
const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;

/// The group of the user's account on this machine; without an account, one that owns nothing.
pub fn group_of(uid: u32) -> u32 {
    let mut text = Vec::new();
    let read =
        File::open(ACCOUNTS).and_then(|file| file.take(ACCOUNTS_BYTES_MAX).read_to_end(&mut text));
    if let Err(error) = read {
        tracing::debug!("{ACCOUNTS}: {error}");
    }
    parse(&String::from_utf8_lossy(&text), uid).unwrap_or(NOBODY)
}

/// Fields as in passwd(5): name, password, user, group.
fn parse(text: &str, uid: u32) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let user: u32 = fields.next()?.parse().ok()?;
        let group: u32 = fields.next()?.parse().ok()?;
        (user == uid && group < u32::MAX).then_some(group)
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_users_group_is_that_of_his_account_here() {
        let text = "root:x:0:0:root:/root:/bin/sh\nbroken:x\n\nanna:x:1000:100::/home/anna:\n\
                    odd:x:7:4294967295::/:\n";
        let groups = [0, 1000, 7, 1001].map(|uid| parse(text, uid));
        assert_eq!(groups, [Some(0), Some(100), None, None]);
        assert_eq!(group_of(0), 0);
        assert_eq!(group_of(3_999_999_999), NOBODY);
    }
}

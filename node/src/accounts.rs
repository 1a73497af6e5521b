//! The accounts of this machine: in which group a guest runs here, and what users are called.
//!
//! A guest's group is not the one that its home claims: the number may be that of a group to which
//! this machine's disks belong. Only the file is asked. A directory service may take its time, and
//! the daemon has none.

use std::fs::File;
use std::io::Read;
use wire::users::NOBODY;

const ACCOUNTS: &str = "/etc/passwd";
/// What comes after that is not looked at.
const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;

/// The group of the user's account on this machine; without an account, one that owns nothing.
pub fn group_of(uid: u32) -> u32 {
    account_of(&read(), uid).and_then(|account| account.group).unwrap_or(NOBODY)
}

/// The accounts as they are now: read once for all of a list.
pub struct Names(String);

impl Names {
    pub fn read() -> Names {
        Names(read())
    }

    /// The name of the user's account on this machine.
    pub fn of(&self, uid: u32) -> Option<String> {
        account_of(&self.0, uid).map(|account| account.name.to_owned())
    }
}

fn read() -> String {
    let mut text = Vec::new();
    let read =
        File::open(ACCOUNTS).and_then(|file| file.take(ACCOUNTS_BYTES_MAX).read_to_end(&mut text));
    if let Err(error) = read {
        tracing::debug!("{ACCOUNTS}: {error}");
    }
    String::from_utf8_lossy(&text).into_owned()
}

struct Account<'a> {
    name: &'a str,
    /// None: no group can have that number.
    group: Option<u32>,
}

/// Fields as in passwd(5): name, password, user, group.
fn account_of(text: &str, uid: u32) -> Option<Account<'_>> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, mut rest) = (fields.next()?, fields.skip(1));
        let user: u32 = rest.next()?.parse().ok()?;
        let group: u32 = rest.next()?.parse().ok()?;
        let group = (group < u32::MAX).then_some(group);
        (user == uid).then_some(Account { name, group })
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_users_group_is_that_of_his_account_here() {
        let text = "root:x:0:0:root:/root:/bin/sh\nbroken:x\n\nanna:x:1000:100::/home/anna:\n\
                    odd:x:7:4294967295::/:\n";
        let group = |uid| account_of(text, uid).and_then(|account| account.group);
        assert_eq!([0, 1000, 7, 1001].map(group), [Some(0), Some(100), None, None]);
        assert_eq!(group_of(0), 0);
        assert_eq!(group_of(3_999_999_999), NOBODY);
        let name = |uid| account_of(text, uid).map(|account| account.name);
        assert_eq!([1000, 7, 1001].map(name), [Some("anna"), Some("odd"), None]);
        assert_eq!(Names::read().of(0).as_deref(), Some("root"));
    }
}

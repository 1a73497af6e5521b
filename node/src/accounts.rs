//! The accounts of this machine: in which group a guest runs here, and what users are called.
//!
//! A guest's group is not the one that its home claims: the number may be that of a group to which
//! this machine's disks belong. Only the file is asked. A directory service may take its time, and
//! the daemon has none.

use std::fs::File;
use std::io::Read;
use wire::users::NOBODY;

const ACCOUNTS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
/// More than that the kernel takes for nobody on some systems (NGROUPS_MAX is 65,536 on Linux).
const GROUPS_MAX: usize = 1_024;
/// What comes after that is not looked at.
const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;

/// The group of the user's account on this machine; without an account, one that owns nothing.
pub fn group_of(uid: u32) -> u32 {
    account_of(&read(), uid).and_then(|account| account.group).unwrap_or(NOBODY)
}

/// The group of the user's account on this machine, as [`group_of`], and all that he is in.
pub fn groups_of(uid: u32) -> (u32, Vec<u32>) {
    let accounts = read();
    let account = account_of(&accounts, uid);
    let own = account.as_ref().and_then(|account| account.group).unwrap_or(NOBODY);
    let mut groups = vec![own];
    groups.extend(account.iter().flat_map(|of| groups_with(&read_file(GROUPS), of.name)));
    groups.truncate(GROUPS_MAX);
    (own, groups)
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
    read_file(ACCOUNTS)
}

fn read_file(name: &str) -> String {
    let mut text = Vec::new();
    let read =
        File::open(name).and_then(|file| file.take(ACCOUNTS_BYTES_MAX).read_to_end(&mut text));
    if let Err(error) = read {
        tracing::debug!("{name}: {error}");
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Fields as in group(5): name, password, group, members.
fn groups_with(text: &str, user: &str) -> Vec<u32> {
    let groups = text.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(2);
        let group: u32 = fields.next()?.parse().ok().filter(|group| *group < u32::MAX)?;
        fields.next()?.split(',').any(|member| member == user).then_some(group)
    });
    groups.collect()
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

    #[test]
    fn a_user_is_in_the_groups_that_name_him() {
        let text = "root:x:0:\naudio:x:29:bert,anna\nodd:x:4294967295:anna\nbroken\nz:x:7:annabel\n\
                    disk:x:6:anna";
        assert_eq!(groups_with(text, "anna"), [29, 6]);
        assert_eq!(groups_of(3_999_999_999), (NOBODY, vec![NOBODY]));
    }
}

//! What is done on one machine of a cluster that is brought up: the program is put there, a daemon
//! is started as the user, and it joins.

use super::ssh::Remote;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::net::IpAddr;
use std::process::Command;
use wire::control::Status;

/// The program's place in the user's home, and how scripts begin. The umask is for what ssh left.
const HEAD: &str = "umask 022\nprogram=\"$HOME/.local/bin/osmos\"\n";
/// Puts the program in its place once it was seen to run there.
const PUT: &str = "umask 022 && cd \"$HOME\" && mkdir -p .local/bin && \
     cat > .local/bin/.osmos.new && chmod 755 .local/bin/.osmos.new && \
     .local/bin/.osmos.new --version && mv -f .local/bin/.osmos.new .local/bin/osmos";
/// What the machine is and has, a line for each.
const LOOK: &str = "\
echo \"machine $(uname -s) $(uname -m)\"
echo \"connection $SSH_CONNECTION\"
if [ -x \"$program\" ]; then
  echo \"digest $(sha256sum < \"$program\" | cut -d' ' -f1)\"
  if status=$(\"$program\" status --json 2>/dev/null); then echo \"status $status\"; fi
fi
";
/// Starts a daemon that outlives this login. Where nobody lingers, what is in the user's runtime
/// directory goes with his last login, and the daemon's socket with it.
const UP: &str = "\
lingers=yes
if [ -n \"$XDG_RUNTIME_DIR\" ] && command -v loginctl >/dev/null; then
  loginctl enable-linger >/dev/null 2>&1 || lingers=no
fi
echo \"lingers $lingers\"
\"$program\" up >&2 || exit
echo \"status $(\"$program\" status --json)\"
";

/// A machine as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Of the program that is there.
    digest: Option<String>,
    /// Of the daemon that runs there.
    pub status: Option<Status>,
    /// The address of this machine, as that one sees it.
    pub here: Option<IpAddr>,
}

impl Found {
    /// Checks that it is one on which this program can run.
    fn parse(text: &str) -> Result<Found> {
        let machine = field(text, "machine").context("it does not answer as a shell would")?;
        let own = format!("Linux {}", std::env::consts::ARCH);
        ensure!(machine == own, "it is {machine}, this program is for {own}");
        let connection = field(text, "connection").and_then(|it| it.split(' ').next());
        Ok(Found {
            digest: field(text, "digest").map(str::to_owned),
            status: field(text, "status").map(parse_status).transpose()?,
            here: connection.and_then(|address| address.parse().ok()),
        })
    }
}

/// What a script has said behind that word, whatever a login shell says beside it.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn parse_status(text: &str) -> Result<Status> {
    serde_json::from_str(text)
        .context("the osmos there answers in a form that this one does not know")
}

pub fn look(remote: &Remote) -> Result<Found> {
    Found::parse(&remote.run(&format!("{HEAD}{LOOK}"))?)
}

/// This program, as it runs here.
pub struct OwnProgram {
    digest: Option<String>,
}

impl OwnProgram {
    pub fn read() -> OwnProgram {
        let digest = File::open("/proc/self/exe").ok().and_then(|program| {
            let output = Command::new("sha256sum").stdin(program).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            Some(text.split(' ').next()?.to_owned()).filter(|digest| digest.len() == 64)
        });
        OwnProgram { digest }
    }

    /// Copies it if it is not there. True if it was copied.
    pub fn put(&self, remote: &Remote, found: &Found) -> Result<bool> {
        if self.digest.is_some() && self.digest == found.digest {
            return Ok(false);
        }
        let mut program = File::open("/proc/self/exe").context("cannot read this program")?;
        remote
            .feed(PUT, &mut program)
            .context("this program cannot be copied, or not run, there")?;
        Ok(true)
    }
}

/// A daemon that was started.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    pub status: Status,
    /// It can be reached after the user's last login has ended.
    pub lingers: bool,
}

pub fn start(remote: &Remote) -> Result<Started> {
    let text = remote.run(&format!("{HEAD}{UP}")).context("its daemon does not start")?;
    let status = field(&text, "status").context("its daemon does not answer")?;
    Ok(Started { status: parse_status(status)?, lingers: field(&text, "lingers") != Some("no") })
}

/// Another daemon of the program that is there now takes the place of the one that runs.
pub fn replace(remote: &Remote) -> Result<Status> {
    let script =
        format!("{HEAD}\"$program\" up --replace >&2 || exit\n\"$program\" status --json\n");
    parse_status(remote.run(&script).context("its daemon was not replaced")?.trim())
}

/// Joins by the first of these addresses that works. `token` makes a new token for each try.
pub fn join(
    remote: &Remote,
    addresses: &[IpAddr],
    port: u16,
    mut token: impl FnMut() -> Result<String>,
) -> Result<()> {
    let mut failures = Vec::new();
    for address in addresses {
        let at = std::net::SocketAddr::new(*address, port);
        let script = format!("{HEAD}\"$program\" join {at} {}\n", word(&token()?)?);
        match remote.run(&script) {
            Ok(_) => return Ok(()),
            Err(error) => failures.push(format!("{at}: {error:#}")),
        }
    }
    bail!(
        "it cannot reach this machine; tried were {}. Name an address by which it can with \
         `--address`, and let port {port} through (TCP and UDP)",
        failures.join("; ")
    )
}

/// A token is a word that no shell looks into.
fn word(token: &str) -> Result<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    ensure!(!token.is_empty() && token.chars().all(is_plain), "the daemon's token is no word");
    Ok(token)
}

pub fn down(remote: &Remote) -> Result<bool> {
    let script = format!(
        "{HEAD}[ -x \"$program\" ] && \"$program\" status --json >/dev/null 2>&1 || exit 0\n\
         \"$program\" down >&2 && echo ended\n"
    );
    Ok(remote.run(&script)?.contains("ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(machine: &str) -> String {
        format!(
            "Welcome to two!\nmachine {machine}\nconnection 10.1.0.1 50000 10.1.0.2 22\n\
             digest {}\n",
            "a".repeat(64)
        )
    }

    #[test]
    fn a_machine_is_known_by_what_it_says_whatever_it_says_beside() {
        let own = format!("Linux {}", std::env::consts::ARCH);
        let found = Found::parse(&told(&own)).expect("a machine");
        assert_eq!(found.here, Some("10.1.0.1".parse().expect("an address")));
        assert_eq!((found.digest, found.status), (Some("a".repeat(64)), None));
        let error = Found::parse(&told("Linux s390x")).unwrap_err().to_string();
        assert!(error.starts_with("it is Linux s390x, this program is for Linux"), "{error}");
        assert!(Found::parse("motd only").is_err());
        assert!(Found::parse(&(told(&own) + "status nonsense\n")).is_err());
    }

    #[test]
    fn a_token_is_one_word_for_any_shell() {
        assert!(word("AbC-1_2").is_ok());
        for token in ["", "a b", "a:b", "$(x)", "a;b", "a\nb", "`x`", "a'b"] {
            assert!(word(token).is_err(), "{token:?}");
        }
    }
}

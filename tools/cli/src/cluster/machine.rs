//! What is done on one machine of a cluster that is brought up: the program is put there, a daemon
//! is started, the user's own or root's as a service of the system, and it joins.

use super::ssh::Remote;
use anyhow::{Context, Result, bail, ensure};
use std::net::IpAddr;
use wire::control::Status;

/// The program's place in the user's home, and how scripts begin. The umask is for what ssh left.
const USERS: &str = "umask 022\nprogram=\"$HOME/.local/bin/osmos\"\n";
/// The same for root: a package's program is its package manager's.
const SYSTEMS: &str = "\
umask 022
program=/usr/local/bin/osmos
for unit in /usr/lib/systemd/system /lib/systemd/system; do
  if [ -e \"$unit/osmos.service\" ] && [ -x /usr/bin/osmos ]; then
    program=/usr/bin/osmos
    echo 'packaged yes'
    break
  fi
done
";
/// What the machine is and has, a line for each.
const LOOK: &str = "\
echo \"machine $(uname -s) $(uname -m)\"
echo \"connection $SSH_CONNECTION\"
if command -v gzip >/dev/null; then echo \"unpacks yes\"; fi
if [ -d /run/systemd/system ]; then echo \"systemd yes\"; fi
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

/// The same as a service of the system. What its log says is said here if it does not start.
const UP_AS_SERVICE: &str = "\
\"$program\" service install >&2 || {
  journalctl --unit osmos --lines 3 --output cat >&2
  exit 1
}
echo \"status $(\"$program\" status --json)\"
";

/// A machine as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Of the program that is there.
    pub digest: Option<String>,
    /// Of the daemon that runs there.
    pub status: Option<Status>,
    /// The address of this machine, as that one sees it.
    pub here: Option<IpAddr>,
    /// It has gzip.
    pub unpacks: bool,
    /// The program there is of a package.
    pub is_packaged: bool,
    has_systemd: bool,
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
            unpacks: field(text, "unpacks").is_some(),
            is_packaged: field(text, "packaged").is_some(),
            has_systemd: field(text, "systemd").is_some(),
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

fn head(remote: &Remote) -> &'static str {
    if remote.is_system() { SYSTEMS } else { USERS }
}

pub fn look(remote: &Remote) -> Result<Found> {
    let found = Found::parse(&remote.run(&format!("{}{LOOK}", head(remote)))?)?;
    ensure!(
        found.has_systemd || !remote.is_system(),
        "systemd does not run it, so it has no services: without `--sudo` a daemon is started by \
         hand, as whom ssh logs in"
    );
    Ok(found)
}

/// Puts the program in its place once it was seen to run there.
pub fn put(remote: &Remote, bytes: &[u8], is_compressed: bool) -> Result<()> {
    let unpack = if is_compressed { "gzip -dc" } else { "cat" };
    let directory = if remote.is_system() { "/usr/local/bin" } else { ".local/bin" };
    let command = format!(
        "umask 022 && cd \"$HOME\" && mkdir -p {directory} && \
         {unpack} > {directory}/.osmos.new && chmod 755 {directory}/.osmos.new && \
         {directory}/.osmos.new --version && mv -f {directory}/.osmos.new {directory}/osmos"
    );
    remote.feed(&command, bytes).map(drop)
}

/// Where the program is, for people.
pub fn place(remote: &Remote) -> &'static str {
    if remote.is_system() { "/usr/local/bin/osmos" } else { "~/.local/bin/osmos" }
}

/// A daemon that was started.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    pub status: Status,
    /// It can be reached after the user's last login has ended.
    pub lingers: bool,
}

pub fn start(remote: &Remote) -> Result<Started> {
    let up = if remote.is_system() { UP_AS_SERVICE } else { UP };
    let script = format!("{}{up}", head(remote));
    let text = remote.run(&script).context("its daemon does not start")?;
    let status = field(&text, "status").context("its daemon does not answer")?;
    Ok(Started { status: parse_status(status)?, lingers: field(&text, "lingers") != Some("no") })
}

/// Another daemon of the program that is there now takes the place of the one that runs.
pub fn replace(remote: &Remote) -> Result<Status> {
    let script = format!(
        "{}\"$program\" up --replace >&2 || exit\necho \"status $(\"$program\" status --json)\"\n",
        head(remote)
    );
    let text = remote.run(&script).context("its daemon was not replaced")?;
    parse_status(field(&text, "status").context("its daemon does not answer")?)
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
        let script = format!("{}\"$program\" join {at} {}\n", head(remote), word(&token()?)?);
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

/// A token of the daemon there.
pub fn token(remote: &Remote) -> Result<String> {
    let script = format!("{}echo \"token $(\"$program\" token)\"\n", head(remote));
    let text = remote.run(&script).context("its daemon makes no token")?;
    Ok(field(&text, "token").context("its daemon makes no token")?.to_owned())
}

/// Ends the daemon, and with it the service that it is. False if there was none.
pub fn down(remote: &Remote) -> Result<bool> {
    let down = match remote.is_system() {
        true => "service uninstall",
        false => "down",
    };
    let script = format!(
        "{}[ -x \"$program\" ] && \"$program\" status --json >/dev/null 2>&1 || exit 0\n\
         \"$program\" {down} >&2 && echo ended\n",
        head(remote)
    );
    Ok(remote.run(&script)?.lines().any(|line| line == "ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(machine: &str) -> String {
        format!(
            "Welcome to two!\nmachine {machine}\nconnection 10.1.0.1 50000 10.1.0.2 22\n\
             unpacks yes\ndigest {}\n",
            "a".repeat(64)
        )
    }

    #[test]
    fn a_machine_is_known_by_what_it_says_whatever_it_says_beside() {
        let own = format!("Linux {}", std::env::consts::ARCH);
        let found = Found::parse(&told(&own)).expect("a machine");
        assert_eq!(found.here, Some("10.1.0.1".parse().expect("an address")));
        assert!(found.unpacks && !found.has_systemd && !found.is_packaged);
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

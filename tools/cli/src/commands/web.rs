//! `web`: the command line of it, and the words that it shares with other commands.

use super::{foresight, listings, moves, owner};
use crate::values::delay;
use anyhow::Result;
use clap::Args;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use web::{Options, Wording};

/// What its help ends with.
pub const EXAMPLES: &str = "\
Examples:
  osmos web                        prints a link; open it in a browser
  osmos web --read-only            a page that shows, and does nothing
  ssh -L 7788:127.0.0.1:7788 HOST osmos web    from another machine, encrypted by ssh

The link is good once, for an hour; the browser that opens it stays logged in for twelve hours.
`kill -USR1 PID` prints another one. What is done on the page is done as the user who runs this,
and what the daemon refuses is shown. Views are links: #process=1:4711, #node=2,
#filter=user:anna. Nothing is kept when this ends, by Ctrl-C.

With `--listen` and another address than 127.0.0.1 other machines reach the page. Nothing is
encrypted then: who can read the network can take over the session. `ssh -L` is the safe way.";

#[derive(Clone, Debug, Args)]
pub struct WebOptions {
    /// Where browsers reach the page; port 0 is any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7788")]
    pub listen: SocketAddr,
    /// The page shows, and does nothing
    #[arg(long)]
    pub read_only: bool,
    /// Seconds from one picture to the next while somebody looks, at least 0.1
    #[arg(long, short, value_name = "S", value_parser = delay, default_value = "1")]
    pub delay: Duration,
    /// Print each link as a line of JSON
    #[arg(long)]
    pub json: bool,
}

const WORDING: Wording = Wording {
    happening: listings::told,
    migration: moves::sentence,
    owned: owner::sentence,
    forecast: foresight::forecast_sentences,
};

pub fn web(options: &WebOptions, socket: &Path) -> Result<()> {
    web::run(Options {
        socket: socket.to_owned(),
        listen: options.listen,
        is_read_only: options.read_only,
        delay: options.delay,
        is_json: options.json,
        wording: WORDING,
    })
}

#[cfg(test)]
mod tests {
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn it_listens_on_this_machine_only_unless_told_otherwise() {
        let parsed = |line: &str| Arguments::try_parse_from(line.split(' '));
        let Ok(Command::Web(options)) = parsed("osmos web").map(|arguments| arguments.command)
        else {
            panic!("`osmos web` alone is a command");
        };
        assert!(options.listen.ip().is_loopback() && !options.read_only);
        assert!(parsed("osmos web --listen 0.0.0.0:80 --read-only --delay 5").is_ok());
        for wrong in ["--listen localhost", "--listen 127.0.0.1", "--delay 0", "--once"] {
            assert!(parsed(&format!("osmos web {wrong}")).is_err(), "{wrong}");
        }
    }
}

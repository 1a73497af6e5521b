//! `top`: the command line of it, and the words that it shares with other commands.

use super::{foresight, listings, moves, owner};
use crate::naming::Called;
use crate::output;
use crate::values::delay;
use anyhow::Result;
use clap::Args;
use std::path::Path;
use std::time::Duration;
use top::{Options, Wording};

/// What its help ends with.
pub const EXAMPLES: &str = "\
Examples:
  osmos top                        ? lists the keys: filter, sort, tree, why, migrate, signal, ...
  osmos top --delay 5              a new picture every five seconds
  osmos top --once --json          one picture, for a script

What keys order is done as the user who runs this, and what the daemon refuses is said in the lowest
line. NO_COLOR is obeyed. Leaving calls moves off that were ordered here and have not ended; it asks
before it does.";

#[derive(Clone, Debug, Args)]
pub struct TopOptions {
    /// Print one picture as text and end
    #[arg(long)]
    pub once: bool,
    /// With --once: print JSON, nodes and processes in the shapes of `nodes` and `ps`
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Seconds from one picture to the next, at least 0.1
    #[arg(long, short, value_name = "S", value_parser = delay, default_value = "1")]
    pub delay: Duration,
}

const WORDING: Wording = Wording {
    happening: listings::told,
    why: |reply| foresight::why_text(reply, &Called::nobody(), false),
    migration: moves::sentence,
    owned: owner::sentence,
};

pub fn top(options: &TopOptions, socket: &Path) -> Result<()> {
    if options.once {
        output::print_text(&top::once(socket, options.json)?)?;
        return Ok(());
    }
    top::run(&Options {
        socket: socket.to_owned(),
        delay: options.delay,
        has_colours: output::colours_wanted(),
        wording: WORDING,
    })
}

#[cfg(test)]
mod tests {
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use std::time::Duration;

    #[test]
    fn json_is_for_one_picture() {
        let parsed = |line: &str| Arguments::try_parse_from(line.split(' '));
        let Ok(Command::Top(options)) = parsed("osmos top").map(|arguments| arguments.command)
        else {
            panic!("`osmos top` alone is a command");
        };
        assert_eq!((options.once, options.delay), (false, Duration::from_secs(1)));
        assert!(parsed("osmos top --once --json").is_ok());
        assert!(parsed("osmos top --json").is_err());
        assert!(parsed("osmos top --delay 0").is_err());
    }
}

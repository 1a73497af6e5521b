//! The classic MOSIX command names, as links to this one program.
//!
//! Each is rewritten into the words of an `osmos` command before anything is parsed, so a classic
//! name can never do something that `osmos` itself cannot. What has no counterpart yet is refused
//! with the command to use instead.

use crate::naming::{node, node_id};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

/// The names that `osmos links` creates.
pub const NAMES: [&str; 8] =
    ["mosrun", "runhome", "runon", "migrate", "mon", "mosctl", "setpe", "osmos-rsh"];

/// Why a classic command line is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The words do not follow the command's form.
    Form { name: &'static str, form: &'static str },
    /// An option of the classic command that Osmos does not have.
    Option { name: &'static str, option: String, instead: &'static str },
    /// The whole command has another name here.
    Replaced { name: &'static str, instead: &'static str },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Form { name, form } => write!(f, "{name}: the form is `{form}`"),
            Refusal::Option { name, option, instead } => {
                write!(f, "{name}: option `{option}` is not known; {instead}")
            }
            Refusal::Replaced { name, instead } => {
                write!(f, "{name}: not available under this name; {instead}")
            }
        }
    }
}

/// The classic name this program was called by, if it was.
pub fn name(program: &OsStr) -> Option<&'static str> {
    let called = Path::new(program).file_name()?;
    NAMES.into_iter().find(|name| called == *name)
}

/// Whether a failure of this command is one of `osmos run` (exit status 125).
pub fn starts_a_command(name: &str) -> bool {
    matches!(name, "mosrun" | "runhome" | "runon" | "osmos-rsh")
}

/// The `osmos` words for a classic command line (without its name).
pub fn translate(name: &'static str, words: &[OsString]) -> Result<Vec<OsString>, Refusal> {
    match name {
        "mosrun" => mosrun(words),
        "runhome" if words.is_empty() => Err(Refusal::Form { name, form: "runhome COMMAND..." }),
        "runhome" => Ok(run(&["--home"], words)),
        "runon" => runon(words),
        "migrate" => migrate(words),
        "mon" if words.is_empty() => Ok(vec!["top".into()]),
        "mon" => Err(Refusal::Form { name, form: "mon" }),
        // Programs that start others by rsh(1) are told of a program, and not of words for it.
        "osmos-rsh" => Ok([OsString::from("rsh")].into_iter().chain(words.to_vec()).collect()),
        "setpe" if words == ["-off"] => Ok(vec!["down".into()]),
        "setpe" if words == ["-r"] => Ok(vec!["nodes".into()]),
        "setpe" => Err(Refusal::Replaced {
            name,
            instead: "`osmos up --map FILE --cluster-key FILE` joins the nodes of a mosix.map, \
                      `osmos down` leaves",
        }),
        _ => mosctl(words),
    }
}

fn run(options: &[&str], command: &[OsString]) -> Vec<OsString> {
    let head = ["run"].iter().chain(options).chain(&["--"]).map(OsString::from);
    head.chain(command.iter().cloned()).collect()
}

fn mosrun(words: &[OsString]) -> Result<Vec<OsString>, Refusal> {
    const FORM: Refusal = Refusal::Form {
        name: "mosrun",
        form: "mosrun [-h | -b | -L | -l | -NODE | -rNAME] COMMAND...",
    };
    let (first, rest) = words.split_first().ok_or(FORM)?;
    let text = first.to_string_lossy();
    let Some(option) = text.strip_prefix('-') else {
        return Ok(run(&[], words));
    };
    if rest.is_empty() {
        return Err(FORM);
    }
    // A name takes an `r`, as with MOSIX: by itself it could be one of the options.
    let named = option.strip_prefix('r').filter(|word| is_node(word));
    let node = named.or(Some(option).filter(|word| node_id(word).is_ok()));
    match (option, node) {
        ("h" | "L", _) => Ok(run(&["--home"], rest)),
        ("b", _) => Ok(run(&["--best"], rest)),
        ("-" | "l", _) => Ok(run(&[], rest)),
        (_, Some(node)) => Ok(run(&["--node", node], rest)),
        (_, None) => Err(Refusal::Option {
            name: "mosrun",
            option: text.into_owned(),
            instead: "known are -h, -b, -L, -l, -NODE with its number and -rNAME; `osmos run \
                      --help` lists what there is",
        }),
    }
}

fn runon(words: &[OsString]) -> Result<Vec<OsString>, Refusal> {
    match words.split_first() {
        Some((node, command)) if !command.is_empty() && is_node(&node.to_string_lossy()) => {
            Ok(run(&["--node", &node.to_string_lossy()], command))
        }
        _ => Err(Refusal::Form { name: "runon", form: "runon NODE COMMAND..." }),
    }
}

fn migrate(words: &[OsString]) -> Result<Vec<OsString>, Refusal> {
    let [pid, to] = words else {
        return Err(Refusal::Form { name: "migrate", form: "migrate PID (NODE | home | balance)" });
    };
    let to = if to == "balance" { OsString::from("best") } else { to.clone() };
    Ok(vec!["migrate".into(), pid.clone(), to])
}

/// The verbs of MOSIX and openMosix: local processes stay, guests are blocked.
fn mosctl(words: &[OsString]) -> Result<Vec<OsString>, Refusal> {
    const FORM: Refusal = Refusal::Form {
        name: "mosctl",
        form: "mosctl (stay | nostay | lstay | nolstay | block | noblock | expel | bring | \
               gridguests [N] | maxguests [N] | opengrid | closegrid | cngpri NODE PRIORITY | \
               status [NODE...] | rstatus [NODE...] | localstatus | isup [NODE] | \
               whois [NODE...] | getload [NODE] | getspeed [NODE] | getmem [NODE] | \
               getfree [NODE] | getutil [NODE] | isolate | shutdown)",
    };
    let text: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let text: Vec<&str> = text.iter().map(String::as_str).collect();
    let translated: Vec<&str> = match text[..] {
        ["stay" | "lstay"] => vec!["stay"],
        ["nostay" | "nolstay"] => vec!["stay", "off"],
        ["block" | "closegrid"] => vec!["block"],
        ["noblock" | "opengrid"] => vec!["noblock"],
        ["expel"] => vec!["expel"],
        ["bring"] => vec!["bring"],
        ["gridguests" | "maxguests", most] if most.parse::<u32>().is_ok() => {
            vec!["limit", "--guests", most]
        }
        ["gridguests" | "maxguests" | "status" | "localstatus"] => vec!["status"],
        ["cngpri", node, priority] if is_node(node) && priority.parse::<u16>().is_ok() => {
            vec!["priority", node, priority]
        }
        ["status" | "rstatus" | "whois", ref nodes @ ..] if are_nodes(nodes) => {
            [&["nodes"], nodes].concat()
        }
        [verb, ref nodes @ ..]
            if nodes.len() <= 1 && are_nodes(nodes) && column(verb).is_some() =>
        {
            let which = if nodes.is_empty() { &["--here"] } else { nodes };
            [&["nodes", "--column", column(verb).unwrap_or_default()], which].concat()
        }
        ["isolate"] => vec!["leave"],
        ["shutdown"] => vec!["down"],
        [verb, ..] => match replacement(verb) {
            Some(instead) => return Err(Refusal::Replaced { name: "mosctl", instead }),
            None => return Err(FORM),
        },
        [] => return Err(FORM),
    };
    Ok(translated.into_iter().map(OsString::from).collect())
}

/// What a verb tells of one node, as `osmos nodes --column` names it.
fn column(verb: &str) -> Option<&'static str> {
    match verb {
        "getload" | "getutil" => Some("load"),
        "getspeed" => Some("speed"),
        "getmem" => Some("memory"),
        "getfree" => Some("free"),
        "isup" => Some("status"),
        _ => None,
    }
}

/// What there is instead of a verb that Osmos does not need, or has in another form.
fn replacement(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "setyard" | "getyard" => {
            "the speeds of all nodes are measured against one reference: `osmos nodes` has them"
        }
        "setspeed" => "a node measures its speed; `osmos up --speed S` says another",
        "setdecay" | "getdecay" => {
            "load is a mean over spans that nobody has to set; `osmos why PID` shows what it is"
        }
        "gettune" | "settune" | "tune" => {
            "what moves cost is learned from moves: `osmos ping NODE` and `osmos why PID` show it"
        }
        "quiet" | "noquiet" => {
            "a node says how busy it is while it is a member; `osmos stay` and `osmos block` keep \
             processes from moving"
        }
        "mfs" => "`osmos share read` or `write`; `osmos mount` shows the files of all nodes",
        "nomfs" => "`osmos share off`",
        "logmap" | "nologmap" => "`osmos events` tells who joined and left",
        "freeze" => "a program stands still for a move only; `osmos limit --freeze-budget MS`",
        "grid-use" | "grid-unuse" => "`osmos lend --to NODES` says where own processes may go",
        "rejoin" => "`osmos join ADDRESS TOKEN`, with a token of `osmos token` there",
        _ => return None,
    })
}

fn are_nodes(words: &[&str]) -> bool {
    words.iter().all(|word| is_node(word))
}

/// By number or name.
fn is_node(word: &str) -> bool {
    node(word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osmos(name: &'static str, line: &str) -> Result<String, Refusal> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let translated = translate(name, &words)?;
        Ok(translated.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_name_is_known_with_or_without_a_path() {
        assert_eq!(name(OsStr::new("/usr/bin/runon")), Some("runon"));
        assert_eq!(name(OsStr::new("mosrun")), Some("mosrun"));
        assert_eq!(name(OsStr::new("osmos")), None);
        assert_eq!(name(OsStr::new("")), None);
    }

    #[test]
    fn mosrun_places_as_its_option_says() {
        assert_eq!(osmos("mosrun", "awk -f x").unwrap(), "run -- awk -f x");
        assert_eq!(osmos("mosrun", "-h awk -h").unwrap(), "run --home -- awk -h");
        assert_eq!(osmos("mosrun", "-b awk").unwrap(), "run --best -- awk");
        assert_eq!(osmos("mosrun", "-3 awk").unwrap(), "run --node 3 -- awk");
        assert_eq!(osmos("mosrun", "-L awk").unwrap(), "run --home -- awk");
        assert_eq!(osmos("mosrun", "-l awk").unwrap(), "run -- awk");
        assert_eq!(osmos("mosrun", "-rdelta awk").unwrap(), "run --node delta -- awk");
        assert_eq!(osmos("mosrun", "-r7 awk").unwrap(), "run --node 7 -- awk");
    }

    #[test]
    fn runhome_and_runon_pin() {
        assert_eq!(osmos("runhome", "flac -8 a").unwrap(), "run --home -- flac -8 a");
        assert_eq!(osmos("runon", "2 flac -8 a").unwrap(), "run --node 2 -- flac -8 a");
        assert_eq!(osmos("runon", "a.b flac -8 a").unwrap(), "run --node a.b -- flac -8 a");
    }

    #[test]
    fn migrate_to_balance_means_the_best_node() {
        assert_eq!(osmos("migrate", "4711 balance").unwrap(), "migrate 4711 best");
        assert_eq!(osmos("migrate", "4711 home").unwrap(), "migrate 4711 home");
        assert_eq!(osmos("migrate", "4711 2").unwrap(), "migrate 4711 2");
        assert_eq!(osmos("migrate", "4711 delta").unwrap(), "migrate 4711 delta");
    }

    #[test]
    fn mon_is_top() {
        assert_eq!(osmos("mon", "").unwrap(), "top");
    }

    #[test]
    fn mosctl_does_what_its_verbs_did() {
        for (line, words) in [
            ("stay", "stay"),
            ("nolstay", "stay off"),
            ("closegrid", "block"),
            ("noblock", "noblock"),
            ("expel", "expel"),
            ("bring", "bring"),
            ("gridguests 8", "limit --guests 8"),
            ("cngpri 3 10", "priority 3 10"),
            ("cngpri delta 10", "priority delta 10"),
            ("status", "status"),
            ("status 2", "nodes 2"),
            ("rstatus", "nodes"),
            ("whois", "nodes"),
            ("whois delta 3", "nodes delta 3"),
            ("getload", "nodes --column load --here"),
            ("getload 2", "nodes --column load 2"),
            ("getspeed delta", "nodes --column speed delta"),
            ("getmem", "nodes --column memory --here"),
            ("getfree 2", "nodes --column free 2"),
            ("isup 2", "nodes --column status 2"),
            ("maxguests 8", "limit --guests 8"),
            ("isolate", "leave"),
            ("shutdown", "down"),
        ] {
            assert_eq!(osmos("mosctl", line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn incomplete_lines_name_the_form() {
        for (name, line) in [
            ("mosrun", ""),
            ("mosrun", "-h"),
            ("runhome", ""),
            ("runon", "2"),
            ("runon", "0 awk"),
            ("runon", "+2 awk"),
            ("runon", "best awk"),
            ("migrate", "4711"),
            ("mon", "-w"),
            ("mosctl", ""),
            ("mosctl", "nonsense 3"),
            ("mosctl", "getload 2 3"),
            ("mosctl", "whois 0"),
            ("mosctl", "cngpri 3"),
        ] {
            let refusal = osmos(name, line).expect_err(line);
            assert!(matches!(refusal, Refusal::Form { .. }), "{name} {line}: {refusal}");
        }
    }

    #[test]
    fn what_has_no_counterpart_names_the_way_out() {
        for (line, way_out) in [
            ("setyard 3", "osmos nodes"),
            ("setspeed 5000", "osmos up --speed"),
            ("setdecay 1 2 3", "osmos why"),
            ("gettune", "osmos ping"),
            ("quiet", "osmos stay"),
            ("rejoin", "osmos join"),
        ] {
            let refusal = osmos("mosctl", line).unwrap_err();
            assert!(matches!(refusal, Refusal::Replaced { .. }), "{line}: {refusal}");
            assert!(refusal.to_string().contains(way_out), "{line}: {refusal}");
        }
        assert_eq!(osmos("setpe", "-off").unwrap(), "down");
        assert_eq!(osmos("setpe", "-r").unwrap(), "nodes");
        assert!(osmos("setpe", "-w -f m").unwrap_err().to_string().contains("osmos up --map"));
        for option in ["-q5", "-r", "-rhome", "-delta"] {
            let refusal = osmos("mosrun", &format!("{option} awk")).unwrap_err();
            assert!(refusal.to_string().contains(&format!("`{option}` is not known")));
        }
    }

    #[test]
    fn every_translation_is_a_valid_osmos_line() {
        use clap::Parser;
        for (name, line) in [
            ("mosrun", "-4 a -b"),
            ("mosrun", "-rdelta a"),
            ("runon", "9 a"),
            ("runon", "delta a"),
            ("migrate", "7 balance"),
            ("mon", ""),
            ("mosctl", "nostay"),
            ("mosctl", "gridguests 3"),
            ("mosctl", "cngpri 3 9"),
            ("mosctl", "cngpri delta 9"),
            ("mosctl", "shutdown"),
            ("mosctl", "whois 2 delta"),
            ("mosctl", "getload"),
            ("mosctl", "isup 2"),
            ("mosctl", "getfree delta"),
            ("setpe", "-r"),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let translated = translate(name, &words).expect(line);
            let line = std::iter::once(OsString::from("osmos")).chain(translated);
            crate::arguments::Arguments::try_parse_from(line).expect("valid");
        }
    }
}

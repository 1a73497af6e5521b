//! The configuration file: options of `osmos up` that hold at every start of a daemon.
//!
//! TOML, one key for each option, called as the option is and read by the option's own parser: what
//! the command line takes the file takes, and what it refuses the file refuses, with the line. What
//! the command line says goes before what the file says. The daemon itself reads no file: `osmos
//! up` does, and hands on what came of it.

use crate::daemon_options::DaemonOptions;
use anyhow::{Context, Result, bail};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, CommandFactory, Parser};
use std::error::Error;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use toml_edit::{Document, Item, Value};

/// Of an honest one a few hundred bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// More than these are not told of one file.
const COMPLAINTS_MAX: usize = 20;

/// What a file says.
#[derive(Debug, Default, PartialEq)]
pub struct ConfigFile {
    pub path: PathBuf,
    pub options: DaemonOptions,
    /// Each option that it has, and its value as the command line would have it, in their order.
    pub given: Vec<(String, String)>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    daemon: DaemonOptions,
}

/// Where the file of this user is, if it has one: root's is the machine's.
pub fn default_path() -> Option<PathBuf> {
    if nix::unistd::geteuid().is_root() {
        return Some(PathBuf::from("/etc/osmos/osmos.toml"));
    }
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(directory.join("osmos/osmos.toml"))
}

/// The options of a daemon: those of the command line, then those of the file that it names or,
/// if it names none, of the usual one, if there is one. Says which file was read.
///
/// # Errors
/// The file cannot be read or is wrong, or the options do not go together.
pub fn complete(
    given: &DaemonOptions,
    named: Option<&Path>,
) -> Result<(DaemonOptions, Option<PathBuf>)> {
    let file = match named {
        Some(path) => Some(read(path)?),
        None => default_path().map_or(Ok(None), |path| read_if_there(&path))?,
    };
    let (options, path) = match file {
        Some(file) => (given.clone().or(file.options), Some(file.path)),
        None => (given.clone(), None),
    };
    options.check()?;
    Ok((options, path))
}

/// None if there is no such file, or none that this user can know of: HOME may be another's.
///
/// # Errors
/// As [`read`].
pub fn read_if_there(path: &Path) -> Result<Option<ConfigFile>> {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match std::fs::metadata(path) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => {
            Ok(None)
        }
        _ => read(path).map(Some),
    }
}

/// # Errors
/// The file cannot be read, or something in it is wrong: all of that is told, each with its line.
pub fn read(path: &Path) -> Result<ConfigFile> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{} is larger than {FILE_BYTES_MAX} bytes: it is no configuration", path.display());
    }
    match parse(&text) {
        Ok((options, given)) => Ok(ConfigFile { path: path.to_owned(), options, given }),
        Err(complaints) => {
            let more = complaints.len().saturating_sub(COMPLAINTS_MAX);
            let mut lines: Vec<String> = complaints[..complaints.len() - more]
                .iter()
                .map(|(line, text)| format!("{}:{line}: {text}", path.display()))
                .collect();
            lines.extend((more > 0).then(|| format!("and {more} more")));
            bail!("{}", lines.join("\n"))
        }
    }
}

/// A line, counted from 1, and what is wrong there.
type Complaint = (usize, String);

/// Options, and each that was given with its value.
type Parsed = (DaemonOptions, Vec<(String, String)>);

fn parse(text: &str) -> Result<Parsed, Vec<Complaint>> {
    let line_at = |at: usize| {
        1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count()
    };
    let document = Document::parse(text).map_err(|error| {
        let line = line_at(error.span().map_or(0, |span| span.start));
        vec![(line, error.message().replace('\n', "; "))]
    })?;
    let definition = Words::command();
    let (mut options, mut given, mut complaints) = (DaemonOptions::default(), vec![], vec![]);
    for (name, item) in document.iter() {
        let span = document.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
        let line = line_at(span.map_or(0, |span| span.start));
        let read = option(&definition, name).and_then(|arg| {
            let values = words_of(arg, item)?;
            match Words::try_parse_from(line_words(name, arg, &values)) {
                Ok(words) => Ok((words.daemon, values)),
                Err(error) => Err(format!("{name} = {}: {}", shown(&values), cause(&error))),
            }
        });
        match read {
            Ok((one, values)) => {
                options = options.or(one);
                given.push((name.to_owned(), values.join(",")));
            }
            Err(why) => complaints.push((line, why)),
        }
    }
    if complaints.is_empty() { Ok((options, given)) } else { Err(complaints) }
}

/// The option of that name, if it is one for people.
fn option<'a>(definition: &'a clap::Command, name: &str) -> Result<&'a Arg, String> {
    if name == NOT_IN_FILES {
        return Err(format!(
            "`{NOT_IN_FILES}` is for command lines: others would not find the daemon without \
             `--socket`"
        ));
    }
    let visible = |named: &str| {
        let is_it = |arg: &&Arg| arg.get_long() == Some(named) && !arg.is_hide_set();
        definition.get_arguments().find(is_it)
    };
    visible(name).ok_or_else(|| {
        let near = near(name).filter(|near| visible(near).is_some());
        let near = near.map_or_else(String::new, |near| format!("; `{near}` perhaps"));
        format!(
            "there is no option `{}`{near}; `osmos config example` lists all",
            name.escape_debug()
        )
    })
}

/// All commands look for the daemon in the usual directory.
const NOT_IN_FILES: &str = "runtime-dir";

/// An option that is called much like that.
fn near(name: &str) -> Option<String> {
    let error = Words::try_parse_from([format!("--{name}")]).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(near) => near.strip_prefix("--").map(str::to_owned),
        _ => None,
    }
}

/// The values of an option as words of a command line; of one that is only there or not, none.
fn words_of(arg: &Arg, item: &Item) -> Result<Vec<String>, String> {
    let name = arg.get_long().unwrap_or_default();
    let Some(value) = item.as_value() else {
        return Err(format!("`{name}` has a table; it takes a value"));
    };
    if let ArgAction::SetTrue = arg.get_action() {
        return match value.as_bool() {
            Some(true) => Ok(vec!["true".to_owned()]),
            Some(false) => Ok(vec!["false".to_owned()]),
            None => Err(format!("`{name}` takes true or false")),
        };
    }
    let single = |value: &Value| match value {
        Value::String(text) => Ok(text.value().clone()),
        Value::Integer(number) => Ok(number.value().to_string()),
        Value::Float(number) => Ok(number.value().to_string()),
        Value::Boolean(is_on) => Ok(if *is_on.value() { "on" } else { "off" }.to_owned()),
        _ => Err(format!("`{name}` takes a text or a number")),
    };
    let words = match value {
        Value::Array(values) => values.iter().map(single).collect::<Result<Vec<_>, _>>()?,
        value => vec![single(value)?],
    };
    match words.is_empty() {
        true => Err(format!("`{name}` is an empty list; leave the line out")),
        false => Ok(words),
    }
}

/// An option on a command line. Its repetitions are a list in the file; what else is a list there
/// has commas.
fn line_words(name: &str, arg: &Arg, values: &[String]) -> Vec<String> {
    match arg.get_action() {
        ArgAction::SetTrue if values == ["true"] => vec![format!("--{name}")],
        ArgAction::SetTrue => vec![],
        ArgAction::Append => values.iter().map(|value| format!("--{name}={value}")).collect(),
        _ => vec![format!("--{name}={}", values.join(","))],
    }
}

fn shown(values: &[String]) -> String {
    format!("\"{}\"", values.join(",").escape_debug())
}

/// What a parser says of a value, without what it says of the command line.
fn cause(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("For more"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A file with every option, each with its help and a value to begin with, all of them commented
/// out.
pub fn example() -> String {
    let mut text = String::from(
        "# Options of `osmos up`, read at each start of a node daemon by root from\n\
         # /etc/osmos/osmos.toml and by others from ~/.config/osmos/osmos.toml, unless\n\
         # `--config` names another file. What the command line says goes before it.\n\
         # `osmos config check` says whether it is right, and what it sets.\n",
    );
    let definition = Words::command();
    for arg in definition.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let (Some(name), Some(help)) = (arg.get_long(), arg.get_help()) else { continue };
        let Some((_, value)) = EXAMPLES.iter().find(|(known, _)| *known == name) else { continue };
        text.push('\n');
        let mut line = String::from("#");
        for word in help.to_string().split_whitespace() {
            if line.len() + 1 + word.len() > COLUMNS {
                text.push_str(&line);
                text.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&format!("{line}\n#{name} = {value}\n"));
    }
    text
}

const COLUMNS: usize = 78;

/// A value to begin with for each option.
const EXAMPLES: [(&str, &str); 24] = [
    ("listen", "\"0.0.0.0:7780\""),
    ("advertise", "\"192.168.1.1\""),
    ("map", "\"/etc/mosix.map\""),
    ("cluster-key", "\"/etc/osmos/cluster.key\""),
    ("node-id", "1"),
    ("name", "\"delta\""),
    ("speed", "1.0"),
    ("guests-max", "8"),
    ("guest-memory-max", "\"4G\""),
    ("guests-per-user", "4"),
    ("storms-per-user", "2"),
    ("freeze-budget", "20"),
    ("move-bandwidth", "\"500Mbit\""),
    ("move-processors", "1"),
    ("guest-users", "[\"0-999=nobody\", \"*=same\"]"),
    ("lend-root", "false"),
    ("lend-to", "[\"2\", \"5-7\"]"),
    ("share-files", "\"read\""),
    ("share-jobs", "true"),
    ("guest-cgroup", "[\"/sys/fs/cgroup/guests\"]"),
    ("cpu-baseline", "true"),
    ("succession-patience", "600"),
    ("record", "\"/var/tmp/osmos.record\""),
    ("state-dir", "\"/var/lib/osmos\""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    fn options(words: &[&str]) -> DaemonOptions {
        Words::try_parse_from(words).expect("a command line").daemon
    }

    fn complaint(text: &str) -> String {
        let file = file(text);
        let path = file.path().display().to_string();
        let complaint = format!("{:#}", read(file.path()).expect_err(text));
        complaint.replace(&path, "FILE")
    }

    #[test]
    fn a_file_says_what_a_command_line_says() {
        let text = "# ours\nlisten = \"10.0.0.1:7000\"\nguests-max = 4\nspeed = 1.5\n\
                    guest-memory-max = \"2G\"\nlend-root = true\ncpu-baseline = true\n\
                    guest-users = [\"0-999=nobody\", \"*=same\"]\nlend-to = [2, \"5-7\"]\n\
                    guest-cgroup = [\"/a,b\", \"/c\"]\n";
        let words = [
            "--listen=10.0.0.1:7000",
            "--guests-max=4",
            "--speed=1.5",
            "--guest-memory-max=2G",
            "--lend-root=on",
            "--cpu-baseline",
            "--guest-users=0-999=nobody,*=same",
            "--lend-to=2,5-7",
            "--guest-cgroup=/a,b",
            "--guest-cgroup=/c",
        ];
        let read = read(file(text).path()).expect("it is right");
        assert_eq!(read.options, options(&words));
        assert_eq!(read.given[1], ("guests-max".to_owned(), "4".to_owned()));
        assert_eq!(read.given.len(), 9);
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file = file("guests-max = 4\nname = \"delta\"\nguest-cgroup = \"/a\"\n");
        let given = options(&["--guests-max=1", "--guest-cgroup=/b"]);
        let (merged, path) = complete(&given, Some(file.path())).expect("right");
        let all = ["--guests-max=1", "--name=delta", "--guest-cgroup=/b"];
        assert_eq!(merged, options(&all));
        assert_eq!(path.as_deref(), Some(file.path()));
    }

    #[test]
    fn options_that_need_another_find_it_in_either_place() {
        let alone = file("cluster-key = \"/k\"\n");
        let error = complete(&options(&[]), Some(alone.path())).expect_err("no map");
        assert!(error.to_string().contains("cluster-key"), "{error}");
        complete(&options(&["--map=/m"]), Some(alone.path())).expect("it has a map");
    }

    #[test]
    fn all_that_is_wrong_is_told_with_its_line() {
        let text = "guests-max = \"many\"\n\nlisten = \"here\"\nguestsmax = 3\n\
                    cpu-baseline = 1\nlend-root = \"maybe\"\n[name]\nof = 1\n";
        let told = complaint(text);
        let wanted = [
            "FILE:1: guests-max = \"many\": ",
            "FILE:3: listen = \"here\": ",
            "FILE:4: there is no option `guestsmax`; `guests-max` perhaps",
            "FILE:5: `cpu-baseline` takes true or false",
            "FILE:6: lend-root = \"maybe\": ",
            "FILE:7: `name` has a table",
        ];
        for (line, wanted) in told.lines().zip(wanted) {
            assert!(line.starts_with(wanted), "{line:?} is not {wanted:?}");
        }
        assert_eq!(told.lines().count(), wanted.len(), "{told}");
    }

    #[test]
    fn what_is_no_configuration_is_told() {
        assert!(complaint("listen = \n").starts_with("FILE:1: "));
        assert!(complaint("a = 1\nb = 2\nguests-max = 1\nguests-max = 2\n").contains("FILE:4"));
        assert!(complaint(&"#".repeat(100 << 10)).contains("is larger than"));
        let told = complaint("policy = \"lvm\"\n");
        assert!(
            told.contains("there is no option `policy`"),
            "what is hidden is for tests: {told}"
        );
        assert!(complaint("runtime-dir = \"/run/x\"\n").contains("is for command lines"));
        let told = complaint("\"a\\u0007b\" = 1\n");
        assert!(told.contains("a\\u{7}b"), "{told}");
        assert!(read(Path::new("/nonexistent/osmos.toml")).is_err());
        assert_eq!(read_if_there(Path::new("/nonexistent/osmos.toml")).expect("none"), None);
        let many = (0..50).map(|number| format!("none{number} = 1\n")).collect::<String>();
        assert!(complaint(&many).ends_with("and 30 more"));
    }

    #[test]
    fn the_example_has_every_option_and_is_right_once_it_is_not_commented_out() {
        let text = example();
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let is_option = |line: &&str| {
            line.strip_prefix('#')
                .is_some_and(|rest| !rest.starts_with(' ') && rest.contains(" = "))
        };
        let lines: Vec<&str> = text.lines().filter(is_option).map(|line| &line[1..]).collect();
        let definition = Words::command();
        let visible = definition.get_arguments().filter(|arg| !arg.is_hide_set());
        let names = visible.filter_map(Arg::get_long).filter(|name| *name != NOT_IN_FILES);
        for name in names {
            let begin = format!("{name} = ");
            assert!(lines.iter().any(|line| line.starts_with(&begin)), "{name} has no example");
        }
        let read = read(file(&lines.join("\n")).path()).expect("it is right");
        assert_eq!(read.given.len(), EXAMPLES.len());
        assert_eq!(parse(&text).expect("comments"), (DaemonOptions::default(), vec![]));
    }
}

//! What a rank runs: found and looked at before any rank of the job begins anywhere, and made a
//! command for each.

use kernel::spawning::Conditions;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::ids::{GlobalPid, NodeId};
use wire::jobs::{PROGRAM_BYTES_MAX, Program, RANKS_MAX, Word};

/// Where a command without a slash is looked for if `PATH` is not set (execvp(3)).
const PATH_USUAL: &str = "/bin:/usr/bin";

/// A program that can begin here.
pub struct Prepared {
    pub program: Program,
    path: PathBuf,
    job: GlobalPid,
    node: NodeId,
}

/// What a rank is called by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub rank: u32,
    /// Among those of this node.
    pub local: u32,
    pub local_size: u32,
}

fn os(word: &Word) -> &OsStr {
    OsStr::from_bytes(&word.0)
}

impl Prepared {
    /// # Errors
    /// Why it cannot begin on this node, for people.
    pub fn new(program: Program, job: GlobalPid, node: NodeId) -> Result<Prepared, String> {
        let words = program.command.iter().chain(&program.environment);
        if words.chain([&program.directory]).any(|word| word.0.contains(&0)) {
            return Err("a word with a zero byte".to_owned());
        }
        if program.bytes() > PROGRAM_BYTES_MAX {
            return Err(format!(
                "the command and its environment have more than {PROGRAM_BYTES_MAX} bytes"
            ));
        }
        if program.size == 0 || program.size > RANKS_MAX {
            return Err(format!("a job of {} ranks", program.size));
        }
        let directory = Path::new(os(&program.directory));
        if !directory.is_absolute() {
            return Err(format!("working directory {} is not absolute", directory.display()));
        }
        std::fs::read_dir(directory)
            .map(drop)
            .or_else(|error| {
                // To be in it one need not read it.
                let is_there = access(directory, AccessFlags::X_OK).is_ok() && directory.is_dir();
                if is_there { Ok(()) } else { Err(error) }
            })
            .map_err(|error| format!("working directory {}: {error}", directory.display()))?;
        let name = program.command.first().ok_or("no command")?;
        let path = find(os(name), directory, path_of(&program.environment))?;
        warm(&path);
        Ok(Prepared { program, path, job, node })
    }

    pub fn command(&self, place: Place) -> Command {
        let program = &self.program;
        let mut command = Command::new(&self.path);
        let words: Vec<&OsStr> = program.command.iter().map(os).collect();
        command.arg0(words[0]).args(&words[1..]).env_clear();
        for variable in &program.environment {
            if let Some(at) = variable.0.iter().skip(1).position(|byte| *byte == b'=') {
                let (name, value) = variable.0.split_at(at + 1);
                command.env(OsStr::from_bytes(name), OsStr::from_bytes(&value[1..]));
            }
        }
        let numbers = [
            ("OSMOS_RANK", place.rank),
            ("OSMOS_SIZE", program.size),
            ("OSMOS_LOCAL_RANK", place.local),
            ("OSMOS_LOCAL_SIZE", place.local_size),
            ("OSMOS_NODE", self.node.0),
        ];
        for (name, number) in numbers {
            command.env(name, number.to_string());
        }
        command.env("OSMOS_JOB", self.job.to_string());
        command.current_dir(os(&program.directory));
        let input = if program.input.is_for(place.rank) { Stdio::piped() } else { Stdio::null() };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn conditions(&self, tracer: Option<i32>) -> Conditions {
        let program = &self.program;
        let limits = program.limits.iter().map(|limit| {
            // RLIM_INFINITY
            let value = |of: Option<u64>| of.unwrap_or(u64::MAX);
            (limit.resource, value(limit.soft), value(limit.hard))
        });
        Conditions {
            tracer,
            umask: program.umask & 0o777,
            nice: program.nice,
            processors: program.processors.clone(),
            limits: limits.collect(),
            is_suspended: program.is_suspended,
        }
    }
}

fn path_of(environment: &[Word]) -> OsString {
    let value = environment.iter().find_map(|word| word.0.strip_prefix(b"PATH="));
    value.map_or_else(|| PATH_USUAL.into(), |value| OsString::from_vec(value.to_vec()))
}

/// As execvp(3) finds it.
fn find(name: &OsStr, directory: &Path, path: OsString) -> Result<PathBuf, String> {
    let can_run = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let shown = Path::new(name).display();
    if name.is_empty() {
        return Err("the command is empty".to_owned());
    }
    if name.as_bytes().contains(&b'/') {
        let path = directory.join(name);
        return match path.metadata() {
            Err(error) => Err(format!("{shown}: {error}")),
            Ok(_) if !can_run(&path) => Err(format!("{shown}: it cannot be executed")),
            Ok(_) => Ok(path),
        };
    }
    let mut places = std::env::split_paths(&path).map(|place| directory.join(place).join(name));
    places
        .find(|path| can_run(path))
        .ok_or_else(|| format!("{shown}: no such command in {}", Path::new(&path).display()))
}

/// Has the kernel read it before all ranks want it at once. Where that is not to be had they wait.
fn warm(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use wire::control::Placement;
    use wire::ids::HomePid;
    use wire::jobs::{Input, Moving, ResourceLimit};
    use wire::supervisor::Way;

    fn program(command: &[&str], environment: &[&str], directory: &str) -> Program {
        let words =
            |words: &[&str]| words.iter().map(|word| Word(word.as_bytes().into())).collect();
        let placement = Placement::Balanced;
        let moving =
            Moving { placement, storm_ms: None, freeze_budget_ms: None, way: Way::default() };
        Program {
            command: words(command),
            environment: words(environment),
            directory: Word(directory.as_bytes().into()),
            umask: 0o22,
            size: 3,
            input: Input::First,
            nice: Some(1),
            processors: vec![0],
            limits: vec![ResourceLimit { resource: 7, soft: Some(9), hard: None }],
            is_suspended: false,
            leaves_daemons: false,
            moving,
        }
    }

    fn prepared(program: Program) -> Result<Prepared, String> {
        Prepared::new(program, GlobalPid { home: NodeId(1), pid: HomePid(7) }, NodeId(2))
    }

    #[test]
    fn a_rank_is_told_who_it_is_and_has_no_other_environment() {
        let of = program(&["env"], &["PATH=/usr/bin:/bin", "A=b=c", "=d=e", "OSMOS_RANK=9"], "/");
        let of = prepared(of).unwrap();
        let mut command = of.command(Place { rank: 2, local: 1, local_size: 2 });
        let out = command.output().unwrap().stdout;
        let mut lines: Vec<&str> = std::str::from_utf8(&out).unwrap().lines().collect();
        lines.sort_unstable();
        let expected = [
            "=d=e",
            "A=b=c",
            "OSMOS_JOB=1:7",
            "OSMOS_LOCAL_RANK=1",
            "OSMOS_LOCAL_SIZE=2",
            "OSMOS_NODE=2",
            "OSMOS_RANK=2",
            "OSMOS_SIZE=3",
            "PATH=/usr/bin:/bin",
        ];
        assert_eq!(lines, expected);
        let conditions = of.conditions(None);
        assert_eq!(conditions.limits, [(7, 9, u64::MAX)]);
    }

    #[test]
    fn what_cannot_begin_is_said_before_anything_does() {
        let path = ["PATH=/usr/bin:/bin"];
        for (of, expected) in [
            (program(&["no-such-command"], &path, "/"), "no such command in /usr/bin:/bin"),
            (program(&["./none"], &path, "/"), "./none: No such file"),
            (program(&["/etc/passwd"], &path, "/"), "cannot be executed"),
            (program(&["/etc"], &path, "/"), "cannot be executed"),
            (program(&["true"], &path, "/no/such"), "working directory /no/such: No such file"),
            (program(&["true"], &path, "tmp"), "is not absolute"),
            (program(&[], &path, "/"), "no command"),
            (program(&["a\0b"], &path, "/"), "zero byte"),
            (Program { size: 0, ..program(&["true"], &path, "/") }, "0 ranks"),
        ] {
            let refusal = prepared(of).err().unwrap();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn a_command_of_the_working_directory_is_found_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy("/bin/true", dir.path().join("mine")).unwrap();
        let directory = dir.path().to_str().unwrap();
        assert!(prepared(program(&["./mine"], &[], directory)).is_ok());
        assert!(prepared(program(&["mine"], &["PATH=."], directory)).is_ok());
        assert!(prepared(program(&["mine"], &[], directory)).is_err());
    }
}

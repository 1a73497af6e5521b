//! Programs that nobody here wrote, doing what people do with them, on files that are only at home.

use crate::subject::{Ending, Kind, Subject};

struct Program {
    name: &'static str,
    purpose: &'static str,
    command: &'static [&'static str],
    files: &'static [&'static str],
    stdin: Option<&'static str>,
    may_stay: &'static [&'static str],
}

/// All real programs.
pub fn subjects() -> Vec<Subject> {
    PROGRAMS.iter().map(subject).collect()
}

fn subject(program: &Program) -> Subject {
    Subject {
        name: program.name.to_string(),
        kind: Kind::Real,
        purpose: program.purpose.to_string(),
        command: program.command.iter().map(|word| word.to_string()).collect(),
        locate: Some(locate(program.command[0])),
        again: again(program.name),
        runs: runs(program.name).to_vec(),
        files: program.files.to_vec(),
        stdin: program.stdin,
        ends: Ending::Exit(0),
        may_stay: program.may_stay.iter().map(|code| code.to_string()).collect(),
        not_stopped: None,
    }
}

/// Version managers put scripts in front of the interpreter: what is tested is the interpreter.
fn locate(program: &str) -> String {
    match program {
        "python3" => "python3 -c 'import sys; print(sys.executable)'".to_string(),
        _ => format!("command -v {program}"),
    }
}

/// What scripts run that a machine with their interpreter may lack.
fn runs(name: &str) -> &'static [&'static str] {
    match name {
        "tar-create" => &["tar"],
        "tar-extract" => &["tar", "gzip"],
        _ => &[],
    }
}

/// Where a move takes long to begin these are done before: the file that they can do once more.
/// What they write is the same then.
fn again(name: &str) -> Option<&'static str> {
    match name {
        "python3-files" => Some("words"),
        "xz-threads" => Some("sound.wav"),
        _ => None,
    }
}

/// Tried where it is installed, and asked of no machine: it is large.
pub fn is_extra(name: &str) -> bool {
    name == "java"
}

const BASH_LOOP: &str = include_str!("../programs/loop.bash");
const BASH_PIPES: &str = include_str!("../programs/pipes.bash");
const MAWK_LOOP: &str =
    "BEGIN { for (i = 0; i < 1800; i++) for (j = 0; j < 1800; j++) s += i * j % 7; print s }";

const MAWK_WORDS: &str = include_str!("../programs/words.awk");
const PYTHON_FILES: &str = include_str!("../programs/files.py");
const PYTHON_THREADS: &str = include_str!("../programs/threads.py");
const PYTHON_PROCESSES: &str = include_str!("../programs/processes.py");
const PERL_TEXT: &str = include_str!("../programs/text.pl");
const TAR_ROUND_TRIP: &str = include_str!("../programs/tar_create.bash");
const TAR_EXTRACT: &str = include_str!("../programs/tar_extract.bash");
const SQL: &str = include_str!("../programs/words.sql");

/// The same file sixty times.
const SHA256SUM: [&str; 61] = {
    let mut words = ["sound.wav"; 61];
    words[0] = "sha256sum";
    words
};

const PROGRAMS: &[Program] = &[
    Program {
        name: "bash-loop",
        purpose: "bash computes, reads and appends",
        command: &["bash", "-c", BASH_LOOP],
        files: &["numbers"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "bash-pipes",
        purpose: "bash runs pipelines, subshells, jobs and a trap",
        command: &["bash", "-c", BASH_PIPES],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "mawk-loop",
        purpose: "the loop of the MOSIX tutorial",
        command: &["mawk", MAWK_LOOP],
        files: &[],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "mawk-words",
        purpose: "mawk counts words, writes a file and reads from a command",
        command: &[
            "mawk", MAWK_WORDS, "words", "words", "words", "words", "words", "words", "words",
        ],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "python3-files",
        purpose: "python computes, hashes, compresses and writes",
        command: &["python3", "-c", PYTHON_FILES, "words"],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "python3-threads",
        purpose: "python with five threads, locks, queues, a barrier and a timer",
        command: &["python3", "-c", PYTHON_THREADS],
        files: &[],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "python3-processes",
        purpose: "python forks, talks over a socket, starts programs and signals itself",
        command: &["python3", "-c", PYTHON_PROCESSES],
        files: &["numbers"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "perl-text",
        purpose: "perl matches, sorts, forks and has an alarm",
        command: &["perl", "-e", PERL_TEXT],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "gzip",
        purpose: "gzip compresses a file",
        command: &["gzip", "-9", "-n", "-k", "sound.wav", "words"],
        files: &["sound.wav", "words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "xz",
        purpose: "xz compresses its input",
        command: &["xz", "-2", "--stdout"],
        files: &[],
        stdin: Some("words"),
        may_stay: &[],
    },
    Program {
        name: "xz-threads",
        purpose: "xz compresses with several threads",
        command: &["xz", "-1", "-T3", "--block-size=300KiB", "-k", "-f", "sound.wav"],
        files: &["sound.wav"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "sha256sum",
        purpose: "sha256sum reads the same file sixty times",
        command: &SHA256SUM,
        files: &["sound.wav"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "sort",
        purpose: "sort with temporary files and threads",
        command: &[
            "sort", "-S", "4M", "-T", ".", "-k", "2,2", "-k", "1", "-o", "sorted", "words",
            "words", "words", "words", "words", "words", "words", "words", "words", "words",
            "words", "words",
        ],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "bc",
        purpose: "bc computes with a thousand digits",
        command: &["bc", "-l"],
        files: &[],
        stdin: Some("sums.bc"),
        may_stay: &[],
    },
    Program {
        name: "flac",
        purpose: "flac encodes sound: the main test of the MOSIX tutorial",
        command: &["flac", "--silent", "-8", "-e", "-p", "-o", "sound.flac", "sound.wav"],
        files: &["sound.wav"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "sqlite3",
        purpose: "sqlite3 creates, indexes, changes and checks a database",
        command: &["sqlite3", "-batch", "words.db", SQL],
        files: &[],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "sqlite3-wal",
        purpose: "sqlite3 with a write-ahead log, which it maps shared and writable",
        command: &["sqlite3", "-batch", "-cmd", "pragma journal_mode = wal", "words.db", SQL],
        files: &[],
        stdin: None,
        may_stay: &["shared-file"],
    },
    Program {
        name: "java",
        purpose: "java compiles, computes in threads and writes by way of memory",
        command: &["java", "Work.java"],
        files: &["Work.java"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "make",
        purpose: "make builds by the times of files",
        command: &["make", "--no-print-directory", "-f", "build.mk"],
        files: &["build.mk"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "tar-create",
        purpose: "tar writes an archive of files, links and a pipe",
        command: &["bash", "-c", TAR_ROUND_TRIP],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
    Program {
        name: "tar-extract",
        purpose: "tar unpacks a compressed archive through a pipe",
        command: &["bash", "-c", TAR_EXTRACT],
        files: &["words"],
        stdin: None,
        may_stay: &[],
    },
];

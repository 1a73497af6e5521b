//! Programs that nobody here wrote, doing what people do with them, on files that are only at home.

use crate::subject::{Ending, Kind, Subject};

struct Program {
    name: &'static str,
    purpose: &'static str,
    command: &'static [&'static str],
    files: &'static [&'static str],
    stdin: Option<&'static str>,
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
        files: program.files.to_vec(),
        stdin: program.stdin,
        ends: Ending::Exit(0),
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

const BASH_LOOP: &str = "
for ((i = 1; i < 160000; i++)); do ((s = (s * 31 + i) % 1000003)); done; echo $s
while read -r number; do ((t = (t + number * 7) % 1000003)); done < numbers; echo $t
for name in one two three; do echo \"$name $t\" >> \"$name.txt\"; done; cat *.txt";

const BASH_PIPES: &str = "
for round in 1 2 3; do
    cut -d' ' -f1 words | sort | uniq -c | sort -k1,1nr -k2 | head -12 > top$round
    sum=$(tr -cd 'a-e\\n' < words | wc -c); echo \"round $round $sum $(head -1 top$round)\"
done
trap 'echo the trap ran' EXIT
(exit 5) || echo \"a subshell gave $?\"
sleep 0.2 & wait $!; echo \"a job gave $?\"";

const MAWK_LOOP: &str =
    "BEGIN { for (i = 0; i < 1800; i++) for (j = 0; j < 1800; j++) s += i * j % 7; print s }";

const MAWK_WORDS: &str = "
{ for (i = 1; i < NF; i++) count[$i]++; sum += $NF; length_sum += length($0) }
END { for (word in count) print count[word], word > \"counts\"; close(\"counts\")
      print NR, sum, length_sum; while ((\"sort -k1,1nr -k2 counts\" | getline line) > 0 && n++ < 5) print line }";

const PYTHON_FILES: &str = "
import collections, hashlib, json, os, random, re, zlib
random.seed(7)
text = open('words').read()
counts = collections.Counter(re.findall(r'[a-z]+', text))
with open('counts.json', 'w') as out:
    json.dump(counts.most_common(500), out, indent=1)
grid = [[random.randrange(100) for _ in range(70)] for _ in range(70)]
for _ in range(3):
    grid = [[sum(a * b for a, b in zip(row, column)) % 1009 for column in zip(*grid)] for row in grid]
packed = zlib.compress(text.encode(), 6)
assert zlib.decompress(packed).decode() == text
os.makedirs('out/deep'); open('out/deep/packed', 'wb').write(packed)
print(len(counts), sum(map(sum, grid)), hashlib.sha256(packed).hexdigest())";

const PYTHON_THREADS: &str = "
import hashlib, queue, threading, time
work, done, lock, total = queue.Queue(8), queue.Queue(), threading.Lock(), [0]
gate = threading.Barrier(5)
def worker(me):
    gate.wait()
    while True:
        item = work.get()
        if item is None:
            break
        digest = hashlib.pbkdf2_hmac('sha256', b'%d' % item, b'salt', 6000).hex()
        with lock:
            total[0] += int(digest[:6], 16)
        done.put((item, digest[:12]))
        time.sleep(0.001)
threads = [threading.Thread(target=worker, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
gate.wait()
for item in range(160): work.put(item)
for _ in threads: work.put(None)
for thread in threads: thread.join(timeout=25)
results = sorted(done.queue)
event = threading.Event(); timer = threading.Timer(0.1, event.set); timer.start()
print(len(results), total[0], results[0], results[-1], event.wait(10), threading.active_count() <= 2)";

const PYTHON_PROCESSES: &str = "
import os, signal, socket, subprocess, sys, time
heard = []
signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
print(subprocess.run(['sort', '-n', 'numbers'], capture_output=True, text=True).stdout.split()[:4])
left, right = socket.socketpair()
child = os.fork()
if child == 0:
    left.close()
    while (word := right.recv(100)): right.sendall(word[::-1])
    os._exit(6)
right.close()
for number in range(200):
    left.sendall(b'word %d' % number)
    assert left.recv(100)[::-1] == b'word %d' % number
    if number % 20 == 0: time.sleep(0.02)
left.close()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGUSR1)
print(heard == [signal.SIGUSR1], subprocess.call([sys.executable, '-c', 'raise SystemExit(3)']))";

const PERL_TEXT: &str = r#"
open my $in, '<', 'words' or die $!;
my (%count, $long);
while (<$in>) { for my $word (/([a-z]+)/g) { $count{$word}++; $long++ if $word =~ /^(\w+)\1$/ } }
open my $out, '>', 'report' or die $!;
printf $out "%6d %s\n", $count{$_}, $_ for (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 99];
close $out;
my $pid = fork // die; if (!$pid) { select undef, undef, undef, 0.2; exit 9 }
local $SIG{ALRM} = sub { $long += 1000 }; 
waitpid $pid, 0; print "child ", $? >> 8, "\n"; alarm 1; sleep 20; print "$long ", scalar(keys %count), "\n";"#;

const TAR_ROUND_TRIP: &str = "
mkdir -p tree/a/b; for i in $(seq 1 60); do head -c $((i * 700)) words > tree/a/file$i; done
ln -s file1 tree/a/link; ln tree/a/file2 tree/a/b/hard; chmod 640 tree/a/file3; mkfifo tree/pipe
exec tar --create --file all.tar --sort=name --mtime=@0 --owner=0 --group=0 --verbose \\
    --checkpoint=20 --checkpoint-action='exec=sleep 0.05' tree";

const TAR_EXTRACT: &str = "
mkdir there; for i in $(seq 1 60); do head -c $((i * 900)) words > file$i; done
tar -czf all.tgz file*; rm file*
exec tar --extract --verbose --file all.tgz --directory there --checkpoint=20 \\
    --checkpoint-action='exec=sleep 0.05'";

const SQL: &str = "
create table word (id integer primary key, name text, size integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000)
    insert into word select i, printf('%x', i * 2654435761 % 4294967296), i * 7919 % 1000 from n;
create index by_size on word (size, name);
begin; update word set size = size + 1 where id % 3 = 0; rollback;
begin; delete from word where id % 5 = 0; commit;
select count(*), sum(size), max(name) from word;
select size, count(*) from word group by size order by 2 desc, 1 limit 5;
with recursive n(i, s) as (select 1, 0 union all select i + 1, (s * 31 + i) % 1000003 from n
    where i < 300000) select s from n order by i desc limit 1;
pragma integrity_check; pragma journal_mode = delete; vacuum;";

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
    },
    Program {
        name: "bash-pipes",
        purpose: "bash runs pipelines, subshells, jobs and a trap",
        command: &["bash", "-c", BASH_PIPES],
        files: &["words"],
        stdin: None,
    },
    Program {
        name: "mawk-loop",
        purpose: "the loop of the MOSIX tutorial",
        command: &["mawk", MAWK_LOOP],
        files: &[],
        stdin: None,
    },
    Program {
        name: "mawk-words",
        purpose: "mawk counts words, writes a file and reads from a command",
        command: &[
            "mawk", MAWK_WORDS, "words", "words", "words", "words", "words", "words", "words",
        ],
        files: &["words"],
        stdin: None,
    },
    Program {
        name: "python3-files",
        purpose: "python computes, hashes, compresses and writes",
        command: &["python3", "-c", PYTHON_FILES],
        files: &["words"],
        stdin: None,
    },
    Program {
        name: "python3-threads",
        purpose: "python with five threads, locks, queues, a barrier and a timer",
        command: &["python3", "-c", PYTHON_THREADS],
        files: &[],
        stdin: None,
    },
    Program {
        name: "python3-processes",
        purpose: "python forks, talks over a socket, starts programs and signals itself",
        command: &["python3", "-c", PYTHON_PROCESSES],
        files: &["numbers"],
        stdin: None,
    },
    Program {
        name: "perl-text",
        purpose: "perl matches, sorts, forks and has an alarm",
        command: &["perl", "-e", PERL_TEXT],
        files: &["words"],
        stdin: None,
    },
    Program {
        name: "gzip",
        purpose: "gzip compresses a file",
        command: &["gzip", "-9", "-n", "-k", "sound.wav", "words"],
        files: &["sound.wav", "words"],
        stdin: None,
    },
    Program {
        name: "xz",
        purpose: "xz compresses its input",
        command: &["xz", "-2", "--stdout"],
        files: &[],
        stdin: Some("words"),
    },
    Program {
        name: "xz-threads",
        purpose: "xz compresses with several threads",
        command: &["xz", "-1", "-T3", "--block-size=300KiB", "-k", "sound.wav"],
        files: &["sound.wav"],
        stdin: None,
    },
    Program {
        name: "sha256sum",
        purpose: "sha256sum reads the same file sixty times",
        command: &SHA256SUM,
        files: &["sound.wav"],
        stdin: None,
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
    },
    Program {
        name: "bc",
        purpose: "bc computes with a thousand digits",
        command: &["bc", "-l"],
        files: &[],
        stdin: Some("sums.bc"),
    },
    Program {
        name: "flac",
        purpose: "flac encodes sound: the main test of the MOSIX tutorial",
        command: &["flac", "--silent", "-8", "-e", "-p", "-o", "sound.flac", "sound.wav"],
        files: &["sound.wav"],
        stdin: None,
    },
    Program {
        name: "sqlite3",
        purpose: "sqlite3 creates, indexes, changes and checks a database",
        command: &["sqlite3", "-batch", "words.db", SQL],
        files: &[],
        stdin: None,
    },
    Program {
        name: "sqlite3-wal",
        purpose: "sqlite3 with a write-ahead log, which it maps shared and writable",
        command: &["sqlite3", "-batch", "-cmd", "pragma journal_mode = wal", "words.db", SQL],
        files: &[],
        stdin: None,
    },
    Program {
        name: "tar-create",
        purpose: "tar writes an archive of files, links and a pipe",
        command: &["bash", "-c", TAR_ROUND_TRIP],
        files: &["words"],
        stdin: None,
    },
    Program {
        name: "tar-extract",
        purpose: "tar unpacks a compressed archive through a pipe",
        command: &["bash", "-c", TAR_EXTRACT],
        files: &["words"],
        stdin: None,
    },
];

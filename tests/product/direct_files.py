"""Does to files in a directory what a seed says, by every way there is, and prints what came of it:
the same wherever it runs. Stops for a moment between steps, where it can be moved."""
import fcntl
import hashlib
import mmap
import os
import random
import sys
import threading
import time

directory, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
names = [f"{directory}/{name}" for name in "abc"]
opened = []


def content(length):
    return dice.randbytes(min(length, 4096)) * (length // 4096 + 1)


def told(data):
    if isinstance(data, (bytes, bytearray)):
        return f"{len(data)} {hashlib.md5(data).hexdigest()[:8]}"
    return data


def tried(what, *arguments):
    try:
        return told(what(*arguments))
    except OSError as error:
        return f"errno {error.errno}"


def length():
    return dice.choice([0, 1, 100, 4096, 5000, 70_000, 300_000])


def place():
    return dice.choice([0, 1, 4095, 4096, 65_536, 100_000, 500_000])


def open_one():
    flags = dice.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR])
    flags |= dice.choice([0, 0, 0, os.O_TRUNC, os.O_APPEND])
    file = os.open(dice.choice(names), flags | os.O_CREAT, 0o600)
    opened.append(file)
    return file


def in_child(file):
    """A child goes on with the descriptor, and its parent after it."""
    ours, theirs = os.pipe()
    size, data = length(), content(3000)
    child = os.fork()
    if child == 0:
        os.write(theirs, f"{tried(os.read, file, size)} {tried(os.write, file, data)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(ours, 200).decode()
    os.close(ours)
    os.close(theirs)
    return f"{said} {os.lseek(file, 0, os.SEEK_CUR)}"


def seen_by_child(name):
    """What is on its way nowhere: who is told of it finds it."""
    return tried(lambda: os.waitstatus_to_exitcode(
        os.spawnvp(os.P_WAIT, "cmp", ["cmp", "-s", name, name])))


def by_threads(file):
    """Two threads, each with a part of its own."""
    parts = [content(50_000), content(50_000)]
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_APPEND:
        return "in any order"
    work = [threading.Thread(target=tried, args=(os.pwrite, file, part, at * 60_000))
            for at, part in enumerate(parts)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return tried(os.pread, file, 200_000, 0)


def renamed_meanwhile(file):
    """One thread writes, and another gives what it writes to another name."""
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_APPEND:
        return "at its end"
    work = threading.Thread(target=tried, args=(os.pwrite, file, content(300_000), 0))
    work.start()
    other = os.dup(file)
    work.join()
    said = tried(os.pread, other, 300_000, 0)
    os.close(other)
    return said


def mapped(file):
    if os.fstat(file).st_size == 0:
        return "empty"
    with mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as memory:
        return bytes(memory)


def into_pipe(file):
    ours, theirs = os.pipe()
    try:
        sent = os.sendfile(theirs, file, None, 5000)
        return f"{sent} {told(os.read(ours, sent) if sent else b'')}"
    finally:
        os.close(ours)
        os.close(theirs)


def other_name(file):
    other = os.dup(file)
    said = f"{tried(os.read, other, 1000)} {tried(os.read, file, 1000)}"
    os.close(other)
    return said


def vector(file):
    buffers = [bytearray(10), bytearray(70_000), bytearray(0), bytearray(5)]
    count = os.readv(file, buffers)
    return f"{count} {told(b''.join(buffers))}"


def step():
    file = dice.choice(opened) if opened else open_one()
    what = dice.choice([
        "read", "read", "read", "write", "write", "write", "pread", "pwrite", "readv", "writev",
        "seek", "seek", "end", "size", "cut", "grow", "sync", "open", "open", "close", "child",
        "cmp", "threads", "meanwhile", "map", "sendfile", "dup", "copy", "stat", "whole", "append",
        "advise", "rename",
    ])
    said = {
        "read": lambda: os.read(file, length()),
        "write": lambda: os.write(file, content(length())),
        "pread": lambda: os.pread(file, length(), place()),
        "pwrite": lambda: os.pwrite(file, content(length()), place()),
        "readv": lambda: vector(file),
        "writev": lambda: os.writev(file, [content(10), b"", content(length())]),
        "seek": lambda: os.lseek(file, place() - dice.choice([0, 0, 50_000]),
                                 dice.choice([os.SEEK_SET, os.SEEK_SET, os.SEEK_CUR])),
        "end": lambda: os.lseek(file, -dice.choice([0, 10, 100_000]), os.SEEK_END),
        "size": lambda: os.fstat(file).st_size,
        "cut": lambda: os.ftruncate(file, place()),
        "grow": lambda: os.posix_fallocate(file, place(), length() + 1),
        "sync": lambda: dice.choice([os.fsync, os.fdatasync])(file),
        "open": lambda: open_one() >= 0,
        "close": lambda: opened.remove(file) or os.close(file),
        "child": lambda: in_child(file),
        "cmp": lambda: seen_by_child(dice.choice(names)),
        "threads": lambda: by_threads(file),
        "meanwhile": lambda: renamed_meanwhile(file),
        "map": lambda: mapped(file),
        "sendfile": lambda: into_pipe(file),
        "dup": lambda: other_name(file),
        "copy": lambda: os.copy_file_range(file, dice.choice(opened), length()),
        "stat": lambda: os.stat(dice.choice(names)).st_size,
        "whole": lambda: open(dice.choice(names), "rb").read(),
        "append": lambda: open(dice.choice(names), "ab").write(content(100)),
        "advise": lambda: os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL),
        "rename": lambda: (os.rename(names[0], names[0] + "~"),
                           os.rename(names[0] + "~", names[0])),
    }[what]
    result = tried(said)
    where = tried(os.lseek, file, 0, os.SEEK_CUR) if file in opened else "closed"
    print(what, result, where, flush=True)


print("ready", flush=True)
sys.stdin.readline()
for name in names:
    with open(name, "wb") as new:
        new.write(content(200_000))
for number in range(steps):
    step()
    if number % 20 == 0:
        time.sleep(0.01)
    while len(opened) > 8:
        os.close(opened.pop(0))
for name in names:
    with open(name, "rb") as old:
        print(told(old.read()))

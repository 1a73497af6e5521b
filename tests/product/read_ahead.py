"""reads: reads files in a directory by every way there is, as a seed says, has another process
change them, and prints what came of it: the same wherever it runs. writes: that other process. They
tell each other by two pipes with names."""
import fcntl
import hashlib
import mmap
import os
import random
import sys
import threading
import time

role, directory, seed, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dice = random.Random(seed)
names = [f"{directory}/{name}" for name in "abc"]
orders, answers = f"{directory}/orders", f"{directory}/answers"
# So long a file is left alone before home sends it ahead.
QUIET = 0.06


def content(length, of):
    return random.Random(of).randbytes(length)


def told(data):
    if isinstance(data, (bytes, bytearray)):
        return f"{len(data)} {hashlib.md5(data).hexdigest()[:8]}"
    return data


def tried(what, *arguments):
    try:
        return told(what(*arguments))
    except (OSError, ValueError) as error:
        return f"errno {getattr(error, 'errno', error)}"


def size():
    return dice.choice([4096, 4096, 4096, 1000, 65_536, 131_072, 500_000, 2_000_000])


def place():
    return dice.choice([0, 1, 4096, 100_000, 700_000, 1_500_000, 3_000_000])


# ---- The process that changes files

held = {}
maps = {}


def hold(name):
    """Has it open for writing from now on, or no more."""
    if name in held:
        os.close(held.pop(name))
    else:
        held[name] = os.open(name, os.O_RDWR)


def change(what, name, at, length, of):
    if what == "write":
        with open(name, "r+b") as file:
            file.seek(at)
            file.write(content(length, of))
    elif what == "append":
        with open(name, "ab") as file:
            file.write(content(length, of))
    elif what == "cut":
        os.truncate(name, at)
    elif what == "replace":
        with open(name + "~", "wb") as file:
            file.write(content(1_500_000, of))
        os.rename(name + "~", name)
    elif what == "hold":
        hold(name)
    elif what == "held":
        if name in held:
            os.pwrite(held[name], content(length, of), at)
    elif what == "map":
        if name in maps:
            maps.pop(name).close()
        elif os.stat(name).st_size >= 4096:
            with open(name, "r+b") as file:
                maps[name] = mmap.mmap(file.fileno(), 4096)
    elif what == "store":
        if name in maps and os.stat(name).st_size >= 4096:
            maps[name][of % 4000] = of % 256
    elif what == "times":
        os.utime(name)


if role == "writes":
    with open(orders) as hears, open(answers, "w") as says:
        for line in hears:
            what, name, at, length, of = line.split()
            done = tried(change, what, name, int(at), int(length), int(of))
            print(done, file=says, flush=True)
    sys.exit()

# ---- The one that reads them

opened = []


def order(what):
    name = dice.choice(names)
    length = min(size(), 300_000)
    print(what, name, place(), length, dice.randrange(1 << 30), file=says, flush=True)
    return hears.readline().strip()


def open_one():
    file = os.open(dice.choice(names), os.O_RDONLY)
    opened.append(file)
    return file


def in_order(file):
    """What makes it worth to read ahead."""
    length = dice.choice([1000, 4096, 16_384, 131_072])
    if os.lseek(file, 0, os.SEEK_CUR) + 30 * length > os.fstat(file).st_size:
        os.lseek(file, dice.choice([0, 0, 5000, 300_000]), os.SEEK_SET)
    sum = hashlib.md5()
    for _ in range(dice.choice([5, 20, 60])):
        data = os.read(file, length)
        sum.update(data)
        if len(data) < length:
            break
    return sum.hexdigest()[:8]


def changed_meanwhile(file):
    """It is told of a change while it reads."""
    said = in_order(file)
    if dice.random() < 0.5:
        os.lseek(file, 0, os.SEEK_SET)
        time.sleep(QUIET)
        said += in_order(file)
    for _ in range(4):
        what = dice.choice(["write", "write", "held", "store", "append"])
        said += f" {order(what)} {tried(os.read, file, 4096)}"
    return said


def in_child(file):
    """A child goes on with the descriptor, and its parent after it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, in_order(file).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(ours, 200).decode()
    os.close(ours)
    os.close(theirs)
    return f"{said} {in_order(file)}"


def other_name(file):
    other = os.dup(file)
    said = f"{tried(os.read, other, 1000)} {tried(os.read, file, 1000)}"
    os.close(other)
    return said


def by_threads(file):
    """Each reads what it gets: all of it together is what there is."""
    parts = []
    start = os.lseek(file, 0, os.SEEK_CUR)

    def read():
        for _ in range(20):
            parts.append(len(os.read(file, 4096)))

    work = [threading.Thread(target=read) for _ in range(3)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return f"{sum(parts)} {os.lseek(file, 0, os.SEEK_CUR) - start}"


def places_by_threads(file):
    said = {}

    def read(at):
        said[at] = told(b"".join(os.pread(file, 4096, at + of * 4096) for of in range(30)))

    work = [threading.Thread(target=read, args=(at,)) for at in (0, 200_000, 900_000)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return [said[at] for at in sorted(said)]


def vector(file):
    buffers = [bytearray(10), bytearray(70_000), bytearray(0), bytearray(5)]
    count = os.readv(file, buffers)
    return f"{count} {told(b''.join(buffers))}"


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


def locked(file):
    fcntl.flock(file, fcntl.LOCK_SH)
    said = in_order(file)
    fcntl.flock(file, fcntl.LOCK_UN)
    return said


def step():
    file = dice.choice(opened) if opened else open_one()
    what = dice.choice([
        "order", "order", "order", "order", "meanwhile", "meanwhile", "meanwhile", "read", "pread",
        "readv", "seek", "seek", "end", "stat", "open", "open", "close", "child", "dup", "threads",
        "places", "map", "sendfile", "flock", "control", "whole", "rest", "rest", "change",
        "change", "hold", "mapping",
    ])
    said = {
        "order": lambda: in_order(file),
        "meanwhile": lambda: changed_meanwhile(file),
        "read": lambda: os.read(file, size()),
        "pread": lambda: os.pread(file, size(), place()),
        "readv": lambda: vector(file),
        "seek": lambda: os.lseek(file, place() - dice.choice([0, 0, 50_000]),
                                 dice.choice([os.SEEK_SET, os.SEEK_SET, os.SEEK_CUR])),
        "end": lambda: os.lseek(file, -dice.choice([0, 10, 400_000]), os.SEEK_END),
        "stat": lambda: os.fstat(file).st_size,
        "open": lambda: open_one() >= 0,
        "close": lambda: opened.remove(file) or os.close(file),
        "child": lambda: in_child(file),
        "dup": lambda: other_name(file),
        "threads": lambda: by_threads(file),
        "places": lambda: places_by_threads(file),
        "map": lambda: mapped(file),
        "sendfile": lambda: into_pipe(file),
        "flock": lambda: locked(file),
        "control": lambda: (fcntl.fcntl(file, fcntl.F_GETFL), fcntl.fcntl(file, fcntl.F_GETFD)),
        "whole": lambda: open(dice.choice(names), "rb").read(),
        "rest": lambda: time.sleep(QUIET),
        "change": lambda: order(dice.choice(["write", "append", "cut", "replace", "times"])),
        "hold": lambda: order("hold"),
        "mapping": lambda: order("map"),
    }[what]
    result = tried(said)
    where = tried(os.lseek, file, 0, os.SEEK_CUR) if file in opened else "closed"
    print(what, result, where, flush=True)


for name in names:
    with open(name, "wb") as new:
        new.write(content(dice.choice([2_000_000, 4_000_000]), dice.randrange(1 << 30)))
print("ready", flush=True)
sys.stdin.readline()
with open(orders, "w") as says, open(answers) as hears:
    for number in range(steps):
        step()
        while len(opened) > 6:
            os.close(opened.pop(0))

# Tells what it finds in the files about itself, by the name or number that it is asked for.
import json, os, re, sys, threading

NAMES = ["stat", "statm", "status", "cmdline", "environ", "maps", "cgroup"]
kept = {}


def read(path):
    with open(path, "rb", buffering=0) as file:
        parts = []
        while part := file.read(4096):
            parts.append(part)
        return b"".join(parts).decode("latin-1")


def look(directory):
    # Twice: what reading takes of memory is there the second time.
    for _ in range(3):
        found = {name: read(f"/proc/{directory}/{name}") for name in NAMES}
    return found


def look_by_thread():
    found = {}
    thread = threading.Thread(target=lambda: found.update(look("thread-self")))
    thread.start()
    thread.join()
    # Each look is another thread's: its number, and when it began.
    fields = found["stat"].split(" ")
    fields[0] = fields[21] = "0"
    found["stat"] = " ".join(fields)
    found["status"] = re.sub(r"(?m)^(Pid|NSpid):.*$", r"\1:\t0", found["status"])
    return found


def again(name):
    """Reads a file that stays open: in two parts, from its start again, and at a place."""
    if name not in kept:
        kept[name] = os.open(f"/proc/self/{name}", os.O_RDONLY)
    file = kept[name]
    os.lseek(file, 0, os.SEEK_SET)
    whole = os.read(file, 3) + os.read(file, 65536)
    end = os.read(file, 10)
    place = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, 0, os.SEEK_SET)
    first = os.read(file, 5)
    return [whole.decode(), end.decode(), place, first.decode(), os.pread(file, 5, 2).decode()]


print("ready", flush=True)
for line in sys.stdin:
    try:
        print(json.dumps(eval(line)), flush=True)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)

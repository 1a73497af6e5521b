# Two children count in memory with a name, which their maker has not mapped. For each line it makes
# two. "end MS" ends one by SIGTERM, and so many milliseconds later the other by SIGKILL; what the
# first has counted to is read from the file then, and what it had counted to before.
import mmap, os, signal, struct, sys, time

PATH = f"/dev/shm/dying-group-{os.getpid()}"
SIZE = 16 * 4096


def opened():
    fd = os.open(PATH, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, SIZE)
    shared = mmap.mmap(fd, SIZE)
    os.close(fd)
    return shared


def work(me, seen):
    shared = opened()
    own = 0
    while True:
        own += 1
        shared[me * 4096:me * 4096 + 8] = struct.pack("q", own)
        if own % 500 == 0:
            os.pwrite(seen, struct.pack("q", own), me * 8)
            time.sleep(0.001)


def told(me):
    return struct.unpack("q", os.pread(seen, 8, me * 8))[0]


seen = os.memfd_create("seen")
for line in sys.stdin:
    words = line.split()
    if words[0] == "begin":
        os.ftruncate(seen, 0)
        os.ftruncate(seen, 16)
        kids = []
        for me in range(2):
            kid = os.fork()
            if kid == 0:
                work(me, seen)
            kids.append(kid)
        while not (told(0) and told(1)):
            time.sleep(0.001)
        print(*kids, flush=True)
        continue
    os.kill(kids[1], signal.SIGTERM)
    time.sleep(float(words[1]) / 1000)
    os.kill(kids[0], signal.SIGKILL)
    for kid in kids:
        os.waitpid(kid, 0)
    with open(PATH, "rb") as file:
        file.seek(4096)
        left = struct.unpack("q", file.read(8))[0]
    os.unlink(PATH)
    print("kept" if left >= told(1) else f"{left} of {told(1)} are left", flush=True)

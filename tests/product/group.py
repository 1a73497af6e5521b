# Three children and their maker count in memory that they share, each in a word of its own, and
# each looks at those of the others. "all" is answered when all have got on since; "whole" is
# whether each word is what its owner counts.
import mmap, os, signal, struct, sys, time

SIZE, KIDS = 64 * 4096, 3
shared = mmap.mmap(-1, SIZE)
for page in range(8, SIZE // 4096):
    shared[page * 4096:page * 4096 + 4] = struct.pack("I", page)


def word(index, value=None):
    at = index * 8
    if value is None:
        return struct.unpack("q", shared[at:at + 8])[0]
    shared[at:at + 8] = struct.pack("q", value)


def work(me):
    own = 0
    while True:
        if word(me) != own:
            os.write(2, b"another has my word\n")
            os._exit(3)
        own += 1
        word(me, own)
        if own % 20000 == 0:
            time.sleep(0.001)


kids = []
for me in range(KIDS):
    kid = os.fork()
    if kid == 0:
        work(me)
    kids.append(kid)
print(*kids, flush=True)
living = set(range(KIDS))
for line in sys.stdin:
    question = line.strip()
    if question.startswith("without"):
        kid = int(question.split()[1])
        os.waitpid(kid, 0)
        living.discard(kids.index(kid))
        print("gone", flush=True)
        continue
    before = [word(me) for me in range(KIDS)]
    end = time.monotonic() + 20
    while not all(word(me) > before[me] for me in living) and time.monotonic() < end:
        time.sleep(0.001)
    stuck = [kids[me] for me in living if word(me) <= before[me]]
    torn = [page for page in range(8, SIZE // 4096)
            if struct.unpack("I", shared[page * 4096:page * 4096 + 4])[0] != page]
    print("all" if not stuck and not torn else f"stuck {stuck} torn {torn}", flush=True)
for kid in (kids[me] for me in living):
    try:
        os.kill(kid, signal.SIGKILL)
    except ProcessLookupError:
        pass

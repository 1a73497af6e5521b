# Two processes count in shared memory that has a name: "posix" (/dev/shm) or "system-v". Prints the
# name, and then how far they are whenever it is asked. With a name it is a stranger that only looks.
import ctypes, mmap, os, signal, struct, sys, time

SIZE = 16 * 4096
kind, name = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else None)
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


def posix():
    global name
    flags = os.O_RDWR if name else os.O_RDWR | os.O_CREAT | os.O_EXCL
    path = name or f"/dev/shm/osmos-named-{os.getpid()}"
    fd = os.open(path, flags, 0o600)
    if not name:
        os.ftruncate(fd, SIZE)
    memory = mmap.mmap(fd, SIZE)
    os.close(fd)
    return path, memory


def system_v():
    segment = int(name) if name else libc.shmget(0, SIZE, 0o1600)
    address = libc.shmat(segment, None, 0)
    return str(segment), (ctypes.c_char * SIZE).from_address(address)


path, memory = {"posix": posix, "system-v": system_v}[kind]()


def count():
    return struct.unpack("q", memory[8192:8200])[0]


if name:
    for line in sys.stdin:
        print(count(), flush=True)
    sys.exit(0)

kid = os.fork()
if kid == 0:
    while True:
        memory[8192:8200] = struct.pack("q", count() + 1)
        time.sleep(0.001)
print(path, flush=True)
for line in sys.stdin:
    before = count()
    while count() <= before:
        time.sleep(0.001)
    print(count(), flush=True)
os.kill(kid, signal.SIGKILL)
os.waitpid(kid, 0)
if kind == "posix":
    os.unlink(path)
else:
    libc.shmctl(int(path), 0, None)

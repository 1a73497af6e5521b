# What programs do with files, in the directory it is given: one line for each thing seen. Run where
# the directory lies and through a mount, it has to print the same.
import errno, fcntl, mmap, os, random, stat, subprocess, sys, time

os.chdir(sys.argv[1])
os.umask(0o022)
random.seed(7)


def tell(*words):
    print(*words, flush=True)


def refused(what, call, *arguments):
    try:
        call(*arguments)
        tell(what, "is not refused")
    except OSError as error:
        tell(what, errno.errorcode[error.errno])


def mode(name):
    seen = os.lstat(name)
    return stat.filemode(seen.st_mode), seen.st_nlink, seen.st_size, seen.st_uid == os.getuid()


with open("plain", "w") as file:
    file.write("hello\n")
tell("plain", mode("plain"), open("plain").read())
os.link("plain", "second")
same = os.stat("plain").st_ino == os.stat("second").st_ino
tell("linked", mode("second"), same, os.stat("second").st_ino == os.stat("plain").st_ino)
os.symlink("plain", "soft")
tell("soft", os.readlink("soft"), open("soft").read())
os.rename("plain", "third")
tell("renamed", sorted(os.listdir(".")), open("second").read())
refused("open of what is gone", open, "plain")
os.rename("third", "second")
tell("renamed onto its other name", mode("second"))
os.unlink("third")
tell("left", sorted(os.listdir(".")))
os.makedirs("a/b/c")
refused("rmdir of a full one", os.rmdir, "a/b")
refused("mkdir of what is there", os.mkdir, "a")
refused("unlink of a directory", os.unlink, "a")
refused("open of a directory for writing", open, "a", "w")
os.rename("a/b", "moved")
tell("moved", os.listdir("moved"), os.listdir("a"))
refused("rename into itself", os.rename, "moved", "moved/c/d")

data = random.randbytes(5_000_000)
with open("big", "wb+") as file:
    file.write(data)
    file.flush()
    file.seek(0)
    tell("big is read back", file.read() == data)
    os.pwrite(file.fileno(), b"XYZ", 1_234_567)
    tell("changed", os.pread(file.fileno(), 5, 1_234_566)[1:4], os.fstat(file.fileno()).st_size)
    mapped = mmap.mmap(file.fileno(), 0)
    tell("mapped", mapped[1_234_567:1_234_570])
    mapped[:6] = b"mapped"
    mapped.flush()
    mapped.close()
tell("and read", open("big", "rb").read(6), open("big", "rb").read() != data)
for turn in range(200):
    # What is written is there for whatever is asked next.
    with open("sparse", "wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"z")
        file.flush()
        found = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        size = os.stat("sparse").st_size
        if (found, size) != (1 << 19, 1 << 20):
            tell("turn", turn, "found", found, "of", size)
tell("sparse", mode("sparse"))
with open("grown", "wb") as file:
    for turn in range(300):
        file.write(b"x" * 1000)
        file.flush()
        if os.stat("grown").st_size != 1000 * (turn + 1):
            tell("turn", turn, "has", os.stat("grown").st_size)
    os.posix_fallocate(file.fileno(), 0, 400_000)
    tell("allocated", os.fstat(file.fileno()).st_size)
    os.truncate("grown", 10)
    tell("cut", os.fstat(file.fileno()).st_size)
source, copy = os.open("big", os.O_RDONLY), os.open("copy", os.O_CREAT | os.O_RDWR, 0o640)
tell("copied", os.copy_file_range(source, copy, 1 << 20), mode("copy"))
with open("appended", "ab") as file:
    file.write(b"1")
    file.flush()
    file.write(b"2")
tell("appended", open("appended").read())
refused("exclusive", os.open, "appended", os.O_CREAT | os.O_EXCL)
refused("write to what is open for reading", os.write, os.open("appended", os.O_RDONLY), b"x")
kept = open("deleted", "w+")
kept.write("still there")
kept.flush()
os.unlink("deleted")
kept.seek(0)
tell("deleted", kept.read(), os.fstat(kept.fileno()).st_nlink, os.path.exists("deleted"))
os.utime("second", ns=(1_000_000_001, -5_000_000_000))
tell("times", os.stat("second").st_atime_ns, os.stat("second").st_mtime_ns)
os.chmod("second", 0o4711)
tell("mode", mode("second"))
os.setxattr("second", "user.colour", b"blue")
tell("attributes", os.getxattr("second", "user.colour"), os.listxattr("second"))
refused("attribute that is there", os.setxattr, "second", "user.colour", b"red", os.XATTR_CREATE)
os.removexattr("second", "user.colour")
refused("attribute that is gone", os.getxattr, "second", "user.colour")
os.mkfifo("pipe", 0o600)
tell("pipe", mode("pipe"))
locked = open("locked", "w+")
fcntl.lockf(locked, fcntl.LOCK_EX, 10, 0)
child = os.fork()
if child == 0:
    other = open("locked", "r+")
    refused("lock that another has", fcntl.lockf, other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
    # Until the other lets go.
    fcntl.lockf(other, fcntl.LOCK_EX, 1, 5)
    tell("locked")
    os._exit(0)
time.sleep(0.2)
fcntl.lockf(locked, fcntl.LOCK_UN)
tell("child", os.waitpid(child, 0)[1])
whole = open("locked", "r+")
fcntl.flock(whole, fcntl.LOCK_EX)
refused("flock", fcntl.flock, open("locked", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
whole.close()
fcntl.flock(open("locked", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
for number in range(1500):
    open(f"many-{number}", "w").close()
names = sorted(os.listdir("."))
tell("many", len(names), sum(entry.stat(follow_symlinks=False).st_size == 0 for entry in os.scandir(".")))
for number in range(1500):
    os.unlink(f"many-{number}")
tell("few", sorted(os.listdir(".")))
program = "second-program"
with open(program, "w") as file:
    file.write("#!/bin/sh\necho runs $1\n")
os.chmod(program, 0o755)
tell("program", subprocess.run([f"./{program}", "there"], capture_output=True).stdout)
tell("access", os.access(program, os.X_OK), os.access("second", os.W_OK), os.access("none", os.F_OK))
tell("long", os.pathconf(".", "PC_NAME_MAX"))
refused("too long", open, "n" * 256, "w")
open("odd \n\x1b[31m\udcff", "w").close()
tell("odd", [name for name in os.listdir(b".") if name.startswith(b"odd")])
os.statvfs(".")

# A tree of processes in all the ways that programs make them; what it prints is always the same.
import os, signal, sys, time


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def fork(body):
    child = os.fork()
    if child == 0:
        os._exit(body() or 0)
    return child


def status_of(child):
    return os.waitpid(child, 0)[1]


compute(float(sys.argv[1]))
reader, writer = os.pipe()


def child():
    def grandchild():
        compute(0.05)
        os.write(writer, b"grandchild\n")
        return 3

    os.write(writer, b"child saw %d\n" % os.waitstatus_to_exitcode(status_of(fork(grandchild))))
    return 4


print("nested", os.waitstatus_to_exitcode(status_of(fork(child))), os.read(reader, 1000))

several = [fork(lambda index=index: compute(0.03 * index) or 20 + index) for index in range(6)]
print("several", [os.waitstatus_to_exitcode(status_of(child)) for child in several])


def handles():
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(77))
    os.write(writer, b"ready")
    while True:
        compute(0.1)


child = fork(handles)
assert os.read(reader, 100) == b"ready"
os.kill(child, signal.SIGUSR1)
print("handler", os.waitstatus_to_exitcode(status_of(child)))

for number in (signal.SIGTERM, signal.SIGKILL):
    child = fork(lambda: compute(60))
    os.kill(child, number)
    print("signal", os.waitstatus_to_exitcode(status_of(child)))

child = fork(lambda: compute(60))
os.kill(child, signal.SIGSTOP)
print("stopped", os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]))
os.kill(child, signal.SIGCONT)
os.kill(child, signal.SIGKILL)
print("killed", os.waitstatus_to_exitcode(status_of(child)))

ends, end = os.pipe()


def leave_one_behind():
    def daemon():
        os.setsid()
        compute(0.05)
        os.write(end, b"leads its session: %d" % (os.getsid(0) == os.getpid()))

    fork(daemon)


status_of(fork(leave_one_behind))
os.close(end)
print("daemon", os.read(ends, 100))

print("many", sum(os.waitstatus_to_exitcode(status_of(fork(lambda: i % 7))) for i in range(50)))

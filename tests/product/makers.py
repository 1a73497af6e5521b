# Threads make processes when they are told to: each line is answered by one.
import os, sys, threading

memory = bytearray(b"m" * 1_000_000)
gate, waiter, waited = None, None, []


def code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def make(number, codes):
    child = os.fork()
    if child == 0:
        memory[:] = b"c" * len(memory)
        os._exit(10 + number)
    codes.append(code(child))
    words = ["sh", "-c", f"exit {20 + number}"]
    codes.append(code(os.posix_spawn("/bin/sh", words, os.environ)))


def make_all(count):
    codes = []
    threads = [threading.Thread(target=make, args=(n, codes)) for n in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sorted(codes)


def await_any():
    try:
        while True:
            waited.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        pass


def fork(number):
    child = os.fork()
    if child == 0:
        os.close(gate[1])
        os.read(gate[0], 1) if number == 0 else None
        os._exit(30 + number)


def fork_and_await():
    global gate, waiter
    gate = os.pipe()
    fork(0)
    waiter = threading.Thread(target=await_any)
    waiter.start()


def end():
    os.close(gate[1])
    waiter.join()
    codes, waited[:] = sorted(waited), []
    return codes


for line in sys.stdin:
    words = line.split()
    number = int(words[1]) if len(words) > 1 else 0
    if words[0] == "make":
        print(*make_all(number), memory == b"m" * len(memory), flush=True)
    elif words[0] == "await":
        print(fork_and_await(), flush=True)
    elif words[0] == "fork":
        print(fork(number), flush=True)
    else:
        print(*end(), flush=True)

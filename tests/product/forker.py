# Makes processes when it is told to, and has them end: each line is answered by one.
import os, signal, sys

import resource  # which wait4 would load when it is asked for

told = 0


def count(*_):
    global told
    told += 1


signal.signal(signal.SIGCHLD, count)
memory = bytearray(b"m" * 1_000_000)
parent, children, gate = os.getpid(), [], None
for line in sys.stdin:
    words = line.split()
    if words[0] == "fork":
        gate, children = os.pipe(), []
        for index in range(int(words[1])):
            child = os.fork()
            if child == 0:
                os.close(gate[1])
                memory[:] = b"c" * len(memory)
                os.read(gate[0], 1)
                is_whole = memory.count(b"c") == len(memory) and os.getppid() == parent
                os._exit(10 + index if is_whole else 1)
            children.append(child)
        os.close(gate[0])
        print(*children, flush=True)
    elif words[0] == "burn":
        child = os.fork()
        if child == 0:
            while sum(os.times()[:2]) < 0.2:
                pass
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        print(status, usage.ru_utime + usage.ru_stime >= 0.1, flush=True)
    else:
        os.close(gate[1])
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        is_whole = memory.count(b"m") == len(memory)
        print(*codes, is_whole, told > 0, flush=True)

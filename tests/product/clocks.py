"""Computes when it is told to, reads its processor clocks all the time, and counts what is odd."""
import json
import os
import resource
import sys
import threading
import time

OWN = ~os.getpid() << 3 | 2
THREAD = time.pthread_getcpuclockid(threading.get_ident())
may_end = threading.Event()
last = [0.0] * 10
odd = {"backwards": 0, "apart": 0}


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def until_told():
    may_end.wait()
    compute(0.3)


def usage(whose):
    used = resource.getrusage(whose)
    return [used.ru_utime, used.ru_stime]


def read():
    """All clocks; notes which went back, and whether they tell the same."""
    global last
    process = time.process_time()
    own = usage(resource.RUSAGE_SELF)
    named = time.clock_gettime(OWN)
    thread = time.thread_time()
    of_thread = usage(resource.RUSAGE_THREAD)
    named_thread = time.clock_gettime(THREAD)
    spent = os.times()
    # A time in microseconds is cut off.
    in_order = process - 3e-6 <= sum(own) <= named and thread - 3e-6 <= sum(of_thread) <= named_thread
    odd["apart"] += not (in_order and named_thread <= time.process_time())
    now = [process, named, *own, thread, named_thread, *of_thread, spent.user, spent.system]
    odd["backwards"] += any(new < old for new, old in zip(now, last))
    last = now
    return process, thread


def work(seconds):
    """Reads until so much wall time has passed."""
    before = read()
    readings, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10000))
        after = read()
        readings += 1
    grown = [new - old for new, old in zip(after, before)]
    return {"process": grown[0], "thread": grown[1], "readings": readings}


worker = threading.Thread(target=until_told)
worker.start()
print("ready", flush=True)
for line in sys.stdin:
    command, _, argument = line.strip().partition(" ")
    told = {}
    if command == "work":
        told = work(float(argument))
    elif command == "thread":
        before = read()
        may_end.set()
        worker.join()
        told = {"process": read()[0] - before[0], "thread": last[4] - before[1]}
    print(json.dumps({**told, **odd, "clock": time.process_time()}), flush=True)

# Writes to all of its memory, page after page, while another thread waits for lines, and says to
# each whether every page is as it was left.
import sys, threading

PAGES, PAGE = 12 << 10, 4096
memory, lock, at, lap = bytearray(PAGES * PAGE), threading.Lock(), 0, 1


def write():
    global at, lap
    while True:
        with lock:
            for at in range(at, min(at + 64, PAGES)):
                memory[at * PAGE + at % PAGE] = lap
            at += 1
            if at == PAGES:
                at, lap = 0, lap % 250 + 1


def is_right(page):
    found, last = memory[page * PAGE + page % PAGE], 250 if lap == 1 else lap - 1
    return found == lap if page < at else found in (last, 0)


threading.Thread(target=write, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    with lock:
        print(all(map(is_right, range(PAGES))), lap, flush=True)

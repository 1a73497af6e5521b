"""Sleeps most of its life, and never less than it asked for."""
import os, select, sys, time

token, status = sys.argv[1], int(sys.argv[2])
lap = 0
while True:
    lap += 1
    slept = 0
    for number in range(12):
        start = time.monotonic()
        if number % 2: time.sleep(0.03)
        else: select.select([], [], [], 0.03)
        slept += time.monotonic() - start >= 0.03
    with open(token + ".log", "a") as log: print(token, lap, f"slept-{slept}", file=log)
    if os.path.exists("stop"): break
print(token, "ended after", lap)
sys.exit(status)

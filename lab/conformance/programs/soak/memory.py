"""Pages that hold what was last written to them: one that was lost on the way is an old one."""
import hashlib, os, sys, time

PAGE, PAGES, WRITES = 4096, 2048, 3000

token, lap, state = sys.argv[1], 0, 1
memory, expected = bytearray(PAGES * PAGE), [0] * PAGES
while True:
    lap += 1
    state, digest = 1, hashlib.sha256()
    for number in range(WRITES):
        state = state * 6364136223846793005 + 1442695040888963407 & 0xffffffffffffffff
        page = state >> 40
        page %= PAGES
        stamp = (lap * WRITES + number).to_bytes(8, "little")
        found = bytes(memory[page * PAGE : page * PAGE + 8])
        if found != expected[page].to_bytes(8, "little"):
            sys.exit(f"page {page} holds {found.hex()} instead of {expected[page]:x}, lap {lap}")
        memory[page * PAGE : page * PAGE + 8] = stamp
        expected[page] = int.from_bytes(stamp, "little")
        digest.update(state.to_bytes(8, "little"))
    with open(token + ".log", "a") as log: print(token, lap, digest.hexdigest(), file=log)
    if os.path.exists("stop"): break
    time.sleep(0.02)
print(token, "ended after", lap)
sys.exit(int(sys.argv[2]))

"""Writes files, has each block reach the disk, renames, reads back, removes."""
import hashlib, os, sys, time

token, status = sys.argv[1], int(sys.argv[2])
lap = 0
while True:
    lap += 1
    descriptor = os.open(token + ".new", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    for block in range(24):
        os.write(descriptor, bytes([block]) * 3000)
        os.fsync(descriptor)
    os.pwrite(descriptor, b"head", 0)
    os.close(descriptor)
    os.rename(token + ".new", token + ".data")
    with open(token + ".data", "rb") as file: digest = hashlib.sha256(file.read()).hexdigest()
    os.unlink(token + ".data")
    with open(token + ".log", "a") as log: print(token, lap, digest, file=log)
    if os.path.exists("stop"): break
    time.sleep(0.3)
print(token, "ended after", lap)
sys.exit(status)

"""Threads that share a queue and locks; each lap hashes the same pieces of work."""
import hashlib, os, queue, sys, threading, time

token, status = sys.argv[1], int(sys.argv[2])
work, results, lock, ready = queue.Queue(6), {}, threading.Lock(), threading.Semaphore(0)

def serve():
    while (item := work.get()) is not None:
        value = hashlib.sha256(bytes([item % 251]) * 60_000).hexdigest()
        with lock:
            results[item] = value
        ready.release()

threads = [threading.Thread(target=serve) for _ in range(3)]
for thread in threads: thread.start()
lap = 0
while True:
    lap += 1
    results.clear()
    for item in range(60): work.put(item)
    for item in range(60): ready.acquire()
    digest = hashlib.sha256(repr(sorted(results.items())).encode()).hexdigest()
    with open(token + ".log", "a") as log: print(token, lap, digest, file=log)
    if os.path.exists("stop"): break
    time.sleep(0.3)
for thread in threads: work.put(None)
for thread in threads: thread.join()
print(token, "ended after", lap)
sys.exit(status)

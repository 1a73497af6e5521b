import hashlib, queue, threading, time
work, done, lock, total = queue.Queue(8), queue.Queue(), threading.Lock(), [0]
gate = threading.Barrier(5)
def worker(me):
    gate.wait()
    while True:
        item = work.get()
        if item is None:
            break
        digest = hashlib.pbkdf2_hmac('sha256', b'%d' % item, b'salt', 6000).hex()
        with lock:
            total[0] += int(digest[:6], 16)
        done.put((item, digest[:12]))
        time.sleep(0.001)
threads = [threading.Thread(target=worker, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
gate.wait()
for item in range(160):
    work.put(item)
for _ in threads:
    work.put(None)
for thread in threads:
    thread.join(timeout=25)
results = sorted(done.queue)
event = threading.Event()
timer = threading.Timer(0.1, event.set)
timer.start()
print(len(results), total[0], results[0], results[-1])
print(event.wait(10), timer.join(), threading.active_count())

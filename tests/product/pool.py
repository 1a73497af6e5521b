# Python's own ways to compute by several processes: pools, shared values, locks, barriers, named
# shared memory, queues.
import multiprocessing as mp
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory


def compute(n):
    return sum(i * i % 7 for i in range(n))


def add(value, times):
    for _ in range(times):
        with value.get_lock():
            value.value += 1


def fill(name, part):
    memory = shared_memory.SharedMemory(name=name)
    memory.buf[part * 1000:(part + 1) * 1000] = bytes([part]) * 1000
    memory.close()


def run(target, arguments):
    workers = [mp.Process(target=target, args=args) for args in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers]


def main():
    mp.set_start_method(sys.argv[1])
    with mp.Pool(3) as pool:
        print(sum(pool.map(compute, [100000 + i for i in range(12)])))
    with ProcessPoolExecutor(2) as pool:
        print(sum(pool.map(compute, [50000 + i for i in range(6)])))
    value = mp.Value("l", 0)
    print(run(add, [(value, 1000)] * 3), value.value)
    memory = shared_memory.SharedMemory(create=True, size=10000)
    print(run(fill, [(memory.name, part) for part in range(3)]), sum(memory.buf[:3000]))
    memory.close()
    memory.unlink()
    queue = mp.Queue()
    worker = mp.Process(target=queue.put, args=(list(range(10000)),))
    worker.start()
    print(len(queue.get()))
    worker.join()
    barrier = mp.Barrier(3)
    print(run(barrier.wait, [()] * 3))


if __name__ == "__main__":
    main()

import os, signal, socket, subprocess, sys, time
heard = []
signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
print(subprocess.run(['sort', '-n', 'numbers'], capture_output=True, text=True).stdout.split()[:4])
left, right = socket.socketpair()
child = os.fork()
if child == 0:
    left.close()
    while (word := right.recv(100)): right.sendall(word[::-1])
    os._exit(6)
right.close()
for number in range(200):
    left.sendall(b'word %d' % number)
    assert left.recv(100)[::-1] == b'word %d' % number
    if number % 20 == 0: time.sleep(0.02)
left.close()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGUSR1)
print(heard == [signal.SIGUSR1], subprocess.call([sys.executable, '-c', 'raise SystemExit(3)']))

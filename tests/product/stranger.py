"""A stranger on the network: knows the address of a node and how Osmos speaks, and has no key.

`stranger.py SEED HOST PORT OWN...`: attacks from each of its own addresses in turn, and prints a
line of JSON: what was sent, how many bytes came back, how many connections stayed open.
"""
import json, os, random, resource, select, socket, struct, sys, time

seed, host, port, own = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
draw = random.Random(seed)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
told = {"sent": 0, "answered_bytes": 0, "datagrams": 0, "idle": 0, "idle_open": 0}

def preface(role, ticket=b""):
    return b"OSMOS\x01" + bytes([role, 0]) + (ticket or draw.randbytes(16))

def connect(source):
    for patience in range(50):
        stream = socket.socket()
        try:
            stream.bind((source, 0))
            stream.connect((host, port))
            return stream
        except OSError:
            stream.close()
            time.sleep(0.02)
    raise SystemExit(f"cannot connect to {host}:{port} from {source}")

def openings():
    """What a connection may begin with; each is hostile in another way."""
    handshake = draw.randbytes(draw.randrange(1, 512))
    yield draw.randbytes(draw.randrange(1, 3000))
    yield preface(draw.randrange(3)) + draw.randbytes(draw.randrange(2000))
    yield preface(0, bytes(16)) + struct.pack(">H", len(handshake)) + handshake
    yield preface(0, bytes(16)) + struct.pack(">H", 65535) + draw.randbytes(60000)
    yield preface(0) + struct.pack(">H", 96) + draw.randbytes(96)
    yield preface(1) + bytes([255]) + draw.randbytes(4000)
    yield preface(2) + bytes([0])
    yield preface(draw.randrange(3, 256))
    yield preface(0, bytes(16))[:draw.randrange(1, 24)]
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

def drain(streams, seconds):
    """Counts what comes back, and which connections are still open."""
    deadline, still_open = time.monotonic() + seconds, set(streams)
    poll = select.poll()
    numbers = {stream.fileno(): stream for stream in streams}
    for number in numbers: poll.register(number, select.POLLIN)
    while still_open and (left := deadline - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            stream = numbers[number]
            try: data = stream.recv(65536)
            except OSError: data = b""
            told["answered_bytes"] += len(data)
            if not data:
                poll.unregister(number)
                still_open.discard(stream)
    return len(still_open)

def attack_with_bytes(rounds):
    streams = []
    for turn in range(rounds):
        for opening in openings():
            stream = connect(own[turn % len(own)])
            try:
                stream.sendall(opening)
                told["sent"] += len(opening)
                if draw.random() < 0.3: stream.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            if draw.random() < 0.3: stream.close()
            else: streams.append(stream)
    drain(streams, 1.0)
    for stream in streams: stream.close()

def attack_with_datagrams(count):
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source.bind((own[0], 0))
    for number in range(count):
        source.sendto(draw.randbytes(draw.randrange(0, 1472)), (host, port))
        told["datagrams"] += 1
        if number % 50 == 49: time.sleep(0.005)
    source.settimeout(0.2)
    try: told["answered_bytes"] += len(source.recv(65536))
    except OSError: pass

def attack_with_silence(count):
    """Holds connections open, some without a byte, some with one byte now and then."""
    streams = [connect(own[number % len(own)]) for number in range(count)]
    told["idle"] = len(streams)
    for stream in streams[::7]:
        try: stream.send(b"O")
        except OSError: pass
    told["idle_open"] = drain(streams, 1.0)
    for stream in streams: stream.close()

attack_with_bytes(12)
attack_with_datagrams(3000)
attack_with_silence(2500)
print(json.dumps(told))

"""A relay between two nodes that records what passes towards the first of them, to play it again.

`relay.py OWN-ADDRESS HOST PORT`: relays TCP and UDP of that port. `play` on its input plays every
recording, whole and cut, from a new connection each; it prints a line of JSON about it.
"""
import json, socket, sys, threading, time

own, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
streams, datagrams = [], []

def copy(source, target, record):
    try:
        while data := source.recv(65536):
            if record is not None: record.append(data)
            target.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, target):
            try: end.shutdown(socket.SHUT_RDWR)
            except OSError: pass

def relay_streams(listener):
    while True:
        caller, _ = listener.accept()
        called = socket.create_connection((host, port))
        record = []
        streams.append(record)
        for ends in ((caller, called, record), (called, caller, None)):
            threading.Thread(target=copy, args=ends, daemon=True).start()

def relay_datagrams(receiver, sender):
    while True:
        data, _ = receiver.recvfrom(65536)
        datagrams.append(data)
        sender.sendto(data, (host, port))

def play_stream(data, told):
    with socket.create_connection((host, port)) as stream:
        try: stream.sendall(data)
        except OSError: pass
        told["streams"] += 1
        stream.settimeout(0.3)
        try: told["answered_bytes"] += len(stream.recv(65536))
        except OSError: pass

def play(sender):
    told = {"streams": 0, "datagrams": 0, "answered_bytes": 0}
    recorded = [b"".join(record) for record in streams]
    longest = sorted((data for data in recorded if data), key=len)[-6:]
    for data in longest:
        for length in (len(data), len(data) // 2, 24 + 2 + 48, 23):
            play_stream(data[:length], told)
    for data in list(datagrams)[-200:]:
        for length in (len(data), len(data) - 1, len(data) // 2):
            sender.sendto(data[:length], (host, port))
            told["datagrams"] += 1
        time.sleep(0.001)
    return told

listener = socket.create_server((own, port))
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind((own, port))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
threading.Thread(target=relay_streams, args=(listener,), daemon=True).start()
threading.Thread(target=relay_datagrams, args=(receiver, sender), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "play": print(json.dumps(play(sender)), flush=True)
    else: print(json.dumps({"streams": len(streams), "datagrams": len(datagrams)}), flush=True)

# Two processes and a pipe between them: numbers go in, a digest of each lap comes out.
write='
import os, time
lap = 0
while True:
    lap += 1
    for number in range(4000): print(number * 7919 % 10007)
    is_last = os.path.exists("stop")
    print("last" if is_last else "lap", flush=True)
    if is_last: break
    time.sleep(0.3)
'
read='
import hashlib, sys
token, lap, digest = sys.argv[1], 0, hashlib.sha256()
for line in sys.stdin:
    if line[0] != "l":
        digest.update(line.encode())
        continue
    lap += 1
    with open(token + ".log", "a") as log: print(token, lap, digest.hexdigest(), file=log)
    digest = hashlib.sha256()
    if line == "last\n": break
print(token, "ended after", lap)
sys.exit(int(sys.argv[2]))
'
python3 -IS -c "$write" | python3 -IS -c "$read" "$1" "$2"
exit ${PIPESTATUS[1]}

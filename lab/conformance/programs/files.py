import collections, hashlib, json, os, random, re, sys, zlib

def lap(path):
    random.seed(7)
    text = open(path).read()
    counts = collections.Counter(re.findall(r'[a-z]+', text))
    with open('counts.json', 'w') as out:
        json.dump(counts.most_common(500), out, indent=1)
    grid = [[random.randrange(100) for _ in range(70)] for _ in range(70)]
    for _ in range(3):
        columns = list(zip(*grid))
        grid = [[sum(map(int.__mul__, row, column)) % 1009 for column in columns] for row in grid]
    packed = zlib.compress(text.encode(), 6)
    assert zlib.decompress(packed).decode() == text
    os.makedirs('out/deep', exist_ok=True)
    with open('out/deep/packed', 'wb') as out:
        out.write(packed)
    return len(counts), sum(map(sum, grid)), hashlib.sha256(packed).hexdigest()

# Each lap has the same results, and all of them are told once.
results = {lap(path) for path in sys.argv[1:]}
assert len(results) == 1
print(*results.pop())

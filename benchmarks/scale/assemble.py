"""How long `turnwise encode --assemble` takes for many vectors, and how much memory.

    python benchmarks/scale/assemble.py --turnwise target/release/turnwise --rows 10000000 --shards 100

Encodes one small shard, and makes of its record as many large ones as are asked for, of random vectors; one row in a hundred
is in the next shard as well. Needs room for twice the vectors on the disk, below --folder, and removes what it made.
"""

import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time
import zlib

import blake3
import numpy
import pyarrow

DIM = 384
SHARED = 100


def run(*words, cwd):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stderr}")
    return done.stdout


def sealed(content):
    text = '{\n"content": ' + json.dumps(content, indent=2) + ",\n"
    return text + '"crc32": "%08x"\n}\n' % zlib.crc32(text.encode())


def keys(first, count):
    """Names of rows, each made of its number alone."""
    numbers = numpy.arange(first, first + count, dtype="<u8")
    # Scrambled as hashes are: a table of keys that come in order would be another test.
    mixed = numbers * numpy.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> numpy.uint64(29)
    pairs = numpy.stack([mixed, numbers], axis=1).astype("<u8").tobytes()
    return [f"utterances/{pairs[at : at + 16].hex()}" for at in range(0, len(pairs), 16)]


def write(path, schema, first, rows):
    random = numpy.random.default_rng(first)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, schema) as out:
        for at in range(0, rows, 1024):
            count = min(1024, rows - at)
            flat = pyarrow.array(random.standard_normal(count * DIM, dtype=numpy.float32))
            lists = pyarrow.FixedSizeListArray.from_arrays(flat, type=schema.field("embedding").type)
            out.write_batch(pyarrow.record_batch([pyarrow.array(keys(first + at, count)), lists], schema=schema))
    digest = blake3.blake3(max_threads=1)
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def make_shards(folder, template, shards, rows):
    item = pyarrow.field("item", pyarrow.float32(), nullable=False)
    fields = [
        pyarrow.field("id", pyarrow.utf8(), nullable=False),
        pyarrow.field("embedding", pyarrow.list_(item, DIM), nullable=False),
    ]
    each = rows // shards
    for number in range(shards):
        stem = f"shard-{number:05}-of-{shards:05}"
        temporary = folder / "made.tmp"
        count = each + (each // SHARED if number + 1 < shards else 0)
        digest = write(temporary, pyarrow.schema(fields), number * each, count)
        name = f"{stem}-{digest[:16]}.arrow"
        temporary.rename(folder / name)
        data = {"file": name, "target": "arrow", "bytes": (folder / name).stat().st_size, "blake3": digest}
        record = template | {"shard": {"number": number, "of": shards}, "utterances": count, "data": data}
        (folder / f"{stem}.json").write_text(sealed(record))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turnwise", type=pathlib.Path, default="target/release/turnwise")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--folder", type=pathlib.Path, help="where there is room; the folder for temporary files if not given")
    args = parser.parse_args()
    turnwise = args.turnwise.resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="assemble-", dir=args.folder))
    try:
        # Different words, so that a fitted encoder can be as wide as is wanted.
        lines = [
            json.dumps({"id": f"d{n}", "turns": [{"text": " ".join(f"word{n * k % 997}" for k in range(1, 12))}]})
            for n in range(1500)
        ]
        (folder / "in.jsonl").write_text("\n".join(lines))
        run(turnwise, "model", "fit", "in.jsonl", "--dim", DIM, "-o", "model", cwd=folder)
        run(turnwise, "ingest", "-i", "x", "--no-encode", "in.jsonl", cwd=folder)
        encode = [turnwise, "encode", "--shard", "0/1", "in.jsonl", "--out", "one", "--model", "./model"]
        run(*encode, "--of", "utterances", cwd=folder)
        template = json.loads((folder / "one" / "shard-00000-of-00001.json").read_text())["content"]
        if template["recipe"]["dim"] != DIM:
            raise SystemExit(f"the fitted encoder has {template['recipe']['dim']} numbers")
        (folder / "shards").mkdir()
        started = time.monotonic()
        make_shards(folder / "shards", template, args.shards, args.rows)
        print(f"{args.shards} shards made in {time.monotonic() - started:.0f} s", flush=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        started = time.monotonic()
        said = run(turnwise, "encode", "--assemble", "shards", "-i", "x", "--format", "json", "--no-progress", cwd=folder)
        seconds = time.monotonic() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        said = json.loads(said)
        print(f"{said['rows']:,} rows of {said['shards']} shards, {said['new']:,} of them new, in {seconds:.0f} s")
        print(f"peak memory {peak / 2**20:.2f} GiB (mapped files included; the commands before had {before / 2**20:.2f})")
        if said["new"] != args.rows // args.shards * args.shards:
            raise SystemExit("that is not what was made")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""How fast dialogues come into a Milvus, beside its own Python client writing the same rows in the same batches.

    bash tests/milvus.sh
    ~/.cache/turnwise/milvus/bin/python benchmarks/scale/milvus.py --program target/release/turnwise

Starts a milvus-lite of its own, makes an index of the sample dialogues (several times, under other ids) with vectors of as many
numbers as the default model has, and then, in turns and each into collections of its own:

    ours     turnwise migrate -i INDEX --to ADDRESS: rows are made of dialogues, written, and put away (flushed)
    upsert   MilvusClient.upsert of those very rows, read from what ours wrote, in batches of the same sizes; and flush
    insert   the same with MilvusClient.insert, which does not look whether a row is there already (ours always does)

What is timed begins with making the collections and ends when everything is put away. Reading the rows back, and making the
dictionaries that pymilvus takes, is not timed. Ends with 1 if ours has less than 90% of the
rate of either. With --keep the server stays
up, for `cargo bench --features milvus --bench milvus -- ADDRESS`.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from pymilvus import MilvusClient

# As in crates/milvus and crates/shards/src/migrate/to_milvus.rs.
ROWS, BYTES, DIALOGUES = 4_000, 16 << 20, 1_000
SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "support"


def run(program, *words, cwd):
    done = subprocess.run([program, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stderr}")
    return done.stdout


def server(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = pathlib.Path(sys.executable).parent / "milvus-lite"
    words = [program, "server", "--host", "127.0.0.1", "--port", str(port), "--data-dir", folder / "milvus"]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                return child, port
        time.sleep(0.1)
    sys.exit("the server does not begin")


def all_rows(client, collection):
    """Everything but what a function makes, part of the keys by part."""
    described = client.describe_collection(collection)
    fields = [field["name"] for field in described["fields"] if not field.get("is_function_output")]
    rows = []
    for part in (f"{n:02x}" for n in range(256)):
        rows += client.query(collection, filter=f'key >= "{part}" and key < "{part}g"', output_fields=fields, limit=16_384)
    return rows


def size(row):
    return 4 * len(row.get("vector", [])) + sum(len(row.get(name, "")) for name in ("words", "said", "json")) + 256


def batches(rows, at_once):
    """The rows of so many dialogues go together, but no more than a request holds."""
    batch, held, dialogues = [], 0, set()
    for row in rows:
        new = row["key"] not in dialogues
        if batch and (len(batch) >= ROWS or held >= BYTES or (new and len(dialogues) >= at_once)):
            yield batch
            batch, held = [], 0
            if new and len(dialogues) >= at_once:
                dialogues = set()
        batch.append(row)
        held += size(row)
        dialogues.add(row["key"])
    yield batch


def make(client, like, name):
    """A collection with the same columns and indexes."""
    schema, described = client.create_schema(auto_id=False), client.describe_collection(like)
    from pymilvus import DataType, Function, FunctionType

    for field in described["fields"]:
        more = dict(field.get("params") or {})
        if "element_type" in field and field["element_type"]:
            more["element_type"] = field["element_type"]
        if field["name"] == "words":
            more |= {"enable_analyzer": True, "analyzer_params": {"tokenizer": "standard"}}
        for flag in ("is_primary", "is_partition_key"):
            if field.get(flag):
                more[flag] = True
        schema.add_field(field["name"], DataType(field["type"]), **{k: v for k, v in more.items() if k not in ("mmap_enabled",)})
    if any(field["name"] == "sparse" for field in described["fields"]):
        schema.add_function(Function("bm25", FunctionType.BM25, ["words"], ["sparse"]))
    indexes = client.prepare_index_params()
    names = {field["name"] for field in described["fields"]}
    if "sparse" in names:
        indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params={"bm25_k1": 1.2, "bm25_b": 0.75})
    if "vector" in names:
        indexes.add_index("vector", index_type="HNSW", metric_type="COSINE", params={"M": 24, "efConstruction": 200})
    if "nothing" in names:
        indexes.add_index("nothing", index_type="FLAT", metric_type="L2")
    indexes.add_index("key", index_type="INVERTED")
    client.create_collection(name, schema=schema, index_params=indexes, consistency_level="Strong")
    client.load_collection(name)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--program", required=True, type=pathlib.Path)
    words.add_argument("--copies", type=int, default=8, help="so often the sample dialogues are in the index")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--keep", action="store_true")
    asked = words.parse_args()
    program = asked.program.resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(program, "model", "fit", SAMPLES, "-o", "model", "--dim", 384, cwd=folder)
        for copy in range(asked.copies):
            run(program, "ingest", "-i", "x", "--no-index", "--id-prefix", f"{copy}-", SAMPLES, cwd=folder)
        run(program, "encode", "-i", "x", "--model", "./model", cwd=folder)
        run(program, "index", "build", "-i", "x", cwd=folder)
        child, port = server(folder)
        try:
            compare(asked, program, folder, port)
            if asked.keep:
                print(f"milvus://127.0.0.1:{port}/ours0 stays until Enter", flush=True)
                sys.stdin.readline()
        finally:
            child.kill()


def compare(asked, program, folder, port):
    client = MilvusClient(f"http://127.0.0.1:{port}")
    kinds, rows = ("utterances", "dialogues", "records"), None
    times = {"ours": [], "upsert": [], "insert": []}
    for number in range(asked.rounds):
        address = f"milvus://127.0.0.1:{port}/ours{number}"
        moved = json.loads(run(program, "migrate", "-i", "x", "--to", address, "--format", "json", cwd=folder))
        times["ours"].append(moved["moving_seconds"])
        if rows is None:
            rows = {kind: all_rows(client, f"ours0_g1_{kind}") for kind in kinds}
            parts = {kind: list(batches(rows[kind], DIALOGUES)) for kind in kinds}
            count = sum(len(rows[kind]) for kind in kinds)
            assert len(rows["utterances"]) == moved["turns"] and len(rows["dialogues"]) == moved["dialogues"]
            print(f"{count} rows in {sum(len(parts[kind]) for kind in kinds)} batches, vectors of 384 numbers", flush=True)
        for call in ("upsert", "insert"):
            times[call].append(write(client, call, number, kinds, parts))
        print(f"round {number}: " + ", ".join(f"{way} {of[-1]:.2f} s" for way, of in times.items()), flush=True)
    fastest = {way: min(of) for way, of in times.items()}
    print("fastest: " + ", ".join(f"{way} {count / took:.0f} rows/s" for way, took in fastest.items()))
    rates = {call: fastest[call] / fastest["ours"] for call in ("upsert", "insert")}
    print("ours has " + ", ".join(f"{100 * rate:.0f}% of the rate of {call}" for call, rate in rates.items()))
    if min(rates.values()) < 0.9 and not asked.keep:
        sys.exit(1)


def write(client, call, number, kinds, parts):
    """Seconds for making the collections, writing everything and having it put away."""
    begun = time.perf_counter()
    names = {kind: f"{call}{number}_{kind}" for kind in kinds}
    for kind in kinds:
        make(client, f"ours0_g1_{kind}", names[kind])
    for kind in kinds:
        for batch in parts[kind]:
            getattr(client, call)(names[kind], batch)
    for kind in kinds:
        client.flush(names[kind])
    took = time.perf_counter() - begun
    for kind in kinds:
        there = client.query(names[kind], output_fields=["count(*)"])[0]["count(*)"]
        expected = sum(len(batch) for batch in parts[kind])
        assert there == expected, (kind, there, expected)
        client.drop_collection(names[kind])
    return took


if __name__ == "__main__":
    main()

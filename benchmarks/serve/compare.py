"""Loads `turnwise serve` and a server in Python (peer.py) in turns, and prints what came of it.

    benchmarks/encode/peers.sh && ~/.cache/turnwise/peers/bin/pip install -r benchmarks/serve/requirements.txt
    cargo build --release && cargo bench --bench serve --no-run
    ~/.cache/turnwise/peers/bin/python benchmarks/serve/compare.py INDEX [--queries FILE] [--parts equal,flood,paced,slow,memory]

INDEX is one of turnwise's, by its path. Queries are a text a line; unsaid, turns of the index. Either server has one core
to itself, and what loads it the other. Only one is loaded at a time, and they take turns. What is printed is Markdown.
"""

import argparse
import contextlib
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "encode"))
import corpora  # noqa: E402

SERVER, LOADER = "0", "1"
MODES = ("hybrid", "dense", "bm25")
NAMES = {"turnwise": "turnwise", "peer": "FastAPI, sentence-transformers, faiss, bm25s"}


def read_arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("index", type=pathlib.Path)
    parser.add_argument("--queries", type=pathlib.Path)
    parser.add_argument("--parts", default="equal,flood,paced,slow,memory")
    parser.add_argument("--turnwise", type=pathlib.Path, default=PROJECT / "target" / "release" / "turnwise")
    parser.add_argument("--load", type=pathlib.Path, help="the load generator, if cargo is not to be asked for it")
    parser.add_argument("--model", type=pathlib.Path, help="the peer's: the default model's folder, if unsaid")
    parser.add_argument("--work", type=pathlib.Path, default=PROJECT / "target" / "serve-benchmark")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=100_000, help="of the memory's part")
    parser.add_argument("--without-peer", action="store_true")
    return parser.parse_args()


def load_generator(arguments):
    if arguments.load:
        return arguments.load
    command = ["cargo", "bench", "--locked", "--bench", "serve", "--no-run", "--message-format", "json"]
    told = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    made = [json.loads(line) for line in told.splitlines()]
    return next(m["executable"] for m in made if m.get("target", {}).get("name") == "serve" and m.get("executable"))


def prepare(arguments):
    """The corpus for the peer, and the queries as bodies of requests."""
    work = arguments.work / arguments.index.resolve().name
    work.mkdir(parents=True, exist_ok=True)
    corpus = work / "corpus.jsonl"
    if not corpus.exists():
        command = [arguments.turnwise, "corpus", "export", "-i", arguments.index.resolve(), "-o", corpus]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if arguments.queries:
        texts = arguments.queries.read_text("utf-8").splitlines()
    else:
        dialogues = map(json.loads, corpus.read_text("utf-8").splitlines())
        texts = [turn["text"] for dialogue in dialogues for turn in dialogue["turns"]]
    texts = sorted({text.strip() for text in texts if text.strip()})
    random.Random(1).shuffle(texts)
    texts = texts[:2000]
    bodies = work / "bodies.jsonl"
    bodies.write_text("".join(json.dumps({"query": text}) + "\n" for text in texts), "utf-8")
    return work, corpus, bodies, texts


class Server:
    """A process that listens, on its own core."""

    def __init__(self, name, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.name = name
        self.process = subprocess.Popen(["taskset", "-c", SERVER, *map(str, command), "--port", str(self.port)])
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=5).read()
                return
            if self.process.poll() is not None:
                raise SystemExit(f"{name} did not start")
            time.sleep(0.2)

    def ask(self, body, path="/v1/search"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        return json.load(urllib.request.urlopen(request))

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.generator = load_generator(arguments)
        work, corpus, self.bodies, self.texts = prepare(arguments)
        ours = [arguments.turnwise, "serve", "-i", arguments.index.resolve()]
        self.servers = [Server("turnwise", ours)]
        if not arguments.without_peer:
            model = arguments.model or corpora.default_model(arguments.turnwise)
            peer = [sys.executable, HERE / "peer.py", corpus, model, "--vectors", work / "vectors.npy"]
            # With both cores, and before anything is measured.
            subprocess.run([*map(str, peer), "--prepare", "--threads", "2"], check=True)
            self.servers.append(Server("peer", peer))

    def load(self, server, *options):
        command = ["taskset", "-c", LOADER, self.generator, *options, f"127.0.0.1:{server.port}", self.bodies]
        told = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if told.returncode:
            raise SystemExit(told.stderr)
        return json.loads(told.stdout)

    def equal(self):
        """How many of the ten best turns each finds, as scored one by one in f32."""
        peer, rows = self.servers[-1], []
        for mode in MODES:
            found = {server.name: [] for server in self.servers}
            for text in self.texts[:500]:
                for server in self.servers:
                    ids = [hit["id"] for hit in server.ask({"query": text, "mode": mode, "k": 10})["hits"]]
                    judged = peer.ask({"query": text, "mode": mode, "k": 10, "ids": ids}, "/judge")
                    # Those that score like the tenth are as good as it.
                    good = sum(score >= judged["worst"] - 1e-3 for score in judged["scores"])
                    found[server.name].append(good / 10)
            rows.append((mode, *(f"{statistics.mean(found[server.name]):.3f}" for server in self.servers)))
        table(("mode", *(NAMES[server.name] for server in self.servers)), rows)

    def flood(self):
        """Searches a second, as many as each takes."""
        rows = []
        for connections in (1, 8, 32):
            rates = {server.name: [] for server in self.servers}
            for _ in range(self.arguments.rounds):
                for server in self.servers:
                    options = ("flood", "--connections", connections, "--seconds", self.arguments.seconds)
                    told = self.load(server, *options)
                    assert told["failed"] == 0 and told["refused"] == 0, told
                    rates[server.name].append(told["a_second"])
            ours = max(rates["turnwise"])
            for server in self.servers:
                each = rates[server.name]
                ratio = f"{ours / max(each):.2f}"
                rows.append((connections, NAMES[server.name], f"{max(each):.0f}", ", ".join(f"{r:.0f}" for r in each), ratio))
        table(("connections", "", "searches/s, the best round", "each", "times slower than turnwise"), rows)

    def paced(self):
        """Fifty a second, as people come."""
        rows = []
        for _ in range(self.arguments.rounds):
            for server in self.servers:
                rows.append((NAMES[server.name], *latencies(self.load(server, "paced", "--seconds", 3 * self.arguments.seconds))))
        table(("at 50 searches a second", *LATENCIES), rows)

    def slow(self):
        """A thousand connections, nine hundred of them slow."""
        rows = []
        for _ in range(self.arguments.rounds):
            for slow in (0, 900):
                options = ("paced", "--connections", 100, "--slow", slow, "--seconds", 3 * self.arguments.seconds)
                told = self.load(self.servers[0], *options)
                rows.append((f"{told['slow'][0]}, {told['slow'][1]}", *latencies(told)))
        table(("slow connections, before and after", *LATENCIES), rows)

    def memory(self):
        """Whether memory grows."""
        server = self.servers[0]
        told = self.load(
            server, "flood", "--connections", 8, "--requests", self.arguments.requests, "--pid", server.process.pid
        )
        print(f"{told['answered']} searches answered, {told['failed']} failed, {told['refused']} refused.\n")
        table(("searches", "MiB of its own"), [(n * self.arguments.requests // 10, f"{mib:.1f}") for n, mib in enumerate(told["memory"])])


LATENCIES = ("answered", "failed", "p50 ms", "p90 ms", "p99 ms", "most ms")


def latencies(told):
    return (told["answered"], told["failed"] + told["refused"], *(f"{told[name]:.1f}" for name in ("p50", "p90", "p99", "most")))


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print(flush=True)


def main():
    arguments = read_arguments()
    bench = Bench(arguments)
    try:
        for part in arguments.parts.split(","):
            if part == "equal" and arguments.without_peer:
                continue
            print(f"## {getattr(Bench, part).__doc__}\n", flush=True)
            getattr(bench, part)()
    finally:
        for server in bench.servers:
            server.stop()


main()

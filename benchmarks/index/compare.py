"""Searches the same vectors with turnwise, hnsw_rs, hnswlib, usearch and faiss in turns, and prints the ratios at equal recall.

    python3 -m venv target/index-peers && target/index-peers/bin/pip install -r benchmarks/index/requirements.txt
    target/index-peers/bin/python benchmarks/index/compare.py BASE.npy QUERIES.npy [--rounds 3] [--report FILE]

BASE and QUERIES hold vectors of length 1 (`turnwise embed texts.txt -o base.npy` writes such files). Every run is a process
of its own that asks all queries --passes times; the sides take turns within a round, and of all rounds each setting's best
counts. The 99th of a hundred times is told twice: as the clock had it, and of each query's fastest of these times, for on a
shared machine what comes between is longer than a query. Indexes are built once, on
one thread, with the same numbers of neighbours and candidates, and kept in --work. Queries go one by one through each
library's own call from its own language; a Python call costs some microseconds, which the table names as measured with
an empty one. Bytes in memory are what a process has grown by when it has loaded an index; turnwise maps a file, for which
there are two numbers: what a walk reads (codes, links, ids), and all that was mapped after the queries, with the vectors
that the best are scored by, which the system may drop at any time.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
OURS = {
    "turnwise": ["--builder", "native"],
    "turnwise (graph by hnsw_rs)": ["--builder", "hnsw_rs"],
    "hnsw_rs": ["--peer"],
}
PEERS = ["hnswlib", "usearch f32", "usearch f16", "usearch i8", "faiss HNSW", "faiss HNSW SQ8", "faiss IVF"]
K = 10
TARGETS = [0.95, 0.99]


def ours():
    """The benchmark's program, built."""
    build = ["cargo", "bench", "-q", "-p", "turnwise-nearest", "--bench", "nearest", "--no-run", "--message-format=json"]
    lines = subprocess.run(build, cwd=HERE.parents[1], check=True, capture_output=True, text=True).stdout.splitlines()
    found = [m for m in map(json.loads, lines) if m.get("executable") and m["target"]["name"] == "nearest"]
    return found[-1]["executable"]


def run(command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{command}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def index_name(side):
    return side.replace(" ", "-").replace(",", "") + ".index"


def call_cost():
    """Microseconds of what side.py does around a call."""
    empty = lambda query, setting: None
    cpu = time.process_time()
    for _ in range(100_000):
        started = time.perf_counter()
        empty(None, None)
        time.perf_counter() - started
    return (time.process_time() - cpu) * 10


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("queries", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[1] / "target" / "index-benchmark")
    parser.add_argument("--sides", help="only these, divided by commas")
    parser.add_argument("--passes", type=int, default=3, help="how often a process asks all queries")
    parser.add_argument("--rebuild", action="store_true", help="build in every round; the fastest counts")
    parser.add_argument("--report", type=pathlib.Path)
    arguments = parser.parse_args()
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    base, queries = np.load(arguments.base), np.load(arguments.queries)
    base.astype("<f4").tofile(work / "base.f32")
    queries.astype("<f4").tofile(work / "queries.f32")
    tenths = [np.partition(part @ base.T, -K, axis=1)[:, -K] for part in np.array_split(queries, 20)]
    np.concatenate(tenths).astype("<f4").tofile(work / "tenths.f32")
    program, dim = ours(), base.shape[1]
    sides = arguments.sides.split(",") if arguments.sides else [*OURS, *PEERS]
    commands = {}
    for side in sides:
        file = work / index_name(side)
        if side in OURS:
            commands[side] = [program, work / "base.f32", work / "queries.f32", dim, file, "--truth", work / "tenths.f32", "--passes", arguments.passes, *OURS[side]]
        else:
            commands[side] = [sys.executable, HERE / "side.py", side, arguments.base, arguments.queries, work / "tenths.f32", file, arguments.passes]
    builds, resident, best = {}, {}, {side: {} for side in sides}
    kept = work / "builds.json"
    if kept.exists():
        builds = json.loads(kept.read_text())
    if arguments.rebuild:
        builds = {side: build for side, build in builds.items() if side not in sides}
    for _ in range(arguments.rounds):
        for side, command in commands.items():
            if arguments.rebuild:
                for file in work.glob(index_name(side) + "*"):
                    file.unlink()
            for line in run(command):
                if "build_cpu_seconds" in line:
                    again = builds.get(side, line["build_cpu_seconds"]) if arguments.rebuild else line["build_cpu_seconds"]
                    builds[side] = min(line["build_cpu_seconds"], again)
                    kept.write_text(json.dumps(builds))
                if "resident_bytes" in line:
                    resident[side] = line
                if "recall" not in line:
                    continue
                key = tuple((name, line[name]) for name in ("ef", "rerank", "nprobe") if name in line)
                known = best[side].get(key)
                if known is None or line["qps_cpu"] > known["qps_cpu"]:
                    for name in ("p99_us", "quiet_p99_us"):
                        line[name] = min(line[name], known[name] if known else line[name])
                    best[side][key] = line
            print(side, "done", file=sys.stderr)
    table = report(arguments, len(base), dim, sides, builds, resident, best)
    print(table)
    if arguments.report:
        arguments.report.write_text(table)


def report(arguments, count, dim, sides, builds, resident, best):
    def at(side, target):
        """The fastest setting that reaches a recall."""
        return max((p for p in best[side].values() if p["recall"] >= target), key=lambda p: p["qps_cpu"], default=None)

    ours = {target: at(sides[0], target) for target in TARGETS}
    lines = [
        f"{count:,} vectors of {dim} numbers, {arguments.rounds} rounds, one thread; an empty call from Python costs "
        f"{call_cost():.2f} µs.",
        "",
        "| | " + " | ".join(f"queries/CPU-s at {t} | times slower than {sides[0]} | p99 µs{', undisturbed' if arguments.passes > 1 else ''}" for t in TARGETS) + " | build, CPU-s | to hnswlib | bytes a vector in memory |",
        "|---|" + "---:|" * (3 * len(TARGETS) + 3),
    ]
    for side in sides:
        cells = [side]
        for target in TARGETS:
            point = at(side, target)
            if point and ours[target]:
                cells += [f"{point['qps_cpu']:,.0f}", f"{ours[target]['qps_cpu'] / point['qps_cpu']:.2f}", f"{point['p99_us']:.0f}" + (f", {point['quiet_p99_us']:.0f}" if arguments.passes > 1 else "")]
            else:
                cells += ["–", "–", "–"]
        build, other = builds.get(side), builds.get("hnswlib")
        cells += [f"{build:.0f}" if build else "–", f"{build / other:.2f}" if build and other else "–"]
        line = resident.get(side, {"resident_bytes": 0})
        parts = [line[name] / count for name in ("walked_bytes", "resident_bytes") if line.get(name)]
        cells.append(" / ".join(f"{part:,.0f}" for part in parts) or "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

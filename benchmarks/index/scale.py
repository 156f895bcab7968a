"""How building and searching grow with the number of vectors: a table.

    python benchmarks/index/scale.py BASE.npy QUERIES.npy [--counts 100000,300000,1000000] [--threads 2] [--report FILE]

BASE and QUERIES as for compare.py. Where more vectors are asked for than BASE has, the others lie between real ones: each
is one of BASE with half of the way from a second to a third added, brought to length 1. So they keep to the directions
that real ones have; they are not texts. Memory is the most that the
building process had of its own, without the files of vectors that it maps.
"""

import argparse
import json
import pathlib
import subprocess

import numpy as np

from compare import HERE, K, ours


def grown(base, count):
    """So many vectors: those that there are, then mixtures."""
    random = np.random.default_rng(7)
    parts, there = [base[:count]], min(count, len(base))
    while there < count:
        rows = min(100_000, count - there)
        one, two, three = (base[random.integers(len(base), size=rows)] for _ in range(3))
        mixed = one + (two - three) / 2
        parts.append((mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype("<f4"))
        there += rows
    return np.concatenate(parts)


def tenths(base, queries):
    """The score of each query's tenth, block by block."""
    best = np.full((len(queries), K), -np.inf, "f4")
    for block in np.array_split(base, max(1, len(base) // 50_000)):
        scores = np.concatenate([best, queries @ block.T], axis=1)
        best = np.partition(scores, -K, axis=1)[:, -K:]
    return best.min(axis=1).astype("<f4")


def printed(command):
    """What a program prints."""
    process = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in process.stdout.splitlines()]


def row(program, work, base, queries, threads):
    base.tofile(work / "base.f32")
    queries.tofile(work / "queries.f32")
    tenths(base, queries).tofile(work / "tenths.f32")
    file = work / f"{len(base)}.graph"
    file.unlink(missing_ok=True)
    command = [program, work / "base.f32", work / "queries.f32", base.shape[1], file, "--builder", "native"]
    command += ["--truth", work / "tenths.f32"]
    built = printed([*command, "--threads", threads, "--efs", "64"])
    lines = printed(command)
    file.unlink()
    build, opened = built[0], lines[0]
    cells = [f"{len(base):,}", f"{build['build_seconds']:.0f}", f"{build['build_cpu_seconds']:.0f}", f"{build['own_bytes'] / 2**30:.2f}"]
    cells += [f"{opened['file_bytes'] / len(base):,.0f}", f"{lines[-1]['walked_bytes'] / len(base):,.0f}"]
    cells.append(f"{opened['open_ms']:.2f}")
    for least in (0.95, 0.99):
        reached = [line for line in lines if line.get("recall", 0) >= least]
        best = max(reached, key=lambda line: line["qps_cpu"], default=None)
        cells += [f"{best['ef']}", f"{1e6 / best['qps_cpu']:.0f}", f"{best['p99_us']:.0f}"] if best else ["–"] * 3
    unasked = next(line for line in lines if line.get("ef") == 64 and line["rerank"] == 40)
    cells.append(f"{unasked['recall']:.4f}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("queries", type=pathlib.Path)
    parser.add_argument("--counts", default="100000,300000,1000000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[1] / "target" / "index-scale")
    parser.add_argument("--report", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    base, queries = np.load(arguments.base).astype("<f4"), np.load(arguments.queries).astype("<f4")
    program = ours()
    lines = [
        f"{len(base):,} real vectors of {base.shape[1]} numbers, the others between them; built on {arguments.threads} "
        "threads, searched by one.",
        "",
        "| vectors | build, s | build, CPU-s | memory, GiB | bytes of file a vector | read by walks | open, ms "
        "| ef for 0.95 | µs | p99 | ef for 0.99 | µs | p99 | recall at ef 64 |",
        "|" + "---:|" * 14,
    ]
    for count in map(int, arguments.counts.split(",")):
        lines.append(row(program, arguments.work, grown(base, count), queries, arguments.threads))
        print(lines[-1], flush=True)
    table = "\n".join(lines) + "\n"
    print(table)
    if arguments.report:
        arguments.report.write_text(table)


if __name__ == "__main__":
    main()

"""Encodes the same texts with turnwise, sentence-transformers, ONNX Runtime and OpenVINO in turns, and prints the ratios.

    benchmarks/encode/peers.sh
    cargo build --release && target/release/turnwise model pull all-MiniLM-L6-v2
    ~/.cache/turnwise/peers/bin/python benchmarks/encode/compare.py [--turnwise target/release/turnwise] [--model FOLDER]

Every run is a process of its own that loads, warms up and then measures, so that no pool of threads is in another's
way. The sides take turns within a round; of all rounds each side's best counts, by the clock and in processor time.
The peers' batch sizes are tried in the first round, and the better one goes on. Tokenising counts, loading does not.
All sides cut at 512 tokens. The last thing printed is a table in Markdown, which --report also writes to a file.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import corpora
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = "sentence-transformers f32"
ONNX = {"ONNX Runtime f32": "f32", "ONNX Runtime int8": "int8", "ONNX Runtime int8, reduced range": "int8-reduced"}
OPENVINO = {"OpenVINO f32": "openvino-f32", "OpenVINO": "openvino"}
KINDS = ("utterances", "dialogues")
WORDS = {1: "one thread", 2: "two threads"}


def read_arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, help="a folder in sentence-transformers' layout, if not the default model")
    parser.add_argument("--turnwise", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "turnwise")
    parser.add_argument("--without-ours", action="store_true")
    parser.add_argument("--precisions", default="f32,bf16,int16,int8", help="ours")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="16,32,64", help="the peers'")
    parser.add_argument("--limit", type=int, help="only so many texts of each kind, for a trial")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[1] / "target" / "encode-benchmark")
    parser.add_argument("--report", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.model = arguments.model or corpora.default_model(arguments.turnwise)
    return arguments


def prepare(arguments):
    """The model with room for 512 tokens, the texts, and the ONNX files; what is there is used again."""
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    model = work / "model"
    if not model.exists():
        half = work / "model.half"
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(arguments.model, half)
        settings = half / "sentence_bert_config.json"
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "max_seq_length": 512}))
        half.rename(model)
    if not (work / "queries.txt").exists():
        subprocess.run([sys.executable, HERE / "texts.py", "--model", model, work], check=True)
    if not all((work / "onnx" / f"{name}.onnx").exists() for name in ("plain", *ONNX.values())):
        subprocess.run([sys.executable, HERE / "export_onnx.py", "--model", model, work], check=True)
    for kind in (*KINDS, "queries"):
        lines = (work / f"{kind}.txt").read_text("utf-8").splitlines(keepends=True)
        (work / f"{kind}.in").write_text("".join(lines[: arguments.limit]), "utf-8")
    return model


def run(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1] if "side.py" in str(command[1]) else done.stdout)
    # `model bench` prints a list: one run for each precision.
    return result[0] if isinstance(result, list) else result


class Comparison:
    def __init__(self, arguments, model):
        self.arguments, self.model, self.work = arguments, model, arguments.work
        self.batches = {}
        self.best = {}
        self.vectors = {}

    def sides(self):
        ours = [] if self.arguments.without_ours else self.arguments.precisions.split(",")
        return [REFERENCE, *ONNX, *OPENVINO, *(f"turnwise {precision}" for precision in ours)]

    def command(self, side, kind, threads, batch, vectors):
        common = ["--model", self.model, "--input", self.work / f"{kind}.in", "--threads", threads, "--vectors", vectors]
        if kind == "utterances":
            common += ["--latency-input", self.work / "queries.in"]
        name, _, precision = side.partition(" ")
        if name == "turnwise":
            return [self.arguments.turnwise, "model", "bench", *common, "--precision", precision, "--format", "json"]
        command = [sys.executable, HERE / "side.py"]
        if side == REFERENCE:
            return [*command, "sentence-transformers", *common, "--batch", batch]
        if side in OPENVINO:
            return [*command, OPENVINO[side], *common, "--batch", batch, "--onnx", self.work / "onnx" / "plain.onnx"]
        return [*command, "onnxruntime", *common, "--batch", batch, "--onnx", self.work / "onnx" / f"{ONNX[side]}.onnx"]

    def measure(self, round_, threads, kind, side):
        key = (threads, kind, side)
        batches = [None] if side.startswith("turnwise") else [int(b) for b in self.arguments.batches.split(",")]
        tried = {}
        for batch in [self.batches[key]] if key in self.batches else batches:
            vectors = self.work / f"{kind}-{threads}-{side.replace(' ', '-').replace(',', '')}.npy"
            vectors.unlink(missing_ok=True)
            result = run(self.command(side, kind, threads, batch, vectors), threads)
            self.vectors[key] = np.load(vectors)
            tried[batch] = result
            note = f", batch {batch}" if batch else ""
            print(f"round {round_}, {WORDS.get(threads, f'{threads} threads')}, {kind}, {side}{note}: "
                  f"{result['seconds']:.2f} s, {result['cpu_seconds']:.2f} CPU s", file=sys.stderr, flush=True)
            self.keep(key, result)
        # In processor time, which other work on the machine disturbs less.
        self.batches[key] = min(tried, key=lambda batch: tried[batch]["cpu_seconds"])

    def keep(self, key, result):
        """The best of each number so far; all of the seconds, to see how far they lie apart."""
        best = self.best.setdefault(key, {**result, "all": []})
        best["all"].append(result["seconds"])
        for field in ("seconds", "cpu_seconds"):
            best[field] = min(best[field], result[field])
        for point, value in result.get("latency_ms", {}).items():
            best["latency_ms"][point] = min(best["latency_ms"][point], value)

    def agreement(self, key):
        """Mean and least cosine, greatest difference; against the reference on one thread, or on the fewest."""
        threads = min(t for t, kind, side in self.vectors if (kind, side) == (key[1], REFERENCE))
        reference = self.vectors[threads, key[1], REFERENCE].astype(np.float64)
        vectors = self.vectors[key].astype(np.float64)
        lengths = np.linalg.norm(reference, axis=1) * np.linalg.norm(vectors, axis=1)
        cosines = (reference * vectors).sum(1) / lengths
        return cosines.mean(), cosines.min(), np.abs(reference - vectors).max()

    def table(self, threads, kind):
        rows = {side: self.best[threads, kind, side] for side in self.sides()}
        onnx = rows["ONNX Runtime f32"]
        # The peer in int8 is the faster of its two.
        int8 = min((rows[side] for side in ONNX if "int8" in side), key=lambda row: row["cpu_seconds"])
        head = ["", "batch", "s", "CPU s", "tokens/s", "× ST", "× ORT f32", "× ORT int8", "× ORT f32, CPU",
                "mean cos", "min cos", "max diff"]
        head += ["p50 ms", "p95 ms"] if kind == "utterances" else []
        lines = [head, ["---"] + ["--:"] * (len(head) - 1)]
        for side, row in rows.items():
            mean, least, apart = self.agreement((threads, kind, side))
            cells = [side, str(self.batches[threads, kind, side] or ""), f"{row['seconds']:.2f}",
                     f"{row['cpu_seconds']:.2f}", f"{row['tokens'] / row['seconds']:,.0f}",
                     f"{rows[REFERENCE]['seconds'] / row['seconds']:.2f}", f"{onnx['seconds'] / row['seconds']:.2f}",
                     f"{int8['seconds'] / row['seconds']:.2f}", f"{onnx['cpu_seconds'] / row['cpu_seconds']:.2f}",
                     f"{mean:.5f}", f"{least:.5f}", f"{apart:.1e}"]
            if kind == "utterances":
                cells += [f"{row['latency_ms'][point]:.2f}" for point in ("p50", "p95")]
            lines.append(cells)
        title = f"{kind.capitalize()} ({onnx['texts']:,} texts, {onnx['tokens']:,} tokens), {WORDS.get(threads, f'{threads} threads')}"
        return f"**{title}**\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"

    def scaling(self, threads):
        """How much faster the most threads are than one."""
        if 1 not in threads or max(threads) == 1:
            return ""
        most, lines = max(threads), ["| | " + " | ".join(KINDS) + " |", "|---|" + "--:|" * len(KINDS)]
        for side in self.sides():
            gains = (self.best[1, kind, side]["seconds"] / self.best[most, kind, side]["seconds"] for kind in KINDS)
            lines.append(f"| {side} | " + " | ".join(f"{gain:.2f}" for gain in gains) + " |")
        return f"**{WORDS.get(most, f'{most} threads').capitalize()} against one, by the clock**\n\n" + "\n".join(lines) + "\n"

    def spread(self):
        """How far the rounds of one side lay apart, in the middle and at worst: how quiet the machine was."""
        ratios = sorted(max(best["all"]) / min(best["all"]) for best in self.best.values())
        return f"slowest round against fastest: {ratios[len(ratios) // 2]:.2f} in the middle, {ratios[-1]:.2f} at worst"


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    interesting = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16", "amx_int8")
    flags = [flag for flag in interesting if flag in fields.get("flags", "").split()]
    return f"{fields.get('model name')} (family {fields.get('cpu family')}, model {fields.get('model')}; {', '.join(flags)}), {os.cpu_count()} cores"


def circumstances(arguments, comparison):
    packages = ("torch", "sentence-transformers", "transformers", "tokenizers", "onnxruntime", "openvino", "numpy")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    if not arguments.without_ours:
        told = subprocess.run([arguments.turnwise, "--version"], capture_output=True, text=True, check=True)
        versions.insert(0, told.stdout.strip())
    return (f"{datetime.date.today()}; {processor()}; Linux {platform.release()}, Python {platform.python_version()}; "
            f"{', '.join(versions)}; {arguments.rounds} rounds, {comparison.spread()}; "
            f"load of the machine at the end {os.getloadavg()[0]:.1f}.")


def main():
    arguments = read_arguments()
    model = prepare(arguments)
    threads = [int(count) for count in arguments.threads.split(",")]
    comparison = Comparison(arguments, model)
    for round_ in range(1, arguments.rounds + 1):
        for count in threads:
            for kind in KINDS:
                for side in comparison.sides():
                    comparison.measure(round_, count, kind, side)
    tables = [comparison.table(count, kind) for count in threads for kind in KINDS]
    report = "\n".join([circumstances(arguments, comparison) + "\n", *tables, comparison.scaling(threads)])
    print(report)
    if arguments.report:
        arguments.report.write_text(report, "utf-8")


if __name__ == "__main__":
    main()

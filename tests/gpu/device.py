"""Runs on the machine with the GPU, in the folder that `tests/gpu.sh pack` made: device.py [OPTIONS] [STAGE…]

Each stage starts alone and adds its results to RESULTS (results.json) when it ends; a stage that has results is
skipped. A failed stage is reported with the end of its output, and the next one starts.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("stages", nargs="*")
parser.add_argument("--device", default="cuda", help="cpu rehearses the stages without a GPU")
parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/turnwise-gpu"))
parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results.json"))
parser.add_argument("--texts", type=int, default=60_000, help="number of utterances of the stage `encode`")
parser.add_argument("--steps", type=int, default=10, help="steps of each objective in the stage `objectives`")
args = parser.parse_args()

WORK = args.work
MODEL, BASE = WORK / "model", WORK / "base"
PROGRAM, STEP = WORK / "turnwise", WORK / "train-step"
GPU = args.device != "cpu"
OBJECTIVES = ["dialoguecse", "dial2vec", "simcse", "responses", "siamese-s", "siamese-m", "mlm", "relevance",
              "role-position"]


def run(*command, **more):
    """Runs a command and returns its standard output; an error has the end of its output."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=WORK, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def peak_memory():
    """Memory in use on the GPU, in MiB, as nvidia-smi reports it."""
    out = run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits") if GPU else "0"
    return int(out.split()[0])


def prepare():
    """Unpacks the programs, the dialogues and the model, whose weights become f32 again.

    The lower bits are drawn at random: if all weights were exactly bf16, training in bf16 would lose small updates.
    """
    import numpy as np
    from safetensors.numpy import save_file

    WORK.mkdir(parents=True, exist_ok=True)
    with tarfile.open(HERE / "packed.tar.xz") as packed:
        packed.extractall(WORK, filter="data")
    for program in (PROGRAM, STEP):
        program.chmod(0o755)
    tensors, random = np.load(MODEL / "weights.npz"), np.random.default_rng(1)
    lower = lambda t: random.integers(-0x8000, 0x8000, t.shape)
    whole = lambda t: np.where(t & 0x7FFF, (t.astype(np.int64) << 16) + lower(t), 0).astype(np.uint32).view(np.float32)
    save_file({n: whole(tensors[n]) for n in tensors.files}, MODEL / "model.safetensors", metadata={"format": "pt"})
    utterances, dialogues = [], []
    for line in (WORK / "train.jsonl").read_text("utf-8").split("\n"):
        if line:
            turns = [" ".join(turn["text"].split()) for turn in json.loads(line)["turns"]]
            utterances += turns
            dialogues.append(" ".join(turns))
    (WORK / "utterances.txt").write_text("\n".join(utterances[: args.texts]) + "\n", "utf-8")
    (WORK / "dialogues.txt").write_text("\n".join(dialogues[: args.texts // 10]) + "\n", "utf-8")
    (WORK / "few.txt").write_text("\n".join(utterances[:: max(1, len(utterances) // 20000)][: min(20000, args.texts)] + dialogues[: min(1000, args.texts // 20)]) + "\n", "utf-8")
    odd = ["", " ", "a", "!?", "naïve café", "数据 库", "😀 ok", "word " * 300, "https://example.com/a?b=c", "ALL CAPS", "l'été"]
    texts = odd + utterances[:: max(1, len(utterances) // 1500)][:1500]
    (WORK / "small.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), "utf-8")
    return {"utterances": min(len(utterances), args.texts), "dialogues": min(len(dialogues), args.texts // 10)}


def machine():
    import torch
    import sentence_transformers
    import transformers

    smi = run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").strip() if GPU else "no GPU"
    return {"gpu": smi, "cores": os.cpu_count(), "torch": torch.__version__, "transformers": transformers.__version__,
            "sentence_transformers": sentence_transformers.__version__, "turnwise": run(PROGRAM, "--version").strip(),
            "doctor": run(PROGRAM, "doctor")}


def compared(ours, theirs):
    """Cosines and the greatest difference of two matrices, over the rows that are not zero in both."""
    import numpy as np

    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    rows = norms > 0
    cosines = (a * b).sum(1)[rows] / norms[rows]
    return {"rows": int(rows.sum()), "mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min()),
            "max_difference": float(np.abs(a - b)[rows].max())}


def embed(model, texts, name, device, precision, *more):
    import numpy as np

    out = WORK / f"{name}.npy"
    run(PROGRAM, "embed", texts, "-o", out, "-m", f"{model}/", "--device", device, "--precision", precision, *more)
    return np.load(out)


def agreement():
    """The default model: each precision of the GPU compared with f32 on the CPU."""
    cpu = embed(MODEL, "few.txt", "cpu", "cpu", "f32")
    found = {}
    for precision in ("f32", "bf16", "f16") if GPU else ("f32", "bf16"):
        found[precision] = compared(embed(MODEL, "few.txt", f"gpu-{precision}", args.device, precision), cpu)
    return found


def architectures():
    """Small models of every architecture: f32 on the GPU compared with sentence-transformers on the CPU."""
    import numpy as np

    folder = WORK / "small"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = run(sys.executable, "reference.py", "models", "small.jsonl", folder).split()

    def one(name):
        ours = embed(folder / name, "small.jsonl", f"small-{name}", args.device, "f32")
        return compared(ours, np.load(folder / f"{name}.npy"))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(one, names)))


def steps(objective, device, precision, dropout):
    lines = run(STEP, "time", "train.jsonl", "--model", MODEL, "--objective", objective, "--steps", args.steps,
                "--dropout", dropout, "--frozen", 3, "--device", device, "--precision", precision)
    return [json.loads(line) for line in lines.splitlines()]


def objectives():
    """Losses and gradient norms of every objective on the GPU compared with the CPU, step by step."""
    kinds = [(args.device, "f32"), (args.device, "bf16")]
    found = {}

    def one(objective):
        rows = {}
        for dropout in (0, 0.1):
            reference = steps(objective, "cpu", "f32", dropout)
            for device, precision in kinds:
                other = steps(objective, device, precision, dropout)
                far = lambda key: max(abs(a[key] - b[key]) / max(abs(a[key]), 1e-3) for a, b in zip(reference, other))
                seconds = sorted(s["seconds"] for s in other[2:])
                rows[f"{precision}, dropout {dropout}"] = {
                    "loss": far("loss"), "gradient": far("gradient"), "first_gradient": abs(
                        reference[0]["gradient"] - other[0]["gradient"]) / reference[0]["gradient"],
                    "losses": [round(s["loss"], 5) for s in other], "reference": [round(s["loss"], 5) for s in reference],
                    "seconds_per_step": seconds[len(seconds) // 2],
                    "cpu_seconds_per_step": sorted(s["seconds"] for s in reference[2:])[len(reference[2:]) // 2]}
        return rows

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for objective, result in zip(OBJECTIVES, pool.map(lambda o: guarded(one, o), OBJECTIVES)):
            found[objective] = result
    return found


def guarded(function, *arguments):
    try:
        return function(*arguments)
    except Exception as e:
        return {"error": str(e)[-1500:]}


def base():
    """A BERT-base with random weights and the tokenizer of the packed model, for speed."""
    if not BASE.exists():
        import torch
        import transformers
        from sentence_transformers import SentenceTransformer

        torch.manual_seed(1)
        half = WORK / "base.half"
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(MODEL, half)
        encoder = SentenceTransformer(str(MODEL), device="cpu")
        size = json.loads((MODEL / "config.json").read_text())["vocab_size"]
        network = transformers.BertModel(transformers.BertConfig(vocab_size=size))
        network.save_pretrained(half)
        for file in half.glob("*/config.json"):
            settings = json.loads(file.read_text())
            for key in ("word_embedding_dimension", "embedding_dimension"):
                if key in settings:
                    settings[key] = 768
            file.write_text(json.dumps(settings))
        half.rename(BASE)
    return BASE


def encode():
    """Throughput of turnwise and sentence-transformers, in turns, on the same texts."""
    found = {}
    cases = [("default model", MODEL, "utterances.txt"), ("default model", MODEL, "dialogues.txt"),
             ("BERT-base", base(), "utterances.txt")]
    for name, model, texts in cases:
        count = sum(1 for _ in open(WORK / texts, encoding="utf-8"))
        precisions = ("bf16", "f16", "f32") if GPU else ("bf16", "f32")
        batches = "256,1024" if "utter" in texts else "64,256"
        theirs = guarded(lambda: [json.loads(line) for line in run(
            sys.executable, "encode.py", model, texts, ",".join(precisions), batches, args.device).splitlines()])
        row = {}
        for precision in precisions:
            ours = guarded(lambda: json.loads(run(PROGRAM, "model", "bench", "-m", f"{model}/", "--device", args.device,
                                                  "--precision", precision, "--input", texts, "--format", "json"))[0])
            peer = [t for t in theirs if t["precision"] == precision] if isinstance(theirs, list) else theirs
            row[precision] = {"turnwise": ours, "sentence_transformers": peer}
        found[f"{name}, {texts.removesuffix('.txt')}"] = {"texts": count, **row}
    return found


def step_speed():
    """Training steps of turnwise and PyTorch on the same batches."""
    found = {}
    for objective in ("dialoguecse", "dial2vec"):
        for precision in ("bf16", "f32"):
            found[f"{objective}, {precision}"] = guarded(
                run, sys.executable, "peers.py", STEP, "train.jsonl", MODEL, "--frozen", 3, "--objective", objective,
                "--steps", 20, "--rounds", 2, "--device", args.device, "--precision", precision)
    return found


def resume():
    """An interrupted run that is resumed ends with the losses of an uninterrupted one."""
    common = ["-c", "dev.jsonl", "-m", f"{MODEL}/", "--device", args.device, "--steps", 12, "--checkpoint-every", 4,
              "--evaluate-every", 0, "--held-out", 0]
    for name in ("whole", "parts"):
        shutil.rmtree(WORK / name, ignore_errors=True)
    run(PROGRAM, "train", "simcse", *common, "-o", "whole")
    running = subprocess.Popen([str(c) for c in (PROGRAM, "train", "simcse", *common, "-o", "parts")], cwd=WORK,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = lambda name: [json.loads(l) for l in (WORK / name / "metrics.jsonl").read_text().splitlines()]
    for _ in range(3000):
        if (WORK / "parts" / "metrics.jsonl").exists() and len(lines("parts")) >= 6:
            break
        time.sleep(0.01)
    running.kill(), running.wait()
    stopped = len(lines("parts"))
    run(PROGRAM, "train", "simcse", *common, "-o", "parts", "--resume")
    whole, parts = lines("whole"), lines("parts")
    return {"stopped_after": stopped, "steps": [len(whole), len(parts)],
            "greatest_difference": max(abs(a["loss"] - b["loss"]) for a, b in zip(whole, parts)),
            "losses": [s["loss"] for s in whole]}


def quality():
    """`train auto` from beginning to end: seconds, and the measures of the dev set before and after."""
    shutil.rmtree(WORK / "auto", ignore_errors=True)
    begun = time.perf_counter()
    run(PROGRAM, "train", "auto", "-c", "train.jsonl", "-m", f"{MODEL}/", "--device", args.device, "--dev",
        "dialogues:dev.jsonl", "--evaluate-every", 150, "-o", "auto")
    seconds = time.perf_counter() - begun
    evaluations = [json.loads(l) for l in (WORK / "auto" / "evaluations.jsonl").read_text().splitlines()]
    metrics = [json.loads(l) for l in (WORK / "auto" / "metrics.jsonl").read_text().splitlines()]
    short = lambda e: {k: v for k, v in e.items() if not isinstance(v, list)}
    for e in evaluations:
        for task in e.get("tasks", []) if isinstance(e.get("tasks"), list) else []:
            task.pop("each", None)
    return {"seconds": seconds, "seconds_of_steps": sum(m["seconds"] for m in metrics), "steps": len(metrics),
            "evaluations": json.dumps([short(e) for e in evaluations])[:4000]}


def memory():
    """Very long and very many texts: nothing fails, and the vectors are those of small batches."""
    import numpy as np

    lines = (WORK / "dialogues.txt").read_text("utf-8").splitlines()[:3000]
    (WORK / "long.txt").write_text("\n".join(f"{a} {b} {c}" for a, b, c in zip(lines, lines[1:], lines[2:])) + "\n", "utf-8")
    gpu = embed(MODEL, "long.txt", "long-gpu", args.device, "f32", "--max-tokens", 512)
    (WORK / "short.txt").write_text("\n".join((WORK / "long.txt").read_text("utf-8").splitlines()[:64]) + "\n", "utf-8")
    return {**compared(gpu[:64], embed(MODEL, "short.txt", "long-cpu", "cpu", "f32", "--max-tokens", 512)),
            "finite": bool(np.isfinite(gpu).all()), "texts": len(gpu)}


STAGES = [prepare, machine, agreement, architectures, objectives, resume, memory, encode, step_speed, quality]


def main():
    results = json.loads(args.results.read_text()) if args.results.exists() else {}
    names = args.stages or [s.__name__ for s in STAGES]
    failed = []
    for stage in STAGES:
        name = stage.__name__
        # The folder of `prepare` can be gone although its results are there.
        if name not in names or (name in results and "error" not in results[name] and (name != "prepare" or PROGRAM.exists())):
            continue
        begun = time.perf_counter()
        result = guarded(stage)
        results[name] = {**result, "stage_seconds": round(time.perf_counter() - begun, 1)}
        args.results.write_text(json.dumps(results, indent=1))
        print(f"{name}: {results[name]['stage_seconds']} s{', FAILED' if 'error' in result else ''}", flush=True)
        if "error" in result:
            failed.append(name)
            print(result["error"], flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


main()

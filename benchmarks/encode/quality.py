"""What a precision costs in retrieval: MAP of BANKING77 and SGD dev, for each precision, beside sentence-transformers.

    python quality.py [--turnwise target/release/turnwise] [--model FOLDER] [--precisions f32,bf16,int16,int8]

BANKING77 (test, SR): for each sentence up to 100 candidates by BM25, positive where the intent agrees. SGD dev: each
single-service dialogue is a query, all others are candidates, relevant where the service agrees; a dialogue is its
turns in one text, cut at 384 tokens. Both from ../shared/data; skipped, saying so, where that is absent.
Ranking: score descending, then id descending. Numbers in percent.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import corpora
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
LENGTH = 384


def average_precision(scores, relevant):
    """Ties go by place, the later first, as trec_eval breaks them by id."""
    order = np.lexsort((-np.arange(len(scores)), -scores))
    hits = relevant[order]
    ranks = np.flatnonzero(hits) + 1
    return (np.arange(1, len(ranks) + 1) / ranks).mean() if len(ranks) else None


def mean(values):
    known = [value for value in values if value is not None]
    return 100 * sum(known) / len(known)


class Banking77:
    name = "BANKING77 test SR"

    def __init__(self, work):
        lists = corpora.found("normalized_dev", work, "banking77.sr.test.tsv")
        texts = corpora.found("intents_banking77", work, "BANKING77/test/seq.in")
        if not lists or not texts:
            raise FileNotFoundError("normalized_dev.tar.zst or intents_banking77.tar.zst")
        # A sentence is called by its line, also one that is a candidate alone and no query.
        self.texts = texts[0].read_text("utf-8").splitlines()
        rows = [line.split("\t") for line in lists[0].read_text("utf-8").splitlines()]
        split = lambda cell: [int(id_) for id_ in cell.split(",") if id_]
        self.queries = [(int(row[0]), split(row[3]), split(row[4])) for row in rows]

    def map(self, vectors):
        values = []
        for query, positives, negatives in self.queries:
            candidates = np.array(sorted(positives + negatives), dtype=int)
            scores = vectors[candidates] @ vectors[query]
            values.append(average_precision(scores, np.isin(candidates, positives)))
        return mean(values)


class Sgd:
    name = "SGD dev dialogues"

    def __init__(self, work):
        paths = corpora.found("normalized_dev", work, "sgd.dev.jsonl")
        if not paths:
            raise FileNotFoundError("normalized_dev.tar.zst")
        dialogues = [json.loads(line) for line in paths[0].read_text("utf-8").splitlines()]
        dialogues.sort(key=lambda dialogue: dialogue["id"])
        self.texts = [" ".join(turn["text"] for turn in dialogue["turns"]) for dialogue in dialogues]
        self.domains = np.array([dialogue["domain"] for dialogue in dialogues])

    def map(self, vectors):
        values = []
        for query, scores in enumerate(vectors @ vectors.T):
            others = np.arange(len(vectors)) != query
            values.append(average_precision(scores[others], (self.domains == self.domains[query])[others]))
        return mean(values)


def by_sentence_transformers(model, texts):
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(model), device="cpu")
    return encoder.encode(texts, batch_size=32)


def by_turnwise(program, model, precision, texts, work, name):
    source, target = work / f"{name}.jsonl", work / f"{name}-{precision}.npy"
    lines = (json.dumps({"id": f"{n:06}", "text": text}, ensure_ascii=False) for n, text in enumerate(texts))
    source.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    target.unlink(missing_ok=True)
    subprocess.run([program, "embed", "--model", model, "--precision", precision, source, "-o", target], check=True)
    return np.load(target)


def limited(model, work):
    """The model with its length set, so that both sides cut at the same token."""
    folder = work / f"model-{LENGTH}"
    if not folder.exists():
        folder.mkdir(parents=True)
        for path in model.rglob("*"):
            if path.is_dir():
                (folder / path.relative_to(model)).mkdir(parents=True, exist_ok=True)
            else:
                (folder / path.relative_to(model)).parent.mkdir(parents=True, exist_ok=True)
                (folder / path.relative_to(model)).write_bytes(path.read_bytes())
        settings = folder / "sentence_bert_config.json"
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "max_seq_length": LENGTH}))
    return folder


def unit(vectors):
    vectors = vectors.astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--turnwise", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "turnwise")
    parser.add_argument("--without-ours", action="store_true")
    parser.add_argument("--precisions", default="f32,bf16,int16,int8")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[1] / "target" / "encode-benchmark")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.model = arguments.model or corpora.default_model(arguments.turnwise)

    try:
        tasks = [Banking77(arguments.work), Sgd(arguments.work)]
    except FileNotFoundError as missing:
        print(f"skipped: {missing} is not at hand in ../shared/data", file=sys.stderr)
        return
    model = limited(arguments.model, arguments.work)
    precisions = [] if arguments.without_ours else arguments.precisions.split(",")
    rows = {side: {} for side in ["sentence-transformers f32", *(f"turnwise {p}" for p in precisions)]}
    references = {}
    for task in tasks:
        slug = task.name.split()[0].lower()
        stored = arguments.work / f"{slug}-reference.npy"
        # The reference takes minutes and never changes.
        if not stored.exists():
            half = stored.with_suffix(".half.npy")
            np.save(half, by_sentence_transformers(model, task.texts))
            os.replace(half, stored)
        references[task.name] = unit(np.load(stored))
        rows["sentence-transformers f32"][task.name] = task.map(references[task.name]), 1.0
        for precision in precisions:
            vectors = unit(by_turnwise(arguments.turnwise, model, precision, task.texts, arguments.work, slug))
            cosine = (vectors * references[task.name]).sum(1).mean()
            rows[f"turnwise {precision}"][task.name] = task.map(vectors), cosine

    # The loss of a precision is against our own f32, or against the reference where ours is not asked for.
    base = rows.get("turnwise f32", rows["sentence-transformers f32"])
    names = [task.name for task in tasks]
    print("| | " + " | ".join(f"{name}: MAP | change | mean cos" for name in names) + " |")
    print("|---|" + "--:|--:|--:|" * len(names))
    for side, row in rows.items():
        cells = (f"{row[name][0]:.2f} | {row[name][0] - base[name][0]:+.3f} | {row[name][1]:.5f}" for name in names)
        print(f"| {side} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

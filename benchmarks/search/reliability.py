#!/usr/bin/env python3
"""Measures how well vectors tell adjacent turns of a dialogue from turns of different dialogues.

The measure is the AUC: the probability that a random pair of adjacent turns has a higher cosine than a random pair of
turns. Hybrid search uses it to detect an encoder that does not know the language of the texts. The script prints the
AUC of the default model and of a multilingual model for corpora in English and Chinese. Corpora whose data is missing
are skipped.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
# Maximum number of pairs, and maximum number of dialogues of a corpus.
PAIRS, DIALOGUES = 4000, 600
CORPORA = {
    "SGD": ("English", "sgd.dev.jsonl"),
    "KVRET": ("English", "kvret.dev.jsonl"),
    "MultiWOZ 2.0": ("English", "multiwoz20_single.dev.jsonl"),
    "Self-dialogue": ("English", "selfdialogue.dev.jsonl"),
    "Ubuntu IRC": ("English", "ubuntu_irc.dev.jsonl"),
    "LoCoMo": ("English", "locomo_dev"),
    "CrossWOZ": ("Chinese", "crosswoz_devtest/val.json"),
    "ECD": ("Chinese", "edc/train/*"),
}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, encoding="utf-8")
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")


def sample_corpus(language):
    for path in sorted(glob.glob(os.path.join(HERE, "..", "..", "examples", "support", "*.jsonl"))):
        for line in open(path, encoding="utf-8"):
            if json.loads(line)["language"] == language:
                yield line


def ecd(path):
    """Dialogues of the training sample: label, context and response in columns, turns separated by `|`."""
    for n, line in enumerate(open(path, encoding="utf-8")):
        turns = [text for text in line.split("\t")[0].split("|") if text.strip()]
        if len(turns) > 2:
            yield json.dumps({"id": f"ecd{n}", "turns": [{"role": "user", "text": text} for text in turns]}) + "\n"


def corpora(program, data, folder):
    """Yields the name, the language and the lines of each corpus."""
    yield "sample dialogues", "English", list(sample_corpus("en"))
    yield "sample dialogues", "Chinese", list(sample_corpus("zh"))
    for name, (language, pattern) in CORPORA.items():
        found = sorted(glob.glob(os.path.join(glob.escape(data), "**", pattern), recursive=True))
        if not found:
            print(f"{name}: skipped, no {pattern} in {data}", file=sys.stderr)
            continue
        if name == "ECD":
            yield name, language, list(ecd(found[0]))
            continue
        converted = os.path.join(folder, "converted.jsonl")
        if os.path.exists(converted):
            os.remove(converted)
        run(program, "corpus", "convert", "-q", found[0], "-o", converted)
        with open(converted, encoding="utf-8") as file:
            yield name, language, file.readlines()


def auc(program, folder, lines, model):
    """Returns the AUC and the number of pairs."""
    corpus, output = (os.path.join(folder, name) for name in ("corpus.jsonl", "vectors.npy"))
    with open(corpus, "w", encoding="utf-8") as file:
        file.writelines(lines[:DIALOGUES])
    for old in glob.glob(os.path.join(folder, "vectors.*")):
        os.remove(old)
    run(program, "embed", "-q", corpus, "-o", output, *(["--model", model] if model else []))
    vectors = np.load(output).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
    with open(output.replace(".npy", ".ids.txt"), encoding="utf-8") as file:
        dialogues = [line.strip().rsplit("#", 1)[0] for line in file]
    rng = np.random.default_rng(0)
    first = np.array([n for n in range(len(dialogues) - 1) if dialogues[n] == dialogues[n + 1]])
    first = rng.permutation(first)[:PAIRS]
    adjacent = (vectors[first] * vectors[first + 1]).sum(1)
    random = (vectors[first] * vectors[rng.integers(0, len(vectors), len(first))]).sum(1)
    ranks = np.concatenate([adjacent, random]).argsort().argsort()
    n = len(first)
    return (ranks[:n].sum() - n * (n - 1) / 2) / n**2, n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="turnwise")
    parser.add_argument("data", help="folder with the unpacked data")
    parser.add_argument("--multilingual", metavar="MODEL", help="multilingual model [default: DATA/e5]")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    multilingual = options.multilingual or os.path.join(os.path.abspath(options.data), "e5")
    print("| corpus | language | pairs | default model | multilingual model |\n|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, language, lines in corpora(program, options.data, folder):
            (default, n), (other, _) = (auc(program, folder, lines, model) for model in (None, multilingual))
            print(f"| {name} | {language} | {n} | {default:.2f} | {other:.2f} |", flush=True)


main()

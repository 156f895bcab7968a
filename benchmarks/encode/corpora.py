"""The real corpora beside the project (../shared/data), unpacked on demand, and our own samples."""

import csv
import json
import pathlib
import subprocess

PROJECT = pathlib.Path(__file__).resolve().parents[2]
ARCHIVES = PROJECT.parent / "shared" / "data"


def unpacked(archive, work):
    """The folder of an archive, or None where it is not at hand."""
    packed = ARCHIVES / f"{archive}.tar.zst"
    folder = pathlib.Path(work) / "corpora" / archive
    if not folder.exists():
        if not packed.exists():
            return None
        half = folder.with_suffix(".half")
        half.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-I", "zstd", "-xf", packed, "-C", half], check=True)
        half.rename(folder)
    return folder


def found(archive, work, pattern):
    """The files of an archive whose names fit, sorted; none where the archive is not at hand."""
    folder = unpacked(archive, work)
    return sorted(folder.rglob(pattern)) if folder else []


def sgd(work):
    """The dialogues of SGD dev, each a list of turns' texts."""
    for path in found("sgd_dev", work, "dialogues_*.json"):
        for dialogue in json.loads(path.read_text("utf-8")):
            yield [turn["utterance"] for turn in dialogue["turns"]]


def banking77(work):
    """All sentences of BANKING77."""
    for path in found("intents_banking77", work, "banking_data/*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            yield from (row["text"] for row in csv.DictReader(file))


def samples():
    """The dialogues of our own sample corpus, each a list of turns' texts."""
    for path in sorted((PROJECT / "examples" / "support").glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            yield [turn["text"] for turn in json.loads(line)["turns"]]


def default_model(turnwise):
    """The folder of the default model, which `turnwise model pull` has fetched."""
    command = [str(turnwise), "model", "info", "all-MiniLM-L6-v2", "--format", "json"]
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode:
        raise SystemExit(f"{told.stderr.strip()}\nor name another folder with --model")
    return pathlib.Path(json.loads(told.stdout)["path"])

#!/usr/bin/env python3
"""Measures `turnwise search` on labeled sets, and compares hybrid search with its two lists, BM25 and dense.

Each set is a corpus with queries whose relevant hits are known from labels. The script ingests the corpus into an index
in a temporary folder, and searches with all queries: with the default settings, with `--fusion weighted`, with
`--mode bm25` and with `--mode dense`. The measures are computed in Python. The table shows by how much the default
differs from the better of the two lists, with a 95% bootstrap interval over the queries.

A difference is marked with `!` in two cases: if the default is worse than the better list by more than 1 point, and if
its MAP is worse than that of `--fusion weighted` by more than 0.3 points on intents or dialogues.

Sets whose data is missing are skipped. The archives of the data are described in benchmarks/README.md.
"""
import argparse
import collections
import dataclasses
import datetime
import glob
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = {"default": "", "weighted": "--fusion weighted", "bm25": "--mode bm25", "dense": "--mode dense"}
SETS = {}


@dataclasses.dataclass
class Task:
    """Queries in a corpus.

    A query has the fields `request` and `relevant` (ids). Optional fields are `excluded`, ids that do not count, and
    `judged`, the only ids that count.
    """

    name: str
    queries: list
    # Number of hits that count. Relevant items below it count as not found.
    depth: int
    # Whether a loss of more than 0.3 MAP compared with weighted fusion is marked.
    strict: bool = False
    # Whether a query has a single relevant dialogue. Hits are then reduced to dialogues.
    single: bool = False


class Missing(Exception):
    """Data or a model that a set needs is not there."""


def dataset(name, chinese=False):
    """Registers a function that returns the dialogues of a corpus and a list of tasks."""

    def register(function):
        SETS[name] = function, chinese
        return function

    return register


def find(data, pattern):
    """Returns the files in the folder of the data that match a pattern, sorted by name."""
    found = sorted(glob.glob(os.path.join(glob.escape(data), "**", pattern), recursive=True))
    if not found:
        raise Missing(f"no file {pattern} in {data}")
    return found


def lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def sample(items, count):
    return random.Random(1).sample(items, min(count, len(items)))


def sentences(texts):
    """Returns dialogues of one turn each. The id of the utterance N is `sN#1`."""
    return [{"id": f"s{n}", "turns": [{"role": "user", "text": text}]} for n, text in enumerate(texts)]


def same_label(labels):
    """Returns for each label the set of the ids that have it."""
    groups = collections.defaultdict(set)
    for item, label in labels.items():
        groups[label].add(item)
    return groups


# Intents of utterances


def intents(name, texts, labels, depth):
    ids = {f"s{n}#1": label for n, label in enumerate(labels)}
    groups = same_label(ids)
    queries = [
        {"request": {"query": texts[n]}, "relevant": groups[labels[n]] - {f"s{n}#1"}, "excluded": {f"s{n}#1"}}
        for n in sample(range(len(texts)), 500)
    ]
    return sentences(texts), [Task(name, queries, depth, strict=True)]


def banking77(data, split):
    texts, labels = (lines(find(data, f"BANKING77/{split}/{file}")[0]) for file in ("seq.in", "label"))
    return intents(f"BANKING77 {split}", texts, labels, 300)


@dataset("banking77")
def banking77_test(data):
    return banking77(data, "test")


@dataset("banking77-valid")
def banking77_valid(data):
    return banking77(data, "valid")


@dataset("dstc11")
def dstc11(data):
    rows = [json.loads(line) for line in lines(find(data, "test-utterances.development.jsonl")[0])]
    return intents("DSTC 11 dev", [row["utterance"] for row in rows], [row["intent"] for row in rows], 300)


# User turns in whole dialogues. The trials of the settings used the first 400 dialogues of these shuffled lists, so the
# sets have the next 400.


def shuffled(items):
    random.Random(3).shuffle(items)
    return items[400:800]


def labeled_turns(talks, field):
    """Returns dialogues whose labeled turns have the metadata `labeled`, and the label of each labeled turn by id."""
    dialogues, labels = [], {}
    for name, turns in talks:
        rows = []
        for n, turn in enumerate(turns, 1):
            row = {"role": "user" if turn["user"] else "system", "text": turn["text"]}
            if turn.get(field):
                row["metadata"] = {"labeled": "yes"}
                labels[f"{name}#{n}"] = turn[field]
            rows.append(row)
        dialogues.append({"id": name, "turns": rows})
    return dialogues, labels


def turn_queries(dialogues, labels, chosen, context):
    """Returns queries that are turns. Only labeled turns of other dialogues count."""
    texts = {dialogue["id"]: [turn["text"] for turn in dialogue["turns"]] for dialogue in dialogues}
    groups, queries = same_label(labels), []
    for item in chosen:
        name, number = item.rsplit("#", 1)
        n = int(number) - 1
        own = {f"{name}#{k + 1}" for k in range(len(texts[name]))}
        request = {"query": texts[name][n], "filter": "meta.labeled=yes"}
        if context:
            request["context"] = texts[name][max(0, n - 5):n]
        queries.append({"request": request, "relevant": groups[labels[item]] - own, "excluded": own})
    return queries


def sgd_talks(data):
    raw = [row for path in find(data, "sgd_dev/**/dialogues_*.json") for row in json.load(open(path, encoding="utf-8"))]
    talks = []
    for row in shuffled(raw):
        turns = []
        for raw_turn in row["turns"]:
            turn = {"user": raw_turn["speaker"] == "USER", "text": raw_turn["utterance"]}
            if turn["user"]:
                active = lambda frame: frame.get("state", {}).get("active_intent", "NONE")
                with_intent = [frame for frame in raw_turn["frames"] if active(frame) != "NONE"]
                if len(with_intent) == 1:
                    turn["intent"] = with_intent[0]["service"], active(with_intent[0])
                with_actions = [frame for frame in raw_turn["frames"] if frame.get("actions")]
                if len(with_actions) == 1 and active(with_actions[0]) != "NONE":
                    frame, with_slot = with_actions[0], ("REQUEST", "INFORM", "INFORM_INTENT")
                    acts = {(a["act"], a["slot"] if a["act"] in with_slot else "") for a in frame["actions"]}
                    turn["situation"] = frame["service"].split("_")[0], active(frame), frozenset(acts)
            turns.append(turn)
        talks.append((row["dialogue_id"], turns))
    return talks


def multiwoz_talks(data):
    raw = json.load(open(find(data, "multiwoz21_val/val.json")[0], encoding="utf-8"))
    talks = []
    for name in shuffled(sorted(raw)):
        turns, domain = [], None
        for n, raw_turn in enumerate(raw[name]["log"]):
            turn = {"user": n % 2 == 0, "text": raw_turn["text"]}
            if turn["user"]:
                acts = raw_turn.get("dialog_act") or {}
                domains = [act.split("-")[0] for act in acts if not act.startswith("general-")]
                domain = domains[0] if domains else domain
                situation = frozenset((act, slot[0]) for act, slots in acts.items() for slot in slots)
                if situation and domain:
                    turn["situation"] = domain, situation
            turns.append(turn)
        talks.append((name, turns))
    return talks


def situations(name, talks):
    """Turns in the same situation: the queries with up to 5 previous turns as context, and the same without context."""
    dialogues, labels = labeled_turns(talks, "situation")
    of = {label: {item.rsplit("#", 1)[0] for item in items} for label, items in same_label(labels).items()}
    possible = [i for i, label in labels.items() if int(i.rsplit("#", 1)[1]) > 2 and len(of[label]) >= 4]
    chosen = sample(possible, 400)
    return dialogues, [
        Task(f"{name}, with context", turn_queries(dialogues, labels, chosen, True), 1000),
        Task(f"{name}, without context", turn_queries(dialogues, labels, chosen, False), 1000),
    ]


@dataset("sgd-intents")
def sgd_intents(data):
    dialogues, labels = labeled_turns(sgd_talks(data), "intent")
    other = lambda item: any(i.rsplit("#", 1)[0] != item.rsplit("#", 1)[0] for i in groups[labels[item]])
    groups = same_label(labels)
    chosen = sample([item for item in labels if other(item)], 400)
    queries = turn_queries(dialogues, labels, chosen, False)
    return dialogues, [Task("SGD dev intents", queries, 1000, strict=True)]


@dataset("sgd-context")
def sgd_context(data):
    return situations("SGD dev situations", sgd_talks(data))


@dataset("multiwoz-context")
def multiwoz_context(data):
    return situations("MultiWOZ 2.1 val situations", multiwoz_talks(data))


# Dialogues


def domains(name, dialogues):
    """Dialogues of the same domain. The ids of `dialogues` are replaced, because some contain spaces."""
    rows = [(f"d{n}", row["domain"], row["turns"]) for n, row in enumerate(dialogues)]
    groups = same_label({item: domain for item, domain, _ in rows})
    queries = [
        {"request": {"like": item, "of": "dialogues"}, "relevant": groups[domain] - {item}, "excluded": {item}}
        for item, domain, _ in sample([row for row in rows if len(groups[row[1]]) > 1], 300)
    ]
    return [{"id": item, "turns": turns} for item, _, turns in rows], [Task(name, queries, 1000, strict=True)]


@dataset("sgd-dialogues")
def sgd_dialogues(data):
    return domains("SGD dev dialogues", [json.loads(line) for line in lines(find(data, "sgd.dev.jsonl")[0])])


@dataset("multiwoz-dialogues")
def multiwoz_dialogues(data):
    rows = [json.loads(line) for path in find(data, "multiwoz20_single/dialogues/*.txt") for line in lines(path)]
    for row in rows:
        # The greeting, which is the same in all dialogues, is left out.
        texts = enumerate(row["turns"][1:])
        row["turns"] = [{"role": "user" if n % 2 == 0 else "system", "text": text} for n, text in texts]
    return domains("MultiWOZ 2.0 single-domain dialogues", sample(rows, 1000))


@dataset("self-dialogue")
def self_dialogue(data):
    rows = [json.loads(line) for line in lines(find(data, "selfdialogue.dev.jsonl")[0])]
    # The trials of the settings used the first 900 dialogues.
    return domains("Self-dialogue dialogues", sample(rows[900:], 1000))


@dataset("titles")
def titles(_):
    """Titles of the sample dialogues as queries: short descriptions. The indexed dialogues have no titles."""
    folder = os.path.join(HERE, "..", "..", "examples", "support")
    rows = [json.loads(line) for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))) for line in lines(path)]
    tasks = []
    for language, name in (("en", "English"), ("zh", "Chinese")):
        for of in ("utterances", "dialogues"):
            queries = [
                {"request": {"query": row["title"], "of": of}, "relevant": {row["id"]}}
                for row in rows if row["language"] == language
            ]
            tasks.append(Task(f"sample titles, {name}, {of}", queries, 300, single=True))
    untitled = [{name: value for name, value in row.items() if name != "title"} for row in rows]
    return untitled, tasks


# Words that somebody remembers, names of intents, and questions about sessions


@dataset("words")
def words(_):
    """Three words of a turn of the sample dialogues, in random order. Only this turn is relevant."""
    folder = os.path.join(HERE, "..", "..", "examples", "support")
    rows = [json.loads(line) for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))) for line in lines(path)]
    rows = [row for row in rows if row["language"] == "en"]
    draw, queries = random.Random(1), []
    for row in rows:
        found = [(turn, sorted(set(re.findall(r"[a-z]{5,}", turn["text"].lower())))) for turn in row["turns"]]
        turn, known = draw.choice([(turn, known) for turn, known in found if len(known) >= 3])
        query = " ".join(draw.sample(known, 3))
        queries.append({"request": {"query": query}, "relevant": {f"{row['id']}#{turn['number']}"}})
    return rows, [Task("words of a sample turn", queries, 300)]


@dataset("paraphrases")
def paraphrases(_):
    """Turns of the sample dialogues in other words. A query has no content word in common with its turn."""
    folder = os.path.join(HERE, "..", "..", "examples", "support")
    rows = [json.loads(line) for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))) for line in lines(path)]
    known = [json.loads(line) for line in lines(os.path.join(HERE, "paraphrases.jsonl"))]
    turns = [{"request": {"query": row["query"]}, "relevant": {row["turn"]}} for row in known]
    dialogues = [
        {"request": {"query": row["query"], "of": "dialogues"}, "relevant": {row["turn"].rsplit("#", 1)[0]}}
        for row in known
    ]
    return rows, [
        Task("paraphrases of sample turns, utterances", turns, 300),
        Task("paraphrases of sample turns, dialogues", dialogues, 300),
    ]


@dataset("intent-names")
def intent_names(data):
    """Names of the intents of BANKING77 as queries, such as `card payment not recognised`."""
    texts, labels = (lines(find(data, f"BANKING77/test/{file}")[0]) for file in ("seq.in", "label"))
    groups = same_label({f"s{n}#1": label for n, label in enumerate(labels)})
    queries = [
        {"request": {"query": label.replace("_", " ").lower()}, "relevant": items} for label, items in groups.items()
    ]
    return sentences(texts), [Task("BANKING77 test, names of intents", queries, 300)]


@dataset("sessions")
def sessions(data):
    """Questions of LoCoMo. The sessions that contain the evidence are the relevant dialogues."""
    dialogues, queries = [], []
    for path in find(data, "locomo_dev/*.json"):
        name, raw = os.path.splitext(os.path.basename(path))[0], json.load(open(path, encoding="utf-8"))
        for number in range(1, 100):
            turns = raw.get(f"session_{number}")
            if turns:
                said = datetime.datetime.strptime(raw[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
                turns = [{"speaker": turn["speaker"], "text": turn["text"]} for turn in turns]
                row = {"id": f"{name}-D{number}", "thread": name, "time": said.isoformat() + "Z", "turns": turns}
                dialogues.append(row)
        known = {row["id"] for row in dialogues}
        for question in raw["qa"]:
            evidence = {f"{name}-{number}" for text in question["evidence"] for number in re.findall(r"D\d+", text)}
            # Category 5 has questions without an answer.
            if question["category"] != 5 and evidence and evidence <= known:
                request = {"query": question["question"], "of": "dialogues", "thread": name}
                queries.append({"request": request, "relevant": evidence})
    return dialogues, [Task("LoCoMo questions, sessions", queries, 300)]


# Chinese sentences


def chinese_sentences(name, path):
    """Sentences of a file with intents and lists of candidates.

    The first task counts all sentences of the file: those with the same intent are relevant. ECD has no intents; its
    lists of positive candidates form connected components, and each component is one intent. The second task counts
    only the candidates in the list of a query. The negative candidates were chosen for their common words with the
    query, so this task is hard for BM25.
    """
    rows = [line.split("\t") for line in lines(path)]
    numbers = lambda field: {int(n) for n in field.split(",") if n}
    labels = [row[2] for row in rows]
    if not any(labels):
        labels = components([numbers(row[3]) for row in rows])
    ids = {f"s{n}#1": label for n, label in enumerate(labels)}
    groups = same_label(ids)
    whole, lists = [], []
    for n in sample(range(len(rows)), 400):
        request = {"query": rows[n][1]}
        positive, negative = ({f"s{k}#1" for k in numbers(rows[n][field])} for field in (3, 4))
        whole.append({"request": request, "relevant": groups[labels[n]] - {f"s{n}#1"}, "excluded": {f"s{n}#1"}})
        lists.append({"request": request, "relevant": positive, "judged": positive | negative})
    tasks = [Task(f"{name} intents", whole, 300), Task(f"{name} candidate lists", lists, len(rows))]
    return sentences([row[1] for row in rows]), tasks


def components(neighbors):
    """Returns the number of the connected component of each node."""
    labels = [None] * len(neighbors)
    edges = collections.defaultdict(set)
    for n, near in enumerate(neighbors):
        for k in near:
            edges[n].add(k)
            edges[k].add(n)
    for first in range(len(neighbors)):
        waiting = [first] if labels[first] is None else []
        while waiting:
            n = waiting.pop()
            if labels[n] is None:
                labels[n] = first
                waiting.extend(edges[n])
    return labels


@dataset("jddc", chinese=True)
def jddc(data):
    return chinese_sentences("JDDC dev", find(data, "jddc/dev/select.txt")[0])


@dataset("ecd", chinese=True)
def ecd(data):
    return chinese_sentences("ECD dev", find(data, "edc/dev/select.txt")[0])


# Search and measures


def run(program, folder, *arguments):
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, encoding="utf-8")
    if done.returncode:
        sys.exit(f"{shlex.join([program, *arguments])}: {done.stderr}")
    return done.stdout


def index(program, folder, dialogues, model):
    with open(os.path.join(folder, "corpus.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(dialogue) + "\n" for dialogue in dialogues)
    run(program, folder, "ingest", "-q", "-i", "./index", "corpus.jsonl", *(["--no-encode"] if model else []))
    if model:
        run(program, folder, "encode", "-q", "-i", "./index", "--model", model)


def search(program, folder, task, depth, options):
    """Returns for each query the ids of its hits, best first."""
    with open(os.path.join(folder, "queries.jsonl"), "w", encoding="utf-8") as file:
        for n, query in enumerate(task.queries):
            # The query itself and its dialogue can be among the hits, and are then left out.
            k = depth + len(query.get("excluded", ()))
            file.write(json.dumps({"id": str(n), "k": k, "window": 0, **query["request"]}) + "\n")
    output = run(program, folder, "search", "-q", "-i", "./index", "--queries", "queries.jsonl", "--run", "x", *options)
    hits = [[] for _ in task.queries]
    for line in output.splitlines():
        number, _, item, *_ = line.split(" ")
        hits[int(number)].append(item)
    return hits


def counted(query, hits, task, depth):
    """Returns the hits that count, best first."""
    if task.single:
        hits = list(dict.fromkeys(item.rsplit("#", 1)[0] for item in hits))
    if "judged" in query:
        # BM25 does not find candidates without common words. They follow in random order.
        hits = [item for item in hits if item in query["judged"]]
        rest = sorted(query["judged"] - set(hits))
        random.Random(0).shuffle(rest)
        hits += rest
    return [item for item in hits if item not in query.get("excluded", ())][:depth]


def measures(query, hits, task, depth):
    found = np.array([item in query["relevant"] for item in counted(query, hits, task, depth)], bool)
    ranks = np.flatnonzero(found) + 1
    reciprocal = 1 / ranks[0] if len(ranks) else 0.0
    if task.single:
        return {"MRR": reciprocal, "hit@1": float(found[:1].sum())}
    precisions = np.arange(1, len(ranks) + 1) / ranks
    return {"MAP": precisions.sum() / len(query["relevant"]), "MRR": reciprocal, "P@5": found[:5].sum() / 5}


def difference(first, second, limit):
    """Returns the mean difference of two lists in points, with its 95% bootstrap interval."""
    values = 100 * (np.array(first) - np.array(second))
    draws = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.percentile(values[draws].mean(1), [2.5, 97.5])
    mark = " !" if values.mean() < -limit else ""
    return f"{values.mean():+.1f} ({low:+.1f} to {high:+.1f}){mark}"


def report(task, results, names):
    for measure in results["default"][0]:
        values = {name: [query[measure] for query in results[name]] for name in names}
        better = max(("bm25", "dense"), key=lambda name: np.mean(values[name]))
        cells = [f"{100 * np.mean(values[name]):.1f}" for name in names]
        cells.append(difference(values["default"], values[better], 1.0))
        limit = 0.3 if task.strict and measure == "MAP" else float("inf")
        cells.append(difference(values["default"], values["weighted"], limit))
        print(f"| {task.name} | {len(task.queries)} | {measure} | {' | '.join(cells)} |", flush=True)


def show(task, hits, texts, depth, count):
    """Prints the first hits of some queries, with `+` for the relevant ones, to read them."""
    for query, found in list(zip(task.queries, hits))[:count]:
        request = query["request"]
        for turn in request.get("context", []):
            print(f"      {turn}")
        text = request.get("query") or texts[request["like"]]
        print(f"  ? {text[:200]}")
        for item in counted(query, found, task, depth)[:5]:
            print(f"    {'+' if item in query['relevant'] else '-'} {item}  {texts[item][:200]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="turnwise")
    parser.add_argument("data", help="folder with the unpacked data")
    parser.add_argument("--only", metavar="NAME,…", help=f"sets to measure: {', '.join(SETS)}")
    parser.add_argument("--model", help="model of the English sets [default: the program's default]")
    parser.add_argument("--chinese-model", help="multilingual model of the Chinese sets [default: DATA/e5]")
    rows_help = 'more columns: options of `search`, such as "--fusion rrf"; begin a flag with a space: " --exact"'
    parser.add_argument("--rows", nargs="+", default=[], metavar="OPTIONS", help=rows_help)
    parser.add_argument("--depth", type=int, help="number of hits that count, at most the depth of the set")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the first answers to N queries")
    options = parser.parse_intermixed_args()
    program, data = (os.path.abspath(path) for path in (options.program, options.data))
    absolute = lambda model: os.path.abspath(model) if model and os.sep in model else model
    rows = {**ROWS, **{row: row for row in options.rows}}
    chosen = options.only.split(",") if options.only else list(SETS)
    for name in chosen:
        if name not in SETS:
            sys.exit(f"no set {name}; the sets are {', '.join(SETS)}")
    print(f"| set | queries | measure | {' | '.join(rows)} | default − better list | default − weighted |")
    print("|---|" + "--:|---|" + "--:|" * (len(rows) + 2))
    start, skipped = time.time(), []
    for name in chosen:
        load, chinese = SETS[name]
        model = absolute(options.model)
        try:
            if chinese:
                model = absolute(options.chinese_model) or os.path.join(data, "e5")
                if os.sep in model and not os.path.isdir(model):
                    raise Missing(f"no multilingual model in {model}")
            dialogues, tasks = load(data)
        except Missing as reason:
            skipped.append(f"{name}: skipped, {reason}")
            continue
        texts = {f"{d['id']}#{n}": turn["text"] for d in dialogues for n, turn in enumerate(d["turns"], 1)}
        texts.update((d["id"], " / ".join(turn["text"] for turn in d["turns"])) for d in dialogues)
        with tempfile.TemporaryDirectory() as folder:
            index(program, folder, dialogues, model)
            for task in tasks:
                depth = min(task.depth, options.depth or task.depth)
                if any("judged" in query for query in task.queries):
                    depth = task.depth
                results = {}
                for row, text in rows.items():
                    hits = search(program, folder, task, depth, shlex.split(text))
                    results[row] = [measures(q, found, task, depth) for q, found in zip(task.queries, hits)]
                    if options.show and row == "default":
                        show(task, hits, texts, depth, options.show)
                report(task, results, list(rows))
    print("\n".join(["", *skipped, f"{time.time() - start:.0f} s"]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares ways to search in long conversations, on LoCoMo: which vectors and which words represent a turn?

Usage: trials.py TURNWISE FOLDER

TURNWISE is the program, which encodes the texts. FOLDER contains LoCoMo's conversations as JSON files. Each question
searches the turns of its own conversation. Prints the evidence recall at 5 (R@5) and hit@5 in percent with 95% bootstrap
intervals over the questions. The computations are in NumPy, so that a new idea needs no change of the program.
"""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import snowballstemmer

PROGRAM, FOLDER = sys.argv[1:3]
STEMMER = snowballstemmer.stemmer("english")
FUNCTION_WORDS = set(
    "a an and are as at be been but by did do does for from had has have he her hers him his how i if in into is it its "
    "me my of on or our she so such that the their them then there these they this to was we were what when where which "
    "who whom whose why will with would you your yours am being not no than too very can could should just about also "
    "any all some i'm it's don't".split())


def load(path):
    """Returns the turns of a conversation and its questions with the indexes of their evidence turns."""
    sample = json.load(open(path, encoding="utf-8"))
    talk = sample.get("conversation", sample)
    turns, index = [], {}
    for n in sorted(int(m[1]) for m in (re.fullmatch(r"session_(\d+)", key) for key in talk) if m):
        for turn in talk[f"session_{n}"]:
            index[turn["dia_id"]] = len(turns)
            picture = turn.get("blip_caption")
            text = turn["text"] + (f" [shares {picture}]" if picture else "")
            turns.append({"speaker": turn["speaker"], "text": text, "session": n})
    questions = []
    for question in sample["qa"]:
        ids = (f"D{a}:{int(b)}" for e in question.get("evidence", []) for a, b in re.findall(r"D:?(\d+):(\d+)", e))
        evidence = sorted({index[i] for i in ids if i in index})
        if question["category"] != 5 and evidence:
            questions.append((question["question"], evidence))
    return turns, questions


vectors = {}


def encode(texts):
    """Returns the unit vectors of texts, as rows."""
    texts = [" ".join(text.split()) or "." for text in texts]
    new = [text for text in dict.fromkeys(texts) if text not in vectors]
    if new:
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "vectors.npy")
            with open(source, "w", encoding="utf-8") as file:
                for n, text in enumerate(new):
                    file.write(json.dumps({"id": f"t{n}", "turns": [{"text": text}]}) + "\n")
            subprocess.run([PROGRAM, "embed", source, "-o", target, "--quiet"], check=True, capture_output=True)
            vectors.update(zip(new, np.load(target).astype(np.float32)))
    return unit(np.stack([vectors[text] for text in texts]))


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-9)


def words(text, plain=False):
    found = [re.sub(r"'s$", "", word) for word in re.findall(r"[a-z0-9]+(?:'[a-z]+)?", text.lower())]
    return found if plain else STEMMER.stemWords([word for word in found if word not in FUNCTION_WORDS])


class Bm25:
    """BM25 of a list of documents, each a list of words."""

    def __init__(self, documents):
        self.count = len(documents)
        lengths = np.array([len(document) for document in documents], float)
        norm = 1.2 * (0.25 + 0.75 * lengths / max(lengths.mean(), 1e-9))
        postings = collections.defaultdict(list)
        for n, document in enumerate(documents):
            for term, frequency in collections.Counter(document).items():
                postings[term].append((n, frequency))
        self.scores = {}
        for term, found in postings.items():
            at, frequency = np.array([n for n, _ in found]), np.array([f for _, f in found], float)
            idf = np.log(1 + (self.count - len(found) + 0.5) / (len(found) + 0.5))
            self.scores[term] = at, idf * frequency / (frequency + norm[at])

    def terms(self, query):
        """Returns the score of each term of the query in each document: one row per term."""
        found = [self.scores[term] for term in sorted(set(query)) if term in self.scores]
        rows = np.zeros((max(len(found), 1), self.count))
        for row, (at, scores) in zip(rows, found):
            row[at] = scores
        return rows


class Conversation:
    def __init__(self, path):
        self.turns, self.questions = load(path)
        self.sessions = np.array([turn["session"] for turn in self.turns])
        self.names = {turn["speaker"] for turn in self.turns}
        self.spoken = [f"{turn['speaker']}: {turn['text']}" for turn in self.turns]

    def shifted(self, rows, distance):
        """Returns for each turn the row of the turn at a distance in the same session; zeros if there is none."""
        at = np.arange(len(self.turns)) + distance
        inside = (at >= 0) & (at < len(self.turns))
        at = np.clip(at, 0, len(self.turns) - 1)
        inside &= self.sessions[at] == self.sessions
        return np.where(inside.reshape(-1, *[1] * (rows.ndim - 1)), rows[at], 0)

    def window(self, texts, distances):
        """Returns for each turn the texts at the distances in the same session, joined."""
        near = lambda n, d: 0 <= n + d < len(texts) and self.sessions[n + d] == self.sessions[n]
        return [" ".join(texts[n + d] for d in distances if near(n, d)) for n in range(len(texts))]

    def smoothed(self, rows, weights):
        return unit(sum(weight * self.shifted(rows, distance) for distance, weight in weights.items()))

    def without_names(self, question):
        rest = re.sub(r"\b(%s)\b('s)?" % "|".join(map(re.escape, self.names)), " ", question)
        return " ".join(rest.split())

    def named(self, question):
        return np.array([float(turn["speaker"] in question) for turn in self.turns])


DENSE = {0: 1, -1: 0.5, 1: 0.4, -2: 0.25, 2: 0.2}
LEXICAL = {0: 1, -1: 0.8, 1: 0.6, -2: 0.6, 2: 0.4, -3: 0.4, 3: 0.2}


def trials(talk):
    """Yields the name of each trial, and the scores of all turns for each question."""
    questions = [question for question, _ in talk.questions]
    texts = [turn["text"] for turn in talk.turns]
    plain, spoken = encode(texts), encode(talk.spoken)
    window = encode(talk.window(talk.spoken, (-1, 0, 1)))
    asked, stripped = encode(questions), encode([talk.without_names(question) for question in questions])
    dense = {
        "dense: text": plain @ asked.T,
        "dense: speaker and text": spoken @ asked.T,
        "dense: window of 3 turns with speakers": window @ asked.T,
        "dense: two vectors, speaker and text + 0.5 window": (spoken + 0.5 * window) @ asked.T,
        "dense: text, smoothed over neighbors": talk.smoothed(plain, DENSE) @ asked.T,
        "dense: speaker and text, smoothed": talk.smoothed(spoken, DENSE) @ asked.T,
        "dense: text; query without names": plain @ stripped.T,
        "dense: text, smoothed; query without names": talk.smoothed(plain, DENSE) @ stripped.T,
        "dense: speaker and text, smoothed; query without names": talk.smoothed(spoken, DENSE) @ stripped.T,
    }
    for name, scores in dense.items():
        yield name, scores.T
    def lexical(texts, plain=False):
        index = Bm25([words(text, plain) for text in texts])
        return [index.terms(words(question, plain)) for question in questions]

    unstemmed, turn, speaker = lexical(texts, plain=True), lexical(texts), lexical(talk.spoken)
    wide = lexical(talk.window(texts, range(-2, 3)))
    named = [talk.named(question) for question in questions]
    near = [
        np.max([weight * talk.shifted(rows.T, distance).T for distance, weight in LEXICAL.items()], axis=0).sum(0)
        for rows in turn
    ]
    total = lambda lists: [rows.sum(0) for rows in lists]
    both = [a + b for a, b in zip(total(turn), total(wide))]
    yield "BM25: text, without stems", total(unstemmed)
    yield "BM25: text", total(turn)
    yield "BM25: speaker and text", total(speaker)
    yield "BM25: text + window of 5 turns", both
    yield "BM25: each term in the best of 7 turns", near
    scaled = lambda lists: [score / (score + 10) for score in lists]
    smoothed = dense["dense: text, smoothed; query without names"].T
    join = lambda first, second, weight, name: [
        d + weight * s + name * n for d, s, n in zip(first, scaled(second), named)]
    yield "fusion: text + 0.3 text (--fusion weighted)", join(dense["dense: text"].T, total(unstemmed), 0.3, 0)
    yield "fusion: smoothed + 0.75 text", join(smoothed, total(turn), 0.75, 0)
    yield "fusion: smoothed + 0.75 (text + window)", join(smoothed, both, 0.75, 0)
    yield "fusion: smoothed + 0.75 best of 7 turns", join(smoothed, near, 0.75, 0)
    yield "fusion: smoothed + 0.75 best + 0.2 speaker (--fusion context)", join(smoothed, near, 0.75, 0.2)


def interval(values):
    random = np.random.default_rng(0)
    means = np.array(values)[random.integers(0, len(values), (2000, len(values)))].mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{100 * np.mean(values):5.1f} ({100 * low:.0f}–{100 * high:.0f})"


recall, hit = collections.defaultdict(list), collections.defaultdict(list)
for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
    talk = Conversation(path)
    for name, scores in trials(talk):
        for row, (_, evidence) in zip(scores, talk.questions):
            found = set(np.argsort(-np.asarray(row), kind="stable")[:5].tolist()) & set(evidence)
            recall[name].append(len(found) / len(evidence))
            hit[name].append(float(bool(found)))
print(f"{len(next(iter(recall.values())))} questions\n")
print("| trial | R@5 | hit@5 |\n|---|---|---|")
for name in recall:
    print(f"| {name} | {interval(recall[name])} | {interval(hit[name])} |")

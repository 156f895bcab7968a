#!/usr/bin/env python3
"""Compares ways to search in long conversations, on LoCoMo: which vectors and which words represent a turn?

Each question searches the turns of its own conversation. The script prints two tables. The first one has the measures
of `turnwise bench memory` in percent, with 95% bootstrap intervals over the questions. The second one has the
differences between some trials and the same trials without the idea that they test.

The computations are in NumPy, so that a new idea needs no change of the program. Only late chunking needs PyTorch and
transformers, which are not in requirements.txt. Its rows are skipped without `--late-chunking`.
"""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import tempfile

import numpy as np
import snowballstemmer

STEMMER = snowballstemmer.stemmer("english")
FUNCTION_WORDS = set(
    "a an and are as at be been but by did do does for from had has have he her hers him his how i if in into is it its "
    "me my of on or our she so such that the their them then there these they this to was we were what when where which "
    "who whom whose why will with would you your yours am being not no than too very can could should just about also "
    "any all some i'm it's don't".split())


def load(path):
    """Returns the turns of a conversation, its questions with the evidence (indexes of turns), and its summaries."""
    sample = json.load(open(path, encoding="utf-8"))
    talk = sample.get("conversation", sample)
    turns, index = [], {}
    for n in sorted(int(m[1]) for m in (re.fullmatch(r"session_(\d+)", key) for key in talk) if m):
        for turn in talk[f"session_{n}"]:
            index[turn["dia_id"]] = len(turns)
            picture = turn.get("blip_caption")
            text = turn["text"] + (f" [shares {picture}]" if picture else "")
            turns.append({"speaker": turn["speaker"], "text": " ".join(text.split()), "session": n})
    questions = []
    for question in sample["qa"]:
        ids = (f"D{a}:{int(b)}" for e in question.get("evidence", []) for a, b in re.findall(r"D:?(\d+):(\d+)", e))
        evidence = sorted({index[i] for i in ids if i in index})
        if question["category"] != 5 and evidence:
            questions.append((question["question"], evidence))
    summaries = {turn["session"]: talk.get(f"session_{turn['session']}_summary") for turn in turns}
    return turns, questions, summaries if all(summaries.values()) else None


vectors = {}


def embed(dialogues, unit_of_text):
    """Returns the vectors of dialogues, each a list of texts; the unit is utterances or dialogues."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "vectors.npy")
        with open(source, "w", encoding="utf-8") as file:
            for n, texts in enumerate(dialogues):
                file.write(json.dumps({"id": f"t{n}", "turns": [{"text": text} for text in texts]}) + "\n")
        command = [options.program, "embed", source, "-o", target, "--of", unit_of_text, "--quiet"]
        subprocess.run(command, check=True, capture_output=True)
        return np.load(target).astype(np.float32)


def encode(texts):
    """Returns the unit vectors of texts, as rows."""
    texts = [" ".join(text.split()) or "." for text in texts]
    new = [text for text in dict.fromkeys(texts) if text not in vectors]
    if new:
        vectors.update(zip(new, embed([[text] for text in new], "utterances")))
    return unit(np.stack([vectors[text] for text in texts]))


class LateChunking:
    """The default model in PyTorch, which encodes a whole session and then pools the tokens of each turn."""

    # Tokens of a window, without [CLS] and [SEP].
    LENGTH = 254

    def __init__(self):
        import torch
        import transformers

        # With several threads, PyTorch is slow on a machine that has other work.
        torch.set_num_threads(1)
        self.torch = torch
        name = "sentence-transformers/all-MiniLM-L6-v2"
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True)
        self.model = transformers.AutoModel.from_pretrained(name).eval()

    def tokens(self, ids):
        """Returns the vector of each token, from the window in which the token is farthest from an edge."""
        last = max(len(ids) - self.LENGTH, 0)
        starts = [*range(0, last, self.LENGTH // 2), last]
        windows = [ids[start : start + self.LENGTH] for start in starts]
        at = np.arange(len(ids))
        # The edges of the session are not edges of a window: there is no more context beyond them.
        before = np.array([np.where(start == 0, len(ids), at - start) for start in starts])
        after = np.array([np.where(start == last, len(ids), start + self.LENGTH - 1 - at) for start in starts])
        nearest = np.minimum(before, after)
        inside = np.array([(at >= start) & (at < start + self.LENGTH) for start in starts])
        best = np.where(inside, nearest, -1).argmax(0)
        rows = np.zeros((len(ids), self.model.config.hidden_size), np.float32)
        first, second = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        for n, (start, window) in enumerate(zip(starts, windows)):
            with self.torch.inference_mode():
                output = self.model(self.torch.tensor([[first, *window, second]])).last_hidden_state[0, 1:-1].numpy()
            chosen = np.flatnonzero(best == n)
            rows[chosen] = output[chosen - start]
        return rows

    def encode(self, lines, skipped):
        """Returns the unit vectors of the lines of a session, and those without the first `skipped` characters."""
        text = "\n".join(lines)
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        rows, starts = self.tokens(found["input_ids"]), np.array([start for start, _ in found["offset_mapping"]])
        whole, rest, begin = [], [], 0
        for line, skip in zip(lines, skipped):
            end = begin + len(line)
            whole.append(rows[(starts >= begin) & (starts < end)].mean(0))
            rest.append(rows[(starts >= begin + skip) & (starts < end)].mean(0))
            begin = end + 1
        return unit(np.stack(whole)), unit(np.stack(rest))


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
        self.turns, self.questions, self.summaries = load(path)
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

    def by_session(self):
        """Returns the sessions in order, each as the indexes of its turns."""
        return [np.flatnonzero(self.sessions == session) for session in np.unique(self.sessions)]

    def spread(self, rows):
        """Returns for each turn the row of its session."""
        return rows[np.unique(self.sessions, return_inverse=True)[1]]

    def late(self, encoder, texts, skipped):
        """Returns the late-chunked unit vectors of all turns, and those without the first `skipped` characters."""
        found = [encoder.encode([texts[n] for n in at], [skipped[n] for n in at]) for at in self.by_session()]
        return [np.concatenate(rows) for rows in zip(*found)]

    def without_names(self, question):
        rest = re.sub(r"\b(%s)\b('s)?" % "|".join(map(re.escape, self.names)), " ", question)
        return " ".join(rest.split())

    def named(self, question):
        return np.array([float(turn["speaker"] in question) for turn in self.turns])


DENSE = {0: 1, -1: 0.5, 1: 0.4, -2: 0.25, 2: 0.2}
LEXICAL = {0: 1, -1: 0.8, 1: 0.6, -2: 0.6, 2: 0.4, -3: 0.4, 3: 0.2}


# Weights of the score of a session.
SESSION = (0.1, 0.2, 0.4)


def trials(talk, encoder):
    """Yields trials: name, scores of all turns for each question, and the name of the trial to compare with or None."""
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
        yield name, scores.T, None

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
    yield "BM25: text, without stems", total(unstemmed), None
    yield "BM25: text", total(turn), None
    yield "BM25: speaker and text", total(speaker), None
    yield "BM25: text + window of 5 turns", both, None
    yield "BM25: each term in the best of 7 turns", near, None
    scaled = lambda lists: [score / (score + 10) for score in lists]
    smoothed = dense["dense: text, smoothed; query without names"].T
    join = lambda first, second, weight, name: [
        d + weight * s + name * n for d, s, n in zip(first, scaled(second), named)]
    yield "fusion: text + 0.3 text (--fusion weighted)", join(dense["dense: text"].T, total(unstemmed), 0.3, 0), None
    yield "fusion: smoothed + 0.75 text", join(smoothed, total(turn), 0.75, 0), None
    yield "fusion: smoothed + 0.75 (text + window)", join(smoothed, both, 0.75, 0), None
    yield "fusion: smoothed + 0.75 best of 7 turns", join(smoothed, near, 0.75, 0), None
    best = "fusion: smoothed + 0.75 best + 0.2 speaker (--fusion context)"
    fused = join(smoothed, near, 0.75, 0.2)
    yield best, fused, None

    members = talk.by_session()
    whole = unit(embed([[texts[n] for n in at] for at in members], "dialogues")) @ stripped.T
    joined = lexical([" ".join(texts[n] for n in at) for at in members])
    sessions = {
        "session vector": talk.spread(whole).T,
        "session BM25": [talk.spread(scores) for scores in scaled(total(joined))],
    }
    sessions["session vector and BM25"] = [a + b for a, b in zip(*sessions.values())]
    if talk.summaries:
        summaries = encode([talk.summaries[session] for session in np.unique(talk.sessions)])
        sessions["vector of LoCoMo's session summary"] = talk.spread(summaries @ stripped.T).T
    for name, scores in sessions.items():
        for weight in SESSION:
            yield f"context fusion + {weight} {name}", [a + weight * b for a, b in zip(fused, scores)], best
    for weight in SESSION:
        name = "dense: text, smoothed; query without names"
        yield f"{name}; + {weight} session vector", smoothed + weight * sessions["session vector"], name
    for weight in SESSION:
        rows = [a + weight * b for a, b in zip(scaled(near), sessions["session BM25"])]
        yield f"BM25: best of 7 turns + {weight} session BM25", rows, "BM25: each term in the best of 7 turns"

    if not encoder:
        return
    late_text, _ = talk.late(encoder, texts, [0] * len(texts))
    late_spoken, late_said = talk.late(encoder, talk.spoken, [len(turn["speaker"]) + 2 for turn in talk.turns])
    kinds = {
        "text": (late_text, plain, "text"),
        "speaker and text": (late_spoken, spoken, "speaker and text"),
        "text, speakers as context": (late_said, plain, "text"),
    }
    for kind, (late, single, base) in kinds.items():
        for way, rows in {"late": late, "half late, half plain": unit(late + single)}.items():
            name = f"{way}: {kind}"
            near_by = talk.smoothed(rows, DENSE)
            yield name, (rows @ asked.T).T, f"dense: {base}"
            if base == "text":
                yield f"{name}; query without names", (rows @ stripped.T).T, "dense: text; query without names"
            yield (f"{name}, smoothed; query without names", (near_by @ stripped.T).T,
                   f"dense: {base}, smoothed; query without names")
            yield f"context fusion with {name}", join((rows @ stripped.T).T, near, 0.75, 0.2), best
            yield f"context fusion with {name}, smoothed", join((near_by @ stripped.T).T, near, 0.75, 0.2), best


MEASURES = ("R@5", "R@10", "hit@5", "MRR", "session R@5", "session R@10")


def measures(scores, evidence, sessions):
    """Returns the measures of one question, as `turnwise bench memory` defines them."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    places = np.flatnonzero(np.isin(order, evidence))
    ranked = list(dict.fromkeys(sessions[order[:100]].tolist()))
    wanted = set(sessions[evidence].tolist())
    recall = lambda k: np.mean(np.isin(evidence, order[:k]))
    session_recall = lambda k: len(wanted & set(ranked[:k])) / len(wanted)
    first = 1 / (1 + places[0]) if places[0] < 100 else 0
    return recall(5), recall(10), float(places[0] < 5), first, session_recall(5), session_recall(10)


def interval(values, form):
    """Formats the mean of each measure in percent, with its 95% bootstrap interval over the questions."""
    random = np.random.default_rng(0)
    means = values[random.integers(0, len(values), (2000, len(values)))].mean(1)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return " | ".join(form.format(*(100 * x for x in column)) for column in zip(values.mean(0), low, high))


def table(first, rows):
    print(f"| {' | '.join([*first, *MEASURES])} |\n|{'---|' * (len(first) + len(MEASURES))}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def late_chunking():
    """Returns the encoder for late chunking, or None, with the reason in a message."""
    if not options.late_chunking:
        return print("late chunking: skipped, --late-chunking is not given\n")
    try:
        return LateChunking()
    except (ImportError, OSError) as error:
        return print(f"late chunking: skipped, {str(error).splitlines()[0]}\n")


def main():
    encoder = late_chunking()
    results, compared = collections.defaultdict(list), {}
    for path in sorted(glob.glob(os.path.join(options.folder, "*.json"))):
        talk = Conversation(path)
        for name, scores, base in trials(talk, encoder):
            compared[name] = base
            for row, (_, evidence) in zip(scores, talk.questions):
                results[name].append(measures(row, evidence, talk.sessions))
    results = {name: np.array(values) for name, values in results.items()}
    print(f"{len(next(iter(results.values())))} questions\n")
    table(["trial"], ([name, interval(values, "{:.1f} ({:.0f}–{:.0f})")] for name, values in results.items()))
    print()
    table(["trial", "compared with"], (
        [name, base, interval(results[name] - results[base], "{:+.1f} ({:+.1f} to {:+.1f})")]
        for name, base in compared.items() if base))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="turnwise, which encodes the texts")
    parser.add_argument("folder", help="folder with the conversations of LoCoMo as JSON files")
    parser.add_argument("--late-chunking", action="store_true", help="add the rows of late chunking")
    options = parser.parse_args()
    main()

"""Writes what the benchmark encodes: 5,000 utterances of 3-60 tokens, 500 dialogues of 100-400, 200 short queries.

    python texts.py --model FOLDER WORK

One text a line, into WORK/utterances.txt, dialogues.txt and queries.txt; always the same for the same corpora and
tokenizer. They come from SGD dev and BANKING77 where ../shared/data has them, else from our own samples, whose turns
are then cut and joined until there are enough.
"""

import argparse
import pathlib
import random

import corpora
from tokenizers import Tokenizer

UTTERANCES, DIALOGUES, QUERIES = 5000, 500, 200


def clean(text):
    return " ".join(text.split())


def of_length(tokenizer, texts, shortest, longest):
    """Those of so many tokens, special ones counted, each once."""
    texts = sorted({clean(text) for text in texts} - {""})
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    return [text for text, length in zip(texts, lengths) if shortest <= length <= longest]


def spans(random, turns, count, lengths):
    """Spans of words out of the turns put end to end: as many as needed, for want of anything better."""
    words = [word for turn in turns for word in turn.split()]
    for _ in range(count):
        begin = random.randrange(len(words) - max(lengths))
        yield " ".join(words[begin : begin + random.choice(lengths)])


def draw(random, name, tokenizer, texts, count, shortest, longest, turns, words):
    fit = of_length(tokenizer, texts, shortest, longest)
    if len(fit) < count:
        fit += of_length(tokenizer, spans(random, turns, 4 * count, words), shortest, longest)
    if len(fit) < count:
        raise SystemExit(f"only {len(fit)} {name} of {shortest}-{longest} tokens, {count} are wanted")
    random.shuffle(fit)
    return fit[:count]


def distribution(name, tokenizer, texts):
    lengths = sorted(len(encoding.ids) for encoding in tokenizer.encode_batch(texts))
    at = lambda share: lengths[min(len(lengths) - 1, int(share * len(lengths)))]
    points = ", ".join(f"{at(p / 100)}" for p in (0, 10, 25, 50, 75, 90, 99, 100))
    print(f"{name}: {len(texts)} texts, {sum(lengths)} tokens, mean {sum(lengths) / len(lengths):.1f}; "
          f"at 0, 10, 25, 50, 75, 90, 99, 100%: {points}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True, type=pathlib.Path)
    arguments.add_argument("work", type=pathlib.Path)
    arguments = arguments.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    random_ = random.Random(77)
    dialogues = list(corpora.sgd(arguments.work)) or list(corpora.samples())
    banking = list(corpora.banking77(arguments.work))
    turns = [clean(turn) for dialogue in dialogues for turn in dialogue]
    print(f"from {len(dialogues)} dialogues and {len(banking)} sentences of BANKING77")

    parts = {
        "utterances": draw(random_, "utterances", tokenizer, turns + banking, UTTERANCES, 3, 60, turns, range(2, 41)),
        "dialogues": draw(random_, "dialogues", tokenizer, [" ".join(d) for d in dialogues], DIALOGUES, 100, 400,
                          turns, range(90, 300)),
        "queries": draw(random_, "queries", tokenizer, banking or turns, QUERIES, 5, 16, turns, range(4, 11)),
    }
    for name, texts in parts.items():
        (arguments.work / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
        distribution(name, tokenizer, texts)


if __name__ == "__main__":
    main()

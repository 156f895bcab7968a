"""Writes many short dialogues, in pieces: what a training corpus that does not fit in memory is measured with.

    python benchmarks/scale/chats.py chats --dialogues 1000000 --pieces 10

Each dialogue is drawn by the seed and its number: six turns of two speakers about one of two hundred things, with words that
nobody else says as often. The same command writes the same bytes.
"""

import argparse
import json
import pathlib
import random

SYLLABLES = "ba be bi bo da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri ro sa se si so ta te ti to".split()


def words(draw, count):
    return ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 4))) for _ in range(count)]


def dialogue(number, topics, common, seed):
    draw = random.Random(seed * 1_000_003 + number)
    topic = draw.choice(topics)
    turns = []
    for turn in range(6):
        said = draw.choices(common, k=draw.randint(3, 9)) + draw.choices(topic, k=draw.randint(1, 4))
        draw.shuffle(said)
        turns.append({"speaker": "ab"[turn % 2], "role": ("user", "agent")[turn % 2], "text": " ".join(said)})
    return {"id": f"chat-{number:09}", "turns": turns}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dialogues", type=int, default=1_000_000)
    parser.add_argument("--pieces", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    common, topics = words(draw, 2_000), [words(draw, 40) for _ in range(200)]
    given.folder.mkdir(parents=True, exist_ok=True)
    for piece in range(given.pieces):
        first = given.dialogues * piece // given.pieces
        last = given.dialogues * (piece + 1) // given.pieces
        with open(given.folder / f"{piece:04}.jsonl", "w") as out:
            for number in range(first, last):
                out.write(json.dumps(dialogue(number, topics, common, given.seed)) + "\n")


if __name__ == "__main__":
    main()

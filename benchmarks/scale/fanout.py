"""One index beside 64 indexes of its parts: what the answer, the wait and the loss of a part come to.

    python benchmarks/scale/fanout.py --program target/release/turnwise

Dialogues go to parts by the hash of their ids. The program answers the same queries from the one index and from every part,
one at a time, one thread, on this machine: that is measured. This script is what stands before the parts: it merges, and
says what is missing. That many parts are asked at once, that there are replicas, and whose answer is first is simulated, by
drawing from the measured times; there is no network in it. Ends with 1 if something that must hold does not.

Queries are turns of the corpus, drawn by the seed, or the lines of --queries. The encoder is fitted on the corpus, unless
--model names another one.
"""

import argparse
import collections
import hashlib
import json
import math
import pathlib
import random
import subprocess
import tempfile

import numpy

K = 10
PASSES = 5  # after one that warms up, every part is asked everything so often
ROUNDS = 100_000  # waits that are simulated for each row
HEDGE_AFTER = 95  # percentile of one part's times after which a replica is asked, too
DEEP = 30  # hits of each part that are scored again with statistics of all parts
K1, B = 1.2, 0.75

Hit = collections.namedtuple("Hit", "score dialogue turn")
Part = collections.namedtuple("Part", "number of index dialogues utterances")
failures = []


def must(holds, what):
    print(f"{'holds' if holds else 'DOES NOT HOLD'}: {what}")
    if not holds:
        failures.append(what)


def run(program, folder, *words):
    done = subprocess.run([str(program), *map(str, words)], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stderr}")
    return done.stdout


def build(program, folder, name, lines, model):
    """Makes an index of dialogues, one a line; answers its path."""
    (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    run(program, folder, "ingest", "-q", "-i", f"./{name}", "--no-encode", f"{name}.jsonl")
    run(program, folder, "encode", "-q", "-i", f"./{name}", "--of", "utterances", "--model", model)
    run(program, folder, "index", "build", "-q", "-i", f"./{name}")
    return f"./{name}"


def split(program, folder, corpus, count):
    """The lines of the corpus, all and by part: a dialogue's part is the hash of its id."""
    run(program, folder, "corpus", "convert", *corpus, "-o", "corpus.jsonl")
    every = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    parts = [[] for _ in range(count)]
    for line in every:
        digest = hashlib.blake2b(json.loads(line)["id"].encode(), digest_size=8).digest()
        parts[int.from_bytes(digest, "little") % count].append(line)
    return every, parts


def turns(lines):
    return sum(len(json.loads(line)["turns"]) for line in lines)


def ask(program, folder, index, queries, mode, k, *options):
    """The program's answers to all queries, one after another on one thread."""
    (folder / "queries.jsonl").write_text("".join(json.dumps({"query": query}) + "\n" for query in queries))
    words = ["search", "-q", "--threads", 1, "-i", index, "--queries", "queries.jsonl", "--format", "jsonl"]
    out = run(program, folder, *words, "--mode", mode, "-k", k, "--window", 0, *options)
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == len(queries)
    return answers


def hits(answer):
    return [Hit(hit["score"], hit["dialogue"], hit["turn"]["number"]) for hit in answer["hits"]]


def names(found):
    return [(hit.dialogue, hit.turn) for hit in found]


def milliseconds(answer):
    # The one who asks all parts encodes the query, once.
    return answer["milliseconds"] - answer["timings"]["encode"]


def merge(parts, answers, missing=()):
    """One response out of those of the parts; what did not answer is named."""
    best = sorted((hit for part in parts if part.number not in missing for hit in answers[part.number]), reverse=True)[:K]
    dialogues, utterances = sum(part.dialogues for part in parts), sum(part.utterances for part in parts)
    warnings = [
        f"part {part.number} of {part.of} did not answer: not looked at were its {part.dialogues:,} of {dialogues:,} dialogues "
        f"({part.utterances:,} of {utterances:,} utterances, {part.utterances / utterances:.1%})"
        for part in parts
        if part.number in missing
    ]
    return {"hits": best, "warnings": warnings}


def overlap(found, expected):
    """What part of the expected hits is found, in the mean over the queries that have any."""
    pairs = [(set(names(one)), set(names(other))) for one, other in zip(found, expected) if other]
    return sum(len(one & other) / len(other) for one, other in pairs) / len(pairs)


def sizes(program, folder, index, utterances):
    took = json.loads(run(program, folder, "index", "info", "-i", index, "--format", "json"))["bytes"]
    each = ", ".join(f"{name} {took[name] / utterances:.0f}" for name in ("log", "records", "tables", "lexical"))
    print(f"bytes of the single index an utterance, but for what depends on the vectors' width: {each}")


def same_answer(one, merged):
    print("\n## The answer\n")
    wrong = sum(a != b for a, b in zip(one, merged))
    print(f"dense, every vector scored: {len(one) - wrong} of {len(one)} merged answers are the single one, ids and scores")
    ties = sum(any(a.score == b.score for a, b in zip(found, found[1:])) for found in one)
    near = sum(any(0 < a.score - b.score < 1e-6 for a, b in zip(found, found[1:])) for found in one)
    print(f"answers with equal scores (by id, descending): {ties}; with scores nearer than 1e-6 that are not equal: {near}")
    must(wrong == 0, "by meaning, the merged answer is the single one")


def statistics(program, folder, parts, terms):
    """What words count over all parts, asked of each: utterances, mean length, in how many utterances a term is."""
    everything = sum(part.utterances for part in parts)
    having, tokens = collections.Counter(), 0.0
    for part in parts:
        mean = 0.0
        for answer in ask(program, folder, part.index, terms, "bm25", 1, "--explain"):
            for hit in answer["hits"]:
                for term in hit["explanation"]["terms"]:
                    mean = term["mean_length"]
                    ratio = math.exp(term["idf"]) - 1
                    if answer["query"] == term["term"]:
                        having[term["term"]] += round((part.utterances + 0.5 - 0.5 * ratio) / (1 + ratio))
        tokens += mean * part.utterances
    idf = {term: math.log(1 + (everything - n + 0.5) / (n + 0.5)) for term, n in having.items()}
    return idf, tokens / everything


def score_again(answer, idf, mean):
    """The hits of a part, scored as the single index would."""
    for hit in answer["hits"]:
        score = 0.0
        for term in hit["explanation"]["terms"]:
            often, length = term["frequency"], term["length"]
            score += idf.get(term["term"], 0.0) * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
        yield Hit(score, hit["dialogue"], hit["turn"]["number"])


def words(program, folder, index, parts, queries):
    one = [hits(answer) for answer in ask(program, folder, index, queries, "bm25", K)]
    own, shared = [{} for _ in queries], [{} for _ in queries]
    deep = ask(program, folder, parts[0].index, queries, "bm25", 1)
    terms = sorted({term for answer in deep for term in answer["terms"]})
    idf, mean = statistics(program, folder, parts, terms)
    for part in parts:
        for at, answer in enumerate(ask(program, folder, part.index, queries, "bm25", DEEP, "--explain")):
            own[at][part.number] = hits(answer)[:K]
            shared[at][part.number] = list(score_again(answer, idf, mean))
    mine = overlap([merge(parts, answers)["hits"] for answers in own], one)
    ours = overlap([merge(parts, answers)["hits"] for answers in shared], one)
    print(f"bm25, each part by its own statistics: {mine:.4f} of the single index's best {K}")
    print(f"bm25, the best {DEEP} of each part by the statistics of all: {ours:.4f}")
    print(f"which are, of each part, utterances, mean length, and in how many a term is (asked of {len(terms):,} terms)")
    must(ours > 0.99 and ours >= mine, "by words, shared statistics bring more than 0.99 of the single answer back")


def tail(times, limit):
    """The part of the times that is above a limit."""
    return 1 - numpy.searchsorted(times, limit, side="right") / len(times)


def waits(draw, parts, hedge_after):
    """Simulated waits for all of so many parts, without and with hedging; and the requests that hedging adds."""
    first, replica = draw(parts)
    late = first > hedge_after
    hedged = numpy.where(late, numpy.minimum(first, hedge_after + replica), first)
    return first.max(axis=1), hedged.max(axis=1), late.mean()


def latency(times, seed):
    """`times` are measured milliseconds: parts × passes × queries."""
    random_ = numpy.random.default_rng(seed)
    pool = numpy.sort(times.ravel())
    hedge_after = numpy.percentile(pool, HEDGE_AFTER)
    limit = hedge_after + numpy.median(pool)  # by then every other replica has answered that was asked

    def alone(parts):
        """Every part's time and its replica's have nothing to do with each other."""
        return [random_.choice(pool, (ROUNDS, parts)) for _ in range(2)]

    def together(parts):
        """A query is the same for all parts, and a replica is the same part in another pass."""
        which = random_.permuted(numpy.tile(numpy.arange(len(times)), (ROUNDS, 1)), axis=1)[:, :parts]
        query = random_.integers(times.shape[2], size=(ROUNDS, 1))
        one = random_.integers(PASSES, size=(ROUNDS, parts))
        other = (one + random_.integers(1, PASSES, size=(ROUNDS, parts))) % PASSES
        return times[which, one, query], times[which, other, query]

    print(f"\n## The wait\n\nmeasured: {pool.size:,} answers of a part in ms: ", end="")
    at = [50, HEDGE_AFTER, 99, 99.9]
    print(", ".join(f"p{p:g} {value:.3f}" for p, value in zip(at, numpy.percentile(pool, at))), f"and at most {pool[-1]:.3f}")
    print(f"simulated: {ROUNDS:,} waits a row; a replica is asked after {hedge_after:.3f} ms (p{HEDGE_AFTER})\n")
    print(f"| times | parts | hedged | p50 | p99 | p99.9 | requests a part | waits above {limit:.3f} ms | 1-(1-p)^n |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    apart, added, longer = [], [], []
    for what, draw in [("independent", alone), ("by query", together)]:
        for parts in sorted({1, min(8, len(times)), len(times)}):
            plain, hedged, more = waits(draw, parts, hedge_after)
            for label, wait, requests in [("no", plain, 1), ("yes", hedged, 1 + more)]:
                slow = (wait > limit).mean()
                each = tail(pool, limit) * (tail(pool, limit - hedge_after) if label == "yes" else 1)
                closed = 1 - (1 - each) ** parts
                values = " | ".join(f"{value:.3f}" for value in numpy.percentile(wait, [50, 99, 99.9]))
                shown = f"{closed:.4f}" if draw is alone else "–"
                print(f"| {what} | {parts} | {label} | {values} | {requests:.3f} | {slow:.4f} | {shown} |")
                if draw is alone:
                    apart.append(abs(slow - closed) / max(math.sqrt(closed * (1 - closed) / ROUNDS), 1 / ROUNDS))
            added.append(more)
            longer.append(numpy.percentile(hedged, 99.9) > numpy.percentile(plain, 99.9))
    print()
    must(max(apart) < 5, f"independent waits are as 1-(1-p)^n says (at most {max(apart):.1f} standard errors apart)")
    must(max(added) < 0.06, f"hedging adds about one request in twenty (at most {max(added):.4f})")
    must(not any(longer), "hedging makes no p99.9 longer")


def loss(parts, answers, one, seed):
    print("\n## The loss of a part\n")
    lost = {}
    for part in parts:
        lost[part.number] = 1 - overlap([merge(parts, each, {part.number})["hits"] for each in answers], one)
    gone = random.Random(seed).choice(parts)
    responses = [merge(parts, each, {gone.number}) for each in answers]
    print(f"the response: {json.dumps({'warnings': responses[0]['warnings']}, ensure_ascii=False)}")
    theirs = [set(names(each[gone.number])) for each in answers]
    left = [[hit for hit in found if (hit.dialogue, hit.turn) not in them] for found, them in zip(one, theirs)]
    kept = all(response["hits"][: len(rest)] == rest for response, rest in zip(responses, left))
    must(kept, "what is left of the single answer leads the response, in its order")
    said = all(f"part {gone.number} of {gone.of} did not" in "".join(response["warnings"]) for response in responses)
    must(said and not merge(parts, answers[0])["warnings"], "every response says what is missing, and a whole one nothing")
    share = gone.utterances / sum(part.utterances for part in parts)
    mean = sum(lost.values()) / len(parts)
    print(f"recall@{K} lost without part {gone.number}: {lost[gone.number]:.4f}; it held {share:.4f} of the utterances")
    print(f"recall@{K} lost without any one part: in the mean over all {mean:.4f} ", end="")
    print(f"(1/{len(parts)} is {1 / len(parts):.4f}), at best {min(lost.values()):.4f}, at worst {max(lost.values()):.4f}")
    must(abs(mean - 1 / len(parts)) < 1e-9, "what is lost in the mean is the share of one part")
    # All hits of a query may be of one dialogue, so that a query counts as one draw and not as ten.
    spread = math.sqrt(share * (1 - share) / len(one))
    near = abs(lost[gone.number] - share) <= 4 * spread
    must(near, f"what is lost is near to the share that is missing (within {4 * spread:.4f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default="target/release/turnwise")
    parser.add_argument("--corpus", type=pathlib.Path, nargs="+", default=[pathlib.Path("examples/support")])
    parser.add_argument("--queries", type=pathlib.Path, help="a query a line; so many are drawn as --count says")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--model", help="a model's name or folder")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    program, corpus = args.program.resolve(), [path.resolve() for path in args.corpus]
    with tempfile.TemporaryDirectory(prefix="fanout-") as name:
        folder = pathlib.Path(name)
        every, lines = split(program, folder, corpus, args.shards)
        if args.queries:
            texts = [line for line in args.queries.read_text(encoding="utf-8").splitlines() if line.strip()]
        else:
            texts = sorted({turn["text"] for line in every for turn in json.loads(line)["turns"]})
        queries = random.Random(args.seed).sample(texts, min(args.count, len(texts)))
        model = pathlib.Path(args.model).resolve() if args.model and pathlib.Path(args.model).exists() else args.model
        if not model:
            model = folder / "model"
            run(program, folder, "model", "fit", "-q", "--of", "utterances", "--dim", 128, "-o", model, "corpus.jsonl")
        index = build(program, folder, "one", every, model)
        parts = [
            Part(number, args.shards, build(program, folder, f"part-{number}", part, model), len(part), turns(part))
            for number, part in enumerate(lines)
            if part
        ]
        held = [part.utterances for part in parts]
        print(f"{len(every):,} dialogues, {sum(held):,} utterances; {len(parts)} of {args.shards} parts hold ", end="")
        print(f"{min(held):,} to {max(held):,} each, the others nothing; {len(queries)} queries; ", end="")
        print(f"model: {args.model or 'fitted'}")
        sizes(program, folder, index, sum(held))

        exact = [hits(answer) for answer in ask(program, folder, index, queries, "dense", K, "--exact")]
        walked = [hits(answer) for answer in ask(program, folder, index, queries, "dense", K)]
        answers = [{} for _ in queries]
        times = []
        for part in parts:
            for at, answer in enumerate(ask(program, folder, part.index, queries, "dense", K, "--exact")):
                answers[at][part.number] = hits(answer)
            asked = ask(program, folder, part.index, queries * (PASSES + 1), "dense", K)
            times.append([milliseconds(answer) for answer in asked[len(queries) :]])
        same_answer(exact, [merge(parts, each)["hits"] for each in answers])
        print(f"the single index's graph, as it is walked unasked, finds {overlap(walked, exact):.4f} of that")
        words(program, folder, index, parts, queries)
        latency(numpy.array(times).reshape(len(parts), PASSES, len(queries)), args.seed)
        loss(parts, answers, exact, args.seed)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()

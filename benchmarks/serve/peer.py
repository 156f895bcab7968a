"""The same search as people put it together in Python: FastAPI, sentence-transformers, faiss and bm25s.

    python benchmarks/serve/peer.py CORPUS.jsonl MODEL --port 7701 [--vectors FILE.npy]

`POST /v1/search` answers a `query` with the best `k` turns and those beside them, by `mode` (hybrid, dense, bm25), in the
arithmetic of turnwise: cosine + 0.3 × s/(s + 10), a hundred candidates of each list, the cosine worked out for all of
them. faiss walks an HNSW graph of the same size with as many candidates; bm25s has its numba backend; uvicorn its
fastest loop and parser; answers are written by orjson.
"""

import argparse
import json
import pathlib
import re
import unicodedata

import bm25s
import faiss
import fastapi
import numpy as np
import orjson
import pydantic
import sentence_transformers
import torch
import uvicorn

CANDIDATES = 100
EF = 128
# Words as turnwise takes them: in lower case, without apostrophes, and where none are written, pairs of letters.
UNSPACED = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
WORD = re.compile(f"[{UNSPACED}]+|[^\\W{UNSPACED}]+")
APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")


def words(text):
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    found = []
    for word in WORD.findall(APOSTROPHE.sub("", text.lower())):
        pairs = len(word) > 1 and re.match(f"[{UNSPACED}]", word)
        found.extend(word[n : n + 2] for n in range(len(word) - 1)) if pairs else found.append(word)
    return found


class Wanted(pydantic.BaseModel):
    query: str
    k: int = 10
    mode: str = "hybrid"
    window: int = 1


class Judged(pydantic.BaseModel):
    query: str
    mode: str
    k: int
    ids: list[str]


class Engine:
    def __init__(self, corpus, model, vectors):
        dialogues = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
        self.turns = [(d, n) for d in dialogues for n in range(len(d["turns"]))]
        self.places = {f"{d['id']}#{n + 1}": place for place, (d, n) in enumerate(self.turns)}
        texts = [d["turns"][n]["text"] for d, n in self.turns]
        self.model = sentence_transformers.SentenceTransformer(str(model), device="cpu")
        if vectors and vectors.exists():
            rows = np.load(vectors)
        else:
            rows = self.model.encode(texts, normalize_embeddings=True, batch_size=32)
            if vectors:
                np.save(vectors, rows)
        self.rows = np.ascontiguousarray(rows, dtype=np.float32)
        self.graph = faiss.IndexHNSWFlat(self.rows.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
        self.graph.hnsw.efConstruction = 128
        self.graph.add(self.rows)
        self.graph.hnsw.efSearch = EF
        self.words = bm25s.BM25(method="lucene", k1=1.2, b=0.75, backend="numba")
        self.words.index([words(text) for text in texts], show_progress=False)

    def asked(self, query):
        """The query's words, each once."""
        return [list(dict.fromkeys(words(query)))]

    def vector(self, query):
        return self.model.encode([query], normalize_embeddings=True, show_progress_bar=False)

    def judge(self, wanted):
        """What these turns score when everything is scored, and what the worst of the best `k` scores."""
        scores = np.zeros(len(self.turns))
        if wanted.mode != "bm25":
            scores += self.rows @ self.vector(wanted.query)[0]
        if wanted.mode != "dense":
            words = 2.2 * self.words.get_scores(self.asked(wanted.query)[0])
            scores += words if wanted.mode == "bm25" else 0.3 * words / (words + 10)
        worst = np.partition(scores, -wanted.k)[-wanted.k]
        return {"worst": float(worst), "scores": [float(scores[self.places[id]]) for id in wanted.ids]}

    def search(self, wanted):
        scores = {}
        k = max(CANDIDATES, wanted.k)
        if wanted.mode != "bm25":
            vector = self.vector(wanted.query)
            _, found = self.graph.search(vector, k)
            candidates = found[0]
        if wanted.mode != "dense":
            found, by_words = self.words.retrieve(self.asked(wanted.query), k=k, show_progress=False)
            # Tantivy multiplies by k1 + 1, as BM25 was written first.
            scores = {int(n): 2.2 * float(s) for n, s in zip(found[0], by_words[0]) if s > 0}
        if wanted.mode != "bm25":
            near = set(candidates.tolist())
            rest = np.array([n for n in scores if n not in near], dtype=candidates.dtype)
            candidates = np.concatenate([candidates, rest])
            cosines = self.rows[candidates] @ vector[0]
            words = np.array([scores.get(int(n), 0.0) for n in candidates])
            weight = 0.3 if wanted.mode == "hybrid" else 0.0
            fused = cosines + weight * words / (words + 10)
            order = np.argsort(-fused)[: wanted.k]
            best = [(int(candidates[n]), float(fused[n])) for n in order]
        else:
            best = sorted(scores.items(), key=lambda item: -item[1])[: wanted.k]
        return {"mode": wanted.mode, "hits": [self.hit(n, score, wanted.window) for n, score in best]}

    def hit(self, n, score, window):
        dialogue, turn = self.turns[n]
        turns = dialogue["turns"]
        return {
            "id": f"{dialogue['id']}#{turn + 1}",
            "dialogue": dialogue["id"],
            "score": score,
            "turn": turns[turn],
            "before": turns[max(0, turn - window) : turn],
            "after": turns[turn + 1 : turn + 1 + window],
            "domains": dialogue.get("domains", []),
        }


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--port", type=int, default=7701)
    parser.add_argument("--vectors", type=pathlib.Path, help="kept here from one time to the next")
    parser.add_argument("--prepare", action="store_true", help="make the vectors, and end")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    engine = Engine(arguments.corpus, arguments.model, arguments.vectors)
    if arguments.prepare:
        return
    faiss.omp_set_num_threads(arguments.threads)
    app = fastapi.FastAPI()

    # Not `async`, so that FastAPI runs it on threads of its own and goes on taking requests.
    @app.post("/v1/search")
    def search(wanted: Wanted):
        return fastapi.Response(orjson.dumps(engine.search(wanted)), media_type="application/json")

    @app.post("/judge")
    def judge(wanted: Judged):
        return engine.judge(wanted)

    @app.get("/health/ready")
    async def ready():
        return {}

    engine.search(Wanted(query="to be warm"))
    uvicorn.run(app, port=arguments.port, log_level="warning", access_log=False)


main()

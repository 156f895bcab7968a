"""One peer's side of compare.py: an index over vectors is built, or loaded, and searched by one thread.

    python side.py PEER BASE.npy QUERIES.npy SCORES.f32 FILE [PASSES]

SCORES has the score of each query's tenth. What is printed is a JSON object a line, as benchmarks/nearest.rs prints it.
"""

import json
import os
import sys
import time

import numpy as np

K = 10
EFS = [10, 12, 16, 20, 24, 28, 30, 32, 34, 36, 38, 40, 44, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 176, 192, 208, 224, 256, 288, 320, 384]
M, EF_CONSTRUCTION = 16, 128


class Hnswlib:
    def __init__(self, dim):
        import hnswlib

        self.index = hnswlib.Index(space="ip", dim=dim)

    def build(self, base):
        self.index.init_index(max_elements=len(base), ef_construction=EF_CONSTRUCTION, M=M)
        self.index.set_num_threads(1)
        self.index.add_items(base)

    def save(self, file):
        self.index.save_index(file)

    def load(self, file):
        self.index.load_index(file)
        self.index.set_num_threads(1)

    def settings(self):
        return [("ef", ef) for ef in EFS]

    def search(self, query, setting):
        self.index.set_ef(setting[1])
        return self.index.knn_query(query, k=K)[0][0]


class Usearch:
    def __init__(self, dim, dtype):
        from usearch.index import Index

        self.dtype = dtype
        self.index = Index(ndim=dim, metric="ip", dtype=dtype, connectivity=M, expansion_add=EF_CONSTRUCTION)

    def build(self, base):
        self.base = base
        self.index.add(np.arange(len(base)), base, threads=1)

    def save(self, file):
        self.index.save(file)

    def load(self, file):
        self.index.load(file)

    def settings(self):
        # Its 8-bit scores are coarse: the best are scored again by the vectors themselves.
        again = [20, 40] if self.dtype == "i8" else [K]
        return [("ef", ef, r) for ef in EFS for r in again if r <= max(ef, again[0])]

    def search(self, query, setting):
        self.index.expansion_search = setting[1]
        found = self.index.search(query, setting[2], threads=1).keys
        if setting[2] == K:
            return found
        found = found.astype(np.int64)
        return found[np.argsort(-(self.base[found] @ query))[:K]]


class Faiss:
    def __init__(self, dim, kind):
        import faiss

        faiss.omp_set_num_threads(1)
        self.faiss, self.kind = faiss, kind
        product = faiss.METRIC_INNER_PRODUCT
        self.index = {
            "hnsw": lambda: faiss.IndexHNSWFlat(dim, M, product),
            "sq8": lambda: faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_8bit, M, product),
            "ivf": lambda: faiss.index_factory(dim, "IVF1024,Flat", product),
        }[kind]()

    def build(self, base):
        if self.kind != "ivf":
            self.index.hnsw.efConstruction = EF_CONSTRUCTION
        self.index.train(base)
        self.index.add(base)

    def save(self, file):
        self.faiss.write_index(self.index, file)

    def load(self, file):
        self.index = self.faiss.read_index(file)

    def settings(self):
        return [("nprobe", n) for n in (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)] if self.kind == "ivf" else [("ef", ef) for ef in EFS]

    def search(self, query, setting):
        if self.kind == "ivf":
            self.index.nprobe = setting[1]
        else:
            self.index.hnsw.efSearch = setting[1]
        return self.index.search(query[None], K)[1][0]


PEERS = {
    "hnswlib": Hnswlib,
    "usearch f32": lambda dim: Usearch(dim, "f32"),
    "usearch f16": lambda dim: Usearch(dim, "f16"),
    "usearch i8": lambda dim: Usearch(dim, "i8"),
    "faiss HNSW": lambda dim: Faiss(dim, "hnsw"),
    "faiss HNSW SQ8": lambda dim: Faiss(dim, "sq8"),
    "faiss IVF": lambda dim: Faiss(dim, "ivf"),
}


def resident():
    """Bytes of this process that are in memory."""
    return int(open("/proc/self/statm").read().split()[1]) * 4096


def main():
    name, base, queries, tenths, file = sys.argv[1:6]
    passes = int(sys.argv[6]) if len(sys.argv) > 6 else 3
    base, queries = np.load(base), np.load(queries)
    peer, built = PEERS[name](base.shape[1]), False
    if not os.path.exists(file):
        clock, cpu = time.perf_counter(), time.process_time()
        peer.build(base)
        print(json.dumps({"build_seconds": time.perf_counter() - clock, "build_cpu_seconds": time.process_time() - cpu}))
        peer.save(file + ".half")
        os.rename(file + ".half", file)
        peer = PEERS[name](base.shape[1])
        built = True
    before = resident()
    peer.load(file)
    loaded = resident() - before
    peer.base = base
    # What is as near as the tenth counts: which of equally near ones is found does not matter.
    least = np.fromfile(tenths, "<f4") - 1e-6
    for setting in peer.settings():
        best, times, fastest = None, None, None
        for _ in range(passes):
            these, found = [], []
            cpu = time.process_time()
            for query in queries:
                started = time.perf_counter()
                found.append(peer.search(query, setting))
                these.append(time.perf_counter() - started)
            cpu = time.process_time() - cpu
            fastest = these if fastest is None else np.minimum(fastest, these)
            if best is None or cpu < best:
                best, times = cpu, these
        recall = np.mean([(base[f[f >= 0]] @ q >= l).sum() / K for f, q, l in zip(found, queries, least)])
        p50, p99 = np.percentile(times, [50, 99]) * 1e6
        told = {setting[0]: setting[1], "recall": recall, "qps_cpu": len(queries) / best, "p50_us": p50, "p99_us": p99}
        print(json.dumps(told | {"quiet_p99_us": np.percentile(fastest, 99) * 1e6}))
    # Memory that building has left is taken again by loading: it tells nothing then.
    if not built:
        print(json.dumps({"resident_bytes": loaded}))


main()

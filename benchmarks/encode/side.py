"""One side of the comparison in one process: loads, warms up, encodes, and prints one line of JSON.

    python side.py sentence-transformers|onnxruntime|openvino|openvino-f32 --model FOLDER [--onnx FILE] --input FILE --threads N --batch N

The line has the fields of `turnwise model bench --format json`.
"""

import argparse
import json
import os
import pathlib
import time

import numpy as np


class SentenceTransformers:
    def __init__(self, arguments):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(arguments.threads)
        self.model = SentenceTransformer(str(arguments.model), device="cpu")
        self.batch = arguments.batch

    def encode(self, texts):
        return self.model.encode(texts, batch_size=self.batch, show_progress_bar=False)

    def tokens(self, texts):
        # Two ways of versions apart to the same tokenizer.
        tokenizer = self.model.tokenizer
        return sum(len(ids) for ids in tokenizer(texts, truncation=True, max_length=self.model.max_seq_length)["input_ids"])


class OnnxRuntime:
    """Sorted by length, in batches padded to their longest, mean pooling in numpy: what a careful user writes."""

    def __init__(self, arguments):
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = arguments.threads
        settings.inter_op_num_threads = 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = onnxruntime.InferenceSession(str(arguments.onnx), settings, providers=["CPUExecutionProvider"])
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.read(arguments)

    def states(self, feed):
        return self.session.run(None, feed)[0]

    def read(self, arguments):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
        self.tokenizer.no_padding()
        limit = json.loads((arguments.model / "sentence_bert_config.json").read_text())["max_seq_length"]
        self.tokenizer.enable_truncation(limit)
        self.batch = arguments.batch

    def encode(self, texts):
        encodings = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(texts)), key=lambda n: -len(encodings[n]))
        vectors = None
        for begin in range(0, len(order), self.batch):
            rows = order[begin : begin + self.batch]
            longest = len(encodings[rows[0]])
            ids = np.zeros((len(rows), longest), np.int64)
            mask = np.zeros_like(ids)
            for row, n in enumerate(rows):
                ids[row, : len(encodings[n])] = encodings[n]
                mask[row, : len(encodings[n])] = 1
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            states = self.states({name: feed[name] for name in self.inputs})
            weights = mask.astype(np.float32)
            pooled = np.einsum("btd,bt->bd", states, weights) / weights.sum(1, keepdims=True)
            pooled /= np.linalg.norm(pooled, axis=1, keepdims=True).clip(1e-12)
            if vectors is None:
                vectors = np.empty((len(texts), pooled.shape[1]), np.float32)
            vectors[rows] = pooled
        return vectors

    def tokens(self, texts):
        return sum(len(encoding.ids) for encoding in self.tokenizer.encode_batch(texts))


class OpenVino(OnnxRuntime):
    """As ONNX Runtime, with the plain network. OpenVINO chooses the precision: bf16 where the processor has it."""

    precision = None

    def __init__(self, arguments):
        import openvino

        core = openvino.Core()
        settings = {"INFERENCE_NUM_THREADS": arguments.threads, "PERFORMANCE_HINT": "LATENCY"}
        if self.precision:
            settings["INFERENCE_PRECISION_HINT"] = self.precision
        self.model = core.compile_model(str(arguments.onnx), "CPU", settings)
        self.inputs = [i.get_any_name() for i in self.model.inputs]
        self.request = self.model.create_infer_request()
        self.read(arguments)

    def states(self, feed):
        return self.request.infer(feed)[0]


class OpenVinoF32(OpenVino):
    precision = "f32"


SIDES = {"sentence-transformers": SentenceTransformers, "onnxruntime": OnnxRuntime, "openvino": OpenVino, "openvino-f32": OpenVinoF32}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("kind", choices=[*SIDES])
    arguments.add_argument("--model", required=True, type=pathlib.Path)
    arguments.add_argument("--onnx", type=pathlib.Path)
    arguments.add_argument("--input", required=True, type=pathlib.Path)
    arguments.add_argument("--latency-input", dest="latency", type=pathlib.Path)
    arguments.add_argument("--threads", required=True, type=int)
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--vectors", type=pathlib.Path)
    arguments = arguments.parse_args()
    # The tokenizer's threads count as threads too.
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if arguments.threads > 1 else "false"

    side = SIDES[arguments.kind](arguments)
    texts = arguments.input.read_text("utf-8").splitlines()
    side.encode(texts[:64])

    wall, cpu = time.perf_counter(), time.process_time()
    vectors = side.encode(texts)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    result = {"seconds": wall, "cpu_seconds": cpu, "texts": len(texts), "tokens": side.tokens(texts)}

    if arguments.latency:
        queries = arguments.latency.read_text("utf-8").splitlines()
        for query in queries[:20]:
            side.encode([query])
        times = []
        for query in queries:
            begin = time.perf_counter()
            side.encode([query])
            times.append((time.perf_counter() - begin) * 1000)
        result["latency_ms"] = {"p50": float(np.percentile(times, 50)), "p95": float(np.percentile(times, 95))}
    if arguments.vectors:
        np.save(arguments.vectors, vectors)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

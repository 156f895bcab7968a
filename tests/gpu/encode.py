"""Throughput of sentence-transformers on a GPU: encode.py MODEL TEXTS PRECISION,… BATCH,… [DEVICE]

Prints one line of JSON per precision (f32, bf16, f16) and batch size: the seconds for all texts, after a warm-up.
Tokenizing counts, loading does not.
"""

import json
import pathlib
import sys
import time

import torch
from sentence_transformers import SentenceTransformer

model, texts, precisions, batches, *device = sys.argv[1:]
texts = pathlib.Path(texts).read_text("utf-8").splitlines()
dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
for precision in precisions.split(","):
    settings = {"torch_dtype": dtypes[precision]}
    encoder = SentenceTransformer(model, device=(device or ["cuda"])[0], model_kwargs=settings)
    for batch in map(int, batches.split(",")):
        # The warm-up has the same lengths as the texts.
        encoder.encode(texts[:: max(1, len(texts) // (4 * batch))], batch_size=batch, show_progress_bar=False)
        begun = time.perf_counter()
        encoder.encode(texts, batch_size=batch, show_progress_bar=False)
        seconds = time.perf_counter() - begun
        print(json.dumps({"precision": precision, "batch": batch, "seconds": seconds}), flush=True)

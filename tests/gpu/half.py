"""Copies a model folder without its weights, which become weights.npz with half the bits (bf16): half.py MODEL FOLDER."""

import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file

source, target = map(pathlib.Path, sys.argv[1:])
weights = lambda folder, names: [n for n in names if n.endswith((".bin", ".onnx", ".h5", ".safetensors", ".md"))]
shutil.copytree(source, target, ignore=weights)
# Rounded to the nearest bf16: the upper half of the bits of f32.
half = lambda t: ((np.ascontiguousarray(t).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
np.savez(target / "weights.npz", **{n: half(t) for n, t in load_file(source / "model.safetensors").items() if t.dtype == np.float32})

"""Exports a BERT model to ONNX as its users would run it: fused by ONNX Runtime's optimizer, f32 and int8.

    python export_onnx.py --model FOLDER WORK

Writes WORK/onnx/plain.onnx (not fused, for OpenVINO), f32.onnx, int8.onnx (dynamic, per channel) and int8-reduced.onnx (the same with 7-bit weights:
without VNNI, products of u8 and i8 are added up in 16 bits, which saturate with 8-bit weights).
"""

import argparse
import collections
import pathlib
import warnings

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
from transformers import AutoModel

FUSED = ("Attention", "EmbedLayerNormalization", "SkipLayerNormalization", "BiasGelu")


class Plain(torch.nn.Module):
    """The arithmetic of BERT with the weights of transformers' model, in the form in which the optimizer knows it."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.heads = model.config.num_attention_heads

    def split(self, x):
        shape = x.size()[:-1] + (self.heads, x.size(-1) // self.heads)
        return x.view(shape).permute(0, 2, 1, 3)

    def forward(self, input_ids, attention_mask, token_type_ids):
        e = self.model.embeddings
        positions = e.position_ids[:, : input_ids.size(1)]
        x = e.word_embeddings(input_ids) + e.token_type_embeddings(token_type_ids)
        x = e.LayerNorm(x + e.position_embeddings(positions))
        mask = (1.0 - attention_mask.unsqueeze(1).unsqueeze(2).to(torch.float32)) * -10000.0
        for layer in self.model.encoder.layer:
            a = layer.attention
            q, k, v = (self.split(f(x)) for f in (a.self.query, a.self.key, a.self.value))
            scores = torch.matmul(q, k.transpose(-1, -2)) / (x.size(-1) // self.heads) ** 0.5
            context = torch.matmul(torch.softmax(scores + mask, dim=-1), v).permute(0, 2, 1, 3).contiguous()
            context = context.view(context.size()[:-2] + (x.size(-1),))
            x = a.output.LayerNorm(a.output.dense(context) + x)
            x = layer.output.LayerNorm(layer.output.dense(layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x))) + x)
        return x


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True, type=pathlib.Path)
    arguments.add_argument("work", type=pathlib.Path)
    arguments = arguments.parse_args()
    folder = arguments.work / "onnx"
    folder.mkdir(parents=True, exist_ok=True)

    model = AutoModel.from_pretrained(arguments.model, attn_implementation="eager", add_pooling_layer=False).eval()
    config = model.config
    if config.model_type != "bert":
        raise SystemExit(f"{arguments.model} is a {config.model_type} model; this export knows bert alone")
    plain = Plain(model).eval()
    ids = torch.tensor([[101, 7592, 2088, 102], [101, 7592, 102, 0]])
    mask = (ids != 0).long()
    types = torch.zeros_like(ids)
    with torch.no_grad():
        apart = (plain(ids, mask, types) - model(ids, mask, types).last_hidden_state)[mask.bool()].abs().max().item()
    print(f"rewritten against transformers: {apart:.1e}")
    assert apart < 1e-5, "the rewritten forward is another model"

    raw = folder / "plain.onnx"
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(plain, (ids, mask, types), str(raw), input_names=names, output_names=["last_hidden_state"],
                          dynamic_axes=axes, opset_version=17, do_constant_folding=True, dynamo=False)
    options = FusionOptions("bert")
    optimized = optimizer.optimize_model(str(raw), model_type="bert", num_heads=config.num_attention_heads,
                                         hidden_size=config.hidden_size, optimization_options=options, opt_level=0)
    optimized.save_model_to_file(str(folder / "f32.onnx"))

    for name, reduced in (("int8", False), ("int8-reduced", True)):
        quantize_dynamic(str(folder / "f32.onnx"), str(folder / f"{name}.onnx"), per_channel=True,
                         reduce_range=reduced, weight_type=QuantType.QInt8,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    for name in ("f32", "int8", "int8-reduced"):
        kinds = collections.Counter(node.op_type for node in onnx.load(str(folder / f"{name}.onnx")).graph.node)
        print(f"{name}: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
        if name == "f32" and (missing := [kind for kind in FUSED if not kinds[kind]]):
            raise SystemExit(f"not fused: {', '.join(missing)}; the comparison would be unfair")


if __name__ == "__main__":
    main()

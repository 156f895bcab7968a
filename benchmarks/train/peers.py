#!/usr/bin/env python3
"""A step of DialogueCSE and of dial2vec: turnwise's beside PyTorch's, on the same examples, in turns, in one run.

    benchmarks/train/peers.py PROGRAM CORPUS MODEL [--frozen N] [--steps N] [--rounds N] [--objective NAME] [--dropout P]
        [--device cpu|cuda] [--precision f32|bf16]

PROGRAM is the benchmark's binary (`cargo bench --bench train --no-run` names it). PyTorch runs twice: padded, as people
write it (transformers' BertModel), and fed the same packed tokens (no padding; attention by groups of like length). Both
compute the same loss: with --dropout 0 the first losses are compared. In bf16, PyTorch runs under autocast.
"""

import argparse, json, subprocess, tempfile, time

import torch
import torch.nn.functional as F
from transformers import BertModel

parser = argparse.ArgumentParser()
parser.add_argument("program"), parser.add_argument("corpus"), parser.add_argument("model")
parser.add_argument("--frozen", type=int, default=0), parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--rounds", type=int, default=3), parser.add_argument("--objective", default="dialoguecse")
parser.add_argument("--dropout", type=float, default=0.1), parser.add_argument("--only", default="")
parser.add_argument("--device", default="cpu"), parser.add_argument("--precision", default="f32")
args = parser.parse_args()
# The tensors that the functions below create are on this device, too.
torch.set_default_device(args.device)
torch.set_num_threads(2)

common = ["--model", args.model, "--objective", args.objective, "--steps", str(args.steps)]
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run([args.program, "dump", args.corpus, file.name, *common], check=True)
    batches = json.load(open(file.name))
rate = {"dialoguecse": 5e-5, "dial2vec": 1e-5}[args.objective]


def fresh():
    model = BertModel.from_pretrained(args.model, add_pooling_layer=False, attn_implementation="sdpa",
                                      hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)
    model.to(args.device)
    model.train()
    frozen = [model.embeddings, *model.encoder.layer[: args.frozen]] if args.frozen else []
    for module in frozen:
        module.requires_grad_(False)
    decays = lambda name: not ("bias" in name or "LayerNorm" in name)
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [{"params": [p for n, p in named if decays(n)], "weight_decay": 0.01},
              {"params": [p for n, p in named if not decays(n)], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, 1 - s / args.steps))
    return model, optimizer, schedule


def padded(model, sequences):
    longest = max(map(len, sequences))
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros(len(sequences), longest, dtype=torch.long)
    for n, s in enumerate(sequences):
        ids[n, : len(s)], mask[n, : len(s)] = torch.tensor(s), 1
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    return states, mask


def packed(model, sequences, groups=6):
    """The same tokens end to end: products over all of them, attention in groups of like length."""
    order = sorted(range(len(sequences)), key=lambda n: len(sequences[n]))
    ordered = [sequences[n] for n in order]
    lengths = torch.tensor([len(s) for s in ordered])
    ids = torch.tensor([i for s in ordered for i in s])
    positions = torch.tensor([i for s in ordered for i in range(len(s))])
    e = model.embeddings
    x = e.word_embeddings(ids) + e.position_embeddings(positions) + e.token_type_embeddings.weight[0]
    x = e.dropout(e.LayerNorm(x))
    heads = model.config.num_attention_heads
    tokens, width = x.shape
    size = width // heads
    step = -(-len(ordered) // groups)
    plan, start = [], 0
    for first in range(0, len(ordered), step):
        own = lengths[first : first + step]
        count, longest = int(own.sum()), int(own.max())
        place = torch.arange(longest).expand(len(own), longest)
        mask = place < own[:, None]
        plan.append((start, count, len(own), longest, mask))
        start += count
    for layer in model.encoder.layer:
        a = layer.attention
        q, k, v = a.self.query(x), a.self.key(x), a.self.value(x)
        outs = []
        for first, count, rows, longest, mask in plan:
            def spread(t):
                full = t.new_zeros(rows, longest, width)
                full[mask] = t[first : first + count]
                return full.view(rows, longest, heads, size).transpose(1, 2)
            o = F.scaled_dot_product_attention(spread(q), spread(k), spread(v), mask[:, None, None, :],
                                               dropout_p=args.dropout if model.training else 0.0)
            outs.append(o.transpose(1, 2).reshape(rows, longest, width)[mask])
        x = a.output(torch.cat(outs), x)
        x = layer.output(layer.intermediate(x), x)
    # Back to rows of one length, in the order of the batch.
    longest = int(lengths.max())
    mask = torch.arange(longest)[None] < lengths[:, None]
    states = x.new_zeros(len(ordered), longest, width)
    states[mask] = x
    back = torch.tensor(order).argsort()
    return states[back], mask[back].long()


def mean(states, mask):
    mask = mask[..., None].float()
    return (states * mask).sum(-2) / mask.sum(-2)


def dialoguecse(states, mask, shape):
    """As the paper writes it: M = U·Rᵀ/√d, R̂ = M·R, means; on the padded rows."""
    losses, at, width = [], 0, states.shape[-1]
    for contexts in shape["contexts"]:
        u, um = states[at : at + contexts], mask[at : at + contexts]
        r, rm = states[at + contexts : at + contexts + shape["candidates"]], mask[at + contexts : at + contexts + shape["candidates"]]
        at += contexts + shape["candidates"]
        r = r * rm[..., None]
        m = torch.einsum("cud,krd->ckur", u, r) / width**0.5
        refined = torch.einsum("ckur,krd->ckud", m, r)
        seen = mean(refined, um[:, None].expand(-1, r.shape[0], -1)).mean(0)
        likeness = F.cosine_similarity(mean(r, rm), seen)
        losses.append(-F.log_softmax(likeness / 0.1, 0)[0])
    return torch.stack(losses).mean()


def dial2vec(states, mask, shape):
    losses, samples = [], shape["samples"]
    likeness = []
    for state, turns in zip(states, shape["turns"]):
        side = torch.full((state.shape[0],), -1)
        turn = torch.zeros(state.shape[0], dtype=torch.long)
        for start, end, s, n in turns:
            side[start:end], turn[start:end] = s, n
        near = (turn[:, None] - turn[None]).abs() <= shape["window"]
        own = [state * (side == s)[:, None] for s in (0, 1)]
        c = (own[1] @ own[0].T) * near
        both = []
        for s, matrix in ((0, c), (1, c.T)):
            cross = (matrix @ own[s]).sum(0) / max(int((side == 1 - s).sum()), 1)
            self_ = own[s].sum(0) / max(int((side == s).sum()), 1)
            both.append(F.cosine_similarity(self_, cross, dim=0))
        likeness.append(torch.stack(both))
    scores = torch.stack(likeness).view(-1, samples, 2)
    return -F.log_softmax(scores / 0.2, 1)[:, 0].sum(1).mean()


def torch_run(forward):
    model, optimizer, schedule = fresh()
    losses, seconds = [], []
    for batch in batches:
        begun = time.perf_counter()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            states, mask = forward(model, batch["sequences"])
        states = states.float()
        loss = {"dialoguecse": dialoguecse, "dial2vec": dial2vec}[args.objective](states, mask, batch["shape"])
        loss.backward()
        optimizer.step(), schedule.step(), optimizer.zero_grad()
        # Reading the loss waits for the GPU.
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - begun)
    return losses, seconds


def ours():
    command = [args.program, "time", args.corpus, *common, "--frozen", str(args.frozen), "--dropout", str(args.dropout),
               "--device", args.device, "--precision", args.precision]
    lines = [json.loads(l) for l in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
    return [l["loss"] for l in lines], [l["seconds"] for l in lines]


sides = {"turnwise": ours, "PyTorch, padded": lambda: torch_run(padded), "PyTorch, packed": lambda: torch_run(packed)}
sides = {n: f for n, f in sides.items() if not args.only or args.only in n or n == "turnwise"}
best, losses = {n: [] for n in sides}, {}
for _ in range(args.rounds):
    for name, run in sides.items():
        losses[name], seconds = run()
        # The first step warms up; the fastest of the others counts, in each place.
        best[name].append(seconds[1:] or seconds)
per_step = {n: sum(min(r[i] for r in rounds) for i in range(len(rounds[0]))) / len(rounds[0]) for n, rounds in best.items()}
tokens = sum(len(s) for b in batches for s in b["sequences"]) / len(batches)
rows = sum(len(b["sequences"]) * max(map(len, b["sequences"])) for b in batches) / len(batches)
print(f"{args.objective}, {tokens:.0f} tokens a step ({rows:.0f} with padding), {args.frozen} layers frozen, dropout {args.dropout}, {args.device}, {args.precision}")
for name, seconds in per_step.items():
    print(f"{name:18} {seconds * 1000:8.0f} ms   {per_step[name] / per_step['turnwise']:5.2f}×   losses {' '.join(f'{l:.4f}' for l in losses[name])}")

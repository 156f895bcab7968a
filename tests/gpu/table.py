"""Prints the results of device.py as Markdown: table.py RESULTS.json"""

import json
import pathlib
import sys

results = json.loads(pathlib.Path(sys.argv[1]).read_text())


def table(title, head, rows):
    print(f"**{title}**\n\n| {' | '.join(head)} |\n|{'---|' + '--:|' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print()


def section(name):
    found = {k: v for k, v in results.get(name, {}).items() if k != "stage_seconds"}
    if "error" in found:
        print(f"**{name}: failed**\n\n```\n{found['error']}\n```\n")
    return {} if "error" in found else found


machine = section("machine")
if machine:
    print(f"{machine['gpu']}, {machine['cores']} CPU cores; {machine['turnwise']}, PyTorch {machine['torch']}, "
          f"sentence-transformers {machine['sentence_transformers']}\n")

cosines = lambda name, c: [name, c["rows"], f"{c['mean_cosine']:.6f}", f"{c['min_cosine']:.6f}", f"{c['max_difference']:.1e}"]
HEAD = ["texts", "mean cosine", "min cosine", "max difference"]
if agreement := section("agreement"):
    table("Default model, compared with f32 on the CPU", ["precision", *HEAD], [cosines(*row) for row in agreement.items()])
if small := section("architectures"):
    table("Small models in f32, compared with sentence-transformers", ["model", *HEAD], [cosines(*row) for row in small.items()])
if objectives := section("objectives"):
    rows = []
    for objective, kinds in objectives.items():
        if "error" in kinds:
            rows.append([objective, "failed: " + kinds["error"].splitlines()[-1][:80], "", "", ""])
            continue
        for kind, row in kinds.items():
            rows.append([f"{objective}, {kind}", f"{row['loss']:.1e}", f"{row['first_gradient']:.1e}",
                         f"{row['seconds_per_step'] * 1000:.0f}", f"{row['cpu_seconds_per_step'] * 1000:.0f}"])
    table("Objectives, compared with f32 on the CPU",
          ["objective", "max difference of the loss, relative", "of the first gradient norm", "ms per step", "on the CPU"], rows)
for name in ("resume", "memory", "quality"):
    if found := section(name):
        print(f"**{name}**: " + ", ".join(f"{k} {v}" for k, v in found.items() if k != "losses") + "\n")
if encode := section("encode"):
    rows = []
    for case, found in encode.items():
        for precision in ("bf16", "f16", "f32"):
            if precision not in found:
                continue
            ours, theirs = found[precision]["turnwise"], found[precision]["sentence_transformers"]
            best = min((t for t in theirs), key=lambda t: t["seconds"]) if isinstance(theirs, list) else None
            speed = lambda seconds: f"{found['texts'] / seconds:,.0f}"
            rows.append([f"{case}, {precision}", speed(ours["seconds"]) if "seconds" in ours else "failed",
                         speed(best["seconds"]) if best else "failed", best["batch"] if best else "",
                         f"{best['seconds'] / ours['seconds']:.2f}" if best and "seconds" in ours else ""])
    table("Texts per second", ["model, texts, precision", "turnwise", "sentence-transformers", "its batch", "ratio"], rows)
for case, text in section("step_speed").items():
    print(f"**{case}**\n\n```text\n{text if isinstance(text, str) else text['error']}```\n")

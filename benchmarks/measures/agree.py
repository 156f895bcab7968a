"""Whether the standard tools give the numbers that turnwise gives: pytrec_eval, SciPy and scikit-learn.

    python3 -m venv V && V/bin/pip install -r tests/fixtures/measures/requirements.txt
    V/bin/python benchmarks/measures/agree.py TURNWISE [--seeds 25] [--runs FOLDER --results FOLDER]

TURNWISE is the program. Made-up rankings with many equal scores go through `turnwise eval -q` and pytrec_eval, and every line
must be the same. With --runs, what `turnwise bench … --export FOLDER` wrote is judged by the tools and compared with the
results that it kept (--results, benchmark-results): rankings by pytrec_eval, correlations by SciPy, clusters by scikit-learn.
The exit code is 1 where anything differs in the first four digits.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytrec_eval
import scipy.stats
import sklearn.metrics
from scipy.optimize import linear_sum_assignment

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/fixtures/measures"))
import reference  # noqa: E402

TREC = {"MAP": "map", "MRR": "recip_rank", "nDCG@10": "ndcg_cut_10", "R@100": "recall_100", "R@1": "recall_1", "R@2": "recall_2", "R@5": "recall_5"}
NEAR = 5e-5


def rows(path):
    """The cells of a table with a line of names, by name."""
    names, *lines = [line.split("\t") for line in path.read_text().splitlines()]
    return {name: [line[n] for line in lines] for n, name in enumerate(names)}


def made_up(program, seeds):
    """Every line of `eval -q` against pytrec_eval's, for rankings drawn with each seed."""
    lines = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for seed in range(seeds):
            qrels, run = reference.inputs(np.random.default_rng(seed))
            (folder / "qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, of in qrels.items() for d, g in of.items()))
            (folder / "run").write_text("".join(f"{q} Q0 {d} 0 {s} made-up\n" for q, of in run.items() for d, s in of.items()))
            names = ["num_ret", "num_rel", "num_rel_ret", "map", "Rprec", "bpref", "recip_rank", "iprec_at_recall", "P", "recall"]
            names += ["ndcg", "ndcg_cut", "map_cut", "success", "gm_map"]
            asked = [part for name in names for part in ("-m", name)]
            said = subprocess.run([program, "eval", folder / "qrels", folder / "run", "-q", *asked], check=True, capture_output=True, text=True)
            ours = {tuple(line.split("\t")[:2]): line.split("\t")[2] for line in map(str.rstrip, said.stdout.splitlines())}
            ours = {(name.strip(), query): value.strip() for (name, query), value in ours.items()}
            for line in reference.trec_eval(qrels, run):
                name, query, value = [cell.strip() for cell in line.split("\t")]
                if (name, query) in ours and name != "runid":
                    lines += 1
                    if ours[name, query] != value:
                        wrong += 1
                        print(f"seed {seed}: {name} of {query}: {ours[name, query]} here, {value} by pytrec_eval")
    print(f"{lines} lines of trec_eval for {seeds} made-up rankings, {wrong} differ")
    return lines == 0 or wrong > 0


def judged(path):
    """What pytrec_eval says of an exported run, in the mean over the queries."""
    qrels, run = {}, {}
    for line in path.with_suffix(".qrels").read_text().splitlines():
        query, _, document, grade = line.split()
        qrels.setdefault(query, {})[document] = int(grade)
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split(maxsplit=5)
        run.setdefault(query, {})[document] = float(score)
    # As single numbers of 32 bits are told apart by it, too, equal scores stay equal.
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", "recip_rank", "ndcg_cut", "recall"} | {"recall_1", "recall_2"})
    values = list(evaluator.evaluate(run).values())
    return {ours: np.mean([v[theirs] for v in values]) for ours, theirs in TREC.items() if theirs in values[0]}


def correlated(path):
    table = {name: np.array(values, float) for name, values in rows(path).items()}
    pairs = table["people"], table["ranker"]
    return {
        "Spearman": scipy.stats.spearmanr(*pairs).statistic,
        "Pearson": scipy.stats.pearsonr(*pairs).statistic,
        "Kendall": scipy.stats.kendalltau(*pairs).statistic,
    }


def related(path):
    table = rows(path)
    draws = np.array(table["draw"])
    same, score = np.array(table["same"], float), np.array(table["score"], float)
    each = [scipy.stats.spearmanr(score[draws == draw], same[draws == draw]).statistic for draw in dict.fromkeys(table["draw"])]
    return {"Spearman": np.mean(each)}


def clustered(path):
    table = rows(path)
    domains = table["domain"]
    values = {"purity": [], "NMI": [], "ARI": [], "accuracy": []}
    for name, clusters in table.items():
        if name.startswith("run"):
            counts = sklearn.metrics.cluster.contingency_matrix(domains, clusters)
            values["purity"].append(counts.max(axis=0).sum() / counts.sum())
            values["NMI"].append(sklearn.metrics.normalized_mutual_info_score(domains, clusters))
            values["ARI"].append(sklearn.metrics.adjusted_rand_score(domains, clusters))
            values["accuracy"].append(counts[linear_sum_assignment(-counts)].sum() / counts.sum())
    return {name: np.mean(of_runs) for name, of_runs in values.items()}


def exported(runs, results):
    """Everything that was exported against what was kept."""
    numbers = wrong = 0
    for ending, tool in {".run": judged, ".pairs.tsv": correlated, ".related.tsv": related, ".clusters.tsv": clustered}.items():
        for path in sorted(runs.glob(f"*{ending}")):
            kept = json.loads((results / f"{path.name.removesuffix(ending)}.json").read_text())
            ours = {value["measure"]: value["value"] for value in kept["values"]}
            for measure, value in tool(path).items():
                if measure in ours:
                    numbers += 1
                    if not abs(ours[measure] - value) < NEAR:
                        wrong += 1
                        print(f"{path.name}: {measure} is {ours[measure]:.6f} here, {value:.6f} by {tool.__name__}")
    print(f"{numbers} numbers of exported results, {wrong} differ")
    return numbers == 0 or wrong > 0


arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("program")
arguments.add_argument("--seeds", type=int, default=25)
arguments.add_argument("--runs", type=pathlib.Path)
arguments.add_argument("--results", type=pathlib.Path, default=pathlib.Path("benchmark-results"))
given = arguments.parse_args()
failed = made_up(given.program, given.seeds)
if given.runs:
    failed |= exported(given.runs, given.results)
sys.exit(failed)

"""Score the search for change points on measured series, beside apache-otava.

    python -m benchmarks.real_histories --otava=PYTHON --asv=DIR --turing=DIR \\
        --alerts=DIR --otava_test_data

DIR of --asv is a machine's folder of asv results, for example results/i7 of
https://github.com/pv/scipy-bench. DIR of --turing is a checkout of
https://github.com/alan-turing-institute/TCPD. DIR of --alerts has the format of
TCPDBench: annotations.json and datasets/NAME.json, with times. PYTHON belongs to an
environment with apache-otava and otava-test-data. docs/history.md has the tables.

1. Known changes in measured noise. A stretch of entries without a change point of
   either tool is put in random order, in blocks of five entries. No change remains, but
   the outliers and the short correlations do. Alarms on it are false. A change of known
   size is then added after 30 entries.
2. Changes marked by people. The scores are those of van den Burg and Williams, "An
   Evaluation of Change Point Detection Algorithms" (arXiv 2003.06222): precision and
   recall over all annotators, with a margin of five entries.
3. Alerts that engineers confirmed (the marks) or rejected (series without a mark).
4. Series that otava-test-data makes.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from rnn_scaling.analysis.history.levels import find_levels
from rnn_scaling.system.files.markdown import format_table

# Entries of a stretch, of a block that keeps its order, and before an added change.
STRETCH = 60
BLOCK = 5
BEFORE = 30
MORE_ENTRIES = (3, 5, 10, 20)
CHANGES = (0.02, 0.05, 0.10)
MARGIN = 5
# Alerts were raised before the entries next to them were measured.
ALERT_MARGIN = 10
ALERT_MORE_ENTRIES = (2, 5)
# apache-otava's own default, and the value of its examples for noisy data.
P_VALUES = (0.001, 0.01)

# Reads a list of series and prints the indices of each one's change points.
OTAVA_PROGRAM = """
import json, sys
from otava.analysis import compute_change_points
request = json.load(sys.stdin)
answer = []
for series in request["series"]:
    points, _ = compute_change_points(series, max_pvalue=request["max_pvalue"])
    answer.append([int(point.index) for point in points])
json.dump(answer, sys.stdout)
"""

# Prints the kind, the values and the change points of each series.
TEST_DATA_PROGRAM = """
import json, sys
from otava_test_data.generators.combiner import CombinationGenerator
made = []
for seed in range(20):
    generator = CombinationGenerator(lengths=[50, 200], seed=seed)
    for series in generator.generate_with_noise_variants([2.0, 5.0]):
        kind = series.generator_name.split("+")[0]
        made.append((kind, series.data.tolist(), series.get_change_point_indices()))
json.dump(made, sys.stdout)
"""
STEPS = ("step_function", "regression_fix", "multiple_changes")
STEADY = ("constant", "noise_normal", "noise_uniform", "banding", "outlier")

Series = Sequence[float]
Cuts = list[list[int]]  # for each series, the first index of each new level


def search_with_suite(all_series: Iterable[Series]) -> Cuts:
    """Return the change points that `history show` finds in logarithms of times."""
    cuts = []
    for series in all_series:
        levels = find_levels(series, [1] * len(series), run_deviation=0.0)
        cuts.append(list(levels.cuts))
    return cuts


class Otava:
    """apache-otava in its own Python environment.

    Args:
      python: The interpreter of that environment.
      max_pvalue: Significance level of one change point.
    """

    def __init__(self, python: str, max_pvalue: float):
        self.python = python
        self.max_pvalue = max_pvalue

    def search(self, all_series: Iterable[Series]) -> Cuts:
        """Return the change points of each series of logarithms of times."""
        times = [np.exp(series).tolist() for series in all_series]
        request = {"series": times, "max_pvalue": self.max_pvalue}
        process = subprocess.run(
            [self.python, "-c", OTAVA_PROGRAM],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(process.stdout)


def read_asv(folder: Path) -> list[np.ndarray]:
    """Return log seconds of every benchmark and parameter, in the order of commits.

    Only the environment with the most commits is read: another compiler or NumPy is a
    change of its own.
    """
    runs = collections.defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        if "results" in run:
            runs[run["env_name"]].append(run)
    commits = sorted(max(runs.values(), key=len), key=lambda run: run["date"])
    seconds = collections.defaultdict(list)
    for run in commits:
        for name, result in run["results"].items():
            values = result[0] if isinstance(result, list) else None
            if ".time_" not in name or not isinstance(values, list):
                continue
            for index, value in enumerate(values):
                if isinstance(value, float) and value > 0:
                    seconds[name, index].append(value)
    series = [np.log(values) for values in seconds.values()]
    return [values for values in series if len(values) >= STRETCH]


def find_quiet_stretches(
    all_series: list[np.ndarray], all_cuts: Sequence[Cuts]
) -> list[np.ndarray]:
    """Return the first stretch of each series in which no tool found a change."""
    stretches = []
    for number, series in enumerate(all_series):
        cuts = {cut for cuts in all_cuts for cut in cuts[number]}
        edges = [0, *sorted(cuts), len(series)]
        for start, stop in zip(edges, edges[1:]):
            if stop - start >= STRETCH:
                stretches.append(series[start : start + STRETCH])
                break
    return stretches


def shuffle_blocks(generator: np.random.Generator, stretch: np.ndarray) -> np.ndarray:
    """Return a stretch with its blocks of neighbouring entries in random order."""
    blocks = stretch.reshape(-1, BLOCK)
    return blocks[generator.permutation(len(blocks))].ravel()


def share(found: Iterable[bool]) -> str:
    return f"{100 * np.mean(list(found)):.1f} %"


def score_known_changes(tools: dict, stretches: list[np.ndarray]) -> str:
    """Return the table of false alarms and of known changes that each tool found."""
    lines = []
    for name, search in tools.items():
        alarms = share(bool(cuts) for cuts in search(stretches))
        for change in CHANGES:
            line = [name, alarms, f"{100 * change:.0f} %"]
            for more in MORE_ENTRIES:
                changed = []
                for stretch in stretches:
                    series = stretch[: BEFORE + more].copy()
                    series[BEFORE:] += np.log1p(change)
                    changed.append(series)
                found = search(changed)
                line.append(
                    share(any(abs(cut - BEFORE) <= 1 for cut in cuts) for cuts in found)
                )
            lines.append(line)
    head = ["Tool", f"False alarms in {STRETCH} entries", "Slow-down"]
    found_with = [f"found with {more} more" for more in MORE_ENTRIES]
    return format_table([*head, *found_with], lines)


def count_true_positives(
    marked: set[int], found: set[int], margin: int = MARGIN
) -> int:
    """Return how many marked changes have a found one within the margin, one to one."""
    left = set(found)
    count = 0
    for place in sorted(marked):
        near = [other for other in left if abs(other - place) <= margin]
        if near:
            left.remove(min(near, key=lambda other: abs(other - place)))
            count += 1
    return count


def compute_precision_and_recall(
    marks: list[set[int]], cuts: list[int], margin: int = MARGIN
) -> tuple[float, float]:
    """Return the scores against the marks of all persons."""
    # The first entry counts as a change that everybody found.
    found = {0, *cuts}
    marked = [{0, *places} for places in marks]
    everything = set.union(*marked)
    precision = count_true_positives(everything, found, margin) / len(found)
    recalls = [
        count_true_positives(places, found, margin) / len(places) for places in marked
    ]
    return precision, float(np.mean(recalls))


def format_mean_scores(scores: list[tuple[float, float]]) -> list[str]:
    """Return the mean precision, recall and F1."""
    f1 = [2 * precision * recall / (precision + recall) for precision, recall in scores]
    return [f"{value:.2f}" for value in (*np.mean(scores, axis=0), np.mean(f1))]


def read_annotated(folder: Path) -> Iterator[tuple[np.ndarray, list[set[int]]]]:
    """Yield the values of each annotated series, and the marks of each person."""
    annotations = json.loads((folder / "annotations.json").read_text())
    for name in sorted(annotations):
        for path in (f"{name}/{name}.json", f"{name}.json"):
            if not (folder / "datasets" / path).exists():
                continue
            columns = json.loads((folder / "datasets" / path).read_text())["series"]
            if len(columns) == 1 and None not in columns[0]["raw"]:
                marks = [set(places) for places in annotations[name].values()]
                yield np.array(columns[0]["raw"], float), marks


def score_marked_changes(tools: dict, folder: Path) -> str:
    """Return the table of precision and recall against the annotations."""
    all_series = []
    all_marks = []
    for values, marks in read_annotated(folder):
        # Series such as temperatures have no logarithm: a tenth of their range is one.
        all_series.append((values - values.mean()) / (np.ptp(values) or 1.0) / 10)
        all_marks.append(marks)
    lines = []
    for tool, search in tools.items():
        scores = list(map(compute_precision_and_recall, all_marks, search(all_series)))
        lines.append([tool, *format_mean_scores(scores)])
    title = f"{len(all_series)} series"
    return format_table([title, "Precision", "Recall", "F1"], lines)


def score_alerts(tools: dict, folder: Path) -> str:
    """Return the table of confirmed alerts that were found, and of rejected ones."""
    annotated = [(np.log(values), marks) for values, [marks] in read_annotated(folder)]
    confirmed = [(values, marks) for values, marks in annotated if marks]
    rejected = [values for values, marks in annotated if not marks]
    lines = []
    for tool, search in tools.items():
        line = [tool]
        for more in (*ALERT_MORE_ENTRIES, len(confirmed[0][0])):
            parts = [values[: max(marks) + more + 1] for values, marks in confirmed]
            found = [
                count_true_positives(marks, set(cuts), ALERT_MARGIN)
                for cuts, (_, marks) in zip(search(parts), confirmed)
            ]
            line.append(f"{sum(found)} of {sum(len(marks) for _, marks in confirmed)}")
        raised = sum(bool(cuts) for cuts in search(rejected))
        scores = [
            compute_precision_and_recall([marks], cuts, ALERT_MARGIN)
            for cuts, (_, marks) in zip(search([v for v, _ in annotated]), annotated)
        ]
        line.append(f"{raised} of {len(rejected)}")
        lines.append([*line, *format_mean_scores(scores)])
    head = [f"confirmed found with {more} more" for more in ALERT_MORE_ENTRIES]
    head += ["confirmed found", "rejected raised", "Precision", "Recall", "F1"]
    return format_table(["Tool", *head], lines)


def score_test_data(tools: dict, python: str) -> str:
    """Return the table of steps that were found, and of series with false alarms."""
    process = subprocess.run(
        [python, "-c", TEST_DATA_PROGRAM], capture_output=True, text=True, check=True
    )
    made = json.loads(process.stdout)
    all_series = [np.log(values) for _, values, _ in made]
    lines = []
    for tool, search in tools.items():
        found = collections.defaultdict(list)
        alarms = collections.defaultdict(list)
        for (kind, _, marks), cuts in zip(made, search(all_series)):
            group = "steps" if kind in STEPS else "steady" if kind in STEADY else kind
            matched = count_true_positives(set(marks), set(cuts))
            found[group] += [True] * matched + [False] * (len(marks) - matched)
            alarms[group].append(len(cuts) > (matched if group == "steps" else 0))
        line = [tool, share(found["steps"])]
        lines.append([*line, *(share(values) for values in alarms.values())])
    head = [f"alarms in {group}" for group in alarms]
    return format_table(["Tool", "steps found", *head], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--asv", type=Path, help="folder of asv results of one machine")
    parser.add_argument(
        "--turing",
        type=Path,
        help="folder of a checkout of TCPD (Turing Change Point Dataset)",
    )
    parser.add_argument(
        "--alerts",
        type=Path,
        help="folder of series with alerts, in the format of TCPDBench",
    )
    parser.add_argument(
        "--otava_test_data",
        action="store_true",
        help="also score the series that otava-test-data makes",
    )
    parser.add_argument(
        "--otava", help="path of a Python with apache-otava and otava-test-data"
    )
    parser.add_argument(
        "--series", type=int, default=2000, help="maximum number of series of asv"
    )
    args = parser.parse_args()
    tools = {"history": search_with_suite}
    if args.otava:
        for p_value in P_VALUES:
            tools[f"apache-otava, p < {p_value}"] = Otava(args.otava, p_value).search
    if args.asv:
        generator = np.random.default_rng(42)
        series = read_asv(args.asv)
        order = generator.permutation(len(series))[: args.series]
        series = [series[index] for index in order]
        stretches = find_quiet_stretches(
            series, [search(series) for search in tools.values()]
        )
        print(
            f"{len(series)} series, {len(stretches)} with a quiet stretch", flush=True
        )
        stretches = [shuffle_blocks(generator, stretch) for stretch in stretches]
        print(score_known_changes(tools, stretches), flush=True)
    if args.turing:
        print(score_marked_changes(tools, args.turing))
    if args.alerts:
        print(score_alerts(tools, args.alerts))
    if args.otava_test_data:
        print(score_test_data(tools, args.otava))


if __name__ == "__main__":
    main()

"""python -m rnn_scaling compare BEFORE AFTER: did it become slower, and can these runs tell?"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison import differences, matching, verdicts
from rnn_scaling.analysis.comparison.differences import Difference
from rnn_scaling.analysis.comparison.facts import INCOMPARABLE
from rnn_scaling.analysis.comparison.matching import InputError, Matched, Side
from rnn_scaling.analysis.metrics import CHOICES, RATE, common_unit, named, unit_of
from rnn_scaling.reports import comparison
from rnn_scaling.reports.comparison import Found, Report

USAGE = """\
python -m rnn_scaling compare BEFORE AFTER [--max_regression=5%] [--paired] [--metric=NAME] [--format=NAME]
                              [--force_incomparable[=NAME,...]]    (or ./run.sh compare ...)

Is AFTER slower than BEFORE, and can these runs tell? BEFORE and AFTER are folders of run records, as a sweep writes
them, or single records. Configurations that both hold are compared one by one; an option that differs between all runs
before and all runs after is the change.

    python -m rnn_scaling compare results/main results/branch
    python -m rnn_scaling compare results/ab/a results/ab/b --paired --max_regression=2%

    --max_regression      the largest slow-down that passes, as 5% or 0.05 (default 5%)
    --paired              the runs of the same repeat number ran beside each other (./run.sh ab): compares pair by pair
    --metric              items_per_second (default; words_per_second is the same), speedup or efficiency; the latter
                          need runs on one device too
    --format              text (default), markdown or json ("rnn_scaling.compare/1")
    --force_incomparable  judge although the runs differ in more than the change: everything, or the named
                          differences alone (--force_incomparable=cpu_model,batch_size)

One run a side cannot tell a change from the difference between any two runs: repeat them (./run.sh sweep --repeats=5,
or ./run.sh ab, which runs both sides in turns). docs/compare.md has the design, the test and its error rates.

Exit status: 0 a slow-down beyond the limit is excluded everywhere, 1 there is one, 2 cannot judge: too few runs or too
much noise, incomparable runs, configurations missing or failed after, nothing in common, or wrong use."""

EXIT_OK, EXIT_REGRESSION, EXIT_CANNOT_JUDGE = 0, 1, 2
MISSING = "missing configurations"
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked."""

    before: Path
    after: Path
    max_regression: float = 0.05
    paired: bool = False
    metric: str = RATE.name
    format: str = "text"
    accepted: frozenset[str] = frozenset()


def main(argv: Sequence[str] | None = None) -> int:
    """Compares two sets of runs; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in ("--help", "-h") for word in words):
        print(USAGE)
        return EXIT_OK
    try:
        options = parse(words)
        sides = _read(options)
        report = build(options, *sides)
    except InputError as e:
        print(f"error: {e}", file=sys.stderr)
        return EXIT_CANNOT_JUDGE
    try:
        print(comparison.RENDER[options.format](report))
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone: nothing is left to flush at exit
    return report.exit_status


def parse(words: Sequence[str]) -> Options:
    """Command line -> options.

    Raises:
      InputError: naming what is wrong.
    """
    paths, values = [], {}
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            paths.append(Path(word))
        elif name in ("paired", "force_incomparable") and not equals:
            values[name] = "true" if name == "paired" else ALL
        elif name in ("max_regression", "metric", "format", "paired", "force_incomparable") and value:
            values[name] = value
        else:
            raise InputError(f"{word} is not an option of compare, or lacks its value; --help explains")
    if len(paths) != 2:
        raise InputError(f"expected two folders or records, BEFORE and AFTER, got {len(paths)}; --help explains")
    for name, choices in (("metric", CHOICES), ("format", tuple(comparison.RENDER)), ("paired", PAIRED)):
        if name in values and values[name] not in choices:
            raise InputError(f"--{name}={values[name]} must be one of {', '.join(choices)}")
    return Options(
        *paths,
        max_regression=_share(values.get("max_regression", "5%")),
        paired=PAIRED.get(values.get("paired", "false"), False),
        metric=values.get("metric", RATE.name),
        format=values.get("format", "text"),
        accepted=frozenset(plain_name(name) for name in values.get("force_incomparable", "").split(",") if name),
    )


PAIRED = {"true": True, "false": False}


def plain_name(text: str) -> str:
    """ "CPU model" and "--batch_size" as they are written in --force_incomparable: cpu_model, batch_size."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _share(text: str) -> float:
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise InputError(f"--max_regression={text} must be a share from 0 to below 1, written as 5% or 0.05")
    return share


def _read(options: Options) -> tuple[Side, Side]:
    if options.before.resolve() == options.after.resolve():
        raise InputError(f"{options.before} and {options.after} are the same runs; name two sets")
    sides, errors = [], []
    for path in (options.before, options.after):
        try:
            sides.append(matching.read(path))
        except InputError as e:
            errors.append(str(e))
    if errors:
        raise InputError("\nerror: ".join(errors))
    for side in sides:
        for line in side.left_out:
            print(f"warning: {line}; left out", file=sys.stderr)
    return sides[0], sides[1]


def build(options: Options, before: Side, after: Side) -> Report:
    """Matches, judges and finds what makes the runs incomparable.

    Raises:
      InputError: if no configuration is on both sides.
    """
    matched = matching.match(before, after)
    common = [c for c in matched.configurations if c.before and c.after]
    if not common:
        raise InputError(_nothing_in_common(before, after, matched))
    units = (unit_of(file.record) for side in (before, after) for file in side.runs)
    metric = named(options.metric).of(common_unit(units))
    if metric.ideal is not None:
        common = [c for c in common if max(c.before.num_devices, c.after.num_devices) > 1]
        if not common:
            raise InputError(
                f"no configuration with several devices is on both sides; --metric={options.metric} of one device is 1"
            )
    missing = [c.label for c in matched.configurations if c.after is None]
    found = _differences(common)
    if missing:
        words = (comparison.some(missing), "no run", "what was not run again cannot be judged", INCOMPARABLE)
        found.append(Found(Difference(MISSING, *words), ()))  # says nothing against those that are there
    stopping = [f for f in found if _grave(f.difference) and not _accepted(f.difference, options)]
    barred = {label for f in stopping for label in f.labels}
    results = []
    for configuration in common:
        result = verdicts.measure(configuration, metric, options.paired)
        if configuration.label in barred and not result.reason:
            names = [f.difference.what for f in stopping if configuration.label in f.labels]
            result = dataclasses.replace(result, reason=f"incomparable: {', '.join(dict.fromkeys(names))}")
        results.append(result)
    results = verdicts.conclude(results, options.max_regression)
    new = [c.label for c in matched.configurations if c.before is None]
    return Report(
        before=str(before.path),
        after=str(after.path),
        runs=(len(before.runs), len(after.runs)),
        metric=metric,
        paired=options.paired,
        max_regression=options.max_regression,
        changes=matched.changes,
        results=tuple(results),
        found=tuple(found),
        accepted=tuple(f.difference.what for f in found if _grave(f.difference) and _accepted(f.difference, options)),
        within=tuple(
            (when, tuple(differences.within([file.record for file in matching.good(side.runs)])))
            for when, side in (("before", before), ("after", after))
        ),
        only_after=tuple(new),
        exit_status=_exit_status(results, bool(stopping)),
    )


def _differences(configurations: Sequence[matching.Configuration]) -> list[Found]:
    """Each difference once, with the configurations that have it; without options that leave the work the same."""
    merged: dict[tuple[str, str, str], list] = {}
    for c in configurations:
        sides = [[file.record for file in matching.good(side.files)] for side in (c.before, c.after)]
        if not all(sides):
            continue
        for difference in differences.differences(*sides):
            if difference.what.startswith("--") and not _grave(difference):
                continue
            key = (difference.what, difference.effect, difference.severity)
            merged.setdefault(key, [difference, []])[1].append(c.label)
    found = [Found(difference, tuple(labels)) for difference, labels in merged.values()]
    return sorted(found, key=lambda f: not _grave(f.difference))


def _grave(difference: Difference) -> bool:
    return difference.severity == INCOMPARABLE


def _accepted(difference: Difference, options: Options) -> bool:
    return bool({ALL, plain_name(difference.what)} & options.accepted)


def _exit_status(results: Sequence[verdicts.Result], stopped: bool) -> int:
    if any(result.gate == "regression" for result in results):
        return EXIT_REGRESSION
    return EXIT_CANNOT_JUDGE if stopped or any(result.gate != "ok" for result in results) else EXIT_OK


def _nothing_in_common(before: Side, after: Side, matched: Matched) -> str:
    labels = [
        [c.label for c in matched.configurations if c.before],
        [c.label for c in matched.configurations if c.after],
    ]
    shown = [comparison.some(each) for each in labels]
    return f"no configuration is in both: {before.path} has {shown[0]}; {after.path} has {shown[1]}"

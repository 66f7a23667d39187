"""python -m rnn_scaling phases RUN: where each tower's step goes, from a traced run."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.analysis.steps.parts import StepParts
from rnn_scaling.records import folder, record
from rnn_scaling.records.files import RECORD_IN_LOG_DIR, write_bytes, write_text
from rnn_scaling.records.problems import problems as record_problems
from rnn_scaling.records.record import RecordError, RunRecord
from rnn_scaling.reports import environment, steps
from rnn_scaling.reports.markdown import markdown_table

USAGE = """\
python -m rnn_scaling phases RUN [RUN ...] [--out=FILE.md] [--json] [--picture=FILE.png] [--step=N]
                             (or ./run.sh phases ...)

Where does a step go? For each tower: forward, backward, update, exchange that compute does not hide, waiting for other
towers, idle; in ms and per cent of the step, which they sum to. Exchange hidden and exposed, who is last, kernels by
phase, what tracing itself cost, and one step drawn from left to right. RUN is one of

    a record file      of a run with --trace_batches=N      ./run.sh train --trace_batches=5 --result_file=run.json
    a --log_dir        whose run.json is read               ./run.sh train --trace_batches=5 --log_dir=logs/a
    a folder           of records: all that have a trace    ./run.sh inspect --out=results/inspect

--out=FILE      also write the tables to this file
--json          print the numbers as JSON instead ("rnn_scaling.phases/1")
--picture=FILE  draw one step of each run: .png or .svg
--step=N        the step to draw, from 0 (default: the one of middle length)

LOG_DIR/trace.json.gz has every event: open it at ui.perfetto.dev or in chrome://tracing.
docs/phases.md says what every part means.

Exit status: 0 every RUN was shown, 1 some could not be used or nothing be written, 2 wrong use."""

SCHEMA = "rnn_scaling.phases/1"
PICTURES = (".png", ".svg")
MAKE_ONE = "make one with ./run.sh train --trace_batches=5 --result_file=FILE"
EXIT_FAILED, EXIT_USAGE = 1, 2


class UsageError(Exception):
    """A wrong command line; the message has a line for each mistake."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked."""

    runs: tuple[Path, ...]
    out: Path | None = None
    json: bool = False
    picture: Path | None = None
    step: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One traced run."""

    path: Path
    record: RunRecord
    parts: StepParts

    @property
    def title(self) -> str:
        """What ran, and its file."""
        config, towers = self.record.config, self.parts.num_towers
        words = f"{config['encoder_type']}, {config['variable_update']}, {towers} device{'' if towers == 1 else 's'}"
        return f"{words} ({self.path})"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables of the runs; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in ("--help", "-h") for word in words):
        print(USAGE)
        return 0
    try:
        options = parse(words)
    except UsageError as e:
        return _fail(EXIT_USAGE, *str(e).splitlines())
    runs, problems = read(options.runs)
    if options.step is not None:
        problems += [
            f"--step={options.step}: {run.path} has the steps 0 to {len(run.parts.steps) - 1}"
            for run in runs
            if options.step >= len(run.parts.steps)
        ]
        runs = [run for run in runs if options.step < len(run.parts.steps)]
    if runs:
        problems += _show(runs, options)
    return _fail(EXIT_FAILED, *problems) if problems else 0


def parse(words: Sequence[str]) -> Options:
    """Command line -> options.

    Raises:
      UsageError: naming everything that is wrong.
    """
    runs, values, wrong = [], {}, []
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            runs.append(Path(word))
        elif word == "--json":
            values[name] = True
        elif not word.startswith("--") or name not in ("out", "picture", "step") or not equals:
            wrong.append(f"{word} is not an option of phases, or lacks its value; --help explains")
        elif not value:
            wrong.append(f"--{name}= is empty; name a {'step' if name == 'step' else 'file'}")
        elif name == "step":
            if not (value.isascii() and value.isdigit() and len(value) < 10):
                wrong.append(f"--step={value} must be a whole number from 0")
            else:
                values[name] = int(value)
        else:
            values[name] = Path(value)
    if not runs:
        wrong.append("expected a RUN: a record file, a --log_dir or a folder of records; --help explains")
    picture = values.get("picture")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        wrong.append(f"--picture={picture} must end in {' or '.join(PICTURES)}")
    for name in ("out", "picture"):
        if name in values and not values[name].resolve().parent.is_dir():
            wrong.append(f"--{name}={values[name]}: no such folder; make it first")
    if wrong:
        raise UsageError("\n".join(wrong))
    return Options(tuple(runs), **values)


def read(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The traced runs at these paths, and a line for everything that could not be used."""
    runs: list[Run] = []
    problems: list[str] = []
    for path in paths:
        try:
            if (path / RECORD_IN_LOG_DIR).is_file():
                runs.append(_read_file(path / RECORD_IN_LOG_DIR))
            elif path.is_dir():
                found, wrong = _read_folder(path)
                runs += found
                problems += wrong
            else:
                runs.append(_read_file(path))
        except RecordError as e:
            problems.append(str(e))
        except OSError as e:
            problems.append(f"{path}: {e.strerror or e}")
    return runs, problems


def _read_file(path: Path) -> Run:
    try:
        found = record.read(path)
        if wrong := next(record_problems(found), None):
            raise RecordError(f"{path}: {wrong}")
    except RecursionError:
        raise RecordError(f"{path}: nested too deeply for a run record") from None
    parts = step_parts.of([found])
    if parts is None:
        state = "" if found.status == "ok" else f" (its status is {found.status})"
        raise RecordError(f"{path}: the run was not traced{state}; {MAKE_ONE}")
    return Run(path, found, parts)


def _read_folder(path: Path) -> tuple[list[Run], list[str]]:
    held = folder.read(path)
    found = []
    for file in held.runs:
        parts = step_parts.of([file.record])
        if parts is not None:
            found.append(Run(path / file.name, file.record, parts))
    wrong = [f"{line}" for line in held.left_out]
    if not held.runs and not wrong:
        others = folder.subfolders_with_records(path)
        hint = f"; there are some in {', '.join(map(str, others[:5]))}: name these" if others else ""
        wrong.append(f"{path}: no run records (*.json) in this folder{hint}")
    elif not found and held.runs:
        wrong.append(f"{path}: none of the {len(held.runs)} runs was traced; {MAKE_ONE}")
    return found, wrong


def _show(runs: Sequence[Run], options: Options) -> list[str]:
    """Prints and writes; returns what could not be written."""
    content = _json(runs) if options.json else _text(runs, options, colours=_has_colours())
    print(content, end="", flush=True)  # a full disk behind it is entry.leave's to say
    target = options.out
    try:
        if options.out:
            plain = content if options.json else _text(runs, options, colours=False)
            write_text(plain, options.out)
        target = options.picture
        if options.picture:
            _draw(runs, options)
    except OSError as e:
        return [f"{target}: {e.strerror or e}"]
    return []


def _text(runs: Sequence[Run], options: Options, colours: bool) -> str:
    sections = []
    for run in runs:
        sections.append(f"### {run.title}\n\n{_body(run, options.step, colours)}")
    return "\n".join(sections)


def _body(run: Run, step: int | None, colours: bool) -> str:
    found = run.parts
    number = found.typical if step is None else step
    drawn = found.steps[number]
    sections = [markdown_table(*grid) for grid in steps.parts_grids(found)]
    sections.append(markdown_table(*steps.exchange_grid(found)))
    sections.append(markdown_table(*steps.kernels_grid(found.runs[0], found.num_towers)))
    sections.append("".join(f"- {note}\n" for note in (*steps.notes(found), *_cautions(run.record))))
    lines = "\n".join(steps.bars(drawn, colours=colours))
    said = f"Step {number} (of 0 to {len(found.steps) - 1}), {1000 * drawn['seconds']:.2f} ms from left to right:"
    sections.append(f"{said}\n\n```\n{lines}\n```\n\n{steps.legend([drawn])}\n")
    return "\n".join(sections)


def _cautions(run: RunRecord) -> list[str]:
    """What a reader must know of the machine: devices that are no real ones, load, clocks."""
    loads = {what for what, _ in differences.SHARES.values()}
    found = [d for d in differences.within([run]) if d.what in loads]
    said = [f"{d.what[:1].upper()}{d.what[1:]} ({d.a.removeprefix('all runs: ')}): {d.effect}." for d in found]
    return [*environment.cautions([run]), *said]


def _json(runs: Sequence[Run]) -> str:
    found: list[dict[str, Any]] = [
        {"file": str(run.path), "title": run.title, **steps.as_json(run.parts)} for run in runs
    ]
    return json.dumps({"schema": SCHEMA, "runs": found}, indent=1, allow_nan=False) + "\n"


def _draw(runs: Sequence[Run], options: Options) -> None:
    from rnn_scaling.reports.pictures import step_figures  # loads matplotlib, late

    path = options.picture
    if path is None:
        return
    drawn = []
    for run in runs:
        number = run.parts.typical if options.step is None else options.step
        title = f"{run.title}, step {number}{step_figures.left_out(run.parts.num_towers)}"
        drawn.append((title, run.parts.steps[number]))
    write_bytes(step_figures.picture(drawn, path.suffix.lower().removeprefix(".")), path)


def _has_colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _fail(status: int, *lines: str) -> int:
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return status

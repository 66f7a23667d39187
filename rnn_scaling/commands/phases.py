"""python -m rnn_scaling phases RUN: where each tower's step goes, from a traced run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry
from rnn_scaling.system.files.output_files import write_bytes
from rnn_scaling.system.files.terminal import tell

USAGE = """\
Where does a step go? For each tower: forward, backward, update, exchange that compute does not hide, waiting for other
towers, idle; in ms and per cent of the step, which they sum to. Exchange hidden and exposed, who is last, kernels by
phase, and what tracing itself cost. Then the seconds of the whole run: start, cluster up, build, first batch, warm-up,
measured. A run of several processes is also shown by rank, with the ranks that the others wait for; this needs no
trace. RUN is one of

    a record file      of a run with --trace_batches=N      ./run.sh train --trace_batches=5 --result_file=run.json
    a --log_dir        whose run.json is read               ./run.sh train --trace_batches=5 --log_dir=logs/a
    a folder           of records: all that have a trace    ./run.sh inspect --out=results/inspect

    ./run.sh phases run.json --picture=step.png > step.md     the tables in Markdown

LOG_DIR/trace.json.gz has every event: open it at ui.perfetto.dev or in chrome://tracing.
docs/phases.md explains every part.

Exit status: 0 every RUN was shown, 1 a RUN could not be used or a file not written, 2 wrong use."""

PICTURES = (".png", ".svg")


def _picture(text: str) -> Path:
    if not text.lower().endswith(PICTURES):
        raise ValueError(f"a file that ends in {' or '.join(PICTURES)}")
    if not Path(text).resolve().parent.is_dir():
        raise ValueError("a file in a folder that is there; make it first")
    return Path(text)


@dataclasses.dataclass(frozen=True)
class PhasesOptions:
    """Phases."""

    runs: tuple[Path, ...] = flags.positional(
        "a record file, a --log_dir or a folder of records", "RUN", several=True
    )
    json: bool = option(
        False, 'print the numbers as JSON instead ("rnn_scaling.phases/1")'
    )
    picture: Path | None = option(
        None,
        "draw one step of each run: .png or .svg (default: no)",
        parse=_picture,
        shown="FILE.png",
    )
    step: int | None = option(
        None, "the step to draw, from 0 (default: the one of middle length)", minimum=0
    )


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, PhasesOptions, "phases")
    from rnn_scaling.reports import phases

    runs, problems = phases.read(options.runs)
    short = [
        run for run in runs if run.parts and (options.step or 0) >= len(run.parts.steps)
    ]
    known = [(run.path, run.parts) for run in short if run.parts]
    problems += [
        f"--step={options.step}: {path} has the steps 0 to {len(parts.steps) - 1}"
        for path, parts in known
    ]
    runs = [run for run in runs if run not in short]
    if runs and options.json:
        print(phases.as_json(runs), end="", flush=True)
    elif runs:
        tell(phases.text(runs))
    if any(run.parts for run in runs) and (target := options.picture):
        try:
            write_bytes(
                phases.picture(
                    runs, options.step, target.suffix.lower().removeprefix(".")
                ),
                target,
            )
        except OSError as e:
            problems.append(f"{target}: {e.strerror or e}")
    return entry.fail(*problems) if problems else entry.EXIT_OK

"""python -m rnn_scaling whatif SOURCE: which change of batch, device, exchange, link or jitter would help most."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling import entry
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

if TYPE_CHECKING:
    from rnn_scaling.analysis.prediction.changes import Sensitivity
    from rnn_scaling.analysis.prediction.curves import Link
    from rnn_scaling.commands.prediction_series import FolderSeries

USAGE = """\
Says which change would help most: for each change alone and for all together, the rate and the efficiency, with 95 %
intervals, largest gain first.

    ./run.sh whatif results/mine                       no exchange, no jitter, twice the batch, device or link
    ./run.sh whatif results/mine --exchange=half       as gradients in half precision would give
    ./run.sh whatif results/mine --batch_size=2x --compute=1.5x
    ./run.sh whatif results/mine --link_gbit=100 --links=results/links/links.json
    ./run.sh whatif results/mine --num_devices=64 --jitter=none

A folder of runs, or a table as predict reads, needs one device and another number of devices; --num_devices is the
largest measured number if it is not given. Runs with --variable_update=independent and with a second --batch_size make
the intervals much narrower. --link_gbit and --latency_us are those of a new link; --links or the records have the
present one. --output writes whatif.json and whatif.png. docs/whatif.md lists the assumptions.

Exit status: 0 at least one series was answered, 1 a file cannot be written, 2 nothing can be said, or wrong use."""
WORDS = {"half": 0.5, "quarter": 0.25, "none": 0.0, "free": 0.0}
MOST = 1e6


def factor(text: str, least: float = 0.0) -> float:
    """ "2x", "half" or "0.5" -> the factor; a ValueError says what the text must be."""
    word = text.strip().lower()
    try:
        found = WORDS[word] if word in WORDS else float(word.removesuffix("x"))
    except ValueError:
        found = -1.0
    if not least <= found <= MOST:
        raise ValueError(f"a factor as 2x, 1.5x, 0.5, half or quarter{'' if least else ', or none'}")
    return found


def _factor(help: str, least: float = 0.0) -> float | None:
    return option(None, help, parse=functools.partial(factor, least=least), shown="FACTOR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WhatifOptions(PredictionOptions):
    """Whatif."""

    source: Path = flags.positional("folder of run records, or a file with tables", shown="SOURCE")
    batch_size: float | None = _factor("samples of a step, by a factor", 1 / MOST)
    compute: float | None = _factor("speed of a device, by a factor", 1 / MOST)
    exchange: float | None = _factor("time of the exchange, by a factor or none")
    jitter: float | None = _factor("waiting for the slowest device, by a factor or none")


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, WhatifOptions, "whatif")
    from rnn_scaling.commands import prediction_results, prediction_series
    from rnn_scaling.files import terminal
    from rnn_scaling.reports import report_files
    from rnn_scaling.reports import whatif as report

    new_link = options.stated_link  # of the change, and not of the runs
    present = dataclasses.replace(options, link_gbit=None, latency_us=None)
    every = prediction_series.every_series(options.source, present)
    found, _ = prediction_results.answered(
        prediction_series.chosen(every, options.series), lambda series: _answers(series, every, options, new_link)
    )
    answers = [answer for answers in found for answer in answers]
    if options.output:
        from rnn_scaling.reports.pictures import prediction as pictures

        files = {"whatif.json": report.to_json, "whatif.png": pictures.changes}
        renders = {name: functools.partial(render, answers) for name, render in files.items()}
        report_files.write(renders, options.output, force=False)
    is_json = options.format == "json"
    print(report.to_json(answers).decode(), end="") if is_json else terminal.tell(report.text(answers))
    return entry.EXIT_OK


def _answers(
    series: FolderSeries, every: Sequence[FolderSeries], options: WhatifOptions, new_link: Link | None
) -> list[Sensitivity]:
    """What the changes do on each number of devices. Raises CannotPredict."""
    from rnn_scaling.analysis.prediction import changes, predicting, sizing
    from rnn_scaling.analysis.prediction.curves import CannotPredict
    from rnn_scaling.analysis.statements import Statement

    curve, names = series.curve, (changes.BATCH, changes.COMPUTE, changes.EXCHANGE, changes.JITTER)
    devices = options.devices or (curve.points[-1].devices,)
    if series.refusal:
        raise CannotPredict(series.refusal)
    prediction = predicting.predict(curve, devices)
    if curve.points[0].devices != 1:
        raise CannotPredict(Statement("whatif-no-baseline", curve.name))
    if new_link and not (curve.knowledge.links and math.isfinite(curve.knowledge.links[-1].bytes_per_s)):
        raise CannotPredict(Statement("whatif-no-link", curve.name))
    asked = [changes.Change(name, value) for name in names if (value := getattr(options, name)) is not None]
    asked += [changes.Change(changes.LINK, link=new_link)] if new_link else []
    asked, rows = asked or changes.standard(curve), [row for other in every for row in other.rows]
    share = sizing.fixed_share(series.rows[-1], rows) if series.rows else None
    made = []
    for count in devices:
        found, memory = changes.sensitivity(prediction, count, asked, share), []
        for change in asked if series.rows else ():
            if change.kind == changes.BATCH:
                stated = (change.factor, change.title, options.devices_per_machine)
                memory = sizing.memory(series.rows[-1], rows, count, *stated)
        made.append(dataclasses.replace(found, statements=(*found.statements, *memory)))
    return made

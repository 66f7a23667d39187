"""python -m rnn_scaling predict FOLDER|TABLE: what more devices would do, with intervals and a track record."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

USAGE = """\
Predicts the rate on more devices than were measured, with 95 % intervals: from a folder of run records, or from
anybody's table of rates, speedups or seconds over numbers of devices (Markdown, HTML, CSV and what else audit reads).

    ./run.sh predict results/mine --num_devices=8,64,512
    ./run.sh predict README.md --num_devices=16 --series=resnet50
    ./run.sh predict results/mine --num_devices=64 --links=links.json
    ./run.sh predict results/mine --num_devices=64 --link_gbit=100 --latency_us=5
    ./run.sh predict results/mine --num_devices=8,16,32 --items=1e10 --max_global_batch=4096    hours and cost
    ./run.sh predict --track_record            how often predictions were right

Without --num_devices, 2, 4 and 8 times the largest measured number are predicted. At least two numbers of devices must
be measured; one, two and four give narrower intervals. A table has no repeats, so its intervals are wider. Each
prediction is kept in results/mine/predictions; those from a table are kept in --output. When a predicted number of
devices is measured later, predict and report say whether the interval held. --output writes prediction.json, .html
and .png. docs/predict.md explains the intervals and how a hit is judged.

Exit status: 0 at least one series was predicted, 1 a file cannot be written, 2 nothing can be predicted, or wrong
use. Of --track_record: 0, also without a case."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictionOptions):
    """Predict."""

    sources: tuple[Path, ...] = flags.positional(
        "folder of run records, or a file with tables; folders with --track_record (default: results)",
        shown="SOURCE",
        several=True,
        default=(),
    )
    items: float | None = option(None, "amount of work, as 1e9 words: adds its time and cost", minimum=1, maximum=1e30)
    machines: Path | None = option(None, "file of prices (default: machines.toml, if it exists)", shown="FILE")
    machine: str = option("", "the machine in --machines (default: that of the runs)", shown="NAME")
    max_global_batch: int | None = option(
        None, "largest number of samples of all devices in a step; larger sizes are left out", minimum=1
    )
    track_record: bool = option(False, "how often predictions in these folders and their subfolders were right")


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, PredictOptions, "predict")
    wrong = []
    if len(options.sources) != 1 and not options.track_record:
        given = " ".join(map(str, options.sources)) or "nothing"
        wrong.append(f"expected one folder of run records or one file with tables, got {given}; see predict --help")
    if wrong := wrong or [f"{path}: no such file or folder" for path in options.sources if not path.exists()]:
        raise entry.Refusal(*wrong)
    from rnn_scaling.analysis import prices
    from rnn_scaling.commands import prediction_results  # late: help and mistakes do not wait for it

    if options.track_record:
        found = prediction_results.track_record(options.sources)
    else:
        [listed] = prices.read(options.machines, options.machine)
        work = (options.items, listed, options.max_global_batch)
        found = prediction_results.predict(options.sources[0], options, *work)
    return prediction_results.tell(found, options, "prediction")

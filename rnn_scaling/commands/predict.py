"""python -m rnn_scaling predict FOLDER|TABLE: what more devices would do, with intervals and a track record."""

from collections.abc import Sequence

from rnn_scaling.commands.prediction_options import PredictOptions
from rnn_scaling.config import flags
from rnn_scaling.system import entry

USAGE = """\
Predicts the rate on more devices than were measured, with 95 % intervals: from a folder of run records, or from
any table of rates, speedups or seconds over numbers of devices (Markdown, HTML, CSV and all formats that audit reads).

    ./run.sh predict results/mine --num_devices=8,32
    ./run.sh predict README.md --num_devices=16 --series=resnet50
    ./run.sh predict results/mine --num_devices=64 --links=links.json
    ./run.sh predict results/mine --num_devices=64 --link_gbit=100 --latency_us=5
    ./run.sh predict results/mine --num_devices=8,16,32 --items=1e10 --max_global_batch=4096    hours and cost
    ./run.sh predict --track_record            how often predictions were right

Without --num_devices, twice the largest measured number is predicted, on twice the machines. More than 8 times that
number is only predicted with --far. At least two numbers of devices must be measured; one, two and four give narrower
intervals. A table has no repeats, so its intervals are wider. A table of times is answered in its own unit. Each
prediction from a folder is kept in its subfolder predictions. When a predicted number of devices is measured later,
predict and report say whether the interval held. --output writes prediction.json, .html and .png. docs/predict.md
explains the intervals and how a hit is judged.

Exit status: 0 at least one series was predicted, 1 a file cannot be written, 2 nothing can be predicted, or wrong
use. With --track_record: 0, even without predictions."""


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, PredictOptions, "predict")
    wrong = []
    if len(options.sources) != 1 and not options.track_record:
        given = " ".join(map(str, options.sources)) or "nothing"
        wrong.append(
            f"expected one folder of run records or one file with tables, got {given}; see predict --help"
        )
    if wrong := wrong or [
        f"{path}: no such file or folder"
        for path in options.sources
        if not path.exists()
    ]:
        raise entry.Refusal(*wrong)
    from rnn_scaling.commands import (
        prediction_results,
    )  # late: help and mistakes do not wait for it

    if options.track_record:
        found = prediction_results.track_record(options.sources)
    else:
        found = prediction_results.predict(options.sources[0], options)
    prediction_results.tell(found, options, "prediction")
    return entry.EXIT_OK

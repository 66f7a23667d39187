"""python -m rnn_scaling predict SOURCE: more devices, changes of a step, simulations.

It only chooses the kind of question; the modules `prediction_*` answer it.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from rnn_scaling.commands.prediction_options import PredictionOptions, SimulationOptions
from rnn_scaling.config import flags
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

USAGE = """\
Predicts the rate on more devices than were measured, with 95 % intervals. SOURCE is a
folder of run records, or a file with any table of rates, speedups or seconds over
numbers of devices. Markdown, HTML, CSV and all other formats that audit reads are
accepted.

    ./run.sh predict results/mine --num_devices=8,32
    ./run.sh predict README.md --num_devices=16 --series=resnet50
    ./run.sh predict results/mine --num_devices=64 --link_gbit=25 --latency_us=5
    ./run.sh predict results/mine --num_devices=8,16,32 --items=1e10 \\
        --max_global_batch=4096
    ./run.sh predict --track_record            how often predictions were right

Without --num_devices, twice the largest measured number is predicted, on twice the
machines. More than 8 times that number is only predicted with --far. At least two
numbers of devices must be measured; one, two and four give narrower intervals. Each
prediction from a folder is kept in its subfolder predictions. When a predicted number
of devices is measured later, predict and report say whether the interval held.
docs/predict.md explains the intervals.

--what_if shows which change would help most: the rate and the efficiency after each
change and after all changes together, largest gain first. Without a value it tries no
exchange, no jitter, and twice the batch size, device speed or link speed. It needs a
run on one device.

    ./run.sh predict results/mine --what_if
    ./run.sh predict results/mine --what_if=batch_size=2x,exchange=half
    ./run.sh predict results/mine --what_if=link_gbit=100 \\
        --links=results/links/links.json

--simulate simulates steps on --num_devices devices, event by event: each computes with
jitter, waits for the others, and exchanges gradients over links. It prints what jitter,
stragglers, failures and links cost. A folder provides step times, contention and the
exchange; without a folder, give --step_ms and the exchange. Simulated rates have no
intervals, because the error of the assumptions is unknown. The same --seed gives the
same result.

    ./run.sh predict --simulate results/mine --num_devices=64,512 \\
        --stragglers=1% --link_failures=0.01%
    ./run.sh predict --simulate --step_ms=100 --exchange_mb=100 --link_gbit=25 \\
        --jitter=5% --num_devices=8,64

--output writes prediction.json, .html and .png; with --what_if or --simulate, the files
are named whatif or simulation.

Exit status: 0 at least one series was answered; 1 a file cannot be written; 2 no series
was answered, or wrong use. With --track_record: 0, even without predictions."""

_QUESTIONS = ("what_if", "simulate", "track_record")
# Options that a question does not use. The question without a flag uses all of them.
_SIZES = ("items", "machines", "machine", "max_global_batch")
_UNUSED = {
    "what_if": _SIZES,
    "simulate": (*_SIZES, "far"),
    "track_record": (*_SIZES, "far", "num_devices", "series"),
}


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    groups = [PredictionOptions, SimulationOptions, flags.FileOptions]
    flags.answer(words, USAGE, groups, "predict")
    values, lines = flags.parse_with_errors(words, flags.collect_fields(groups))
    options, assumed, files = flags.build(groups, values, lines)
    if mistakes := list(_find_mistakes(options, assumed, set(values))):
        raise entry.Refusal(*mistakes)
    input_files.allow(files.max_file_mb)
    # Imported here, because help and mistakes do not wait for numpy.
    from rnn_scaling.commands import prediction_results as results

    if options.what_if is not None:
        results.print_changes(results.predict_changes(options), options)
    elif options.simulate:
        from rnn_scaling.commands import prediction_simulation

        report = prediction_simulation.simulate(options, assumed)
        results.print_report(report, options, "simulation")
    elif options.track_record:
        results.print_report(
            results.check_track_record(options.sources), options, "prediction"
        )
    else:
        results.print_report(results.predict(options), options, "prediction")
    return entry.EXIT_OK


def _find_mistakes(
    options: PredictionOptions, assumed: SimulationOptions, user_flags: set[str]
) -> Iterator[str]:
    """Yield the contradictions between options.

    Args:
      options: The question and the known facts.
      assumed: The assumptions of a simulation.
      user_flags: The names of the flags that the user gave.
    """
    questions = [
        name for name in _QUESTIONS if getattr(options, name) not in (None, False)
    ]
    if len(questions) > 1:
        names = " and ".join(f"--{name}" for name in questions)
        yield f"{names} answer different questions; give one of them"
    for question in questions:
        for name in _UNUSED[question]:
            if name in user_flags:
                yield f"--{name} would be ignored with --{question}; leave it out"
    if options.simulate:
        yield from _find_simulation_mistakes(options, assumed)
    else:
        for field in dataclasses.fields(assumed):
            if field.name in user_flags:
                yield (
                    f"--{field.name} needs --simulate; add --simulate, or leave "
                    f"out --{field.name}"
                )
        if len(options.sources) != 1 and not options.track_record:
            sources = " ".join(map(str, options.sources)) or "nothing"
            yield (
                "expected one folder of run records or one file with tables, got "
                f"{sources}; see predict --help"
            )
            return
    for path in options.sources:
        if not path.exists():
            yield f"{path} does not exist; name a folder of run records or a file with tables"


def _find_simulation_mistakes(
    options: PredictionOptions, assumed: SimulationOptions
) -> Iterator[str]:
    """Yield an error for each flag that a simulation lacks or cannot use."""
    if not options.num_devices:
        yield (
            "--num_devices is missing; give the numbers of devices to simulate, such "
            "as --num_devices=8,64"
        )
    if len(options.sources) + (assumed.step_ms is not None) != 1:
        yield (
            "name either one folder of run records or --step_ms=...; see predict --help"
        )
    if assumed.fabric_gbit is not None and options.devices_per_machine is None:
        yield "--fabric_gbit needs the size of a machine; add --devices_per_machine=..."

"""python -m rnn_scaling recommend: the fastest settings of a model on this machine.

It only reads flags and prints; `sweeps.recommend` makes the runs.
"""

from collections.abc import Sequence

from rnn_scaling.config import flags
from rnn_scaling.sweeps import recommend
from rnn_scaling.sweeps.command_lines import TRAINER
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import print_fitted

_USAGE = """\
Measures the update modes that train one model on all devices of this machine and prints
the command that trains fastest. Every flag of the trainer (./run.sh train --help) may
be given; a list of values is compared.

    ./run.sh recommend
    ./run.sh recommend --model=lm --num_units=512 --minutes=20
    ./run.sh recommend --variable_update=replicated \\
        --all_reduce_spec=auto,collective,xring
    ./run.sh recommend --batch_size=32,64,128
    ./run.sh recommend --largest_batch --model=lm
    ./run.sh recommend --threads --num_devices=1,2 --repeats=5

Each configuration runs two or three times, in interleaved rounds. The records,
recommend.md and recommend.json go to --out. The same command continues where it
stopped. docs/recommend.md has the rules.

--largest_batch searches for the largest --batch_size that fits in memory. A run that
exceeds --memory_gib is ended at once (Linux), before the machine swaps.

--threads finds, for each number of devices, the smallest number of threads with which
dispatch does not limit the speed. TensorFlow hands operators to these threads; with too
few, towers wait for each other. A trace of --trace_batches=5 batches shows how many
towers compute at once. threads.md and threads.json go to --out. Defaults:

    --inter_op_parallelism_threads=1,...,N,N+1,N+2,2N
                                       and the trainer's default; 8 at most
    --num_devices=1,2,...              all GPUs or CPU cores; 1,2,4,... above 8
    --encoder_type=dynamic_rnn         it has more to dispatch
    --variable_update=independent      no exchange that could limit the speed

Exit status: 0 done; 1 nothing was measured, a run of --threads failed or the folder
cannot be written; 2 the flags conflict, the folder is in use or contains records of
other flags; 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Run the command; return its exit status."""
    flags.answer(words, _USAGE, recommend.GROUPS, "recommend")
    request = recommend.read(words)
    if request.options.threads:
        return _answer_threads(request, trainer)
    return _answer_settings(request, trainer)


def _answer_threads(request: recommend.Request, trainer: Sequence[str]) -> int:
    """Print and write how many threads are enough; return the exit status."""
    outcome, defaults = recommend.measure_threads(request, trainer)
    if outcome.exit_status is not None:
        return outcome.exit_status
    # Imported here, because it loads numpy, which a wrong flag need not wait for.
    from rnn_scaling.reports import threads_report

    has_failures = outcome.print_failures()
    is_complete = threads_report.report(
        request.out, list(outcome.records.values()), defaults, request.options.format
    )
    if has_failures or not is_complete:
        return entry.EXIT_FAILED
    return entry.EXIT_OK


def _answer_settings(request: recommend.Request, trainer: Sequence[str]) -> int:
    """Print and write the advice; return the exit status."""
    advice, outcome = recommend.find(request, trainer)
    if advice is None:
        return outcome.exit_status or entry.EXIT_OK
    # Imported here, because they load numpy, which a wrong flag need not wait for.
    from rnn_scaling.reports import recommendation, report_files

    text = recommendation.RENDER[request.options.format](advice)
    if request.options.format == "text":
        print_fitted(text)
    else:
        print(text, end="", flush=True)
    if outcome.records:
        markdown = recommendation.format_markdown(advice)
        data = recommendation.to_json(advice)
        report_files.write_results(request.out, advice.name, markdown, data)
    if outcome.exit_status is not None:
        return outcome.exit_status
    has_failed_batch = any(
        statement.kind == "batch-failed" for statement in advice.statements
    )
    if not advice.command or has_failed_batch:
        return entry.EXIT_FAILED
    return entry.EXIT_OK

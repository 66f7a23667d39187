"""python -m rnn_scaling recommend: which settings to use for this model on this machine, and the largest batch."""

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.files.terminal import tell
from rnn_scaling.settings import flags
from rnn_scaling.sweeps import recommend
from rnn_scaling.sweeps.ranks import TRAINER

USAGE = """\
Measures the update modes that train one model on all devices of this machine and prints the command that trains
fastest. Every flag of the trainer (./run.sh train --help) may be given; a list of values is compared.

    ./run.sh recommend
    ./run.sh recommend --model=lm --num_units=512 --minutes=20
    ./run.sh recommend --variable_update=replicated --all_reduce_spec=auto,collective,xring
    ./run.sh recommend --batch_size=32,64,128
    ./run.sh recommend --largest_batch --model=lm

Each configuration runs two or three times, in interleaved rounds. The records, recommend.md and recommend.json go to
--out. The same command continues where it stopped. docs/recommend.md has the rules.

--largest_batch searches the largest --batch_size that fits in memory. A run that exceeds --memory_gib is ended at once
(Linux), before the machine swaps.

Exit status: 0 done, 1 nothing was measured or the folder cannot be written, 2 the flags conflict, the folder is in use
or holds records of other flags, 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    flags.answer(words, USAGE, recommend.GROUPS, "recommend")
    options, advice, outcome = recommend.find(words, trainer)
    if advice is None:
        return outcome.exit_status or entry.EXIT_OK
    from rnn_scaling.reports import recommendation, report_files

    text, out, name = (
        recommendation.RENDER[options.format](advice),
        Path(options.out),
        advice.name,
    )
    if options.format == "text":
        tell(text)
    else:
        print(text, end="", flush=True)
    if outcome.records:
        renders = {
            "md": recommendation.markdown(advice).encode,
            "json": recommendation.to_json(advice).encode,
        }
        files = {f"{name}.{kind}": render for kind, render in renders.items()}
        report_files.write(files, out, force=True, flag="--out")
        entry.note(f"wrote {out / name}.md and {name}.json next to the records")
    if outcome.exit_status is not None:
        return outcome.exit_status
    is_answered = advice.command and not any(
        statement.kind == "batch-failed" for statement in advice.statements
    )
    return entry.EXIT_OK if is_answered else entry.EXIT_FAILED

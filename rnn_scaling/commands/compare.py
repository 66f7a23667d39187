"""python -m rnn_scaling compare BEFORE AFTER: is AFTER slower, and do these runs show it?"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison.compared_metrics import CHOICES, RATE
from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

USAGE = """\
Is AFTER slower than BEFORE, and can these runs tell? BEFORE and AFTER are folders of run records, as a sweep writes
them, or single records. Configurations that both contain are compared one by one. An option that differs between all
runs before and all runs after is the change.

    ./run.sh compare results/main results/branch
    ./run.sh compare results/ab/a results/ab/b --paired --max_regression=2%
    ./run.sh compare results/old_machine results/new_machine --across=machine

One run per side shows no change, because any two runs differ: repeat them (./run.sh sweep --repeats=5, or ./run.sh ab,
which runs both sides in turns). docs/compare.md has the design, the test and its error rates.

Exit status: 0 a slow-down beyond the limit is excluded everywhere, 1 there is one, 2 cannot judge: too few runs or too
much noise, incomparable runs, configurations missing or failed after, nothing in common, or wrong use. With
--across=machine: 0 every series was judged, 2 one was not."""


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """Compare."""

    before: Path = flags.positional(
        "folder of run records, or one record", shown="BEFORE"
    )
    after: Path = flags.positional(
        "folder or record that is compared with it", shown="AFTER"
    )
    max_regression: float = flags.max_regression("the largest slow-down that passes")
    paired: bool = option(
        False,
        "compare pair by pair: runs with the same repeat number ran one after the other, as `ab` runs them",
    )
    metric: str = option(
        RATE,
        "what is compared; speedup and efficiency need runs on one device too",
        choices=CHOICES,
    )
    across: str = option(
        "",
        "machine: the sides are two machines; says which is faster per device and with all devices, and lists what "
        "else differs",
        choices=("machine",),
    )
    machines: Path | None = option(
        None,
        "with --across: prices (default: machines.toml, if it exists)",
        shown="FILE",
    )
    machine: str = option(
        "",
        "with --across: a name in --machines for both sides, or two",
        shown="NAME,...",
    )
    format: str = option(
        "text",
        'for the terminal, for a pull request, or "rnn_scaling.compare/1"',
        choices=("text", "markdown", "json"),
    )
    force_incomparable: str = option(
        "",
        "judge although the runs differ in more than the change: everything (--force_incomparable alone), or the named "
        "differences (--force_incomparable=cpu_model,batch_size)",
        shown="NAME,...",
        bare=True,
    )


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = flags.read(words, USAGE, CompareOptions, "compare")
    from rnn_scaling.analysis import prices
    from rnn_scaling.analysis.comparison import judgement
    from rnn_scaling.reports import comparison

    forced = options.force_incomparable.replace("true", judgement.ALL).split(",")
    accepted = frozenset(judgement.plain_name(name) for name in forced if name)
    if options.across and (options.paired or options.metric != RATE):
        raise entry.Refusal(
            "--across=machine compares items/s of unpaired runs; leave out --paired and "
            "--metric"
        )
    if not options.across and (options.machines or options.machine):
        raise entry.Refusal(
            "--machines and --machine need --across=machine; add it, or omit them"
        )
    machine_prices: Sequence[prices.PriceList] = ()
    if options.across:
        machine_prices = prices.read(options.machines, options.machine, 2)
    question = judgement.Question(
        options.metric,
        options.paired,
        options.max_regression,
        accepted,
        options.across,
        prices=machine_prices,
    )
    return comparison.compare(options.before, options.after, question, options.format)

"""python -m rnn_scaling compare BEFORE AFTER: whether AFTER is significantly slower.

It only reads flags and prints: `analysis.comparison` judges, and `reports.comparison`
shows. BEFORE and AFTER are words of the interface; the fields have their names.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.analysis.comparison.compared_metrics import CHOICES, RATE
from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

if TYPE_CHECKING:
    from rnn_scaling.analysis.history.sessions import PastSessions

HISTORY = Path("history")  # used if it exists
USAGE = """\
Is AFTER slower than BEFORE, and are there enough runs to tell? BEFORE and AFTER are
folders of run records, as a sweep writes them, or single records. Configurations that
both contain are compared one by one. An option that differs between all runs before and
all runs after is the change.

    ./run.sh compare results/main results/branch
    ./run.sh compare results/ab/a results/ab/b --paired --max_regression=2%
    ./run.sh compare results/old_machine results/new_machine --across=machine

If the sides were measured at different times, the interval includes the drift of the
machine between two sessions. --history=DIR shows how large it is; ./run.sh ab
alternates between the sides and avoids it.

With one run per side, no change can be shown, because any two runs differ. Repeat them
with ./run.sh sweep --repeats=5, or with ./run.sh ab, which alternates between the
sides. docs/compare.md explains the verdicts, and docs/statistics.md the test.

Exit status: 0 a slow-down beyond the limit is excluded everywhere; 1 a configuration is
slower by more than the limit; 2 cannot judge: too few runs or too much noise,
incomparable runs, configurations missing or failed after, nothing in common, or wrong
use. With --across=machine: 0 every series was judged; 2 one was not."""


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """Compare."""

    before: Path = flags.declare_positional(
        "folder of run records, or one record", shown="BEFORE"
    )
    after: Path = flags.declare_positional(
        "folder or record that is compared with it", shown="AFTER"
    )
    max_regression: float = flags.max_regression("largest slow-down with exit status 0")
    paired: bool = option(
        False,
        "compare pair by pair, assuming that runs with the same repeat number ran one "
        "after the other, like the runs of `ab`",
    )
    metric: str = option(
        RATE,
        "metric to compare; speedup and efficiency also need runs on one device",
        choices=CHOICES,
    )
    across: str = option(
        "",
        "treat the sides as two machines (machine): show which one is faster "
        "per device and with all devices, and list what else differs",
        choices=("machine",),
    )
    machines: Path | None = option(
        None,
        "file of prices, with --across=machine (default: machines.toml, if it exists)",
        shown="FILE",
    )
    machine: str = option(
        "",
        "name of the machine in --machines, for both sides, or one name per "
        "side (default: the machines of the runs)",
        shown="NAME,...",
    )
    history: str = option(
        "",
        "folders of earlier sessions of this machine, to measure its drift: "
        "histories or run records (default: history, if it exists)",
        shown="DIR,...",
    )
    format: str = option(
        "text",
        "output format: text for the terminal, markdown for a pull request, "
        'or json (schema "rnn_scaling.compare/1")',
        choices=("text", "markdown", "json"),
    )
    force_incomparable: str = option(
        "",
        "judge even if the runs differ in more than the change: ignore every "
        "difference (--force_incomparable without a value) or the named ones "
        "(--force_incomparable=cpu_model,batch_size)",
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
    accepted = frozenset(judgement.normalize_name(name) for name in forced if name)
    if options.across and (options.paired or options.metric != RATE):
        raise entry.Refusal(
            "--across=machine compares items/s of unpaired runs; leave out --paired "
            "and --metric"
        )
    if not options.across and (options.machines or options.machine):
        raise entry.Refusal(
            "--machines and --machine need --across=machine; add it, or omit them"
        )
    if options.history and (options.paired or options.across):
        raise entry.Refusal(
            f"--history={options.history} is for two sessions of one machine; leave it "
            "out with --paired and --across"
        )
    machine_prices: Sequence[prices.PriceList] = ()
    if options.across:
        machine_prices = prices.read_price_lists(options.machines, options.machine, 2)
    question = judgement.Question(
        options.metric,
        paired=options.paired,
        max_regression=options.max_regression,
        accepted=accepted,
        across=options.across,
        prices=machine_prices,
        past=_read_past(options),
    )
    return comparison.compare(options.before, options.after, question, options.format)


def _read_past(options: CompareOptions) -> "PastSessions | None":
    """Return earlier sessions; None if they are missing or not needed."""
    from rnn_scaling.analysis.comparison.matching import InputError
    from rnn_scaling.analysis.history import sessions

    if options.paired or options.across:
        return None
    history_paths = [Path(name) for name in options.history.split(",") if name]
    paths = history_paths
    if not history_paths and HISTORY.is_dir():
        paths = [HISTORY]
    if not paths:
        return None
    try:
        return sessions.read(paths)
    except InputError as e:
        if not history_paths:
            return None
        raise entry.Refusal(f"--history={options.history}: {e}") from None

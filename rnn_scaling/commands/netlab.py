"""python -m rnn_scaling netlab: one run whose processes are machines of their own behind limited links."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.settings import flags
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.netlab import delayed, options, running, tools

USAGE = """\
What would this run do on a slower network? Starts its workers (and parameter servers) on this machine, each in a
network namespace of its own, behind a link of the given rate to a common switch. Needs root, the programs of iproute2,
and iperf3, which measures what the links carry before the run; the record keeps that. What stands behind -- are flags
of the trainer; rank 0 prints its table and writes --result_file.

    ./run.sh netlab --workers=3 --rate=200mbit -- --variable_update=collective_all_reduce --result_file=run.json
    ./run.sh netlab --workers=2 --ps=2 --rate=50mbit -- --variable_update=distributed_parameter_server
    ./run.sh netlab --workers=2 --rate=50mbit --delay=5ms -- --compress_gradients=int8

Workers get cores of their own where there are enough. Nothing is left on the machine: what a run that was killed could
not remove, the next one finds and removes. docs/netlab.md has what rings and parameter servers reach at 1000,
200 and 50 Mbit/s.

Exit status: 0 done, 1 the run failed, 2 the flags conflict or this machine cannot, 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = ranks.TRAINER) -> int:
    """Runs one configuration in namespaces; returns the exit status."""
    end = list(words).index("--") if "--" in words else len(words)
    flags.answer(words[:end], USAGE, [options.NetlabOptions], "netlab")
    wanted = options.read(words[:end], words[end + 1 :])
    packages = {**tools.PACKAGES, **(delayed.PACKAGES if wanted.link.delay_s else {})}
    if lines := tools.refusals(packages):
        raise entry.Refusal(*lines)
    return running.run(wanted, trainer)

"""python -m rnn_scaling netlab: one run whose processes are machines of their own behind limited links."""

from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.settings import flags
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.netlab import run

USAGE = """\
Runs one configuration as on a slower network: each worker and parameter server gets its own network namespace on this
machine, behind a link of the given rate to a common switch. Needs root, iproute2 and iperf3, which measures the links
before the run; the record contains the result. Flags of the trainer follow --; rank 0 prints the table and writes
--result_file.

    ./run.sh netlab --workers=3 --rate=200mbit -- --variable_update=collective_all_reduce --result_file=run.json
    ./run.sh netlab --workers=2 --ps=2 --rate=50mbit -- --variable_update=distributed_parameter_server
    ./run.sh netlab --workers=2 --rate=50mbit --delay=5ms -- --compress_gradients=int8

Nothing is left on the machine, even after kill -9. docs/netlab.md has measurements of rings and parameter servers at
1000, 200 and 50 Mbit/s.

Exit status: 0 done, 1 the run failed, 2 the flags conflict or this machine lacks a tool, 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = ranks.TRAINER) -> int:
    flags.answer(ranks.split(words)[0], USAGE, run.GROUPS, "netlab")
    return run.run(words, trainer)

"""python -m rnn_scaling links: rates of memory, copies, products and all-reduces.

It only reads flags and prints; `links.plan` and `links.measuring` do the rest.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.links import plan, processes
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import DeviceError

USAGE = """\
Measures the limits of the exchange of gradients: the host's memory, copies between host
and GPUs or between GPUs, and TensorFlow's all-reduce with every --all_reduce_spec.
Copies are pinned and pageable, one way and both ways. Each is fitted to time = alpha +
bytes / beta, and the sums of every all-reduce are checked. Matrix products show the
peak rate of a step's arithmetic; it is stored for later runs on this machine.

    ./run.sh links                      everything (minutes)
    ./run.sh links --measure=memory     seconds, without TensorFlow
    ./run.sh links --measure=compute    half a minute, on an idle machine
    ./run.sh links --measure=all_reduce --algorithms=pscpu,xring#2 \\
        --num_devices=4 --max_bytes=16M

Prints the tables. It writes to --out: links.md (the same with every size), links.json
(all raw times), all_reduce.txt, links.png and links.svg. all_reduce.txt has the format
of nccl-tests, which ./run.sh import_log also reads. Each all-reduce runs in its own
process: one that does not return within --timeout is ended and named, and the others
continue. docs/links.md explains every number.

Exit status: 0 everything was measured and correct; 1 a measurement failed, a sum was
wrong or a file was not written; 2 wrong use; 130 interrupted by Ctrl-C or SIGTERM
(finished measurements are written)."""


@entry.command
def main(words: Sequence[str], worker: Sequence[str] = processes.WORKER) -> int:
    """Run the command; return its exit status."""
    flags.answer(words, USAGE, [plan.LinkOptions], "links")
    try:
        planned = plan.make(words)
    except (DeviceError, OSError) as e:
        return entry.fail(str(e))
    out = Path(planned.options.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        # A folder that cannot be written is reported now and not after minutes.
        tempfile.TemporaryFile(dir=out).close()
    except OSError as e:
        raise entry.Refusal(
            f"--out={out}: {e.strerror or e}; name another folder"
        ) from None
    # These load numpy and matplotlib, so a wrong flag is reported first.
    from rnn_scaling.links import measuring, table
    from rnn_scaling.system.files.terminal import print_fitted
    from rnn_scaling.system.machine.environment import read_environment

    environment = read_environment()
    measurements = measuring.measure(planned, worker)
    measuring.keep_peaks(measurements.products, environment)
    # Written before the table is printed, because the pipe may close.
    is_written = measuring.write(out, measurements, planned, environment)
    print_fitted(table.render(measurements))
    entry.fail(*measurements.errors)
    if measurements.interrupted:
        print(measurements.interrupted, file=sys.stderr)
        return entry.EXIT_INTERRUPTED
    succeeds = is_written and not measurements.errors
    return entry.EXIT_OK if succeeds else entry.EXIT_FAILED

"""python -m rnn_scaling.hooks.trace [FLAGS] SCRIPT ARGUMENTS: trace some steps of PyTorch.

The script is not changed. It runs as usual, also below torchrun:

    torchrun --nproc_per_node=2 -m rnn_scaling.hooks.trace --folder=traces my.py

Each rank writes FOLDER/rankN.json.gz, which `./run.sh inspect FOLDER` reads. A step
ends with each step of the first optimizer. The environment needs PyTorch only.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from rnn_scaling.hooks import script

# A sweep names the record of a run in this variable; traces go next to it.
RESULT_VARIABLE = "RNN_SCALING_RESULT_FILE"


class Tracer:
    """Traces some steps of the optimizer that steps first.

    Args:
      folder: Where the trace is written.
      skipped_batches: Steps before the trace.
      trace_batches: Steps in the trace.
    """

    def __init__(self, folder: str, skipped_batches: int, trace_batches: int) -> None:
        self._folder = folder
        self._optimizer_id: int | None = None
        self._num_steps = 0
        self._last_step = skipped_batches + trace_batches
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(
            activities=activities,
            # The profiler's own start is slow, so it warms up for one step.
            schedule=torch.profiler.schedule(
                wait=max(skipped_batches - 1, 0),
                warmup=min(skipped_batches, 1),
                active=trace_batches,
                repeat=1,
            ),
            on_trace_ready=self._write,
        )

    @property
    def missing_steps(self) -> int:
        """The steps that the script must still make until the trace is complete."""
        return max(self._last_step - self._num_steps, 0)

    def start(self) -> None:
        """Begin to count steps."""
        register_optimizer_step_post_hook(self._end_step)
        self._profiler.start()

    def finish(self) -> None:
        """Drop a trace that is incomplete: PyTorch crashes at exit if it still runs."""
        if self.missing_steps:
            self._profiler.stop()

    def _end_step(self, optimizer: Optimizer, *_: object) -> None:
        if self._optimizer_id is None:
            self._optimizer_id = id(optimizer)
        if id(optimizer) != self._optimizer_id or not self.missing_steps:
            return
        self._num_steps += 1
        self._profiler.step()
        if not self.missing_steps:
            self._profiler.stop()

    def _write(self, profiler: "torch.profiler.profile") -> None:
        if self.missing_steps:
            return
        rank = os.environ.get("RANK", "0")
        os.makedirs(self._folder, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(self._folder, f"rank{rank}.json.gz"))


def _default_folder() -> str:
    """Return the folder of a sweep's run, or `traces`."""
    result_file = os.environ.get(RESULT_VARIABLE)
    if not result_file:
        return "traces"
    return f"{os.path.splitext(result_file)[0]}.traces"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the flags, the script and its arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m rnn_scaling.hooks.trace",
        description="Trace some steps of a PyTorch script, which is not changed.",
    )
    parser.add_argument(
        "--trace_batches",
        type=int,
        default=5,
        help="number of steps to trace (default: 5)",
    )
    parser.add_argument(
        "--skipped_batches",
        type=int,
        default=10,
        help="number of steps before the trace (default: 10)",
    )
    parser.add_argument(
        "--folder",
        default=_default_folder(),
        help=(
            "folder of the traces (default: traces; in a sweep, a folder next to "
            "the record of the run)"
        ),
    )
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    flags = parser.parse_args(words)
    if flags.trace_batches < 1:
        parser.error(f"--trace_batches={flags.trace_batches} must be at least 1")
    if flags.skipped_batches < 0:
        parser.error(f"--skipped_batches={flags.skipped_batches} must be at least 0")
    return flags


def main(words: Sequence[str]) -> None:
    flags = parse(words)
    tracer = Tracer(flags.folder, flags.skipped_batches, flags.trace_batches)
    tracer.start()
    try:
        script.run([flags.script, *flags.arguments])
    finally:
        tracer.finish()
        if tracer.missing_steps:
            needed = flags.skipped_batches + flags.trace_batches
            print(
                f"rnn_scaling.hooks.trace: no trace was written. It needs {needed} steps "
                f"of the optimizer, and the script made {tracer.missing_steps} fewer. "
                "Give the script more steps, or lower --skipped_batches.",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main(sys.argv[1:])

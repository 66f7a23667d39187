"""The trainer of every other framework: it checks 20 losses, then measures.

    python -m rnn_scaling.frameworks.NAME FILE

runs in the framework's environment, which needs numpy and nothing else of this suite.
The module of a framework ends in `loop.start(loop.FrameworkTrainer(...))`.

The variables RANK, SIZE and GROUP connect the processes of a run; starting.py removes
them from the environment of the first one.
"""

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, Protocol

from rnn_scaling.frameworks import handoff
from rnn_scaling.frameworks.handoff import Task
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import print_fitted
from rnn_scaling.system.processes.process import PARENT_DEATH_LAUNCHER
from rnn_scaling.training.acceptance import NotFiniteError
from rnn_scaling.training.recorder import Recorder

_FOLDER = "RNN_SCALING_RECORDS"
RANK = "RANK"
SIZE = "WORLD_SIZE"
GROUP = "RNN_SCALING_GROUP"
# Rank 0 must notice within this time that another rank has ended.
GRACE_S = 5.0
Step = Callable[[], float]
"""Train one step on this process's devices; return the mean loss per word before it.

It returns after the devices have finished the update.
"""


class ProcessGroup(Protocol):
    """Joins the processes of a framework that has one per device."""

    def create(self, num_ranks: int) -> str:
        """Create the group on rank 0; return the address for the other ranks' `join`."""

    def join(self, address: str, rank: int, task: Task) -> None:
        """Join the group; return when all ranks have joined."""


@dataclasses.dataclass(frozen=True)
class FrameworkTrainer:
    """A framework.

    Attributes:
      build: (task, rank) -> the step of the task's config, starting from the task's
        weights. Compilation happens here or in the first step. A process that drives
        all devices has rank 0.
      kernel: The implementation of the recurrent layers, for the record. It is called
        before the first step and after it, when the implementation that ran is known.
      group: None if one process drives all devices.
      compile_s: Returns the seconds of compilation so far, or None if nothing was
        compiled.
    """

    name: str
    build: Callable[[Task, int], Step]
    kernel: Callable[[Task], str]
    group: ProcessGroup | None = None
    compile_s: Callable[[], float | None] = lambda: None


class RefusedError(Exception):
    """The framework does not compute the losses of this suite."""


def start(framework: FrameworkTrainer) -> NoReturn:
    """Train the task of the command line and end the process."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_interrupt)
    entry.leave(lambda: run(framework, handoff.read(sys.argv[1])), at_once=True)


def run(framework: FrameworkTrainer, task: Task) -> int:
    """Train and write the record, even after a failure; return the exit status."""
    rank = int(os.environ.get(RANK, "0"))
    if rank:  # rank 0 handles Ctrl-C and ends the others
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        entry.be_quiet()
    with contextlib.ExitStack() as stack:
        if not task.result_file:  # the ranks still need a folder for their records
            folder = os.environ.get(_FOLDER) or stack.enter_context(
                tempfile.TemporaryDirectory()
            )
            os.environ[_FOLDER] = folder
            task = dataclasses.replace(
                task, result_file=os.path.join(folder, "run.json")
            )
        return _TrainerRun(framework, task, rank, stack.close).main()


def check(step: Step, task: Task, towers: range) -> None:
    """Compare the first losses of `task.as_reference()` with this suite's.

    Raises:
      RefusedError: If a loss differs.
    """
    losses = []
    for number, expected in enumerate(task.compute_losses(towers)):
        loss = step()
        losses.append(loss)
        if not abs(loss - expected) <= handoff.TOLERANCE * abs(expected):
            raise RefusedError(
                f"{task.config['framework']} does not train the same network: "
                f"loss {loss:.7g} at step {number} of SGD instead of {expected:.7g} "
                f"(first loss {losses[0]:.7g} instead of {task.compute_losses(towers)[0]:.7g}; "
                f"the tolerance is {handoff.TOLERANCE:g} of the loss)"
            )


class Ranks:
    """Ranks 1 to `size` - 1, which rank 0 starts and ends with its own program."""

    def __init__(
        self, size: int, address: str, file: str, give_up: Callable[[str], object]
    ) -> None:
        """Start the ranks.

        Args:
          give_up: Called with the cause if a rank has failed and rank 0 has not
            noticed.
        """
        descriptors = []
        if file.startswith("/dev/fd/"):
            descriptors.append(int(file.rpartition("/")[2]))
        program = [sys.executable, *sys.orig_argv[1:]]
        self._processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    str(PARENT_DEATH_LAUNCHER),
                    str(os.getpid()),
                    *program,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=descriptors,
                text=True,
                env={**os.environ, RANK: str(rank), SIZE: str(size), GROUP: address},
            )
            for rank in range(1, size)
        ]
        self._cause = ""
        self._has_failed = threading.Event()
        self._give_up = give_up
        self._is_over = False
        self._watchers = [
            threading.Thread(target=self._watch, args=(rank,), daemon=True)
            for rank in range(1, size)
        ]
        for watcher in self._watchers:
            watcher.start()

    def explain_failure(self, wait_s: float) -> str:
        """Explain the failure of a rank, or return "" if none has failed.

        Args:
          wait_s: Seconds to wait for a failure.
        """
        self._is_over = True
        self._has_failed.wait(wait_s)
        return self._cause

    def wait(self) -> str:
        """Wait until all ranks have ended; return why one failed, or ""."""
        self._is_over = True
        for watcher in self._watchers:
            watcher.join()
        return self._cause

    def end(self) -> None:
        self._is_over = True
        for process in self._processes:
            process.kill()
            process.wait()

    def _watch(self, rank: int) -> None:
        """Wait for a rank's process, and keep the reason if it fails."""
        process = self._processes[rank - 1]
        assert process.stdout is not None
        output = process.stdout.read()
        status = process.wait()
        if status == 0:
            return
        reason = f"failed with status {status}"
        if status < 0:
            reason = f"ended with signal {-status}"
        with contextlib.suppress(IndexError, json.JSONDecodeError):
            reason = json.loads(output.splitlines()[-1])
        self._cause = self._cause or f"rank {rank}: {reason}"
        self._has_failed.set()
        time.sleep(GRACE_S)
        if not self._is_over:
            self._give_up(self._cause)


class _TrainerRun:
    def __init__(
        self,
        framework: FrameworkTrainer,
        task: Task,
        rank: int,
        leave: Callable[[], None],
    ) -> None:
        self._framework = framework
        self._task = task
        self._rank = rank
        self._leave = leave
        self._num_ranks = 1
        self._towers = range(task.num_devices)
        if framework.group:
            self._num_ranks = task.num_devices
            self._towers = range(rank, rank + 1)
        self._ranks: Ranks | None = None

    def main(self) -> int:
        """Train, and end all ranks whatever happens; return the exit status."""
        if self._task.cores and self._num_ranks > 1:
            os.sched_setaffinity(0, self._task.cores[self._rank])
        recorder = self._recorder()
        try:
            if self._framework.group is not None and self._num_ranks > 1:
                self._join_group(self._framework.group, recorder)
            self._train(recorder)
        except KeyboardInterrupt as e:
            recorder.close(e)
            self._clean_up()
            raise
        except Exception as e:
            return self._fail(recorder, e)
        result = recorder.close()
        if result.status != "ok":  # another rank failed and may never end
            self._clean_up()
        elif self._ranks is not None and (cause := self._ranks.wait()):
            return self._fail(recorder, RuntimeError(cause))
        if self._rank == 0:
            _print_result(result)
        return entry.EXIT_OK if result.status == "ok" else entry.EXIT_FAILED

    def _recorder(self) -> Recorder:
        """Return the Recorder of this rank, with the facts of the task."""
        task = self._task
        recorder = Recorder(
            task.result_file,
            unit="words",
            device_type=str(task.resolved["device_type"]),
            rank=self._rank,
            num_ranks=self._num_ranks,
            flops_per_item=task.flops_per_item,
            num_warmup_batches=task.config["num_warmup_batches"],
            progress=bool(task.config["progress"]),
            num_steps=_count_steps(task),
            config=task.config,
            started=task.started,
        )
        recorder.recording.resolved.update(task.resolved)
        self._name_kernels(recorder)
        if self._num_ranks > 1 and task.cores:
            recorder.recording.resolved["cpu_affinity"] = list(task.cores[self._rank])
        recorder.recording.parameters.update(task.parameters)
        return recorder

    def _name_kernels(self, recorder: Recorder) -> None:
        name = self._framework.kernel(self._task)
        recorder.recording.resolved.update(
            encoder_kernel=name,
            decoder_kernel=name,
            compile_s=self._framework.compile_s(),
        )

    def _join_group(self, group: ProcessGroup, recorder: Recorder) -> None:
        """Start the other ranks at rank 0, and join the framework's process group."""
        if self._rank == 0:
            address = group.create(self._num_ranks)
            self._ranks = Ranks(
                self._num_ranks,
                address,
                sys.argv[1],
                lambda cause: self._give_up(recorder, cause),
            )
        else:
            address = os.environ[GROUP]
        group.join(address, self._rank, self._task)

    def _train(self, recorder: Recorder) -> None:
        """Check the losses of the reference, then warm up and measure."""
        task = self._task
        recorder.recording.phases.enter("build")
        name = task.config["framework"]
        entry.note(
            f"{name}: comparing {handoff.NUM_LOSSES} losses of SGD with this "
            "suite's losses"
        )
        reference_step = self._framework.build(task.as_reference(), self._rank)
        check(reference_step, task, self._towers)
        step = self._framework.build(task, self._rank)
        items = sum(task.items[tower] for tower in self._towers)
        recorder.start()
        for number in range(_count_steps(task)):
            loss = step()
            recorder.step(items, loss)
            if number == 0:
                self._name_kernels(recorder)
            if not math.isfinite(loss):
                raise NotFiniteError(
                    f"loss is {loss} at batch {number}; "
                    f"lower --learning_rate={task.learning_rate:g}"
                )

    def _fail(self, recorder: Recorder, error: Exception) -> int:
        """Close the record with the error that caused all others."""
        # Other errors may be caused by the end of another rank.
        is_own = isinstance(error, (RefusedError, NotFiniteError))
        cause = ""
        if self._ranks is not None and not is_own:
            cause = self._ranks.explain_failure(wait_s=2.0)
        if cause:
            error = RuntimeError(cause)
        recorder.close(error)
        self._clean_up()
        message = entry.find_first_line(error)
        if not cause and not is_own:
            message = f"{type(error).__name__}: {message}"
        if self._rank:
            print(json.dumps(message), flush=True)  # rank 0 reads and prints it
            return entry.EXIT_FAILED
        return entry.fail(message)

    def _clean_up(self) -> None:
        """End the other ranks of a run without a result."""
        if self._ranks is not None:
            self._ranks.end()

    def _give_up(self, recorder: Recorder, cause: str) -> NoReturn:
        """End this process, which waits for a rank that has ended.

        It is called in a thread of `Ranks`.
        """
        recorder.close(RuntimeError(cause))
        self._clean_up()
        self._leave()
        entry.fail(cause)
        sys.stderr.flush()
        os._exit(entry.EXIT_FAILED)


def _count_steps(task: Task) -> int:
    """Return the number of steps, warm-up included."""
    return int(task.config["num_warmup_batches"] + task.config["num_batches"])


def _print_result(result: RunRecord) -> None:
    from rnn_scaling.reports import steady_state, table

    if result.steady_state:
        entry.note(steady_state.run_text(result))
    print_fitted(table.render_runs([result]))


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal like Ctrl-C."""
    raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

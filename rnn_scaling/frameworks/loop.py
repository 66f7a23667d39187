"""What every framework's trainer does around its step: read the work, check 20 losses, warm up, measure, record.

    python -m rnn_scaling.frameworks.NAME FILE

in an environment of the framework, which needs numpy and nothing else of this suite. A framework's file ends in
`loop.start(loop.Framework(...))`.
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
from rnn_scaling.frameworks.handoff import Work
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import tell
from rnn_scaling.system.processes.process import TETHER
from rnn_scaling.training.acceptance import NotFiniteError
from rnn_scaling.training.recorder import Recorder

_FOLDER = "RNN_SCALING_RECORDS"
RANK = "RANK"
SIZE = "WORLD_SIZE"
GROUP = "RNN_SCALING_GROUP"
GRACE_S = 5.0  # within which rank 0 itself must notice that another has gone
Step = Callable[[], float]
"""Trains one step on the devices of this process -> the mean loss of the words of their towers, before the update.

It returns when the devices have finished, the update included.
"""


class ProcessGroup(Protocol):
    """How the processes of a framework with one a device meet."""

    def host(self, num_ranks: int) -> str:
        """Rank 0's, before the others start; the address that they `join`."""

    def join(self, address: str, rank: int, work: Work) -> None:
        """Returns when all ranks have."""


@dataclasses.dataclass(frozen=True)
class FrameworkTrainer:
    name: str
    # (work, rank) -> the step that the work's config asks for, new from the work's weights each time. What is compiled
    # is compiled here or at the first call. A process that drives all devices has rank 0.
    build: Callable[[Work, int], Step]
    # What computes the recurrent layers, in a few words, for the record's `encoder_kernel`.
    kernel: Callable[[Work], str]
    group: ProcessGroup | None = (
        None  # of a framework with a process for each device; None: one process drives all
    )


class RefusedError(Exception):
    """The framework computes something else than we do."""


def start(framework: FrameworkTrainer) -> NoReturn:
    """The whole process of a framework's file: trains the work that the command line names, and ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    entry.leave(lambda: run(framework, handoff.read(sys.argv[1])), at_once=True)


def run(framework: FrameworkTrainer, work: Work) -> int:
    """Trains, and writes the record whatever happens; returns the exit status."""
    rank = int(os.environ.get(RANK, "0"))
    if rank:  # rank 0 answers Ctrl-C, and takes the others with it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        entry.be_quiet()
    with contextlib.ExitStack() as stack:
        if not work.result_file:  # ranks join their records in a folder
            folder = os.environ.get(_FOLDER) or stack.enter_context(
                tempfile.TemporaryDirectory()
            )
            os.environ[_FOLDER] = folder
            work = dataclasses.replace(
                work, result_file=os.path.join(folder, "run.json")
            )
        return _TrainerRun(framework, work, rank, stack.close).main()


def check(step: Step, work: Work, towers: range) -> None:
    """Compares the first losses of `work.as_reference()` with ours. Raises RefusedError naming the step and both."""
    losses = []
    for number, expected in enumerate(work.losses(towers)):
        loss = step()
        losses.append(loss)
        if not abs(loss - expected) <= handoff.TOLERANCE * abs(expected):
            raise RefusedError(
                f"{work.config['framework']} does not train the same network: loss {loss:.7g} at step {number} of "
                f"SGD, and ours is {expected:.7g} (first loss {losses[0]:.7g}, ours {work.losses(towers)[0]:.7g}; "
                f"allowed are {handoff.TOLERANCE:g} of it)"
            )


class Ranks:
    """Ranks 1 to `size` - 1, which rank 0 starts with the program that it runs; none outlives it."""

    def __init__(
        self, size: int, address: str, file: str, give_up: Callable[[str], object]
    ) -> None:
        """give_up: called with the cause, where a rank has failed and rank 0 goes on regardless."""
        descriptors = (
            [int(file.rpartition("/")[2])] if file.startswith("/dev/fd/") else []
        )
        self._processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    str(TETHER),
                    str(os.getpid()),
                    sys.executable,
                    *sys.orig_argv[1:],
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=descriptors,
                text=True,
                env={**os.environ, RANK: str(rank), SIZE: str(size), GROUP: address},
            )
            for rank in range(1, size)
        ]
        self._cause, self._has_failed = "", threading.Event()
        self._give_up = give_up
        self._is_over = False
        self._watchers = [
            threading.Thread(target=self._watch, args=(rank,), daemon=True)
            for rank in range(1, size)
        ]
        for watcher in self._watchers:
            watcher.start()

    def failure(self, wait_s: float) -> str:
        """Why a rank has failed, waiting so long for one that is failing; empty: none has."""
        self._is_over = True
        self._has_failed.wait(wait_s)
        return self._cause

    def wait(self) -> str:
        """Waits for the ends of all; returns why one failed, empty: none has."""
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
        process = self._processes[rank - 1]
        assert process.stdout is not None
        output = process.stdout.read()
        status = process.wait()
        if status == 0:
            return
        how = (
            f"ended with signal {-status}"
            if status < 0
            else f"failed with status {status}"
        )
        with contextlib.suppress(IndexError, json.JSONDecodeError):
            how = json.loads(output.splitlines()[-1])
        self._cause = self._cause or f"rank {rank}: {how}"
        self._has_failed.set()
        time.sleep(GRACE_S)
        if not self._is_over:
            self._give_up(self._cause)


class _TrainerRun:
    def __init__(
        self,
        framework: FrameworkTrainer,
        work: Work,
        rank: int,
        leave: Callable[[], None],
    ) -> None:
        self._framework = framework
        self._work = work
        self._rank = rank
        self._leave = leave
        self._towers = (
            range(rank, rank + 1) if framework.group else range(work.num_devices)
        )
        self._num_ranks = work.num_devices if framework.group else 1
        self._ranks: Ranks | None = None

    def main(self) -> int:
        if self._work.cores and self._num_ranks > 1:
            os.sched_setaffinity(0, self._work.cores[self._rank])
        recorder = self._recorder()
        try:
            if self._framework.group is not None and self._num_ranks > 1:
                self._meet(self._framework.group, recorder)
            self._train(recorder)
        except KeyboardInterrupt as e:
            recorder.close(e)
            self._clean_up()
            raise
        except Exception as e:
            return self._fail(recorder, e)
        result = recorder.close()
        if result.status != "ok":  # of a rank that may never end
            self._clean_up()
        elif self._ranks is not None and (cause := self._ranks.wait()):
            return self._fail(recorder, RuntimeError(cause))
        if self._rank == 0:
            _tell(result)
        return entry.EXIT_OK if result.status == "ok" else entry.EXIT_FAILED

    def _recorder(self) -> Recorder:
        work = self._work
        recorder = Recorder(
            work.result_file,
            unit="words",
            device_type=str(work.resolved["device_type"]),
            rank=self._rank,
            num_ranks=self._num_ranks,
            flops_per_item=work.flops_per_item,
            num_warmup_batches=work.config["num_warmup_batches"],
            progress=bool(work.config["progress"]),
            num_steps=_steps(work),
            config=work.config,
            started=work.started,
        )
        kernels = dict.fromkeys(
            ("encoder_kernel", "decoder_kernel"), self._framework.kernel(work)
        )
        recorder.recording.resolved.update({**work.resolved, **kernels})
        if self._num_ranks > 1 and work.cores:
            recorder.recording.resolved["cpu_affinity"] = list(work.cores[self._rank])
        recorder.recording.parameters.update(work.parameters)
        return recorder

    def _meet(self, group: ProcessGroup, recorder: Recorder) -> None:
        if self._rank == 0:
            address = group.host(self._num_ranks)
            self._ranks = Ranks(
                self._num_ranks,
                address,
                sys.argv[1],
                lambda cause: self._give_up(recorder, cause),
            )
        else:
            address = os.environ[GROUP]
        group.join(address, self._rank, self._work)

    def _train(self, recorder: Recorder) -> None:
        work = self._work
        recorder.recording.enter("build")
        entry.note(
            f"{work.config['framework']}: checking {handoff.NUM_LOSSES} losses of SGD against ours"
        )
        check(
            self._framework.build(work.as_reference(), self._rank), work, self._towers
        )
        step = self._framework.build(work, self._rank)
        items = sum(work.items[tower] for tower in self._towers)
        recorder.start()
        for number in range(_steps(work)):
            loss = step()
            recorder.step(items, loss)
            if not math.isfinite(loss):
                raise NotFiniteError(
                    f"loss is {loss} at batch {number}; lower --learning_rate={work.learning_rate:g}"
                )

    def _fail(self, recorder: Recorder, error: Exception) -> int:
        is_own = isinstance(
            error, (RefusedError, NotFiniteError)
        )  # and not what another rank's end did to this one
        cause = (
            self._ranks.failure(wait_s=2.0)
            if self._ranks is not None and not is_own
            else ""
        )
        if cause:
            error = RuntimeError(cause)
        recorder.close(error)
        self._clean_up()
        message = entry.first_line(error)
        message = message if cause or is_own else f"{type(error).__name__}: {message}"
        if self._rank:
            print(json.dumps(message), flush=True)  # to rank 0, which tells it
            return entry.EXIT_FAILED
        return entry.fail(message)

    def _clean_up(self) -> None:
        """Ends the other ranks of a run without a result."""
        if self._ranks is not None:
            self._ranks.end()

    def _give_up(self, recorder: Recorder, cause: str) -> NoReturn:
        """Ends this process, which waits for a rank that has gone; in a thread of its own."""
        recorder.close(RuntimeError(cause))
        self._clean_up()
        self._leave()
        entry.fail(cause)
        sys.stderr.flush()
        os._exit(entry.EXIT_FAILED)


def _steps(work: Work) -> int:
    """Warm-up included."""
    return int(work.config["num_warmup_batches"] + work.config["num_batches"])


def _tell(result: RunRecord) -> None:
    from rnn_scaling.reports import steady_state, table

    if result.steady_state:
        entry.note(steady_state.run_text(result))
    tell(table.render_runs([result]))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A handler of signals: ends what runs as Ctrl-C does."""
    raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

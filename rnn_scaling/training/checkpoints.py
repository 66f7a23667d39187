"""--checkpoint_dir: saves what a run needs to go on, and goes on from it.

A checkpoint holds every tf.Variable that the step reaches: the model's, optimizer slots, moving averages, staged
copies, deferred gradients, what compression lost, loss scale, counters. They are found by walking through the step's
own objects, so no mode has to name them, and compared with what the traced step captured, so none can be forgotten.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workload import VariableSpec
from rnn_scaling.records.decoding import encode
from rnn_scaling.system import entry
from rnn_scaling.training import checkpoint_folder
from rnn_scaling.training.checkpoint_folder import CheckpointError
from rnn_scaling.training.cluster import SingleProcess
from rnn_scaling.training.observers import Batch, Observer, RunView
from rnn_scaling.training.state import RunState
from rnn_scaling.training.towers import TrainStep

ORDER = "ordering_token"  # names the handles of variables that only keep collective operators in their order
# Of the variables' keys, "/" for ".S": of replicas, and of parameter servers, which may hold each in several parts.
_VALUES = re.compile(
    r"variables/_update/(copies/0|.*_variables)/(?P<name>.+?)(/rows_(?P<row>\d+):0)?"
)
OWN = ("rnn_scaling.", "models.")  # packages whose objects are walked through


def find_variables(step: TrainStep) -> dict[str, tf.Variable]:
    """Every variable of a step by the way to it, such as "_update/updaters/0/_slots/projection/0"."""
    return dict(_reached(step, "", set()))


def _reached(
    owner: Any, path: str, seen: set[int]
) -> Iterator[tuple[str, tf.Variable]]:
    if id(owner) in seen:
        return
    seen.add(id(owner))
    if isinstance(owner, tf.Variable):
        if not isinstance(
            owner, tf.distribute.DistributedValues
        ):  # whose parts the modes keep too
            yield path.removeprefix("/"), owner
        return
    parts: Mapping[Any, Any] = {}
    if isinstance(owner, Mapping):
        parts = owner
    elif isinstance(owner, (list, tuple)):
        parts = dict(enumerate(owner))
    elif type(owner).__module__.startswith(OWN):
        parts = getattr(owner, "__dict__", parts)
    for name in sorted(parts, key=str):
        yield from _reached(parts[name], f"{path}/{name}", seen)


def find_uncovered_variables(step: TrainStep) -> list[str]:
    """Return the step's variables that `find_variables` misses, by their graph's names."""
    known = {id(variable.handle) for variable in find_variables(step).values()}
    captured = [
        inner.name
        for outer, inner in step.graph().captures
        if _is_variable(outer) and id(outer) not in known
    ]
    return [name for name in captured if ORDER not in name]


def _is_variable(captured: Any) -> bool:
    """Whether a captured tensor is a variable's handle; those of iterators and tables tell no shape."""
    return (
        captured.dtype == tf.resource
        and captured._handle_data is not None
        and captured._handle_data.is_set
    )


def read_trained_values(
    folder: Path, specs: Sequence[VariableSpec]
) -> dict[str, np.ndarray]:
    """The values of a network's variables in a checkpoint of any update mode; where towers differ, the first one's.

    Raises CheckpointError if it cannot be read, or lacks one, or has one of another shape.
    """
    parts: dict[str, dict[int, np.ndarray]] = {}
    try:
        reader = tf.train.load_checkpoint(checkpoint_folder.variables_in(folder, 0))
        for key in reader.get_variable_to_shape_map():
            if found := _VALUES.fullmatch(
                key.partition("/.ATTRIBUTES")[0].replace(".S", "/")
            ):
                parts.setdefault(found["name"], {})[int(found["row"] or 0)] = (
                    reader.get_tensor(key)
                )
        return {spec.name: _joined(spec, parts[spec.name]) for spec in specs}
    except (tf.errors.OpError, KeyError, ValueError) as e:
        raise checkpoint_folder.damaged(folder, e) from None


def _joined(spec: VariableSpec, parts: Mapping[int, np.ndarray]) -> np.ndarray:
    """A variable from its parts, by their first rows; a ValueError if it has another shape."""
    joined = (
        parts[0]
        if len(parts) == 1
        else np.concatenate([rows for _, rows in sorted(parts.items())])
    )
    if joined.shape != spec.shape:
        raise ValueError(
            f"{spec.name} has the shape {joined.shape}, expected {spec.shape}"
        )
    return joined


class Saver(Observer):
    """Saves a checkpoint after every --save_every batches and after the last one."""

    def __init__(
        self,
        config: RunConfig,
        state: RunState,
        files: Sequence[str],
        cluster: SingleProcess | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._config = config
        self._state = state
        self._files = files
        self._cluster = cluster or SingleProcess()
        self._observer = observer or Observer()
        self._step: Any = None
        self._directory = config.output.checkpoint_dir if config.model.trains else ""
        self._every = config.output.save_every
        self._saved = self._tried = state.checkpoint.batches if state.checkpoint else 0

    def begin(self, run: RunView) -> None:
        self._step = run.step

    def batch(self, batch: Batch) -> bool:
        is_due = bool(self._directory) and (batch.number + 1) % self._every == 0
        if is_due:
            self.save_step(self._step)
        return is_due

    def measured(self) -> None:
        self.save_step(self._step)

    def save_step(self, step: TrainStep) -> None:
        """Saves the batches done so far; where that cannot be written the run goes on, and says so."""
        columns = self._state.batches_since(0)
        done = len(columns["seconds"])
        if not self._directory or done == self._tried:
            return
        self._tried = done
        if lacking := find_uncovered_variables(step):
            raise ValueError(f"the checkpoint would lack {', '.join(lacking)}")
        if problem := self._write(done, columns, step):
            kind = "warn-checkpoint" if self._saved else "warn-first-checkpoint"
            values = {
                "folder": self._directory,
                "problem": problem,
                "batch": done,
                "saved": self._saved,
            }
            self._observer.notice(Statement(kind, values=values))
        else:
            self._saved = done

    def _write(self, done: int, columns: Mapping[str, Any], step: TrainStep) -> str:
        """Writes a checkpoint together with the other ranks; why it could not be, which rank 0 knows, or empty."""
        folder = checkpoint_folder.folder_of(self._directory, done)
        problem = _problem(_write_variables, step, folder, self._cluster.rank)
        resumed = [encode(resumption) for resumption in self._state.resumed]
        parts = self._cluster.gather(
            f"checkpoint {done}",
            {"problem": problem, "told": columns, "resumed": resumed},
        )
        if parts is None:
            return ""
        problems = [(rank, part.pop("problem")) for rank, part in enumerate(parts)]
        whose = (
            f"rank {rank}: {problem}" if rank else problem
            for rank, problem in problems
            if problem
        )
        problem = next(whose, "") or _problem(
            checkpoint_folder.publish, folder, self._config, parts, self._files
        )
        if problem:
            shutil.rmtree(folder, ignore_errors=True)
        return problem

    def agree(self) -> None:
        """Makes sure that all ranks see one folder and go on from one batch; CheckpointError at rank 0 if not."""
        if not self._directory or self._cluster.size == 1:
            return
        done = self._state.checkpoint.batches if self._state.checkpoint else 0
        seen = (
            self._cluster.gather(
                "checkpoint", [checkpoint_folder.holder(self._directory), done]
            )
            or []
        )
        for rank, view in enumerate(seen):
            if view != seen[0]:
                raise CheckpointError(
                    f"--checkpoint_dir={self._directory}: rank {rank} does not see there what rank 0 wrote; give a "
                    "folder that all ranks share"
                )

    def resume(self, step: TrainStep) -> None:
        """Brings the step to where a checkpoint was saved, graphs made and threads warm; else a CheckpointError.

        The last batches before it run once more, as a warm-up that counts nowhere; then the variables are read.
        """
        state = self._state
        checkpoint = self._state.checkpoint
        if checkpoint is None:
            return
        state.enter("resume")
        step.go_to(state.first_step)
        for _ in range(checkpoint.batches - state.first_step):
            step()
        try:
            restored = tf.train.Checkpoint(variables=find_variables(step)).read(
                checkpoint_folder.variables_in(checkpoint.folder, self._cluster.rank)
            )
            restored.assert_consumed()
        except (tf.errors.OpError, AssertionError, ValueError) as e:
            raise checkpoint_folder.damaged(checkpoint.folder, e) from None
        state.add_resumption(checkpoint.batches)
        values = {"batch": checkpoint.batches, "folder": str(checkpoint.folder)}
        self._observer.notice(Statement("run-resumed", values=values))


def _problem(do: Callable[..., None], *args: Any) -> str:
    """Why something could not be written; empty if it was."""
    try:
        do(*args)
    except (OSError, tf.errors.OpError) as e:
        return (
            e.strerror
            if isinstance(e, OSError) and e.strerror
            else entry.first_line(e)[:200]
        )
    return ""


def _write_variables(step: TrainStep, folder: Path, rank: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tf.train.Checkpoint(variables=find_variables(step)).write(
        checkpoint_folder.variables_in(folder, rank)
    )

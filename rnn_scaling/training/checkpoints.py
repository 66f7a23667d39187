"""--checkpoint_dir: save the state of a run and continue from it.

A checkpoint contains every tf.Variable that the step reaches: the network's variables,
optimizer slots, moving averages, staged copies, deferred gradients, errors of the
compression, loss scale, counters. They are found by a walk through the objects of the
step, so that no mode has to name them. They are compared with the variables that the
traced step captured, so that none is missing.

The path of attributes to a variable is its key in the file. So if an attribute of a
step, an update mode or an optimizer gets another name, earlier checkpoints cannot be
read.

`benchmark` creates the `Saver`, which is one of the run's observers.
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
from rnn_scaling.training.cluster import RunMembers, SingleProcess
from rnn_scaling.training.observers import Batch, Observer, RunView
from rnn_scaling.training.state import RunState
from rnn_scaling.training.train_step import TrainStep

# Part of the names of variables that only keep collective operators in their order.
_ORDER_VARIABLE = "ordering_token"
# The keys of the network's variables, with "/" for ".S". Replicas have one key per
# variable, parameter servers may have one key per part of a variable.
_VALUE_KEY = re.compile(
    r"variables/_update/(copies/0|.*_variables)/(?P<name>.+?)(/rows_(?P<row>\d+):0)?"
)
_SEARCHED_PACKAGES = ("rnn_scaling.", "models.")


def find_variables(step: TrainStep) -> dict[str, tf.Variable]:
    """Return every variable of a step by its path.

    A path is, for example, "_update/updaters/0/_slots/projection/0".
    """
    return dict(_walk(step, "", set()))


def _walk(owner: Any, path: str, seen: set[int]) -> Iterator[tuple[str, tf.Variable]]:
    """Yield the variables that an object reaches, with their paths."""
    if id(owner) in seen:
        return
    seen.add(id(owner))
    if isinstance(owner, tf.Variable):
        # The modes also keep the copies of distributed variables.
        if not isinstance(owner, tf.distribute.DistributedValues):
            yield path.removeprefix("/"), owner
        return
    children: Mapping[Any, Any] = {}
    if isinstance(owner, Mapping):
        children = owner
    elif isinstance(owner, (list, tuple)):
        children = dict(enumerate(owner))
    elif type(owner).__module__.startswith(_SEARCHED_PACKAGES):
        children = getattr(owner, "__dict__", children)
    for name in sorted(children, key=str):
        yield from _walk(children[name], f"{path}/{name}", seen)


def find_uncovered_variables(step: TrainStep) -> list[str]:
    """Return the names of variables that `find_variables` does not find."""
    covered = {id(variable.handle) for variable in find_variables(step).values()}
    names = [
        inner.name
        for outer, inner in step.graph().captures
        if _is_variable(outer) and id(outer) not in covered
    ]
    return [name for name in names if _ORDER_VARIABLE not in name]


def _is_variable(captured: Any) -> bool:
    """Return whether a captured tensor is the handle of a variable.

    Handles of iterators and tables have no shape.
    """
    return (
        captured.dtype == tf.resource
        and captured._handle_data is not None
        and captured._handle_data.is_set
    )


def read_trained_values(
    folder: Path, specs: Sequence[VariableSpec]
) -> dict[str, np.ndarray]:
    """Return the values of a network's variables in a checkpoint of any update mode.

    If towers have different values, the first tower is used.

    Raises:
      CheckpointError: If it cannot be read, or if a variable is missing or has another
        shape.
    """
    # The first row of each part, and its values.
    parts: dict[str, dict[int, np.ndarray]] = {}
    try:
        reader = tf.train.load_checkpoint(
            checkpoint_folder.make_variables_path(folder, 0)
        )
        for key in reader.get_variable_to_shape_map():
            path = key.partition("/.ATTRIBUTES")[0].replace(".S", "/")
            match = _VALUE_KEY.fullmatch(path)
            if match:
                first_row = int(match["row"] or 0)
                values = parts.setdefault(match["name"], {})
                values[first_row] = reader.get_tensor(key)
        return {spec.name: _join_parts(spec, parts[spec.name]) for spec in specs}
    except (tf.errors.OpError, KeyError, ValueError) as e:
        raise checkpoint_folder.make_damage_error(folder, e) from None


def _join_parts(spec: VariableSpec, parts: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return a variable from its parts.

    Args:
      spec: The variable.
      parts: Values by first row.

    Raises:
      ValueError: If the variable has another shape.
    """
    pieces = [rows for _, rows in sorted(parts.items())]
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    if values.shape != spec.shape:
        raise ValueError(
            f"{spec.name} has the shape {values.shape}, expected {spec.shape}"
        )
    return values


class Saver(Observer):
    """Saves a checkpoint after every --save_every batches and after the last one.

    `benchmark` calls `agree` and `resume` before the first batch. All ranks must save
    after the same batches, because each save gathers the columns of all ranks at rank
    0. The working thread makes all calls.
    """

    def __init__(
        self,
        config: RunConfig,
        state: RunState,
        files: Sequence[str],
        cluster: RunMembers | None = None,
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
        # Batches in the last checkpoint, and at the last attempt to save one.
        self._num_saved = state.checkpoint.batches if state.checkpoint else 0
        self._num_tried = self._num_saved

    def begin(self, run: RunView) -> None:
        self._step = run.step

    def end_batch(self, batch: Batch) -> bool:
        is_due = bool(self._directory) and (batch.number + 1) % self._every == 0
        if is_due:
            self.save_step(self._step)
        return is_due

    def end_measuring(self) -> None:
        self.save_step(self._step)

    def save_step(self, step: TrainStep) -> None:
        """Save the batches so far; if that fails, warn and let the run continue."""
        columns = self._state.collect_batches(0)
        num_batches = len(columns["seconds"])
        if not self._directory or num_batches == self._num_tried:
            return
        self._num_tried = num_batches
        uncovered = find_uncovered_variables(step)
        if uncovered:
            raise ValueError(f"the checkpoint would lack {', '.join(uncovered)}")
        problem = self._write(num_batches, columns, step)
        if problem:
            kind = "warn-checkpoint" if self._num_saved else "warn-first-checkpoint"
            values = {
                "folder": self._directory,
                "problem": problem,
                "batch": num_batches,
                "saved": self._num_saved,
            }
            self._observer.notice(Statement(kind, values=values))
        else:
            self._num_saved = num_batches

    def _write(
        self, num_batches: int, columns: Mapping[str, Any], step: TrainStep
    ) -> str:
        """Write a checkpoint together with the other ranks.

        Returns:
          At rank 0, why it could not be written; empty if it was, and at other ranks.
        """
        folder = checkpoint_folder.make_checkpoint_path(self._directory, num_batches)
        problem = _try_to_write(_write_variables, step, folder, self._cluster.rank)
        resumed = [encode(resumption) for resumption in self._state.resumed]
        ranks = self._cluster.gather(
            f"checkpoint {num_batches}",
            {"problem": problem, "columns": columns, "resumed": resumed},
        )
        if ranks is None:
            return ""
        for rank, fields in enumerate(ranks):
            rank_problem = fields.pop("problem")
            if rank_problem and not problem:
                problem = f"rank {rank}: {rank_problem}"
        if not problem:
            problem = _try_to_write(
                checkpoint_folder.publish, folder, self._config, ranks, self._files
            )
        if problem:
            shutil.rmtree(folder, ignore_errors=True)
        return problem

    def agree(self) -> None:
        """Make sure that all ranks use one folder and continue from the same batch.

        Raises:
          CheckpointError: At rank 0, if they do not.
        """
        if not self._directory or self._cluster.size == 1:
            return
        num_batches = self._state.checkpoint.batches if self._state.checkpoint else 0
        holder = checkpoint_folder.read_holder(self._directory)
        views = self._cluster.gather("checkpoint", [holder, num_batches]) or []
        for rank, view in enumerate(views):
            if view != views[0]:
                raise CheckpointError(
                    f"--checkpoint_dir={self._directory}: rank {rank} cannot see "
                    "the files that rank 0 wrote; give a folder that all ranks share"
                )

    def resume(self, step: TrainStep) -> None:
        """Bring the step to the batch of the checkpoint, with graphs and threads ready.

        The last batches before it run again as a warm-up that is not recorded. Then the
        variables are read.

        Raises:
          CheckpointError: If the checkpoint cannot be read.
        """
        state = self._state
        checkpoint = self._state.checkpoint
        if checkpoint is None:
            return
        state.phases.enter("resume")
        step.go_to(state.first_step)
        for _ in range(checkpoint.batches - state.first_step):
            step()
        try:
            path = checkpoint_folder.make_variables_path(
                checkpoint.folder, self._cluster.rank
            )
            status = tf.train.Checkpoint(variables=find_variables(step)).read(path)
            status.assert_consumed()
        except (tf.errors.OpError, AssertionError, ValueError) as e:
            raise checkpoint_folder.make_damage_error(checkpoint.folder, e) from None
        state.add_resumption(checkpoint.batches)
        values = {"batch": checkpoint.batches, "folder": str(checkpoint.folder)}
        self._observer.notice(Statement("run-resumed", values=values))


def _try_to_write(write: Callable[..., None], *args: Any) -> str:
    """Call `write` and return why it failed, or an empty text."""
    try:
        write(*args)
    except (OSError, tf.errors.OpError) as e:
        if isinstance(e, OSError) and e.strerror:
            return e.strerror
        return entry.find_first_line(e)[:200]
    return ""


def _write_variables(step: TrainStep, folder: Path, rank: int) -> None:
    """Write the variables of this rank; the checkpoint is complete after `publish`."""
    folder.mkdir(parents=True, exist_ok=True)
    tf.train.Checkpoint(variables=find_variables(step)).write(
        checkpoint_folder.make_variables_path(folder, rank)
    )

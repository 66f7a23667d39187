"""The folder of a run's checkpoints: each one whole or not at all, and checked when it is read. No TensorFlow.

DIR/batch_00000200/variables.index, variables.data-00000-of-00001   by tf.train.Checkpoint
DIR/batch_00000200/run.json                                         what the run was told and what it had done
DIR/batch_00000200/variables_1.index, run_1.json ...                the same of rank 1, where several have towers
DIR/.run.lock                                                       held by the run that saves here

A checkpoint is written as DIR/.batch_00000200.tmp and renamed by rank 0, once all have written. The newest KEPT stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.files import input_files
from rnn_scaling.files.output_files import write_text
from rnn_scaling.records import lock
from rnn_scaling.records.decoding import build
from rnn_scaling.records.parts import Resumption
from rnn_scaling.records.workers import Rank
from rnn_scaling.settings.conditions import NOT_COMPARED
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.settings.run_options import MeasureOptions
from rnn_scaling.settings.spelling import spell

SCHEMA = "rnn_scaling.checkpoint/1"
KEPT = 2
RUN, VARIABLES, LOCK = "run.json", "variables", ".run.lock"
# A resumed run may train longer than was planned.
MAY_DIFFER = NOT_COMPARED | {"num_batches", "until_steady", "target_ci", "max_batches"}
_NAME = re.compile(r"batch_\d{8,}")


class CheckpointError(ValueError):
    """A checkpoint cannot be resumed from; its text is one line for a person."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a run had done when it was saved.

    Attributes:
      folder: of its files.
      batches: that were done, warm-up included.
      told: of each batch, as `RunState.batches_since` gives it.
      resumed: how the run was resumed before, as a record's `batches.resumed`.
      rank: of the process whose part this is.
    """

    folder: Path
    batches: int
    told: Mapping[str, Any]
    resumed: Sequence[Mapping[str, Any]]
    rank: int = 0

    @property
    def variables(self) -> str:
        """What the names of TensorFlow's files begin with."""
        return str(self.folder / f"{VARIABLES}{_of_rank(self.rank)}")


def _of_rank(rank: int) -> str:
    return f"_{rank}" if rank else ""


def _told_in(rank: int) -> str:
    """The file of what a rank had done."""
    stem, ending = os.path.splitext(RUN)
    return f"{stem}{_of_rank(rank)}{ending}"


def holder(directory: str) -> str:
    """Which process holds a folder, as it says itself in the lock; empty where no lock can be read."""
    with contextlib.suppress(OSError):
        return input_files.read_text(Path(directory) / LOCK).strip()
    return ""


def most_batches(measure: MeasureOptions) -> int:
    """Batches of the whole run at most, warm-up included."""
    return measure.max_batches if measure.until_steady else measure.num_warmup_batches + measure.num_batches


@contextlib.contextmanager
def held(directory: str) -> Iterator[None]:
    """Keeps other runs out of a folder, which is made if missing; this process's end, whichever, lets them in.

    Raises:
      CheckpointError: if another run saves there, or nothing can be written there.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        with lock.hold(Path(directory), LOCK, "run", "give another folder"):
            yield
    except lock.BusyError as e:
        raise CheckpointError(f"--checkpoint_dir: {e}") from None
    except OSError as e:
        raise CheckpointError(f"--checkpoint_dir={directory}: {e.strerror or e}") from None


def newest(directory: str, config: RunConfig, files: Sequence[str] = (), rank: int = 0) -> Checkpoint | None:
    """The last checkpoint of a folder; None where there is none. Rank 0 removes what was left half-written.

    Raises:
      CheckpointError: if it is damaged, of a run of other options or data, or beyond the last batch of this one.
    """
    folders = _folders(Path(directory))
    with contextlib.suppress(OSError):
        for left in Path(directory).glob(".batch_*.tmp") if rank == 0 else ():
            shutil.rmtree(left, ignore_errors=True)
    if not folders:
        return None
    folder = folders[-1]
    with _reading(folder):
        shared = _read(folder, RUN)
        done, options, sizes = _count(shared), dict(shared["config"]), dict(shared["files"])
    _check_options(directory, done, options, config.flat())  # first: a run of fewer workers lacks the files of others
    with _reading(folder):
        checkpoint, data = _own_part(folder, rank, sizes)
    _check_length(directory, checkpoint.batches, config)
    _check_data(directory, checkpoint.batches, files, data)
    return checkpoint


def _check_options(directory: str, done: int, options: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in MAY_DIFFER and name in present and present[name] != value:
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds batch {done} of a run with {spell(name, value)}, "
                f"this one has {spell(name, present[name])}; give the same, or another folder"
            )


def _own_part(folder: Path, rank: int, sizes: Mapping[str, int]) -> tuple[Checkpoint, dict[str, Any]]:
    """A rank's part of a checkpoint, and the stamps of the data files that it read."""
    own = _read(folder, _told_in(rank))
    checkpoint = Checkpoint(folder, _count(own), dict(own["told"]), list(own["resumed"]), rank)
    build(Rank, {**checkpoint.told, "rank": rank}, _told_in(rank))  # a ValueError names what cannot be
    for resumption in checkpoint.resumed:
        build(Resumption, resumption)
    for name, size in sizes.items():
        if (got := (folder / name).stat().st_size) != size:
            raise ValueError(f"{name} has {got} of {size} bytes")
    if any(len(checkpoint.told[name]) != checkpoint.batches for name in ("seconds", "items", "loss")):
        raise ValueError(f"{_told_in(rank)} does not tell all of its {checkpoint.batches} batches")
    return checkpoint, dict(own["data"])


def _check_length(directory: str, batches: int, config: RunConfig) -> None:
    if batches <= (most := most_batches(config.measure)):
        return
    name = "max_batches" if config.measure.until_steady else "num_batches"
    value = getattr(config.measure, name)
    raise CheckpointError(
        f"--checkpoint_dir={directory} holds batch {batches}, and {spell(name, value)} ends before it; "
        f"give {batches - most + value} or more, or another folder"
    )


def _check_data(directory: str, batches: int, files: Sequence[str], data: Mapping[str, Any]) -> None:
    for path in sorted({*files, *data}):
        now = _stamp(path) if path in files else None
        if data.get(path) != now:
            read = f"read {path} before it {'changed' if now else 'was removed'}" if path in data else f"lacked {path}"
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds batch {batches} of a run that {read}; give another folder"
            )


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Whatever is wrong with the files of a checkpoint, it is damaged."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise damaged(folder, e) from None


def _read(folder: Path, name: str) -> dict[str, Any]:
    kept = input_files.parse_json(input_files.read_text(folder / name))
    if not isinstance(kept, dict) or kept.get("schema") != SCHEMA:
        raise ValueError(f"{name} is no {SCHEMA}")
    return kept


def _count(kept: Mapping[str, Any]) -> int:
    """The batches that were done.

    Raises:
      ValueError: if they are no whole number.
    """
    batches = kept["batches"]
    if type(batches) is not int or batches < 0:
        raise ValueError(f"batches is {batches!r}; expected a whole number")
    return batches


def damaged(folder: Path, error: Exception) -> CheckpointError:
    """What a person is told of a checkpoint that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    earlier = _folders(folder.parent)[:-1]
    then = f"the run goes on from {earlier[-1].name}" if earlier else "the run begins anew"
    return CheckpointError(f"--checkpoint_dir: {folder} is damaged ({reason[:200]}); remove it, and {then}")


class Writing:
    """A checkpoint on its way to the disk: begun and finished by rank 0, in between all ranks write their parts.

    Each method raises OSError if it cannot write; what was there before is still there.
    """

    def __init__(self, directory: str, checkpoint: Checkpoint, files: Sequence[str] = ()) -> None:
        self._checkpoint, self._files = checkpoint, files
        self._target = Path(directory) / f"batch_{checkpoint.batches:08d}"
        self._temporary = self._target.with_name(f".{self._target.name}.tmp")

    def begin(self) -> None:
        """Makes the folder in which all write."""
        self.discard()
        self._temporary.mkdir(parents=True)

    def write_own(self, save: Callable[[str], None]) -> None:
        """Writes this rank's part."""
        own = dataclasses.replace(self._checkpoint, folder=self._temporary)
        save(own.variables)
        if own.rank:
            self._write_told({})

    def finish(self, config: RunConfig) -> None:
        """Writes what was done and how large each file is, puts the folder in its place, removes those before KEPT."""
        sizes = {path.name: path.stat().st_size for path in self._temporary.iterdir()}
        self._write_told({"config": config.flat(), "files": sizes})
        for path in (*self._temporary.iterdir(), self._temporary):
            _flush(path)
        if self._target.exists():  # saved at this batch before, by a run that went back to an earlier one
            shutil.rmtree(self._target)
        os.rename(self._temporary, self._target)
        _flush(self._target.parent)
        for old in _folders(self._target.parent)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def discard(self) -> None:
        """Removes what was written so far."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _write_told(self, shared: Mapping[str, Any]) -> None:
        kept = {
            "schema": SCHEMA,
            "batches": self._checkpoint.batches,
            "data": {path: _stamp(path) for path in self._files},
            "resumed": list(self._checkpoint.resumed),
            "told": self._checkpoint.told,
            **shared,
        }
        write_text(input_files.json_text(kept), self._temporary / _told_in(self._checkpoint.rank))


def _folders(directory: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    with contextlib.suppress(OSError):
        return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=_batches)
    return []


def _batches(folder: Path) -> int:
    return int(folder.name.removeprefix("batch_"))


def _stamp(path: str) -> list[int] | None:
    """Bytes of a file and when it was changed, in ns; None where that cannot be had."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)
        return [status.st_size, status.st_mtime_ns]
    return None


def _flush(path: Path) -> None:
    """Waits until what was written is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

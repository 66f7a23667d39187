"""The folder of a run's checkpoints: each one whole or not at all, and checked when it is read. No TensorFlow.

DIR/batch_00000200/variables.index, variables.data-00000-of-00001   by tf.train.Checkpoint
DIR/batch_00000200/run.json                                         what the run was told and what it had done
DIR/.run.lock                                                       held by the run that saves here

A checkpoint is written as DIR/.batch_00000200.tmp and renamed. The newest KEPT stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine import doorway
from rnn_scaling.records import lock
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.settings.read_when import NOT_COMPARED
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
    """

    folder: Path
    batches: int
    told: Mapping[str, Any]
    resumed: Sequence[Mapping[str, Any]]

    @property
    def variables(self) -> str:
        """What the names of TensorFlow's files begin with."""
        return str(self.folder / VARIABLES)


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


def newest(directory: str, config: RunConfig, files: Sequence[str] = ()) -> Checkpoint | None:
    """The last checkpoint of a folder; None where there is none. What a killed process left half-written is removed.

    Args:
      directory: --checkpoint_dir.
      config: of the run that is to go on.
      files: that it reads its data from.

    Raises:
      CheckpointError: if it is damaged, of a run of other options or data, or beyond the last batch of this one.
    """
    folders = _folders(Path(directory))
    with contextlib.suppress(OSError):
        for left in Path(directory).glob(".batch_*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
    if not folders:
        return None
    folder = folders[-1]
    try:
        kept = doorway.parse_json(doorway.read_text(folder / RUN))
        if not isinstance(kept, dict) or kept.get("schema") != SCHEMA:
            raise ValueError(f"{RUN} is no {SCHEMA}")
        checkpoint = Checkpoint(folder, int(kept["batches"]), dict(kept["told"]), list(kept["resumed"]))
        sizes, options, data = dict(kept["files"]), dict(kept["config"]), dict(kept["data"])
        for name, size in sizes.items():
            if (got := (folder / name).stat().st_size) != size:
                raise ValueError(f"{name} has {got} of {size} bytes")
        if any(len(checkpoint.told[name]) != checkpoint.batches for name in ("seconds", "items", "loss")):
            raise ValueError(f"{RUN} does not tell all of its {checkpoint.batches} batches")
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise damaged(folder, e) from None
    present = config.flat()
    for name, value in options.items():
        if name not in MAY_DIFFER and name in present and present[name] != value:
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds batch {checkpoint.batches} of a run with {spell(name, value)}, "
                f"this one has {spell(name, present[name])}; give the same, or another folder"
            )
    if checkpoint.batches > config.measure.most_batches:
        name = "max_batches" if config.measure.until_steady else "num_batches"
        needed = checkpoint.batches - config.measure.most_batches + getattr(config.measure, name)
        raise CheckpointError(
            f"--checkpoint_dir={directory} holds batch {checkpoint.batches}, and {spell(name, present[name])} ends "
            f"before it; give {needed} or more, or another folder"
        )
    for path in sorted({*files, *data}):
        now = _stamp(path) if path in files else None
        if data.get(path) != now:
            read = f"read {path} before it {'changed' if now else 'was removed'}" if path in data else f"lacked {path}"
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds batch {checkpoint.batches} of a run that {read}; "
                "give another folder"
            )
    return checkpoint


def damaged(folder: Path, error: Exception) -> CheckpointError:
    """What a person is told of a checkpoint that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    earlier = _folders(folder.parent)[:-1]
    then = f"the run goes on from {earlier[-1].name}" if earlier else "the run begins anew"
    return CheckpointError(f"--checkpoint_dir: {folder} is damaged ({reason[:200]}); remove it, and {then}")


def write(
    directory: str,
    checkpoint: Checkpoint,
    config: RunConfig,
    save: Callable[[str], None],
    files: Sequence[str] = (),
) -> None:
    """Writes a checkpoint and removes those before the newest KEPT.

    Args:
      directory: --checkpoint_dir, made if missing.
      checkpoint: what was done; its folder is made here.
      config: of the run.
      save: writes the variables to files whose names begin with what it gets.
      files: that the run reads its data from.

    Raises:
      OSError: if it cannot be written; what was there before is still there.
    """
    parent = Path(directory)
    target = parent / f"batch_{checkpoint.batches:08d}"
    temporary = parent / f".{target.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        save(str(temporary / VARIABLES))
        sizes = {path.name: path.stat().st_size for path in temporary.iterdir()}
        kept = {
            "schema": SCHEMA,
            "batches": checkpoint.batches,
            "config": config.flat(),
            "data": {path: _stamp(path) for path in files},
            "files": sizes,
            "resumed": list(checkpoint.resumed),
            "told": checkpoint.told,
        }
        (temporary / RUN).write_text(json.dumps(kept))
        for path in (*temporary.iterdir(), temporary):
            _flush(path)
        if target.exists():  # saved at this batch before, by a run that went back to an earlier one
            shutil.rmtree(target)
        os.rename(temporary, target)
        _flush(parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in _folders(parent)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


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

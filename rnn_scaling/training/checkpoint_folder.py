"""The folder of a run's checkpoints: each one complete or none, and checked when it is read. No TensorFlow.

DIR/batch_00000200/variables.index, variables.data-00000-of-00001   by tf.train.Checkpoint
DIR/batch_00000200/variables_1.index ...                            the same of rank 1, where several have towers
DIR/batch_00000200/run.json                                         the run's options and what each rank had done
DIR/.run.lock                                                       held by the run that saves here

Rank 0 writes run.json last, which makes the folder a checkpoint. The newest KEPT stay.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import MeasureOptions
from rnn_scaling.config.spelling import spell
from rnn_scaling.data.corpus import stamp
from rnn_scaling.records import checks, lock
from rnn_scaling.records.decoding import Count, Part, build
from rnn_scaling.records.parts import Resumption
from rnn_scaling.records.workers import Rank
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text

SCHEMA = "rnn_scaling.checkpoint/2"
KEPT = 2
RUN = "run.json"
LOCK = ".run.lock"
# A resumed run may train longer than was planned.
MAY_DIFFER = NOT_COMPARED | {
    *(
        "num_batches",
        "num_epochs",
        "until_steady",
        "target_ci",
        "max_batches",
        "stop_at_loss",
        "stop_at_accuracy",
    )
}
# Options of the network that leave its weights what they are.
SAME_WEIGHTS = {
    *(
        "encoder_type",
        "decoder_type",
        "time_major",
        "data_format",
        "compute_dtype",
        "xla",
    ),
    *(
        "dropout",
        "accuracy",
        "label_smoothing",
        "forward_only",
        "decode",
        "beam_size",
        "length_penalty",
    ),
}
_NAME = re.compile(r"batch_\d{8,}")


class CheckpointError(ValueError):
    """A checkpoint cannot be resumed from; its text is one line for a person."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SavedRank(Part):
    """One rank in run.json, as `publish` gets it."""

    told: Mapping[str, Any]  # judged as the columns of a record's rank
    resumed: tuple[Resumption, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SavedRun(Part):
    """All of run.json, judged in the same way as a record."""

    schema: str
    config: Mapping[str, Any]
    data: Mapping[str, tuple[int, ...] | None]  # of each file, as `stamp` gives it
    vocabularies: Mapping[str, Count] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Count]  # bytes of each file of TensorFlow's
    ranks: tuple[_SavedRank, ...]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The state of one rank when its run was saved."""

    folder: Path
    batches: int  # that were done, warm-up included
    columns: Mapping[str, Any]  # of each batch, as `RunState.batches_since` gives them
    resumed: Sequence[Resumption]  # how the run was resumed before


def folder_of(directory: str, batches: int) -> Path:
    """Where a run is saved after so many batches."""
    return Path(directory) / f"batch_{batches:08d}"


def variables_in(folder: Path, rank: int) -> str:
    """What the names of TensorFlow's files of a rank begin with."""
    return str(folder / (f"variables_{rank}" if rank else "variables"))


def holder(directory: str) -> str:
    """Which process holds a folder, as it says itself in the lock; empty where no lock can be read."""
    with contextlib.suppress(OSError):
        return input_files.read_text(Path(directory) / LOCK).strip()
    return ""


def max_batches(measure: MeasureOptions) -> int:
    """Batches of the whole run at most, warm-up included; of epochs, which the data decides, any number."""
    if measure.num_epochs:
        return sys.maxsize
    return (
        measure.max_batches
        if measure.until_steady
        else measure.num_warmup_batches + measure.num_batches
    )


@contextlib.contextmanager
def lock_folder(directory: str) -> Iterator[None]:
    """Keeps other runs out of a folder until this process ends in any way; the folder is made if missing.

    Raises CheckpointError if another run saves there, or nothing can be written there.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        with lock.hold(Path(directory), LOCK, "run", "give another folder"):
            yield
    except lock.BusyError as e:
        raise CheckpointError(f"--checkpoint_dir: {e}") from None
    except OSError as e:
        raise CheckpointError(
            f"--checkpoint_dir={directory}: {e.strerror or e}"
        ) from None


def read_newest(
    directory: str, config: RunConfig, files: Sequence[str] = (), rank: int = 0
) -> Checkpoint | None:
    """Return a rank's part of the last checkpoint of a folder, or None without one.

    Rank 0 removes unfinished ones.

    Raises:
      CheckpointError: If it is damaged, of a run of other options or data, or beyond
        the last batch of this one.
    """
    folders, unfinished = _folders(Path(directory))
    for folder in unfinished if rank == 0 else ():
        shutil.rmtree(folder, ignore_errors=True)
    if not folders:
        return None
    folder = folders[-1]
    batches = _batches(folder)
    saved = _read(folder)
    _check_options(directory, batches, saved.config, config.flat())
    _check_length(directory, batches, config)
    if rank == 0:
        _check_data(directory, batches, files, saved.data)
    if rank >= len(saved.ranks):
        raise damaged(folder, ValueError(f"{RUN} has no rank {rank}"))
    part = saved.ranks[rank]
    # A column that a rank does not have may be null.
    columns = {name: value for name, value in part.told.items() if value is not None}
    return Checkpoint(folder, batches, columns, part.resumed)


def find_trained(directory: str, config: RunConfig) -> Path:
    """Return the last checkpoint of a folder, for a run that only uses its network.

    Nothing is written.

    Raises:
      CheckpointError: If there is none, or it is damaged, or of another network or
        vocabulary.
    """
    folders, _ = _folders(Path(directory))
    if not folders:
        raise CheckpointError(
            f"--checkpoint_dir={directory} holds no checkpoint; train with it first, or leave it out for random weights"
        )
    folder = folders[-1]
    saved = _read(folder)
    network = {
        name: value
        for name, value in vars(config.model).items()
        if name not in SAME_WEIGHTS
    }
    options = {name: value for name, value in saved.config.items() if name in network}
    _check_options(directory, _batches(folder), options, network)
    before = saved.vocabularies
    now = _vocabularies(config)
    for name in sorted({*before} & {*now}):
        if before[name] != now[name]:
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds weights for other words than those in "
                f"{spell(name, getattr(config.data, name))}; give the vocabulary of the training, or another folder"
            )
    return folder


def _read(folder: Path) -> _SavedRun:
    """Return what `publish` saved in a checkpoint.

    Raises:
      CheckpointError: If a file is missing or has another size, or if a value of
        run.json is not of its kind.
    """
    try:
        content = input_files.parse_json(input_files.read_text(folder / RUN))
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ValueError(f"{RUN} is no {SCHEMA}")
        saved = build(_SavedRun, content, RUN)
        if faults := list(checks.config_faults(saved.config)):
            raise ValueError(f"{RUN}: {'. '.join(faults)}")
        if not saved.ranks:
            raise ValueError(f"{RUN} has no rank")
        for rank in saved.ranks:
            _check_columns(rank.told, _batches(folder))
        for name, size in saved.files.items():
            found = (folder / name).stat().st_size
            if found != size:
                raise ValueError(f"{name} has {found} of {size} bytes")
    except (OSError, ValueError) as e:
        raise damaged(folder, e) from None
    return saved


def _check_columns(columns: Mapping[str, Any], batches: int) -> None:
    """Check the columns of one rank.

    Raises:
      ValueError: If one has a value that a record could not have, or not a value for
        each batch.
    """
    rank = build(Rank, {**columns, "rank": 0}, RUN)
    for name in ("seconds", "items", "loss"):
        if len(getattr(rank, name)) != batches:
            raise ValueError(f"{RUN} lacks some of the {batches} batches")
    for name, values in columns.items():
        if isinstance(values, list) and len(values) not in (0, batches):
            raise ValueError(f"{RUN}: {name} lacks some of the {batches} batches")


def _check_options(
    directory: str, done: int, options: Mapping[str, Any], present: Mapping[str, Any]
) -> None:
    for name, value in options.items():
        if name not in MAY_DIFFER and name in present and present[name] != value:
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds batch {done} of a run with {spell(name, value)}, "
                f"this one has {spell(name, present[name])}; give the same, or another folder"
            )


def _check_length(directory: str, batches: int, config: RunConfig) -> None:
    if batches <= (most := max_batches(config.measure)):
        return
    name = "max_batches" if config.measure.until_steady else "num_batches"
    value = getattr(config.measure, name)
    raise CheckpointError(
        f"--checkpoint_dir={directory} holds batch {batches}, and {spell(name, value)} ends before it; "
        f"give {batches - most + value} or more, or another folder"
    )


def _check_data(
    directory: str, batches: int, files: Sequence[str], data: Mapping[str, Any]
) -> None:
    for path in sorted({*files, *data}):
        now = stamp(path) if path in files else None
        if data.get(path) != now:
            read = (
                f"read {path} before it {'changed' if now else 'was removed'}"
                if path in data
                else f"lacked {path}"
            )
            raise CheckpointError(
                f"--checkpoint_dir={directory} holds batch {batches} of a run that {read}; give another folder"
            )


def damaged(folder: Path, error: Exception) -> CheckpointError:
    """The error message for a checkpoint that cannot be read."""
    reason = (
        error.strerror
        if isinstance(error, OSError) and error.strerror
        else str(error).partition("\n")[0]
    )
    earlier = _folders(folder.parent)[0][:-1]
    before = f"{earlier[-1].name} comes" if earlier else "none comes"
    return CheckpointError(
        f"--checkpoint_dir: {folder} is damaged ({reason[:200]}); remove it: {before} before it"
    )


def publish(
    folder: Path,
    config: RunConfig,
    ranks: Sequence[Mapping[str, Any]],
    files: Sequence[str] = (),
) -> None:
    """Makes a folder with the variables of all ranks a checkpoint, and removes those before the newest KEPT.

    Raises OSError if it cannot be written; the checkpoint before is still there.

    Args:
      ranks: of each rank its columns as `told`, and `resumed`, as a `Checkpoint` has them.
      files: that the run reads its data from.
    """
    saved = {
        "schema": SCHEMA,
        "config": config.flat(),
        "data": {path: stamp(path) for path in files},
        "vocabularies": _vocabularies(config),
        "files": {path.name: path.stat().st_size for path in folder.iterdir()},
        "ranks": ranks,
    }
    for path in folder.iterdir():
        _flush(path)
    write_text(input_files.json_text(saved), folder / RUN)
    _flush(folder)
    _flush(folder.parent)
    for old in _folders(folder.parent)[0][:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _folders(directory: Path) -> tuple[list[Path], list[Path]]:
    """The checkpoints of a folder, oldest first, and those which are not complete."""
    with contextlib.suppress(OSError):
        folders = sorted(
            (path for path in directory.iterdir() if _NAME.fullmatch(path.name)),
            key=_batches,
        )
        complete = [path for path in folders if (path / RUN).exists()]
        return complete, [path for path in folders if path not in complete]
    return [], []


def _batches(folder: Path) -> int:
    return int(folder.name.removeprefix("batch_"))


def _vocabularies(config: RunConfig) -> dict[str, int]:
    """The CRC-32 of each vocabulary file that the run reads, by option; without those that cannot be read."""
    checksums = {}
    for name in ("src_vocab_file", "tgt_vocab_file"):
        with contextlib.suppress(OSError, ValueError):
            if path := getattr(config.data, name):
                checksums[name] = zlib.crc32(input_files.read_bytes(path))
    return checksums


def _flush(path: Path) -> None:
    """Waits until what was written is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

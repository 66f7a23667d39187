"""The folder of a run's checkpoints, which are checked when they are read.

This module does not load TensorFlow. In DIR/batch_00000200/:

    variables.index, variables.data-00000-of-00001   from tf.train.Checkpoint
    variables_1.index, ...                           from rank 1, if it has towers
    run.json                                         the options and each rank's batches

Rank 0 writes run.json last, which completes the checkpoint. The run that saves here
holds the lock DIR/.run.lock. The newest _NUM_KEPT_CHECKPOINTS are kept.

`run` reads and locks the folder before TensorFlow is loaded; `checkpoints` writes the
variables into it.
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

from rnn_scaling.config.conditions import END_OPTIONS, NOT_COMPARED
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import MeasureOptions
from rnn_scaling.config.spelling import spell
from rnn_scaling.data.corpus import read_stamp
from rnn_scaling.records import checks, lock
from rnn_scaling.records.decoding import Count, Part, build
from rnn_scaling.records.parts import Resumption
from rnn_scaling.records.workers import Rank
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text

_SCHEMA = "rnn_scaling.checkpoint/2"
_NUM_KEPT_CHECKPOINTS = 2
_RUN = "run.json"
LOCK = ".run.lock"
# A resumed run may train longer than was planned.
MAY_DIFFER = NOT_COMPARED | {"num_batches", *END_OPTIONS}
# Options of the network that do not change its weights.
_SAME_WEIGHTS = {
    "encoder_type",
    "decoder_type",
    "time_major",
    "data_format",
    "compute_dtype",
    "xla",
    "dropout",
    "accuracy",
    "label_smoothing",
    "forward_only",
    "decode",
    "beam_size",
    "length_penalty",
}
_NAME = re.compile(r"batch_\d{8,}")


class CheckpointError(ValueError):
    """A run cannot continue from a checkpoint; the message is one line."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SavedRank(Part):
    """One rank in run.json."""

    # Values of each batch by column, checked like a record's rank. Older versions wrote
    # them as "told".
    columns: Mapping[str, Any] = dataclasses.field(metadata={"older": "told"})
    resumed: tuple[Resumption, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SavedRun(Part):
    """The contents of run.json, checked like a record."""

    schema: str
    config: Mapping[str, Any]
    data: Mapping[str, tuple[int, ...] | None]  # the `stamp` of each data file
    vocabularies: Mapping[str, Count] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Count]  # bytes of each of TensorFlow's files
    ranks: tuple[_SavedRank, ...]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The state of one rank when its run was saved."""

    folder: Path
    batches: int  # number of finished batches, including the warm-up
    columns: Mapping[str, Any]  # values of each batch, see `RunState.collect_batches`
    resumed: Sequence[Resumption]  # earlier resumptions of the run


def make_checkpoint_path(directory: str, batches: int) -> Path:
    """Return the folder of the checkpoint after a number of batches."""
    return Path(directory) / f"batch_{batches:08d}"


def make_variables_path(folder: Path, rank: int) -> str:
    """Return the prefix of the paths of TensorFlow's files of a rank."""
    return str(folder / (f"variables_{rank}" if rank else "variables"))


def read_holder(directory: str) -> str:
    """Return the description of the process that holds a folder's lock.

    Returns:
      An empty text if the lock cannot be read.
    """
    with contextlib.suppress(OSError):
        return input_files.read_text(Path(directory) / LOCK).strip()
    return ""


def find_max_batches(measure: MeasureOptions) -> int:
    """Return the maximum number of batches of a run, including the warm-up.

    A number of epochs has no maximum here, because it depends on the data.
    """
    if measure.num_epochs:
        return sys.maxsize
    if measure.until_steady:
        return measure.max_batches
    return measure.num_warmup_batches + measure.num_batches


@contextlib.contextmanager
def lock_folder(directory: str) -> Iterator[None]:
    """Lock a folder against other runs until this process ends.

    The folder is created if needed.

    Raises:
      CheckpointError: If another run saves there, or nothing can be written there.
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

    Rank 0 removes incomplete checkpoints.

    Raises:
      CheckpointError: If it is damaged, or belongs to a run with other options or data,
        or is later than the last batch of this run.
    """
    folders, unfinished = _list_checkpoints(Path(directory))
    for folder in unfinished if rank == 0 else ():
        shutil.rmtree(folder, ignore_errors=True)
    if not folders:
        return None
    folder = folders[-1]
    batches = _count_batches(folder)
    saved_run = _read(folder)
    _check_options(directory, batches, saved_run.config, config.flat())
    _check_length(directory, batches, config)
    if rank == 0:
        _check_data(directory, batches, files, saved_run.data)
    if rank >= len(saved_run.ranks):
        raise make_damage_error(folder, ValueError(f"{_RUN} has no rank {rank}"))
    saved_rank = saved_run.ranks[rank]
    # A column that a rank does not have may be null.
    columns = {
        name: value for name, value in saved_rank.columns.items() if value is not None
    }
    return Checkpoint(folder, batches, columns, saved_rank.resumed)


def find_trained(directory: str, config: RunConfig) -> Path:
    """Return the last checkpoint of a folder, to use its network without training.

    Nothing is written.

    Raises:
      CheckpointError: If the folder has no checkpoint, or if it is damaged, or belongs
        to another network or vocabulary.
    """
    folders, _ = _list_checkpoints(Path(directory))
    if not folders:
        raise CheckpointError(
            f"--checkpoint_dir={directory} contains no checkpoint; train with this "
            "folder first, or leave the flag out for random weights"
        )
    folder = folders[-1]
    saved_run = _read(folder)
    network = {
        name: value
        for name, value in vars(config.model).items()
        if name not in _SAME_WEIGHTS
    }
    options = {
        name: value for name, value in saved_run.config.items() if name in network
    }
    _check_options(directory, _count_batches(folder), options, network)
    vocabularies = _hash_vocabularies(config)
    for name in sorted({*saved_run.vocabularies} & {*vocabularies}):
        if saved_run.vocabularies[name] != vocabularies[name]:
            raise CheckpointError(
                f"--checkpoint_dir={directory} contains weights trained with a "
                f"vocabulary other than {spell(name, getattr(config.data, name))}; "
                "use that vocabulary, or another folder"
            )
    return folder


def _read(folder: Path) -> _SavedRun:
    """Return the contents of run.json of a checkpoint.

    Raises:
      CheckpointError: If a file is missing or has another size, or if run.json is
        invalid.
    """
    try:
        content = input_files.parse_json(input_files.read_text(folder / _RUN))
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            raise ValueError(f"{_RUN} is not a {_SCHEMA}")
        saved_run = build(_SavedRun, content, _RUN)
        if faults := list(checks.find_config_faults(saved_run.config)):
            raise ValueError(f"{_RUN}: {'. '.join(faults)}")
        if not saved_run.ranks:
            raise ValueError(f"{_RUN} has no rank")
        for rank in saved_run.ranks:
            _check_columns(rank.columns, _count_batches(folder))
        for name, size in saved_run.files.items():
            actual_size = (folder / name).stat().st_size
            if actual_size != size:
                raise ValueError(f"{name} has {actual_size} of {size} bytes")
    except (OSError, ValueError) as e:
        raise make_damage_error(folder, e) from None
    return saved_run


def _check_columns(columns: Mapping[str, Any], batches: int) -> None:
    """Check the columns of one rank.

    Raises:
      ValueError: If a value is not valid in a record, or if a column does not have one
        value per batch.
    """
    rank = build(Rank, {**columns, "rank": 0}, _RUN)
    for name in ("seconds", "items", "loss"):
        if len(getattr(rank, name)) != batches:
            raise ValueError(f"{_RUN} lacks some of the {batches} batches")
    for name, values in columns.items():
        if isinstance(values, list) and len(values) not in (0, batches):
            raise ValueError(f"{_RUN}: {name} lacks some of the {batches} batches")


def _check_options(
    directory: str,
    batches: int,
    saved_options: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    for name, value in saved_options.items():
        if name not in MAY_DIFFER and name in options and options[name] != value:
            raise CheckpointError(
                f"--checkpoint_dir={directory} contains batch {batches} of a run with "
                f"{spell(name, value)}, but this run has {spell(name, options[name])}; "
                "give the same value, or another folder"
            )


def _check_length(directory: str, batches: int, config: RunConfig) -> None:
    limit = find_max_batches(config.measure)
    if batches <= limit:
        return
    name = "max_batches" if config.measure.until_steady else "num_batches"
    value = getattr(config.measure, name)
    raise CheckpointError(
        f"--checkpoint_dir={directory} contains batch {batches}, but "
        f"{spell(name, value)} ends before it; give {batches - limit + value} or more, "
        "or another folder"
    )


def _check_data(
    directory: str, batches: int, files: Sequence[str], data: Mapping[str, Any]
) -> None:
    """Refuse to continue with other data files than the checkpoint has read."""
    for path in sorted({*files, *data}):
        current_stamp = read_stamp(path) if path in files else None
        if data.get(path) == current_stamp:
            continue
        if path not in data:
            difference = f"did not read {path}"
        elif current_stamp:
            difference = f"read {path} before it changed"
        else:
            difference = f"read {path} before it was removed"
        raise CheckpointError(
            f"--checkpoint_dir={directory} contains batch {batches} of a run that "
            f"{difference}; give another folder"
        )


def make_damage_error(folder: Path, error: Exception) -> CheckpointError:
    """Return the error for a checkpoint that cannot be read."""
    reason = str(error).partition("\n")[0]
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    folders, _ = _list_checkpoints(folder.parent)
    earlier = folders[:-1]
    remedy = (
        f"{earlier[-1].name} is then the last checkpoint"
        if earlier
        else "there is no earlier checkpoint"
    )
    return CheckpointError(
        f"--checkpoint_dir: {folder} is damaged ({reason[:200]}); remove it; {remedy}"
    )


def publish(
    folder: Path,
    config: RunConfig,
    ranks: Sequence[Mapping[str, Any]],
    files: Sequence[str] = (),
) -> None:
    """Complete a checkpoint; keep only the newest _NUM_KEPT_CHECKPOINTS.

    Args:
      folder: The folder with the variables of all ranks.
      config: The options.
      ranks: The `columns` and `resumed` of each rank, as `_SavedRank` reads them.
      files: The files with the run's data.

    Raises:
      OSError: If it cannot be written; the earlier checkpoints are kept then.
    """
    saved = {
        "schema": _SCHEMA,
        "config": config.flat(),
        "data": {path: read_stamp(path) for path in files},
        "vocabularies": _hash_vocabularies(config),
        "files": {path.name: path.stat().st_size for path in folder.iterdir()},
        "ranks": ranks,
    }
    for path in folder.iterdir():
        _flush_to_disk(path)
    write_text(input_files.format_json(saved), folder / _RUN)
    _flush_to_disk(folder)
    _flush_to_disk(folder.parent)
    complete, _ = _list_checkpoints(folder.parent)
    for old_folder in complete[:-_NUM_KEPT_CHECKPOINTS]:
        shutil.rmtree(old_folder, ignore_errors=True)


def _list_checkpoints(directory: Path) -> tuple[list[Path], list[Path]]:
    """Return the complete and the incomplete checkpoints of a folder, oldest first."""
    complete: list[Path] = []
    incomplete: list[Path] = []
    with contextlib.suppress(OSError):
        folders = [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
        for path in sorted(folders, key=_count_batches):
            is_complete = (path / _RUN).exists()
            (complete if is_complete else incomplete).append(path)
    return complete, incomplete


def _count_batches(folder: Path) -> int:
    return int(folder.name.removeprefix("batch_"))


def _hash_vocabularies(config: RunConfig) -> dict[str, int]:
    """Return the CRC-32 of each readable vocabulary file by option."""
    checksums = {}
    for name in ("src_vocab_file", "tgt_vocab_file"):
        path = getattr(config.data, name)
        if path:
            with contextlib.suppress(OSError, ValueError):
                checksums[name] = zlib.crc32(input_files.read_bytes(path))
    return checksums


def _flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

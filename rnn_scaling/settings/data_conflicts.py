"""Which data do not fit the model, and which files cannot be read or written; the rest is in conflicts.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling.files import input_files
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.registry import DATA_SOURCES, KNOWN_ANSWERS, TEXT_FILES, VARIABLE_UPDATES, either
from rnn_scaling.settings.conditions import is_read
from rnn_scaling.settings.config import RunConfig


def problems(config: RunConfig) -> Iterator[str]:
    """A line for each, as of `conflicts.problems`."""
    for check in (_data, _known_answer, _files, _outputs, _checkpoints):
        yield from check(config)


def _data(config: RunConfig) -> Iterator[str]:
    """Options of data that contradict each other, or lack what they need."""
    data, model = config.data, config.model
    if data.use_synthetic_data and data.data_source != "device":
        yield f"--use_synthetic_data=true means --data_source=device, got {data.data_source}; leave one out"
    if others := list(_of_other_data(config)):
        yield from others
        return
    if is_read(config, "data_dir") and not data.data_dir:
        yield f"--data_source={data.data_source} needs --data_dir, the folder of the files"
    if not is_read(config, "tgt_file_name"):
        return
    for name in TEXT_FILES:
        if is_read(config, name) and not getattr(data, name):
            yield f"--data_source={data.data_source} needs --{name}"
    for side in ("src", "tgt"):
        size = getattr(model, f"{side}_vocab_size")
        if is_read(config, f"{side}_vocab_size") and data.unk_id >= size:
            yield f"--unk_id={data.unk_id} must be below --{side}_vocab_size={size}"
    if data.tgt_max_len < 2:
        yield f"--tgt_max_len={data.tgt_max_len} must be at least 2 for text: a word and the end-of-sentence word"


def _of_other_data(config: RunConfig) -> Iterator[str]:
    """A data source, or images, that the workload is not trained on."""
    name, dataset, source = config.model.model, config.model.dataset, config.data.data_source
    if dataset and dataset not in WORKLOADS[name].datasets:
        readers = [model for model, entry in WORKLOADS.items() if dataset in entry.datasets]
        yield (
            f"--dataset={dataset}: --model={name} is trained on {either(WORKLOADS[name].datasets)} alone; leave it out"
            + (f", or use --model={either(readers)}" if readers else "")
        )
        return
    holds, wants = DATA_SOURCES[source].holds, dataset or "text"
    if holds and holds != wants:
        others = [each for each, row in DATA_SOURCES.items() if row.holds in ("", wants)]
        yield (
            f"--data_source={source} reads {holds}, and --model={name} is trained on {wants}; "
            f"use --data_source={either(others)}"
        )


def _known_answer(config: RunConfig) -> Iterator[str]:
    """Text whose translation is known, where that cannot be drawn."""
    data = config.data
    if data.data_source not in KNOWN_ANSWERS or config.model.dataset:  # images are refused already
        return
    source = f"--data_source={data.data_source}"
    if not is_read(config, "src_max_len"):
        translating = [name for name, workload in WORKLOADS.items() if "src_max_len" in workload.reads]
        yield f"{source} has a sentence and its translation; it needs --model={either(translating)}"
    elif data.src_max_len != data.tgt_max_len:
        yield (
            f"{source} has as many words on both sides, got --src_max_len={data.src_max_len} and "
            f"--tgt_max_len={data.tgt_max_len}; give both the same"
        )
    elif data.tgt_max_len < 2:
        yield f"{source} needs --tgt_max_len of at least 2, a word and the end-of-sentence word; got {data.tgt_max_len}"


def _files(config: RunConfig) -> Iterator[str]:
    """Files of data that cannot be read."""
    folder = config.data.data_dir
    if folder and is_read(config, "data_dir") and not os.path.isdir(folder):
        yield f"--data_dir={folder}: no folder; name the one that CIFAR-10's binary files lie in"
    for name in TEXT_FILES:
        path = getattr(config.data, name)
        if not path or not is_read(config, name):
            continue
        reason = _unreadable(path)
        if reason:
            yield f"--{name}={path}: {reason}"


def _unreadable(path: str) -> str | None:
    """Why a file cannot be read, or None."""
    try:
        input_files.open_regular(path, input_files.UNLIMITED).close()
    except OSError as e:
        return e.strerror or str(e)
    return None


def _outputs(config: RunConfig) -> Iterator[str]:
    """Outputs that cannot be written."""
    output = config.output
    for name, kind in (("result_file", "file"), ("log_dir", "folder"), ("checkpoint_dir", "folder")):
        path = getattr(output, name)
        reason = _unwritable(Path(path), kind) if path else None
        if reason:
            yield f"--{name}={path}{reason}"
    if output.result_file and output.result_file == output.log_dir:
        yield f"--result_file={output.result_file} and --log_dir={output.log_dir} must differ: a file and a folder"


def _checkpoints(config: RunConfig) -> Iterator[str]:
    """Checkpoints of modes whose processes do not wait for each other."""
    directory, name = config.output.checkpoint_dir, config.update.variable_update
    mode = VARIABLE_UPDATES[name]
    if directory and mode.engine != "local" and (mode.has_coordinator or not mode.trains_one_model):
        yield (
            f"--checkpoint_dir={directory}: the workers of --variable_update={name} are at no batch together; "
            "use another mode, as --variable_update=collective_all_reduce, or leave it out"
        )


def _unwritable(path: Path, kind: str) -> str | None:
    """Why an output cannot be written, or None."""
    if "\0" in str(path):
        return f" cannot be written: {input_files.NUL_BYTE}"
    try:
        if kind == "file" and path.is_dir():
            return " is a folder; name a file"
        if kind == "folder" and path.exists() and not path.is_dir():
            return " is a file; name a folder"
        if not _can_create(path.parent if kind == "file" else path):
            return " cannot be written; name another folder or change its rights"
    except (OSError, ValueError) as e:
        return f" cannot be written: {getattr(e, 'strerror', None) or e}"
    return None


def _can_create(folder: Path) -> bool:
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)

"""Presets: the defaults that --preset gives a workload.

Records contain the names of presets; one that is renamed needs a row in FORMER_NAMES.

`run_config.resolve` applies a preset, and help texts list them.
"""

from typing import Any

from rnn_scaling.config import registry
from rnn_scaling.models.config import (
    GNMT_V2,
    TRANSFORMER_BASE,
    TRANSFORMER_BIG,
    ModelConfig,
)
from rnn_scaling.models.workloads import WORKLOADS

_LARGE = {
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "num_units": 512,
    "num_heads": 8,
    "filter_size": 2048,
    "embedding_dim": 512,
    "src_vocab_size": 50_000,
    "tgt_vocab_size": 50_000,
    "src_max_len": 100,
    "tgt_max_len": 100,
    "batch_size": 384,
}
_BATCH_128 = {"src_max_len": 50, "tgt_max_len": 50, "batch_size": 128}
PRESETS: dict[str, dict[str, Any]] = {
    "small": {},
    "large": _LARGE,
    "gnmt_v2": {**GNMT_V2, **_BATCH_128},
    "transformer_base": {**TRANSFORMER_BASE, **_BATCH_128},
    "transformer_big": {**TRANSFORMER_BIG, **_BATCH_128},
}
# Names in older records and command lines -> the names of today.
FORMER_NAMES = {"seed": "large"}
_READERS = registry.find_readers(WORKLOADS)


def find_current_name(preset: str) -> str:
    """Return the name of a preset that may have a former name."""
    return FORMER_NAMES.get(preset, preset)


def choose_sweep_preset(has_gpus: bool) -> str:
    """Return the preset of a sweep if the user names none."""
    return "large" if has_gpus else "small"


def describe_image_batches() -> str:
    """Return the batch sizes for images: "small 8 or 32, large 32 or 128"."""
    sizes_by_preset: dict[str, set[int]] = {}
    for workload in WORKLOADS.values():
        for preset, size in workload.batch_sizes.items():
            sizes_by_preset.setdefault(preset, set()).add(size)
    parts = []
    for preset, sizes in sizes_by_preset.items():
        parts.append(f"{preset} {registry.join_with_or(map(str, sorted(sizes)))}")
    return ", ".join(parts)


def find_model(preset: str) -> str:
    """Return the workload of a preset if the user names none."""
    values = PRESETS.get(find_current_name(preset), {})
    return str(values.get("model", ModelConfig.model))


def find_defaults(preset: str, workload: str) -> dict[str, Any]:
    """Return the defaults of the options that a workload reads.

    Args:
      preset: The preset.
      workload: The workload; an unknown one gets the defaults of all options.
    """
    preset = find_current_name(preset)
    values = PRESETS.get(preset, {})
    known_workload = WORKLOADS.get(workload)
    if known_workload is None:  # refused later, together with other mistakes
        return values
    if known_workload.datasets:  # presets only for text are refused later
        sizes = known_workload.batch_sizes
        return {"batch_size": sizes[preset]} if preset in sizes else {}
    return {
        name: value
        for name, value in values.items()
        if workload in _READERS.get(name, WORKLOADS)
    }

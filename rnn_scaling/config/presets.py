"""Presets: the defaults that --preset gives a workload."""

from typing import Any

from rnn_scaling.config import registry
from rnn_scaling.models.config import (
    GNMT_V2,
    TRANSFORMER_BASE,
    TRANSFORMER_BIG,
    ModelConfig,
)
from rnn_scaling.models.workloads import WORKLOADS

SEED_PRESET = {
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
    "seed": SEED_PRESET,
    "gnmt_v2": {**GNMT_V2, **_BATCH_128},
    "transformer_base": {**TRANSFORMER_BASE, **_BATCH_128},
    "transformer_big": {**TRANSFORMER_BIG, **_BATCH_128},
}
_READERS = registry.readers(WORKLOADS)  # of options that not every workload reads


def image_batches() -> str:
    """Batch sizes that presets give networks of images: "small 8 or 32, seed 32 or 128"."""
    by_preset: dict[str, set[int]] = {}
    for entry in WORKLOADS.values():
        for preset, size in entry.batch_sizes.items():
            by_preset.setdefault(preset, set()).add(size)
    return ", ".join(
        f"{preset} {registry.either(map(str, sorted(sizes)))}"
        for preset, sizes in by_preset.items()
    )


def model_of(preset: Any) -> str:
    """The workload of a preset, if the user names none."""
    return str(PRESETS.get(preset, {}).get("model", ModelConfig.model))


def defaults(preset: str, workload: str) -> dict[str, Any]:
    """The defaults that a preset gives the options that a workload reads; all of them to one that is none."""
    entry = WORKLOADS.get(workload)
    values = PRESETS.get(preset, {})
    if entry is None:
        return values
    if entry.datasets:  # a preset of text alone is refused
        return (
            {"batch_size": entry.batch_sizes[preset]}
            if preset in entry.batch_sizes
            else {}
        )
    return {
        name: value
        for name, value in values.items()
        if workload in _READERS.get(name, WORKLOADS)
    }

"""The additions on the towers' GPUs, spread over them."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.training import shuffle_reduce


def build(devices: Sequence[str], shards: int) -> shuffle_reduce.Reduce:
    """One tensor a tower -> their sum on each tower's device, added on the towers' devices in `shards` pieces."""
    return shuffle_reduce.build(devices, devices, shards)

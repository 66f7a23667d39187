"""Header words: the quantity and the number of devices."""

from __future__ import annotations

import pytest

from rnn_scaling.records.tables import headers


@pytest.mark.parametrize(
    ("header", "quantity", "devices"),
    [
        ("# GPUs", "devices", None), ("Number of workers", "devices", None), ("p", "devices", None),
        ("Throughput (img/s)", "rate", None), ("images/sec/GPU", "each", None), ("Speed-up", "speedup", None),
        ("Ep = Sp/p", "efficiency", None), ("Time (ms)", "seconds", None), ("ms/step", "seconds", None),
        ("Batch size", "batch", None), ("Global batch size", "global_batch", None), ("Rank", "aside", None),
        ("4 GPUs", "", 4), ("8x V100", "", 8), ("2 nodes x 8 GPUs", "", 16), ("1 GPU time (s)", "seconds", 1),
        ("Memory (GB)", "aside", None), ("Ideal speedup", "aside", None), ("change", "change", None),
        ("GFLOPS", "rate", None), ("Peak GFLOPS", "aside", None), ("FLOPs (G)", "aside", None),
    ],
)  # fmt: skip
def test_headers(header, quantity, devices):
    meaning = headers.read(header)
    assert (meaning.quantity, meaning.devices) == (quantity, devices)

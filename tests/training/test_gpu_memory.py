"""The step's graph on GPUs, traced without one: words are never int32, and seeds are made on the host.

On GPUs int32 Reshape, Concat, Identity, Pack and comparisons keep tensors in host memory, and generators take their
seed from there: each would be a wait for a copy in every step.
"""

import pytest

from tests.support.gpu_graph import CPU, GPUS, trace

ON_THE_DEVICE = ("Shape", "Size", "Unique")  # their results for words may be int32


@pytest.mark.parametrize(
    "mode, encoder_type",
    [
        ("replicated", "dynamic_rnn"),
        ("parameter_server", "cudnn_lstm"),
        ("keras_slicing", "cudnn_lstm"),
    ],
)
def test_what_is_made_of_words_is_never_int32(tf, mode, encoder_type):
    cut = {"slice_on": "device"} if mode == "keras_slicing" else {}
    operations, made_of_words = trace(
        tf,
        variable_update=mode,
        encoder_type=encoder_type,
        max_gradient_norm=1.0,
        **cut,
    )
    assert made_of_words
    for op in operations:  # in the order of the data flow
        if op.type in ON_THE_DEVICE or not any(
            t.name in made_of_words for t in op.inputs
        ):
            continue
        assert not [
            t for t in op.outputs if t.dtype == tf.int32 and "GPU" in op.device
        ], op.name
        made_of_words.update(t.name for t in op.outputs if t.dtype.is_integer)


def test_generators_on_gpus_get_their_seed_from_the_host(tf):
    operations, _ = trace(tf)
    generators = [
        op
        for op in operations
        if op.type == "StatelessRandomGetKeyCounter" and "GPU" in op.device
    ]
    assert generators
    for op in generators:
        assert "CPU" in op.inputs[0].device, op.name


def test_the_peak_of_every_gpu_is_kept(tf, monkeypatch):
    from rnn_scaling.training.engines import local

    peaks = {GPUS[0]: {"current": 1, "peak": 7}, GPUS[1]: {"current": 1, "peak": 9}}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", peaks.__getitem__)
    assert local.read_peak_device_bytes(local.Engine(0, 1, GPUS, CPU, "GPU", 2)) == [
        7,
        9,
    ]
    assert (
        local.read_peak_device_bytes(local.Engine(0, 1, (CPU,), CPU, "CPU", 1)) is None
    )

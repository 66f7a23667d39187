"""The process that measures one thing: what it answers, and its errors."""

import json
import os
import pickle
import types

import pytest

from rnn_scaling.links import gpu_copies, worker
from rnn_scaling.system.machine.gpus import DeviceError
from rnn_scaling.system.machine.load import Load
from rnn_scaling.system.machine.onednn import ONEDNN_VARIABLE
from tests.links.fake_cuda import FakeCudart


def answer(tmp_path, **request):
    """Return the outcome of a request, or None if the worker fails."""
    (tmp_path / "request").write_text(json.dumps(request))
    status = worker.main([str(tmp_path / "request"), str(tmp_path / "result")])
    return pickle.loads((tmp_path / "result").read_bytes()) if status == 0 else None


def test_the_worker_of_products(devices, tmp_path, monkeypatch):
    monkeypatch.setattr(
        worker, "_start", lambda request: types.SimpleNamespace(devices=devices[:2])
    )
    monkeypatch.setattr(
        worker,
        "LoadMeter",
        lambda cores: types.SimpleNamespace(read=lambda: Load(0.5, 0.0, 1.0)),
    )
    # With a choice of the user, the worker does not change the environment of the test.
    monkeypatch.setenv(ONEDNN_VARIABLE, "0")
    request = {
        "what": "compute",
        "device": "cpu",
        "rounds": 3,
        "cores_per_device": 1,
        "dtypes": ["float32"],
        "shapes": [[4, 8, 16]],
    }
    outcome = answer(tmp_path, **request)
    [made] = outcome.products
    assert not outcome.series and (made.dtype, made.num_devices) == ("float32", 2)
    assert "50% of the cores" in made.notes[0] and len(made.products[0].seconds) == 3


@pytest.mark.parametrize(
    "error, said",
    [
        (MemoryError("8 bytes"), "out of memory (8 bytes); lower --max_bytes"),
        (DeviceError("no GPU"), "no GPU"),
    ],
)
def test_the_worker_s_errors_are_one_line(tmp_path, monkeypatch, capsys, error, said):
    def fail(request, write):
        raise error

    monkeypatch.setattr(worker, "_measure_host_memory", fail)
    assert answer(tmp_path, what="memory") is None
    assert capsys.readouterr().err == f"error: {said}\n"


def test_no_gpu_library_fails_the_copies_with_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu_copies, "find_library", lambda: FakeCudart(devices=2))
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # so that it is put back
    del os.environ["CUDA_DEVICE_ORDER"]
    request = {"what": "gpu_copies", "sizes": [4, 64], "rounds": 3}
    request |= {"devices": [0, 1], "origin": None}
    assert len(answer(tmp_path, **request).series) == 2 * 7
    # GPUs are numbered like in nvidia-smi and in the topology.
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    monkeypatch.setattr(
        gpu_copies, "find_library", lambda: FakeCudart(fail="cudaMalloc")
    )
    assert answer(tmp_path, **request) is None
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: cudaMalloc: ")

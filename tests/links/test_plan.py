"""The devices and measurements that ./run.sh links chooses and skips."""

from collections import Counter

import pytest

from rnn_scaling.config import run_config as config
from rnn_scaling.config.run_config import choose_pool_sizes
from rnn_scaling.links import plan
from tests.support.configs import resolve


def test_what_the_devices_do_not_allow_is_left_out_with_its_reason():
    names, left_out, wrong = plan.parse_algorithms("all", "cpu", 3, 1)
    assert names == ["collective", "xring", "pscpu"] and wrong == []
    assert [line.partition(":")[0] for line in left_out] == [
        "nccl",
        "rechd",
        "psgpu",
        "hierarchical",
    ]
    names, left_out, _ = plan.parse_algorithms("all", "gpu", 4, 4)
    assert len(names) == 7 and left_out == []
    names, left_out, _ = plan.parse_algorithms("all", "gpu", 4, 2)
    assert "nccl" not in names
    assert [line.partition(":")[0] for line in left_out] == ["nccl"]


def test_what_is_asked_of_four_gpus(monkeypatch):
    monkeypatch.setattr(plan, "count_visible_gpus", lambda: 4)
    monkeypatch.setattr(plan, "list_available_cores", lambda: list(range(16)))
    monkeypatch.setattr(plan.system, "find_available_memory_bytes", lambda: 2**37)
    monkeypatch.setattr(plan, "read_free_gpu_bytes", lambda gpus: {4: 2**34}[gpus])
    made = plan.make(["--passes=1"])
    assert made.device == "gpu"
    assert made.devices == "4 GPUs"
    assert made.left_out == ()
    requests = [task.request for task in made.tasks]
    counts = Counter(request["what"] for request in requests)
    assert counts == {"memory": 1, "gpu_copies": 4, "compute": 2, "all_reduce": 8}
    _, copies, *others = requests
    assert copies["origin"] is None and copies["devices"] == [0, 1, 2, 3]
    assert copies["sizes"][0] == 4 and copies["sizes"][-1] == 2**28
    pairs = [(other["origin"], other["devices"]) for other in others[:3]]
    assert pairs == [(0, [0, 1, 2, 3]), (1, [1, 2, 3]), (2, [2, 3])]
    for product, num_devices in zip(others[3:5], (1, 4), strict=True):
        assert product["num_devices"] == num_devices
        assert product["cores_per_device"] == 0
        assert product["dtypes"][-1] == "float16"
    assert others[6]["algorithm"] == "nccl" and others[-1]["sizes"][-1] == 2**28
    trainer = config.resolve({"num_devices": 4}, num_gpus=4, num_cores=16)
    pools = (copies["inter_op_threads"], copies["intra_op_threads"])
    assert pools == choose_pool_sizes(trainer, 16)
    # Two ranks on each GPU share its memory, and NCCL cannot be used.
    made = plan.make(["--passes=1", "--num_devices=8"])
    [line] = made.left_out
    assert made.devices == "8 logical GPUs" and line.startswith("nccl")
    monkeypatch.setattr(plan, "read_free_gpu_bytes", lambda gpus: 2**30)
    made = plan.make(["--passes=1"])
    assert made.tasks[-1].request["sizes"][-1] == 2**24
    [line] = made.left_out
    assert line.startswith("all-reduce of 64 MiB, 256 MiB: ") and "2.02 GiB" in line
    with pytest.raises(plan.flags.FlagErrors, match="multiple"):
        plan.make(["--num_devices=6"])


def test_one_gpu_has_copies_and_nobody_to_exchange_with(monkeypatch):
    monkeypatch.setattr(plan, "count_visible_gpus", lambda: 1)
    made = plan.make([])
    assert [task.request["what"] for task in made.tasks] == [
        "memory",
        "gpu_copies",
        "compute",
    ]
    [line] = made.left_out
    assert line.startswith("all-reduce: ") and "--num_devices=2" in line


def test_a_full_run_on_four_devices_stays_below_8_gib():
    assert plan.estimate_needed_bytes([4**n for n in range(1, 15)], 4) < 8 * 2**30


def test_products_are_asked_for_as_runs_have_their_devices(monkeypatch):
    monkeypatch.setattr(plan, "list_available_cores", lambda: list(range(9)))

    def requests(flag):
        return [task.request for task in plan.make(["--measure=compute", flag]).tasks]

    for request, num_devices in zip(requests("--cpu_cores_per_device=2"), (1, 4)):
        given = {"num_devices": num_devices, "cpu_cores_per_device": 2}
        assert given["num_devices"] == request["num_devices"]
        assert request["cores_per_device"] == 2
        trainer = resolve({"device": "cpu", **given})
        pools = (request["inter_op_threads"], request["intra_op_threads"])
        assert pools == choose_pool_sizes(trainer, 2 * num_devices)
        assert request["dtypes"] == ("float32", "bfloat16")
        assert (2048, 2048, 2048) in request["shapes"]
    many = requests("--num_devices=20")
    assert [request["num_devices"] for request in many] == [1, 9]

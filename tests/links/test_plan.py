"""The devices and measurements that ./run.sh links chooses and skips."""

from __future__ import annotations

import pytest

from rnn_scaling.config import run_config as config
from rnn_scaling.config.run_config import pool_sizes
from rnn_scaling.links import plan


def test_what_the_devices_do_not_allow_is_left_out_with_its_reason():
    names, left_out, wrong = plan.algorithms("all", "cpu", 3, 1)
    assert names == ["collective", "xring", "pscpu"] and wrong == []
    assert [line.partition(":")[0] for line in left_out] == [
        "nccl",
        "rechd",
        "psgpu",
        "hierarchical",
    ]
    names, left_out, _ = plan.algorithms("all", "gpu", 4, 4)
    assert len(names) == 7 and left_out == []
    names, left_out, _ = plan.algorithms("all", "gpu", 4, 2)
    assert "nccl" not in names and [line.partition(":")[0] for line in left_out] == [
        "nccl"
    ]


def test_what_is_asked_of_four_gpus(monkeypatch):
    monkeypatch.setattr(plan, "count_visible_gpus", lambda: 4)
    monkeypatch.setattr(plan, "available_cores", lambda: list(range(16)))
    monkeypatch.setattr(plan.system, "available_memory_bytes", lambda: 2**37)
    monkeypatch.setattr(plan, "free_gpu_bytes", lambda gpus: {4: 2**34}[gpus])
    made = plan.make(["--passes=1"])
    assert (made.device, made.num_devices, made.devices, made.left_out) == (
        "gpu",
        4,
        "4 GPUs",
        (),
    )
    assert [task.request["what"] for task in made.tasks] == [
        "memory",
        *["gpu_copies"] * 4,
        *["compute"] * 2,
        *["all_reduce"] * 8,
    ]
    copies = made.tasks[1].request
    pairs = [
        (task.request["origin"], task.request["devices"]) for task in made.tasks[1:5]
    ]
    assert pairs == [
        (None, [0, 1, 2, 3]),
        (0, [0, 1, 2, 3]),
        (1, [1, 2, 3]),
        (2, [2, 3]),
    ]
    assert copies["sizes"][0] == 4 and copies["sizes"][-1] == 2**28
    products = [made.tasks[i].request for i in (5, 6)]
    assert [
        (each["num_devices"], each["cores_per_device"], each["dtypes"][-1])
        for each in products
    ] == [
        (1, 0, "float16"),
        (4, 0, "float16"),
    ]
    assert (
        made.tasks[8].request["algorithm"] == "nccl"
        and made.tasks[-1].request["sizes"][-1] == 2**28
    )
    trainer = config.resolve({"num_devices": 4}, num_gpus=4, num_cores=16)
    assert (copies["inter_op_threads"], copies["intra_op_threads"]) == pool_sizes(
        trainer, 16
    )
    # Two ranks on each GPU share its memory, and NCCL cannot be used.
    made = plan.make(["--passes=1", "--num_devices=8"])
    assert made.devices == "8 logical GPUs" and [
        line[:4] for line in made.left_out
    ] == ["nccl"]
    monkeypatch.setattr(plan, "free_gpu_bytes", lambda gpus: 2**30)
    made = plan.make(["--passes=1"])
    assert made.tasks[-1].request["sizes"][-1] == 2**24
    (line,) = made.left_out
    assert (
        line.startswith("all-reduce of 64 MiB, 256 MiB: ")
        and "2.02 GiB" in line
        and "--max_bytes" in line
    )
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
    (line,) = made.left_out
    assert line.startswith("all-reduce: ") and "--num_devices=2" in line


def test_a_full_run_on_four_devices_stays_below_8_gib():
    assert plan.needed_bytes([4**n for n in range(1, 15)], 4) < 8 * 2**30


def test_products_are_asked_for_as_runs_have_their_devices(monkeypatch):
    monkeypatch.setattr(plan, "available_cores", lambda: list(range(9)))
    asked = [
        task.request
        for task in plan.make(["--measure=compute", "--cpu_cores_per_device=2"]).tasks
    ]
    assert [(each["num_devices"], each["cores_per_device"]) for each in asked] == [
        (1, 2),
        (4, 2),
    ]
    for each in asked:
        given = {
            "device": "cpu",
            "num_devices": each["num_devices"],
            "cpu_cores_per_device": 2,
        }
        trainer = config.resolve(given, num_gpus=0, num_cores=9)
        pools = pool_sizes(trainer, 2 * each["num_devices"])
        assert (each["inter_op_threads"], each["intra_op_threads"]) == pools
        assert (
            each["dtypes"] == ("float32", "bfloat16")
            and (2048, 2048, 2048) in each["shapes"]
        )
    assert [
        t.request["num_devices"]
        for t in plan.make(["--measure=compute", "--num_devices=20"]).tasks
    ] == [1, 9]

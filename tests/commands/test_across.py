"""Which machine is faster: `compare --across=machine` and `report` of several folders."""

from __future__ import annotations

import json
import random

import pytest

from rnn_scaling.analysis.facts.table import INCOMPARABLE, OF_MACHINES
from rnn_scaling.commands import compare, report
from rnn_scaling.records import record
from tests.analysis.test_separation import VARIANTS
from tests.support.compared import GPU, write
from tests.support.paths import ROOT

STEADY = [1000.0, 1004.0, 997.0, 1001.0, 999.0]
NEW = {"cpu": "Processor B", "cpu_cores": 32}


@pytest.fixture
def go(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*words, command=compare):
        status = command.main(["old", "new", *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def machine(folder, factors, environment=(), name="run", **changes):
    """Runs of one series: number of devices -> items/s of it, in thousands."""
    for n, factor in factors.items():
        bound = {"cpu_affinity": list(range(n)), "inter_op_parallelism_threads": n + 1}
        own = {
            "num_devices": n,
            "resolved": bound,
            "environment": environment,
            **changes,
        }
        write(folder, [factor * rate for rate in STEADY], f"{name}-{n}", **own)


def statements(go, *words):
    status, out, _ = go("--across=machine", "--format=json", *words)
    held = json.loads(out)
    assert held["exit_status"] == status
    return held, {each["scope"]: each for each in held["machine_ratios"]}


def test_which_machine_is_faster_per_device_and_with_all(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0, 4: 3.6})
    machine(
        tmp_path / "new",
        {1: 0.8, 4: 3.0, 16: 10.8},
        NEW | {"packages": {"tensorflow": "2.22.0"}},
    )
    held, told = statements(go)
    assert held["exit_status"] == 0 and held["machines"] == [
        "Processor A (8 cores)",
        "Processor B (32 cores)",
    ]
    assert {scope: (each["kind"], each["devices"]) for scope, each in told.items()} == {
        "per_device": ("slower", [1, 1]),
        "all_devices": ("faster", [4, 16]),
    }
    for scope, ratio in (("per_device", 0.8), ("all_devices", 3.0)):
        assert told[scope]["ratio"] == pytest.approx(ratio)
        assert told[scope]["low"] < ratio < told[scope]["high"]
    _, out, _ = go("--across=machine")
    assert (
        out.count("CPU model: ")
        == out.count("CPU cores: ")
        == out.count("TensorFlow: ")
        == 1
    )
    assert (
        "incomparable" not in out
        and " 0.8 (" in out.splitlines()[-1]
        and "3.00" in out.splitlines()[-1]
    )
    assert go(command=report)[:2] == (0, out)
    assert (
        go("--force", command=report)[0] == 2
        and not (tmp_path / "old" / "table.md").exists()
    )


def test_an_option_that_differs_is_listed(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0, 2: 1.8})
    machine(tmp_path / "new", {1: 2.0, 4: 7.0}, NEW, variable_update="replicated")
    held, told = statements(go)
    assert [each["name"] for each in held["changes"]] == ["variable_update"] and held[
        "exit_status"
    ] == 0
    assert {scope: each["devices"] for scope, each in told.items()} == {
        "per_device": [1, 1],
        "all_devices": [2, 4],
    }


def test_workers_are_devices_of_a_machine(go, tmp_path):
    mode = {"variable_update": "collective_all_reduce"}
    for side, most, environment in (("old", 2, {}), ("new", 4, NEW)):
        for workers in (1, most):
            rates = [workers * rate for rate in STEADY]
            write(
                tmp_path / side,
                rates,
                f"w{workers}",
                num_workers=workers,
                environment=environment,
                **mode,
            )
    held, told = statements(go)
    assert {scope: each["devices"] for scope, each in told.items()} == {
        "per_device": [1, 1],
        "all_devices": [2, 4],
    }


def test_the_refusal_names_the_option(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 2.0}, NEW)
    status, out, _ = go()
    assert status == 2 and "--across=machine" in out.splitlines()[-1]
    machine(tmp_path / "new", {1: 2.0}, batch_size=1)
    assert "--across" not in go()[1]


@pytest.mark.parametrize(
    "rates,kind", [(STEADY, "tie"), ([900.0, 1100.0], "tie"), ([1200.0], "unknown")]
)
def test_noise_and_single_runs(rates, kind, go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    write(tmp_path / "new", [rate * 1.0001 for rate in rates], environment=NEW)
    held, told = statements(go)
    assert {each["kind"] for each in told.values()} == {kind} and told.keys() == {
        "per_device",
        "all_devices",
    }
    assert held["exit_status"] == (2 if kind == "unknown" else 0)


def test_what_else_makes_runs_incomparable_still_stops(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 2.0}, NEW, batch_size=64)
    held, told = statements(go)
    assert held["exit_status"] == 2 and "--batch_size" in told["per_device"]["reason"]
    assert statements(go, "--force_incomparable=batch_size")[0]["exit_status"] == 0


@pytest.mark.parametrize(
    "what", [what for what in VARIANTS if what not in ("certificate", "training")]
)
def test_facts_of_machines_are_no_obstacle_and_others_are(what, go, tmp_path):
    for side, make in zip(("old", "new"), VARIANTS[what]):
        (tmp_path / side).mkdir()
        for k, rate in enumerate(STEADY):
            record.write(
                make(rate + (side == "new")), tmp_path / side / f"run.r{k + 1}.json"
            )
    if what in OF_MACHINES:
        held, told = statements(go)
        assert held["exit_status"] == 0 and what in {
            f["difference"]["what"] for f in held["found"]
        }
        return
    status, out, err = go("--across=machine")
    assert (
        status == 2 and "leave out --across" in err
    )  # nothing tells the machines apart
    status, out, _ = go("--format=json")
    [found] = [
        f["difference"]
        for f in json.loads(out)["found"]
        if f["difference"]["what"] == what
    ]
    assert (status == 2) is (found["severity"] == INCOMPARABLE) or what == "commit"


def test_a_machine_of_gpus_and_one_of_cpus(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0, 2: 1.9})
    on_gpu = {"gpus": [GPU], "gpus_after": [GPU], "topology": "GPU0 X", **NEW}
    kernels = {
        "device_type": "GPU",
        "encoder_kernel": "cudnn",
        "decoder_kernel": "cudnn",
    }
    write(
        tmp_path / "new",
        [90 * rate for rate in STEADY],
        device="gpu",
        environment=on_gpu,
        resolved=kernels,
    )
    held, told = statements(go)
    assert held["exit_status"] == 0 and told["all_devices"]["devices"] == [2, 1]
    assert told["per_device"]["ratio"] == pytest.approx(90)


def test_what_cannot_be_asked(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 1.0}, NEW)
    for words in (["--paired"], ["--metric=speedup"]):
        assert go("--across=machine", *words)[0] == 2
    machine(tmp_path / "new", {1: 2.0}, name="third")
    status, _, err = go("--across=machine")
    assert status == 2 and "several machines" in err and "CPU model" in err


def test_series_of_one_machine_alone_are_named(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(
        tmp_path / "old",
        {1: 1.0},
        name="gru",
        unit_type="gru",
        encoder_type="dynamic_rnn",
    )
    machine(tmp_path / "new", {1: 2.0}, NEW)
    machine(tmp_path / "new", {1: 2.0}, NEW, name="xla", xla=True)
    held, _ = statements(go)
    assert (
        held["exit_status"] == 0
        and len(held["only_before"]) == len(held["only_after"]) == 1
    )


def test_on_copies_of_real_records(go, tmp_path):
    """Every machine's rates are multiplied by one factor: each series has this ratio in its interval."""
    (tmp_path / "old").mkdir(), (tmp_path / "new").mkdir()
    rng = random.Random(2)
    for path in (ROOT / "docs" / "results" / "default").glob("*.json"):
        held = json.loads(path.read_text())
        if "batches" not in held:
            continue
        (tmp_path / "old" / path.name).write_text(path.read_text())
        factor = 1.5 * rng.lognormvariate(0, 0.001)
        held["batches"]["seconds"] = [
            each / factor for each in held["batches"]["seconds"]
        ]
        held["phases"] = {name: each / factor for name, each in held["phases"].items()}
        seconds = sum(held["batches"]["seconds"][held["batches"]["warmup"] :])
        held["throughput"] |= {
            "seconds": seconds,
            "items_per_second": held["throughput"]["items"] / seconds,
        }
        held["environment"] |= NEW
        held.pop("towers", None)
        (tmp_path / "new" / path.name).write_text(json.dumps(held))
    held, _ = statements(go)
    assert len(held["machine_ratios"]) == 12 and held["exit_status"] == 0
    for each in held["machine_ratios"]:
        assert each["kind"] == "faster" and each["low"] < 1.5 < each["high"]


def test_markdown_holds_no_html_of_records(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 0.8}, NEW | {"cpu": "<b>Processor</b>"})
    out = go("--across=machine", "--format=markdown")[1]
    assert out.count("&lt;b>Processor") == 2 and "<b" not in out

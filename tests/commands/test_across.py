"""The fastest machine: `compare --across=machine`, and `report` of several folders."""

import json

import pytest

from rnn_scaling.analysis.facts.table import INCOMPARABLE, OF_MACHINES
from rnn_scaling.commands import compare, report
from rnn_scaling.records import record
from tests.analysis.test_separation import VARIANTS
from tests.support.compared import write

STEADY = [1000.0, 1004.0, 997.0, 1001.0, 999.0]
NEW = {"cpu": "Processor B", "cpu_cores": 32}


@pytest.fixture
def go(run_command, tmp_path, monkeypatch):
    """Return a function that runs a command on old and new."""
    monkeypatch.chdir(tmp_path)
    return lambda *words, command=compare: run_command(command, "old", "new", *words)


@pytest.fixture
def compare_machines(go):
    """Return a function that returns the JSON, and its ratios by scope."""

    def call(*words):
        status, out, _ = go("--across=machine", "--format=json", *words)
        comparison = json.loads(out)
        assert comparison["exit_status"] == status
        ratios = {ratio["scope"]: ratio for ratio in comparison["machine_ratios"]}
        return comparison, ratios

    return call


def machine(folder, factors, environment=(), name="run", **changes):
    """Write the runs of one series; `factors` maps devices to thousands of items/s."""
    for n, factor in factors.items():
        bound = {"cpu_affinity": list(range(n)), "inter_op_parallelism_threads": n + 1}
        options = {"num_devices": n, "resolved": bound, "environment": environment}
        rates = [factor * rate for rate in STEADY]
        write(folder, rates, f"{name}-{n}", **{**options, **changes})


def devices(ratios):
    return {scope: ratio["devices"] for scope, ratio in ratios.items()}


def test_which_machine_is_faster_per_device_and_with_all(
    go, compare_machines, tmp_path
):
    machine(tmp_path / "old", {1: 1.0, 4: 3.6})
    packages = {"packages": {"tensorflow": "2.22.0"}}
    machine(tmp_path / "new", {1: 0.8, 4: 3.0, 16: 10.8}, NEW | packages)
    comparison, ratios = compare_machines()
    names = ["Processor A (8 cores)", "Processor B (32 cores)"]
    assert comparison["exit_status"] == 0 and comparison["machines"] == names
    assert devices(ratios) == {"per_device": [1, 1], "all_devices": [4, 16]}
    expected = {"per_device": ("slower", 0.8), "all_devices": ("faster", 3.0)}
    for scope, (kind, value) in expected.items():
        assert ratios[scope]["kind"] == kind
        assert ratios[scope]["ratio"] == pytest.approx(value)
        assert ratios[scope]["low"] < value < ratios[scope]["high"]
    _, out, _ = go("--across=machine")
    assert out.count("CPU model: ") == 1
    assert go(command=report)[:2] == (0, out)
    assert go("--force", command=report)[0] == 2
    assert not (tmp_path / "old/table.md").exists()


def test_workers_are_devices_of_a_machine(compare_machines, tmp_path):
    options = {"variable_update": "collective_all_reduce"}
    for side, num_workers, environment in (("old", 2, {}), ("new", 4, NEW)):
        options["environment"] = environment
        for n in (1, num_workers):
            rates = [n * rate for rate in STEADY]
            write(tmp_path / side, rates, f"w{n}", num_workers=n, **options)
    _, ratios = compare_machines()
    assert devices(ratios) == {"per_device": [1, 1], "all_devices": [2, 4]}


@pytest.mark.parametrize(
    "rates, kind", [([900.0, 1100.0], "tie"), ([1200.0], "unknown")]
)
def test_noise_and_single_runs_name_no_machine(rates, kind, compare_machines, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    write(tmp_path / "new", [rate * 1.0001 for rate in rates], environment=NEW)
    comparison, ratios = compare_machines()
    assert devices(ratios) == {"per_device": [1, 1], "all_devices": [1, 1]}
    assert {ratio["kind"] for ratio in ratios.values()} == {kind}
    assert comparison["exit_status"] == (2 if kind == "unknown" else 0)


def test_other_incomparable_differences_still_stop(compare_machines, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 2.0}, NEW, batch_size=64)
    comparison, ratios = compare_machines()
    assert comparison["exit_status"] == 2
    assert "--batch_size" in ratios["per_device"]["reason"]
    comparison, _ = compare_machines("--force_incomparable=batch_size")
    assert comparison["exit_status"] == 0


@pytest.mark.parametrize(
    "fact",
    [
        "CPU model",
        "GPUs",
        "GPU topology",
        "inter-op threads",
        "CPU operators",
        "commit",
    ],
)
def test_only_facts_of_machines_are_no_obstacle(fact, go, compare_machines, tmp_path):
    for side, make_run in zip(("old", "new"), VARIANTS[fact]):
        for k, rate in enumerate(STEADY, 1):
            made = make_run(rate + (side == "new"))
            record.write(made, tmp_path / side / f"run.r{k}.json")
    if fact in OF_MACHINES:
        comparison, _ = compare_machines()
        assert comparison["exit_status"] == 0
        names = [found["difference"]["what"] for found in comparison["found"]]
        assert fact in names
        return
    # Nothing distinguishes the machines.
    status, _, err = go("--across=machine")
    assert status == 2 and "leave out --across" in err
    status, out, _ = go("--format=json")
    by_name = {}
    for found in json.loads(out)["found"]:
        by_name[found["difference"]["what"]] = found["difference"]["severity"]
    assert (status == 2) is (by_name[fact] == INCOMPARABLE) or fact == "commit"


def test_wrong_questions_are_refused(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 1.0}, NEW)
    for words in (["--paired"], ["--metric=speedup"]):
        assert go("--across=machine", *words)[0] == 2
    machine(tmp_path / "new", {1: 2.0}, name="third")
    status, _, err = go("--across=machine")
    assert status == 2 and "several machines" in err and "CPU model" in err


def test_markdown_contains_no_html_of_records(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 0.8}, NEW | {"cpu": "<b>Processor</b>"})
    out = go("--across=machine", "--format=markdown")[1]
    assert out.count("&lt;b>Processor") == 2 and "<b" not in out


def test_the_refusal_names_the_option(go, tmp_path):
    machine(tmp_path / "old", {1: 1.0})
    machine(tmp_path / "new", {1: 2.0}, NEW)
    status, out, _ = go()
    assert status == 2 and "--across=machine" in out.splitlines()[-1]
    machine(tmp_path / "new", {1: 2.0}, batch_size=1)
    assert "--across" not in go()[1]

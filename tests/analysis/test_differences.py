"""Each difference between two runs is named with its severity; equal runs have none; what follows is not said."""

from __future__ import annotations

import json

import pytest

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.facts import readers as fact_readers
from rnn_scaling.analysis.facts.table import (
    CAUTION,
    CLUSTER,
    FACTS,
    INCOMPARABLE,
    TRAINING,
)
from rnn_scaling.reports.differences import describe
from tests.support.compared import gpu_run, run
from tests.support.records import changed


def found(a, b):
    return {d.what: describe(d) for d in differences.differences([a], [b])}


def test_equal_runs_differ_in_nothing():
    assert found(run(), run(rate=500.0)) == {}
    assert found(gpu_run(), gpu_run()) == {}
    assert (
        differences.within(
            [run(), run(), run(num_devices=2, resolved={"cpu_affinity": [0, 1]})]
        )
        == []
    )


@pytest.mark.parametrize(
    "what,environment,severity",
    [
        (
            "variable TF_ENABLE_ONEDNN_OPTS",
            {"variables": {"TF_ENABLE_ONEDNN_OPTS": "0"}},
            INCOMPARABLE,
        ),
        (
            "variable MALLOC_ARENA_MAX",
            {"variables": {"MALLOC_ARENA_MAX": "1"}},
            CAUTION,
        ),
        (
            "variable TF_NUM_SOMETHING",
            {"variables": {"TF_NUM_SOMETHING": "1"}},
            CAUTION,
        ),
        (
            "load of other processes",
            {"load": {"others": 0.3, "steal": 0.0}},
            INCOMPARABLE,
        ),
        ("load of other processes", {"load": {"others": 0.055, "steal": 0.0}}, CAUTION),
        (
            "time stolen by the hypervisor",
            {"load": {"others": 0.01, "steal": 0.2}},
            INCOMPARABLE,
        ),
    ],
)
def test_differences_beside_the_table_of_facts(what, environment, severity):
    differences = found(run(), run(environment=environment))
    assert [(name, d.severity) for name, d in differences.items()] == [(what, severity)]
    assert list(found(run(environment=environment), run(environment=environment))) in (
        [],
        [what],
    )  # load on both


def test_gpus_leave_little_to_the_processor():
    other = gpu_run(environment={"cpu": "Processor B"})
    assert {name: d.severity for name, d in found(gpu_run(), other).items()} == {
        "CPU model": CAUTION
    }


def test_topology_counts_where_several_devices_exchange():
    nvlink, bridge = (
        {"topology": f"\tGPU0\nGPU0\tX\t{link}\n\nLegend:\n  X = Self"}
        for link in ("NV18", "PHB")
    )
    assert found(gpu_run(environment=nvlink), gpu_run(environment=bridge)) == {}
    two = [gpu_run(num_devices=2, environment=each) for each in (nvlink, bridge)]
    assert (found(*two)["GPU topology"].first, found(*two)["GPU topology"].second) == (
        "GPU0 X NV18",
        "GPU0 X PHB",
    )


def test_throttle_reasons_are_named():
    reasons = {
        "HW slowdown",
        "SW thermal slowdown",
        "HW thermal slowdown",
        "HW power brake slowdown",
    }
    read = fact_readers.held_down(fact_readers.SLOWED)
    masks = {
        "0x0000000000000001": {"nothing"},
        "0x00000000000000E8": reasons,
        "[N/A]": {"None"},
    }
    for mask, expected in masks.items():
        found = str(read(gpu_run(after={"clocks_throttle_reasons.active": mask})))
        assert set(found.split(", ")) == expected


# Every record tells whether it was certified.
ON_ONE_PROCESS = [
    f
    for f in FACTS
    if not f.is_gpu_only and not f.implied_by and f not in (*CLUSTER, *TRAINING)
]


@pytest.mark.parametrize("fact", ON_ONE_PROCESS, ids=lambda fact: fact.name)
def test_what_a_record_does_not_hold_is_unknown_and_never_equal(fact):
    bare = changed(run(), environment={}, resolved={})
    for pair in ((run(), bare), (bare, run()), (bare, bare)):
        difference = found(*pair)[fact.name]
        assert "unknown" in (difference.first, difference.second)
        assert difference.severity == (INCOMPARABLE if fact.is_vital else CAUTION)


def test_an_older_record_of_gpus_is_unknown_where_it_lacks_a_field():
    machine = json.loads(gpu_run().to_json())["environment"]
    for card in (*machine["gpus"], *machine["gpus_after"]):
        del (
            card["clocks.max.mem"],
            card["power.limit"],
            card["clocks_throttle_reasons.active"],
        )
    del machine["cuda"], machine["load"], machine["variables"]
    older = changed(gpu_run(), environment=machine)
    names = {d.what for d in differences.differences([older], [older])}
    assert names == {
        "highest GPU clocks (SM and memory)",
        "GPU power limit",
        "GPU clocks slowed down by",
        "GPU clocks limited by",
        "CUDA",
        "cuBLAS",
        "cuDNN",
        "NCCL",
        "load of other processes",
        "time stolen by the hypervisor",
        "environment variables",
    }


def test_differences_between_clusters_are_named():
    """On two hosts by mpirun, on one by another launcher over a made network, and where the record does not tell."""
    ranks = [
        [{"rank": k, "host": host} for k, host in enumerate(hosts)]
        for hosts in (("a", "b"), ("a", "a"))
    ]
    both = [
        changed(run(), workers={"launcher": launcher, "ranks": own, **link})
        for launcher, own, link in zip(
            ("mpirun", "netlab"), ranks, ({}, {"link": "200mbit"})
        )
    ]
    named = found(*both)
    assert {
        name: (each.first, each.second, each.severity) for name, each in named.items()
    } == {
        "hosts of the workers": ("2", "1", INCOMPARABLE),
        "network between the workers": (
            "none made for the run",
            "200mbit",
            INCOMPARABLE,
        ),
        "launcher": ("mpirun", "netlab", CAUTION),
    }
    silent = changed(run(), workers={"ranks": [{"rank": 0}, {"rank": 1}]})
    assert {each.second for each in found(both[0], silent).values()} == {
        "unknown"
    } and not found(run(), run())


def test_a_system_that_does_not_tell_is_known_not_to_tell():
    silent = {
        "cpu_governor": None,
        "cpu_mhz": [],
        "memory_bytes": None,
        "cpu_no_turbo": None,
    }
    assert found(run(environment=silent), run(environment=silent)) == {}
    assert set(found(run(environment=silent), run())) == {
        "CPU governor",
        "CPU clock at the start",
        "memory",
        "CPU turbo",
    }


def test_numbers_within_their_tolerance_are_the_same():
    assert (
        found(
            run(), run(environment={"memory_bytes": 32.5 * 2**30, "cpu_mhz": [2900.0]})
        )
        == {}
    )
    assert found(gpu_run(), gpu_run(after={"clocks.sm": "1965 MHz"})) == {}


@pytest.mark.parametrize(
    "name,value",
    [
        ("unit_type", "gru"),
        ("batch_size", 64),
        ("compute_dtype", "bfloat16"),
        ("global_batch_size", 64),
    ],
)
def test_options_that_change_the_work_make_runs_incomparable(name, value):
    difference = found(run(), run(**{name: value}))[f"--{name}"]
    assert (difference.severity, difference.second) == (INCOMPARABLE, str(value))


def test_options_that_are_compared_do_not_nor_what_follows_from_them():
    loop = run(
        encoder_type="dynamic_rnn",
        resolved={"encoder_kernel": "dynamic_rnn", "decoder_kernel": "dynamic_rnn"},
    )
    differences = found(run(), loop)
    assert set(differences) == {"--encoder_type", "--decoder_type"}
    assert {d.severity for d in differences.values()} == {CAUTION}


def test_what_another_framework_brings_with_it_is_no_difference_of_its_own():
    packages = {"packages": {"numpy": "2.0", "torch": "2.13.0"}}
    theirs = {
        "framework": "torch",
        "environment": packages,
        "resolved": {"encoder_kernel": "torch.nn.LSTM"},
    }
    options = {
        name
        for name in found(run(data_source="constant"), run(**theirs))
        if name != "--framework"
    }
    assert options <= {"--encoder_type", "--decoder_type"}, (
        "which the other does not read"
    )
    newer = {
        **theirs,
        "environment": {"packages": {**packages["packages"], "torch": "2.14.0"}},
    }
    assert list(found(run(**theirs), run(**newer))) == ["torch"]


def test_options_on_both_sides_are_compared_one_by_one():
    some, more = (
        [run(batch_size=8), run(batch_size=16)],
        [run(batch_size=16), run(batch_size=32)],
    )
    assert differences.differences(some, more) == []


def test_the_grave_come_first():
    other = run(
        environment={"python": "3.13", "cpu": "Processor B"},
        resolved={"encoder_kernel": "other"},
    )
    names = [d.what for d in differences.differences([run()], [other])]
    assert names == ["CPU model", "encoder kernel that ran", "Python"]


@pytest.mark.parametrize("devices, names", [(1, []), (2, ["load of other processes"])])
def test_load_counts_by_the_cores_of_one_device(devices, names):
    """4.5 % of two cores may have been 9 % of one, for which the step of both waited."""
    parts = {"num_devices": devices, "resolved": {"cpu_affinity": [*range(devices)]}}
    busy = run(environment={"load": {"others": 0.045, "steal": 0.0}}, **parts)
    assert (
        list(found(run(**parts), busy))
        == [d.what for d in differences.within([run(**parts), busy])]
        == names
    )


def test_a_level_of_load_that_varies_by_chance_is_no_difference():
    a, b = (
        [run(environment={"load": {"others": x, "steal": 0.0}}) for x in xs]
        for xs in ([0.4, 0.6], [0.5, 0.64])
    )
    (difference,) = differences.differences(a, b)
    (load,) = difference.a
    assert load.values == {"mean": 0.5, "most": 0.6}
    assert difference.severity is CAUTION


def test_within_names_the_odd_ones_out():
    odd = run(
        environment={
            "cpu": "Processor B",
            "variables": {"XLA_FLAGS": "x"},
            "load": {"others": 0.2, "steal": 0.0},
        }
    )
    by_name = {d.what: describe(d) for d in differences.within([run(), odd, run()])}
    load = by_name.pop("load of other processes")
    assert (
        "5%" in load.first
        and "2 runs" in load.first
        and "20.0%" in load.second
        and "1 run" in load.second
    )
    assert {what: (d.first, d.second) for what, d in by_name.items()} == {
        "CPU model": ("Processor A", "Processor B"),
        "variable XLA_FLAGS": ("not set", "x"),
    }
    mixed = [
        run(),
        run(num_devices=2),
        run(num_devices=2, resolved={"inter_op_parallelism_threads": 1}),
    ]
    assert [d.what for d in differences.within(mixed)] == ["inter-op threads"]
    modes = [
        (mode, {"inter_op_parallelism_threads": n})
        for mode, n in (("replicated", 2), ("async_parameter_server", 3))
    ]
    assert (
        differences.within(
            [run(variable_update=mode, resolved=pools) for mode, pools in modes]
        )
        == []
    )


@pytest.mark.parametrize("older, newer", [(True, "avx512"), (False, "stock")])
def test_an_older_record_names_the_operators_that_ran(older, newer):
    before, after = (
        run(resolved={"operators": None, "own_operators": older}),
        run(resolved={"operators": newer}),
    )
    assert found(before, after) == {} and "CPU operators" in found(
        before, run(resolved={"operators": "avx2"})
    )
    chosen = {"RNN_SCALING_OPERATORS": newer}
    assert (
        found(
            after, run(resolved={"operators": newer}, environment={"variables": chosen})
        )
        == {}
    ), "they count"


def test_the_level_of_logging_is_no_difference():
    assert (
        found(run(), run(environment={"variables": {"TF_CPP_MIN_LOG_LEVEL": "2"}}))
        == {}
    )


@pytest.mark.parametrize(
    "files,turbo",
    [
        ({"cpu_no_turbo": "0", "cpu_boost": None}, "on"),
        ({"cpu_no_turbo": "1", "cpu_boost": None}, "off"),
        ({"cpu_no_turbo": None, "cpu_boost": "1"}, "on"),
        ({"cpu_no_turbo": None, "cpu_boost": "0"}, "off"),
        ({"cpu_no_turbo": None, "cpu_boost": None}, fact_readers.NOT_TOLD),
    ],
)
def test_turbo(files, turbo):
    assert fact_readers.turbo(run(environment=files)) == turbo


def test_two_modified_trees_of_a_commit_may_be_any_two():
    older = run(
        environment={"commit": {"hash": "0123456789abcdef", "modified": True}}
    )  # without a digest
    assert found(older, older)["commit"].first == "unknown"
    digests = [
        run(environment={"commit": {"hash": "0123456789", "modified": True, "diff": d}})
        for d in ("aa", "bb")
    ]
    assert found(digests[0], digests[0]) == {}
    assert found(*digests)["commit"].second == "012345678 modified (bb)"

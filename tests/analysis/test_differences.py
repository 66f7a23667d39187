"""Differences between runs: names, severities, and equal runs without any."""

import pytest

from rnn_scaling.analysis.comparison.differences import (
    find_differences,
    find_differences_inside,
)
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
from tests.support.records import change_record

LOAD = "load of other processes"


def texts(a, b):
    """Return the differences of two runs in words, by name."""
    return {each.name: describe(each) for each in find_differences([a], [b])}


def severities(a, b):
    return {each.name: each.severity for each in find_differences([a], [b])}


def names_inside(*records):
    return [each.name for each in find_differences_inside(records)]


def make_loaded_run(others, rate=1000.0, steal=0.0, **options):
    load = {"others": others, "steal": steal}
    return run(rate, environment={"load": load}, **options)


def test_equal_runs_differ_in_nothing():
    assert texts(run(), run(rate=500.0)) == {}
    assert texts(gpu_run(), gpu_run()) == {}
    two = run(num_devices=2, resolved={"cpu_affinity": [0, 1]})
    assert names_inside(run(), run(), two) == []


@pytest.mark.parametrize(
    "name, others, steal, severity",
    [
        (LOAD, 0.3, 0.0, INCOMPARABLE),
        (LOAD, 0.055, 0.0, CAUTION),
        ("time stolen by the hypervisor", 0.01, 0.2, INCOMPARABLE),
    ],
)
def test_load_of_one_side_is_grave_if_it_is_large(name, others, steal, severity):
    busy = make_loaded_run(others, steal=steal)
    assert severities(run(), busy) == {name: severity}
    assert severities(busy, busy) == {name: CAUTION}


@pytest.mark.parametrize("rate, severity", [(300.0, INCOMPARABLE), (100.0, CAUTION)])
def test_load_that_cannot_explain_the_change_is_a_caution(rate, severity):
    """Compare a run beside a load of 30 % of one core with a run at 1,000 words/s."""
    busy = make_loaded_run(0.3, rate)
    assert severities(run(), busy) == severities(busy, run()) == {LOAD: severity}


def test_a_level_of_load_that_varies_by_chance_is_no_difference():
    a = [make_loaded_run(0.4), make_loaded_run(0.6)]
    b = [make_loaded_run(0.5), make_loaded_run(0.64)]
    [difference] = find_differences(a, b)
    [load] = difference.first
    assert load.values == {"mean": 0.5, "most": 0.6}
    assert difference.severity is CAUTION


def test_topology_counts_if_several_devices_exchange():
    def linked(link, **options):
        topology = f"\tGPU0\nGPU0\tX\t{link}\n\nLegend:\n  X = Self"
        return gpu_run(environment={"topology": topology}, **options)

    assert texts(linked("NV18"), linked("PHB")) == {}
    two = texts(linked("NV18", num_devices=2), linked("PHB", num_devices=2))
    topology = two["GPU topology"]
    assert topology.first == "GPU0 X NV18"
    assert topology.second == "GPU0 X PHB"


# Facts that every record of one process on CPUs has, except the certificate.
ON_ONE_PROCESS = [
    f
    for f in FACTS
    if not f.is_gpu_only and not f.implied_by and f not in (*CLUSTER, *TRAINING)
]


def test_a_missing_value_is_unknown_and_never_equal():
    bare = change_record(run(), environment={}, resolved={})
    for pair in ((run(), bare), (bare, run()), (bare, bare)):
        differences = texts(*pair)
        for fact in ON_ONE_PROCESS:
            difference = differences[fact.name]
            assert "unknown" in (difference.first, difference.second), fact.name
            assert difference.severity == (INCOMPARABLE if fact.is_vital else CAUTION)


def test_workers_that_record_nothing_are_unknown():
    def cluster(*ranks, **workers):
        ranks = [{"rank": number, **rank} for number, rank in enumerate(ranks)]
        return change_record(run(), workers={"ranks": ranks, **workers})

    known = cluster({"host": "a"}, {"host": "b"}, launcher="mpirun")
    assert severities(known, cluster({}, {}))["launcher"] == CAUTION
    assert {each.second for each in texts(known, cluster({}, {})).values()} == {
        "unknown"
    }


def test_a_system_without_a_value_equals_another_one_without_it():
    silent = {
        "cpu_governor": None,
        "cpu_mhz": [],
        "memory_bytes": None,
        "cpu_no_turbo": None,
    }
    silent = run(environment=silent)
    assert texts(silent, silent) == {}
    names = {"CPU governor", "CPU clock at the start", "memory", "CPU turbo"}
    assert texts(silent, run()).keys() == names


def test_numbers_within_their_tolerance_are_the_same():
    other = run(environment={"memory_bytes": 32.5 * 2**30, "cpu_mhz": [2900.0]})
    assert texts(run(), other) == {}
    assert texts(gpu_run(), gpu_run(after={"clocks.sm": "1965 MHz"})) == {}


@pytest.mark.parametrize(
    "name, value", [("unit_type", "gru"), ("global_batch_size", 64)]
)
def test_options_that_change_the_work_make_runs_incomparable(name, value):
    difference = texts(run(), run(**{name: value}))[f"--{name}"]
    assert difference.severity == INCOMPARABLE
    assert difference.second == str(value)


def test_kernels_that_follow_from_a_compared_option_are_no_difference():
    kernels = {"encoder_kernel": "dynamic_rnn", "decoder_kernel": "dynamic_rnn"}
    loop = run(encoder_type="dynamic_rnn", resolved=kernels)
    expected = {"--encoder_type": CAUTION, "--decoder_type": CAUTION}
    assert severities(run(), loop) == expected


def test_facts_that_follow_from_another_framework_are_no_difference():
    def torch_run(version):
        return run(
            framework="torch",
            environment={"packages": {"numpy": "2.0", "torch": version}},
            resolved={"encoder_kernel": "torch.nn.LSTM"},
        )

    names = texts(run(data_source="constant"), torch_run("2.13.0")).keys()
    # torch does not read the types.
    assert names <= {"--framework", "--encoder_type", "--decoder_type"}
    assert list(texts(torch_run("2.13.0"), torch_run("2.14.0"))) == ["torch"]


def test_options_on_both_sides_are_compared_one_by_one():
    a = [run(batch_size=8), run(batch_size=16)]
    b = [run(batch_size=16), run(batch_size=32)]
    assert find_differences(a, b) == []


def test_incomparable_differences_come_first():
    other = run(
        environment={"python": "3.13", "cpu": "Processor B"},
        resolved={"encoder_kernel": "other"},
    )
    names = list(texts(run(), other))
    assert names == ["CPU model", "encoder kernel that ran", "Python"]


def test_runs_unlike_most_are_named():
    odd = run(
        environment={
            "cpu": "Processor B",
            "variables": {"XLA_FLAGS": "x"},
            "load": {"others": 0.2, "steal": 0.0},
        }
    )
    differences = find_differences_inside([run(), odd, run()])
    by_name = {each.name: each for each in differences}
    load = by_name.pop(LOAD)
    assert load.first[0].values["runs"] == 2
    assert load.second[0].values["runs"] == 1
    assert load.second[0].values["load"].values["mean"] == 0.2
    assert {name: (d.first, d.second) for name, d in by_name.items()} == {
        "CPU model": (("Processor A",), ("Processor B",)),
        "variable XLA_FLAGS": (("not set",), ("x",)),
    }


def test_runs_are_alike_if_their_options_explain_a_fact():
    def pool(size, **options):
        return run(resolved={"inter_op_parallelism_threads": size}, **options)

    two = run(num_devices=2)
    assert names_inside(run(), two, pool(1, num_devices=2)) == ["inter-op threads"]
    modes = (
        pool(2, variable_update="replicated"),
        pool(3, variable_update="async_parameter_server"),
    )
    assert names_inside(*modes) == []


@pytest.mark.parametrize("older, newer", [(True, "avx512"), (False, "stock")])
def test_an_older_record_names_the_operators_that_ran(older, newer):
    before = run(resolved={"operators": None, "own_operators": older})
    after = run(resolved={"operators": newer})
    assert texts(before, after) == {}
    assert "CPU operators" in texts(before, run(resolved={"operators": "avx2"}))
    variables = {"RNN_SCALING_OPERATORS": newer}
    chosen = run(resolved={"operators": newer}, environment={"variables": variables})
    assert texts(after, chosen) == {}


@pytest.mark.parametrize(
    "no_turbo, boost, turbo",
    [("0", None, "on"), (None, "0", "off"), (None, None, fact_readers.NOT_REPORTED)],
)
def test_turbo(no_turbo, boost, turbo):
    files = {"cpu_no_turbo": no_turbo, "cpu_boost": boost}
    assert fact_readers.turbo(run(environment=files)) == turbo


def test_modified_trees_of_a_commit_are_equal_only_by_their_digest():
    def modified(diff):
        commit = {"hash": "0123456789abcdef", "modified": True, "diff": diff}
        return run(environment={"commit": commit})

    assert texts(modified(None), modified(None))["commit"].first == "unknown"
    assert texts(modified("aa"), modified("aa")) == {}
    commit = texts(modified("aa"), modified("bb"))["commit"]
    assert commit.first != commit.second and "bb" in commit.second

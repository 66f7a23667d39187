"""Runs that `compare` calls incomparable are never repeats of each other in a report, whatever the fact is."""

import dataclasses

import pytest

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.facts.separation import NAMED
from rnn_scaling.analysis.facts.table import CAUTION, FACTS, INCOMPARABLE, Severity
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.folder import Folder, RunFile
from rnn_scaling.reports import csv_table, report_files, table
from rnn_scaling.reports.differences import describe
from rnn_scaling.reports.summary import summarise
from tests.support.compared import ENVIRONMENT, gpu_run, run
from tests.support.records import change_record

CLUSTER = {
    "launcher": "mpirun",
    "link": "1000 Mbit/s asked; 955 Mbit/s of payload measured",
}
RANKS = [{"rank": 0, "host": "a"}, {"rank": 1, "host": "b"}]


def cluster(rate=1000.0, **workers):
    made = run(rate, variable_update="collective_all_reduce", num_workers=2)
    return change_record(made, workers={**CLUSTER, "ranks": RANKS, **workers})


def make_wrong_run(rate):
    verdict = {
        "verdict": "sum",
        "holds": False,
        "sentence": "WRONG: it trains the sum",
        "compared": "weights",
    }
    return change_record(run(rate), certificate=verdict)


def vary_environment(**fields):
    return lambda rate: run(rate, environment=fields)


def vary_resolved(**fields):
    return lambda rate: run(rate, resolved=fields)


def vary_gpus(**fields):
    return lambda rate: gpu_run(rate=rate, num_devices=2, **fields)


def vary_cuda(part):
    return vary_gpus(environment={"cuda": {**ENVIRONMENT["cuda"], part: "1.0"}})


def vary_packages(**packages):
    return vary_environment(packages={**ENVIRONMENT["packages"], **packages})


# Name of a fact -> two runs of the same kind that differ in it. There is at least one
# fact of each reader and severity.
CPU, GPUS, CLUSTERS = lambda rate: run(rate), vary_gpus(), lambda rate: cluster(rate)
VARIANTS = {
    "certificate": (
        CPU,
        lambda rate: change_record(make_wrong_run(rate), certificate=RIGHT),
    ),
    "training": (
        lambda rate: change_record(run(rate), certificate=RIGHT),
        make_wrong_run,
    ),
    "device type": (CPU, vary_resolved(device_type="GPU")),
    "CPU model": (CPU, vary_environment(cpu="Processor B")),
    "CPU operators": (CPU, vary_resolved(operators="avx2")),
    "CPU topology": (
        CPU,
        vary_environment(cpu_topology={**ENVIRONMENT["cpu_topology"], "cores": 8}),
    ),
    "cores bound to": (CPU, vary_resolved(cpu_affinity=[0, 1])),
    "CPU turbo": (CPU, vary_environment(cpu_no_turbo="1")),
    "CPU clock at the start": (CPU, vary_environment(cpu_mhz=[2000.0])),
    "GPUs": (GPUS, vary_gpus(gpu={"name": "Tesla P100"})),
    "highest GPU clocks (SM and memory)": (
        GPUS,
        vary_gpus(gpu={"clocks.max.mem": "3000 MHz"}),
    ),
    "GPU SM clock after the run": (GPUS, vary_gpus(after={"clocks.sm": "300 MHz"})),
    "GPU clocks slowed down by": (
        GPUS,
        vary_gpus(after={"clocks_throttle_reasons.active": "0x28"}),
    ),
    "GPU topology": (GPUS, vary_gpus(environment={"topology": "GPU0 X PHB"})),
    "torch": (CPU, vary_packages(torch="2.9")),
    "cuDNN": (GPUS, vary_cuda("cudnn")),
    "inter-op threads": (CPU, vary_resolved(inter_op_parallelism_threads=1)),
    "all-reduce that ran": (
        CPU,
        vary_resolved(all_reduce=[{"algorithm": "xring", "shards": 1}]),
    ),
    "commit": (
        CPU,
        vary_environment(commit={"hash": "f" * 40, "modified": True, "diff": "aa"}),
    ),
    "hosts of the workers": (
        CLUSTERS,
        lambda rate: cluster(rate, ranks=[{"rank": k, "host": "a"} for k in (0, 1)]),
    ),
    "network between the workers": (
        CLUSTERS,
        lambda rate: cluster(rate, link="50 Mbit/s asked; 47 Mbit/s measured"),
    ),
    **{
        fact.name: (CPU, vary_environment(variables={fact.name.split()[1]: "x"}))
        for fact in NAMED.values()
        if fact.name.startswith("variable ")
    },
}
# All other facts above make runs incomparable.
CAUTIONS = {
    "certificate",
    "CPU clock at the start",
    "GPU SM clock after the run",
    "torch",
    "cuDNN",
    "commit",
}
RIGHT = {"verdict": "equal", "holds": True, "sentence": "equal", "compared": "weights"}


def summarise_runs(*records):
    return summarise(
        Folder(
            tuple(RunFile(f"run{k}.json", each) for k, each in enumerate(records)), ()
        ),
        "results",
    )


def test_facts_of_every_severity_are_tried():
    assert VARIANTS.keys() <= {*NAMED, *(fact.name for fact in FACTS)}
    tried = {fact.severity for fact in FACTS if fact.name in VARIANTS}
    assert tried == set(Severity)
    assert all(fact.tolerance is None for fact in NAMED.values())


@pytest.mark.parametrize("what", VARIANTS)
def test_what_compare_calls_incomparable_is_never_averaged(what):
    usual, unlike = VARIANTS[what]
    pair = usual(1000.0), unlike(500.0)
    found = {
        each.name: describe(each)
        for each in differences.find_differences(pair[:1], pair[1:])
    }
    assert [*found] == [what]
    assert found[what].effect
    assert found[what].first != found[what].second
    expected = CAUTION if what in CAUTIONS else INCOMPARABLE
    assert found[what].severity == expected
    summary = summarise_runs(*pair)
    rows = summary.rows
    num_records = [len(row.records) for row in rows]
    if expected == CAUTION:
        assert num_records == [2]
        return
    assert num_records == [1, 1]
    assert [row.rate.value for row in rows] == pytest.approx([1000, 500])
    by_machine = {"CPU model", "CPU cores", "GPUs"}  # these name machines
    for text in (table.format_text(summary), csv_table.render(summary).decode()):
        for value in (found[what].first, found[what].second):
            assert ("machine 2" if what in by_machine else f"{what}: {value}") in text


def test_long_values_have_titles_and_files_of_their_own():
    flags = ["--xla_a" * 200 + end for end in ("1", "2")]
    runs = [
        run(rate, environment={"variables": {"XLA_FLAGS": each}})
        for rate, each in zip((1000.0, 900.0), flags)
    ]
    summary = summarise_runs(*runs)
    titles = {series.title for series in summary.series}
    assert len(titles) == 2 and max(map(len, titles)) < 300
    names = report_files.list_file_renderers(summary)
    assert len([name for name in names if name.startswith("words_per_second")]) == 2
    assert max(map(len, names)) < 200


def test_repeats_whose_network_was_only_measured_anew_are_one_row():
    again = cluster(
        900.0, link="1000 Mbit/s asked; 938 Mbit/s to 953 Mbit/s of payload measured"
    )
    [row] = build_rows([cluster(), again])
    assert len(row.good_runs) == 2 and row.facts == ()


def test_series_have_their_own_baselines():
    """Two governors on one and two devices; the cores that a run is bound to follow from the number of devices."""
    two = {"num_devices": 2, "resolved": {"cpu_affinity": [0, 1]}}
    slow = {"environment": {"cpu_governor": "powersave"}}
    rows = build_rows(
        [run(1000), run(1900, **two), run(400, **slow), run(600, **two, **slow)]
    )
    assert [(row.num_devices, row.baseline.rate.value) for row in rows] == [
        (1, pytest.approx(1000)),
        (2, pytest.approx(1000)),
        (1, pytest.approx(400)),
        (2, pytest.approx(400)),
    ]
    [_, lonely, _] = build_rows([run(1000), run(600, **two, **slow), run(1900, **two)])
    assert lonely.baseline is None


def test_networks_share_the_baseline_of_one_worker():
    one = run(500, variable_update="collective_all_reduce", num_workers=1)
    rows = build_rows(
        [one, cluster(900), cluster(100, link="50 Mbit/s asked; 47 Mbit/s measured")]
    )
    assert [row.baseline.rate.value for row in rows] == pytest.approx([500, 500, 500])


def test_failed_runs_that_tell_nothing_belong_to_the_others():
    failed = change_record(run(status="failed"), environment={}, resolved={})
    [row] = build_rows([run(), failed])
    assert len(row.records) == 2
    unknown = change_record(dataclasses.replace(run(), error=None), environment={})
    # The second run's processor is unknown, and compare calls such runs incomparable.
    assert len(build_rows([run(), unknown])) == 2

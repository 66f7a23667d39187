"""Summaries of folders: speedups, and the cautions before them.

Cautions are about load, differences between runs, and strong scaling set up by hand.
"""

from pathlib import Path

import pytest

from rnn_scaling.analysis.statements import state
from rnn_scaling.records.folder import Folder, RunFile
from rnn_scaling.reports import answer_text, cautions, conclusions, start_up, table
from rnn_scaling.reports.summary import summarise
from rnn_scaling.reports.wording import write_sentence as sentence_of
from tests.support.records import change_record as altered
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_timed_run,
    run,
    summarise_records,
)


def test_load_and_differences_stand_before_the_numbers():
    quiet, busy = (
        {"load": {"others": share, "steal": 0.0, "seconds": 9.0}}
        for share in (0.01, 0.4)
    )
    runs = make_attributed_runs()
    known = [altered(r, environment={**quiet, "cpu": "X"}) for r in runs[:-1]]
    other = altered(runs[-1], environment={**busy, "cpu": "Y"})
    said = " ".join(cautions.format_cautions(summarise_records([*known, other])))
    assert "load of other processes" in said and "40.0%" in said
    assert "CPU model (X; Y)" in said
    assert "load" not in " ".join(cautions.format_cautions(summarise_records(known)))


def test_the_three_speedups_differ_by_what_is_spent_once():
    made = summarise_records(make_attributed_runs())
    found = start_up.compute_speedups(made.series[0].largest_row)
    assert found["steady"].value == pytest.approx(1.8, rel=1e-3)
    train = (40 * 2000 / (60 + 39 * 2000 / 180)) / (40 * 1000 / (60 + 39 * 10))
    assert found["train"].value == pytest.approx(train, rel=1e-3)
    whole = [60 + 4.5 + 39 * 1000 * n / rate for n, rate in ((1, 100), (2, 180))]
    assert found["total"].value == pytest.approx(2 * whole[0] / whole[1], rel=1e-3)
    once = 60 + 4.5
    # the first batch, of 1000 words per device, belongs to the start-up time
    assert found["same_work"] == pytest.approx(
        (once + 39_000 / 100) / (once + 38_000 / 180), rel=1e-3
    )
    assert 1 < found["same_work"] < found["steady"].value


def test_the_seconds_of_the_start_up_are_geometric_means():
    runs = []
    for made, start_s in zip(
        [make_timed_run(1, 100.0), make_timed_run(1, 100.0)], (2.0, 8.0)
    ):
        phases = {**made.phases.parts, "start": start_s, "build": 0.0}
        runs.append(altered(made, phases={**phases, "total": sum(phases.values())}))
    one, _ = start_up.start_ups(
        summarise_records([*runs, make_timed_run(2, 180.0)]).rows
    )
    assert one.phases["start"] == pytest.approx(4.0)
    assert one.initialisation == pytest.approx(4.0)


def test_the_first_batch_of_more_devices_has_more_items():
    baseline, two_devices = start_up.start_ups(
        summarise_records([make_timed_run(1, 100.0), make_timed_run(2, 180.0)]).rows
    )
    work = sum(baseline.row.counted_runs[0].batches.items)
    for made in (baseline, two_devices):
        first_items = made.row.counted_runs[0].batches.items[0]
        assert first_items + made.steady * made.row.rate.value == pytest.approx(work)


def test_names_of_files_keep_their_spelling():
    statement = state("program-warnings", files=["mine-1.json"], warnings=["`slow`"])
    assert "mine-1.json" in sentence_of(statement)


def test_strong_scaling_made_by_hand_is_pointed_to_its_option():
    runs = [make_timed_run(n, 100 * n, batch_size=64 // n) for n in (1, 2, 4)]
    [statement] = cautions.find_hand_made_strong_scaling(summarise_records(runs))
    assert "--batch_size=16 on 4 devices" in statement.values["sizes"]
    assert statement.values["total"] == 64
    assert statement in cautions.make_statements(summarise_records(runs))
    assert not cautions.find_hand_made_strong_scaling(
        summarise_records([*runs, make_timed_run(1, 100, batch_size=32)])
    ), "a sweep over batch sizes is no such thing"
    assert not cautions.find_hand_made_strong_scaling(summarise_records(runs[1:2]))


def on(cpu, runs, cores=8):
    return [
        altered(each, environment={"cpu": cpu, "cpu_cores": cores}) for each in runs
    ]


def test_cores_of_one_cpu_are_said_of_runs_on_cpus_alone():
    gpu = altered(run(1, 100.0), resolved={"device_type": "GPU"})
    resolved = {"device_type": "CPU", "logical_devices": True}
    cpu = altered(run(2, 200.0), resolved=resolved)
    early = altered(run(4, 1.0, "failed"), resolved={})

    def found(*runs):
        return [
            (each.kind, each.values)
            for each in cautions.make_statements(summarise_records(runs))
        ]

    assert ("cpu-devices", {"runs": 1, "total": 2}) in found(gpu, cpu)
    assert ("cpu-devices", {"runs": 1, "total": 3}) in found(gpu, cpu, early)
    assert ("cpu-devices-only", {"runs": 1, "total": 1}) in found(cpu)


def on_cpu(kernel, **options):
    """Return runs on 1 and 2 CPUs whose encoder is computed by a kernel."""
    resolved = {"device_type": "CPU", "encoder_kernel": kernel}
    return [
        altered(make_timed_run(n, 100 * n, **options), resolved=resolved)
        for n in (1, 2)
    ]


def test_a_title_names_the_kernel_only_if_series_differ_in_it():
    fused = on_cpu("packed LSTM")
    other = on_cpu("BlockLSTM + LSTMBlockCellGrad", variable_update="replicated")
    assert {series.title for series in summarise_records([*fused, *other]).series} == {
        "cudnn_lstm (packed LSTM), independent",
        "cudnn_lstm (BlockLSTM), replicated",
    }
    [series] = summarise_records(fused).series
    assert series.title == "cudnn_lstm, independent"


def test_the_answer_names_the_kernel_that_ran_on_cpus():
    def kernels(records):
        return [
            each.subject for each in cautions.state_kernels(summarise_records(records))
        ]

    fused = on_cpu("packed LSTM")
    resolved = {"device_type": "GPU", "encoder_kernel": "CudnnRNNV3"}
    assert kernels(fused) == ["cudnn_lstm"]
    assert kernels([altered(each, resolved=resolved) for each in fused]) == []
    assert kernels([make_timed_run(1, 100, encoder_type="dynamic_rnn")]) == []


def test_machines_and_runs_in_progress_are_named_before_the_numbers():
    runs = []
    for cpu in ("Small", "Large"):
        runs += [
            altered(make_timed_run(n, 100 * n), environment={"cpu": cpu})
            for n in (1, 2)
        ]
    files = [RunFile(f"{k}.json", each) for k, each in enumerate(runs)]
    content = Folder(tuple(files), (), (Path("out/9.json"),))
    made = summarise(content, "results")
    assert made.num_runs == 4
    assert made.failures == ()
    assert made.files_in_progress == ("9.json",)
    text = table.format_text(made)
    assert "machine 1 is Small" in text.splitlines()[0]
    assert "1 run is still in progress" in text
    headlines, _ = conclusions.answer_paragraphs(made)
    assert [line.count("machine") for line in headlines] == [1, 1]


def test_a_loss_of_many_times_its_start_is_in_the_brief_text():
    batches = {"warmup": 1, "seconds": [9.0, 1.0, 1.0], "items": [1, 100, 100]}
    grown = altered(run(1, 100.0), batches={**batches, "loss": [9.2, 9.2, 920_000.0]})
    summary = summarise_records([grown])
    [statement] = cautions.state_losses(summary)
    assert statement.kind == "loss-grew"
    brief = answer_text.format_briefly(summary, Path("out"))
    assert sentence_of(statement) in brief

"""What a table implies: numbers that it does not print, in sentences and in the JSON."""

from __future__ import annotations

import json

import pytest

from rnn_scaling.audit.derived import fixed_part
from rnn_scaling.reports import audit_report
from tests.support.audit_tables import run


def derived(tmp_path, text):
    report = run(tmp_path, text, "t.txt")
    assert json.loads(audit_report.render_json([report]))["files"][0]["derived"][0]["points"]
    return report.derived


def test_speedup_efficiency_and_steps_are_derived_where_they_are_not_printed(tmp_path):
    (series,) = derived(tmp_path, "GPUs\timages/s\n1\t100.0\n2\t190.0\n4\t360.0\n")
    assert [(p.devices, p.line, p.speedup, p.efficiency) for p in series.points] == [
        (1, 2, 1.0, 1.0), (2, 3, 1.9, 0.95), (4, 4, 3.6, 0.9),
    ]  # fmt: skip
    assert [p.step and round(p.step, 4) for p in series.points] == [None, 1.9, 1.8947]
    assert (series.rates, series.scaling, series.best_devices, series.knee, series.collapse) == (
        "total",
        "",
        4,
        None,
        (),
    )


def test_a_collapse_and_the_knee_before_it_are_said(tmp_path):
    (series,) = derived(tmp_path, "GPUs\twords/s\n1\t3,100\n2\t6,050\n4\t11,548\n8\t2,812\n")
    assert (series.best_devices, series.knee, series.collapse) == (4, 4, (4, 8))
    said = audit_report.derived_sentence(series)
    assert said.startswith("Fastest on 4. From 4 to 8 it")
    (series,) = derived(tmp_path, "GPUs\twords/s\n1\t100.0\n2\t190.0\n4\t240.0\n8\t250.0\n")
    assert audit_report.derived_sentence(series) == (
        "Fastest on 8. Beyond 2 a further device adds less than half of what the first does."
    )


def test_a_fall_of_less_than_a_third_is_no_collapse(tmp_path):
    (series,) = derived(tmp_path, "GPUs\twords/s\n1\t100.0\n2\t190.0\n4\t160.0\n")
    assert series.collapse == (2, 4) and "2 to 4 it falls" in audit_report.derived_sentence(series)


@pytest.mark.parametrize("names", [("FP32", "FP16"), ("A", "B")])
def test_series_are_called_what_their_headers_say(tmp_path, names):
    header = "GPUs\t" + "\t".join(f"{name} images/s" for name in names)
    both = derived(tmp_path, f"{header}\tspeedup\n1\t100\t200\t2.0\n4\t380\t750\t1.97\n8\t700\t1300\t1.86\n")
    assert tuple(series.series for series in both) == names


def test_rates_of_one_worker_are_told_from_totals(tmp_path):
    (series,) = derived(tmp_path, "GPUs\timages/s per GPU\n1\t100.0\n2\t95.0\n4\t90.0\n")
    assert (series.rates, [p.speedup for p in series.points]) == ("a worker's", [1.0, 1.9, 3.6])


@pytest.mark.parametrize(
    "columns, rows, scaling",
    [
        ("GPUs\tbatch size\timages/s", ["1\t64\t100.0", "2\t64\t190.0"], "weak"),
        ("GPUs\tglobal batch size\timages/s", ["1\t64\t100.0", "2\t64\t190.0"], "strong"),
        ("GPUs\tbatch size\timages/s", ["1\t64\t100.0", "2\t32\t190.0"], "strong"),
        ("GPUs\tBatch size\timages/s", ["1\t32\t100", "2\t64\t190", "4\t128\t370"], "weak"),
        ("GPUs\tbatch per GPU\timages/s", ["1\t32\t100", "2\t64\t250", "4\t64\t490"], ""),
        ("GPUs\tBatch size\timages/s", ["1\t64\t100", "2\t64\t190", "4\t128\t370"], ""),
        ("GPUs\tglobal batch size\timages/s", ["1\t64\t100", "2\t64\t190", "4\t128\t370"], ""),
        ("GPUs\ttime (s)\tspeedup", ["1\t100.0\t1.00", "2\t55.0\t1.82"], "strong"),
        ("GPUs\ttime (s)\tspeedup", ["1\t100.0\t1.00", "2\t110.0\t1.82"], "weak"),
    ],
)
def test_weak_and_strong_are_told_by_batch_sizes_and_times(tmp_path, columns, rows, scaling):
    assert [series.scaling for series in derived(tmp_path, "\n".join([columns, *rows]))] == [scaling]


@pytest.mark.parametrize(
    "header, batches, scaling",
    [
        ("batch per GPU", (32, 32, 32), "weak"),
        ("batch size", (32, 64, 128), "weak"),
        ("global batch size", (32, 64, 128), "weak"),
        ("batch size", (32, 32, 32), None),  # of one device or of all: nobody says
        ("batch size", (32, 32, 64), None),
    ],
)
def test_steps_a_second_are_speeds_only_with_the_batch_of_all_devices(tmp_path, header, batches, scaling):
    rows = "".join(f"{n}\t{rate}\t{batch}\n" for n, rate, batch in zip((1, 2, 4), ("10", "9.5", "9.0"), batches))
    report = run(tmp_path, f"GPUs\tit/s\t{header}\n{rows}", "t.txt")
    assert not report.findings and len(report.derived) == (scaling is not None)
    for series in report.derived:
        assert (series.scaling, series.rates, [p.speedup for p in series.points]) == (scaling, "steps", [1.0, 1.9, 3.6])
        assert "rates of steps, times the" in audit_report.derived_lines(series)[0]


def test_repeated_rows_are_one_point_which_says_so(tmp_path):
    (series,) = derived(tmp_path, "GPUs\timages/s\n4\t380\n2\t190\n1\t100\n1\t102.01\n")
    assert [(p.devices, p.rows, round(p.measured, 6)) for p in series.points] == [(1, 2, 101), (2, 1, 190), (4, 1, 380)]
    assert round(series.points[2].speedup, 6) == round(380 / 101, 6)
    assert audit_report.derived_sentence(series) == "Geometric means of 2 rows on 1. Fastest on 4."
    labels = "model\tGPUs\timages/s\nResNet\t1\t100\nVGG\t1\t60\nAlexNet\t8\t3000\n"
    assert run(tmp_path, labels, "t.txt").derived == []  # each row is another thing: none repeats another


@pytest.mark.parametrize("order", [1, -1])
def test_weak_and_strong_rows_of_one_table_are_never_averaged(tmp_path, order):
    weak, strong = [(1, 64, 100), (2, 128, 190), (4, 256, 370)], [(1, 256, 230), (2, 256, 300), (4, 256, 371)]
    lines = [f"{n},{size},{rate}" for n, size, rate in [*weak, *strong][::order]]
    found = run(tmp_path, "\n".join(["gpus,global_batch_size,images_per_sec", *lines]), "t.csv").derived
    assert [(each.scaling, round(each.points[-1].speedup, 2)) for each in found] in (
        [("weak", 3.7), ("strong", 1.61)],
        [("strong", 1.61), ("weak", 3.7)],
    )


def test_rows_that_conflict_and_that_no_column_tells_apart_are_refused_by_line(tmp_path):
    report = run(tmp_path, "gpus,images/s\n1,100\n2,190\n4,370\n1,230\n2,300\n4,371\n", "t.csv")
    assert not report.derived and any("lines 2 and 5" in note for note in report.notes)


def test_times_whose_work_nobody_says_imply_no_speedup(tmp_path):
    times = "GPUs\t{}\n1\t100\n2\t105\n4\t110\n"
    assert run(tmp_path, times.format("ms/step"), "t.txt").derived == []
    mixed = "GPUs\tbatch size\tseconds\n1\t64\t100\n2\t64\t52\n4\t128\t50\n"
    assert run(tmp_path, mixed, "t.txt").derived == []
    epochs = "GPUs\tbatch size\ttime per epoch (s)\n1\t32\t800\n2\t64\t420\n4\t128\t220\n"
    (series,) = derived(tmp_path, epochs)  # the batches grow and the work does not: no part of one step is fixed
    assert (series.scaling, series.time, round(series.points[-1].speedup, 2)) == ("weak", None, 3.64)


def test_the_part_of_a_time_that_does_not_scale(tmp_path):
    rows = "".join(f"{n}\t{160 / n + 10:.1f}\t{170 / (160 / n + 10):.2f}\n" for n in (1, 2, 4, 8))
    (series,) = derived(tmp_path, "GPUs\ttime (s)\tspeedup\n" + rows)
    assert (round(series.time.scaled), round(series.time.fixed), series.time.residual < 0.01) == (160, 10, True)
    assert "Seconds = 160 / devices" in audit_report.derived_sentence(series)
    assert "33 % of the time" in audit_report.derived_sentence(series)
    assert fixed_part([(1, 100.0), (2, 50.0)]) is None  # two points lie on any line
    assert fixed_part([(1, 100.0), (2, 10.0), (4, 90.0)]) is None  # and these on none
    assert fixed_part([(1, 1e-300), (2, 21.1), (4, 12.8)]) is None  # whose squares are no numbers


def test_other_times_beside_the_one_that_is_compared_are_phases(tmp_path):
    text = "GPUs\tInit time(s)\tTrain time(s)\tSpeedup (train)\n1\t70\t160\t1.00\n2\t71\t85\t1.88\n4\t70\t50\t3.20\n"
    (series,) = derived(tmp_path, text)
    assert series.phases == {"Init time(s)": 1.0} and "on 4: Init time(s) 1" in audit_report.derived_sentence(series)

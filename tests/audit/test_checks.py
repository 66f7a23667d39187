"""One small table a check: what is found, in which line, with which cause; and honest tables, where nothing is."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import pytest

from rnn_scaling import registry
from rnn_scaling.audit.checks import batch_rule
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable, exact
from tests.support.audit_tables import run

# The faults are of the kinds that published tables have; the numbers follow the seed documents' form.
CASES = {
    "cut_off_ratio": (
        "|devices|cudnn lstm|dynamic rnn|ratio (dynamic_lstm / cudnn_lstm)|\n|:-|:-|:-|:-|\n|1|212|1522|7.1|\n",
        [("ratios", 3, "7.1", "cut off")],
    ),
    "exchanged_pair": (
        "|_**GPUs**_|_**loop**_<br>_[CPU kernel / GPU kernel]_|\n|:-:|:-:|\n|1|37,644 <br> [28,151 / 9,493]|\n"
        "|2|75,395<br>[56,615 / 18,780]|\n|3|112,856<br>[85,015 / 27,841]|\n|4|150,511<br>[113,649 / 36,862]|\n"
        "|5|187,871<br>[45,712 / 142,159]|\n|6|||\n",
        [("swapped", 7, "45,712 / 142,159", "exchanged")],
    ),
    "parts_that_do_not_sum": (
        "|GPUs|kernels [CPU / GPU]|\n|---|---|\n|1|300 [100 / 200]|\n|2|610 [200 / 400]|\n|3|900 [300 / 600]|\n",
        [("sums", 4, "610", "200 + 400")],
    ),
    "total_column": (
        "GPUs\tInit time(s)\tTrain time(s)\tTotal time(s)\tSpeedup (train)\n1\t68\t163\t231\t1.00\n"
        "2\t142\t93\t253\t1.75\n4\t75\t47\t122\t3.47\n",
        [("sums", 3, "253", "two digits exchanged")],
    ),
    "total_line": (
        "part  seconds  batches\nread  1.25  10\nstep  2.50  20\ntotal  3.95  30\n",
        [("sums", 4, "3.95", "not the sum")],
    ),
    "worker_rates_as_totals": (
        "GPUs\tExamples/s\tSpeedup\n1\t202\t1.00\n2\t191\t1.89\n4\t193\t3.82\n8\t191\t7.56\n",
        [("speedup", 3, "191", "a worker's rate")],
    ),
    "worker_rates_above_a_line_without_devices": (
        "GPUs\tExamples/s\tSpeedup\n1\t202\t1.00\n2\t191\t1.89\n4\t193\t3.82\n8\t191\t7.56\nbest\t202\t1.00\n",
        [("speedup", 3, "191", "(the last: 8 x 191 = 1528)")],
    ),
    "one_worker_rate": (
        "| GPUs | images/sec |\n|---|---|\n| 1 | 100.0 |\n| 2 | 190.0 |\n| 4 | 91.0 |\n| 8 | 690.0 |\n",
        [("shape", 5, "91.0", "a worker's rate")],
    ),
    "superlinear_point": (
        "| GPUs | speedup |\n|---|---|\n| 4 | 3.80 |\n| 5 | 4.76 |\n| 6 | 5.99 |\n| 7 | 6.63 |\n",
        [("shape", 5, "5.99", "superlinear")],
    ),
    "implied_devices": (
        "| model | speedup | efficiency |\n|---|---|---|\n| a | 1.17x | 58.70% |\n| b | 1.51x | 75.65% |\n"
        "| c | 2.00x | 99.93% |\n| d | 1.92x | 69.04% |\n",
        [("efficiency", 6, "69.04%", "exchanged")],
    ),
    "percent_of_a_column": (
        "| model | fast NCHW | fast NHWC | % of NCHW | slow NHWC | % of NCHW | % of NHWC |\n|--|--|--|--|--|--|--|\n"
        "| a | 47.49 | 38.92 | 81.95% | 31.71 | 66.77% | 81.47% |\n| b | 78.44 | 68.72 | 87.61% | 39.07 | 49.81% | 65.85% |\n",
        [("ratios", 4, "65.85%", "39.07 / 68.72")],
    ),
    "versus_means": (
        "| PS | PIX | PIX | PHB | speedup PIX vs. PHB |\n|--|--|--|--|--|\n| gpu | 1863.78 | 1830.2 | 1572.61 | 1.17x |\n"
        "| cpu | 1240.73 | 1233.27 | 1225.74 | 1.01x |\n| gpu | 1428.81 | | 1175.59 | 1.32x |\n",
        [("ratios", 5, "1.32x", "one digit")],
    ),
    "relative_to_a_line": (
        "| GPU | total images/sec | % |\n|-----|-----|---|\n| 0 | 1561.745 | 100.00% |\n| 1 | 1321.96 | 84.65% |\n"
        "| 2 | 1543.53 | 89.83% |\n",
        [("ratios", 5, "89.83%", "1543.53 / 1561.745")],
    ),
    "two_tables_of_one_run": (
        "# x\n\n| Speedup | batch | batch |\n|--|--|--|\n| gpu count | 4096 | 512 |\n| 1 | 1.00x | 1.00x |\n| 2 | 1.80x | 1.75x |\n"
        "\n| Efficiency | batch | batch |\n|--|--|--|\n| gpu count | 4096 | 512 |\n| 1 | 100.00% | 100.00% |\n"
        "| 2 | 91.15% | 87.69% |\n",
        [("cross_table", 13, "91.15%", "1.80x at line 7")],
    ),
    "time_against_rate": (
        "GPUs\tTrain time(s)\tSpeedup\n1\t168.4\t1.00\n4\t49.6\t3.40\n8\t28.9\t5.83\n\n"
        "GPUs\tExamples/s\tSpeedup\n1\t200\t1.00\n4\t784\t3.92\n8\t1568\t7.84\n",
        [("cross_table", 9, "7.84", "fixed part")],
    ),
    "copied_rate": (
        "| GPUs | words/s |\n|--|--|\n| 1 | 55411.433 |\n| 2 | 107938.535 |\n| 3 | 107938.535 |\n",
        [("copies", 5, "107938.535", "every digit")],
    ),
    "no_such_numbers": (
        "| devices | seconds | images/s |\n|--|--|--|\n| 0 | 1.0 | 10 |\n| 1 | -2.0 | 10 |\n| 2 | 2.0 | nan |\n| 2.5 | 3.0 | 9 |\n",
        [("values", 3, "0", "devices"), ("values", 4, "-2.0", "sign"), ("values", 5, "nan", "zero"),
         ("values", 6, "2.5", "devices")],
    ),
    "wrong_label_of_a_row": (
        "|GPU number|Batch size|Total time to process 20 batches (s)|Processing speed (words/s)|Speedup ratio|\n"
        "|:--|:--|:--|:--|:--|\n|1|384|27.720|55411.433||\n|2|384|28.461|107938.535|1.95|\n|3|384|28.535|161488.413|2.91|\n"
        "|5|384|29.213|210317.094|3.80|\n",
        [("work", 6, "5", "the work of 4 devices, not of 5")],
    ),
    "window": (
        "|devices|batch size|batches|seconds|images/s|\n|--|--|--|--|--|\n|1|32|20|10.000|67.37|\n|2|32|20|10.500|128.32|\n"
        "|4|32|20|11.000|244.98|\n",
        [("work", 3, "67.37 x 10.000 s", "20/19")],
    ),
    "rate_of_each_and_of_all": (
        "|GPUs|images/s per GPU|total images/s|\n|-|-|-|\n|1|100.0|100.0|\n|2|95.0|190.0|\n|4|90.0|306.0|\n",
        [("products", 5, "306.0", "x 4 devices")],
    ),
    "one_table_of_another_window": (
        "\n\n".join(
            f"|GPUs|batch size|batches|seconds|words/s|\n|-|-|-|-|-|\n|1|10|20|{a}|{40_000 * k / a:.2f}|\n"
            f"|2|10|20|{b}|{80_000 * k / b:.2f}|\n|4|10|20|{c}|{160_000 * k / c:.2f}|"
            for a, b, c, k in ((10.0, 11.0, 12.5, 1), (8.0, 9.0, 10.0, 1), (7.0, 7.5, 7.75, 0.8), (5.0, 5.5, 6.0, 1))
        ),
        [("same_work", 15, "4571.43 x 7.0", "0.8 of that in the 3 other tables")],
    ),
    "implied_against_a_row": (
        "| Method | GFLOPS | Speedup |\n|--|--|--|\n| scalar | 0.94 | 1.0x |\n| simd8 | 6.50 | 6.9x |\n| simd16 | 6.92 | 7.4x |\n"
        "| tiled | 3.46 | 3.7x |\n| unrolled | 7.28 | 9.7x |\n",
        [("implied", 7, "9.7x", "not GFLOPS / 0.94")],
    ),
    "implied_change_in_per_cent": (
        "| Nodes | Baseline (GB/s) | Adaptive (GB/s) | Δ |\n|--|--|--|--|\n| 4 | 350.3 | 344.9 | -1.5% |\n| 8 | 373.8 | 350.8 | -6.2% |\n"
        "| 16 | 274.8 | 309.2 | +12.5% |\n| 32 | 243.4 | 284.3 | +16.8% |\n| 48 | 228.9 | 243.5 | +9.4% |\n",
        [("implied", 7, "+9.4%", "- 1, which the other rows are")],
    ),
    "implied_ratio_of_three_columns": (
        "| Nodes | Rmax (TFLOPS) | Speedup | Ideal speedup | Ratio |\n|--|--|--|--|--|\n| 1 | 0.64 | 1.00 | 1 | 1.00 |\n| 2 | 1.14 | 1.77 | 2 | 0.89 |\n"
        "| 4 | 1.94 | 3.02 | 4 | 0.76 |\n| 8 | 3.51 | 5.47 | 8 | 0.86 |\n| 16 | 5.59 | 8.71 | 16 | 0.54 |\n",
        [("implied", 6, "0.86", "two digits exchanged")],
    ),
    "all_off_against_the_row_that_says_1": (
        "| Implementation | GFLOPS | Speedup vs naive |\n|--|--|--|\n| naive | 0.38 | 1.0x |\n| coded | 17.98 | 59.1x |\n| blocked | 24.57 | 80.9x |\n"
        "| neon | 25.09 | 82.5x |\n",
        [("implied", 4, "59.1x", "and 2 other rows")],
    ),
    "a_bare_1_was_not_rounded": (
        "| GPUs | req/s | Speedup |\n|--|--|--|\n| 1 | 12.0 | 1x |\n| 2 | 22.0 | 2.3x |\n| 4 | 44.0 | 4.6x |\n| 8 | 86.0 | 9.0x |\n",
        [("speedup", 3, "12.0", "the baseline was mistyped")],
    ),
    "two_rows_exchanged_are_one_finding": (
        "| GPUs | images/s | Speedup |\n|--|--|--|\n| 1 | 100.0 | 1.00 |\n| 2 | 190.0 | 1.90 |\n| 4 | 360.0 | 6.80 |\n| 8 | 680.0 | 3.60 |\n| 16 | 1300.0 | 13.00 |\n",
        [("speedup", 5, "6.80", "exchanged with the 3.60 of 8 devices")],
    ),
    "two_cells_exchanged_are_one_finding": (
        "| GPUs | images/s | Speedup | Efficiency |\n|--|--|--|--|\n| 1 | 100.0 | 1.00 | 100.0 % |\n| 2 | 190.0 | 1.90 | 95.0 % |\n"
        "| 4 | 360.0 | 90.0 | 3.60 |\n| 8 | 680.0 | 6.80 | 85.0 % |\n",
        [("speedup", 5, "90.0", "exchanged with the 3.60 of Efficiency")],
    ),
    "digits_cut_off_down_a_column_are_one_finding": (
        "| model | FP32 img/s | FP16 img/s | Speedup (FP32 to FP16) |\n|--|--|--|--|\n| a | 1000.0 | 1988.0 | 1.98 |\n| b | 1000.0 | 2500.0 | 2.50 |\n"
        "| c | 1000.0 | 2019.0 | 2.01 |\n| d | 1000.0 | 1768.0 | 1.76 |\n| e | 1000.0 | 1750.0 | 1.75 |\n",
        [("ratios", 3, "1.98", "so also in lines 5, 6")],
    ),
    "efficiency_beside_an_ideal_speedup": (
        "|Threads|time (s)|Speedup|Ideal speedup|Efficiency|\n|-|-|-|-|-|\n|1|8.00|1.00|1|100%|\n|2|4.10|1.95|2|98%|\n|4|2.20|3.64|4|81%|\n",
        [("efficiency", 5, "81%", "made from other numbers")],
    ),
    "accumulation_in_words_parts_no_series": (
        "|GPUs|Batch size / GPU (FP32 and FP16)|Accumulation steps (FP32 and FP16)|Throughput - FP32(sequences/sec)|Throughput - mixed precision(sequences/sec)"
        "|Weak scaling - FP32|Weak scaling - mixed precision|\n|-|-|-|-|-|-|-|\n|1|40 and 88|1689 and 768|116|444|1.00|1.00|\n|8|40 and 88|211 and 96|920|3475|9.73|7.83|\n",
        [("speedup", 4, "9.73", "mistyped")],
    ),
    "scaling_of_a_precision": (
        "|GPUs|Throughput - TF32|Throughput - mixed precision|TF32 Scaling|Mixed Precision Scaling|\n|-|-|-|-|-|\n|1|1024 img/s|2897 img/s|1.0 x|1.0 x|\n"
        "|8|8013 img/s|23874 img/s|7.83 x|8.84 x|\n",
        [("speedup", 4, "8.84 x", "one digit")],
    ),
    "efficiencies_of_coarse_speedups": (
        "|GPUs|Throughput|Speedup|Efficiency|\n|-|-|-|-|\n|1|450 tok/s|1.0x|100%|\n|2|800 tok/s|1.8x|90%|\n|4|1400 tok/s|3.1x|98%|\n",
        [("efficiency", 5, "98%", "mistyped")],
    ),
    "a_baseline_with_a_remark": (
        "|Mode|GPUs|Samples/sec|Scaling Efficiency|\n|-|-|-|-|\n|single|1|15.2|100% (baseline)|\n|DDP|4|58.1|120%|\n|DDP|8|115.8|119%|\n|DDP|16|220.0|113%|\n",
        [("implied", 4, "120%", "and 2 other rows")],
    ),
    "most_ratios_off_by_one_factor": (
        "| Grid | Sync (ms) | Overlap (ms) | Speedup |\n|--|--|--|--|\n| a | 718.9 | 680.3 | 1.32x |\n| b | 447.5 | 367.5 | 1.52x |\n| c | 294.0 | 203.5 | 1.81x |\n"
        "| d | 6461 | 5815 | 1.39x |\n",
        [("ratios", 3, "1.32x", "times the ratio of the two columns")],
    ),
    "single_and_multi_threaded": (
        "| Messages | Single-threaded runtime (ms) | Multi-threaded runtime (ms) | Speedup |\n|--|--|--|--|\n| few | 155 | 42 | 3.7x |\n| some | 497 | 74 | 6.7x |\n"
        "| many | 1791 | 162 | 13.0x |\n",
        [("ratios", 5, "13.0x", "1791 / 162")],
    ),
    "work_over_seconds": (
        "|devices|total words|seconds|words/s|\n|--|--|--|--|\n|1|1000|10.0|100.0|\n|2|2000|10.5|109.5|\n|4|4000|11.0|363.6|\n",
        [("work", 4, "109.5", "not the work over the seconds")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_found(tmp_path, name):
    text, expected = CASES[name]
    report = run(tmp_path, text, "table.txt")
    for check, line, stands, cause in expected:
        found = [f for f in report.findings if (f.check, f.line) == (check, line)]
        assert len(found) == 1, (name, report.findings)
        assert found[0].stands.startswith(stands) and cause in f"{found[0].cause} {found[0].row}", found[0]
    assert {f.line for f in report.findings} == {line for _, line, _, _ in expected}, report.findings


def test_every_check_has_a_case_and_says_nothing_of_nothing():
    from rnn_scaling.audit.checks.context import Context
    from rnn_scaling.audit.scaling_table import ScalingTable

    covered = {expected[0] for _, faults in CASES.values() for expected in faults}
    assert covered | {"record_parts"} == set(registry.CHECKS)  # record_parts: test_records.py
    empty = ScalingTable("none", 1, "", (), ())
    for name in registry.CHECKS:
        assert list(registry.load(registry.CHECKS, name).check(empty, Context())) == []


MIXED = "|GPUs|batch size|images/s|\n|-|-|-|\n|1|64|100|\n|2|64|190|\n|4|16|300|\n|8|8|500|\n"


def test_weak_and_strong_scaling_in_one_series_are_told_to_part(tmp_path):
    (found,) = run(tmp_path, MIXED).findings
    assert (found.kind, found.line, found.row, found.stands) == ("unlikely", 4, "2 devices", "64")
    assert "table. 64, 64, 16, 8" in found.cause
    total = MIXED.replace("batch size", "global batch size").replace("|2|64|", "|2|128|").replace("|4|16|", "|4|64|")
    (found,) = run(tmp_path, total.replace("|8|8|", "|8|64|")).findings
    assert (found.column, found.line, found.stands) == ("global batch size", 4, "128")


SERIES = {  # (devices, batch size) of honest tables
    "weak": [(1, 64), (2, 64), (4, 64), (8, 64)],
    "strong": [(1, 64), (2, 32), (4, 16), (8, 8)],
    "strong with remainders, rounded up": [(1, 100), (3, 34), (6, 17), (7, 15), (8, 13)],
    "strong with remainders, rounded down": [(1, 100), (3, 33), (6, 16), (7, 14), (8, 12)],
    "two weak series": [(1, 32), (2, 32), (4, 32), (1, 64), (2, 64), (4, 64)],
    "weak and strong, each whole": [(1, 64), (2, 64), (4, 64), (2, 32), (4, 16)],
    "two weak series, one row of the second": [(1, 64), (2, 64), (2, 32), (4, 64)],
    "larger batches on more devices": [(1, 32), (2, 64), (4, 128), (8, 128)],
}


@pytest.mark.parametrize("name", SERIES)
def test_series_of_one_kind_are_not_told_to_part(tmp_path, name):
    rows = [f"|{n}|{batch}|{95 * n + batch + 7 * k}|" for k, (n, batch) in enumerate(SERIES[name])]
    report = run(tmp_path, "\n".join(["|GPUs|batch size|images/s|", "|-|-|-|", *rows]))
    assert not [f for f in report.findings if "mixes" in f.cause], report.findings


def test_rows_of_the_same_devices_with_several_batch_sizes_are_several_series():
    sizes = [(1, 32), (1, 64), (2, 64), (4, 16)]
    rows = [
        ScalingRow("logs", k, devices=n, batch_size=exact(size), rate=exact(95 * n))
        for k, (n, size) in enumerate(sizes)
    ]
    table = ScalingTable("logs", 1, "", (), tuple(rows))
    assert list(batch_rule.check("shape", table, rows)) == []
    assert [found.row for found in batch_rule.check("shape", table, [rows[0], *rows[2:]])] == [
        "2 devices and 4 devices"
    ]


VARIED = "|GPUs|batch size|batches|seconds|words/s|\n|-|-|-|-|-|\n|1|32|20|10.000|12800.0|\n|2|32|20|10.000|25000.0|\n|4|32|20|10.000|47000.0|\n"


def test_known_items_a_sample_are_held_against_rows_that_disagree(tmp_path):
    assert run(tmp_path, VARIED).findings == []
    found = run(tmp_path, VARIED, items_per_sample=200).findings
    assert [(f.check, f.kind, f.line, f.expected.split()[0]) for f in found] == [
        ("work", "impossible", 4, "25600.00"), ("work", "impossible", 5, "51200.00"),
    ]  # fmt: skip
    assert "195.313 items a sample, not" in found[0].cause
    alone = "\n".join(VARIED.splitlines()[:3])
    assert run(tmp_path, alone, items_per_sample=200).findings == []
    assert [f.line for f in run(tmp_path, alone, items_per_sample=210).findings] == [3]


def test_means_with_a_spread_are_not_held_to_the_last_digit(tmp_path):
    text = VARIED.replace("25000.0", "25500.0 ± 400.0").replace("47000.0", "50900.0 ± 400.0")
    assert run(tmp_path, text, items_per_sample=200).findings == []
    plain = text.replace(" ± 400.0", "")
    assert [f.line for f in run(tmp_path, plain, items_per_sample=200).findings] == [4, 5]


def test_a_superlinear_step_within_the_spread_is_in_line(tmp_path):
    text = CASES["superlinear_point"][0]
    assert run(tmp_path, text.replace("5.99", "5.99 ± 0.02")).findings
    assert run(tmp_path, text.replace("5.99", "5.99 ± 0.60")).findings == []


def test_columns_whose_spreads_overlap_are_not_exchanged(tmp_path):
    text = "|case|read|load|\n|-|-|-|\n|a|1.0@|2.0|\n|b|1.1@|2.2|\n|c|1.0@|2.0|\n|d|2.0@|1.0|\n"
    assert [f.check for f in run(tmp_path, text.replace("@", "")).findings] == ["swapped"]
    assert run(tmp_path, text.replace("@", " ± 2.0")).findings == []


def test_products_whose_intervals_meet_do_not_vary(tmp_path):
    text = "|GPUs|batch size|batches|seconds|words/s|\n|-|-|-|-|-|\n|1|64|20|15.45|4,970 ± 240|\n|2|64|20|16.50|9,310 ± 400|\n"
    (fact,) = run(tmp_path, text).facts
    assert "sample in 2 of 2" in fact and "varies" not in fact
    (fact,) = run(tmp_path, text.replace(" ± 400", " ± 1").replace("9,310", "6,310")).facts
    assert "varies" in fact


HONEST = {
    "crossing columns are not exchanged": "GPUs\tInit time(s)\tTrain time(s)\n1\t68\t163\n2\t142\t93\n4\t75\t47\n8\t110\t30\n",
    "lopsided columns that cross": "case  error (%)  skip (%)\na  0.26  15.86\nb  1.01  0.02\nc  2.51  0.06\nd  0.44  15.9\ne  1.5  0.03\n",
    "real text varies": "|GPUs|batch size|batches|seconds|words/s|\n|-|-|-|-|-|\n|1|32|20|10.00|3211.4|\n|2|32|20|10.50|6015.1|\n"
    "|4|32|20|11.00|11723.9|\n|8|32|20|12.0|21507.2|\n",
    "a total with parts that are not shown": "GPUs  read (s)  step (s)  total (s)\n1  1.0  2.0  3.7\n2  1.0  2.1  3.9\n4  1.2  2.2  4.1\n",
    "bandwidths are no work": "GPUs  size  time (us)  busbw (GB/s)\n2  1024  10.1  0.10\n4  1024  11.9  0.13\n8  1024  13.0  0.14\n",
    "per worker column beside the total": "|GPUs|images/s|images/s per GPU|speedup|\n|-|-|-|-|\n|1|100|100|1.0|\n|2|190|95|1.9|\n|4|360|90|3.6|\n",
    "speedup against two devices": "|GPUs|images/s|speedup|\n|-|-|-|\n|2|190|1.00|\n|4|360|1.89|\n|8|680|3.58|\n",
    "a plateau": "|nodes|GPUs per node|A samples/s|B samples/s|\n|-|-|-|-|\n|1|1|1969.66|931.88|\n|1|4|7511.53|1044.38|\n|1|8|14756.03|1026.68|\n",
    "machines with numbers": "node  ok  read_speed\n1  t  66.17 MiB/s\n3  t  41.77 MiB/s\n2  t  14.23 MiB/s\n",
    "on the processor alone": "|Dataset|Number of GPUs|seconds|\n|-|-|-|\n|small|0|20|\n|small|1|5|\n|large|2|40|\n",
    "a speedup named in the other order": "|GPUs|Mixed Precision Throughput|TF32 Throughput|Speedup (Mixed Precision to TF32)|\n|-|-|-|-|\n|8|4553|2486|1.83|\n"
    "|16|9191|4979|1.85|\n|32|18119|9859|1.84|\n",
    "a program with speed in its name": "|Micro batch size|PyTorch|DeepSpeed|Speedup (x)|\n|-|-|-|-|\n|4|37.78|50.82|1.3|\n|6|43.81|55.97|1.3|\n|12|49.32|61.41|1.2|\n"
    "|24|OOM|60.70|1.2|\n|32|OOM|63.01|1.3|\n",
    "a speedup is of no accuracy": "|GPUs|Accuracy - FP32|Accuracy - mixed precision|Time to train - TF32|Time to train - mixed precision"
    "|Time to train speedup (FP32 to mixed precision)|\n|-|-|-|-|-|-|\n|32|82.64%|82.88%|97.0hrs|41.0hrs|2.37|\n|64|82.74%|83.16%|50.0hrs|20.5hrs|2.43|\n",
    "a baseline that is named": "|GPUs|loader|img/s|Speed Up|\n|-|-|-|-|\n|1|TF|25.97|---|\n|8|TF|128.08|1x (base)|\n|8|DALI|208.38|1.6x|\n|8|XLA|184.78|1.4x|\n",
    "an estimate beside a number": "|GPUs|img/s|Speedup|\n|-|-|-|\n|1|100|1.00|\n|2|190|1.90|\n|4|360|3.9 (estimated)|\n",
    "a summary of the rows": "|Matrix|old|new|Ratio|\n|-|-|-|-|\n|a|10.00|5.00|2.00|\n|b|30.00|10.00|3.00|\n|c|9.00|7.50|1.20|\n|d|8.00|5.00|1.60|\n|mean|14.25|6.88|1.95|\n",
    "small numbers that fit by chance": "|run|hits|misses|change|\n|-|-|-|-|\n|a|41|20|2|\n|b|62|31|2|\n|c|90|31|3|\n|d|72|35|9|\n",
    "transposed": "| GPUs | 1 | 2 | 4 |\n|-|-|-|-|\n| images/s | 100 | 190 | 360 |\n| speedup | 1.00 | 1.90 | 3.60 |\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_tables_have_no_findings(tmp_path, name):
    report = run(tmp_path, HONEST[name], "table.txt")
    assert report.tables <= 1 and report.findings == [], report.findings


def test_a_transposed_table_is_understood(tmp_path):
    wrong = HONEST["transposed"].replace("1.90", "1.99")
    assert [f.check for f in run(tmp_path, wrong, "table.txt").findings] == ["speedup"]


SHARED_BASELINE = (
    "| machine | GPUs | PS | images/sec | speedup | efficiency |\n|-|-|-|-|-|-|\n| a | 1 | GPU | 31.71 | 1.00x | 100.00% |\n"
    "| a | 2 | CPU | 53.35 | 1.68x | 84.12% |\n| b | 1 | GPU | 39.07 | 1.00x | 100.00% |\n| b | 2 | CPU | 49.01 | 1.25x | 62.72% |\n"
    "| b | 4 | CPU | 60.38 | 1.55x | 38.64% |\n| b | 2 | GPU | 57.15 | 1.46x | 73.14% |\n"
)


def test_a_baseline_with_another_label_serves_where_the_numbers_bear_it_out(tmp_path):
    assert run(tmp_path, SHARED_BASELINE).findings == []
    wrong = SHARED_BASELINE.replace("1.55x | 38.64%", "1.25x | 31.25%")
    assert [(f.check, f.line) for f in run(tmp_path, wrong).findings] == [("speedup", 7)]


def test_a_baseline_that_the_numbers_do_not_bear_out_is_not_used(tmp_path):
    other = "| machine | model | GPUs | images/s | speedup |\n|-|-|-|-|-|\n| a | x | 1 | 100 | 1.00 |\n| a | x | 2 | 190 | 1.90 |\n"
    other += "| a | y | 2 | 700 | 1.80 |\n| a | y | 4 | 1300 | 3.34 |\n| a | y | 8 | 2500 | 6.43 |\n"
    assert run(tmp_path, other).findings == []


SETTINGS = (
    "| GPUs | Sequence Length | Throughput - mixed | Throughput - FP32 | speedup (FP32 to mixed) | Weak scaling - FP32 | Weak scaling - mixed |\n"
    "|:-:|:-:|:-:|:-:|:-:|:-:|:-:|\n| 1 | 128 | 2762.06 | 744.48 | 3.71 | 1.00 | 1.00 |\n| 4 | 128 | 10283.08 | 2762.88 | 3.72 | 3.71 | 3.72 |\n"
    "| 16 | 128 | 39051.69 | 10715.14 | 3.64 | 14.39 | 14.14 |\n| 1 | 512 | 432.33 | 160.38 | 2.70 | 1.00 | 1.00 |\n"
    "| 4 | 512 | 1593.00 | 604.36 | 2.64 | 3.77 | 3.68 |\n| 16 | 512 | 5941.82 | 2356.44 | 2.52 | 14.69 | 13.74 |\n"
)


def test_numeric_settings_and_named_groups_are_series_of_their_own(tmp_path):
    assert run(tmp_path, SETTINGS).findings == []
    assert [f.line for f in run(tmp_path, SETTINGS.replace("14.69", "14.96")).findings if f.check == "speedup"] == [8]
    assert [(f.check, f.line) for f in run(tmp_path, SETTINGS.replace("2.64", "2.46")).findings] == [("ratios", 7)]


@pytest.mark.parametrize("column", ["batch size", "Sequence Length"])
def test_a_second_setting_is_not_compared_with_the_first(tmp_path, column):
    rows = ["1|32|100|1.00", "2|32|190|1.90", "4|32|360|3.60", "1|64|120|1.00", "2|64|200|1.67", "4|64|350|2.92"]
    text = "\n".join([f"|GPUs|{column}|images/s|speedup|", "|-|-|-|-|", *[f"|{row}|" for row in rows]])
    assert {f.check for f in run(tmp_path, text).findings} == set()
    assert [f.line for f in run(tmp_path, text.replace("2.92", "3.50")).findings] == [8]


def test_efficiency_against_a_whole_machine(tmp_path):
    text = "|nodes|GPUs|s/step|speedup|scaling efficiency|\n|-|-|-|-|-|\n|1|8|33.7|1.00x|n/a|\n|2|16|17.0|1.98x|99%|\n|8|64|4.5|7.49x|94%|\n"
    assert run(tmp_path, text).findings == []
    assert [f.check for f in run(tmp_path, text.replace("94%", "84%")).findings] == ["efficiency"]

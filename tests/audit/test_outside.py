"""Layouts and faults that tables of other people have: each was misread once, or its fault was silent."""

# ruff: noqa: E501, RUF001 (tables, and words of other languages)

from __future__ import annotations

import pytest

from rnn_scaling.audit.scaling_table import parse_cell
from rnn_scaling.audit.tables import reading
from rnn_scaling.audit.tables.columns import plain, recognise
from tests.support.audit_tables import run


def md(*lines: str) -> str:
    """A Markdown table of lines whose cells are parted by " | ": line 1 is the header, the rows begin at line 3."""
    rows = [f"| {line} |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * lines[0].count("|") + "---|", *rows[1:]]) + "\n"


# name -> (text, findings as (check, line, what stands, words of the cause))
CASES = {
    # honest tables that were called wrong
    "workers_are_ranks_times_threads": (
        md("Ranks | Threads/Rank | Workers | Time | Speedup | Efficiency", "4 | 4 | 16 | 13759 | 0.590 | 0.037",
           "4 | 4 | 16 | 12695 | 0.670 | 0.042"), [],
    ),
    "the_columns_that_most_rows_bear_out": (
        md("batch | torch | cpp | speedup | trt plugin | speedup | torch op | speedup",
           "1 | 12.33 | 5.47 | 2.25 | 5.69 | 2.17 | 5.70 | 2.16", "8 | 49.57 | 37.17 | 1.33 | 39.01 | 1.27 | 38.73 | 1.28",
           "16 | 97.15 | 72.03 | 1.35 | 75.50 | 1.29 | 75.60 | 1.29",
           "32 | 193.09 | 141.31 | 1.37 | 148.65 | 1.30 | 150.63 | 1.28"), [],
    ),
    "not_measured_is_minus_one": (
        md("GPUs | img/s | time (s) | Speedup", "1 | 100 | -1 | 1.00", "2 | 190 | 5.2 | 1.90", "4 | 350 | -1 | 3.50"), [],
    ),
    "differences_are_no_ratios": (
        md("Model | Accuracy | Improvement", "plain (baseline) | 0.7597 | -", "10 steps | 0.7650 | +0.53",
           "20 steps | 0.7748 | +1.51", "30 steps | 0.7779 | +1.82", "40 steps | 0.7817 | +2.20", "50 steps | 0.7885 | +2.88"), [],
    ),
    "the_largest_speedup_of_a_row": (
        md("Model | FP32 Latency | INT8 Latency | INT8 + FP16 Latency | INT8+FP16+PM Latency | Max Speedup",
           "a | 3.55 | 0.99 | 0.98 | 1.06 | 3.62", "b | 4.92 | 2.28 | 2.24 | 2.23 | 2.21",
           "c | 197.323 | 110.99 | | | 1.78", "d | 235.73 | 144.82 | | | 1.63"), [],
    ),
    "gpus_of_each_node": (
        md("test | node | gpu | images/sec | images/sec/gpu", "1 | 1 | 1 | 56.57 | 56.57", "2 | 1 | 2 | 109.34 | 54.67",
           "3 | 2 | 1 | 109.72 | 54.86", "4 | 2 | 2 | 209.87 | 52.47", "5 | 2 | 1 | 106.38 | 53.19"), [],
    ),
    "gpus_of_all_nodes_by_the_efficiencies": (
        md("Nodes | GPUs | Images/sec | speedup | efficiency", "1 | 1 | 100 | 1.00 | 100%", "2 | 2 | 190 | 1.90 | 95%",
           "4 | 2 | 195 | 1.95 | 97.5%"), [],
    ),
    "gpus_of_all_nodes_by_the_rates_of_one": (
        md("Nodes | GPUs | Images/sec | Images/sec/GPU", "1 | 8 | 100 | 12.50", "2 | 8 | 190 | 23.75", "4 | 8 | 170 | 21.25"), [],
    ),
    "gpus_of_each_node_by_the_efficiencies": (
        md("Nodes | GPUs | Images/sec | speedup | efficiency", "1 | 8 | 100 | 1.00 | 100%", "2 | 8 | 190 | 1.90 | 95%",
           "4 | 8 | 360 | 3.60 | 90%"), [],
    ),
    "gpus_of_each_node_that_are_no_fewer": (
        md("Nodes | GPUs | Images/sec | Images/sec/GPU", "1 | 4 | 100 | 25.00", "2 | 4 | 190 | 23.75", "2 | 8 | 360 | 22.50"), [],
    ),
    "ideal_alone": (
        md("GPUs | ideal time (s) | speedup", "1 | 466.88 | 1.0", "4 | 116.72 | 3.9", "16 | 29.18 | 15.0"), [],
    ),
    "pairs_are_no_cells": (
        md("Pairs | GPUs | Time (s) | Window cells/s", "20 | 1 | 0.925 | 526,341", "20 | 2 | 0.846 | 575,367",
           "50 | 1 | 1.702 | 641,622"), [],
    ),
    "overall_is_no_sum": (
        md("Component | Before | After | Speedup", "Loading | 10s | 8s | 1.25x", "Step | 10s | 8s | 1.25x",
           "Evaluation | 25% | 10% | 2.5x", "Overall | 6 min | 3 min | 2x"), [],
    ),
    "absolute_speedups": (
        md("threads | time (s) | speedup | efficiency", "1 | 0.273 | 1.97 | 1.97", "2 | 0.271 | 1.99 | 0.99",
           "3 | 0.272 | 1.98 | 0.66"), [],
    ),
    "weak_efficiency_beside_strong_speedup": (
        md("Workload | One GPU | Two GPUs | Strong speedup | Weak efficiency",
           "Vacuum | 3.4659 ms/step | 1.7559 ms/step | 1.97385 | 0.99274"), [],
    ),
    "jobs_that_share_all_cores": (
        md("threads | speedup | efficiency | cells per 64 CPUs | throughput", "1 | 1.00 | 100% | 64 | 64.0",
           "2 | 1.85 | 92% | 32 | 59.1", "4 | 3.38 | 84% | 16 | 54.1", "8 | 5.72 | 71% | 8 | 45.8"), [],
    ),
    "speedups_of_requests": (
        md("GPUs | requests/s | tokens/s | speedup", "1 | 2.0 | 400 | 1.0", "2 | 3.8 | 800 | 1.9", "4 | 7.2 | 1500 | 3.6",
           "8 | 13.9 | 2800 | 7.0"), [],
    ),
    "a_batch_that_falls_no_further": (
        md("GPUs | batch per GPU | images/s", "1 | 256 | 100.3", "2 | 128 | 190.7", "4 | 64 | 361.2", "8 | 32 | 640.9",
           "16 | 32 | 1190.4"), [],
    ),
    "memory_that_not_all_is_shared_out": (
        md("GPUs | GB per GPU | images/s", "1 | 80.0 | 100.3", "2 | 40.0 | 190.7", "4 | 20.0 | 361.2", "8 | 12.0 | 640.9"), [],
    ),
    "two_baselines": (
        md("concurrency | ms | speedup | % of linear", "serial loop | 294.70 | 1.00x | -", "1 | 295.03 | 1.00x | 100%",
           "2 | 161.38 | 1.83x | 91%", "4 | 84.71 | 3.48x | 87%", "8 | 47.05 | 6.26x | 78%"), [],
    ),
    # layouts in which faults were silent
    "a_speedup_of_precision_that_names_no_columns": (
        md("Batch size / GPU | GPUs | Time to train with TF32 (Hrs) | Time to train with mixed precision (Hrs) | Speed-up with mixed precision",
           "128 | 1 | 14.5 | 13.8 | 1.05", "64 | 4 | 4.6 | 3.7 | 1.42", "32 | 8 | 2.2 | 2.0 | 1.10"),
        [("ratios", 4, "1.42", "4.6 / 3.7")],
    ),
    "a_rate_of_nodes_and_of_gpus": (
        md("Nodes | GPUs | Images/sec | Images/sec/node | Images/sec/GPU | Scaling efficiency %",
           "1 | 8 | 18,072.99 | 18,072.99 | 2,259.12 | 100.00", "2 | 16 | 36,868.22 | 18,434.11 | 2,304.26 | 102.00",
           "4 | 32 | 68,989.11 | 17,247.28 | 2,155.91 | 97.43"), [("efficiency", 5, "97.43", "")],
    ),
    "ideal_beside_measured": (
        md("GPUs | tok/s | ideal tok/s | scaling eff %", "32 | 110,373 | 110,373 | 100", "64 | 216,507 | 220,746 | 98",
           "128 | 423,306 | 441,492 | 86", "160 | 534,644 | 551,865 | 97"), [("efficiency", 5, "86", "")],
    ),
    "a_share_of_the_ideal_is_measured": (
        md("GPUs | time (s) | linear scaling (%)", "1 | 466.88 | 100%", "4 | 120.20 | 97.1%", "8 | 61.40 | 85.0%",
           "16 | 31.10 | 93.8%"), [("efficiency", 5, "85.0%", "")],
    ),
    "a_linear_layer_is_measured": (
        md("GPUs | linear layer time (ms) | speedup", "1 | 466.88 | 1.0", "4 | 120.20 | 3.9", "8 | 61.40 | 6.2",
           "16 | 31.10 | 15.0"), [("speedup", 5, "6.2", "")],
    ),
    "ideal_in_brackets": (
        md("GPUs | time (ideal) (s) | speedup", "1 | 466.88 (466.88) | 1.0", "4 | 120.20 (116.72) | 3.9",
           "8 | 61.40 (58.36) | 6.2", "16 | 31.10 (29.18) | 15.0"), [("speedup", 5, "6.2", "")],
    ),
    "tokens_and_requests": (
        md("Setting | Tokens/sec | Speedup | Requests/sec", "base | 800 | 1.00x | 1.31", "a | 1,600 | 2.40x | 2.67",
           "b | 2,000 | 2.50x | 3.31", "c | 2,400 | 3.00x | 3.92"), [("speedup", 4, "2.40x", "")],
    ),
    "slots_are_counted_by_the_efficiencies": (
        md("slots | ms | speedup | efficiency", "1 | 295.03 | 1.00x | 100%", "2 | 161.38 | 1.83x | 91%",
           "3 | 111.56 | 2.64x | 88%", "4 | 84.71 | 3.48x | 87%", "6 | 58.50 | 5.04x | 74%"),
        [("efficiency", 7, "74%", "")],
    ),
    "threads_or_processes": (
        md("Threads/Processos | Tempo (s) | Speedup | Eficiência", "1 | 140.2143 | 1.0000 | 1.0000",
           "2 | 61.8382 | 2.2674 | 1.1337", "4 | 44.8976 | 3.1230 | 0.7807", "8 | 41.0309 | 3.4173 | 0.5272"),
        [("efficiency", 6, "0.5272", "")],
    ),
    "one_thread_that_is_slower_than_the_serial_program": (
        md("Mode | Процессов | Время, с | Ускорение | Эффективность", "seq | 1 | 3.7263 | 1.00 | N/A",
           "mpi | 1 | 0.6653 | 5.60 | 560%", "mpi | 2 | 0.9737 | 3.83 | 191%", "mpi | 3 | 0.5979 | 4.15 | 138%"),
        [("speedup", 6, "0.5979", "")],
    ),
    "the_same_number_of_devices_in_all_rows": (
        md("Mode | Tokens/s/GPU | Total Tokens/s", "a | 20,497 | 163,976", "b | 14,471 | 115,768",
           "c | 16,312 | 130,496", "d | 12,000 | 69,000"), [("products", 6, "69,000", "8 devices")],
    ),
    "a_time_of_one_and_their_rate": (
        md("Strategy | µs/step | steps/s", "naive | 131.8 | 7,589", "opt | 14.0 | 71,466", "more | 6.6 | 163,129"),
        [("implied", 5, "163,129", "not 1 / µs/step")],
    ),
    "a_file_that_all_rows_load": (
        md("threads | time (s) | bandwidth (MB/s)", "1 | 266 | 32", "2 | 141 | 60", "4 | 87 | 98", "8 | 71 | 141",
           "16 | 60 | 142"), [("implied", 6, "141", "/ time (s)")],
    ),
    "two_rows_of_before_and_after": (
        md("case | baseline ns/day | tuned ns/day | speedup", "6 threads | 187.076 | 264.066 | 1.412x",
           "12 threads | 161.980 | 264.066 | 1.730x"), [("ratios", 4, "1.730x", "")],
    ),
    "all_gains_off_by_one_factor": (
        md("Model | Eager | Compiled | Speedup", "a | 7.00 ms | 1.93 ms | 4.35x", "b | 14.5 ms | 5.31 ms | 3.28x",
           "c | 29.0 ms | 11.9 ms | 2.92x"), [("ratios", 3, "4.35x", "1.199 times")],
    ),
    "no_two_rows_agree_on_a_baseline": (
        md("Program | Threads | Time (s) | Speedup", "Sequential | 1 | 51.0 | 1.00x", "OpenMP | 4 | 13.8477 | 3.92x",
           "OpenMP | 8 | 9.57073 | 5.40x"), [("speedup", 4, "3.92x", "the whole column")],
    ),
    "an_eighth_that_the_column_beside_bears_out": (
        md("Threads | Time (s) | Speedup | GFLOPS", "1 | 6.76 | 1.00 | 0.300", "4 | 1.62 | 4.17 | 1.25",
           "8 | 0.93 | 7.25 | 2.18", "16 | 0.41 | 8.39 | 2.52"), [("speedup", 6, "8.39", "")],
    ),
    "a_sign_that_is_lost": (
        md("Threads | Time (s) | Speedup | Efficiency", "1 | 657 | 1.00x | 100%", "2 | 396 | 1.66x | 83%",
           "4 | 294 | 2.23x | 56", "6 | 255 | 2.58x | 43%"), [("values", 5, "56", "per cent sign")],
    ),
    "speedups_that_two_columns_contradict": (
        md("GPUs | Tokens/sec | Time (s) | Speedup vs 1 GPU | Efficiency", "1 | 29600.05 | 1017.61 | 1.00 | 1.00",
           "2 | 57289.31 | 522.01 | 2.66 | 0.97", "4 | 100791.44 | 296.10 | 4.67 | 0.85"),
        [("speedup", 4, "2.66", "the whole column")],
    ),
    "shares_that_no_speedup_gives": (
        md("p | size | speedup | efficiency", "2 | 2^16 | 1.938 | 0.969", "4 | 2^16 | 3.234 | 1.109",
           "8 | 2^16 | 5.654 | 0.968", "16 | 2^16 | 5.681 | 0.486", "2 | 2^20 | 1.994 | 1.366", "4 | 2^20 | 3.906 | 1.337",
           "8 | 2^20 | 7.654 | 1.311"),
        [("efficiency", 4, "1.109", "the whole column")],
    ),
    "milliseconds_are_expected_in_milliseconds": (
        md("线程数 | 时间 (ms) | 加速比", "1 | 1416 | 1.00x", "2 | 708 | 2.00x", "4 | 354 | 4.00x", "8 | 177 | 7.00x"),
        [("speedup", 6, "7.00x", "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tables_of_others(tmp_path, case):
    text, expected = CASES[case]
    findings = run(tmp_path, text).findings
    assert [(f.check, f.line, f.stands) for f in findings] == [one[:3] for one in expected], findings
    assert all(words in f.cause for f, (*_, words) in zip(findings, expected)), findings


def test_what_is_expected_has_the_unit_of_what_stands(tmp_path):
    (found,) = run(
        tmp_path, md("GPUs | time (ms) | speedup", "1 | 1000 | 1.00", "2 | 500 | 2.00", "4 | 520 | 4.00", "8 | 125 | 8.00")
    ).findings  # fmt: skip
    assert (found.stands, found.expected) == ("520", "250.0 [249.6, 250.4]")


def test_a_change_below_zero_is_blamed_without_a_guess_at_its_digits(tmp_path):
    rows = [
        "a | 10000 | 8000 | -20.0%",
        "b | 20000 | 15000 | -25.0%",
        "c | 30000 | 24000 | -29.0%",
        "d | 40000 | 31000 | -22.5%",
    ]
    (found,) = run(tmp_path, md("case | old | new | change", *rows)).findings
    assert (found.line, found.stands) == (5, "-29.0%")


def test_words_of_other_languages():
    words = {
        "Время, с": "seconds", "Число процессов": "devices", "Ускорение": "speedup", "Эффективность, %": "efficiency",
        "线程数": "devices", "GPU 数": "devices", "加速比": "speedup", "并行效率": "efficiency", "耗时(毫秒)": "seconds",
        "スレッド数": "devices", "実行時間": "seconds", "高速化率": "speedup", "스레드 수": "devices", "속도 향상": "speedup",
        "Hilos": "devices", "Tiempo (s)": "seconds", "Aceleración": "speedup", "Eficiencia": "efficiency",
        "Núcleos": "devices", "Tempo médio (ms)": "seconds", "Eficiência": "efficiency", "Nombre de processus": "devices",
        "Temps (s)": "seconds", "Efficacité": "efficiency", "\\# Knoten": "devices", "Durchsatz (Bilder/s)": "rate",
        "Laufzeit [s]": "seconds", "GPU temps": "", "tempora": "", "zeitgeist": "",
    }  # fmt: skip
    assert {header: recognise(header).role for header in words} == words
    assert recognise("时间 (ms)").scale == recognise("Laufzeit [ms]").scale == 1e-3
    assert plain("吞吐量(文件/秒)") == "throughput (items / s)"


def test_cells_of_other_people():
    values = {
        "1.123.242 iters/s": 1123242, "25.8 ms/step": 25.8, "1.4 doc/min": 1.4, "×1.41": 1.41, "x 8.12": 8.12,
        "2^16": 65536, "8,333 (下降)": 8333, "25分钟": 25,
    }  # fmt: skip
    assert {text: cell.value for text in values if (cell := parse_cell(text))} == values


WIKI = "{| class=wikitable\n! style=x | Threads !! Time (s) !! Speedup\n|-\n| 1 || 10.0 || 1.00\n|-\n| 2\n| 5.1\n| 1.96\n|}\n"
ASCIIDOC = "|===\n|Threads |Time (s) |Speedup\n\n|1\n|10.0\n|1.00\n\n|2 |5.1 |1.96\n|===\n"
ASCIIDOC_LINES = "|===\n|Threads\n|Time (s)\n|Speedup\n\n|1\n|10.0\n|1.00\n\n|2\n|5.1\n|1.96\n|===\n"


@pytest.mark.parametrize("text", [WIKI, ASCIIDOC, ASCIIDOC_LINES], ids=["wiki", "asciidoc", "asciidoc by lines"])
def test_tables_of_wikis_are_read(tmp_path, text):
    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8")
    (table,) = reading.tables(path)
    points = [(row.devices, row.seconds and row.seconds.value, row.speedup and row.speedup.value) for row in table.rows]
    assert points == [(1, 10.0, 1.0), (2, 5.1, 1.96)]


@pytest.mark.parametrize("text", ["{|", "|===\n", "{| \n|-\n|", "|===\n|===", "{|\n| a\n|}"])
def test_a_table_that_is_not_closed_or_empty_is_none(tmp_path, text):
    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8")
    assert not [table for table in reading.tables(path) if table.rows]

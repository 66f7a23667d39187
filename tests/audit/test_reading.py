"""What others write is read: forms of tables, headers, cells, counts of devices; what is not known is not guessed."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import pytest

from rnn_scaling.audit.scaling_table import parse_cell
from rnn_scaling.audit.tables import counts, reading
from rnn_scaling.audit.tables.columns import recognise
from tests.support.audit_tables import run

FIELDS = ("devices", "rate", "rate_each", "seconds", "speedup", "efficiency", "batch_size", "global_batch_size")


def read(tmp_path, text, name="t.md"):
    """The tables of a text that have points, and all of their notes."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    tables = list(reading.tables(tmp_path / name))
    return [table for table in tables if table.rows], [note for table in tables for note in table.notes]


def points(tables):
    """Each point as its series and the fields that it has."""
    shown = []
    for row in (row for table in tables for row in table.rows):
        values = {name: getattr(row, name) for name in FIELDS}
        numbers = {k: round(getattr(v, "value", v), 6) for k, v in values.items() if v is not None}
        shown.append((row.series, numbers))
    return shown


def pipe(*rows):
    """A Markdown table of "a|b" rows."""
    width = rows[0].count("|") + 1
    return "\n".join(f"|{row}|" for row in (rows[0], "|".join(["-"] * width), *rows[1:])) + "\n"


def rates(*pairs):
    return [("", {"devices": n, "rate": rate, **({"speedup": s} if s else {})}) for n, rate, s in pairs]


THREE = rates((1, 100, 1.0), (2, 190, 1.9), (4, 360, 3.6))
FORMS = {
    "a grid with a rule between all rows": ("t.rst", "+------+-------+---------+\n| GPUs | img/s | Speedup |\n+======+=======+=========+\n| 1    | 100   | 1.0     |\n+------+-------+---------+\n| 2    | 190   | 1.9     |\n+------+-------+---------+\n| 4    | 360   | 3.6     |\n+------+-------+---------+\n"),
    "a grid with a rule below the header": ("t.txt", "+------+-------+---------+\n| GPUs | img/s | Speedup |\n+------+-------+---------+\n|    1 |   100 |     1.0 |\n|    2 |   190 |     1.9 |\n|    4 |   360 |     3.6 |\n+------+-------+---------+\n"),
    "a grid whose cells go on in a second line": ("t.rst", "+----------+-------+---------+\n| Number   | img/s | Speedup |\n| of GPUs  |       |         |\n+==========+=======+=========+\n| 1        | 100   | 1.0     |\n+----------+-------+---------+\n| 2        | 190   | 1.9     |\n+----------+-------+---------+\n| 4        | 360   | 3.6     |\n+----------+-------+---------+\n"),
    "a drawn box": ("t.log", "┏━━━━━━┳━━━━━━━┳━━━━━━━━━┓\n┃ GPUs ┃ img/s ┃ Speedup ┃\n┡━━━━━━╇━━━━━━━╇━━━━━━━━━┩\n│ 1    │ 100   │ 1.0     │\n│ 2    │ 190   │ 1.9     │\n│ 4    │ 360   │ 3.6     │\n└──────┴───────┴─────────┘\n"),
    "columns under rules": ("t.rst", "====  =====  =======\nGPUs  img/s  Speedup\n====  =====  =======\n1     100    1.0\n2     190    1.9\n4     360    3.6\n====  =====  =======\n"),
    "psql": ("t.txt", " gpus | img/s | speedup \n------+-------+---------\n    1 |   100 |     1.0\n    2 |   190 |     1.9\n    4 |   360 |     3.6\n(3 rows)\n"),
    "a wiki": ("t.txt", "||GPUs||img/s||Speedup||\n|1|100|1.0|\n|2|190|1.9|\n|4|360|3.6|\n"),
    "quoted Markdown": ("t.md", "".join(f"> {line}\n" for line in pipe("GPUs|img/s|Speedup", "1|100|1.0", "2|190|1.9", "4|360|3.6").splitlines())),
    "colours": ("t.log", "\x1b[1mGPUs   img/s   Speedup\x1b[0m\n1   \x1b[32m100\x1b[0m   1.0\n2   190   1.9\n4   360   \x1b[38;5;1m3.6\x1b[0m\n"),
    "HTML": ("t.html", "<html><table border=1><tr><th>GPUs</th><th>img/s</th><th>Speedup</th></tr>\n<tr><td>1<td>100<sup>a</sup><td>1.0</tr><tr><td>2</td><td><b>190</b></td><td>1.9&times;</td></tr>\n<tr><td>4</td><td>360</td><td>3.6</td></tr></table>"),
    "LaTeX": ("t.tex", "\\begin{tabular}{l|rr}\n\\toprule\n\\textbf{GPUs} & img/s & Speedup \\\\ \\midrule\n1 & 100 & 1.0$\\times$ \\\\ % a comment\n2 & \\textbf{190} & 1.9 \\\\[2pt]\n4 & 360 & 3.6 \\\\\n\\bottomrule\n\\end{tabular}\n"),
    "decimal commas": ("t.csv", "GPUs;img/s;Speedup\n1;100,0;1,00\n2;190,0;1,90\n4;360,0;3,60\n"),
    "footnotes": ("t.md", pipe("GPUs|img/s|Speedup", "1|100[1]|1.0", "2|190 †|1.9x[^2]", "4*|360|3.6<sup>b</sup>")),
    "a data frame": ("t.txt", "   GPUs  img/s  Speedup\n0     1    100      1.0\n1     2    190      1.9\n2     4    360      3.6\n"),
    "a list of lists": ("t.json", '[["GPUs", "img/s", "Speedup"], [1, 100, 1.0], [2, 190, 1.9], [4, 360, 3.6]]'),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_is_read(tmp_path, form):
    name, text = FORMS[form]
    tables, notes = read(tmp_path, text, name)
    assert points(tables) == THREE and notes == []


def test_headers_that_span_are_of_each_column_below(tmp_path):
    html = (
        "<table><caption>Strong scaling</caption><tr><th rowspan=2>GPUs</th><th colspan=2>FP32</th><th colspan=2>FP16</th></tr>\n"
        "<tr><th>img/s</th><th>Speedup</th><th>img/s</th><th>Speedup</th></tr>\n"
        "<tr><td>1</td><td>100</td><td>1.0</td><td>200</td><td>1.0</td></tr><tr><td>2</td><td>190</td><td>1.9</td><td>360</td><td>1.8</td></tr></table>"
    )
    tex = (
        "\\begin{tabular}{lrrrr} & \\multicolumn{2}{c}{FP32} & \\multicolumn{2}{c}{FP16} \\\\ \\cmidrule(lr){2-3}\n"
        "\\multirow{2}{*}{GPUs} & img/s & Speedup & img/s & Speedup \\\\ \\hline\n1 & 100 & 1.0 & 200 & 1.0 \\\\ 2 & 190 & 1.9 & 360 & 1.8 \\\\ \\end{tabular}"
    )
    for name, text in (("t.html", html), ("t.tex", tex)):
        tables, _ = read(tmp_path, text, name)
        assert sorted(points(tables), key=lambda p: p[0]) == [
            ("FP16", {"devices": 1, "rate": 200, "speedup": 1.0}), ("FP16", {"devices": 2, "rate": 360, "speedup": 1.8}),
            ("FP32", {"devices": 1, "rate": 100, "speedup": 1.0}), ("FP32", {"devices": 2, "rate": 190, "speedup": 1.9}),
        ]  # fmt: skip
    assert {row.scaling for row in read(tmp_path, html, "t.html")[0][0].rows} == {"strong"}


DEVICES = {  # rows of a table -> the devices of each
    "nodes x GPUs per node": (("Nodes|GPUs per node|img/s", "1|8|100", "2|8|190"), [8, 16]),
    "nodes x GPUs/node beside the total": (("Nodes|GPUs/node|GPUs|img/s", "1|8|8|100", "2|8|16|190"), [8, 16]),
    "num_nodes x gpu_num_per_node": (("num_nodes|gpu_num_per_node|img/s", "1|1|100", "1|8|700", "2|8|1300"), [1, 8, 16]),
    "no GPU is the CPU": (("GPUs|img/s", "0|10", "2|190", "0|11", "4|360"), [None, 2, None, 4]),
    "ranks x threads per rank": (("Ranks|Threads per rank|time (s)", "1|4|100", "4|2|60"), [4, 8]),
    "nodes and their GPUs": (("Nodes|GPUs|img/s", "1|8|100", "2|16|190"), [8, 16]),
    "nodes of 8 GPUs": (("Nodes|GPUs|img/s", "1|8|100", "2|8|190"), [8, 16]),
    "one column for both": (("Nodes x GPUs|img/s", "1x8|100", "2x8|190"), [8, 16]),
    "2 (16 GPUs)": (("Nodes|img/s", "1 (8 GPUs)|100", "2 (16 GPUs)|190"), [8, 16]),
    "16 GPUs (2 nodes)": (("GPUs|img/s", "8 GPUs (1 node)|100", "16 GPUs (2 nodes)|190"), [8, 16]),
    "setup": (("Setup|img/s", "1 GPU|100", "4 GPUs|190"), [1, 4]),
    "setup with the kind": (("Configuration|img/s", "1x V100|100", "8 x V100|190"), [1, 8]),
    "setup of nodes": (("System|img/s", "1 node x 4 GPUs|100", "2 nodes x 4 GPUs|190"), [4, 8]),
    "workers=4": (("Run|img/s", "workers=1|100", "workers=4|190"), [1, 4]),
    "lists under ids": (("GPU ids|img/s", "0|100", "0,1|190", "0,1,2,3|360"), [1, 2, 4]),
    "lists under GPUs": (("GPUs|img/s", "0|100", "0,1|190", "0,1,2,3|360"), [None, None, None]),
    "processes and threads, both varying": (("Processes|Threads|time (s)", "1|4|100", "4|2|60", "2|2|70"), [None] * 3),
    "threads of one process": (("Processes|Threads|time (s)", "1|1|100", "1|4|60"), [1, 4]),
    "a problem's size": (("n|time (s)|speedup", "1000|100|1.5", "2000|60|1.6"), [None, None]),
    "nodes and GPUs in brackets": (("Nodes (GPUs)|img/s", "1 (8)|100", "2 (16 GPUs)|190"), [8, 16]),
    "no thread is serial": (("threads|time (s)", "0|100", "1|101", "4|60"), [None, 1, 4]),
    "a line over its rows": (("Setup|img/s", "single GPU|100", "On 16 GPUs|x", "Horovod|1500", "MPI|1400"), [1, 16, 16]),
    "grouped by points": (("GPUs|img/s", "512|100", "1.024|190"), [512, 1024]),
    **{word: ((f"{word}|time (s)", "1|100", "4|60"), [1, 4]) for word in ("Threads", "Workers", "Processes", "Ranks", "Cores", "# procs", "MPI tasks", "CPU cores", "num_gpus", "nGPUs", "Number of GPU(s)", "TPU chips", "hosts", "p", "N")},
}  # fmt: skip


@pytest.mark.parametrize("case", DEVICES)
def test_devices_are_counted(tmp_path, case):
    rows, devices = DEVICES[case]
    tables, _ = read(tmp_path, pipe(*rows))
    assert [row.devices for table in tables for row in table.rows] == devices


HEADERS = {
    "scaling eff.": "efficiency", "parallel eff": "efficiency", "% of linear": "efficiency", "speedup vs. linear": "efficiency",
    "Energy efficiency": "", "aggregate ops/s": "rate", "img/sec": "rate", "imgPerSec": "rate", "samples per second": "rate",
    "Throughput per GPU": "rate_each", "tokens/s/device": "rate_each", "images/sec/GPU": "rate_each", "env steps/s": "rate", "Sample (4K)-per-second": "rate",
    "MB/s": "", "GFLOP/s": "", "Latency (ms)": "", "GPU memory (GB)": "", "top-1 accuracy": "", "power (W)": "",
    "FP32 Strong Scaling": "speedup", "FP16 Weak Scaling": "speedup", "Speedup over 1 GPU": "speedup", "speed-up w.r.t. 8 GPUs": "speedup",
    "AMP speedup": "compared", "Speedup (FP32 to mixed)": "compared", "Speedup with mixed precision": "compared", "Speedup vs PyTorch": "compared",
    "Gradient accumulation steps": "accumulation", "GBS": "global_batch_size", "bsz": "batch_size", "effective batch size": "global_batch_size",
    "Batch size / GPU": "batch_size", "images per GPU": "batch_size", "ms/step": "seconds", "s/it": "seconds", "Time to train (h)": "seconds",
    "Wall-clock": "seconds", "Runtime [s]": "seconds", "Speed (s/step)": "seconds", "GPU model": "", "gizmo": "", "GPU clock (MHz)": "",
}  # fmt: skip


def test_header_words():
    assert {header: recognise(header).role for header in HEADERS} == HEADERS
    assert [recognise(h).baseline for h in ("Speedup", "Speedup over 1 GPU", "Speedup vs. 8 GPUs")] == [None, 1, 8]
    assert [recognise(h).scope for h in ("img/s", "total img/s", "aggregate throughput")] == ["", "total", "total"]
    assert [recognise(h).scale for h in ("Time (min)", "images/min", "Speedup (%)")] == [60, 1 / 60, 0.01]
    assert [recognise(h).unit for h in ("imgs/s", "examples per sec", "queries/s")] == [
        "images/s",
        "examples/s",
        "queries/s",
    ]
    quantities = [recognise(h).quantity for h in ("Throughput (img/s)", "Time (h)", "accuracy", "gizmo")]
    assert quantities == ["rate images/s", "seconds x 3600", "accuracy", ""]


CELLS = {  # text -> value, low, high
    "12.1x[1]": (12.1, 12.05, 12.15), "93%*": (0.93, 0.925, 0.935), "1446 †": (1446, 1445.5, 1446.5),
    "1446<sup>2</sup>": (1446, 1445.5, 1446.5), "1.2 x 10<sup>3</sup>": (1200, 1150, 1250), "1'446.3": (1446.3, 1446.25, 1446.35),
    "~30": (30, 25, 35), "≈1,400": (1400, 1350, 1450), "1h 20m": (4800, 4770, 4830), "0:20:05": (1205, 1204.5, 1205.5),
    "96.4&nbsp;%": (0.964, 0.9635, 0.9645), "1.9&times;": (1.9, 1.85, 1.95), "[1446](http://a/b)": (1446, 1445.5, 1446.5),
}  # fmt: skip


def test_cells():
    for text, (value, low, high) in CELLS.items():
        cell = parse_cell(text)
        assert cell and (cell.value, cell.low, cell.high) == pytest.approx((value, low, high)), text
    for text in ("0,1", "0,1,2,3", "OOM", "V100*", "4x4", "1.446,3", "0-3", "2 nodes, 8 GPUs"):
        assert parse_cell(text) is None, text
    hours = parse_cell("1.5 h").times(3600)
    assert (hours.value, hours.low, hours.high) == pytest.approx((5400, 5220, 5580))
    assert [counts.find(text) for text in ("GPU 0", "4 GPUs/node", "7gforce", "2 nodes, 8 GPUs", "1 GPU-hour")] == [
        None
    ] * 5


WIDE = {  # texts -> points
    "two numbers in a cell": (
        pipe("GPUs|img/s (speedup)", "1|1,446.3 (1.0x)", "4|5,500.1 (3.8x)", "16|17,500 (12.1x)"),
        [("", {"devices": 1, "rate": 1446.3, "speedup": 1.0}), ("", {"devices": 4, "rate": 5500.1, "speedup": 3.8}), ("", {"devices": 16, "rate": 17500, "speedup": 12.1})],
    ),
    "a number in brackets that the values bear out": (
        pipe("GPUs|img/s", "1|100 (1.0x)", "2|190 (1.9x)", "4|360 (3.6x)"), THREE,
    ),
    "a number in brackets that is something else": (
        pipe("GPUs|img/s", "1|100 (1.3x)", "2|190 (1.4x)", "4|360 (1.2x)"), rates((1, 100, 0), (2, 190, 0), (4, 360, 0)),
    ),
    "model names over columns of rates": (
        "**Training synthetic data**\n\n" + pipe("GPUs|InceptionV3|ResNet-50", "1|142|219", "2|284|422"),
        [("InceptionV3", {"devices": 1, "rate": 142}), ("ResNet-50", {"devices": 1, "rate": 219}), ("InceptionV3", {"devices": 2, "rate": 284}), ("ResNet-50", {"devices": 2, "rate": 422})],
    ),
    "names over columns of what is said above": (
        "# Throughput (images/sec)\n\n" + pipe("GPUs|ours|theirs", "1|142|219", "2|284|422"),
        [("ours", {"devices": 1, "rate": 142}), ("theirs", {"devices": 1, "rate": 219}), ("ours", {"devices": 2, "rate": 284}), ("theirs", {"devices": 2, "rate": 422})],
    ),
    "names over columns of nobody knows what": (pipe("GPUs|alpha|beta", "1|142|219", "2|284|422"), []),
    "names over columns of accuracy": (pipe("GPUs|ResNet-50|VGG16", "1|75.1|71.0", "2|75.3|70.9", "4|75.2|71.1"), []),
    "devices along the columns": (
        pipe("Model|1 GPU|2 GPUs|4 GPUs", "ResNet-50|100|190|360"),
        [("ResNet-50", {"devices": 1, "rate": 100}), ("ResNet-50", {"devices": 2, "rate": 190}), ("ResNet-50", {"devices": 4, "rate": 360})],
    ),
    "devices along the columns, the quantity in the corner": (
        pipe("Speedup|1 GPU|2 GPUs", "a|1.0|1.9"), [("a", {"devices": 1, "speedup": 1.0}), ("a", {"devices": 2, "speedup": 1.9})],
    ),
    "quantities along the rows": (pipe("|1 GPU|2 GPUs|4 GPUs", "img/s|100|190|360", "Speedup|1.0|1.9|3.6"), THREE),
    "one device and all": (
        pipe("Model|1 GPU (img/s)|8 GPUs (img/s)|Speedup|Efficiency", "a|100|720|7.2x|90%"),
        [("a", {"devices": 1, "rate": 100}), ("a", {"devices": 8, "rate": 720, "speedup": 7.2, "efficiency": 0.9})],
    ),
    "a textbook's letters": (
        pipe("p|Tp|Sp|Ep", "1|100|1.0|1.0", "2|52|1.92|0.96"),
        [("", {"devices": 1, "seconds": 100, "speedup": 1.0, "efficiency": 1.0}), ("", {"devices": 2, "seconds": 52, "speedup": 1.92, "efficiency": 0.96})],
    ),
    "a tensor-parallel size is no time": (pipe("TP|PP|tokens/s", "1|1|100", "2|1|190"), [("", {"rate": 100}), ("", {"rate": 190})]),
    "a rate of one device and of all": (
        pipe("GPUs|img/s/GPU|aggregate img/s|time (min)", "1|100|100|90.0", "2|95|190|47.0"),
        [("", {"devices": 1, "rate": 100, "rate_each": 100, "seconds": 5400}), ("", {"devices": 2, "rate": 190, "rate_each": 95, "seconds": 2820})],
    ),
    "a rate times the devices": (
        pipe("GPUs|img/s|Speedup", "1|100|1.0", "2|95.00*2|1.9", "4|90.00*4|3.6"), THREE,
    ),
    "units in the cells": (
        pipe("GPUs|FP32|AMP|FP32 strong scaling|AMP strong scaling", "1|10 img/s|30 img/s|1.0|1.0", "2|19 img/s|54 img/s|1.9|1.8"),
        [("FP32", {"devices": 1, "rate": 10, "speedup": 1.0}), ("AMP", {"devices": 1, "rate": 30, "speedup": 1.0}), ("FP32", {"devices": 2, "rate": 19, "speedup": 1.9}), ("AMP", {"devices": 2, "rate": 54, "speedup": 1.8})],
    ),
    "rows of several units": (
        pipe("Metric|1 GPU|2 GPUs", "Throughput|100 img/s|190 img/s", "Index|15 min|8 min"),
        [("Throughput", {"devices": 1, "rate": 100}), ("Throughput", {"devices": 2, "rate": 190}), ("Index", {"devices": 1, "seconds": 900}), ("Index", {"devices": 2, "seconds": 480})],
    ),
    "cells that are as those above": (
        pipe("batch size|mode|GPUs|img/s", "256|device|1|100", "||2|190"),
        [("device", {"devices": 1, "batch_size": 256, "rate": 100}), ("device", {"devices": 2, "batch_size": 256, "rate": 190})],
    ),
    "a speedup that is divided by the devices": (
        pipe("GPUs|img/s|speedup ratio", "1|100|1", "2|190|0.95", "4|360|0.90"),
        [("", {"devices": 1, "rate": 100, "efficiency": 1}), ("", {"devices": 2, "rate": 190, "efficiency": 0.95}), ("", {"devices": 4, "rate": 360, "efficiency": 0.9})],
    ),
    "accumulated gradients": (
        pipe("GPUs|Batch size per GPU|Gradient accumulation|img/s", "1|32|8|100", "2|32|4|190"),
        [("", {"devices": 1, "global_batch_size": 256, "rate": 100}), ("", {"devices": 2, "global_batch_size": 256, "rate": 190})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WIDE)
def test_points_of_wide_tables(tmp_path, case):
    text, expected = WIDE[case]
    assert points(read(tmp_path, text)[0]) == expected


def test_comparisons_are_of_two_columns_of_one_quantity(tmp_path):
    head = "GPUs|Accuracy - FP32|Accuracy - mixed|Time to train - FP32 (h)|Time to train - mixed (h)"
    ((table,), _) = read(
        tmp_path,
        pipe(f"{head}|Time to train speedup (FP32 to mixed)", "8|76.1|76.2|10.0|4.0|2.5", "16|76.1|76.2|5.0|2.0|2.5"),
    )
    assert table.ratios == {
        "Time to train speedup (FP32 to mixed)": ("Time to train - FP32 (h)", "Time to train - mixed (h)")
    }
    ((table,), _) = read(tmp_path, pipe("Size|Sequential|Parallel|Speedup", "1000|1.00|0.52|1.92", "2000|4.0|2.0|2.0"))
    assert table.ratios == {"Speedup": ("Sequential", "Parallel")} and [row.seconds for row in table.rows] == [
        None,
        None,
    ]
    ((table,), _) = read(
        tmp_path, pipe("GPUs|Throughput FP32|Time AMP (s)|Speedup (FP32 to AMP)", "1|100|9.0|3.0", "2|190|4.5|3.0")
    )
    assert table.ratios == {}


def test_a_speedup_of_two_columns_is_none_of_devices(tmp_path):
    cases = {  # rows -> the columns that the speedup compares
        ("Case|Before|After|Speedup", "a|24 min|36 sec|40x", "b|6 min|15 sec|24x"): ("Before", "After"),
        ("ranks|alpha (s)|beta (s)|Speedup", "1|10.0|2.0|5.0", "2|9.0|3.0|3.0"): ("alpha (s)", "beta (s)"),
        ("GPUs|old img/s|new img/s|Speedup", "1|10.0|20.0|1.9", "2|9.0|30.0|3.0"): ("new img/s", "old img/s"),
    }
    for rows, pair in cases.items():
        (tmp_path / "t.md").write_text(pipe(*rows))
        (table,) = reading.tables(tmp_path / "t.md")
        assert table.ratios == {"Speedup": pair} and not any(row.speedup for row in table.rows), rows
    ((table,), _) = read(
        tmp_path, pipe("GPUs|img/s|time (s)|Speedup", "1|100|10.0|1.0", "2|190|5.26|1.9", "4|360|2.78|3.6")
    )
    assert table.ratios == {} and [row.speedup.value for row in table.rows] == [1.0, 1.9, 3.6]
    ((table,), _) = read(
        tmp_path, pipe("n|old (ms)|new (ms)|Speedup", "10|0.011|0.014|-20.5 %", "20|0.16|0.128|25.0 %")
    )
    assert [row.speedup for row in table.rows] == [None, None]


def test_times_of_several_units_are_compared_in_seconds(tmp_path):
    text = pipe("Case|Before|After|Speedup", "a|24 min|36 sec|40x", "b|6 min|15 sec|24x", "c|1 h|60 sec|60x")
    report = run(tmp_path, text)
    assert report.findings == [] and report.comparisons > 0
    (finding,) = run(tmp_path, text.replace("24x", "42x")).findings
    assert (finding.check, finding.line) == ("ratios", 4)


def test_an_interval_does_not_widen_what_the_numbers_agree_on(tmp_path):
    head = "Device number|Batch size|Total time to process 20 batches (s)|Processing speed (words/s)"
    report = run(tmp_path, pipe(head, "1|32|2.776|13831.260 ± 1537.569", "2|32|2.939|26129.753 ± 761.072"))
    (fact,) = report.facts
    assert ", 60 within rounding" in fact and report.findings == []


def test_what_is_not_known_is_said_and_not_guessed(tmp_path):
    _, notes = read(tmp_path, pipe("GPUs|img/s|gizmo|accuracy", "1|100|7|75.1", "2|190|8|75.0"))
    assert notes == ["line 1: columns not understood: gizmo"]


def test_weak_and_strong_are_read_where_they_are_stated(tmp_path):
    for text in ("# Weak scaling of the LSTM\n\n" + pipe("GPUs|img/s", "1|100", "2|190"), pipe("GPUs|Scaling|img/s", "1|weak|100", "2|weak|190"), pipe("GPUs|img/s|weak scaling", "1|100|1.0", "2|190|1.9")):  # fmt: skip
        assert {row.scaling for table in read(tmp_path, text)[0] for row in table.rows} == {"weak"}
    both = read(tmp_path, "# Weak scaling and strong scaling\n\n" + pipe("GPUs|img/s", "1|100", "2|190"))[0]
    assert {row.scaling for table in both for row in table.rows} == {""}

"""Faults in tables: the right cell is blamed, and nothing where all relations hold."""

from __future__ import annotations

import random

import pytest

from rnn_scaling.analysis.audit import auditing, candidates, relations
from tests.support import audit_tables
from tests.support.audit_tables import found, markdown, places

GOOD = """
| GPUs | img/s | Speedup | Efficiency |
|---|---|---|---|
| 1 | 100.5 | 1.00 | 100% |
| 2 | 195.2 | 1.94 | 97% |
| 4 | 380.1 | 3.78 | 95% |
| 8 | 720.3 | 7.17 | 90% |
"""
TIMES = """
| Workers | Time (s) | Speedup |
|---|---|---|
| 1 | 120.4 | 1.00 |
| 2 | 62.3 | 1.93 |
| 4 | 33.1 | 3.64 |
| 8 | 18.9 | 6.37 |
"""


@pytest.mark.parametrize("seed", range(40))
def test_consistent_tables_have_no_finding(seed):
    assert found(markdown(audit_tables.make(seed))) == []


@pytest.mark.parametrize(
    ("old", "new", "blamed"),
    [
        ("3.78", "3.18", (6, "Speedup")), ("195.2", "159.2", (5, "img/s")), ("95%", "59%", (6, "Efficiency")),
        ("720.3", "72.03", (7, "img/s")), ("100.5", "150.5", (4, "img/s")), ("97%", "0.97%", (5, "Efficiency")),
    ],
)  # fmt: skip
def test_the_cell_that_the_others_contradict(old, new, blamed):
    assert found(GOOD) == []
    (finding,) = found(GOOD.replace(old, new))
    assert [(place.line, place.column) for place in finding.places] == [blamed]
    (place,) = finding.places
    assert 0.99 * place.low <= float(old.rstrip("%")) <= 1.01 * place.high, (
        "the right number fits"
    )


def test_of_two_columns_either_may_be_wrong():
    (finding,) = found(TIMES.replace("3.64", "3.04"))
    assert finding.kind == "one-of" and {(6, "Time (s)"), (6, "Speedup")} == set(
        places(TIMES.replace("3.64", "3.04"))
    )


@pytest.mark.parametrize(
    ("one", "two", "lines"),
    [
        ("3.78", "1.94", {5, 6}),
        ("195.2", "380.1", {5, 6}),
        ("97%", "90%", {5, 7}),
        ("100.5", "720.3", {4, 7}),
    ],
)
def test_exchanged_numbers(one, two, lines):
    text = GOOD.replace(one, "#").replace(two, one).replace("#", two)
    (finding,) = found(text)
    assert (
        finding.kind == "exchange" and {place.line for place in finding.places} == lines
    )


def test_the_slip_is_named():
    hints = {}
    for new in ("37.8", "3.87"):
        (finding,) = found(GOOD.replace("3.78", new))
        hints[new] = finding.places[0].hint
    assert hints == {"37.8": "decimal point one place off", "3.87": "digits exchanged"}


def test_a_column_of_one_device_for_all():
    rows = [(1, 100.0, 1.0), (2, 95.0, 1.90), (4, 92.5, 3.70), (8, 88.75, 7.10)]
    text = "| GPUs | img/s | Speedup |\n|--|--|--|\n" + "".join(
        f"|{n}|{r:.1f}|{s:.2f}|\n" for n, r, s in rows
    )
    assert [(finding.kind, finding.relation) for finding in found(text)] == [
        ("per-device", "speedup = rate / baseline rate")
    ]


def test_a_column_that_follows_from_nothing():
    text = (
        GOOD.replace("100%", "88%")
        .replace("97%", "71%")
        .replace("95%", "63%")
        .replace("90%", "47%")
    )
    assert [finding.kind for finding in found(text)] == ["column"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "|n|img/s|\n|-|-|\n|1|100|\n|2|190|\n|3|280|\n|4|640|\n|5|450|\n",
            6,
        ),  # more than any machine gives
        (
            "|n|img/s|\n|-|-|\n|1|100|\n|2|190|\n|4|37|\n|8|700|\n",
            5,
        ),  # far below both neighbours
        ("|n|img/s|\n|-|-|\n|1|103.7|\n|2|201.3|\n|4|388.9|\n|8|388.9|\n", 6),  # copied
    ],
)
def test_what_no_machine_does(text, line):
    (finding,) = found(text)
    assert finding.strength == "unlikely" and finding.places[0].line == line


@pytest.mark.parametrize(
    "text",
    [
        # Another baseline than the first row, outside of the table, a change, a gain, weak scaling by time, cut digits.
        "|Method|time (ms)|Speedup|\n|-|-|-|\n|a|48.2|2.07x|\n|base|100|1.00x|\n|c|33.4|2.99x|\n|d|21.0|4.76x|\n",
        "|Threads|Time (s)|Speedup|\n|-|-|-|\n|2|50.2|1.99|\n|4|26.1|3.83|\n|8|14.4|6.94|\n|16|9.9|10.1|\n",
        "|Case|old (ms)|new (ms)|change|\n|-|-|-|-|\n|a|100|90|-10%|\n|b|50|60|+20%|\n|c|80|20|-75%|\n|d|40|44|+10%|\n",
        "|GPUs|Time (s)|Efficiency|\n|-|-|-|\n|1|10.0|100%|\n|2|10.5|95%|\n|4|11.1|90%|\n|8|12.5|80%|\n",
        "|GPUs|img/s|Speedup|\n|-|-|-|\n|1|100|1.0|\n|2|196|1.9|\n|4|379|3.7|\n|8|718|7.1|\n",
        "|Model|1 GPU|2 GPUs|4 GPUs|\n|-|-|-|-|\n|a|100|190|370|\n|b|50|99|195|\n|c|70|139|271|\n",
        "|Step|Rank|Time|\n|-|-|-|\n|1|1|0.51|\n|2|1|0.52|\n|3|2|0.49|\n",
    ],
)
def test_other_readings_are_no_fault(text):
    assert found(text) == []


def test_sums_and_totals():
    text = "|Part|a|b|\n|-|-|-|\n|x|10|4|\n|y|20|5|\n|z|5|6|\n|Total|35|15|\n"
    assert found(text) == []
    assert places(text.replace("|15|", "|25|"))[-1][0] in (3, 4, 5, 6)


def test_a_new_relation_is_one_line(monkeypatch):
    text = "|GPUs|Time (s)|Efficiency|\n|-|-|-|\n|1|100.2|100%|\n|2|52.1|96.2%|\n|4|27.4|91.4%|\n|8|15.3|38.9%|\n"
    assert (6, "Efficiency") in places(text)
    without = tuple(
        relation for relation in relations.RELATIONS if relation.target != "efficiency"
    )
    monkeypatch.setattr("rnn_scaling.analysis.audit.candidates.RELATIONS", without)
    assert found(text) == []


def test_a_baseline_that_the_header_does_not_name():
    rows = [("Archer", 3.12), ("Cirrus", 5.44), ("Thomas", 4.07), ("Athena", 8.91)]
    for base, expected in ((3.12, []), (4.07, [("column", "other baseline")])):
        text = "|System|runs/s|Relative to Archer|\n|-|-|-|\n" + "".join(
            f"|{k}|{r}|{r / base:.3f}|\n" for k, r in rows
        )
        assert [(finding.kind, finding.relation) for finding in found(text)] == expected


OTHERS = {
    "ratio": [
        "Query|old (ms)|new (ms)|old / new", "a|48.2|12.1|3.98", "b|33.0|20.4|1.62", "c|91.7|11.3|8.12",
        "d|15.5|14.9|1.04",
    ],
    "running sum": ["Part|Share (%)|Cumulative %", "a|41.2|41.2", "b|22.9|64.1", "c|17.4|81.5", "d|9.3|90.8"],
    "change": [
        "Library|Time (ms)|vs baseline", "b|159|-19.3%", "c|160|-18.8%", "a|197|baseline", "d|187|-5.1%", "e|201|+2.0%",
    ],
    "same work": ["Codec|Time (s)|frames/s", "a|2.104|47.53", "b|3.318|30.14", "c|1.275|78.43", "d|0.911|109.8"],
    "sum": ["Run|fwd (ms)|bwd (ms)|total (ms)", "a|48.2|12.1|60.3", "b|33.0|20.4|53.4", "c|91.7|11.3|103.0"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("table", "old", "new", "blamed"),
    [
        ("ratio", "8.12", "6.12", (5, "old / new")), ("running sum", "81.5", "85.1", (5, "Cumulative %")),
        ("change", "-5.1%", "+17.6%", (6, "vs baseline")), ("same work", "78.43", "87.43", (5, "frames/s")),
        ("sum", "53.4", "58.4", (4, "total (ms)")),
    ],
)  # fmt: skip
def test_relations_of_any_columns(table, old, new, blamed):
    header, *rows = OTHERS[table]
    text = "\n".join([header, "|".join("-" * len(header.split("|"))), *rows])
    assert found(text) == []
    assert blamed in places(text.replace(old, new))


def test_two_weak_relations_that_one_number_breaks():
    text = (
        "|Threads|rec/s|Speedup|Efficiency|\n|-|-|-|-|\n"
        "|1|7,000|1x|100%|\n|4|15,000|2.1x|53%|\n|8|18,000|2.6x|32%|\n"
    )
    assert found(text) == []
    assert places(text.replace("2.1x", "7.1x")) == [(4, "Speedup")]


def test_a_baseline_that_another_column_confirms():
    swapped = GOOD.replace("1.00", "#").replace("3.78", "1.00").replace("#", "3.78")
    assert set(places(swapped)) == {(4, "Speedup"), (6, "Speedup")}


def test_inverse_speedups():
    rows = [("a", 48.2), ("b", 33.1), ("c", 77.9), ("d", 120.5)]
    right = "|Kernel|GB/s|Speedup|\n|-|-|-|\n" + "".join(
        f"|{k}|{r}|{r / 48.2:.3f}|\n" for k, r in rows
    )
    inverse = "|Kernel|items/s|Speedup|\n|-|-|-|\n" + "".join(
        f"|{k}|{r}|{48.2 / r:.3f}|\n" for k, r in rows
    )
    assert found(right) == [] and [
        (finding.kind, finding.relation) for finding in found(inverse)
    ] == [("inverse", "speedup = rate / baseline rate")]


@pytest.mark.parametrize("fault", [None, 100, 1_500])
def test_a_long_table(fault, tmp_path):
    rng = random.Random(1)
    lines = ["run,devices,words/s,seconds,load s,total s"]
    for row in range(2_000):
        rate, seconds, load = (
            rng.uniform(100, 900),
            rng.uniform(1, 50),
            rng.uniform(1, 9),
        )
        wrong = 7.0 if row == fault else 0.0
        lines.append(
            f"{row},{1 + row % 8},{rate:.2f},{seconds:.3f},{load:.3f},{seconds + load + wrong:.3f}"
        )
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    findings = auditing.audit(tmp_path / "a.csv").findings
    assert {place.line for finding in findings for place in finding.places} == (
        {fault + 2} if fault else set()
    )


def test_a_small_budget_makes_fewer_instances_of_proportional_columns(monkeypatch):
    made = []
    real = candidates.products
    monkeypatch.setattr(
        candidates,
        "products",
        lambda *words: made.extend(found := real(*words)) or found,
    )
    rng = random.Random(1)
    rows = [
        [
            f"{(row + 1) * k * 1.37 * rng.uniform(0.999, 1.001):.2f}"
            for k in range(1, 17)
        ]
        for row in range(40)
    ]
    text = "\n".join(
        "|".join(cells) for cells in ([f"c{k}" for k in range(16)], ["-"] * 16, *rows)
    )
    counts = []
    for most in (30_000, 0):
        monkeypatch.setattr(candidates, "MOST_INSTANCES", most)
        assert found(text) == []
        counts.append(len(made) - sum(counts))
    assert 0 < counts[1] <= 16 * 40 * candidates.FEWEST_READ < counts[0] <= 30_000


def test_units_that_differ_are_not_compared():
    rows = [
        ("48.2 MB", 12.1, 3.98),
        ("330 KB", 20.4, 0.016),
        ("91.7 MB", 11.3, 8.12),
        ("15.5 MB", 14.9, 1.04),
    ]
    assert (
        found(
            "|Size|Files|Size / Files|\n|-|-|-|\n"
            + "".join(f"|{a}|{b}|{c}|\n" for a, b, c in rows)
        )
        == []
    )


def test_a_time_and_a_rate_that_changed_places():
    rows = [
        "a|0.80|1246|1",
        "b|2.81|356.1|3.50",
        "c|2.62|381.6|3.26",
        "d|95.2|10.51|13.10",
        "e|5.42|184.7|6.75",
    ]
    text = "\n".join(["Tool|Latency (ms)|op/s|Relative (latency)", "-|-|-|-", *rows])
    assert sorted(places(text)) == [(6, "Latency (ms)"), (6, "op/s")]


def test_ratios_in_brackets_have_a_column_of_their_own():
    cells = [
        "0.082s (1.00x)",
        "0.167s (2.04x)",
        "0.443s (5.40x)",
        "0.639s (7.79x)",
        "2.670s (32.6x)",
    ]
    text = "|Tool|Time|\n|-|-|\n" + "".join(
        f"|{name}|{cell}|\n" for name, cell in zip("abcde", cells)
    )
    assert found(text) == []
    assert places(text.replace("7.79x", "9.77x")) == [(6, "Time"), (6, "Time")]


def test_part_of_a_total_that_has_a_wrong_unit():
    text = "|Step|A|B|\n|-|-|-|\n|a|4.752s|2.31s|\n|b|3.529s|1.20s|\n|c|0.184s|0.41s|\n|Total|8.465s|3.92s|\n"
    assert found(text) == [] and (5, "A") in places(text.replace("0.184s", "184s"))


def test_small_counts_that_add_up_by_chance():
    assert (
        found(
            "|Graph|Vertices|Edges|Parts|\n|-|-|-|-|\n|a|4|3|1|\n|b|10|8|2|\n|c|6|5|1|\n|d|20|29|4|\n"
        )
        == []
    )


def test_a_speedup_relative_to_another_row_than_the_efficiency():
    rows = [(1, 0.494), (2, 0.253), (4, 0.133), (8, 0.079)]
    lines = [f"|{n}|{t}|{0.253 / t:.2f}|{0.494 / t / n:.2f}|" for n, t in rows]
    text = "\n".join(["|Threads|Time (s)|Speedup|Efficiency|", "|-|-|-|-|", *lines])
    assert [(finding.kind, finding.relation) for finding in found(text)] == [
        ("column", "other baseline")
    ]


@pytest.mark.parametrize("slip", ["0.94", "9380%", "187.6%"])
def test_a_usual_slip_counts_as_evidence(slip):
    text = f"|GPUs|img/s|Scaling efficiency|\n|-|-|-|\n|1|21.0|100%|\n|2|39.4|{slip}|\n|4|75.2|89.5%|\n"
    assert (4, "Scaling efficiency") in places(text)


def test_work_per_device_is_the_same_in_rows_of_other_settings():
    rows = [
        ("5.04", 3253),
        ("4.39", 3732),
        ("4.10", 3998),
        ("3.93", 4168),
        ("5.91", 2773),
    ]
    lines = [f"|run {k}|{seconds}|{rate}|" for k, (seconds, rate) in enumerate(rows)]
    text = "\n".join(["|run|s/step|tokens/s/GPU|", "|-|-|-|", *lines])
    assert found(text) == [] and (4, "tokens/s/GPU") in places(
        text.replace("3732", "3232")
    )


def test_percentages_above_a_total_that_are_no_parts_of_it():
    text = "|Kind|Time (s)|Hidden|Time 2 (s)|\n|-|-|-|-|\n|TP|42.5|34%|0.0|\n|DP|14.2|7%|0.0|\n|**Total**|54|28%|0|\n"
    assert found(text) == []


def test_one_of_two_rates_of_the_same_work():
    rows = [
        ("23.84", "597.4", "419.5"),
        ("26.62", "535.0", "375.7"),
        ("18.98", "750.4", "526.9"),
    ]
    lines = [f"|{2**k}|{'|'.join(row)}|" for k, row in enumerate(rows)]
    text = "\n".join(["|Workers|Time (s)|chunks/s|docs/s|", "|-|-|-|-|", *lines])
    assert found(text) == [] and (5, "chunks/s") in places(
        text.replace("750.4", "187.6")
    )


def test_a_baseline_that_is_named_and_has_no_other_row_is_no_evidence():
    rows = [
        "Sequential|1|423 ms|1.00x|100%",
        "OpenMP|2|286 ms|1.48x|73.9%",
        "OpenMP|4|123 ms|3.44x|86.1%",
    ]
    text = "\n".join(
        [
            "|Code|Threads|Time|Speedup|Efficiency|",
            "|-|-|-|-|-|",
            *(f"|{row}|" for row in rows),
        ]
    )
    text += "\n|OpenMP|8|72 ms|5.91x|73.9%|\n"
    assert found(text) == [] and (5, "Time") in places(text.replace("123 ms", "153 ms"))


@pytest.mark.parametrize(
    "text",
    [
        "|Size|CPU (ms)|GPU (ms)|Speedup|\n|-|-|-|-|\n|1|180|8|0.044x|\n|2|410|15|0.037x|\n|4|1640|42|0.026x|\n"
        "|8|6580|165|0.025x|\n",
        "|Threads|Speedup|Efficiency|\n|-|-|-|\n|2|0.40x|125.0%|\n|4|0.28x|90.7%|\n|8|0.26x|47.5%|\n",
    ],
)
def test_speedups_that_are_all_the_inverse(text):
    assert [(finding.kind, finding.relation) for finding in found(text)] == [
        ("column", "inverse")
    ]


def test_a_speedup_in_percent_is_no_inverse():
    rows = [(180, 201.6), (410, 459.2), (1640, 1836.8)]
    lines = [f"|{k}|{old}|{new}|+12%|" for k, (old, new) in enumerate(rows)]
    assert (
        found("\n".join(["|Size|Old (ms)|New (ms)|Speedup|", "|-|-|-|-|", *lines]))
        == []
    )


def _kinds(text):
    return [
        (finding.kind, sorted(place.line for place in finding.places))
        for finding in found(text)
    ]


def test_numbers_that_slipped_by_a_row():
    rows = [
        (13064.8, 10996.0),
        (14900.2, 11283.4),
        (15823.6, 9919.4),
        (14966.8, 10397.2),
        (16021.5, 9871.3),
    ]
    ratios = [f"{old / new:.3f}x" for old, new in rows]
    head = "|Groups|old_us|new_us|speedup|\n|-|-|-|-|\n"
    for printed, due in (
        (ratios, []),
        ([ratios[0], *ratios[:-1]], [("shifted", [4, 5, 6, 7])]),
    ):
        lines = [
            f"|{2**k}|{old}|{new}|{text}|"
            for k, ((old, new), text) in enumerate(zip(rows, printed))
        ]
        assert _kinds(head + "\n".join(lines)) == due


def test_later_rows_with_another_baseline():
    rows = [
        ("python", 4.2702),
        ("numba", 0.9970),
        ("numpy 1", 1.2485),
        ("numpy 2", 0.8243),
        ("numpy 3", 0.0900),
    ]
    head = "|Method|Time (s)|Speedup|\n|-|-|-|\n"
    for bases, due in (
        ([4.2702] * 5, []),
        ([4.2702] * 3 + [0.9970] * 2, [("other-baseline", [6, 7])]),
    ):
        lines = [
            f"|{name}|{seconds:.4f}|{base / seconds:.2f}x|"
            for (name, seconds), base in zip(rows, bases)
        ]
        assert _kinds(head + "\n".join(lines)) == due


def test_tables_of_the_same_header_prove_a_relation_together():
    tables = [
        ("0.254", "3975", "1", "3.00", "338", "11.8"),
        ("1.30", "781", "1", "4.03", "250", "3.10"),
    ]
    tables += [
        ("2.40", "417", "1", "7.92", "126", "3.30"),
        ("4.10", "244", "1", "12.3", "81.3", "3.00"),
    ]
    head = "|Library|Median (ms)|op/s|Relative (latency)|\n|-|-|-|-|\n"
    text = "\n".join(
        f"### {k}\n\n{head}|a|{'|'.join(t[:3])}|\n|b|{'|'.join(t[3:])}|\n"
        for k, t in enumerate(tables)
    )
    assert _kinds(text) == []
    assert {
        line for _, lines in _kinds(text.replace("|3.10|", "|0.31|")) for line in lines
    } == {13}
    alone = text.replace("|3.10|", "|0.31|").split("### ")[2]
    assert _kinds(alone) == [], "alone it proves nothing"


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (
            "Test|Avg TPS|Max TPS",
            ["a|336.1|344", "b|440.3|410", "c|153.1|157", "d|318.9|331"],
        ),
        (
            "Test|p50 (ms)|p99 (ms)",
            ["a|3.1|7.9", "b|8.2|5.1", "c|3.3|9.9", "d|2.9|8.8"],
        ),
        (
            "Model|throughput (out tok/s)|throughput (total tok/s)",
            ["a|31|69", "b|38|18", "c|29|43", "d|16|34"],
        ),
    ],
)
def test_a_number_above_one_that_it_cannot_exceed(header, rows):
    text = "\n".join([header, "-|-|-", *rows])
    assert ("order", [4, 4]) in _kinds(text) and all(
        kind != "order" for kind, _ in _kinds(text.replace(rows[1], "b|1|9"))
    )


def test_ratios_without_a_unit_in_brackets():
    rows = [
        ("mkdir", 558, 468, 2042),
        ("rmdir", 717, 648, 3050),
        ("mknod", 562, 464, 1547),
        ("getattr", 87, 86, 530),
    ]
    rows += [("rename", 728, 627, 2735), ("lookup", 173, 178, 557)]
    lines = [
        f"|{name}|{a}|{b} ({b / a:.1f})|{c} ({c / a:.1f})|" for name, a, b, c in rows
    ]
    text = "|Call|A|B|C|\n|-|-|-|-|\n" + "\n".join(lines)
    assert found(text) == [] and (6, "C") in places(text.replace("(6.1)", "(1.6)"))


def test_output_of_benchstat():
    text = """
                 │   old (sec/op)   │     new (sec/op)      │  vs base               │
List/New-20          56.44µ ±  5%   54.47µ ± 19%        ~ (p=0.589 n=6)
List/Remove-20       65.04µ ±  3%   52.18µ ±  9%  -19.77% (p=0.002 n=6)
List/Host-20         16.18µ ± 14%    7.29µ ± 10%  -54.94% (p=0.002 n=6)
List/Table-20        70.84µ ±  1%   53.86µ ±  6%  -23.97% (p=0.002 n=6)
List/Space-20        66.28µ ±  8%   51.64µ ± 13%  -22.09% (p=0.002 n=6)
"""
    assert found(text) == [] and (5, "vs base") in places(
        text.replace("-54.94%", "-5.494%")
    )

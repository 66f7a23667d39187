"""Findings name the correct cells of faulty tables, and no cell of consistent tables."""

import json
import random

import pytest

from rnn_scaling.analysis.audit import auditing
from tests.support import audit_tables
from tests.support.audit_tables import find_findings, markdown, places, table

GOOD = table(
    "GPUs|img/s|Speedup|Efficiency",
    "1|100.5|1.00|100%",
    "2|195.2|1.94|97%",
    "4|380.1|3.78|95%",
    "8|720.3|7.17|90%",
)
RIGHT = {
    "two columns": table(
        *("Workers|Time (s)|Speedup", "1|120.4|1.00", "2|62.3|1.93", "4|33.1|3.64"),
        "8|18.9|6.37",
    ),
    "ratio": table(
        *("Query|old (ms)|new (ms)|old / new", "a|48.2|12.1|3.98", "b|33.0|20.4|1.62"),
        *("c|91.7|11.3|8.12", "d|15.5|14.9|1.04"),
    ),
    "change": table(
        *("Library|Time (ms)|vs baseline", "b|159|-19.3%", "c|160|-18.8%"),
        *("a|197|baseline", "d|187|-5.1%", "e|201|+2.0%"),
    ),
    "same work": table(
        *("Codec|Time (s)|frames/s", "a|2.104|47.53", "b|3.318|30.14"),
        *("c|1.275|78.43", "d|0.911|109.8"),
    ),
    "brackets": table(
        *("Tool|Time", "a|0.082s (1.00x)", "b|0.167s (2.04x)", "c|0.443s (5.40x)"),
        *("d|0.639s (7.79x)", "e|2.670s (32.6x)"),
    ),
    "bare brackets": table(
        *("Call|A|B", "mkdir|558|468 (0.8)", "mknod|562|1547 (2.8)"),
        *("getattr|87|530 (6.1)", "rename|728|2735 (3.8)", "lookup|173|557 (3.2)"),
        "rmdir|717|3050 (4.3)",
    ),
    "devices in headers": table(
        *("|1 GPU|2 GPUs|4 GPUs|8 GPUs", "img/s|100.5|195.2|380.1|720.3"),
        *("Speedup|1.00|1.94|3.78|7.17", "Efficiency|100%|97%|95%|90%"),
    ),
    "work per device": table(
        *("run|s/step|tokens/s/GPU", "0|5.04|3253", "1|4.39|3732", "2|4.10|3998"),
        *("3|3.93|4168", "4|5.91|2773"),
    ),
    "named baseline": table(
        "Code|Threads|Time|Speedup|Efficiency",
        "Sequential|1|423 ms|1.00x|100%",
        "OpenMP|2|286 ms|1.48x|73.9%",
        "OpenMP|4|123 ms|3.44x|86.1%",
        "OpenMP|8|72 ms|5.91x|73.9%",
    ),
    "weak relations": table(
        *("Threads|rec/s|Speedup|Efficiency", "1|7,000|1x|100%"),
        *("4|15,000|2.1x|53%", "8|18,000|2.6x|32%"),
    ),
    "benchstat": """
                 │   old (sec/op)   │     new (sec/op)      │  vs base               │
List/New-20          56.44µ ±  5%   54.47µ ± 19%        ~ (p=0.589 n=6)
List/Remove-20       65.04µ ±  3%   52.18µ ±  9%  -19.77% (p=0.002 n=6)
List/Host-20         16.18µ ± 14%    7.29µ ± 10%  -54.94% (p=0.002 n=6)
List/Table-20        70.84µ ±  1%   53.86µ ±  6%  -23.97% (p=0.002 n=6)
List/Space-20        66.28µ ±  8%   51.64µ ± 13%  -22.09% (p=0.002 n=6)
""",
}


@pytest.mark.parametrize("seed", range(12))
def test_consistent_tables_have_no_finding(seed):
    assert find_findings(markdown(audit_tables.make(seed))) == []


@pytest.mark.parametrize(
    "old, new, blamed",
    [
        ("3.78", "3.18", (5, "Speedup")),
        ("195.2", "159.2", (4, "img/s")),
        ("100.5", "150.5", (3, "img/s")),
    ],
)
def test_the_cell_that_the_others_contradict(old, new, blamed):
    assert find_findings(GOOD) == []
    [finding] = find_findings(GOOD.replace(old, new))
    [place] = finding.places
    assert (place.line, place.column) == blamed
    right = float(old.rstrip("%"))
    assert 0.99 * place.low <= right <= 1.01 * place.high


@pytest.mark.parametrize(
    "name, old, new, blamed",
    [
        ("two columns", "3.64", "3.04", {(5, "Time (s)"), (5, "Speedup")}),
        ("ratio", "8.12", "6.12", {(5, "old / new")}),
        ("change", "-5.1%", "+17.6%", {(6, "vs baseline")}),
        ("same work", "78.43", "87.43", {(5, "frames/s")}),
        ("brackets", "7.79x", "9.77x", {(6, "Time")}),
        ("bare brackets", "(6.1)", "(1.6)", {(5, "B")}),
        ("devices in headers", "3.78", "3.18", {(4, "4 GPUs")}),
        ("work per device", "3732", "3232", {(4, "tokens/s/GPU")}),
        ("named baseline", "123 ms", "153 ms", {(5, "Time")}),
        ("weak relations", "2.1x", "7.1x", {(4, "Speedup")}),
        ("benchstat", "-54.94%", "-5.494%", {(5, "vs base")}),
    ],
)
def test_a_fault_in_tables_of_other_kinds(name, old, new, blamed):
    assert find_findings(RIGHT[name]) == []
    assert blamed <= set(places(RIGHT[name].replace(old, new)))


def test_the_slip_is_named():
    hints = {}
    for new in ("37.8", "3.87"):
        [finding] = find_findings(GOOD.replace("3.78", new))
        hints[new] = finding.places[0].hint
    assert hints == {"37.8": "decimal point one place off", "3.87": "digits exchanged"}


@pytest.mark.parametrize("slip", ["0.94", "9380%"])
def test_a_usual_slip_counts_as_evidence(slip):
    rows = ("GPUs|img/s|Scaling efficiency", "1|21.0|100%", f"2|39.4|{slip}")
    text = table(*rows, "4|75.2|89.5%")
    assert (4, "Scaling efficiency") in places(text)


def _kinds(text):
    """Return the kind and the lines of each finding."""
    kinds = []
    for finding in find_findings(text):
        lines = {place.line for place in finding.places}
        kinds.append((finding.kind, sorted(lines)))
    return kinds


@pytest.mark.parametrize(
    "text, relation",
    [
        (
            table(
                *("GPUs|img/s|Speedup|Efficiency", "1|100.5|1.00|88%"),
                *("2|195.2|1.94|71%", "4|380.1|3.78|63%", "8|720.3|7.17|47%"),
            ),
            "efficiency",
        ),
        (
            table(
                *("Threads|Speedup|Efficiency", "2|0.40x|125.0%", "4|0.28x|90.7%"),
                "8|0.26x|47.5%",
            ),
            "inverse",
        ),
        (
            table(
                *("GPUs|img/s|Speedup", "1|100.5|1.000", "2|195.2|0.971"),
                *("4|380.1|0.946", "8|720.3|0.896"),
            ),
            "efficiencies",
        ),
    ],
)
def test_a_column_that_is_not_what_its_header_says(text, relation):
    [finding] = find_findings(text)
    assert finding.kind == "column"
    assert finding.relation == relation


@pytest.mark.parametrize(
    "rows, line",
    [
        ("1|100 2|190 3|280 4|640 5|450", 6),  # more than any machine reaches
        ("1|100 2|190 4|37 8|700", 5),  # far below both neighbours
    ],
)
def test_numbers_that_no_machine_reaches(rows, line):
    [finding] = find_findings(table("n|img/s", *rows.split()))
    assert finding.strength == "unlikely"
    assert finding.places[0].line == line


@pytest.mark.parametrize(
    "text",
    [
        # Another baseline than the first row; one outside of the table; a change; weak
        # scaling by time; digits that were cut off; devices in headers.
        "Method|time (ms)|Speedup;a|48.2|2.07x;base|100|1.00x;c|33.4|2.99x;d|21.0|4.76x",
        "Threads|Time (s)|Speedup;2|50.2|1.99;4|26.1|3.83;8|14.4|6.94;16|9.9|10.1",
        "Case|old (ms)|new (ms)|change;a|100|90|-10%;b|50|60|+20%;c|80|20|-75%",
        "GPUs|Time (s)|Efficiency;1|10.0|100%;2|10.5|95%;4|11.1|90%;8|12.5|80%",
        "GPUs|img/s|Speedup;1|100|1.0;2|196|1.9;4|379|3.7;8|718|7.1",
        "Model|1 GPU|2 GPUs|4 GPUs;a|100|190|370;b|50|99|195;c|70|139|271",
        # Small counts that add up by chance; units that differ; a weak scaling.
        "Graph|Vertices|Edges|Parts;a|4|3|1;b|10|8|2;c|6|5|1;d|20|29|4",
        "Size|Files|Size / Files;48.2 MB|12.1|3.98;330 KB|20.4|0.016;91.7 MB|11.3|8.12",
        "GPUs|img/s|Weak scaling;1|100.5|1.000;2|195.2|0.971;4|380.1|0.946;8|720.3|0.896",
        # Spreads, and the speedup of a total.
        "GPUs|a.efficiency.spread|a.speedup.spread;2|1.34378|1.34378;2|1.4119|1.4119;"
        "2|1.0213|1.0213;4|1.0534|1.0534",
        "GPUs|speedups.steady.low|speedups.total.low;2|1.8|1.9;2|1.5|1.6;2|1.49|0.94",
        # Headers name the devices, and names hold other counts.
        "Series|Speedup on 2 devices|Efficiency on 2 devices (%)|Words/s on 2 devices|"
        "Words/s on 1 device;a, threads=1|1.06|52.8|10,870|10,280;a, threads=2|1.77|88.5|"
        "18,910|10,680;a, threads=3|1.76|88.0|19,200|10,920;a, threads=4|n/a|n/a|18,810|n/a",
        "On 2 devices|Efficiency (%)|Speedup;threads=1|52.8|1.06;threads=2|88.5|1.77;"
        "threads=3|88.0|1.76",
        # Corrected numbers, which do not follow from the rates of one device alone.
        "Series|Speedup on 2 devices|Efficiency on 2 devices (%)|Words/s on 2 devices|"
        "Words/s on 1 device;a|2.28†|114†|23,500†|10,310;b|4.05†|202†|41,900†|10,360;"
        "c|3.79†|190†|40,700†|10,740;d|n/a|n/a|36,300†|n/a",
        # Percentages above a total that are not parts of it.
        "Kind|Time (s)|Hidden|Time 2 (s);TP|42.5|34%|0.0;DP|14.2|7%|0.0;Total|54|28%|0",
    ],
)
def test_other_readings_are_no_fault(text):
    assert find_findings(table(*text.split(";"))) == []


@pytest.mark.parametrize("fault", [None, 1_500])
def test_a_long_table(fault, tmp_path):
    rng = random.Random(1)
    lines = ["run,devices,words/s per device,words/s"]
    for row in range(2_000):
        rate = rng.uniform(100, 900)
        devices = 1 + row % 8
        total = rate * devices * (1.3 if row == fault else 1.0)
        lines.append(f"{row},{devices},{rate:.2f},{total:.2f}")
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    findings = auditing.audit(tmp_path / "a.csv").findings
    lines = [finding.places[0].line for finding in findings]
    assert lines == ([fault + 2] if fault else [])


def test_speedups_of_one_device_are_not_inverses():
    """The other speedups are hidden, because other programs disturbed the runs."""
    for rates in ("", "img/s|"):
        head = table(f"Device number|{rates}Speedup ratio|Efficiency (%)")
        parts = []
        for k in range(6):
            one, two = (f"{100 + k}|", f"{150 + 2 * k * k}|") if rates else ("", "")
            rows = f"|1|{one}1.00|100.0|\n|2|{two}n/a|n/a|"
            parts.append(f"### {k}\n\n{head}\n{rows}")
        assert find_findings("\n\n".join(parts)) == []


def test_a_header_that_counts_for_both_rows_of_a_comparison():
    head = "(N = 1 ~ 10) ms|(N = 1 ~ 10) speedup|(N = 5 ~ 50) ms|(N = 5 ~ 50) speedup"
    rows = ("0.874|7.36x|307.441|37.55x", "2.956|10.02x|995.480|67.47x")
    assert find_findings(table(head, *rows)) == []


def test_lists_of_equal_length_do_not_hide_other_tables(tmp_path):
    rows = [{"gpus": n, "img/s": 100.0 * n, "speedup": float(n)} for n in (1, 2, 4)]
    rows[2]["speedup"] = 5.0
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"cautions": ["a"], "opening": ["b"], "rows": rows}))
    assert len(auditing.audit(path).findings) == 1

"""Every form of a table gives the same findings; damaged and huge files are read in bounded time."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.records.tables import documents, text_tables
from tests.support import audit_tables

ROWS = audit_tables.make(3)


@pytest.mark.parametrize("name", audit_tables.forms(ROWS))
def test_forms(tmp_path, name):
    (tmp_path / name).write_text(audit_tables.forms(ROWS)[name], encoding="utf-8")
    report = auditing.audit(tmp_path / name)
    assert (report.error, report.findings) == ("", []) and report.comparisons >= 2 * (
        len(ROWS) - 1
    )
    spoiled = [list(row) for row in ROWS]
    spoiled[2][4] = "9.99"
    (tmp_path / name).write_text(audit_tables.forms(spoiled)[name], encoding="utf-8")
    (finding,) = auditing.audit(tmp_path / name).findings
    assert [place.column for place in finding.places] == ["Speedup"]


def test_html_spans_and_two_header_lines():
    html = (
        "<table><tr><th rowspan=2>GPUs</th><th colspan=2>img/s</th></tr><tr><th>a</th><th>b</th></tr>"
        "<tr><td>1</td><td>10</td><td>20</td></tr><tr><td>2</td><td>19</td><td>39</td></tr></table>"
    )
    (table,) = text_tables.find_tables("x", [(1, html)])
    assert table.header == ("GPUs", "img/s a", "img/s b")
    assert [texts for _, texts in table.rows] == [("1", "10", "20"), ("2", "19", "39")]


def test_nested_json():
    document = {
        "runs": [
            {"gpus": n, "perf": {"img/s": 100 * n}, "speedup": float(n)}
            for n in (1, 2, 4)
        ]
    }
    (table,) = documents.find_json_tables("x", document, "")
    assert table.header == ("gpus", "perf.img/s", "speedup") and len(table.rows) == 3


@pytest.mark.parametrize(
    "text",
    ["|" * 200_000, "[" * 100_000, "<table>" * 5000, "<td colspan=99999999>" * 5000,
     "|a|b|\n|-|-|\n" + "|" + "x" * 100_000 + "|1|\n", "| " * 50_000 + "\n" + "|1" * 50_000, "a  b\n" * 20_000],
)  # fmt: skip
def test_what_is_no_table(tmp_path, text):
    for suffix in (".md", ".json", ".csv", ".txt"):
        (tmp_path / f"x{suffix}").write_text(text)
        report = auditing.audit(tmp_path / f"x{suffix}")
        assert not report.findings and "\n" not in report.error


def test_the_limit_on_numbers_is_reported(tmp_path):
    (tmp_path / "x.md").write_text("\n\n".join([audit_tables.markdown(ROWS)] * 5))
    report = auditing.audit(tmp_path / "x.md", max_numbers=60)
    assert report.tables < 5 and "--max_numbers" in report.error


def test_tables_that_wait_for_others_are_checked_before_the_limit_ends_the_file(
    tmp_path,
):
    spoiled = [list(row) for row in ROWS]
    spoiled[2][4] = "9.99"
    tables = [
        audit_tables.markdown(spoiled),
        *(audit_tables.markdown(ROWS).replace("words", f"w{k}") for k in range(9)),
    ]
    (tmp_path / "x.md").write_text("\n\n".join(tables))
    report = auditing.audit(tmp_path / "x.md", max_numbers=100)
    assert report.tables < 9 and [
        place.line for made in report.findings for place in made.places
    ] == [9]


def test_long_tables_are_checked_to_the_end(tmp_path):
    lines = ["case,old (s),new (s),speedup"]
    lines += [
        f"{k},{(k % 90 + 10) * 2},{k % 90 + 10},{9.0 if k == 30_000 else 2.0}"
        for k in range(30_100)
    ]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    (finding,) = auditing.audit(tmp_path / "x.csv", max_numbers=10**6).findings
    assert {place.line for place in finding.places} == {30_002}


NCCL = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   536870912     134217728     float     sum      -1   2432.7  220.69  413.79      0   2382.4  225.35  422.54      0
  1073741824     268435456     float     sum      -1   4523.3  237.38  445.09      0   4518.9  237.61  445.52      0
  2147483648     536870912     float     sum      -1   8785.8  244.43  458.30      0   8787.2  244.39  458.23      0
# Out of bounds values : 0 OK
"""


def test_output_of_nccl_tests():
    (table,) = text_tables.find_tables("x", enumerate(NCCL.splitlines(), 1))
    assert (
        table.header[5:9] == ("time", "algbw", "busbw", "#wrong")
        and len(table.rows) == 3
    )


def test_comments_above_csv_and_csv_within_text(tmp_path):
    rows = "ranks,time,speedup\n1,10.2,1.00\n2,5.4,1.89\n4,3.1,3.29\n"
    for name, text in (
        ("a.csv", f"# Results\n# T1 = 10.2 s\n{rows}"),
        ("a.md", f"# Results\n\n```\n{rows}```\n"),
    ):
        (tmp_path / name).write_text(text)
        (table,) = documents.read_tables(tmp_path / name)
        assert table.header == ("ranks", "time", "speedup") and len(table.rows) == 3


GROUPS = (
    ("128", "fp32", "1", "5210.40"),
    ("", "", "2", "8120.10"),
    ("", "fp16", "1", "7000.20"),
    ("256", "fp32", "1", "5910.00"),
)


@pytest.mark.parametrize("gap", ["", '"', None])
def test_cells_of_groups_are_filled_downwards(gap):
    """They are empty, a ditto mark, or left out at the start of a row."""
    lines = ["|batch|dtype|GPUs|samples/s|", "|-|-|-|-|"]
    for cells in GROUPS:
        shown = [cell or gap for cell in cells]
        lines.append("|".join(["", *filter(lambda cell: cell is not None, shown), ""]))
    (table,) = text_tables.find_tables("x", enumerate(lines, 1))
    filled = [texts[:2] for _, texts in table.rows]
    assert filled == [("128", "fp32")] * 2 + [("128", "fp16"), ("256", "fp32")]

"""Every form of a table gives the same findings, and damaged files are read."""

import pytest

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.records.tables import documents, text_tables
from tests.support import audit_tables

ROWS = audit_tables.make(3)
SPOILED_ROWS = [list(row) for row in ROWS]
SPOILED_ROWS[2][4] = "9.99"


def read_tables(text):
    return list(text_tables.find_tables("x", enumerate(text.splitlines(), 1)))


@pytest.mark.parametrize("name", audit_tables.forms(ROWS))
def test_every_form_has_the_same_findings(tmp_path, name):
    path = tmp_path / name
    path.write_text(audit_tables.forms(ROWS)[name], encoding="utf-8")
    report = auditing.audit(path)
    assert report.error == ""
    assert report.findings == []
    assert report.comparisons >= 2 * (len(ROWS) - 1)
    path.write_text(audit_tables.forms(SPOILED_ROWS)[name], encoding="utf-8")
    [finding] = auditing.audit(path).findings
    assert [place.column for place in finding.places] == ["Speedup"]


def test_html_spans_and_two_header_lines():
    [table] = read_tables(
        "<table><tr><th rowspan=2>GPUs</th><th colspan=2>img/s</th></tr>"
        "<tr><th>a</th><th>b</th></tr><tr><td>1</td><td>10</td><td>20</td></tr>"
        "<tr><td>2</td><td>19</td><td>39</td></tr></table>"
    )
    assert table.header == ("GPUs", "img/s a", "img/s b")
    assert [texts for _, texts in table.rows] == [("1", "10", "20"), ("2", "19", "39")]


def test_nested_json():
    runs = [{"gpus": n, "perf": {"img/s": 100 * n}, "speedup": 1.0} for n in (1, 2, 4)]
    [table] = documents.find_json_tables("x", {"runs": runs}, "")
    assert table.header == ("gpus", "perf.img/s", "speedup")
    assert len(table.rows) == 3


@pytest.mark.parametrize(
    "text",
    [
        "|" * 200_000,
        "[" * 100_000,
        "<table>" * 5000,
        "<td colspan=99999999>" * 5000,
        "|a|b|\n|-|-|\n" + "|" + "x" * 100_000 + "|1|\n",
        "| " * 50_000 + "\n" + "|1" * 50_000,
        "a  b\n" * 5000,
    ],
)
def test_damaged_tables_have_no_findings(tmp_path, text):
    for suffix in (".md", ".json", ".csv", ".txt"):
        (tmp_path / f"x{suffix}").write_text(text)
        report = auditing.audit(tmp_path / f"x{suffix}")
        assert not report.findings
        assert "\n" not in report.error


def test_the_limit_on_numbers_is_reported_after_waiting_tables_are_checked(tmp_path):
    tables = [audit_tables.markdown(SPOILED_ROWS)]
    for k in range(9):
        tables.append(audit_tables.markdown(ROWS).replace("words", f"w{k}"))
    (tmp_path / "x.md").write_text("\n\n".join(tables))
    report = auditing.audit(tmp_path / "x.md", max_numbers=100)
    assert report.tables < 9
    assert "--max_numbers" in report.error
    [finding] = report.findings
    assert [place.line for place in finding.places] == [9]


def test_long_tables_are_checked_to_the_end(tmp_path):
    lines = ["case,old (s),new (s),speedup"]
    for k in range(30_100):
        seconds = k % 90 + 10
        lines.append(f"{k},{2 * seconds},{seconds},{9.0 if k == 30_000 else 2.0}")
    (tmp_path / "x.csv").write_text("\n".join(lines))
    [finding] = auditing.audit(tmp_path / "x.csv", max_numbers=10**6).findings
    assert {place.line for place in finding.places} == {30_002}


NCCL = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   536870912     134217728     float     sum      -1   2432.7  220.69  413.79      0   2382.4  225.35  422.54      0
  1073741824     268435456     float     sum      -1   4523.3  237.38  445.09      0   4518.9  237.61  445.52      0
# Out of bounds values : 0 OK
"""


def test_output_of_nccl_tests():
    [table] = read_tables(NCCL)
    assert table.header[5:9] == ("time", "algbw", "busbw", "#wrong")
    assert len(table.rows) == 2


@pytest.mark.parametrize(
    "name, start",
    [("a.csv", "# Results\n# T1 = 10.2 s\n"), ("a.md", "# Results\n\n```\n")],
)
def test_csv_below_comments_and_within_text(name, start, tmp_path):
    rows = "ranks,time,speedup\n1,10.2,1.00\n2,5.4,1.89\n4,3.1,3.29\n"
    (tmp_path / name).write_text(start + rows)
    [table] = documents.read_tables(tmp_path / name)
    assert table.header == ("ranks", "time", "speedup")
    assert len(table.rows) == 3


@pytest.mark.parametrize("gap", ["|", '"|'])
def test_cells_of_groups_are_filled_downwards(gap):
    """Fill cells that are empty or have a ditto mark."""
    [table] = read_tables(
        "|batch|dtype|GPUs|samples/s|\n|-|-|-|-|\n|128|fp32|1|5210.40|\n"
        f"|{gap}{gap}2|8120.10|\n|{gap}fp16|1|7000.20|\n|256|fp32|1|5910.00|"
    )
    groups = [("128", "fp32"), ("128", "fp32"), ("128", "fp16"), ("256", "fp32")]
    assert [texts[:2] for _, texts in table.rows] == groups

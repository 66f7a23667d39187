"""Public tables, and how the scores of predictions on them are counted."""

import re
from pathlib import Path

import pytest

from benchmarks import prediction, public_tables
from rnn_scaling.analysis.prediction.curves import STRONG, WEAK, Curve, MeasuredPoint

DOCUMENT = Path(__file__).parents[2] / "docs/predict.md"
SCORES = (
    Path(__file__).parents[2] / "docs/results/prediction/scores.md"
)  # output of the benchmarks
NUMBER = r"[\d.,]+"
HEADER = "source,table,group,scaling,half,quantity,devices,printed\n"


def test_the_file_of_public_tables_is_sound():
    found = public_tables.read()
    names = [(public.curve.source, public.curve.name) for public in found]
    assert len(set(names)) == len(names) >= 500
    for public in found:
        devices = [point.devices for point in public.curve.points]
        assert len(devices) >= 3 and devices == sorted(set(devices)), public.curve
        assert public.group in public_tables.GROUPS
        assert public.curve.scaling in (WEAK, STRONG)
        assert public.half == public_tables.find_half(public.curve.source, public.group)
        assert all(0 < point.rounding <= 0.5 for point in public.curve.points), (
            public.curve
        )
    assert public_tables.PATH.stat().st_size < 200_000


def test_printed_numbers_become_rates_with_their_rounding(tmp_path):
    path = tmp_path / "public.csv"
    rows = [
        "a,rates,other,weak,test,rate,1 2,10 19.5",
        "a,each,other,weak,test,rate per device,1 4,10 9",
    ]
    path.write_text(
        HEADER
        + "\n".join([*rows, "a,seconds,other,strong,test,time,1 2,8.0 5.00"])
        + "\n"
    )
    rates, each, seconds = (public.curve.points for public in public_tables.read(path))
    assert rates == (
        MeasuredPoint(1, 10, rounding=0.05),
        MeasuredPoint(2, 19.5, rounding=pytest.approx(0.05 / 19.5)),
    )
    assert [point.rate for point in each] == [10, 36]
    assert [point.rate for point in seconds] == [1 / 8, 1 / 5]
    assert [point.rounding for point in seconds] == pytest.approx([0.05 / 8, 0.005 / 5])


def public(rates, devices=(1, 2, 4, 8, 16), source="a", name="b"):
    points = tuple(MeasuredPoint(n, rate) for n, rate in zip(devices, rates))
    return public_tables.PublicCurve(
        "other", "test", Curve(name, "items", WEAK, points, source=source)
    )


def test_no_curve_is_there_twice():
    rates = [
        tuple((point.devices, point.rate) for point in public.curve.points)
        for public in public_tables.read()
    ]
    assert len(rates) == len(set(rates))


@pytest.mark.parametrize(
    "source, is_last, count",
    [(prediction.FIVE, True, 5), (prediction.FALLING, False, 4)],
)
def test_the_scores_have_these_tables_as_they_are_predicted_now(source, is_last, count):
    chosen = [
        public for public in public_tables.read() if public.curve.source == source
    ]
    cases = [case for public in chosen for case in prediction.list_cases(public)]
    rows = prediction.list_in_full(cases, source, is_last).splitlines()[2:]
    assert len(rows) == count
    document = SCORES.read_text().splitlines()
    for row in rows:
        name, devices = (cell.strip() for cell in row.split("|")[1:3])
        kept = next(
            line for line in document if line.startswith(f"| {name} | {devices} |")
        )
        assert re.sub(NUMBER, "", row) == re.sub(NUMBER, "", kept)
        numbers = [
            [float(x) for x in re.findall(NUMBER, text.replace(",", ""))]
            for text in (row, kept)
        ]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=0.11), name


def test_the_scores_of_the_document_are_rows_of_the_scores():
    table = DOCUMENT.read_text().partition("| half | curves |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) == 4
    assert set(rows) <= set(SCORES.read_text().splitlines())

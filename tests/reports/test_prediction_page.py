"""The page and the pictures of predictions, of simulations and of changes: every number, and the limits."""

import dataclasses
import json
import re

import matplotlib
import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import curves, predicting
from rnn_scaling.analysis.prediction.changes import Effect, Sensitivity
from rnn_scaling.analysis.prediction.curves import WEAK, Curve, MeasuredPoint
from rnn_scaling.analysis.simulation import simulating
from rnn_scaling.commands import predict
from rnn_scaling.records.own_files import is_own
from rnn_scaling.reports.pictures import prediction as pictures

TABLE = "| GPUs | words/s |\n|--|--|\n| 1 | 42953 |\n| 2 | 80945 |\n| 4 | 145385 |\n"


def curve(name="a", first=1, unit="words"):
    points = [
        MeasuredPoint(first * n, first * 100.0 * n**0.95, 0.01, 3) for n in (1, 2, 4)
    ]
    return Curve(name, unit, WEAK, tuple(points))


def draw_figure(predictions):
    """Draw the figure of the PNG."""
    with matplotlib.rc_context():
        return pictures.draw_series(predictions)


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.md").write_text(TABLE)
    return tmp_path / "out"


def read_data(page):
    return json.loads(
        re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1]
    )


def test_every_point_and_interval_is_in_the_data_of_the_page(out):
    words = ["t.md", "--num_devices=8,4096", "--far"]
    assert predict.main([*words, f"--output={out}"]) == 0
    [series] = json.loads((out / "prediction.json").read_text())["series"]
    [line] = read_data(out / "prediction.html")["lines"]
    shown = {point["x"]["devices"]: point for point in line["points"]}
    assert [*shown] == [2**k for k in range(13)]
    predicted = {point["devices"]: point for point in series["predicted"]}
    for devices, point in predicted.items():
        values = shown[devices]["values"]
        ends = [point[name] for name in ("rate", "low", "high")]
        assert values["words"] == pytest.approx(ends, 1e-5)
        assert values["speedup"] == pytest.approx([end / 42953 for end in ends], 1e-5)
        shares = {part: values[part][0] / 100 for part in point["parts"]}
        assert shares == pytest.approx(point["parts"])
    for point in series["measured"]:
        assert shown[point["devices"]]["values"]["words"][0] == point["value"]
    new = {devices for devices, point in shown.items() if point["is_predicted"]}
    assert new >= predicted.keys() and not new & {1, 2, 4}


def test_a_simulation_is_drawn_without_intervals_and_not_as_measured(out):
    words = [
        "--step_ms=10",
        "--exchange_mb=1",
        "--link_gbit=25",
        "--num_devices=2,8",
        "--steps=40",
    ]
    assert predict.main(["--simulate", *words, f"--output={out}"]) == 0
    [line] = read_data(out / "simulation.html")["lines"]
    assert [point["label"].split(", ")[1] for point in line["points"]] == [
        "stated",
        "simulated",
        "simulated",
    ]
    new = [point["values"] for point in line["points"] if point["is_predicted"]]
    assert {
        end
        for values in new
        for name in ("steps", "speedup", "efficiency")
        for end in values[name][1:]
    } == {None}


def test_files_are_replaced_by_the_next_call(out):
    simulation = ["--simulate", "--step_ms=10", "--exchange_mb=1", "--link_gbit=25"]
    for words in (
        ["t.md", "--num_devices=8"],
        ["t.md", "--num_devices=8", "--what_if=exchange=half"],
        [*simulation, "--num_devices=2,8", "--steps=40"],
        ["t.md", "--num_devices=8"],
    ):
        assert predict.main([*words, f"--output={out}"]) == 0
    names = {path.name for path in out.glob("*.*")}
    assert names == {
        *(
            f"{name}.{kind}"
            for name in ("prediction", "simulation")
            for kind in ("html", "png", "json")
        ),
        *("whatif.json", "whatif.png"),
    }
    assert all(is_own(out / name) for name in names)


def test_an_interval_over_decades_does_not_squash_the_picture():
    found = predicting.predict(curve(), [8, 4096])
    axes, _ = draw_figure([found]).axes
    rates = [point.rate.value for point in found.points]
    assert found.points[-1].rate.low < axes.get_ylim()[0] < 100
    assert max(rates) < axes.get_ylim()[1] < 3 * 4096 * 100
    assert "beyond" in axes.get_xlabel()
    band = axes.collections[0].get_paths()[0].get_extents()
    assert axes.get_ylim()[0] <= band.y0 and band.y1 <= axes.get_ylim()[1]


def test_bars_of_efficiency_and_losses_add_up_to_all(out):
    found = predicting.predict(curve(), [1, 8, 64])
    _, axes = draw_figure([found]).axes
    ends = {
        round(bar.get_y(), 3): bar.get_x() + bar.get_width() for bar in axes.patches
    }
    assert [*ends.values()] == pytest.approx([100.0] * 3, abs=2)


@pytest.mark.parametrize(
    "parts, weights",
    [(curves.PARTS, {"model": 1.0}), (simulating.PARTS, {"simulation": 1.0})],
)
def test_the_parts_of_a_bar_differ_in_colour(out, parts, weights):
    shares = dict.fromkeys(parts, 0.5 / len(parts))
    point = curves.PredictedPoint(8, Interval(400.0), Interval(0.5), shares)
    prediction = curves.Prediction(curve(), (point,), weights)
    _, axes = draw_figure([prediction]).axes
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1 + len(parts)


@pytest.mark.parametrize(
    "counts_machines, devices, size",
    [(False, 1, "1 device"), (True, 1, "1 machine"), (True, 8, "8 machines")],
)
def test_gains_are_of_as_many_devices_or_machines(out, counts_machines, devices, size):
    answered = dataclasses.replace(curve(), counts_machines=counts_machines)
    one = Interval(1.0)
    effects = (Effect("now", one, one, one), Effect("twice", one, one, one))
    sensitivity = Sensitivity(answered, devices, {}, effects, ())
    with matplotlib.rc_context():
        [axes] = pictures.draw_changes([sensitivity]).axes
    assert axes.get_title() == f"a, {size}"

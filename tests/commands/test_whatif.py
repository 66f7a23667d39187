"""`predict --what_if`: a folder of runs, its table and JSON, and wrong use; sizes in `predict`."""

import json
import shutil

import pytest

from rnn_scaling.commands import predict, prediction_options
from tests.support.paths import ROOT

DEFAULT = ROOT / "docs/results/default"


@pytest.fixture
def runs(tmp_path):
    for path in DEFAULT.glob("cudnn_lstm-*.json"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "runs")
    return tmp_path / "runs"


def test_without_flags_every_series_has_the_standard_changes(runs, capsys):
    words = [str(runs), "--what_if", "--format=json", f"--output={runs / 'out'}"]
    assert predict.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((runs / "out/whatif.json").read_text())
    assert len(found["series"]) == 3
    for series in found["series"]:
        first, *titles, last = [change["change"] for change in series["changes"]]
        assert first == "now"
        assert last == "all together"
        assert {"compute=2x", "batch_size=2x"} < {*titles}
        parts = [part["value"] for part in series["parts"].values()]
        assert sum(parts) == pytest.approx(1, abs=0.05)
        kinds = [statement["kind"] for statement in series["statements"]]
        assert "size-memory" in kinds


def test_another_link_is_left_out_where_the_present_one_is_unknown(runs, capsys):
    words = [
        "--series=replicated",
        "--what_if=link_gbit=100,compute=2x",
        "--format=json",
    ]
    assert predict.main([str(runs), *words]) == 0
    [series] = json.loads(capsys.readouterr().out)["series"]
    assert [change["change"] for change in series["changes"]] == ["now", "compute=2x"]
    assert "whatif-link-left-out" in [
        statement["kind"] for statement in series["statements"]
    ]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--what_if=compute=none"], ["compute is a factor"]),
        (["--what_if=compute=2x,compute=3x"], ["--what_if"]),
        (["--what_if=link_gbit=100", "--series=replicated"], ["--links=FILE"]),
        (["--seed=2"], ["--simulate"]),
    ],
)
def test_wrong_use_is_a_line_each(words, said, runs, capsys):
    assert predict.main([str(runs), *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(any(text in line for line in lines) for text in said)
    assert len(lines) == sum(line.startswith("error:") for line in lines) <= len(said)


def test_factors():
    text = "batch_size=1.5X,compute=2x,exchange=half,jitter=none,link_gbit=100"
    assert dict(prediction_options.parse_changes(text)) == {
        "batch_size": 1.5,
        "compute": 2,
        "exchange": 0.5,
        "jitter": 0,
        "link_gbit": 100,
    }
    assert prediction_options.parse_changes("true") == ()


def test_predict_adds_memory_time_and_cost(runs, capsys):
    prices = runs / "machines.toml"
    prices.write_text(
        '[[machine]]\nname = "a"\ncpu = "EPYC"\nprice_per_hour = 0.5\ncurrency = "USD"\n'
    )
    words = [
        "--num_devices=4",
        "--items=1e9",
        f"--machines={prices}",
        "--series=replicated",
    ]
    assert predict.main([str(runs), *words, "--format=json"]) == 0
    [series] = json.loads(capsys.readouterr().out)["series"]
    assert [size["devices"] for size in series["sizes"]] == [1, 2, 4]
    for size in series["sizes"]:
        assert size["cost"]["value"] == pytest.approx(
            size["seconds"]["value"] / 3600 * size["machines"] * 0.5
        )
        assert 0.5 < size["memory_gib"]["value"] < 4
    assert predict.main([str(runs), *words]) == 0
    assert "Cost (USD)" in capsys.readouterr().out

"""The cost of machines, in `report` with prices and `compare --across=machine`."""

import json
import statistics

import pytest

from rnn_scaling.commands import compare, report
from rnn_scaling.records import record
from rnn_scaling.records.own_files import is_own
from tests.commands.test_across import NEW, STEADY, machine
from tests.support.compared import run as compared_run
from tests.support.records import change_record
from tests.support.scaling_runs import skip_pictures

PRICES = """
[[machine]]
name = "old"
cpu = "Processor A"
price_per_hour = {}
currency = "EUR"
power_w = 100
[[machine]]
name = "new"
cpu = "Processor B"
price_per_hour = {}
currency = "EUR"
"""
THIRD = '[[machine]]\nname = "third"\ncpu = "Processor C"\nprice_per_hour = {}\ncurrency = "EUR"\n'


@pytest.fixture
def go(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*words, command=compare):
        across = ["--across=machine"] if command is compare else []
        return run_command(command, *words, *across)

    return call


def set_prices(tmp_path, old, new):
    (tmp_path / "machines.toml").write_text(PRICES.format(old, new))


def two_machines(tmp_path, old=1.0, new=1.0):
    machine(tmp_path / "old", {1: 1.0, 4: 3.6})
    machine(tmp_path / "new", {1: 0.8, 4: 3.0}, NEW)
    set_prices(tmp_path, old, new)


def find_held(go, *words):
    status, out, _ = go("old", "new", "--format=json", *words)
    found = json.loads(out)
    return found, {each["kind"]: each for each in found["statements"]}


def rate(folder, num_devices):
    """Return the geometric mean of the rates in the runs' records."""
    rates = []
    for path in folder.glob(f"run-{num_devices}.*json"):
        rates.append(record.read(path).throughput.items_per_second)
    return statistics.geometric_mean(rates)


def test_the_cheapest_changes_at_the_break_even_price(go, tmp_path):
    two_machines(tmp_path, old=1.0, new=0.75)
    found, told = find_held(go)
    old, new = (rate(tmp_path / name, 4) for name in ("old", "new"))
    costs = {each["machine"]: each["cost"]["value"] for each in found["machine_costs"]}
    assert costs == pytest.approx({"old": 1e9 / 3600 / old, "new": 0.75e9 / 3600 / new})
    assert told["machines-cheapest"]["subject"] == "new"
    assert told["machines-fastest"]["subject"] == "old"
    price = told["machines-break-even"]["values"]["price"]
    assert price["value"] == pytest.approx(new / old)
    assert price["low"] < price["value"] < price["high"]

    def told_at(factor):
        set_prices(tmp_path, 1.0, factor * price["value"])
        return find_held(go)[1]

    assert told_at(0.98)["machines-cheapest"]["subject"] == "new"
    assert told_at(1.02)["machines-cheapest"]["subject"] == "old"
    tied = told_at(1.0)["machines-cheapest-unclear"]["values"]["tied"]
    assert {*tied} == {"old", "new"}


def test_single_runs_name_no_winner(go, tmp_path):
    two_machines(tmp_path)
    for path in (tmp_path / "new").glob("*.r*.json"):
        path.unlink()
    told = find_held(go)[1]
    assert "machines-without-interval" in told and "machines-cheapest" not in told


def test_without_prices_nothing_is_said_of_cost(go, tmp_path):
    two_machines(tmp_path)
    (tmp_path / "machines.toml").unlink()
    found, told = find_held(go)
    assert found["machine_costs"] == []
    assert not [kind for kind in told if kind.startswith("machines-")]
    assert "cost" not in go("old", "new")[1]
    status, _, err = go("old", "new", "--output=out", command=report)
    assert status == 2 and "--machines=FILE" in err


def test_several_series_answer_with_the_fastest(go, tmp_path):
    two_machines(tmp_path, old=1.0, new=0.7)
    slow = {"unit_type": "gru", "encoder_type": "dynamic_rnn"}
    machine(tmp_path / "old", {1: 0.5}, name="gru", **slow)
    machine(tmp_path / "new", {1: 0.2}, NEW, name="gru", **slow)
    found, told = find_held(go)
    assert len(found["machine_costs"]) == 4
    assert "cudnn_lstm" in told["machines-series"]["subject"]
    assert told["machines-cheapest"]["subject"] == "new"
    assert told["machines-series-differ"]["values"] == {"others": 1, "series": 2}


def test_the_price_is_that_of_every_node(go, tmp_path):
    mode = {"variable_update": "collective_all_reduce", "num_workers": 2}
    for side, hosts, environment in (("old", "aa", {}), ("new", "ab", NEW)):
        ranks = [
            {"rank": k, "host": host, "cpu_affinity": [k]}
            for k, host in enumerate(hosts)
        ]
        for k, value in enumerate(STEADY, 1):
            made = compared_run(value, environment=environment, **mode)
            made = change_record(made, workers={"ranks": ranks})
            record.write(made, tmp_path / side / f"run.r{k}.json")

    def held_at(price):
        set_prices(tmp_path, 1.0, price)
        return find_held(go, "--force_incomparable")

    old, new = held_at(0.5)[0]["machine_costs"]
    assert old["nodes"] == 1
    assert new["nodes"] == 2
    assert old["cost"]["value"] == pytest.approx(new["cost"]["value"])
    told = held_at(0.4)[1]["machines-break-even"]
    assert told["subject"] == "new"
    assert told["values"]["price"]["value"] == pytest.approx(0.5)  # per node


def test_three_machines_and_their_files(go, tmp_path):
    two_machines(tmp_path, old=1.0, new=2.0)
    machine(tmp_path / "third", {4: 3.3}, {**NEW, "cpu": "Processor C"})
    with open(tmp_path / "machines.toml", "a") as file:
        file.write(THIRD.format(0.5))
    words = ("old", "new", "third", "--output=out")
    status, out, err = go(*words, command=report)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].startswith("result: third is the cheapest")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"machines.png", "machines.html"}
    assert all(is_own(tmp_path / "out" / name) for name in files)
    # It replaces its own files.
    assert go(*words, command=report)[0] == 0
    page = (tmp_path / "out/machines.html").read_text()
    start = page.index("{", page.index('type="application/json"'))
    lines = json.JSONDecoder().raw_decode(page[start:])[0]["lines"]
    values = {line["title"]: line["points"][0]["values"] for line in lines}
    assert [*values] == ["old", "new", "third"]
    cost, low, high = values["third"]["eur_per_billion_words"]
    rate_of_third = values["third"]["words_per_second"][0]
    assert low < cost < high
    assert cost == pytest.approx(0.5e9 / 3600 / rate_of_third, rel=1e-5)
    (tmp_path / "out/machines.png").write_text("mine")
    assert go(*words, command=report)[0] == 1
    assert go(*words, "--force", command=report)[0] == 0


def test_what_prices_cannot_be_asked(go, tmp_path):
    two_machines(tmp_path)
    for word in ("--machine=none", "--machine=old,new,old", "--machines=missing.toml"):
        status, _, err = go("old", "new", word)
        assert status == 2
        assert err.startswith("error: ") and err.count("\n") == 1
    assert compare.main(["old", "new", "--machine=old"]) == 2


def test_a_report_with_prices(go, tmp_path):
    two_machines(tmp_path, old=3.6)
    with skip_pictures():
        status, out, err = go("old", "--output=out", "--full", command=report)
    assert (status, err) == (0, "")
    made = json.loads((tmp_path / "out/report.json").read_text())
    assert "lowest-cost" in [each["kind"] for each in made["statements"]]
    row = made["series"][0]["rows"][1]
    rate_of_four = rate(tmp_path / "old", 4)
    expected = 3.6e9 / 3600 / rate_of_four
    assert row["eur_per_billion_words"]["value"] == pytest.approx(expected)
    energy = row["energy_per_word_j"]["value"]
    assert energy == pytest.approx(100 / rate_of_four)
    assert f"{expected:.2f}" in out

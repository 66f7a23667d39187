"""Test the machines of runs, their costs, and the mistakes in machines.toml."""

import pytest

from rnn_scaling.analysis import prices
from rnn_scaling.analysis.metrics import COST, METRICS
from rnn_scaling.analysis.rows import build_rows, select_metrics
from rnn_scaling.system import entry
from tests.support.records import change_record
from tests.support.scaling_runs import run

FILE = """
[[machine]]
name = "small"
cpu = "xeon"
price_per_hour = 0.72
currency = "USD"
power_w = 250

[[machine]]
name = "four"
cpu = "Xeon"
gpu = "h100"
price_per_hour = 8
currency = "USD"

[[machine]]
name = "eight"
gpu = "H100"
gpus = 8
cpu = "Xeon"
price_per_hour = 16
currency = "USD"

[[machine]]
name = "cluster"
cpu = "Xeon"
nodes = 2
price_per_hour = 1.0
currency = "USD"
"""
XEON = "Intel(R) Xeon(R) Platinum 8488C"


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(text=FILE, names="", folders=1):
        (tmp_path / "machines.toml").write_text(text)
        return prices.read_price_lists(None, names, folders)

    return call


def make_run_on(cpu, gpus=(), hosts=("a",)):
    workers = (
        {"ranks": [{"rank": k, "host": host} for k, host in enumerate(hosts)]}
        if len(hosts) > 1
        else {}
    )
    return change_record(
        run(1, 1000.0),
        environment={"cpu": cpu, "gpus": [{"name": gpu} for gpu in gpus]},
        workers=workers,
    )


@pytest.mark.parametrize(
    "cpu, gpus, hosts, name",
    [
        (XEON, [], ["a"], "small"),
        (XEON, ["NVIDIA H100 80GB HBM3"] * 8, ["a"], "eight"),
        (XEON, ["NVIDIA H100", "NVIDIA A100"], ["a"], None),
        (XEON, [], ["a", "b"], "cluster"),
    ],
)
def test_the_machine_of_a_run(cpu, gpus, hosts, name, read):
    [listed] = read()
    found = listed.match(make_run_on(cpu, gpus, hosts))
    assert (found and found.name) == name
    assert bool(listed.unmatched_warnings([make_run_on(cpu, gpus, hosts)])) is (
        name is None
    )


def test_names_choose_machines_for_all_folders_or_for_each(read):
    for names, expected in (("four", "four four"), ("four,small", "four small")):
        price_lists = read(names=names, folders=2)
        found = [price_list.match(make_run_on(None)).name for price_list in price_lists]
        assert found == expected.split()
    for names, count in (("five", 1), ("four,small,eight", 2), ("four,small", 3)):
        with pytest.raises(entry.Refusal, match="--machine="):
            read(names=names, folders=count)


def test_two_equal_matches_are_refused_unless_one_is_chosen(read):
    twice = (
        FILE
        + '[[machine]]\nname = "spot"\ncpu = "Xeon"\nprice_per_hour = 0.3\ncurrency = "USD"\n'
    )
    with pytest.raises(
        entry.Refusal, match=r"machines\.toml: small and spot .*--machine=NAME"
    ):
        read(twice)[0].match(make_run_on(XEON))
    assert read(twice, "spot")[0].match(make_run_on(XEON)).price_per_hour == 0.3


def test_costs_equal_values_by_hand(read):
    """1,000 words/s for 0.72 USD per hour are 5 million words per dollar."""
    [row] = build_rows([make_run_on(XEON)], read()[0])
    metrics = {metric.name: metric for metric in select_metrics([row])}
    assert {"words_per_usd", "energy_per_word_j"} <= metrics.keys()
    cost = metrics["usd_per_billion_words"]
    assert cost.column == "Cost of a billion words (USD)"
    assert row.metric(METRICS["items_per_money"]).value == pytest.approx(5e6)
    assert row.metric(COST).value == pytest.approx(200)
    assert row.metric(METRICS["energy_per_item_j"]).value == pytest.approx(0.25)
    [row] = build_rows([make_run_on(XEON, hosts=("a", "b"))], read()[0])
    assert row.metric(COST).value == pytest.approx(2e9 / 3600 / 1000)


ONE = '[[machine]]\nname = "a"\n'
PRICED = ONE + 'price_per_hour = 1\ncurrency = "USD"\n'


@pytest.mark.parametrize(
    "text, words",
    [
        ("[[machine]]\n", ["machine 1.name", "missing"]),
        (ONE + "prise = 3\n", ["machine 1 (a)", "unknown key prise", "price_per_hour"]),
        (ONE + "power_w = -3\n", ["machine 1 (a).power_w is -3", "above 0"]),
        (ONE + 'gpus = "8"\n', ["gpus is '8'"]),
        (PRICED + PRICED, ["machine 2 (a)", "unique name"]),
        (
            PRICED + PRICED.replace('"a"', '"b"').replace("USD", "EUR"),
            ["machine 2 (b)", "EUR", "USD", "convert"],
        ),
        ("machine = [3]\n", ["machine 1 is 3"]),
        ("a = " + "[" * 100_000, ["not TOML"]),
    ],
)
def test_a_mistake_is_one_line(text, words, read):
    with pytest.raises(entry.Refusal) as refused:
        read(text)
    [line] = refused.value.lines
    assert (
        line.startswith("machines.toml: ")
        and line.isprintable()
        and all(word in line for word in words)
    ), line


def test_all_mistakes_are_named_at_once(read):
    with pytest.raises(entry.Refusal) as refused:
        read(ONE + "prise = 3\n" + '[[machine]]\nname = "b"\npower_w = -3\n')
    assert len(refused.value.lines) == 2


def test_no_file_and_no_regular_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert prices.read_price_lists(None, num_folders=3) == [prices.NO_PRICES] * 3
    with pytest.raises(entry.Refusal, match="machines.toml: No such file"):
        prices.read_price_lists(None, "a")
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(entry.Refusal, match=str(path)):
            prices.read_price_lists(path)
    (tmp_path / "machines.toml").write_text("")
    assert prices.read_price_lists(None)[0].machines == ()

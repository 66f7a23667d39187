"""machines.toml: which of its machines made a run, and one line for each mistake in it."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis import prices
from rnn_scaling.analysis.metrics import METRICS
from rnn_scaling.analysis.rows import build_rows, select_metrics
from rnn_scaling.system import entry
from tests.support.records import changed
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
        (tmp_path / "machines.toml").write_bytes(
            text if isinstance(text, bytes) else text.encode()
        )
        return prices.read(None, names, folders)

    return call


def made_on(cpu, gpus=(), hosts=("a",)):
    workers = (
        {"ranks": [{"rank": k, "host": host} for k, host in enumerate(hosts)]}
        if len(hosts) > 1
        else {}
    )
    return changed(
        run(1, 1000.0),
        environment={"cpu": cpu, "gpus": [{"name": gpu} for gpu in gpus]},
        workers=workers,
    )


@pytest.mark.parametrize(
    ("cpu", "gpus", "hosts", "name"),
    [
        (XEON, [], ["a"], "small"),
        (XEON, ["NVIDIA H100 80GB HBM3"] * 4, ["a"], "four"),
        (XEON, ["NVIDIA H100 80GB HBM3"] * 8, ["a"], "eight"),
        (XEON, ["NVIDIA H100", "NVIDIA A100"], ["a"], None),
        (XEON, [], ["a", "b"], "cluster"),
        (XEON, [], ["a", "a"], "small"),
        ("AMD EPYC 9654", [], ["a"], None),
        (None, [], ["a"], None),
    ],
)
def test_the_machine_of_a_run(cpu, gpus, hosts, name, read):
    [listed] = read()
    found = listed.match(made_on(cpu, gpus, hosts))
    assert (found and found.name) == name
    assert bool(listed.unmatched([made_on(cpu, gpus, hosts)])) is (name is None)


def test_names_choose_for_all_folders_or_for_each(read):
    assert [
        listed.match(made_on(None)).name for listed in read(names="four", folders=2)
    ] == ["four", "four"]
    assert [
        listed.match(made_on(XEON)).name
        for listed in read(names="four,small", folders=2)
    ] == ["four", "small"]
    for names, count in (("five", 1), ("four,small,eight", 2)):
        with pytest.raises(entry.Refusal, match="--machine="):
            read(names=names, folders=count)


def test_two_that_match_equally_well_are_refused_unless_one_is_chosen(read):
    twice = (
        FILE
        + '[[machine]]\nname = "spot"\ncpu = "Xeon"\nprice_per_hour = 0.3\ncurrency = "USD"\n'
    )
    with pytest.raises(
        entry.Refusal, match=r"machines\.toml: small and spot .*--machine=NAME"
    ):
        read(twice)[0].match(made_on(XEON))
    assert read(twice, "spot")[0].match(made_on(XEON)).price_per_hour == 0.3


def test_cost_by_hand(read):
    """1,000 words/s and 0.72 USD an hour: 5 million words for a dollar, 200 dollars for a billion."""
    rows = build_rows([made_on(XEON)], read()[0])
    named = {metric.name: metric for metric in select_metrics(rows)}
    assert {
        "words_per_usd",
        "usd_per_billion_words",
        "energy_per_word_j",
    } <= named.keys()
    assert rows[0].metric(METRICS["items_per_money"]).value == pytest.approx(5e6)
    assert rows[0].metric(METRICS["money_per_billion_items"]).value == pytest.approx(
        200
    )
    assert rows[0].metric(METRICS["energy_per_item_j"]).value == pytest.approx(0.25)
    assert named["usd_per_billion_words"].column == "Cost of a billion words (USD)"
    [row] = build_rows([made_on(XEON, hosts=("a", "b"))], read()[0])
    assert row.metric(METRICS["money_per_billion_items"]).value == pytest.approx(
        2e9 / 3600 / 1000
    )


def test_ends_of_a_cost_are_those_of_the_rate(read):
    runs = [
        changed(made_on(XEON), **{}),
        changed(run(1, 1100.0), environment={"cpu": XEON}),
    ]
    [row] = build_rows(runs, read()[0])
    cost = row.metric(METRICS["money_per_billion_items"])
    assert cost.ends == pytest.approx(
        (0.72e9 / 3600 / row.rate.high, 0.72e9 / 3600 / row.rate.low)
    )
    assert cost.relative_error == pytest.approx(row.rate.relative_error)


ONE = '[[machine]]\nname = "a"\n'
PRICED = ONE + 'price_per_hour = 1\ncurrency = "USD"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[machine]]\n", ["machine 1.name", "missing"]),
        (ONE + "prise = 3\n", ["machine 1 (a)", "unknown key prise", "price_per_hour"]),
        (ONE + "power_w = -3\n", ["machine 1 (a).power_w is -3", "above 0"]),
        (ONE + "price_per_hour = 0\n", ["price_per_hour is 0", "above 0"]),
        (ONE + "price_per_hour = nan\n", ["price_per_hour is nan", "above 0"]),
        (ONE + "price_per_hour = true\n", ["price_per_hour is True"]),
        (ONE + "price_per_hour = 1979-05-27\n", ["price_per_hour is datetime"]),
        (ONE + 'gpus = "8"\n', ["gpus is '8'"]),
        (ONE + "cpu = [1]\n", ["cpu is [1]", "a name"]),
        (ONE + 'cpu = "a\\u001b[31m"\n', ["cpu is", "a name"]),
        (ONE + "price_per_hour = 1\n", ["currency"]),
        (PRICED + PRICED, ["machine 2 (a)", "unique name"]),
        (
            PRICED + PRICED.replace('"a"', '"b"').replace("USD", "EUR"),
            ["machine 2 (b)", "EUR", "USD", "convert"],
        ),
        ('[[machine]]\nname = "a\\u001b[31m"\n', ["machine 1", "a name"]),
        ('[[machine]]\nname = "a,b"\n', ["comma"]),
        ('"\\u001b" = 3\n', ["unknown key"]),
        ("[machine]\nname = 3\n", ["[[machine]]"]),
        ("machine = 3\n", ["[[machine]]"]),
        ("machine = [3]\n", ["machine 1 is 3"]),
        ('[[machines]]\nname = "a"\n', ["machines", "[[machine]]"]),
        ("a = [[[", ["not TOML"]),
        ("a = " + "[" * 100_000, ["not TOML"]),
        ("a = " + "9" * 5000, ["machines.toml"]),
        (b"\xff\xfe", ["not TOML"]),
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
    assert prices.read(None, num_folders=3) == [prices.NO_PRICES] * 3
    with pytest.raises(entry.Refusal, match="machines.toml: No such file"):
        prices.read(None, "a")
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(entry.Refusal, match=str(path)):
            prices.read(path)
    (tmp_path / "machines.toml").write_text("")
    assert prices.read(None)[0].machines == ()

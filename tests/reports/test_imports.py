"""Results that follow from imported rates: baselines, speedups and conspicuous rates."""

import csv
import dataclasses
import json

import pytest

from rnn_scaling.analysis.slow_links import find_slow_links
from rnn_scaling.records.parts import LogFinding
from rnn_scaling.reports import imports, log_findings
from rnn_scaling.reports.wording import write_sentence
from tests.support import log_samples
from tests.support.log_samples import parse


def collect(text, name="tf_cnn_benchmarks", is_audited=False):
    reading = dataclasses.replace(parse(name, text), source="x.log")
    return imports.collect([reading], is_audited)


def rates(text, name="tf_cnn_benchmarks"):
    return json.loads(imports.render_json(collect(text, name)))["rates"]


def speedups(text):
    return [rate["speedup"] for rate in rates(text)]


def kinds(text, name="tf_cnn_benchmarks"):
    return [
        statement.kind for statement in imports.make_statements(collect(text, name))
    ]


def tf_cnn(gpus, rate, update="replicated", more="", batch=64, model="vgg16"):
    """Return a run's output, with `more` as additional lines of its header."""
    devices = ", ".join(f"'/gpu:{i}'" for i in range(gpus))
    return (
        f"TensorFlow:  1.15\nModel:       {model}\nMode:        training\n"
        f"Batch size:  {gpus * batch} global\n             {batch} per device\n"
        f"Devices:     [{devices}]\nData format: NCHW\nVariables:   {update}\n"
        f"{more}==========\ntotal images/sec: {rate:.2f}\n"
    )


def test_runs_on_one_device_serve_all_modes_of_their_model():
    text = tf_cnn(1, 100, "parameter_server") + tf_cnn(4, 380)
    text += tf_cnn(4, 300, "independent") + tf_cnn(1, 50, model="alexnet")
    assert speedups(text) == pytest.approx([1.0, 3.8, 3.0, 1.0])
    found = rates(text)[1]
    assert found["efficiency"] == pytest.approx(0.95)
    assert found["baseline"] == ["x.log:10"]
    assert kinds(text).count("import-lent-baseline") == 2
    # If several other modes could be the baseline, the fastest one is used.
    lent = tf_cnn(1, 80, "parameter_server") + tf_cnn(1, 100, "independent")
    assert speedups(lent + tf_cnn(4, 380))[-1] == pytest.approx(3.8)


@pytest.mark.parametrize(
    "one, four",
    [
        ({"more": "Precision:   fp16\n"}, {"more": "Precision:   fp32\n"}),
        ({"batch": 32}, {}),
    ],
)
def test_other_work_is_no_baseline(one, four):
    text = tf_cnn(1, 100, **one) + tf_cnn(4, 380, **four)
    assert speedups(text) == [1.0, None]


def test_a_lone_worker_of_a_cluster_is_no_baseline_of_one_machine():
    alone = tf_cnn(1, 80).replace("'/gpu:0'", "'/job:worker/task:0/gpu:0'")
    assert speedups(alone + tf_cnn(4, 380))[-1] is None


def test_a_baseline_is_of_one_work_and_says_of_which_scaling():
    ones = tf_cnn(1, 100, batch=32) + tf_cnn(1, 200, batch=128)
    found = rates(ones + tf_cnn(4, 380, batch=32))[-1]
    assert found["speedup"] == pytest.approx(3.8)
    assert found["scaling"] == "weak"
    found = rates(tf_cnn(1, 200, batch=128) + tf_cnn(4, 380, batch=32))[-1]
    assert found["speedup"] == pytest.approx(1.9)
    assert found["scaling"] == "strong"


def test_repeats_are_one_row_with_an_interval():
    text = tf_cnn(1, 100) + tf_cnn(1, 101) + tf_cnn(4, 380) + tf_cnn(4, 420)
    *_, four, again = rates(text)
    assert four["runs"] == 2 and four["mean_rate"] == pytest.approx(400, rel=0.01)
    assert four["speedup"] == again["speedup"] == pytest.approx(3.97, rel=0.01)
    low, high = four["speedup_interval"]
    assert low < four["speedup"] < high
    assert four["baseline"] == ["x.log:10", "x.log:20"]
    assert "±" in imports.render_markdown(collect(text))


@pytest.mark.parametrize(
    "rates, lines",
    [
        ([400, 402, 398, 250, 401], [40]),
        # below the others, but not slow
        ([100, 140, 60, 120, 80, 70, 130, 60], []),
        # too few repeats
        ([400, 400, 400, 800], []),
    ],
)
def test_a_run_far_slower_than_its_repeats_is_reported(rates, lines):
    text = "".join(tf_cnn(4, rate) for rate in rates) + tf_cnn(1, 100)
    found = [
        each
        for each in imports.make_statements(collect(text))
        if each.kind == "import-slow-repeat"
    ]
    assert [each.subject for each in found] == [f"x.log:{line}" for line in lines]
    for each in found:
        assert each.values["rate"] == 250
        assert each.values["usual"] == 400
        assert each.values["count"] == 4
        assert each.values["devices"] == 4
        assert "x.log:40" in imports.render_markdown(collect(text))


@pytest.mark.parametrize(
    "other, kind", [(403.04, "log-start-up-alike"), (402.0, "log-start-up")]
)
def test_a_start_up_states_another_rate_only_if_it_is_printed_differently(other, kind):
    finding = LogFinding(kind="start-up", count=2, total=20, taken=403.01, other=other)
    [found] = log_findings.state_findings("a.log", [finding], "items")
    assert found.kind == kind
    assert write_sentence(found).count("403.0") == (kind == "log-start-up")


def test_without_one_device_the_speedup_is_that_from_the_fewest():
    text = tf_cnn(8, 800) + tf_cnn(16, 1528)
    assert speedups(text) == [None, None]
    [found] = imports.make_statements(collect(text))
    assert found.kind == "import-from-smallest"
    assert found.values["first"] == 8
    assert found.values["last"] == 16
    assert found.values["speedup"] == pytest.approx(1.91)
    assert found.values["percent"] == pytest.approx(95.5)


def links(n, rate=lambda a, b: 20.0):
    return {(a, b): rate(a, b) for a in range(n) for b in range(n) if a != b}


@pytest.mark.parametrize(
    "rates, named",
    [
        (links(8), []),
        (
            links(8, lambda a, b: 5.0 if (a, b) == (2, 5) else 20.0),
            [("one-way-link", "2 to 5")],
        ),
        (
            links(8, lambda a, b: 5.0 if {a, b} == {2, 5} else 20.0),
            [("slow-links", "2 and 5")],
        ),
        (links(8, lambda a, b: 5.0 if 3 in (a, b) else 20.0), [("slow-device", "3")]),
        # Two sockets: half of the links, no outlier.
        (links(8, lambda a, b: 20.0 if a // 4 == b // 4 else 9.0), []),
        (links(2), []),
        ({}, []),
    ],
)
def test_links_that_stand_out(rates, named):
    assert [found[:2] for found in find_slow_links(rates)] == named


def test_slow_links_of_a_log_are_named_with_their_line():
    text = log_samples.P2P.replace("5.27", "2.27").replace("8.25", "80.25")
    first, second = imports.make_statements(collect(text, "p2p_bandwidth_latency"))
    assert first.kind == "import-one-way-link"
    assert first.subject == "x.log:15"
    assert first.values["links"] == "1 to 0"
    assert first.values["slow"] == 2.27
    assert second.values["links"] == "0 to 1"
    assert second.values["unit"] == "us"
    assert second.values["slow"] == pytest.approx(80.25)


HOSTILE = ("=cmd|'/C calc'!A1", "\t=1", "a\x1b]0;title\x07b\x1b[31m")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", ["csv", "markdown", "json"])
def test_no_formula_and_no_escape_leaves_the_importers(text, form):
    log = parse("tf_cnn_benchmarks", tf_cnn(1, 100, model=text))
    log = dataclasses.replace(log, notes=(f"a note on {text}",), source=f"{text}.log")
    out = imports.RENDER[form](imports.collect([log], is_audited=False))
    assert not any(ord(c) < 32 and c != "\n" for c in out.replace("\\t", ""))
    if form != "csv":
        return
    cells = [cell for row in csv.reader(out.splitlines()) for cell in row]
    assert not [cell for cell in cells if cell.lstrip()[:1] in tuple("=+-@")]
    assert "100.00" in cells

"""Rows as curves: the points, and the recorded exchange, links, jitter and cores."""

import json
import math

import pytest

from rnn_scaling.analysis.exchange import count_exchanged_bytes
from rnn_scaling.analysis.prediction import from_rows
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    ALGORITHMS,
    STRONG,
    WEAK,
    CannotPredict,
    Link,
)
from rnn_scaling.analysis.prediction.from_rows import Links
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.commands.prediction_series import read_links
from rnn_scaling.config import registry
from rnn_scaling.records.decoding import encode
from rnn_scaling.system import entry
from tests.support.paths import ROOT
from tests.support.records import change_record
from tests.support.scaling_runs import (
    cluster,
    make_attributed_runs,
    make_timed_run,
    make_weak_and_strong_runs,
)

PARAMETERS = {
    "trainable": 2500,
    "bytes": 10_000,
    "embedding_bytes": 4000,
    "row_bytes": 40,
}
LINKS = ROOT / "docs/results/links/links.json"


def curves(records, links=from_rows.NO_LINKS):
    return [
        series.curve
        for series in from_rows.make_measured_series(build_rows(records), links)
    ]


def make_replicated_run(n, **config):
    run = make_timed_run(n, 100 * n, variable_update="replicated", **config)
    batches = {
        **encode(run.batches),
        "tower_positions": [[50] * n] * 40,
        "tower_items": [[1000] * n] * 40,
    }
    reduced = {"all_reduce": [{"algorithm": "rechd", "shards": 1}]}
    return change_record(run, parameters=PARAMETERS, resolved=reduced, batches=batches)


def test_each_series_has_its_points_with_their_errors():
    independent, replicated_ = curves(make_attributed_runs())
    assert [(p.devices, round(p.rate), p.degrees) for p in independent.points] == [
        (1, 100, 4),
        (2, 180, 4),
    ]
    assert all(0 < p.error < 0.01 for p in independent.points)
    assert independent.knowledge.algorithm == "none"
    assert not independent.knowledge.independent
    knowledge = replicated_.knowledge
    assert [p.devices for p in knowledge.independent] == [1, 2]
    assert knowledge.step_s == pytest.approx(10, rel=0.01)
    assert len(knowledge.step_times) == 30
    scalings = [curve.scaling for curve in curves(make_weak_and_strong_runs())]
    assert scalings == [WEAK, WEAK, STRONG]


def test_independent_runs_of_another_program_have_no_exchange():
    runs = [
        make_timed_run(n, 100 * n, trainer="mine", variable_update=mode)
        for n in (1, 2)
        for mode in ("independent", "replicated")
    ]
    algorithms = [curve.knowledge.algorithm for curve in curves(runs)]
    assert algorithms == ["none", ""]


@pytest.mark.parametrize(
    "options", [{}, {"sparse_gradients": "densify"}, {"compress_gradients": "int8"}]
)
def test_bytes_are_split_as_they_are_counted(options):
    runs = [make_replicated_run(n, **options) for n in (1, 2)]
    known = curves(runs)[0].knowledge
    for n in (2, 3, 8):
        counted = count_exchanged_bytes(runs[1], n)
        assert counted > 0
        split = 2 * known.summed_bytes + n * known.gathered_bytes
        assert split == pytest.approx(counted)
    assert known.algorithm == "tree"


def test_a_stated_link_needs_the_bytes():
    rows = build_rows(make_attributed_runs())
    assert [series.refusal for series in from_rows.make_measured_series(rows)] == [
        None,
        None,
    ]
    none, unknown = from_rows.make_measured_series(rows, Links(stated=Link(0.0, 1e9)))
    assert none.refusal is None and unknown.refusal.kind == "predict-unknown-bytes"
    with pytest.raises(CannotPredict):
        unknown.predict([8])


def test_links_are_those_of_the_exchange():
    measured = {"rechd": Link(1e-6, 1e9), "": Link(2e-6, 2e9)}
    stated = Link(5e-6, 1e8)

    def used(records, *links):
        return curves(records, Links(*links))[-1].knowledge.links

    runs = [make_replicated_run(1), make_replicated_run(2)]
    assert used(runs) == () and used(runs, measured) == (measured["rechd"],)
    assert used(make_attributed_runs(), measured) == (measured[""],)
    assert used(runs, measured, stated) == (stated,)
    inside = Link(1e-6, 1e9, 8)
    assert used(runs, measured, stated, 8) == (inside, stated)
    assert used(runs, {}, None, 8) == (Link(0.0, math.inf, 8),)
    workers = [cluster(n, 100 * n) for n in (1, 2)]
    assert used(workers, measured) == ()  # the links are inside one process
    text = "50 Mbit/s asked; 40 Mbit/s to 90 Mbit/s of payload measured, 2 nodes sending at once; round trip 0.06 ms"
    workers = [cluster(n, 100 * n, workers={"link": text}) for n in (1, 2)]
    assert used(workers) == (Link(3e-5, pytest.approx(6e7 / 8)),)


@pytest.mark.parametrize("far, size", [("SYS", 2), ("NV2", 4)])
def test_where_the_exchange_leaves_a_socket_or_a_machine_follows_from_the_topology(
    far, size
):
    near = {(0, 1), (1, 0), (2, 3), (3, 2)}
    cells = [
        ["X" if a == b else "PIX" if (a, b) in near else far for b in range(4)]
        for a in range(4)
    ]
    head = "\t" + "\t".join(f"GPU{k}" for k in range(4)) + "\tCPU Affinity"
    text = "\n".join(
        [head, *("\t".join([f"GPU{k}", *row, "0-7"]) for k, row in enumerate(cells))]
    )
    gpus = {"resolved": {"device_type": "GPU"}, "environment": {"topology": text}}
    runs = [
        change_record(make_timed_run(n, 100 * n, variable_update="replicated"), **gpus)
        for n in (1, 2)
    ]
    assert curves(runs)[0].knowledge.links == (Link(0.0, math.inf, size),)


def test_every_all_reduce_of_the_registry_has_a_closed_form():
    for name, row in registry.ALL_REDUCES.items():
        assert row.messages in ALGORITHMS, name
        assert exchange_s(row.messages, 4, 1e8, 0.0, [Link(0, 1e9)]) > 0


def test_stored_links_give_back_the_fitted_times():
    links = read_links(LINKS)
    for series in json.loads(LINKS.read_text())["series"]:
        if series["kind"] == "all_reduce":
            fit = series["fit"]
            algorithm = registry.ALL_REDUCES[series["name"]].messages
            for size in (4, 1_000_000):
                expected = 1e-6 * fit["alpha_us"] + size / (1e9 * fit["beta_gb_per_s"])
                found = exchange_s(
                    algorithm, series["ranks"], size, 0.0, [links[series["name"]]]
                )
                assert found == pytest.approx(expected)
    assert links[""] in links.values()


@pytest.mark.parametrize("text", ["{", '{"schema": "rnn_scaling.links/1"}', None])
def test_a_file_that_has_no_links_is_one_line(tmp_path, text):
    path = tmp_path / "links.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(entry.Refusal) as error:
        read_links(path)
    assert len(error.value.lines) == 1 and str(path) in error.value.lines[0]

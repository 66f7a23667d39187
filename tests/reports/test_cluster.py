"""Series over workers: rows, baselines, commands, late and lost ranks, and initialisation against training."""

import pytest

from rnn_scaling.analysis import folder_rows
from rnn_scaling.analysis.attribution import EXCHANGE
from rnn_scaling.analysis.audit.auditing import audit
from rnn_scaling.analysis.comparison import judgement
from rnn_scaling.analysis.comparison.judgement import Question
from rnn_scaling.analysis.metrics import METRICS
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.analysis.series_titles import group_by_series
from rnn_scaling.reports import (
    cautions,
    cluster,
    conclusions,
    csv_table,
    json_report,
    repeat_commands,
    start_up,
    table,
)
from tests.support.answers import lead
from tests.support.records import change_record, read_fields
from tests.support.scaling_runs import cluster as run
from tests.support.scaling_runs import make_timed_run, summarise_records, write_folder
from tests.support.views import render_json, render_page

SYNC, ALONE, ASYNC = (
    "collective_all_reduce",
    "distributed_independent",
    "async_parameter_server",
)


def folder(**config):
    """Return three runs each on 1, 2 and 4 workers, with and without exchange.

    Rank 2 of 4 is late for the exchange.
    """
    runs = []
    for mode, rates in ((SYNC, (1000, 1900, 3400)), (ALONE, (1000, 1960, 3800))):
        for n, rate in zip((1, 2, 4), rates):
            late = 2 if (mode, n) == (SYNC, 4) else None
            options = {"late": late, "variable_update": mode, **config}
            runs += [run(n, rate, k, **options) for k in range(3)]
    return runs


def test_workers_are_the_axis_and_their_devices_the_number():
    """Expect a separate series for two devices per worker, with the common baseline."""
    runs = [
        *(run(n, 990 * n) for n in (1, 2, 4)),
        *(run(n, 1800 * n, devices=2) for n in (1, 2)),
    ]
    one_each, two_each = group_by_series(
        build_rows([*runs, make_timed_run(2, 1900, variable_update="replicated")])
    )[:2]
    assert [(row.num_workers, row.num_devices) for row in one_each] == [
        (1, 1),
        (2, 2),
        (4, 4),
    ]
    assert [(row.num_workers, row.num_devices) for row in two_each] == [(1, 2), (2, 4)]
    assert {row.baseline for row in (*one_each, *two_each)} == {one_each[0]}
    made = summarise_records(runs)
    assert [each.title for each in made.series] == [
        f"cudnn_lstm, {SYNC}",
        f"cudnn_lstm, {SYNC}, num_devices=2",
    ]
    assert made.series[1].largest_row.devices == "2 workers of 2 devices each"
    words = repeat_commands.list_commands(made.series[1])[1].split()
    modes = f"--variable_update={ALONE},{SYNC}"
    assert {"--num_devices=1", "--num_workers=1", modes} <= set(words)


def test_the_loss_is_split_against_workers_that_exchange_nothing():
    made = summarise_records(folder())
    loss = made.series[0].largest_loss
    assert {part.name for part in loss.significant_parts} == {"contention", EXCHANGE}
    assert (
        f"{next(part for part in loss.parts if part.name == EXCHANGE).points.value:.0f}"
        == "10"
    )
    alone = summarise_records(
        [each for each in folder() if each.config["variable_update"] == SYNC]
    )
    commands = conclusions.list_missing_run_commands(alone.series[0])
    for n, command in zip((1, 4), commands, strict=True):
        assert {f"--num_workers={n}", f"--variable_update={ALONE}"} <= {
            *command.split()
        }


def test_the_answer_names_workers_and_what_they_trained():
    stale = {"staleness": {"0": 100, "1": 100, "3": 100}}
    lost = {"lost": [{"rank": 3, "host": "d", "error": "no sign of life for 10 s."}]}
    runs = [
        run(n, 900 * n, k, workers=stale, variable_update=ASYNC)
        for n in (1, 4)
        for k in range(3)
    ]
    runs[-1] = change_record(
        runs[-1], workers={**read_fields(runs[-1])["workers"], **lost}
    )
    answer = lead(summarise_records(runs))
    assert answer["stale-gradients"].values["mean"] == pytest.approx(4 / 3)
    values = answer["workers-lost"].values
    assert values["lost"] == 1
    assert values["runs"] == 3
    assert values["workers"] == 4


def test_initialisation_and_training_add_up_and_give_three_speedups():
    """Recompute the times of 1 and 4 workers from their rates and start-up times.

    Each worker has 1000 words per batch. Initialisation takes 4.5 s with one worker and
    6 s with four, and the first batch takes 5 s. The rest of the 40,000 words are 39,000
    at 1000 words/s and 36,000 at 3400 words/s.
    """
    rows = start_up.start_ups(summarise_records(folder()).series[0].rows)
    assert [each.row.num_workers for each in rows] == [1, 2, 4]
    one, most = rows[0], rows[-1]
    assert round(one.initialisation, 6) == 4.5
    assert round(most.initialisation, 6) == 6.0
    assert most.training == pytest.approx(5 + 36_000 / 3400, rel=1e-3)
    [statement] = start_up.make_section(
        summarise_records(folder()).series[0].rows, ""
    ).notes
    values = statement.values
    assert values["by_training"] == pytest.approx(one.training / most.training)
    assert values["by_whole"] == pytest.approx(
        (4.5 + 44 + 0.5) / (6 + most.training + 0.5), rel=1e-3
    )
    assert values["by_rate"]["value"] > values["by_training"] > values["by_whole"] > 1
    assert (
        start_up.start_ups(summarise_records([make_timed_run(2, 1800)]).series[0].rows)
        == []
    )


def test_metrics_of_workers_are_of_all_of_them():
    """FLOP/s against the peak of all workers' devices; memory of the worker that has the most."""
    made = change_record(
        run(4, 4000), flops_per_item=1e6, memory={"peak_process_bytes": 2**30}
    )
    made = change_record(
        made, resolved={"devices": ["/cpu:0"], "peak_flops_per_second": 2e9}
    )
    ranks = read_fields(made)["workers"]["ranks"]
    ranks[2]["peak_process_bytes"] = 3 * 2**30
    row = summarise_records([change_record(made, workers={"ranks": ranks})]).rows[0]
    assert row.metric(METRICS["share_of_peak"]).value == pytest.approx(
        4e9 / 8e9, rel=0.01
    )
    assert row.metric(METRICS["peak_memory_gib"]).value == pytest.approx(3)


def test_many_ranks_are_folded():
    many = run(64, 64_000, batches=20, late=40)
    told = cluster.list_late_ranks(many)
    grid = cluster.make_ranks_grid(told, "words")
    head, lines = grid.head, grid.lines
    assert told.late_ranks == (40,)
    assert [line[0].split(", ")[1] for line in lines] == [
        "slowest",
        "median",
        "fastest",
    ]
    assert lines[0][0] == "40, slowest"
    assert lines[0][head.index("Last in batches")] == "10"
    assert [line[0].split()[0] for line in cluster.make_phases_grid(many).lines] == [
        "0",
        "32",
        "63",
        "the",
    ]


@pytest.mark.parametrize(
    "view, name",
    [(table, "table.md"), (csv_table, "table.csv"), (json_report, "report.json")],
)
def test_the_audit_has_nothing_against_a_consistent_report(view, name, tmp_path):
    runs = [run(n, 1700 * n, k, devices=2) for n in (1, 2) for k in (0, 1)]
    (tmp_path / name).write_bytes(view.render(summarise_records([*folder(), *runs])))
    assert not audit(tmp_path / name).findings


def test_the_audit_compares_a_record_with_what_its_ranks_timed(tmp_path):
    assert not audit(
        write_folder(tmp_path / "good", folder(data_source="text"))
    ).findings
    wrong = run(2, 1900, data_source="text")
    fields = read_fields(wrong)["workers"]
    fields["ranks"][1]["items"][12] += 500
    found = audit(
        write_folder(
            tmp_path / "bad",
            [run(1, 1000, data_source="text"), change_record(wrong, workers=fields)],
        )
    ).findings
    columns = [place.column for finding in found for place in finding.places]
    assert columns == ["batches.items[12]"]


def test_two_workers_of_one_device_are_compared_with_two_devices_of_one_process(
    tmp_path,
):
    one = [make_timed_run(2, 1900, k, variable_update="replicated") for k in range(3)]
    two = [run(2, 1880, k) for k in range(3)]
    folders = [
        write_folder(tmp_path / name, runs) for name, runs in (("a", one), ("b", two))
    ]
    sides = judgement.read(*folders)
    question = Question(accepted=frozenset({"cpu_model"}))
    told = judgement.judge(*sides, question)
    assert {each.name for each in told.changes} >= {
        "variable_update",
        "num_devices",
        "num_workers",
    }
    assert [each.gate for each in told.results] == ["ok"], told.differences


def test_what_makes_workers_no_machines_is_a_caution():
    """Expect cautions for workers on one host, emulated networks and unequal windows.

    The window is 20 % longer by the clock of rank 0. A run of one worker has no
    caution.
    """
    together = read_fields(run(2, 1900))["workers"]
    together["ranks"][1]["host"] = "host0"
    link = {"link": "200mbit, <5 ms>", "window_seconds": 38.0}
    made = summarise_records(
        [run(1, 1000), change_record(run(2, 1900), workers={**together, **link})]
    )
    found = {each.kind: each for each in cautions.make_statements(made)}
    assert found["workers-on-one-host"].values == {"runs": 1, "total": 2}
    assert found["network-simulated"].subject == link["link"]
    assert found["window-off"].values["most"] == pytest.approx(0.2, abs=0.01)
    assert not cautions.make_statements(summarise_records([run(1, 1000), run(2, 1900)]))
    page = render_page(made)
    assert "&lt;5 ms&gt;" in page and "<5 ms>" not in page


def test_a_rank_without_the_kind_of_its_failure_is_named():
    lost = [
        {"rank": 1, "error": "host b ended."},
        {"rank": 2, "error": "worker 2 ended.", "failure": "lost"},
    ]
    notes = cluster.make_ranks_notes(
        change_record(run(2, 1900), workers={"lost": lost}), None
    )
    subjects = [note.subject for note in notes if note.kind == "rank-lost"]
    assert subjects == ["rank 1: host b ended", "worker 2 ended"]


def test_data_have_the_workers_and_the_seconds_of_their_start(tmp_path):
    first = render_json(summarise_records(folder()))["series"][0]
    assert first["initialisation"][-1]["num_workers"] == 4
    rows = folder_rows.load(write_folder(tmp_path / "runs", folder())).to_records()
    assert {(row["num_workers"], row["num_devices"]) for row in rows} == {
        (1, 1),
        (2, 2),
        (4, 4),
    }

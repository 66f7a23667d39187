"""Our own reports, audited: the tables of consistent records have no finding, and faults in them are found."""

from __future__ import annotations

import dataclasses
import json
import random
import re

import pytest

from rnn_scaling.audit.auditing import audit
from rnn_scaling.records import folder
from rnn_scaling.records.record import write
from rnn_scaling.reports import csv_table, json_report, summary_builder, table
from tests.support import compared
from tests.support.audit_tables import run
from tests.support.records import make_record

RENDER = {"table.md": table.render, "table.csv": csv_table.render, "report.json": json_report.render}
BATCH, BATCHES, WORDS = 64, 20, 60


def record(devices: int, efficiency: float, repeat: int, **config):
    """A run of 20 batches whose seconds vary by a per cent, and its whole rate from run to run by half a one."""
    rng = random.Random(f"{devices} {repeat} {sorted(config.items())}")
    together = config.get("global_batch_size") or BATCH * devices
    each = {} if "global_batch_size" in config else {"batch_size": BATCH}
    made = compared.run(num_devices=devices, **each, **config)
    mean = together * WORDS / (5000.0 * devices * efficiency) * rng.uniform(0.995, 1.005)
    seconds = [mean * rng.uniform(0.99, 1.01) for _ in range(BATCHES)]
    words = [together * WORDS] * BATCHES
    return make_record(config=made.config, seconds=[9.0, *seconds], items=[words[0], *words], warmup=1)


def records(repeats: int):
    """Weak, strong and strong with a remainder, on one to eight devices, and a run that failed."""
    settings = [
        {"variable_update": "independent"},
        {"variable_update": "replicated"},
        {"variable_update": "replicated", "global_batch_size": 64},
        {"variable_update": "replicated", "global_batch_size": 100},
    ]
    efficiencies = {1: 1.0, 2: 0.93, 3: 0.9, 4: 0.85, 8: 0.7}
    made = [
        record(devices, efficiency, repeat, **config)
        for config in settings
        for devices, efficiency in efficiencies.items()
        for repeat in range(repeats)
    ]
    return [*made, compared.run(status="failed", num_devices=16, batch_size=BATCH, variable_update="independent")]


@pytest.fixture(scope="module")
def rendered():
    """(repeats, file) -> text."""
    made = {}
    for repeats in (1, 2, 5):
        runs = tuple(folder.RunFile(f"{k}.json", one) for k, one in enumerate(records(repeats)))
        made[repeats] = summary_builder.summarise(folder.Folder(runs, ()), "results")
    return {(n, name): render(made[n]).decode() for n in made for name, render in RENDER.items()}


@pytest.mark.parametrize("name", RENDER)
@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_consistent_records_have_no_finding_in_any_output(tmp_path, rendered, repeats, name):
    report = run(tmp_path, rendered[repeats, name], name)
    assert (report.findings, report.error) == ([], "")
    # The points of efficiency are no field of a row.
    # Of a row's loss, and of the batches of one run.
    unread = ("Whole loss", "within_run", "contention_points")
    assert all(any(name in note for name in unread) and "Speedup" not in note for note in report.notes), report.notes
    assert report.tables >= (1 if name == "table.csv" else 4)
    assert report.comparisons > 60  # most of the 20 rows were read, with speedups and efficiencies


def test_consistent_records_of_weak_and_strong_runs_have_no_finding(tmp_path):
    """A batch of 100 on three devices is 34, 33 and 33."""
    for k, one in enumerate(records(1)):
        write(one, tmp_path / f"{k}.json")
    report = audit(tmp_path)
    assert (report.findings, report.error) == ([], "") and report.comparisons > 120
    assert sum("is 60 items a sample" in fact and "(strong scaling)" in fact for fact in report.facts) == 2
    wrong = next(one for one in records(1) if (one.config["global_batch_size"], one.config["num_devices"]) == (100, 3))
    wrong = dataclasses.replace(wrong, config={**wrong.config, "global_batch_size": 99})
    write(wrong, tmp_path / "wrong.json")
    assert {(f.source, f.check) for f in audit(tmp_path).findings} == {(f"{tmp_path}/wrong.json", "record_parts")}


def test_weak_records_of_several_batch_sizes_are_no_mix(tmp_path):
    for k, (devices, size) in enumerate([(1, 64), (2, 64), (4, 32), (8, 32)]):
        one = record(devices, 1 - 0.02 * devices, 0)
        words = [devices * size * WORDS] * (BATCHES + 1)
        seconds = [n / 5000 / devices for n in words]
        config = {**one.config, "batch_size": size}
        write(make_record(config=config, seconds=seconds, items=words, warmup=1), tmp_path / f"{k}.json")
    assert audit(tmp_path).findings == []


NUMBER = r"-?\d+(?:\.\d+)?"


def changed_cell(text: str, row: int, column: str, factor: float) -> str:
    """A table with one number of one column changed: Markdown by line, CSV by line."""
    lines = text.split("\n")
    heads = [k for k, line in enumerate(lines) if column in line]
    if lines[0].startswith("schema,"):
        where = lines[0].split(",").index(column) + 1  # the title has a comma
    else:
        where = [cell.strip() for cell in lines[heads[0]].split("|")].index(column)
    at = heads[0] + row
    parted = "," if lines[0].startswith("schema,") else "|"
    cells = lines[at].split(parted)
    cells[where] = re.sub(
        NUMBER, lambda m: f"{float(m[0]) * factor:.{len(m[0].partition('.')[2])}f}", cells[where], count=1
    )
    lines[at] = parted.join(cells)
    return "\n".join(lines)


@pytest.mark.parametrize("repeats", [1, 2, 5])
@pytest.mark.parametrize(
    "name, column, row, checks",
    [
        ("table.md", "Processing speed (words/s)", 4, {"work"}),
        ("table.md", "Speedup ratio", 4, {"speedup"}),
        ("table.md", "Efficiency (%)", 5, {"efficiency"}),
        ("table.csv", "words_per_second", 3, {"work", "speedup"}),
        ("table.csv", "speedup", 3, {"speedup"}),
        ("table.csv", "efficiency", 4, {"efficiency"}),
    ],
)
def test_a_fault_in_a_table_is_found(tmp_path, rendered, repeats, name, column, row, checks):
    text = changed_cell(rendered[repeats, name], row, column, 1.1)
    assert text != rendered[repeats, name]
    found = run(tmp_path, text, name).findings
    assert len(found) == 1 and found[0].check in checks and column in found[0].column, found


@pytest.mark.parametrize("repeats", [1, 5])
@pytest.mark.parametrize("metric, check", [("words_per_second", "speedup"), ("efficiency", "efficiency")])
def test_a_fault_in_the_json_is_found_in_its_series(tmp_path, rendered, repeats, metric, check):
    document = json.loads(rendered[repeats, "report.json"])
    wrong = document["series"][2]["rows"][3][metric]
    wrong["value"] = round(wrong["value"] * 1.1, 4)
    found = run(tmp_path, json.dumps(document), "report.json").findings
    assert check in {finding.check for finding in found} and {finding.line for finding in found} == {4}, found


def test_a_report_of_another_version_or_form_is_refused_with_its_name(tmp_path):
    for document, said in (
        ({"schema": "rnn_scaling.report/9", "series": []}, "report/9"),
        ({"schema": "rnn_scaling.report/1", "series": {}}, "no list of series"),
        ({"schema": "rnn_scaling.report/1", "series": [1]}, "no list of series"),
        ({"schema": "rnn_scaling.report/1", "series": []}, "no table of results"),
        ({"schema": "rnn_scaling.report/1", "series": [{"rows": [1, {"speedup": 3}]}]}, "no table of results"),
    ):
        assert said in run(tmp_path, json.dumps(document), "report.json").error

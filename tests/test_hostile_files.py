"""Damaged records and tables are refused in one line, or read and processed."""

import random
from pathlib import Path

from rnn_scaling.analysis.audit.auditing import audit
from rnn_scaling.analysis.comparison import judgement, matching
from rnn_scaling.config import registry
from rnn_scaling.records import folder, record
from rnn_scaling.reports import answer_text, audit_report, comparison
from rnn_scaling.reports.summary import summarise
from tests.support import audit_tables, scaling_runs, traced_runs
from tests.support.mutations import Document, damage, parse_json
from tests.support.paths import ROOT
from tests.support.records import make_record

RECORDS, TABLES = 150, 40
TOGETHER = 20  # records of one folder
COMMITTED = "docs/results/default/cudnn_lstm-parameter_server-2.json"
CLUSTER = "docs/results/netlab/alone-2-1000mbit.r1.json"


def record_texts():
    return [
        scaling_runs.make_timed_run(2, 100, batches=12).to_json(),
        scaling_runs.make_resolved_run(100.0, 2, positions=[600, 600]).to_json(),
        make_record("failed").to_json(),
        traced_runs.make_traced_run(traced_runs.step()).to_json(),
        (ROOT / COMMITTED).read_text(),
        (ROOT / CLUSTER).read_text(),
    ]


def test_damaged_records():
    rng = random.Random(7)
    texts = record_texts()
    documents = [Document(text) for text in texts]
    read = []
    for number in range(RECORDS):
        k = rng.randrange(len(texts))
        if rng.random() < 0.75:
            text = documents[k].mutated(rng)
        else:
            text = damage(texts[k].encode(), rng).decode(errors="replace")
        try:
            read.append(
                folder.RunFile(f"{number}.json", record.from_json(text, "x.json"))
            )
        except record.RecordError as e:
            assert str(e).startswith("x.json: ") and "\n" not in str(e)
    assert 0.1 < len(read) / RECORDS < 0.8, "most are refused, and many are not"
    for start in range(0, len(read) - 1, TOGETHER):
        work_with(read[start : start + TOGETHER])


def work_with(runs):
    """Process records like the commands do, except for pictures."""
    for each in runs:
        assert record.from_json(each.record.to_json()).config == each.record.config
    told = summarise(folder.Folder(tuple(runs), ()), "results")
    answer_text.format_briefly(told, Path("out"))
    for name in ("table", "csv", "json"):
        rendered = registry.load(registry.REPORTS, name).render(told)
        assert name != "json" or parse_json(rendered)
    sides = [
        matching.ComparedRuns(Path(name), tuple(files), ())
        for name, files in (("a", runs[::2]), ("b", runs[1::2]))
    ]
    try:
        report = judgement.judge(*sides, judgement.Question())
    except matching.InputError as e:
        assert str(e)
        return
    for name, render in comparison.RENDER.items():
        assert name != "json" or parse_json(render(report))


def table_texts():
    """Return (file name, text) of the same tables in every form."""
    texts = [
        form
        for seed in range(4)
        for form in audit_tables.forms(audit_tables.make(seed)).items()
    ]
    run = scaling_runs.make_timed_run(2, 100, batches=12)
    reported = summarise(folder.Folder((folder.RunFile("a.json", run),), ()), "results")
    for name in ("table.md", "table.csv", "report.json"):
        [kind] = [
            kind for kind, report in registry.REPORTS.items() if report.file == name
        ]
        texts.append(
            (name, registry.load(registry.REPORTS, kind).render(reported).decode())
        )
    return [*texts, ("run.json", run.to_json())]


def test_damaged_tables(tmp_path):
    rng, texts = random.Random(8), table_texts()
    comparisons = 0
    for _ in range(TABLES):
        name, text = rng.choice(texts)
        (tmp_path / name).write_bytes(damage(text.encode(), rng))
        report = audit(tmp_path / name)
        assert "\n" not in report.error
        for form, render in audit_report.RENDER.items():
            assert form != "json" or parse_json(render([report]))
        comparisons += report.comparisons
        # Overwriting an existing file takes longer than reading it.
        (tmp_path / name).unlink()
    assert comparisons > 3 * TABLES

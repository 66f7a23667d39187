"""The audit against tables of public projects and against faults that were put into tables: floors, which only rise."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.audit import claims, corpus, made, score

PRECISION = 0.98  # of the findings in tables of public projects
RECALL = 0.90  # of the planted faults


@pytest.fixture(scope="module")
def auditor():
    with score.Auditor() as auditor:
        yield auditor


@pytest.fixture(scope="module")
def read(auditor):
    return list(score.read(auditor, corpus.documents()))


def test_the_corpus_is_wide():
    found = [document for document in corpus.documents() if not document.made]
    assert len(found) > 350
    assert len({document.project for document in found}) > 320
    assert sum(len(claims.tables(document.text)) for document in found) > 415
    assert 0.2 < sum(document.held_out for document in found) / len(found) < 0.5


def test_the_stored_verdicts_are_those_of_the_arithmetic():
    stored = corpus.verdicts()
    for document in corpus.documents():
        assert stored[document.name] == claims.judge(document), document.name


def test_nothing_new_is_wrong_in_real_tables(read):
    known = json.loads(corpus.KNOWN.read_text(encoding="utf-8"))
    for kind, wrong in score.faults_of_the_audit(read).items():
        assert set(wrong) <= set(known[kind]), kind


def test_findings_in_real_tables_are_right(read):
    real = [r for r in read if not r.document.made]
    right, false = sum(len(r.right) for r in real), sum(len(r.false) for r in real)
    assert right >= PRECISION * (right + false), (right, false)


def test_consistent_tables_of_every_form_have_no_finding(auditor):
    for seed, text, report in score.clean(auditor, range(300)):
        assert not report.findings, (seed, text, report.findings)


def test_planted_faults_are_found(auditor):
    planted = [*score.plant(auditor, each=4), *score.plant_in_corpus(auditor, corpus.documents())]
    assert len({fault.kind for fault in planted}) > 60
    found = sum(fault.hit for fault in planted)
    assert found >= RECALL * len(planted), [fault.kind for fault in planted if not fault.hit]


def test_every_kind_of_fault_spoils_some_table():

    for kind, spoil in score.KINDS.items():
        tables = [made.make(seed) for seed in range(120)]
        before = [table.text()[0] for table in tables]
        rows = [spoil(random.Random(seed), table) for seed, table in enumerate(tables)]
        spoiled = [table.text()[0] != text for table, text in zip(tables, before)]
        assert any(spoiled), kind
        assert all(changed for changed, where in zip(spoiled, rows) if where and len(where) < 3), kind


@pytest.mark.parametrize(
    "text, low, high",
    [("1,446.3 (12.1x)", 1446.25, 1446.35), ("88 %", 0.875, 0.885), ("**6.55×**", 6.545, 6.555), ("55k", 54500, 55500)],
)
def test_a_printed_number_was_anything_that_rounds_to_it(text, low, high):
    assert claims.number(text) == pytest.approx((low, high), rel=1e-6)


def test_a_claim_is_computed_at_every_corner():
    table = claims.tables("| n | s | x |\n| - | - | - |\n| 1 | 10 | 1.0 |\n| 2 | 6 | 1.6 |\n| 4 | 3 | 2.5 |\n")
    assert [place.lines for place in claims.check("0: c2 = c1@0/c1", table)] == [(5,)]
    assert claims.number("~2.5x") is None

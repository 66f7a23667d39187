"""How good the audit is: precision on tables of public projects, recall on planted faults.

    python -m benchmarks.audit [--each=8] [--part=all|open|held_out] [--show]

A finding in the corpus (tests/golden/audit/corpus/) is right if the verdict of its document names its line. The
verdicts come from benchmarks/audit/claims.py and from people. A fault is found if a finding is in a row that it
changed. --part=held_out is a third of the projects and of the planted faults; do not look at it while you improve
checks. --show prints every false alarm and miss. tests/golden/audit/known.json lists those that
tests/audit/test_corpus.py allows.
"""

from __future__ import annotations

import argparse
import collections
import json
import signal
import time
from collections.abc import Sequence

from benchmarks.audit import claims, corpus, score

PARTS = {"all": (True, False), "open": (False,), "held_out": (True,)}


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=score.EACH, help="tables a kind of fault")
    parser.add_argument("--part", choices=PARTS, default="all")
    parser.add_argument("--show", action="store_true", help="every false alarm, miss and fault not found")
    parser.add_argument("--text", action="store_true", help="with --show: the spoiled tables as well")
    parser.add_argument("--write_known", action="store_true", help="store what is wrong today as what may be wrong")
    own = parser.parse_args()
    start = time.process_time()
    with score.Auditor() as auditor:
        wanted = PARTS[own.part]
        read = [r for r in score.read(auditor, corpus.documents()) if r.document.held_out in wanted]
        planted = [p for p in score.plant(auditor, each=own.each) if p.held_out in wanted]
        planted += [p for p in score.plant_in_corpus(auditor, corpus.documents()) if p.held_out in wanted]
        false_in_clean = [(seed, text, r) for seed, text, r in score.clean(auditor, range(1000, 1400)) if r.findings]
    if own.write_known and own.part == "all":
        corpus.KNOWN.write_text(json.dumps(score.faults_of_the_audit(read), indent=1) + "\n", encoding="utf-8")
    print(summary(read, planted, false_in_clean))
    print(f"\n{time.process_time() - start:.1f} s of CPU")
    if own.show:
        _show(read, planted, own.text)


def summary(read: Sequence[score.Read], planted: Sequence[score.Planted], false_in_clean: Sequence[object]) -> str:
    """The numbers as Markdown."""
    real = [r for r in read if not r.document.made]
    right, false = sum(len(r.right) for r in real), sum(len(r.false) for r in real)
    due, missed = sum(r.due for r in real), sum(len(r.missed) for r in real)
    made = [r for r in read if r.document.made]
    lines = ["| what | number |", "| --- | --: |"]
    compared = sum(r.report.comparisons > 0 for r in real)
    facts: list[tuple[str, object]] = [
        ("documents / projects", f"{len(real)} / {len({r.document.project for r in real})}"),
        (
            "tables in them / read",
            f"{sum(len(claims.tables(r.document.text)) for r in real)} / {sum(r.report.tables for r in real)}",
        ),
        ("documents in which something was compared", compared),
        ("findings", right + false),
        ("of them right", right),
        ("precision", _share(right, right + false)),
        ("findings due", due),
        ("recall on real faults", _share(due - missed, due)),
        (
            "documents made for a header: faults found",
            _share(sum(r.due - len(r.missed) for r in made), sum(r.due for r in made)),
        ),
        ("documents made for a header: false alarms", sum(len(r.false) for r in made)),
        ("consistent made tables with a finding", f"{len(false_in_clean)} of 400"),
        ("planted faults", len(planted)),
        ("recall on planted faults", _share(sum(p.hit for p in planted), len(planted))),
        (
            "of those found in made tables: right rows alone and the right column named",
            _share(sum(p.blamed for p in planted if p.hit and not p.name), sum(p.hit and not p.name for p in planted)),
        ),
        ("findings a fault that was found", _mean([len(p.findings) for p in planted if p.hit])),
    ]
    lines += [f"| {name} | {value} |" for name, value in facts]
    lines += ["", "| kind of fault | found | of | blamed | findings each |", "| --- | --: | --: | --: | --: |"]
    by_kind: dict[str, list[score.Planted]] = collections.defaultdict(list)
    for one in planted:
        by_kind[one.kind].append(one)
    for kind, members in by_kind.items():
        found = [p for p in members if p.hit]
        blamed = sum(p.blamed for p in found) if not members[0].name else "n/a"
        each = _mean([len(p.findings) for p in found])
        lines.append(f"| {kind} | {len(found)} | {len(members)} | {blamed} | {each} |")
    lines += ["", "| form of the table | found | of |", "| --- | --: | --: |"]
    for form in sorted({p.form for p in planted}):
        lines.append(
            f"| {form} | {sum(p.hit for p in planted if p.form == form)} | {sum(p.form == form for p in planted)} |"
        )
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % ({part} of {whole})" if whole else "n/a"


def _mean(values: Sequence[int]) -> str:
    return f"{sum(values) / len(values):.1f}" if values else "n/a"


def _show(read: Sequence[score.Read], planted: Sequence[score.Planted], text: bool) -> None:
    print("\n## False alarms\n")
    for r in read:
        for f in r.false:
            print(
                f"- {r.document.name}:{f.line} [{f.check}] {f.row} | {f.column}: {f.stands}, "
                f"expected {f.expected}: {f.cause}"
            )
    print("\n## Missed in real tables\n")
    for r in read:
        for place in r.missed:
            print(f"- {r.document.name}:{place.lines[0]} {place.column}: {place.why}")
    print("\n## Real documents that could not be read or compared\n")
    for r in read:
        if r.report.error or not r.report.comparisons:
            print(f"- {r.document.name} ({r.document.keys['form']}): {r.report.error or 'nothing compared'}")
    print("\n## Faults not found\n")
    for p in planted:
        if not p.hit:
            said = "; ".join(f"line {f.line} [{f.check}]" for f in p.findings) or "nothing"
            print(f"- {p.kind}: {p.name or f'seed {p.seed}'}, {p.family}, {p.form}, lines {p.rows}: said {said}")
            if text:
                print("\n" + p.text)


if __name__ == "__main__":
    main()

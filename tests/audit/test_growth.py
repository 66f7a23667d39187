"""The work of the audit grows with the size of a table and not with its square; what is too much is said. No clock."""

from __future__ import annotations

import random
import sys

import pytest

from rnn_scaling.audit import auditing, rounding
from rnn_scaling.audit.tables import columns, counts
from rnn_scaling.commands import audit


def wide(size):
    """A table of `size` columns."""
    rng = random.Random(1)
    names = [
        f"metric {k} (img/s)" if k % 3 == 0 else f"speedup {k}" if k % 3 == 1 else f"total {k}" for k in range(size)
    ]
    rows = [",".join(f"{rng.uniform(90, 110) * n:.2f}" for _ in names) for n in (1, 2, 4)]
    return "\n".join([",".join(["GPUs", *names]), *(f"{n},{row}" for n, row in zip((1, 2, 4), rows))]) + "\n"


def long(size):
    """A table of `size` rows."""
    rng = random.Random(1)
    rates = [(n, 100 * n * rng.uniform(0.8, 1)) for n in (rng.choice([1, 2, 4, 8]) for _ in range(size))]
    rows = [f"{n},{rate:.2f},{rate / 100:.2f},{rate / n:.1f}%,{rng.uniform(1, 9):.3f}" for n, rate in rates]
    return "\n".join(["GPUs,images/s,speedup,efficiency,seconds", *rows]) + "\n"


def compared(size):
    """A table of `size` rows whose speedups are of two columns, half of them on one device."""
    rng = random.Random(1)
    pairs = [(rng.uniform(50, 100), rng.uniform(1.1, 3)) for _ in range(size)]
    rows = [f"{1 + k % 2},{old:.3f},{old / gain:.3f},{gain:.3f}" for k, (old, gain) in enumerate(pairs)]
    return "\n".join(["GPUs,old time (s),new time (s),speedup", *rows]) + "\n"


def on_one_machine(size):
    """A table of `size` rows of as many devices each, which no column says."""
    rng = random.Random(1)
    rates = [rng.uniform(50, 100) for _ in range(size)]
    return "\n".join(["net,images/s/GPU,images/s", *(f"n{k},{r:.2f},{8 * r:.2f}" for k, r in enumerate(rates))]) + "\n"


def calls(path, text):
    """How many functions the audit of a text calls."""
    path.write_text(text)
    for cached in (columns.plain, columns.recognise, columns.bound, columns.is_about_runs, columns.noun, counts.find):
        cached.cache_clear()
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        auditing.audit(path)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("made", "small"), [(wide, 400), (long, 250), (compared, 250), (on_one_machine, 250)])
def test_twice_the_table_is_about_twice_the_work(tmp_path, made, small):
    calls(tmp_path / "t.csv", made(9))  # what is loaded once
    once, twice = (calls(tmp_path / "t.csv", made(size)) for size in (small, 2 * small))
    assert twice < 2.5 * once, (once, twice)


def test_a_ratio_that_may_be_anything_takes_no_room():
    anything, eight = rounding.Bounds(1.0, 1e300), rounding.point(8.0)
    assert rounding.common_whole([anything, eight, eight, eight]) == 8


def test_what_is_not_checked_of_a_long_file_is_said(tmp_path, capsys):
    table = "|GPUs|images/s|speedup|\n|-|-|-|\n|1|100|1.00|\n|2|190|1.90|\n\n"
    (tmp_path / "t.md").write_text(50 * table)
    assert auditing.audit(tmp_path / "t.md").error == ""
    assert audit.main([str(tmp_path / "t.md"), "--max_numbers=60"]) == 2
    assert "the 60 numbers up to" in capsys.readouterr().err
    (tmp_path / "t.md").write_text(table.replace("1.90", "1.99") + 50 * table)
    assert audit.main([str(tmp_path / "t.md"), "--max_numbers=60"]) == 1

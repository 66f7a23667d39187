"""Two settings in turns: order, folders, resumption, and what compare is asked."""

from __future__ import annotations

import signal
import subprocess

import pytest

from rnn_scaling.commands import ab
from rnn_scaling.records import record
from rnn_scaling.reports import comparison
from rnn_scaling.system.processes import process
from tests.support.faults import command, forked, logged, plant, trainer
from tests.support.paths import ROOT

NAME = "cudnn_lstm-independent-1"
PAIR = ['--a=--seed=1 --batch_size="8"', "--b=--seed=2 --batch_size=9"]
ORDER = [
    f"a/{NAME}",
    f"b/{NAME}",
    f"b/{NAME}.r2",
    f"a/{NAME}.r2",
    f"a/{NAME}.r3",
    f"b/{NAME}.r3",
]


REAL_COMPARE = comparison.compare


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """What the comparison was asked; its answer is 7."""
    calls = []

    def compare(before, after, question, answer):
        calls.append(
            (str(before), str(after), question.paired, question.max_regression)
        )
        return 7

    monkeypatch.setattr(comparison, "compare", compare)
    monkeypatch.setattr(process, "subprocess", forked())
    return calls


def go(tmp_path, *words, **faults):
    plant(tmp_path / "faults", **faults)
    return ab.main(
        [f"--out={tmp_path}/out", *words], trainer=trainer(tmp_path / "faults")
    )


def test_pairs_are_counterbalanced_and_compared(tmp_path, asked):
    assert (
        go(tmp_path, *PAIR, "--repeats=3", "--num_units=16", "--max_regression=4%") == 7
    )
    assert logged(tmp_path / "faults", "start") == ORDER
    assert asked == [(f"{tmp_path}/out/a", f"{tmp_path}/out/b", True, 0.04)]
    for side, seed, batch_size in (("a", 1, 8), ("b", 2, 9)):
        held = [record.read(path) for path in (tmp_path / "out" / side).glob("*.json")]
        assert len(held) == 3
        assert {
            (h.config["seed"], h.config["batch_size"], h.config["num_units"])
            for h in held
        } == {(seed, batch_size, 16)}


def test_more_pairs_extend_and_a_failed_run_is_left_to_the_comparison(
    tmp_path, asked, capsys
):
    assert (
        go(tmp_path, *PAIR, "--repeats=1", **{f"b_{NAME}".replace("-", "_"): "crash"})
        == 7
    )
    assert f"error: b/{NAME}: ended with exit status 3" in capsys.readouterr().err
    assert go(tmp_path, *PAIR, "--repeats=3") == 7
    assert logged(tmp_path / "faults", "start") == ORDER


def test_killed_in_the_middle_it_goes_on(tmp_path):
    plant(tmp_path / "faults")
    words = [f"--out={tmp_path}/out", *PAIR, "--repeats=3"]
    ended = subprocess.run(
        command(tmp_path / "faults", "ab", *words, die_at="before:4"),
        cwd=ROOT,
        capture_output=True,
    )
    assert ended.returncode == -signal.SIGKILL
    assert go(tmp_path, *PAIR, "--repeats=3") == 7
    assert logged(tmp_path / "faults", "start") == ORDER


def test_the_same_setting_on_both_sides_shows_the_noise(tmp_path):
    assert go(tmp_path, "--a=", "--b=", "--repeats=2") == 7
    assert logged(tmp_path / "faults", "start") == ORDER[:4]


def test_the_first_lines_are_the_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "compare", REAL_COMPARE)
    go(tmp_path, "--a=--seed=1", "--b=", "--repeats=2")
    out = capsys.readouterr().out
    assert (
        out.startswith("A and B are not compared")
        and "CPU model" in out.splitlines()[0]
    )  # unknown here
    assert out.splitlines()[1:3] == ["A: --seed=1", "B: only the common flags"]
    assert "regression" not in out.lower()


def test_a_dry_run_lists_and_compares_nothing(tmp_path, asked, capsys):
    assert go(tmp_path, *PAIR, "--repeats=3", "--dry_run") == 0
    listed = [line.split()[3] for line in capsys.readouterr().out.splitlines()[1:7]]
    assert listed == ORDER and not asked and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words,lines",
    [
        (["--a="], ['--b="..." is missing; "" uses only the common flags']),
        (
            ["--a=--bogus", "--b=--seed=x"],
            [
                "--a: --bogus is not a flag; did you mean --bos?",
                "--b: --seed=x must be a whole number",
            ],
        ),
        (
            ["--a=--seed=1", "--b=", "--seed=2"],
            ["--a: --seed=1 and the common --seed=2; give one"],
        ),
        (["--a=", "--b='"], ['--b="\'": No closing quotation']),
        (["--a=", "--b=--log_dir=x"], ["--log_dir is set by ab; leave it out"]),
        (
            ["--a=--batch_size=0", "--b=--num_units=0"],
            [
                "--a: --batch_size=0 must be at least 1",
                "--b: --num_units=0 must be at least 1",
            ],
        ),
        (
            ["--a=", "--bb=", "--repeats=x"],
            [
                "--repeats=x must be a whole number",
                "--bb is not a flag; did you mean --b?",
                '--b="..." is missing; "" uses only the common flags',
            ],
        ),
        (["--a=", "--b=", "--repeats=0"], ["--repeats=0 must be at least 1"]),
        (
            ["--a=", "--b=", "--max_regression=150%"],
            [
                "--max_regression=150% must be a share from 0 to below 1, written as 5% or 0.05"
            ],
        ),
    ],
)
def test_conflicts(words, lines, tmp_path, asked, capsys):
    assert go(tmp_path, *words) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {line}" for line in lines]
    assert not asked and not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_not_a_regression(tmp_path, asked, capsys):
    (tmp_path / "out").write_text("")
    assert go(tmp_path, *PAIR) == 2
    assert not asked and capsys.readouterr().err.startswith(
        f"error: --out={tmp_path}/out: "
    )

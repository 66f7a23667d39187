"""The command ab: order of runs, folders, resumption, and the question to compare."""

import pytest

from rnn_scaling.commands import ab
from rnn_scaling.records import record
from rnn_scaling.reports import comparison
from rnn_scaling.sweeps import pairs
from rnn_scaling.system.processes import process
from tests.support.compared import run
from tests.support.faults import (
    list_logged,
    make_forking_subprocess,
    make_trainer_words,
    plant,
)

NAME = "cudnn_lstm-independent-1"
PAIR = ['--a=--seed=1 --batch_size="8"', "--b=--seed=2 --batch_size=9"]
ORDER = [
    f"a/{NAME}",
    f"b/{NAME}",
    f"b/{NAME}.r2",
    f"a/{NAME}.r2",
    f"b/{NAME}.r3",
    f"a/{NAME}.r3",
]


REAL_COMPARE = comparison.compare


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Return the list of questions to the comparison, which always answers 7."""
    calls = []

    def compare(before, after, question, answer):
        calls.append(
            (str(before), str(after), question.paired, question.max_regression)
        )
        return 7

    monkeypatch.setattr(comparison, "compare", compare)
    monkeypatch.setattr(process, "subprocess", make_forking_subprocess())
    return calls


def go(tmp_path, *words, **faults):
    plant(tmp_path / "faults", **faults)
    return ab.main(
        [f"--out={tmp_path}/out", *words],
        trainer=make_trainer_words(tmp_path / "faults"),
    )


def test_pairs_are_counterbalanced_and_compared(tmp_path, asked):
    assert (
        go(tmp_path, *PAIR, "--repeats=3", "--num_units=16", "--max_regression=4%") == 7
    )
    assert list_logged(tmp_path / "faults", "start") == ORDER
    assert asked == [(f"{tmp_path}/out/a", f"{tmp_path}/out/b", True, 0.04)]
    for side, seed, batch_size in (("a", 1, 8), ("b", 2, 9)):
        held = [record.read(path) for path in (tmp_path / "out" / side).glob("*.json")]
        assert len(held) == 3
        assert {
            (h.config["seed"], h.config["batch_size"], h.config["num_units"])
            for h in held
        } == {(seed, batch_size, 16)}


@pytest.mark.parametrize(
    "disturbed, num_further",
    [
        ([], 0),
        (["a/{}", "b/{}"], 1),
        (["a/{}", "b/{}.r2", "b/{}.r4", "b/{}.r5", "b/{}.r6"], 3),
        (["a/{}", "b/{}.r2", "b/{}.r3", "b/{}.r4", "b/{}.r5", "b/{}.r6"], 0),
    ],
)
def test_disturbed_pairs_are_repeated_by_load(disturbed, num_further, tmp_path):
    sides = pairs.split_sides([*PAIR, f"--out={tmp_path}"]).sides
    a, b = pairs.plan_runs(sides)
    labels = [label.format(NAME) for label in disturbed]
    records = {}
    for job in pairs.counterbalance(a, b, 6, tmp_path):
        load = {"others": 0.0, "steal": 0.0, "seconds": 2.0}
        if job.label in labels:
            load["others"] = 0.4
        records[job.label] = run(environment={"load": load})
    further = pairs.replace_disturbed(a, b, 6, tmp_path, records)
    numbers = [job.run.repeat for job in further]
    expected = sorted([*range(7, 7 + num_further)] * 2)
    assert numbers == expected


def test_neighbouring_pairs_have_the_same_order_as_often_as_not(tmp_path):
    sides = pairs.split_sides([*PAIR, f"--out={tmp_path}"]).sides
    jobs = pairs.counterbalance(*pairs.plan_runs(sides), 8, tmp_path)
    firsts = [job.label[0] for job in jobs[::2]]
    assert "".join(firsts) == "abbaabba"
    # A steady drift cancels in every four runs.
    for start in range(0, 16, 4):
        places = {"a": 0, "b": 0}
        for place, job in enumerate(jobs[start : start + 4]):
            places[job.label[0]] += place
        assert places["a"] == places["b"]


def test_more_pairs_extend_and_a_failed_run_is_left_to_the_comparison(
    tmp_path, asked, capsys
):
    assert (
        go(tmp_path, *PAIR, "--repeats=1", **{f"b_{NAME}".replace("-", "_"): "crash"})
        == 7
    )
    assert f"error: b/{NAME}: ended with exit status 3" in capsys.readouterr().err
    assert go(tmp_path, *PAIR, "--repeats=3") == 7
    assert list_logged(tmp_path / "faults", "start") == ORDER


def test_the_same_setting_on_both_sides_shows_the_noise(tmp_path):
    assert go(tmp_path, "--a=", "--b=", "--repeats=2") == 7
    assert list_logged(tmp_path / "faults", "start") == ORDER[:4]


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
    "words, lines",
    [
        (
            ["--a=--bogus", "--b=--seed=x"],
            [
                "--a: --bogus is not a flag; did you mean --bos?",
                "--b: --seed=x must be a whole number",
            ],
        ),
        (
            ["--a=--seed=1", "--b=", "--seed=2"],
            ["--a: --seed=1 conflicts with the common --seed=2; give one"],
        ),
        (["--a=", "--b=--log_dir=x"], ["--log_dir is set by ab; leave it out"]),
    ],
)
def test_conflicts(words, lines, tmp_path, asked, capsys):
    assert go(tmp_path, *words) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {line}" for line in lines]
    assert not asked and not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_not_a_regression(tmp_path, asked, capsys):
    (tmp_path / "out").write_text("")
    assert go(tmp_path, *PAIR) == 2
    assert not asked
    assert capsys.readouterr().err.startswith(f"error: --out={tmp_path}/out: ")

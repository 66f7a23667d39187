"""Which runs a sweep makes, and that one failing run does not end it."""

from __future__ import annotations

import pytest

from rnn_scaling import flags, sweep
from rnn_scaling.record import RunRecord

MODES = ["independent", "parameter_server", "replicated"]


def plan(num_gpus=0, num_cores=2, **lists):
    return sweep.plan(lists, num_gpus=num_gpus, num_cores=num_cores)


def test_default_sweep_is_both_encoders_by_three_modes_by_devices():
    runs = plan()
    assert len(runs) == len({run.name for run in runs}) == 2 * 3 * 2
    assert [run.flags["preset"] for run in runs] == ["small"] * 12
    assert {run.flags["preset"] for run in plan(num_gpus=2)} == {"seed"}


@pytest.mark.parametrize(
    "most,counts",
    [(0, [1]), (1, [1]), (3, [1, 2, 3]), (8, list(range(1, 9))), (12, [1, 2, 4, 8, 12]), (16, [1, 2, 4, 8, 16])],
)
def test_device_counts(most, counts):
    assert sweep.device_counts(most) == counts


def test_a_flag_goes_to_the_runs_that_read_it():
    runs = plan(all_reduce_spec=["xring", "rechd"], num_devices=[2], encoder_type=["cudnn_lstm"])
    specs = [(run.flags["variable_update"], run.flags.get("all_reduce_spec")) for run in runs]
    assert specs == [
        ("independent", None),
        ("parameter_server", None),
        ("replicated", "xring"),
        ("replicated", "rechd"),
    ]
    assert len({run.name for run in runs}) == 4


def test_conflicts_are_named_before_anything_runs():
    with pytest.raises(flags.FlagErrors) as error:
        plan(num_units=[0, 8], bos=["x"])
    assert error.value.lines == ["--num_units=0 must be at least 1", "--bos=x is read by none of the runs"]


@pytest.mark.parametrize(
    "words,line",
    [
        (["--result_file=x"], "--result_file is set by the sweep"),
        (["--out=a,b"], "--out=a,b must be one folder"),
        (["--num_devices=1,two"], "must be a whole number"),
    ],
)
def test_bad_sweep_flags(words, line, capsys):
    assert sweep.main(words) == 2
    assert line in capsys.readouterr().err


def test_a_failing_run_is_a_row_and_the_sweep_goes_on(tmp_path, capsys, monkeypatch):
    def run(run, result_file):
        if run.flags["num_devices"] == 1:
            return RunRecord("ok", None, run.flags, throughput={"words_per_second": 5.0, "seconds": 1.0, "words": 5})
        return RunRecord("failed", {"type": "X", "message": "out of memory"}, run.flags)

    monkeypatch.setattr(sweep, "_run", run)
    monkeypatch.setattr(sweep.report, "main", lambda words: 0)
    assert sweep.main([f"--out={tmp_path}", "--encoder_type=cudnn_lstm", "--num_devices=1,2"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert lines == [f"error: cudnn_lstm-{mode}-2: out of memory" for mode in MODES]

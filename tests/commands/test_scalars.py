"""TensorBoard's scalars are on disk during a run, and writing them is not measured."""

import itertools
import resource

import numpy as np
import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.training.state import RunState


@pytest.fixture
def event_files(tf):
    from rnn_scaling.reports.tensorboard import event_files

    return event_files


def on_disk(tf, folder):
    """Tag -> [(step, value)] of what another process would read now."""
    values = {}
    for path in folder.glob("*tfevents*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                values.setdefault(value.tag, []).append(
                    (event.step, value.simple_value)
                )
    return values


def test_batches_are_written_every_few_seconds_and_each_once(tf, event_files, tmp_path):
    now = [0.0]
    scalars = event_files.Scalars(str(tmp_path), "tokens", clock=lambda: now[0])
    assert not scalars.is_due()
    now[0] = event_files.INTERVAL_S
    assert scalars.is_due()
    scalars.write([0.5, 0.25], [10, 10], [3.0, 2.0])
    assert on_disk(tf, tmp_path) == {
        "batch/loss": [(0, 3.0), (1, 2.0)],
        "batch/tokens_per_second": [(0, 20.0), (1, 40.0)],
        "batch/step_seconds": [(0, 0.5), (1, 0.25)],
    }
    assert not scalars.is_due()
    scalars.write([0.5, 0.25, 1.0], [10, 10, 10], [3.0, 2.0, 1.0], [0.25, 0.5, 0.75])
    scalars.close()
    assert on_disk(tf, tmp_path)["batch/loss"] == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert on_disk(tf, tmp_path)["batch/accuracy"] == [(2, 0.75)]


def test_a_disk_that_is_full_ends_the_writing_and_not_the_run(
    tf, event_files, tmp_path, monkeypatch, capsys
):
    scalars = event_files.Scalars(
        str(tmp_path), "words", clock=itertools.count(0, 100).__next__
    )

    def full():
        raise OSError("No space left on device")

    monkeypatch.setattr(scalars._writer, "flush", full)
    scalars.write([1.0], [1], [1.0])
    assert capsys.readouterr().err.startswith("warning: --log_dir: No space")
    assert not scalars.is_due()
    scalars.write([1.0, 1.0], [1, 1], [1.0, 1.0])
    scalars.close()
    assert not event_files.Scalars(
        "", "words", clock=itertools.count(0, 100).__next__
    ).is_due()


def test_a_file_of_scalars_that_cannot_be_created_does_not_end_the_run(
    event_files, tmp_path, capsys
):
    (tmp_path / "file").touch()
    scalars = event_files.Scalars(str(tmp_path / "file/logs"), "words")
    warning = capsys.readouterr().err
    assert str(tmp_path / "file") in warning
    assert "function_node" not in warning, "a name of TensorFlow's own"
    scalars.write([1.0], [1], [1.0])
    scalars.close()
    assert not scalars.is_due()


def test_a_disk_that_takes_only_empty_files_is_found_before_the_run(tmp_path):
    from rnn_scaling.commands.run_files import EventFiles
    from rnn_scaling.training.observers import OutputError

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OutputError):
            EventFiles(str(tmp_path)).save(None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_writing_between_two_batches_is_in_neithers_seconds(
    tf, event_files, tmp_path, monkeypatch
):
    from rnn_scaling.commands.run_files import EventFiles
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.cluster import SingleProcess
    from rnn_scaling.training.train_step import StepResult, TrainStep

    given = {
        "log_dir": str(tmp_path),
        "num_batches": 4,
        "num_warmup_batches": 1,
        "device": "cpu",
        "progress": False,
    }
    config, now, seen = configs.resolve(given, num_gpus=0, num_cores=1), [0.0], []
    write = event_files.Scalars.write

    def slowly(self, *batches):
        write(self, *batches)
        now[0] += 1000.0

    monkeypatch.setattr(event_files.Scalars, "write", slowly)
    monkeypatch.setattr(event_files, "INTERVAL_S", 0.0)
    state = RunState(config, clock=lambda: now[0])

    class Step(TrainStep):
        __init__ = object.__init__

        def __call__(self):
            seen.append(len(on_disk(tf, tmp_path).get("batch/loss", [])))
            now[0] += 1.0
            return StepResult(*np.full([4, 1], 8.0))

    benchmark.run_batches(
        config, Step(), state, SingleProcess(), EventFiles(str(tmp_path))
    )
    assert seen == [0, 1, 2, 3, 4], "each batch is on disk before the next one begins"
    assert state.timer.step_s == [1.0] * 5
    assert len(on_disk(tf, tmp_path)["batch/loss"]) == 5

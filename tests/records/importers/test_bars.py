"""Progress bars in real logs of tqdm, Keras 3 and Lightning.

The bar of Keras 2 is written by hand from its source.
"""

import os
import selectors
import types

import pytest

from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.process import Task
from tests.support import log_samples
from tests.support.log_samples import parse, read_run
from tests.support.paths import GOLDEN

KERAS_2 = """Epoch 1/2
 1/50 [..........] - ETA: 30s - loss: 0.69\b\b\b\r50/50 [==========] - 2s 35ms/step - loss: 0.65
Epoch 2/2
 1/50 [..........] - ETA: 1s - loss: 0.64\r50/50 [==========] - 1s 25ms/step - loss: 0.6 - val_loss: 0.7
"""
PREDICT = "1/1 ━━━━ 0s 90ms/step\r1/1 ━━━━ 0s 99ms/step\n" * 20
KERAS_2_LINES = "Epoch 1/1\n50/50 - 2s - loss: 0.5 - 2s/epoch - 40ms/step\n"


@pytest.mark.parametrize(
    "name, text, rate, half",
    [
        # From the first drawing to the last: 36 steps.
        (
            "tqdm",
            log_samples.read_raw("tqdm"),
            36 / (40 / 33.0 - 4 / 33.09),
            0.012208806053248877 / 2,
        ),
        (
            "tqdm",
            " 50%|##  | 2/4 [1:02:03<01:00, 12.50s/ batch, loss=2.1]\n",
            1 / 12.5,
            0.005 / 12.5**2,
        ),
        ("keras", PREDICT + KERAS_2 + PREDICT, 1 / 0.025, 0.0005 / 0.025**2),
        ("keras", KERAS_2_LINES, 1 / 0.04, 0.0005 / 0.04**2),
        (
            "hugging_face",
            "{'train_samples_per_second': 81.25, 'train_loss': 2}\n",
            81.25,
            0.005,
        ),
    ],
)
def test_the_rate_of_a_log(name, text, rate, half):
    [run] = parse(name, text).runs
    assert run.rate.value == pytest.approx(rate)
    assert run.rate.resolution == pytest.approx(2 * half, rel=1e-3)


@pytest.mark.parametrize("name", ["tqdm", "keras", "lightning_tqdm"])
def test_a_sweep_times_the_steps_of_a_bar_by_its_clock_and_else_reads_what_it_shows(
    tmp_path, name
):
    """Print a real log with its original bytes."""
    arrivals, lines = [], []
    log = (GOLDEN / f"logs/{name}.log").absolute()
    process.run_together(
        [Task(["cat", str(log)], reads_stdout=True)], 20.0, lines.append, None, arrivals
    )
    lines = [line for line in lines if line]
    assert len(lines) == len(arrivals)
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    format = name.partition("_")[0]
    path = tmp_path / "log.txt"
    shown = read_run(path, format, items_per_step=8.0, arrivals=arrivals)
    [row] = parse(format, log_samples.read_raw(name)).runs
    assert shown.clock == "" and shown.rate == pytest.approx(8 * row.rate.value)
    assert "bursts" in shown.notes[-1], "and why its own clock did not do"
    evenly = [0.1 * k for k in range(len(lines))]
    timed = read_run(path, items_per_step=8.0, arrivals=evenly)
    assert timed.clock == "arrival" and timed.format == format
    steps = sum(timed.items) / 8
    assert (
        {"tqdm": 75, "keras": 182, "lightning_tqdm": 34}[name]
        <= steps
        <= {"tqdm": 80, "keras": 200}.get(name, 36)
    )
    with pytest.raises(ValueError, match="--items_per_step"):
        read_run(path, "tqdm,keras,lightning", arrivals=evenly)


def test_a_carriage_return_that_begins_a_bar_does_not_delay_the_line_before(
    monkeypatch,
):
    now = 0.0
    monkeypatch.setattr(process, "time", types.SimpleNamespace(monotonic=lambda: now))
    reads, writes = os.pipe()
    arrivals, lines = [], []
    children = process._Children(
        selectors.DefaultSelector(), lines.append, None, arrivals
    )
    with os.fdopen(reads, "rb") as stderr:
        child = types.SimpleNamespace(
            incomplete_line=b"", arrived_at=0.0, stderr=stderr, task=Task([])
        )
        for at, written in (
            (1.0, b"\r1/3"),
            (5.0, b"\b\b\b\r2/3"),
            (6.0, b"\r3/"),
            (7.0, b"3"),
            (9.0, b"\nbye\nx"),
        ):
            now = at
            os.write(writes, written)
            children._read_child(child)
    os.close(writes)
    assert dict(zip(lines, arrivals)) == {
        "1/3\b\b\b": 1.0,
        "2/3": 5.0,
        "3/3": 7.0,
        "bye": 9.0,
    }
    assert child.incomplete_line == b"x"
    assert child.arrived_at == 9.0


def test_the_loss_of_a_bar_is_kept():
    text = "".join(f"{k}/9 - 1s - loss: {1 / k} - 10ms/step\n" for k in range(1, 9))
    [run] = parse("keras", text, arrivals=[float(k) for k in range(8)]).runs
    assert run.record.batches.loss == pytest.approx([1 / k for k in range(2, 9)])

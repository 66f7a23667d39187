"""Impossible numbers in every place of every format are read or refused.

None of them ends a sweep."""

import io
import math
import re

import pytest

from rnn_scaling.commands import import_log
from rnn_scaling.records.importers import importing
from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.reading import Terms
from rnn_scaling.sweeps import failure
from rnn_scaling.sweeps.display import SweepDisplay
from tests.support.log_samples import ALL

EXTREMES = {
    "nan": "nan",
    "inf": "inf",
    "minus one": "-1",
    "zero": "0",
    "largest float": "1e308",
    "beyond all floats": "1e400",
    "smallest float": "1e-320",
    "below all floats": "1e-400",
    "exponent of nine digits": "1e999999999",
    "400 digits": "9" * 400,
    "5,000 digits": "9" * 5000,
    "5,000 decimals": "0." + "9" * 5000,
    "not ASCII": "\u0663",
    "superscript": "\u00b2",
}
PLACES = 2  # numbers per text that are replaced, one at a time
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# For the groups of a pattern, a pattern and a line that a program could print.
PATTERN_LINES = {
    "rate": (r"speed (?P<rate>{number})", "speed 512.5"),
    "bare rate": (r"speed {number}", "speed 512.5"),
    "any text": (r"speed (?P<rate>\S+)", "speed 512.5"),
    "items": (r"(?P<items>{number}) in (?P<seconds>{number})", "320 in 1.25"),
    "ms": (r"(?P<items>\S+) took (?P<ms>\S+)", "320 took 1250"),
    "step": (r"step (?P<step>{number})", "step 10"),
    "step and time": (
        r"step (?P<step>\S+)/(?P<total>\S+) ms (?P<ms>\S+) loss (?P<loss>\S+)",
        "step 10/100 ms 25.5 loss 3.5",
    ),
    "step and rate": (
        r"step (?P<step>\d\S*)/(?P<total>\S+) speed (?P<rate>\S+)",
        "step 10/100 speed 25.5",
    ),
}
PROGRESS_LINES = {
    "total": "measuring: 10/100 batches, 512.5 words/s",
    "no total": "warm-up: 10 batches",
}
SWEEP_LOGS = {name: ALL[name] for name in importing.list_rate_formats()}
for line_name, (_, sample_line) in PATTERN_LINES.items():
    next_line = sample_line.replace("10", "20")
    SWEEP_LOGS[line_name] = f"{sample_line}\n{sample_line}\n{next_line}\n"
SWEEP_LOGS |= PROGRESS_LINES


def mutate_texts(text):
    """Yield the text with one or all of its numbers replaced by an extreme.

    At most PLACES places per text, spread evenly, because samples repeat their lines.
    Each place gets every second extreme, and its neighbour the others.
    """
    places = list(NUMBER.finditer(text))
    step = max(1, math.ceil(len(places) / PLACES))
    for k, place in enumerate(places[::step]):
        for extreme in list(EXTREMES.values())[k % 2 :: 2]:
            yield text[: place.start()] + extreme + text[place.end() :]
    for extreme in EXTREMES.values():
        yield NUMBER.sub(extreme, text)


def read_like_a_sweep(path, text, formats):
    """Read a program's output like a sweep: line by line while it runs, and whole at its end."""
    lines = text.splitlines()
    terms = Terms(
        importing.check_rate_formats(formats),
        items_per_step=7.0,
        num_devices=2,
        arrivals=[0.5 * k for k in range(len(lines))],
        seconds=0.5 * len(lines),
    )
    display = SweepDisplay(3, 0, stream=io.StringIO())
    display.start("run-1", float("nan"))
    watch = importing.watch(terms)
    for line in lines:
        seen = watch(line)
        display.show_output(failure.format_progress(seen, "words") if seen else line)
    path.write_text(text)
    try:
        run, _ = importing.read_run(path, terms)
    except ValueError as e:
        assert str(e)
        assert "\n" not in str(e)
        return
    assert 0 < run.record.throughput.items_per_second < 1e30
    assert 0 <= (run.record.log_rounding or 0) < 1


@pytest.mark.parametrize("name", sorted(SWEEP_LOGS))
def test_an_extreme_number_in_any_place_of_a_sweeps_log_is_read_or_refused(
    tmp_path, name
):
    formats = "auto"
    if name in PATTERN_LINES:
        formats = f"regex:{PATTERN_LINES[name][0]}"
    for text in mutate_texts(SWEEP_LOGS[name]):
        read_like_a_sweep(tmp_path / "log.txt", text, formats)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_import_log_reads_or_refuses_an_extreme_number_in_any_place(
    tmp_path, capsys, name
):
    path = tmp_path / "log.txt"
    for text in mutate_texts(ALL[name]):
        path.write_text(text)
        status = import_log.main([str(path), f"--format={name}"])
        assert status in (0, 1), text
    capsys.readouterr()

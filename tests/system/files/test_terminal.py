"""A bar and fitted tables on a terminal; lines and Markdown in pipes and files."""

import fcntl
import io
import itertools
import os
import pty
import random
import struct
import subprocess
import sys
import termios
from unittest import mock

from rnn_scaling.sweeps import display
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.files.terminal import Board, format_three_digits, print_fitted
from rnn_scaling.training import progress
from tests.support.paths import ROOT
from tests.support.records import make_record

LAYOUT = "{desc}[{n_fmt}/{total_fmt}]{postfix}"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def list_drawn(stream):
    return [text.strip() for text in stream.getvalue().split("\r") if text.strip()]


def test_a_bar_without_redraw_is_drawn_seldom():
    stream = Terminal()
    board = Board(1000, LAYOUT, stream=stream, mininterval=3600)
    for position in range(1, 1000):
        board.move(position, redraw=False)
    assert len(list_drawn(stream)) == 1
    board.move(redraw=True)
    assert list_drawn(stream)[-1].startswith("[999/1000]")


def test_live_rates_have_three_digits_at_least():
    rates = (2.4049, 0.123456, 99.96, 0.9996, 14342.4, 0.0, float("inf"))
    texts = ["2.40", "0.123", "100", "1.00", "14,342", "0", "inf"]
    assert list(map(format_three_digits, rates)) == texts


def test_a_run_shows_its_rate_as_a_bar_or_as_a_line_every_few_seconds():
    bar, lines, silent = Terminal(), io.StringIO(), Terminal()
    clock = itertools.count(0.0, progress.PLAIN_INTERVAL_S / 2).__next__
    for enabled, stream in ((True, bar), (True, lines), (False, silent)):
        shown = progress.Progress(
            enabled, 4, 2, "words", stream=stream, clock=clock, scope=" at rank 0"
        )
        for _ in range(4):
            shown.show_batch(0.5, 1000, 2.5)
        shown.close()
    assert lines.getvalue().splitlines() == [
        "warm-up: 2/4 batches, 2,000 words/s at rank 0, loss 2.5, 1 s left",
        "measuring: 4/4 batches, 2,000 words/s at rank 0, loss 2.5, 0 s left",
    ]
    slow = itertools.count(0.0, progress.PLAIN_INTERVAL_S).__next__
    first = progress.Progress(
        True, 4, 2, "words", stream=(late := io.StringIO()), clock=slow
    )
    first.show_batch(0.5, 1, 2.5)  # It compiled, so the time left is unknown.
    assert late.getvalue() == "warm-up: 1/4 batches, 2.00 words/s, loss 2.5\n"
    assert list_drawn(bar)[0].startswith("warm-up |")
    assert "0/4 batches, compiling, " in list_drawn(bar)[0]
    assert silent.getvalue() == ""


def test_a_sweep_shows_its_runs_as_a_bar_with_failures_above_or_as_a_line_each():
    bar, lines = Terminal(), io.StringIO()
    good = make_record(seconds=[2.0], items=[9000])
    error = {"type": "Signal", "message": "killed by SIGKILL"}
    bad = make_record("failed", error=error)
    for stream in (bar, lines):
        shown = display.SweepDisplay(3, 1, stream)
        for label, run in (("a", good), ("b", bad)):
            shown.start(label, 100.0)
            shown.show_output("measuring: 2/5 batches, 9 words/s")
            shown.end(label, run, 40.0)
        shown.close()
    assert lines.getvalue().splitlines() == [
        "1 of 3 runs were already finished",
        "2/3 a: 4,500 words/s, about 40 s left",
        "3/3 b: failed: killed by SIGKILL",
    ]
    text = bar.getvalue()
    assert "1/3 runs, 2 min left, a starting" in text
    assert "9 words/s, last 4,500 words/s" in text
    assert "b: failed: killed by SIGKILL" in text and "b 2/5 batches, 9 words/s" in text


def test_a_narrow_terminal_keeps_the_devices_of_a_run():
    texts = [
        "2 min left",
        "dynamic_rnn-parameter_server-16.r3 14/30 batches",
        "last 300,000 words/s",
    ]
    for room in range(30, 100):
        shown = display.fit(texts, room)
        assert len(shown) <= room and shown.startswith("2 min left, d")
        assert room < 55 or "server-16.r3 14/30" in shown
    assert display.fit(texts, 100) == ", ".join(texts)
    assert display.fit(["2 min left"], 5) == "2 min left"


def fit_lines(text, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    print_fitted(text, stream)
    return stream.getvalue().split("\n")


TABLE = """\
### a title
| Series                  | Processing speed (words/s) | Speedup ratio |
|------------------------:|---------------------------:|--------------:|
| cudnn_lstm, independent |           26,100 ± 800     |   1.89 ± 0.19 |
| x \\| y                  |                  n/a       |          1.00 |

    ./run.sh sweep --a_long_command --that=must --stay=whole
A sentence that is somewhat longer than the line is broken between its words.
"""


def test_a_table_fits_the_terminal_and_a_command_stays_whole(monkeypatch):
    assert fit_lines(TABLE, 56, monkeypatch) == [
        "### a title",
        "                         Processing speed",
        "Series                          (words/s)  Speedup ratio",
        "─" * 56,
        "cudnn_lstm, independent      26,100 ± 800    1.89 ± 0.19",
        "x | y                                 n/a           1.00",
        "",
        "    ./run.sh sweep --a_long_command --that=must --stay=whole",
        "A sentence that is somewhat longer than the line is",
        "broken between its words.",
        "",
    ]
    assert (
        fit_lines(TABLE, 200, monkeypatch)[:6] == fit_lines(TABLE, 120, monkeypatch)[:6]
    )


def test_a_table_of_any_form_loses_no_number(monkeypatch):
    draw = random.Random(1)
    for _ in range(200):
        size = range(draw.randint(1, 9))
        cells = [[f"{draw.randrange(10 ** draw.randint(1, 9)):,}" for _ in size]]
        for _ in range(draw.randint(0, 4)):
            cells.append([f"{draw.random():.3f} ± 0.1" for _ in size])
        titles = ("a", "Devices", "Total time to process (s)")
        head = [draw.choice(titles) for _ in size]
        lines = fit_lines(
            format_table(head, cells), width := draw.randint(30, 120), monkeypatch
        )
        assert max(map(len, lines)) <= width
        for row in cells:
            assert all(any(cell in line for line in lines) for cell in row)


def test_a_terminal_shows_what_markdown_escapes():
    stream = Terminal()
    print_fitted(
        "| kernel |\n| --- |\n| gemm&lt;float> a\\|b |\n\nhttp&#58;//e [a]\\(b)\n",
        stream,
    )
    assert "gemm<float> a|b" in stream.getvalue()
    assert "http://e [a](b)" in stream.getvalue()


def show_on_terminal(command, columns):
    """Return what a process prints on a terminal of a given width."""
    shell = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    reader, terminal = pty.openpty()
    size = struct.pack("HHHH", 40, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=shell,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    printed = b""
    try:
        while piece := os.read(reader, 1 << 16):
            printed += piece
    except OSError:  # Linux reports the end of a terminal as EIO
        pass
    os.close(reader)
    assert process.wait() == 0
    return printed.decode().replace("\r\n", "\n")


# Prints the width that a command sees for each COLUMNS_OF_TERMINAL:COLUMNS.
PRINT_WIDTHS = """
import fcntl, os, struct, sys, termios
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import find_width

def print_widths():
    for case in sys.argv[1:]:
        columns, _, stated = case.partition(":")
        size = struct.pack("HHHH", 40, int(columns), 0, 0)
        fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSWINSZ, size)
        os.environ["COLUMNS"] = stated
        print(find_width(sys.stdout))
    return 0

entry.leave(print_widths)
"""


def test_columns_overrides_the_terminal_and_a_bad_size_means_80():
    widths = {"50:": 50, "120:": 120, "200:50": 50}
    widths |= {"120:wide": 120, "120:0": 120, "0:": 80}
    shown = show_on_terminal(["-c", PRINT_WIDTHS, *widths], 90)
    assert [int(line) for line in shown.split()] == list(widths.values())


def test_prose_keeps_numbers_with_their_intervals_and_commands_whole():
    stream = Terminal()
    texts = ("- " + "word " * 9, "- x " * 3)
    sentence_text = (
        "the rate is 15,150 ± 260 words/s, 7.1 % more, see `./run.sh report --full`."
    )
    for text, columns in itertools.product(texts, range(40, 60)):
        stream = Terminal()
        with mock.patch.dict(os.environ, COLUMNS=str(columns)):
            print_fitted(f"{text}{sentence_text}\n", stream)
        lines = stream.getvalue().splitlines()
        for whole in ("15,150 ± 260", "7.1 %", "`./run.sh report --full`"):
            assert any(whole in line for line in lines), (columns, whole)
        assert all(line.startswith("  ") for line in lines[1:])
        assert max(map(len, lines)) <= columns

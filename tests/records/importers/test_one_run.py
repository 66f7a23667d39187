"""The log of one run as a sweep reads it: a known format, or a pattern."""

import re
import signal

import pytest

from rnn_scaling.records.importers import regex_log
from rnn_scaling.records.importers.formats import FORMATS
from tests.support import log_samples
from tests.support.log_samples import parse, read_run

MS = r"regex:step\s+(?P<step>\d+) ms (?P<ms>\S+)"


def read(tmp_path, text, formats="auto", **terms):
    (tmp_path / "log.txt").write_text(text)
    return read_run(tmp_path / "log.txt", formats, **terms)


@pytest.mark.parametrize("formats", ["gnmt,tf_cnn", "auto,regex:(?P<rate>x)"])
def test_a_known_format_is_found(tmp_path, formats):
    reading = read(tmp_path, log_samples.TF_CNN, formats)
    devices = reading.options["num_devices"]
    assert reading.format == "tf_cnn_benchmarks"
    assert reading.unit == "images"
    assert devices == 2
    assert not reading.seconds
    assert any("total images/sec = " in note for note in reading.notes)


def test_formats_that_tell_rates_are_those_whose_rows_have_one():
    for name, form in FORMATS.items():
        runs = parse(name, log_samples.ALL[name]).runs
        has_rates = any(run.record.throughput for run in runs)
        assert form.has_rates == has_rates, name


@pytest.mark.parametrize(
    "text, formats, reason",
    [
        ("hello\n", "auto", "its output has no known format (tf_cnn_benchmarks, "),
        ("", "auto", "the program printed nothing"),
        ("a\0b", "regex:(?P<rate>.)", "its output cannot be read: the file is binary"),
        (
            log_samples.TF_CNN + log_samples.TF_CNN,
            "auto",
            "(as tf_cnn_benchmarks: expected one rate of one run, got 2",
        ),
        (
            "rate 12,5\n",
            "regex:rate (?P<rate>.*)",
            "line 1 of its output: rate is '12,5', which is not a number",
        ),
        (
            "2 s\n",
            r"regex:((?P<items>\d+) in )?(?P<seconds>\d+) s",
            "the pattern reads only seconds; add the group items",
        ),
        (
            "a 1\nb 2\n",
            r"regex:a (?P<rate>\d)|b (?P<seconds>\d)",
            "the pattern's matches contain rate and seconds; ",
        ),
    ],
)
def test_what_tells_no_rate_says_why(tmp_path, text, formats, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        read(tmp_path, text, formats)


def test_a_pattern_that_never_ends_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(regex_log, "MAX_SEARCH_S", 0.05)
    with pytest.raises(ValueError, match="more than 0.05 s"):
        read(tmp_path, f"{'a' * 60}\n", "regex:(a+)+(?P<rate>b)")
    monkeypatch.undo()
    assert read(tmp_path, "rate 7\n", "regex:rate (?P<rate>.)").rate == 7.0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_rates_are_averaged_over_their_items(tmp_path):
    pattern = r"regex:rate (?P<rate>[\d.,]+)"
    assert read(tmp_path, "rate 1,000.0\n", pattern).rate == 1000.0
    # The first holds the start; 100 items at 10 a second and 100 at 40 take 12.5 s.
    assert read(tmp_path, "rate 1\nrate 10\nrate 40\n", pattern).rate == pytest.approx(
        16.0
    )
    by_step = r"regex:at (?P<step>\d+) rate (?P<rate>\d+)"
    assert read(
        tmp_path, "at 10 rate 1\nat 20 rate 10\nat 50 rate 40\n", by_step
    ).rate == pytest.approx(40 / 1.75)
    assert read(tmp_path, "rate 1\nrate 10\n", pattern, warmup=0).rate == pytest.approx(
        20 / 11
    )


def test_what_was_printed_with_few_digits_is_known_to_half_a_unit(tmp_path):
    def rounding(text, pattern, **terms):
        return read(tmp_path, text, f"regex:{pattern}", **terms).rounding

    rate = r"rate (?P<rate>\S+)"
    assert rounding("rate 2\n", rate) == pytest.approx(0.5 / 2)
    assert rounding("rate 3.1\n", rate) == pytest.approx(0.05 / 3.1)
    assert rounding("rate 2e3,\n", rate) == pytest.approx(0.5 / 2)
    assert rounding("rate 9\nrate 2\nrate 4\n", rate) == pytest.approx(
        1 - (2 / (1 / 1.5 + 1 / 3.5)) / (2 / (1 / 2 + 1 / 4))
    )
    of_steps = r"(?P<items>\S+) in (?P<seconds>\S+) s"
    assert rounding("30 in 2.0 s\n30 in 3.0 s\n", of_steps, warmup=0) == pytest.approx(
        0.1 / 5
    ), "a count is exact"
    assert rounding("3e1 in 2.0 s\n", of_steps) == pytest.approx(
        1 - (30 / 35) * (1.95 / 2)
    )
    assert rounding(
        "step 10 ms 5\nstep 20 ms 4\n", MS.removeprefix("regex:"), items_per_step=1.0
    ) == pytest.approx(0.5 / 4)
    reading = read(tmp_path, log_samples.TF_CNN)
    assert reading.rounding == pytest.approx(0.005 / reading.rate, rel=1e-3)


def test_matches_are_batches_of_as_many_steps_as_there_were(tmp_path):
    text = "step 200 ms 5\nstep 400 ms 4\nstep 500 ms 2\nstep 200 ms 1\n"
    reading = read(tmp_path, text, MS, items_per_step=700.0)
    assert reading.seconds == pytest.approx((1.0, 0.8, 0.2, 0.2))
    assert reading.items == (140e3, 140e3, 70e3, 140e3)
    assert reading.warmup == 1
    assert reading.rate == pytest.approx(350e3 / 1.2)
    resumed = read(tmp_path, "step 9000 ms 5\nstep 9100 ms 4\n", MS, items_per_step=7.0)
    assert resumed.seconds == pytest.approx((0.5, 0.4))
    assert resumed.items == (700.0, 700.0)
    stretch = read(
        tmp_path,
        "30 items in 2 s, loss nan\n",
        r"regex:(?P<items>\d+) items in (?P<seconds>\d+) s",
    )
    assert stretch.items == (30.0,)
    assert stretch.seconds == (2.0,)
    assert stretch.warmup == 0
    assert stretch.loss == ()


@pytest.mark.parametrize("tag", ["{}: ", "[{}] "])
def test_a_number_before_a_line_is_a_rank_only_where_a_rank_can_have_it(tmp_path, tag):
    def rate(numbers, rates, pattern="", num_devices=2):
        text = "".join(
            f"{tag.format(number)}rate {rate}\n" for number, rate in zip(numbers, rates)
        )
        return read(
            tmp_path,
            text,
            f"regex:{pattern}rate (?P<rate>\\S+)",
            num_devices=num_devices,
        ).rate

    assert rate((0, 1, 0, 1, 0, 1), (1, 2, 10, 20, 10, 20)) == pytest.approx(10.0)
    assert rate((1, 2, 3, 1, 2, 3), (1, 10, 10, 10, 10, 10)) == pytest.approx(10.0), (
        "steps of two epochs"
    )
    assert rate((0, 1), (1, 10)) == rate((100, 200), (1, 10)) == pytest.approx(10.0)
    of_steps = re.escape(tag).replace(r"\{\}", r"(?P<step>\d+)")
    assert rate((10, 20, 50), (1, 10, 40), of_steps) == pytest.approx(40 / 1.75), (
        "the pattern reads it"
    )

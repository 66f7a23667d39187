"""Numbers as programs print them, and numbers of which a pattern takes a part."""

import re

import pytest

from rnn_scaling.records.importers import log_numbers

PLAIN, TOKEN = r"words/s: (?P<rate>[0-9.]+)", "words/s: {number}"
NUMBERS = {
    "12,345.6": 12345.6,
    "12.3k": 12300.0,
    "1.5M": 1.5e6,
    "1.5 M": 1.5e6,
    "1.2B": 1.2e9,
    "1.23e+04": 12300.0,
    "12_345": 12345.0,
    "12\u202f345.5": 12345.5,
    "1,23,456": 123456.0,
    "12.3ktok/s": 12300.0,
    "12.3kfoo/s": 12300.0,
}


def match_number(pattern, text, name="rate"):
    """Return the group's number and its fault."""
    match = log_numbers.compile_pattern(pattern).search(text)
    number = log_numbers.parse_number(log_numbers.find_number_text(match, name))
    return number.value, log_numbers.find_fault(match, name)


@pytest.mark.parametrize("text, value", NUMBERS.items())
def test_every_number_is_read_whole_or_refused(text, value):
    line = f"lr 1e-3 words/s: {text} loss 2"
    assert match_number(TOKEN, line) == (pytest.approx(value), "")
    assert "{number} reads any number" in match_number(PLAIN, line)[1]


@pytest.mark.parametrize(
    "text, value",
    {"12": 12, "7 Tokens/s": 7, "7Tokens/s": 7, "10 B/s": 10, "3. Next": 3}.items(),
)
def test_what_follows_a_number_is_not_taken_for_a_part_of_it(text, value):
    for pattern in (PLAIN, TOKEN):
        assert match_number(pattern, f"words/s: {text}, 300 words") == (value, "")


@pytest.mark.parametrize(
    "pattern, line, name",
    [
        (r"(?P<rate>[\d.]+) words", "12,345.6 words", "rate"),
        (r"(?P<rate>[\d.]+).*words", "12,345.6 words", "rate"),
        (r"(?P<rate>\d+)$", "12,345", "rate"),
        (r"(?P<rate>\d{2})", "rate 12345", "rate"),
        (r"(?P<rate>[\d.]+)k?", "rate 12.3k", "rate"),
        (r"loss\D+(?P<loss>[\d.]+)", "loss: -3.2", "loss"),
        (r"in (?P<seconds>[\d.]+)", "in 12.5ms", "seconds"),
        (r"in (?P<seconds>[\d.]+)", "in 1:23", "seconds"),
        (r"in (?P<ms>[\d.]+)", "in 3 us", "ms"),
        (r"words/s: {number}", "words/s: 12,5", "rate"),
    ],
)
def test_a_part_of_a_number_is_refused(pattern, line, name):
    assert f"the group {name} reads " in match_number(pattern, line, name)[1]


@pytest.mark.parametrize(
    "pattern, line, name",
    [
        (r"^(?P<step>\d+),(?P<items>\d+),(?P<ms>[\d.]+)", "100,512,3.5", "step"),
        (r"^(?P<step>\d+),(?P<items>\d+),(?P<ms>[\d.]+)", "100,512,3.5", "items"),
        (r"epoch-(?P<step>\d+)", "epoch-12", "step"),
        (r"(?P<step>\d+)/(?P<total>\d+)", "12/100 [00:10<03:10", "total"),
        (r"(?P<seconds>[\d.]+) min", "2.1 min 1.9 max 2.5", "seconds"),
    ],
)
def test_a_separator_that_the_pattern_asks_for_is_none_of_a_number(pattern, line, name):
    assert match_number(pattern, line, name)[1] == ""


@pytest.mark.parametrize("bracket", ["(", "(?:", "(?=", "[", "(?P<rate>"])
def test_a_pattern_that_cannot_be_compiled_is_refused(bracket):
    with pytest.raises(re.error):
        log_numbers.compile_pattern(5000 * bracket + 5000 * ")")


def test_a_bracket_in_brackets_is_no_warning(recwarn):
    assert log_numbers.compile_pattern("[[a-z]+ {number}").search("x[a 5")
    assert not recwarn.list

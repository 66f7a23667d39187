"""Properties of every importer: it recognises its format, and only raises LineErrors."""

import json

import pytest

from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.reading import LineError, Reading
from tests.support import log_samples
from tests.support.log_samples import ALL

NAMES = sorted(FORMATS)
# Logs of public projects that are not the sample of their format.
REAL_LOGS = {
    "gnmt_mlperf": "gnmt",
    "keras_verbose2": "keras",
    "lightning_tqdm": "lightning",
    "mlperf_v05": "mlperf",
    "tf_cnn_async": "tf_cnn_benchmarks",
    "tf_cnn_command": "tf_cnn_benchmarks",
    "tqdm": "tqdm",
}


def parse(name, text):
    """Return the log, or the LineError's reason; other exceptions fail the test."""
    try:
        log = log_samples.parse(name, text)
    except LineError as e:
        assert "\n" not in e.reason and e.line >= 1
        return e.reason
    assert isinstance(log, Reading) and log.format == name
    assert log.runs or any(table.rows for table in log.tables)
    for table in log.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    return log


def test_every_format_has_a_sample():
    assert sorted(ALL) == NAMES


def read_numbers(log):
    """Return the JSON of all that a log contains, without the notes for users."""
    runs = []
    for run in log.runs:
        fields = {"line": run.line, "unit": run.record.unit, "options": run.options}
        if run.rate:
            limits = (run.rate.value, run.rate.low, run.rate.high)
            fields["rate"] = [round(limit, 9) for limit in limits]
        extra = {name: number.value for name, number in run.extra.items()}
        runs.append({**fields, "extra": extra})
    tables = []
    for table in log.tables:
        rows = [dict(zip(table.columns, row)) for row in table.rows]
        tables.append({"title": table.title, "rows": rows})
    return json.dumps({"runs": runs, "tables": tables}, indent=1) + "\n"


@pytest.mark.parametrize("name", [*NAMES, *(f"{log}.log" for log in REAL_LOGS)])
def test_the_numbers_of_a_log_are_those_of_the_golden_file(name, is_golden):
    log = name.removesuffix(".log")
    text = ALL[name] if name in ALL else log_samples.read_raw(log)
    reading = parse(REAL_LOGS[log] if name.endswith(".log") else name, text)
    assert is_golden(f"imports/{name}.json", read_numbers(reading))


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_of_its_own_format_only(name):
    assert [other for other in NAMES if FORMATS[other].detect(ALL[name])] == [name]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_has_no_problems(name):
    log = parse(name, ALL[name])
    assert not isinstance(log, str), log
    assert log.problems == () and log.notes


@pytest.mark.parametrize("name", NAMES)
def test_windows_line_ends_change_nothing(name):
    plain, windows = (
        parse(name, ALL[name]),
        parse(name, ALL[name].replace("\n", "\r\n")),
    )
    assert plain == windows


@pytest.mark.parametrize("name", NAMES)
def test_other_formats_give_an_error(name):
    for other in NAMES:
        if other != name:
            assert isinstance(parse(name, ALL[other]), str), (
                f"{name} read a sample of {other}"
            )


@pytest.mark.parametrize("name", NAMES)
def test_a_log_cut_at_any_line_or_character(name):
    text = ALL[name]
    lines = text.splitlines(keepends=True)
    for i in range(len(lines)):
        parse(name, "".join(lines[:i]))
        parse(name, "".join(lines[i:]))
    for i in range(0, len(text), 7):
        parse(name, text[:i])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["", "hello\n" * 3, "[1, 2", '{"version": 3', "\x7fELF\x00"]
)
def test_foreign_text_is_one_error(name, text):
    assert not FORMATS[name].detect(text)
    assert isinstance(parse(name, text), str)

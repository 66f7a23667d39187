"""Rates that a sweep reads from a program's output by a pattern, with the real command."""

import json
import shlex
import sys

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.records import record
from rnn_scaling.records.folder import Folder, RunFile
from rnn_scaling.reports import json_report, report_files
from rnn_scaling.reports.summary import summarise
from rnn_scaling.sweeps import early_checks
from tests.support.paths import GOLDEN

# A busy machine would hide speedups from the report.
pytestmark = pytest.mark.usefixtures("quiet_machine")

CASES = GOLDEN / "printed_rates"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Leave out the pictures, and the look at this machine's load."""
    monkeypatch.setattr(report_files, "report", lambda source, target: None)
    monkeypatch.setattr(early_checks, "check_load", lambda: [])


def report_of(folder):
    """Return the JSON report of a folder of records."""
    files = [
        RunFile(path.name, record.read(path)) for path in sorted(folder.glob("*.json"))
    ]
    summary = summarise(Folder(tuple(files), ()), str(folder))
    return json.loads(json_report.render(summary))


class Measured:
    """The result of one sweep of one run."""

    def __init__(self, folder, status, name):
        self.status = status
        self.record = json.loads((folder / f"{name}-1.json").read_text())
        self.folder = folder

    @property
    def statements(self):
        """Return the values of the report's statements by kind."""
        statements = report_of(self.folder)["statements"]
        return {statement["kind"]: statement["values"] for statement in statements}

    @property
    def rate(self):
        """Return the run's items/s."""
        assert self.status == 0, self.record["error"]
        return self.record["throughput"]["items_per_second"]

    @property
    def refusal(self):
        """Message of the run's failure."""
        assert self.status == 1
        return self.record["error"]["message"]


@pytest.fixture
def measure(tmp_path):
    """Return a function that runs a sweep of one command."""

    def run(trainer, pattern, *words):
        command = [
            f"--trainer={trainer}",
            f"--log_format=regex:{pattern}",
            "--trainer_name=program",
            "--num_devices=1",
            "--repeats=1",
            f"--out={tmp_path}/out",
            *words,
        ]
        status = sweep.main(command)
        return Measured(tmp_path / "out", status, "program")

    return run


@pytest.fixture
def measure_case(measure):
    """Return a function that runs a sweep of a program that prints a file."""

    def run(case, pattern, *words):
        return measure(f"cat {CASES / case}", pattern, *words)

    return run


@pytest.fixture
def python(tmp_path):
    """Return a function that returns a command that runs a Python program."""

    def command(program):
        path = tmp_path / "program.py"
        path.write_text(program)
        return f"{shlex.quote(sys.executable)} {path}"

    return command


ITEMS = "--items_per_step="


@pytest.mark.parametrize(
    "case, pattern, words, rate",
    [
        ("time_ms.log", "time (?P<ms>{number})ms", [f"{ITEMS}1"], 2.4325),
        ("elapsed_ms.log", r"\(ms\): (?P<ms>{number})", [f"{ITEMS}512"], 9.7887),
        ("megabytes.log", "throughput = {number} MB/s", ["--unit=MB"], 18.999),
        ("thousands.log", "wps {number}", ["--unit=words"], 58597.7),
        ("zero_first.log", '"wps": "{number}"', ["--unit=words"], 42177.9),
    ],
)
def test_the_printed_rate_is_read(measure_case, case, pattern, words, rate):
    assert measure_case(case, pattern, *words).rate == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(
    "case, pattern, remedy",
    [
        ("time_ms.log", "time {number}ms", "(?P<ms>{number})"),
        ("elapsed_ms.log", r"\(ms\): {number}", "(?P<ms>{number})"),
        ("elapsed_ms.log", "iteration  1/ 500 .*: {number} ", r"\s+ for blanks"),
    ],
)
def test_a_pattern_without_a_rate_is_refused_with_a_remedy(
    measure_case, case, pattern, remedy
):
    assert remedy in measure_case(case, pattern).refusal


def test_lines_that_come_at_once_in_a_longer_run_are_flagged(measure, python):
    program = (
        "import time\n"
        "lines = [f'{k}: 2320{k % 7}000 images/s' for k in range(20)]\n"
        "print('\\n'.join(lines))\n"
        "time.sleep(0.4)\n"
    )
    measured = measure(python(program), "{number} images/s")
    assert measured.statements["log-lines-at-once"]["lines"] == 20


def test_a_file_that_is_only_printed_is_flagged(measure_case):
    rates = measure_case("burst.log", "{number} images/s")
    assert rates.statements["log-lines-at-once"]["lines"] == 5


def test_printed_times_longer_than_the_run_are_flagged(measure_case):
    times = measure_case("time_ms.log", "time (?P<ms>{number})ms", f"{ITEMS}1")
    values = times.statements["log-longer-than-process"]
    assert values["printed_s"] == pytest.approx(9.777, rel=1e-3)


def test_the_steps_between_lines_count_as_printed_times(measure, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("".join(f"step {5000 * k} ms 1.5\n" for k in range(1, 5)))
    pattern = r"step (?P<step>\d+) ms (?P<ms>{number})"
    measured = measure(f"cat {path}", pattern, f"{ITEMS}1")
    assert measured.rate == pytest.approx(1000 / 1.5)
    assert measured.statements["log-longer-than-process"]["printed_s"] == 30


@pytest.mark.parametrize(
    "line, pattern, kind, values",
    [
        (
            "tokens/s {rate} avg tokens/s {other}",
            "^tokens/s {number}",
            "log-other-rate",
            {"ratio": 6.0},
        ),
        ("wps {slow}", "wps {number}", "log-spread", {"spread": 30.0}),
    ],
)
def test_implausible_rates_are_flagged(measure, tmp_path, line, pattern, kind, values):
    texts = []
    for k in range(12):
        rate = 600.0 + k
        slow = rate / 30 ** (k % 4 / 3)
        texts.append(line.format(rate=rate, other=f"{rate / 6:.2f}", slow=slow))
    path = tmp_path / "log.txt"
    path.write_text("\n".join(texts) + "\n")
    flagged = measure(f"cat {path}", pattern).statements[kind]
    for name, value in values.items():
        assert flagged[name] == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize(
    "line, pattern",
    [
        ("{rate} it/s, {other} samples/s", "{number} it/s"),
        ("learning rate {std} rate {rate}", " rate {number}$"),
    ],
)
def test_plausible_rates_are_not_flagged(measure, python, line, pattern):
    texts = []
    for k in range(12):
        rate = 600.0 + 20 * k
        texts.append(line.format(rate=rate, other=32 * rate, std=f"{rate / 50:.2f}"))
    program = (
        "import time\n"
        f"for line in {texts!r}:\n"
        "    print(line, flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    measured = measure(python(program), pattern)
    kinds = measured.statements.keys()
    assert not {"log-lines-at-once", "log-other-rate", "log-spread"} & kinds


def test_warnings_of_the_program_are_reported_once(measure, python):
    program = (
        "for k in range(5):\n"
        "    print(f'2024-01-0{k + 1} WARNING: loader is slow, {k} ms')\n"
        "    print(f'wps {500 + k}')\n"
        "print('train.py:7: UserWarning: no pinned memory')\n"
        "print('no warnings so far')\n"
    )
    measured = measure(python(program), "wps {number}", "--repeats=2")
    warnings = measured.statements["program-warnings"]["warnings"]
    assert len(warnings) == 2
    assert "loader is slow" in warnings[0]
    assert "no pinned memory" in warnings[1]


def test_a_global_batch_without_a_place_declares_strong_scaling(tmp_path, python):
    program = (
        "import os\n"
        "devices = int(os.environ['RNN_SCALING_NUM_DEVICES'])\n"
        "for k in range(5):\n"
        "    print('step took', 100 / devices, 'ms')\n"
    )
    words = [
        f"--trainer={python(program)}",
        "--trainer_name=mine",
        "--log_format=regex:took (?P<ms>{number}) ms",
        "--items_per_step={global_batch_size}",
        "--global_batch_size=512",
        "--num_devices=1,2",
        "--repeats=1",
        "--device=cpu",
        f"--out={tmp_path}/out",
    ]
    assert sweep.main(words) == 0
    report = report_of(tmp_path / "out")
    [series] = report["series"]
    assert [row["global_batch_size"] for row in series["rows"]] == [512, 512]
    assert series["rows"][1]["speedup"]["value"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "words",
    [["--global_batch_size=512"], ["--batch_size=512", f"{ITEMS}{{batch_size}}"]],
)
def test_other_options_without_a_place_are_refused(tmp_path, capsys, words):
    pattern = "--log_format=auto,regex:(?P<ms>.)"
    if len(words) == 1:
        pattern = "--log_format=auto"
    command = ["--trainer=true", "--num_devices=1", f"--out={tmp_path}/out", pattern]
    assert sweep.main([*command, *words]) == 2
    assert "--trainer has no placeholder" in capsys.readouterr().err


def test_an_impossible_step_ends_its_run_but_not_the_sweep(measure):
    steps = f"echo step {'9' * 5000}"
    assert "step" in measure(steps, "step (?P<step>{number})", f"{ITEMS}1").refusal

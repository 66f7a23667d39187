"""The command import_log: detected formats, table of rates, one-line errors, exit status."""

import errno
import json
import os
import re
from pathlib import Path

import pytest

from rnn_scaling.commands import import_log
from rnn_scaling.records import record
from rnn_scaling.records.importers import importing, reading
from tests.support import log_samples


@pytest.fixture
def run(run_command, tmp_path, monkeypatch):
    """Return a function that runs the command in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        status, out, err = run_command(import_log, *words)
        return status, out, err.splitlines()

    return call


def write(name, text):
    """Write a file into the current folder; return its name."""
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def write_scaling(*rates):
    """Write the log of a run on each number of devices; return the names."""
    return [
        write(f"{n}.log", log_samples.horovod_synthetic(n, rate)) for n, rate in rates
    ]


def test_one_table_of_rates_from_several_files(run, is_golden):
    files = write_scaling((4, 97.0), (1, 100.0), (2, 99.0))
    status, out, err = run(*files)
    assert (status, err) == (0, [])
    assert is_golden("import_log.md", out)


def test_json_has_every_log_with_its_notes_and_problems(run):
    write("a.log", log_samples.SEED_TRAINER.replace("|2|", "|0|"))
    write("topo.txt", log_samples.TOPO)
    status, out, err = run("a.log", "topo.txt", "--output=json")
    [line] = err
    assert status == 1
    assert line.startswith("error: a.log:7: ")
    assert "above 0, got '0'" in line
    rates, topo = json.loads(out)["logs"]
    assert rates["format"] == "seed_trainer"
    assert rates["tables"][0]["points"][0]["rate"] == 55411.433
    assert rates["problems"] == [
        {"line": 7, "reason": err[0].partition("7: ")[2], "more": 0}
    ]
    assert topo["tables"][0]["rows"][0][:3] == ["GPU0", "X", "NV2"] and topo["notes"]


def test_a_file_of_several_formats_gives_all(run):
    file = write(
        "job.log",
        log_samples.TOPO + log_samples.NCCL_TESTS + log_samples.HOROVOD_SYNTHETIC,
    )
    status, out, err = run(file)
    assert (status, err) == (0, [])
    for title in ("### Rates", "Collective operations", "Topology"):
        assert title in out


def test_a_format_after_much_other_text_is_found(run):
    line = "node1:4711:4720 [0] NCCL INFO Channel 00 : 0 1 2 3\n"
    noise = line * (3 * importing.WINDOW // 50)
    file = write("job.log", noise + log_samples.HOROVOD_SYNTHETIC)
    assert run(file)[0] == 0
    assert (
        len(list(importing.read_windows(Path(file)))) == 4
    )  # never all of it in memory


@pytest.mark.parametrize(
    "content, reason",
    [
        ("", "x:1: the file is empty"),
        (b"\x7fELF\x02\x01\x00\x00" * 9, "x:1: the file is binary"),
        (
            "total images/sec: 1.0\n".encode("utf-16"),
            "x:1: the file is UTF-16 text; convert it first",
        ),
        (
            "total images/sec: nan\n",
            "x:1: expected total images/sec above 0, got 'nan'",
        ),
    ],
)
def test_what_is_no_log_is_one_line_and_the_others_are_read(run, content, reason):
    write("x", content)
    write("good", log_samples.HOROVOD_SYNTHETIC)
    status, out, err = run("x", "good")
    assert status == 1 and len(err) == 1 and err[0].startswith(f"error: {reason}")
    assert "good:9" in out


def test_files_that_cannot_be_opened(run):
    assert run("none.log") == (1, "", [f"error: none.log: {os.strerror(errno.ENOENT)}"])
    assert run(".") == (1, "", ["error: .: a folder; expected a regular file"])


@pytest.mark.parametrize(
    "words, reason",
    [
        ([], "expected FILE [FILE ...], got nothing"),
        (
            ["--format=horovod", "x"],
            "--format=horovod must be one of auto, tf_cnn_benchmarks",
        ),
    ],
)
def test_wrong_use(run, words, reason):
    status, out, err = run(*words)
    assert (status, out) == (2, "") and err[0].startswith(f"error: {reason}")


def test_a_named_format_that_is_not_there(run):
    file = write("a.log", log_samples.TOPO)
    status, out, err = run(file, "--format=mlperf")
    assert (status, out, len(err)) == (1, "", 1)
    assert err[0].startswith("error: a.log:1: ") and "run_start" in err[0]


def test_bytes_that_are_no_utf8_and_colours_do_no_harm(run):
    text = log_samples.HOROVOD_SYNTHETIC.replace(
        "resnet50", "\x1b[32mresnet50\x1b[0m"
    ).encode()
    file = write(
        "a.log", b"\xff\xfe\xfa progress \r\n".replace(b"\xff\xfe", b"\xfa") + text
    )
    status, out, _ = run(file)
    assert status == 0 and "resnet50" in out and "\x1b" not in out


def test_lines_longer_than_a_piece(run, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 64)
    monkeypatch.setattr(importing, "PIECE", 64)
    file = write("a.log", "x" * 1000 + "\n" + log_samples.HOROVOD_SYNTHETIC)
    status, out, err = run(file)
    assert (status, err) == (0, []) and "a.log:10" in out


def test_problems_of_one_kind_are_counted():
    problems = reading.Problems()
    for line in range(1, 101):
        problems.add(line, f"row {line} is bad", "bad row")
    for line in range(200, 300):
        problems.add(line, f"kind {line}")
    first = problems.all()[0]
    assert first.line == 1
    assert first.reason == "row 1 is bad"
    assert first.more == 99
    assert first.text("x").startswith("x:1: row 1 ")
    assert len(problems.all()) == reading.MAX_KINDS + 1
    assert problems.all()[-1].reason == "further faults of several kinds"
    assert problems.all()[-1].more == 80


def test_a_saved_log_is_read_by_the_pattern_of_a_sweep(run):
    rates = (31.2, 58.4, 58.8, 58.6)
    file = write("a.log", "".join(f"wps {rate}K\n" for rate in rates))
    words = ["--format=regex:wps {number}", "--unit=words", "--output=json"]
    status, out, _ = run(file, *words)
    [rate] = json.loads(out)["rates"]
    assert (status, rate["unit"]) == (0, "words/s")
    assert rate["rate"] == pytest.approx(58_600, rel=1e-3)
    bad = write("b.log", "wps 0\nwps 0\nwps 0\n")
    status, _, (line,) = run(bad, *words)
    assert status == 1 and line.startswith("error: b.log:1: rate is '0'")


PATTERN = "--format=regex:wps {number}"


def test_a_pattern_gives_a_record_if_the_devices_are_stated(run):
    file = write("a.log", "wps 100\nwps 101\n")
    status, _, (line,) = run(file, PATTERN, "--records=out")
    assert status == 1 and "a.log:1: no record: " in line and "--num_devices=N" in line
    words = [PATTERN, "--records=out", "--num_devices=2", "--batch_size=64"]
    status, _, err = run(file, *words)
    assert (status, err) == (0, [])
    [path] = Path("out").glob("*.json")
    config = record.read(path).config
    assert config["num_devices"] == 2
    assert config["batch_size"] == 64


@pytest.mark.parametrize(
    "flag, logged",
    [("--num_devices=4", "num_devices=2"), ("--batch_size=7", "batch_size=32")],
)
def test_stated_sizes_must_not_contradict_the_log(run, flag, logged):
    file = write("a.log", log_samples.horovod_synthetic(2))
    status, _, (line,) = run(file, flag, "--records=out")
    assert status == 1 and flag in line and logged in line
    assert not list(Path("out").glob("*.json"))
    agreeing = ["--num_devices=2", "--batch_size=32", "--records=out"]
    assert run(file, *agreeing)[0] == 0


def test_the_global_batch_of_a_log_is_divided_among_the_stated_devices(run):
    events = [
        ("submission_benchmark", 1000, "gnmt"),
        ("global_batch_size", 1000, 512),
        ("run_start", 2000, None),
        ("epoch_train_throughput", 3000, 100.0),
    ]
    lines = [log_samples.mllog(*event) for event in events]
    lines.append(log_samples.mllog("run_stop", 5000, None, status="success"))
    file = write("a.log", "\n".join(lines))
    status, out, err = run(file, "--num_devices=4", "--output=json")
    [rate] = json.loads(out)["rates"]
    sizes = (rate["devices"], rate["batch_size"], rate["global_batch_size"])
    assert (status, err, sizes) == (0, [], (4, 128, 512))
    status, _, (line,) = run(file, "--num_devices=4", "--batch_size=512")
    assert status == 1 and "batch_size=128" in line


def test_the_audit_checks_the_rates_of_all_files_together(run):
    files = write_scaling((1, 99.0), (2, 98.0), (4, 96.0))
    status, out, err = run(*files, "--audit")
    assert (status, err) == (0, [])
    assert re.search("Findings of the audit: 0 in [1-9]", out)
    # 14 times the speed of one.
    files += write_scaling((8, 180.0))
    status, out, err = run(*files, "--audit", "--output=json")
    assert (status, err) == (1, [])
    [finding] = json.loads(out)["findings"]
    assert finding["kind"] == "superlinear"
    assert finding["places"][0]["line"] == 9

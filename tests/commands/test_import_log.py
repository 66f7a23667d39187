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
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    status = import_log.main(list(words))
    out, err = capsys.readouterr()
    return status, out, err.splitlines()


def write(folder, name, text):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def test_one_table_of_rates_from_several_files(folder, capsys, is_golden):
    files = [
        write(folder, f"{n}.log", log_samples.horovod_synthetic(n, 101.0 - n))
        for n in (4, 1, 2)
    ]
    status, out, err = run(capsys, *files)
    assert (status, err) == (0, [])
    assert is_golden("import_log.md", out)


def test_json_has_every_log_with_its_notes_and_problems(folder, capsys):
    write(folder, "a.log", log_samples.SEED_TRAINER.replace("|2|", "|0|"))
    write(folder, "topo.txt", log_samples.TOPO)
    status, out, err = run(capsys, "a.log", "topo.txt", "--output=json")
    (line,) = err
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


def test_a_file_of_several_formats_gives_all(folder, capsys):
    file = write(
        folder,
        "job.log",
        log_samples.TOPO + log_samples.NCCL_TESTS + log_samples.HOROVOD_SYNTHETIC,
    )
    status, out, err = run(capsys, file)
    assert (status, err) == (0, [])
    for title in ("### Rates", "Collective operations", "Topology"):
        assert title in out


def test_a_format_after_much_other_text_is_found(folder, capsys):
    line = "node1:4711:4720 [0] NCCL INFO Channel 00 : 0 1 2 3\n"
    noise = line * (3 * importing.WINDOW // 50)
    file = write(folder, "job.log", noise + log_samples.HOROVOD_SYNTHETIC)
    assert run(capsys, file)[0] == 0
    assert (
        len(list(importing.read_windows(Path(file)))) == 4
    )  # never all of it in memory


@pytest.mark.parametrize(
    ("content", "reason"),
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
def test_what_is_no_log_is_one_line_and_the_others_are_read(
    folder, capsys, content, reason
):
    write(folder, "x", content)
    write(folder, "good", log_samples.HOROVOD_SYNTHETIC)
    status, out, err = run(capsys, "x", "good")
    assert status == 1 and len(err) == 1 and err[0].startswith(f"error: {reason}")
    assert "good:9" in out


def test_files_that_cannot_be_opened(folder, capsys):
    assert run(capsys, "none.log") == (
        1,
        "",
        [f"error: none.log: {os.strerror(errno.ENOENT)}"],
    )
    assert run(capsys, ".") == (1, "", ["error: .: a folder; expected a regular file"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "expected FILE [FILE ...], got nothing"),
        (
            ["--format=horovod", "x"],
            "--format=horovod must be one of auto, tf_cnn_benchmarks",
        ),
    ],
)
def test_wrong_use(capsys, words, reason):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "") and err[0].startswith(f"error: {reason}")


def test_a_named_format_that_is_not_there(folder, capsys):
    file = write(folder, "a.log", log_samples.TOPO)
    status, out, err = run(capsys, file, "--format=mlperf")
    assert (status, out, len(err)) == (1, "", 1)
    assert err[0].startswith("error: a.log:1: ") and "run_start" in err[0]


def test_bytes_that_are_no_utf8_and_colours_do_no_harm(folder, capsys):
    text = log_samples.HOROVOD_SYNTHETIC.replace(
        "resnet50", "\x1b[32mresnet50\x1b[0m"
    ).encode()
    file = write(
        folder,
        "a.log",
        b"\xff\xfe\xfa progress \r\n".replace(b"\xff\xfe", b"\xfa") + text,
    )
    status, out, _ = run(capsys, file)
    assert status == 0 and "resnet50" in out and "\x1b" not in out


def test_lines_longer_than_a_piece(folder, capsys, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 64)
    monkeypatch.setattr(importing, "PIECE", 64)
    file = write(folder, "a.log", "x" * 1000 + "\n" + log_samples.HOROVOD_SYNTHETIC)
    status, out, err = run(capsys, file)
    assert (status, err) == (0, []) and "a.log:10" in out


def test_problems_of_one_kind_are_counted():
    problems = reading.Problems()
    for line in range(1, 101):
        problems.add(line, f"row {line} is bad", "bad row")
    for line in range(200, 300):
        problems.add(line, f"kind {line}")
    first = problems.all()[0]
    assert (first.line, first.reason, first.more) == (1, "row 1 is bad", 99)
    assert first.text("x").startswith("x:1: row 1 ")
    assert len(problems.all()) == reading.MAX_KINDS + 1
    assert problems.all()[-1].reason == "further faults of several kinds"
    assert problems.all()[-1].more == 80


def test_a_saved_log_is_read_by_the_pattern_of_a_sweep(folder, capsys):
    rates = (31.2, 58.4, 58.8, 58.6)
    file = write(folder, "a.log", "".join(f"wps {rate}K\n" for rate in rates))
    words = ["--format=regex:wps {number}", "--unit=words", "--output=json"]
    status, out, _ = run(capsys, file, *words)
    (rate,) = json.loads(out)["rates"]
    assert (status, rate["unit"]) == (0, "words/s")
    assert rate["rate"] == pytest.approx(58_600, rel=1e-3)
    bad = write(folder, "b.log", "wps 0\nwps 0\nwps 0\n")
    status, _, (line,) = run(capsys, bad, *words)
    assert status == 1 and line.startswith("error: b.log:1: rate is '0'")


PATTERN = "--format=regex:wps {number}"


def test_a_pattern_gives_a_record_if_the_devices_are_stated(folder, capsys):
    file = write(folder, "a.log", "wps 100\nwps 101\n")
    status, _, (line,) = run(capsys, file, PATTERN, "--records=out")
    assert status == 1 and "a.log:1: no record: " in line and "--num_devices=N" in line
    words = [PATTERN, "--records=out", "--num_devices=2", "--batch_size=64"]
    status, _, err = run(capsys, file, *words)
    assert (status, err) == (0, [])
    (path,) = Path("out").glob("*.json")
    config = record.read(path).config
    assert (config["num_devices"], config["batch_size"]) == (2, 64)


@pytest.mark.parametrize(
    ("flag", "logged"),
    [("--num_devices=4", "num_devices=2"), ("--batch_size=7", "batch_size=32")],
)
def test_stated_sizes_must_not_contradict_the_log(folder, capsys, flag, logged):
    file = write(folder, "a.log", log_samples.horovod_synthetic(2))
    status, _, (line,) = run(capsys, file, flag, "--records=out")
    assert status == 1 and flag in line and logged in line
    assert not list(Path("out").glob("*.json"))
    agreeing = ["--num_devices=2", "--batch_size=32", "--records=out"]
    assert run(capsys, file, *agreeing)[0] == 0


def test_the_global_batch_of_a_log_is_divided_among_the_stated_devices(folder, capsys):
    events = [
        ("submission_benchmark", 1000, "gnmt"),
        ("global_batch_size", 1000, 512),
        ("run_start", 2000, None),
        ("epoch_train_throughput", 3000, 100.0),
    ]
    lines = [log_samples.mllog(*event) for event in events]
    lines.append(log_samples.mllog("run_stop", 5000, None, status="success"))
    file = write(folder, "a.log", "\n".join(lines))
    status, out, err = run(capsys, file, "--num_devices=4", "--output=json")
    (rate,) = json.loads(out)["rates"]
    sizes = (rate["devices"], rate["batch_size"], rate["global_batch_size"])
    assert (status, err, sizes) == (0, [], (4, 128, 512))
    status, _, (line,) = run(capsys, file, "--num_devices=4", "--batch_size=512")
    assert status == 1 and "batch_size=128" in line


def test_the_audit_checks_the_rates_of_all_files_together(folder, capsys):
    files = [
        write(folder, f"{n}.log", log_samples.horovod_synthetic(n, 100.0 - n))
        for n in (1, 2, 4)
    ]
    status, out, err = run(capsys, *files, "--audit")
    assert (status, err) == (0, [])
    assert re.search("Findings of the audit: 0 in [1-9]", out)
    files.append(
        write(folder, "8.log", log_samples.horovod_synthetic(8, 180.0))
    )  # 14 times the speed of one
    status, out, err = run(capsys, *files, "--audit", "--output=json")
    assert (status, err) == (1, [])
    (finding,) = json.loads(out)["findings"]
    assert (finding["kind"], finding["places"][0]["line"]) == ("superlinear", 9)

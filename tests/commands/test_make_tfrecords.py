"""The command that makes a small set of images."""

import resource
import signal

import pytest

from rnn_scaling.commands import make_tfrecords as command


@pytest.fixture(autouse=True)
def quiet(tf, monkeypatch):
    monkeypatch.setenv(
        "TF_CPP_MIN_LOG_LEVEL", "1"
    )  # else stderr of this process would go to a file


def read_made(folder, *words):
    assert (
        command.main(
            [f"--out={folder}", "--images=5", "--files=2", "--width=16", *words]
        )
        == 0
    )
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def test_equal_flags_make_equal_files(tmp_path):
    first = read_made(tmp_path / "a")
    assert len(first) == 2
    assert read_made(tmp_path / "b") == first != read_made(tmp_path / "c", "--seed=2")


@pytest.mark.parametrize(
    "bad", ("--images=1", "--files=0", "--classes=1001", "--width=4", "--seed=-1")
)
def test_wrong_flags_are_refused_by_name(bad, tmp_path, capsys):
    assert command.main([f"--out={tmp_path / 'd'}", "--files=2", bad]) == 2
    assert bad.split("=")[0] in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_a_folder_that_cannot_be_made_has_one_line(capsys):
    assert command.main(["--out=/proc/none"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_full_disk_has_one_line_and_leaves_no_part_of_a_file(
    tmp_path, monkeypatch, capsys
):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # else it ends the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        assert command.main([f"--out={tmp_path}", "--width=400"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    line = capsys.readouterr().err
    assert line.startswith(f"error: --out={tmp_path}: ")
    assert line.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_two_sets_of_files_do_not_share_a_folder(tmp_path, capsys):
    first = read_made(tmp_path)
    assert read_made(tmp_path) == first
    assert command.main([f"--out={tmp_path}", "--files=3"]) == 1
    assert f"--out={tmp_path}: train-00000-of-00002 exists" in capsys.readouterr().err
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == first

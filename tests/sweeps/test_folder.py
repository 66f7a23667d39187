"""A sweep's folder: its lock, and the files that are mistaken for neither lock nor record."""

import os

import pytest

from rnn_scaling.records import lock, record
from rnn_scaling.sweeps import folder
from rnn_scaling.sweeps.plan import interleave, plan
from rnn_scaling.system.files import output_files
from tests.support.names_taken import put
from tests.support.records import make_record


@pytest.mark.parametrize(
    "kind, reason",
    [
        (
            "symbolic link",
            "it is a symbolic link, and files are never written through links; remove it",
        ),
        (
            "hard link",
            "it is not a regular file, or it has other hard links; remove it",
        ),
        ("pipe", "it is not a regular file, or it has other hard links; remove it"),
        ("folder", "Is a directory"),
    ],
)
def test_a_lock_is_never_another_file(tmp_path, kind, reason):
    precious, path = tmp_path / "precious", tmp_path / "out" / lock.SWEEP_LOCK
    put(kind, path, precious)
    with pytest.raises(OSError) as refused, folder.lock(path.parent):
        pass
    assert refused.value.strerror == reason
    assert refused.value.filename == str(path)
    assert precious.read_text() == "mine\n" and not (tmp_path / "nowhere").exists()


def test_a_link_that_comes_between_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / lock.SWEEP_LOCK).symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(output_files, "refuse_link", lambda path: None)
    with pytest.raises(OSError), folder.lock(tmp_path):
        pass
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_was_taken_away_is_noticed(tmp_path, again):
    out = tmp_path / "out"
    out.mkdir()
    with folder.lock(out) as hold:
        assert hold.is_valid()
        out.rename(tmp_path / "elsewhere")
        if again:
            out.mkdir()
            (out / lock.SWEEP_LOCK).write_text("")
        assert not hold.is_valid()


def jobs(out, repeats=2):
    lists = {
        "encoder_type": ["cudnn_lstm"],
        "variable_update": ["independent"],
        "num_devices": [1],
    }
    [run] = plan(lists, num_gpus=0, num_cores=1)
    return [folder.Job(each, out) for each in interleave([run], repeats)]


def survey_folder(tmp_path, put):
    """Survey a sweep of two repeats after `put(first_path, second_path)`.

    Returns:
      The paths of finished runs, the labels of pending runs, and the reasons why other
      files cannot be read.
    """
    one, two = jobs(tmp_path)
    config = one.run.config.flat()
    record.write(make_record(config=config, environment={"started": "2026"}), one.path)
    put(one.path, two.path)
    survey = folder.survey([one, two], retry_failed=False, force=False)
    return (
        [*survey.finished],
        [job.label for job in survey.pending],
        [what for _, what in survey.unreadable],
    )


@pytest.mark.parametrize(
    "put, reason",
    [
        (lambda one, two: os.mkfifo(two), "a named pipe; expected a regular file"),
        (lambda one, two: two.symlink_to("nowhere"), "No such file or directory"),
        (
            lambda one, two: two.write_bytes(one.read_bytes()),
            "this is a copy of cudnn_lstm-independent-1.json",
        ),
        (
            lambda one, two: two.write_text(one.read_text().replace("0.1", "0.2")),
            "throughput.seconds is 0.43",
        ),
    ],
)
def test_what_is_no_record_of_its_own_is_set_aside_and_its_run_is_made(
    tmp_path, put, reason
):
    finished, pending, aside = survey_folder(tmp_path, put)
    assert finished == ["cudnn_lstm-independent-1"]
    assert pending == ["cudnn_lstm-independent-1.r2"]
    [what] = aside
    assert what.startswith(f"{tmp_path}/cudnn_lstm-independent-1.r2.json: {reason}")

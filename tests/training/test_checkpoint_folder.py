"""What stands in the folder of checkpoints, and what a person is told where a run cannot go on from it."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.config.naming import HOW_RUN
from rnn_scaling.records.parts import Resumption
from rnn_scaling.training import checkpoint_folder
from rnn_scaling.training.checkpoint_folder import CheckpointError, newest, trained
from tests.support.mutations import Document
from tests.support.paths import ROOT


def resolved(**given):
    return configs.resolve(given, num_gpus=0, num_cores=2)


def save(prefix):
    Path(f"{prefix}.index").write_bytes(b"index")
    Path(f"{prefix}.data-00000-of-00001").write_bytes(b"data" * 100)


def write(folder, done, *ranks, files=(), **given):
    target = checkpoint_folder.folder_of(str(folder), done)
    target.mkdir(parents=True)
    for rank in range(len(ranks)):
        save(checkpoint_folder.variables_in(target, rank))
    checkpoint_folder.publish(target, resolved(**given), ranks, files)


def saved(folder, *batches, files=(), **given):
    for done in batches:
        told = {"seconds": [0.5] * done, "items": [8] * done, "loss": [1.0] * done}
        write(
            folder,
            done,
            {"told": told, "resumed": [{"batch": 1, "seconds": 2.0}]},
            files=files,
            **given,
        )
    return [path.name for path in sorted(folder.iterdir())]


def test_the_newest_two_stay_and_the_last_is_read_whole(tmp_path):
    assert newest(str(tmp_path / "none"), resolved()) is None
    assert saved(tmp_path, 10, 20, 30) == ["batch_00000020", "batch_00000030"]
    (tmp_path / "batch_00000040").mkdir()
    save(
        tmp_path / "batch_00000040" / "variables"
    )  # a process was killed while it saved
    found = newest(
        str(tmp_path), resolved(num_batches=70, progress=False, save_every=3)
    )
    assert found.batches == 30 and found.columns["items"] == [8] * 30
    assert found.resumed == (Resumption(batch=1, seconds=2.0),)
    assert (
        Path(f"{checkpoint_folder.variables_in(found.folder, 0)}.index").read_bytes()
        == b"index"
    )
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "batch_00000020",
        "batch_00000030",
    ]


def test_weights_are_used_with_their_own_vocabulary_alone(tmp_path):
    vocabulary, other = tmp_path / "words", tmp_path / "other"
    vocabulary.write_text("a\nb\n")
    other.write_text("b\na\n")
    saved(tmp_path / "saved", 10, tgt_vocab_file=str(vocabulary))
    folder = str(tmp_path / "saved")
    for files in (
        {},
        {"tgt_vocab_file": str(vocabulary)},
        {"tgt_vocab_file": str(tmp_path / "none")},
    ):
        assert (
            checkpoint_folder.trained(folder, resolved(decode=True, **files)).name
            == "batch_00000010"
        )
    with pytest.raises(CheckpointError, match=f"--tgt_vocab_file={other}"):
        checkpoint_folder.trained(
            folder, resolved(decode=True, tgt_vocab_file=str(other))
        )
    vocabulary.write_text("a\nc\n")
    with pytest.raises(CheckpointError, match=f"--tgt_vocab_file={vocabulary}"):
        checkpoint_folder.trained(
            folder, resolved(decode=True, tgt_vocab_file=str(vocabulary))
        )


def test_a_run_of_another_configuration_is_told_the_option_that_differs(tmp_path):
    saved(tmp_path, 10, learning_rate=0.5)
    with pytest.raises(CheckpointError) as told:
        newest(str(tmp_path), resolved())
    assert all(
        part in str(told.value)
        for part in ("batch 10", "--learning_rate=0.5", "--learning_rate=0.001")
    )


def test_a_worker_more_is_told_the_option_and_not_that_its_own_part_is_lost(tmp_path):
    saved(tmp_path, 10, variable_update="collective_all_reduce", num_workers=2)
    more = resolved(variable_update="collective_all_reduce", num_workers=3)
    with pytest.raises(CheckpointError, match="--num_workers=2.*--num_workers=3"):
        newest(str(tmp_path), more, rank=2)


def test_text_that_changed_is_no_text_to_go_on_with(tmp_path):
    text, folder = tmp_path / "text", tmp_path / "saved"
    text.write_text("a b")
    saved(folder, 10, files=[str(text)])
    assert newest(str(folder), resolved(), [str(text)]).batches == 10
    os.utime(text, ns=(1, 1))
    with pytest.raises(
        CheckpointError, match=f"read {text} before it changed; give another folder"
    ):
        newest(str(folder), resolved(), [str(text)])


def test_a_file_more_or_less_is_other_data(tmp_path):
    images, more, folder = (
        tmp_path / "data_batch_1.bin",
        tmp_path / "data_batch_2.bin",
        tmp_path / "saved",
    )
    images.write_bytes(b"1")
    saved(folder, 10, files=[str(images)])
    more.write_bytes(b"2")
    with pytest.raises(
        CheckpointError, match=f"of a run that lacked {more}; give another folder"
    ):
        newest(str(folder), resolved(), [str(images), str(more)])
    with pytest.raises(
        CheckpointError,
        match=f"read {images} before it was removed; give another folder",
    ):
        newest(str(folder), resolved(), [])


def test_a_folder_has_one_run_at_a_time_and_a_killed_one_leaves_it(tmp_path):
    holding = f"with checkpoint_folder.held({str(tmp_path / 'saved')!r}): print(flush=True), input()"
    program = [
        sys.executable,
        "-c",
        f"from rnn_scaling.training import checkpoint_folder\n{holding}",
    ]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as other:
        other.stdout.readline()
        with (
            pytest.raises(CheckpointError) as told,
            checkpoint_folder.held(str(tmp_path / "saved")),
        ):
            pass
        other.kill()
    assert f"(pid {other.pid} on {socket.gethostname()})" in str(told.value)
    with checkpoint_folder.held(str(tmp_path / "saved")):
        assert newest(str(tmp_path / "saved"), resolved()) is None


def test_a_folder_that_cannot_be_held_is_named(tmp_path):
    (tmp_path / checkpoint_folder.LOCK).symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError) as told, checkpoint_folder.held(str(tmp_path)):
        pass
    assert str(told.value).startswith(f"--checkpoint_dir={tmp_path}: a link")


@pytest.mark.parametrize(
    "given, needed",
    [
        ({"num_batches": 17}, "--num_batches=17 ends before it; give 20 or more"),
        (
            {"max_batches": 29, "until_steady": True},
            "--max_batches=29 ends before it; give 30 or more",
        ),
    ],
)
def test_a_run_that_would_end_before_the_checkpoint_is_refused(tmp_path, given, needed):
    saved(tmp_path, 30)
    with pytest.raises(CheckpointError) as told:
        newest(str(tmp_path), resolved(**given))
    assert needed in str(told.value)
    assert newest(str(tmp_path), resolved(num_batches=20)).batches == 30


@pytest.mark.parametrize(
    "damage, reason",
    [
        (
            lambda folder: os.truncate(folder / "variables.data-00000-of-00001", 7),
            "has 7 of 400 bytes",
        ),
        (
            lambda folder: (folder / "variables.index").unlink(),
            "No such file or directory",
        ),
        (lambda folder: os.truncate(folder / "run.json", 40), "JSON"),
        (
            lambda folder: (folder / "run.json").write_text("{}"),
            "run.json is no rnn_scaling.checkpoint/2",
        ),
        (lambda folder: _change_run(folder, ranks=[]), "run.json has no rank"),
        (
            lambda folder: _change(
                folder, told={"seconds": [1.0], "items": [1], "loss": [1.0]}
            ),
            "of the 20 batches",
        ),
        (lambda folder: _change(folder, told=[1]), ""),
        (
            lambda folder: _change(folder, told={"seconds": [-1.0]}),
            "seconds[0] is -1.0",
        ),
        (
            lambda folder: _change(
                folder, resumed=[{"batch": 1, "seconds": float("nan")}]
            ),
            "seconds is nan",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line_with_what_to_do(
    tmp_path, damage, reason
):
    saved(tmp_path, 10, 20)
    damage(tmp_path / "batch_00000020")
    with pytest.raises(CheckpointError) as told:
        newest(str(tmp_path), resolved())
    line = str(told.value)
    assert (
        line.startswith(f"--checkpoint_dir: {tmp_path}/batch_00000020 is damaged (")
        and reason in line
    )
    assert line.endswith(": batch_00000010 comes before it") and "\n" not in line


@pytest.mark.parametrize("read", [newest, trained])
@pytest.mark.parametrize(
    "fields, reason",
    [
        (
            {"vocabularies": None},
            "run.json.vocabularies is missing; expected an object",
        ),
        ({"vocabularies": [1]}, "run.json.vocabularies is [1]; expected an object"),
        ({"vocabularies": {"src_vocab_file": "1"}}, "src_vocab_file is '1'; expected"),
        ({"data": None}, "run.json.data is missing; expected an object"),
        ({"data": {"x": 1}}, "run.json.data.x is 1; expected a list"),
        ({"files": [["a", 1]]}, "run.json.files is [['a', 1]]; expected an object"),
        ({"files": {"variables.index": "5"}}, "variables.index is '5'; expected"),
        ({"files": {"variables.index": None}}, "variables.index is missing; expected"),
        ({"config": None}, "run.json.config is missing; expected an object"),
        ({"ranks": {}}, "run.json.ranks is {}; expected a list"),
        ({"ranks": [None]}, "run.json.ranks[0] is missing; expected an object"),
    ],
)
def test_a_part_of_another_kind_is_refused(tmp_path, read, fields, reason):
    saved(tmp_path, 20)
    _change_run(tmp_path / "batch_00000020", **fields)
    with pytest.raises(CheckpointError) as refused:
        read(str(tmp_path), resolved())
    assert reason in str(refused.value)


@pytest.mark.parametrize("read", [newest, trained])
@pytest.mark.parametrize(
    "name, value",
    [("num_units", "16"), ("num_units", 16.5), ("model", 3), ("seed", [])],
)
def test_an_option_of_another_kind_is_no_difference(tmp_path, read, name, value):
    saved(tmp_path, 20)
    folder = tmp_path / "batch_00000020"
    config = json.loads((folder / "run.json").read_text())["config"]
    _change_run(folder, config={**config, name: value})
    with pytest.raises(CheckpointError) as refused:
        read(str(tmp_path), resolved())
    line = str(refused.value)
    assert f"config.{name} is {value!r}; expected" in line
    assert "this one has" not in line


@pytest.mark.parametrize(
    "told, reason",
    [
        ({"loss_items": [8] * 3}, "loss_items lacks some of the 20 batches"),
        ({"tower_items": [[8]] * 3}, "tower_items lacks some of the 20 batches"),
        ({"correct": "x"}, "correct is 'x'; expected a list"),
        ({"items": None}, "items is missing; expected a list"),
    ],
)
def test_a_column_of_another_length_or_kind_is_refused(tmp_path, told, reason):
    saved(tmp_path, 20)
    folder = tmp_path / "batch_00000020"
    (rank,) = json.loads((folder / "run.json").read_text())["ranks"]
    _change(folder, told={**rank["told"], **told})
    with pytest.raises(CheckpointError) as refused:
        newest(str(tmp_path), resolved())
    assert reason in str(refused.value)


def test_a_rank_that_is_not_there_is_refused(tmp_path):
    saved(tmp_path, 20)
    with pytest.raises(CheckpointError, match="no rank 1"):
        newest(str(tmp_path), resolved(), rank=1)


def test_any_value_of_another_kind_is_used_or_refused_in_a_line(tmp_path):
    saved(tmp_path, 2)
    path = tmp_path / "batch_00000002" / "run.json"
    document = Document(path.read_text())
    rng = random.Random(37)
    refused = 0
    for _ in range(300):
        path.write_text(document.mutated(rng), errors="replace")
        for read in (newest, trained):
            try:
                read(str(tmp_path), resolved())
            except CheckpointError as e:
                refused += 1
                assert "\n" not in str(e)
    assert 100 < refused < 600


def _change(folder, **fields):
    saved_run = json.loads((folder / "run.json").read_text())
    _change_run(folder, ranks=[{**saved_run["ranks"][0], **fields}])


def _change_run(folder, **fields):
    saved_run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**saved_run, **fields}))


def test_a_rank_reads_what_it_had_done_itself(tmp_path):
    write(
        tmp_path,
        1,
        *(
            {"told": {"seconds": [k + 1], "items": [8], "loss": [1.0]}, "resumed": []}
            for k in range(2)
        ),
    )
    assert [
        newest(str(tmp_path), resolved(), rank=rank).columns["seconds"]
        for rank in range(2)
    ] == [[1], [2]]
    (tmp_path / "batch_00000001" / "variables_1.index").unlink()
    with pytest.raises(CheckpointError, match="is damaged"):
        newest(str(tmp_path), resolved())


def test_no_option_is_forgotten_in_the_comparison():
    """What may differ says nothing about what is trained; HOW_RUN is of other trainers."""
    assert configs.OPTIONS.keys() >= checkpoint_folder.MAY_DIFFER.difference(HOW_RUN)
    model_and_data = {
        name
        for name, group in configs.GROUP_OF.items()
        if group in ("model", "training", "data")
    }
    assert checkpoint_folder.MAY_DIFFER & model_and_data == {"use_synthetic_data"}

"""The folder of checkpoints, and the line for each checkpoint that is refused."""

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
from rnn_scaling.training.checkpoint_folder import (
    CheckpointError,
    find_trained,
    read_newest,
)
from tests.support.configs import resolve
from tests.support.mutations import Document
from tests.support.paths import ROOT


def resolve_options(**given):
    return resolve(given)


def save(prefix):
    Path(f"{prefix}.index").write_bytes(b"index")
    Path(f"{prefix}.data-00000-of-00001").write_bytes(b"data" * 100)


def write(folder, done, *ranks, files=(), **given):
    target = checkpoint_folder.make_checkpoint_path(str(folder), done)
    target.mkdir(parents=True)
    for rank in range(len(ranks)):
        save(checkpoint_folder.make_variables_path(target, rank))
    checkpoint_folder.publish(target, resolve_options(**given), ranks, files)


def list_saved(folder, *batches, files=(), **given):
    for done in batches:
        columns = {"seconds": [0.5] * done, "items": [8] * done, "loss": [1.0] * done}
        write(
            folder,
            done,
            {"columns": columns, "resumed": [{"batch": 1, "seconds": 2.0}]},
            files=files,
            **given,
        )
    return [path.name for path in sorted(folder.iterdir())]


def find_refusal(folder, read=read_newest, rank=0, files=(), **given):
    """Return the error of a run that cannot continue."""
    arguments = (files, rank) if read is read_newest else ()
    with pytest.raises(CheckpointError) as refused:
        read(str(folder), resolve_options(**given), *arguments)
    line = str(refused.value)
    assert "\n" not in line
    return line


def test_the_newest_two_stay_and_the_last_is_read_whole(tmp_path):
    assert read_newest(str(tmp_path / "none"), resolve_options()) is None
    assert list_saved(tmp_path, 10, 20, 30) == ["batch_00000020", "batch_00000030"]
    (tmp_path / "batch_00000040").mkdir()
    # A process was killed while it saved.
    save(tmp_path / "batch_00000040/variables")
    config = resolve_options(num_batches=70, progress=False, save_every=3)
    checkpoint = read_newest(str(tmp_path), config)
    assert checkpoint.batches == 30 and checkpoint.columns["items"] == [8] * 30
    assert checkpoint.resumed == (Resumption(batch=1, seconds=2.0),)
    assert checkpoint.folder.name == "batch_00000030"
    assert not (tmp_path / "batch_00000040").exists()


def test_weights_are_only_used_with_their_vocabulary(tmp_path):
    vocabulary = tmp_path / "words"
    other = tmp_path / "other"
    folder = tmp_path / "saved"
    vocabulary.write_text("a\nb\n")
    other.write_text("b\na\n")
    list_saved(folder, 10, tgt_vocab_file=str(vocabulary))
    for file in ("", str(vocabulary), str(tmp_path / "none")):
        config = resolve_options(decode=True, tgt_vocab_file=file)
        assert find_trained(str(folder), config).name == "batch_00000010"
    given = {"decode": True, "tgt_vocab_file": str(other)}
    assert f"--tgt_vocab_file={other}" in find_refusal(folder, find_trained, **given)
    vocabulary.write_text("a\nc\n")
    given["tgt_vocab_file"] = str(vocabulary)
    assert f"--tgt_vocab_file={vocabulary}" in find_refusal(
        folder, find_trained, **given
    )


@pytest.mark.parametrize("rank", [0, 2])
def test_an_option_that_differs_is_named_with_both_values(tmp_path, rank):
    mode = {"variable_update": "collective_all_reduce"}
    list_saved(tmp_path, 10, num_workers=2, **mode)
    line = find_refusal(tmp_path, rank=rank, num_workers=3, **mode)
    for text in ("batch 10", "--num_workers=2", "--num_workers=3"):
        assert text in line


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    first, second, folder = tmp_path / "1", tmp_path / "2", tmp_path / "saved"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    list_saved(folder, 10, files=[str(first)])
    assert read_newest(str(folder), resolve_options(), [str(first)]).batches == 10
    assert f"did not read {second};" in find_refusal(
        folder, files=[str(first), str(second)]
    )
    assert f"read {first} before it was removed" in find_refusal(folder)
    os.utime(first, ns=(1, 1))
    assert f"read {first} before it changed" in find_refusal(folder, files=[str(first)])


def test_a_folder_has_one_run_at_a_time_and_a_killed_one_leaves_it(tmp_path):
    folder = str(tmp_path / "saved")
    code = (
        "from rnn_scaling.training import checkpoint_folder\n"
        f"with checkpoint_folder.lock_folder({folder!r}): print(flush=True), input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as other:
        other.stdout.readline()
        holder = f"pid {other.pid} on {socket.gethostname()}"
        with (
            pytest.raises(CheckpointError, match=holder),
            checkpoint_folder.lock_folder(folder),
        ):
            pass
        other.kill()
    with checkpoint_folder.lock_folder(folder):
        assert read_newest(folder, resolve_options()) is None


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
    list_saved(tmp_path, 30)
    assert needed in find_refusal(tmp_path, **given)
    assert read_newest(str(tmp_path), resolve_options(num_batches=20)).batches == 30


DATA = "variables.data-00000-of-00001"
COLUMNS = {"seconds": [1.0], "items": [1], "loss": [1.0]}


@pytest.mark.parametrize(
    "damage, reason",
    [
        (lambda path: os.truncate(path / DATA, 7), "has 7 of 400 bytes"),
        (lambda path: (path / "variables.index").unlink(), "No such file"),
        (lambda path: os.truncate(path / "run.json", 40), "JSON"),
        (lambda path: change(path, ranks=[]), "run.json has no rank"),
        (lambda path: change_rank(path, columns=COLUMNS), "of the 20 batches"),
        (lambda path: change(path, vocabularies={"src_vocab_file": "1"}), "is '1'"),
        (lambda path: change(path, files=[["a", 1]]), "run.json.files is [['a', 1]]"),
        (lambda path: change(path, config={"num_units": 16.5}), "num_units is 16.5"),
        (lambda path: change(path, ranks=[None]), "run.json.ranks[0] is missing"),
        (lambda path: change_column(path, tower_items=[[8]]), "lacks some of the 20"),
        (lambda path: change_column(path, correct="x"), "correct is 'x'; expected a"),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line_with_a_remedy(
    tmp_path, damage, reason
):
    list_saved(tmp_path, 10, 20)
    damage(tmp_path / "batch_00000020")
    line = find_refusal(tmp_path)
    assert line.startswith(f"--checkpoint_dir: {tmp_path}/batch_00000020 is damaged (")
    assert reason in line
    assert line.endswith("; batch_00000010 is then the last checkpoint")


def test_any_value_is_used_or_refused_in_one_line(tmp_path):
    list_saved(tmp_path, 2)
    path = tmp_path / "batch_00000002/run.json"
    document = Document(path.read_text())
    rng = random.Random(37)
    refused = 0
    for _ in range(100):
        path.write_text(document.mutated(rng), errors="replace")
        for read in (read_newest, find_trained):
            try:
                read(str(tmp_path), resolve_options())
            except CheckpointError as e:
                refused += 1
                assert "\n" not in str(e)
    assert 33 < refused < 200


def change_column(folder, **columns):
    [rank] = json.loads((folder / "run.json").read_text())["ranks"]
    change_rank(folder, columns={**rank["columns"], **columns})


def change_rank(folder, **fields):
    saved_run = json.loads((folder / "run.json").read_text())
    change(folder, ranks=[{**saved_run["ranks"][0], **fields}])


def change(folder, **fields):
    saved_run = json.loads((folder / "run.json").read_text())
    for name, value in fields.items():
        if name == "config" and value:
            fields["config"] = {**saved_run["config"], **value}
    (folder / "run.json").write_text(json.dumps({**saved_run, **fields}))


def test_the_columns_of_an_older_checkpoint_are_read(tmp_path):
    list_saved(tmp_path, 20)
    folder = tmp_path / "batch_00000020"
    [rank] = json.loads((folder / "run.json").read_text())["ranks"]
    rank["told"] = rank.pop("columns")
    change(folder, ranks=[rank])
    assert len(read_newest(str(tmp_path), resolve_options()).columns["seconds"]) == 20


def test_a_rank_reads_its_own_batches(tmp_path):
    ranks = [
        {"columns": {"seconds": [k + 1], "items": [8], "loss": [1.0]}, "resumed": []}
        for k in range(2)
    ]
    write(tmp_path, 1, *ranks)
    for rank in range(2):
        found = read_newest(str(tmp_path), resolve_options(), rank=rank)
        assert found.columns["seconds"] == [rank + 1]
    assert "no rank 2" in find_refusal(tmp_path, rank=2)
    (tmp_path / "batch_00000001/variables_1.index").unlink()
    assert "is damaged" in find_refusal(tmp_path)


def test_no_option_is_forgotten_in_the_comparison():
    # HOW_RUN has options of other trainers.
    may_differ = checkpoint_folder.MAY_DIFFER
    assert configs.OPTIONS.keys() >= may_differ.difference(HOW_RUN)
    groups = {name: configs.GROUP_OF.get(name) for name in may_differ}
    trained = ("model", "training", "data")
    names = {name for name, group in groups.items() if group in trained}
    assert names == {"use_synthetic_data"}

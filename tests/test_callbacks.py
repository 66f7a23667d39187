"""The callbacks of docs/api.md, each called as its library calls it."""

from __future__ import annotations

import sys
import types

import pytest

from rnn_scaling.records import record
from tests.support.paths import ROOT

DOCUMENT = (ROOT / "docs/api.md").read_text()
BLOCKS = [
    part.partition("```")[0]
    for part in DOCUMENT.partition("## Callbacks")[2].split("```python\n")[1:]
]


def load_callback(monkeypatch, number, **modules):
    """Return the class in a code block of the document.

    Args:
      number: Number of the block.
      modules: Fake modules, by name.
    """
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**content))
    names: dict = {}
    exec(BLOCKS[number], names)
    return names["RecorderCallback"]


def test_lightning_tells_each_batch_with_its_loss(monkeypatch, tmp_path):
    made = load_callback(monkeypatch, 0, lightning={"Callback": object})
    told = made(tmp_path / "run.json", len, unit="images", num_warmup_batches=1)
    trainer = types.SimpleNamespace(world_size=1, global_rank=0)
    told.on_validation_end(trainer, None)
    told.on_train_start(trainer, None)
    for _ in range(2):
        told.on_train_epoch_start(trainer, None)
        for number, loss in enumerate((3.0, {"loss": 2.0})):
            told.on_train_batch_end(trainer, None, loss, [0] * (4 - number), number)
        told.on_validation_end(trainer, None)
        told.on_train_epoch_end(trainer, None)
    told.on_train_end(trainer, None)
    run = record.read(tmp_path / "run.json")
    assert (run.status, run.unit, run.config["num_devices"]) == ("ok", "images", 1)
    assert run.batches.items == (4, 3, 4, 3)
    assert run.batches.loss == (3.0, 2.0, 3.0, 2.0)
    failing = made(tmp_path / "failed.json", len)
    failing.on_train_start(trainer, None)
    failing.on_exception(trainer, None, RuntimeError("out of memory"))
    assert record.read(tmp_path / "failed.json").error.message == "out of memory"


def test_transformers_tells_each_update_with_all_its_samples(monkeypatch, tmp_path):
    waited = []
    cuda = types.SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: waited.append(1)
    )
    made = load_callback(
        monkeypatch, 1, torch={"cuda": cuda}, transformers={"TrainerCallback": object}
    )
    options = {
        "train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "world_size": 1,
        "process_index": 0,
        "n_gpu": 1,
    }
    args = types.SimpleNamespace(**options, dataloader_drop_last=True)
    state = types.SimpleNamespace(max_steps=3)
    told = made(tmp_path / "run.json", 512, unit="tokens", num_warmup_batches=1)
    told.on_train_begin(args, state, None, model=None)
    for _ in range(3):
        told.on_step_end(args, state, None)
        told.on_evaluate(args, state, None, metrics={})
    told.on_train_end(args, state, None)
    run = record.read(tmp_path / "run.json")
    assert run.status == "ok" and run.batches.items == (4096,) * 3 and len(waited) == 3
    args.dataloader_drop_last = False
    with pytest.raises(ValueError, match="expected dataloader_drop_last=True"):
        told.on_train_begin(args, state, None)

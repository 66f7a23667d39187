"""--split: copies of a user's one-device command, and what the report makes of them."""

import json
import sys

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.records import record
from rnn_scaling.sweeps import program_plan
from rnn_scaling.sweeps.program_options import TrainerOptions

# A busy machine would hide speedups from the report.
pytestmark = pytest.mark.usefixtures("quiet_machine")

# Prints the rate that its variables name for this number of devices, or fails.
PROGRAM = """
import os, sys
devices, rates = sys.argv[1], dict(word.split("=") for word in sys.argv[2:])
is_copy = "/copies/" in os.environ["RNN_SCALING_RESULT_FILE"]
name = "copy" if is_copy else devices
if is_copy and os.environ["RNN_SCALING_RESULT_FILE"].endswith(rates.get("fails", "-")):
    sys.exit("out of luck")
for step in range(20):
    print(f"words/s: {rates[name]}", flush=True)
"""


def run_sweep(folder, rates, *words):
    script = folder / "program.py"
    script.write_text(PROGRAM)
    command = f"{sys.executable} {script} {{num_devices}} {rates}"
    return sweep.main(
        [
            f"--trainer={command}",
            "--num_devices=1,2",
            "--device=cpu",
            "--repeats=2",
            "--unit=words",
            "--log_format=regex:words/s: {number}",
            f"--out={folder / 'out'}",
            "--split",
            *words,
        ]
    )


def test_contention_is_what_copies_lose_and_the_rest_is_exchange(tmp_path):
    assert run_sweep(tmp_path, "1=100 2=150 copy=90") == 0
    copies = record.read(tmp_path / "out/program-2-copies.json")
    assert copies.throughput.items_per_second == 180
    assert copies.options["variable_update"] == "independent"
    assert copies.options["num_devices"] == 2
    report = json.loads((tmp_path / "out/report.json").read_text())
    points = {}
    [coupled] = [series for series in report["series"] if series["title"] == "program"]
    for part in coupled["rows"][1]["attribution"]["parts"]:
        points[part["name"]] = part["points"]["value"]
    effects = [kind for kind in report["statements"] if kind["kind"] == "effect-of-two"]
    assert not effects, "copies are not a mode that a user may choose"
    # One copy has the rate 90, so two of them lose nothing.
    assert points["contention"] == pytest.approx(0, abs=1e-6)
    assert points["exchange"] == pytest.approx(25)


def test_a_copy_that_fails_is_named_in_the_record(tmp_path, capsys):
    assert run_sweep(tmp_path, "1=100 2=150 copy=90 fails=2-copies.1.json") == 1
    failed = record.read(tmp_path / "out/program-2-copies.json")
    assert failed.status == "failed"
    assert "copy 1" in failed.error.message and "out of luck" in failed.error.message


def plan(**lists):
    options = TrainerOptions(
        trainer="python3 my.py {num_devices}", items_per_step="35*{num_devices}"
    )
    options = type(options)(**{**vars(options), "split": True, "log_format": "tqdm"})
    return program_plan.plan(options, {}, lists, num_gpus=0, num_cores=4)


def test_copies_run_the_command_for_one_device():
    runs = plan(num_devices=[1, 4])
    assert [(run.name, run.num_copies) for run in runs] == [
        ("my-1", 0),
        ("my-1-copies", 1),
        ("my-4", 0),
        ("my-4-copies", 4),
    ]
    assert len({run.identity for run in runs}) == 4
    copies = runs[3]
    assert copies.texts["num_devices"] == "1" and copies.num_devices == 4
    assert copies.terms.items_per_step == 35 and runs[2].terms.items_per_step == 140


@pytest.mark.parametrize(
    "lists", [{"variable_update": ["replicated"]}, {"global_batch_size": [64]}]
)
def test_options_that_contradict_split_are_refused(lists):
    with pytest.raises(FlagErrors, match="--split"):
        plan(num_devices=[1, 2], **lists)

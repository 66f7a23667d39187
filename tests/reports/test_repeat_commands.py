"""The commands below "Measure again" supply every run that the parts of a loss need."""

import shlex

import pytest

from rnn_scaling.analysis.rows import make_series_key
from rnn_scaling.config import flags, scale
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.registry import TEXT_FILES
from rnn_scaling.reports import repeat_commands
from rnn_scaling.sweeps.plan import plan
from tests.support.records import make_record
from tests.support.scaling_runs import make_resolved_run, summarise_records

SWEEPS_OWN = ("--repeats=", "--out=")
TEXT = dict.fromkeys(TEXT_FILES, "x")


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "replicated", "all_reduce_spec": "pscpu"},
        {"mode": "replicated", "data": "text", "num_buckets": 3, **TEXT},
        {"mode": "replicated", "global_batch_size": 64},
        {"mode": "collective_all_reduce", "data": "host", "global_batch_size": 64},
    ],
)
def test_what_the_commands_run_leaves_no_part_of_the_loss_unknown(
    options, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("a b\n")
    axis = scale.find_axis({"variable_update": options["mode"]})
    measured = summarise_records(
        [make_resolved_run(100.0 * n, **{axis: n}, **options) for n in (1, 2, 4)]
    )
    assert any(part.points is None for part in measured.series[0].largest_loss.parts), (
        "alone it needs more runs"
    )
    records = []
    for command in repeat_commands.list_commands(measured.series[0]):
        program, sweep, *words = shlex.split(
            command.replace("python -m rnn_scaling", "./run.sh")
        )
        assert program == "./run.sh"
        assert sweep == "sweep"
        assert words[-1] == "--out=results/again"
        lists = flags.parse(
            [word for word in words if not word.startswith(SWEEPS_OWN)],
            configs.OPTIONS,
            lists=True,
        )
        for run in plan(lists, num_gpus=0, num_cores=8):
            flat = run.config.flat()
            items = [1000 * scale.count_devices(flat)] * 40
            records.append(
                make_record(config=flat, seconds=[0.1] * 40, items=items, warmup=10)
            )
    key = make_series_key(measured.rows[0])
    [series] = (
        each
        for each in summarise_records(records).series
        if make_series_key(each.rows[0]) == key
    )
    assert [each.num_devices for each in series.rows] == [1, 2, 4]
    assert [
        part.name for part in series.largest_loss.parts if part.points is None
    ] == []


def test_repeating_a_run_is_one_run_in_a_folder_of_its_own():
    made = summarise_records(
        [make_resolved_run(190.0, num_devices=2, mode="replicated", num_batches=33)]
    )
    words = shlex.split(repeat_commands.run_command(made.rows[0].records[0].config))
    chosen = {"--repeats=1", "--num_devices=2", "--variable_update=replicated"}
    assert chosen | {"--num_batches=33"} <= set(words)
    [out] = [word for word in words if word.startswith("--out=")]
    assert out != "--out=results/default"


def test_a_series_without_a_loss_is_measured_as_it_was():
    [command] = repeat_commands.list_commands(
        summarise_records([make_resolved_run(100.0), make_resolved_run(101.0)]).series[
            0
        ]
    )
    assert " --num_devices=1 " in command
    assert command.endswith(" --repeats=2 --out=results/again")


def test_workers_of_several_devices_are_measured_beside_one_device_of_one():
    runs = [
        make_resolved_run(
            100.0 * n * d, num_devices=d, num_workers=n, mode="collective_all_reduce"
        )
        for n, d in ((1, 1), (2, 2))
    ]
    first, second = repeat_commands.list_commands(summarise_records(runs).series[1])
    assert " --num_devices=2 --num_workers=2 " in first
    assert " --num_devices=1 --num_workers=1 " in second
    modes = "=distributed_independent,collective_all_reduce"
    assert modes in first and modes in second

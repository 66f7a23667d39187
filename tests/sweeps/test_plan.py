"""The runs of a sweep, their order and their names."""

import dataclasses

import pytest

from rnn_scaling.config import flags, registry
from rnn_scaling.models import encoder_table
from rnn_scaling.sweeps import plan as plans


def plan(num_gpus=0, num_cores=2, **lists):
    return plans.plan(lists, num_gpus=num_gpus, num_cores=num_cores)


def test_default_sweep_is_every_kernel_of_the_cell_by_the_swept_modes_by_devices():
    runs = plan()
    modes = registry.list_swept_modes()
    assert {"independent", "parameter_server", "replicated"} <= {
        run.flags["variable_update"] for run in runs
    }
    count = len(encoder_table.list_swept_encoders("lstm")) * len(modes) * 2
    assert len(runs) == len({run.name for run in runs}) == count
    assert [run.flags["preset"] for run in runs] == ["small"] * count
    assert {run.flags["preset"] for run in plan(num_gpus=2)} == {"large"}


def test_another_kernel_does_not_grow_the_default_sweep(monkeypatch):
    """Expect only kernels whose row includes them; a cell without one uses its first."""
    before = encoder_table.list_swept_encoders("lstm")
    row = encoder_table.Encoder("another one", "cudnn", "block_lstm", ("lstm", "new"))
    monkeypatch.setitem(encoder_table.ENCODERS, "another", row)
    monkeypatch.setitem(
        encoder_table.UNIT_TYPES, "new", encoder_table.UNIT_TYPES["lstm"]
    )
    assert encoder_table.list_swept_encoders("lstm") == before
    assert encoder_table.list_swept_encoders("new") == ["another"]
    joining = dataclasses.replace(row, is_swept=True)
    monkeypatch.setitem(encoder_table.ENCODERS, "another", joining)
    assert encoder_table.list_swept_encoders("lstm") == [*before, "another"]


def test_a_sweep_over_cells_has_the_kernels_that_compute_each():
    one = {"variable_update": ["independent"], "num_devices": [1]}
    for cells in (["gru"], ["nas"], ["lstm", "gru", "layer_norm_lstm"]):
        runs = [run.config.model for run in plan(unit_type=cells, **one)]
        made = [(run.unit_type, run.encoder_type, run.decoder_type) for run in runs]
        assert sorted(made) == sorted(
            (cell, name, name)
            for cell in cells
            for name in encoder_table.list_encoders(cell)
        )
    with pytest.raises(
        flags.FlagErrors,
        match="--encoder_type=cudnn_lstm computes lstm, not --unit_type=gru",
    ):
        plan(unit_type=["lstm", "gru"], encoder_type=["cudnn_lstm"], **one)
    with pytest.raises(flags.FlagErrors, match="--unit_type=rnn must be one of"):
        plan(unit_type=["rnn"], **one)


def test_workers_are_an_axis_of_modes_that_have_them():
    modes = registry.list_swept_modes(True)
    assert {"collective_all_reduce", "distributed_independent"} <= set(modes)
    assert not set(modes) & set(registry.list_swept_modes())
    runs = plan(num_workers=[1, 2], encoder_type=["cudnn_lstm"])
    assert [run.name for run in runs] == [
        f"cudnn_lstm-{mode}-1-num_workers={n}" for mode in modes for n in (1, 2)
    ]
    runs = plan(
        num_workers=[1, 2],
        variable_update=["replicated", modes[0]],
        encoder_type=["cudnn_lstm"],
    )
    alone = [run for run in runs if run.flags["variable_update"] == "replicated"]
    assert [run.name for run in alone] == ["cudnn_lstm-replicated-1"]
    assert "num_workers" not in alone[0].flags


@pytest.mark.parametrize(
    "most, counts",
    [(0, [1]), (3, [1, 2, 3]), (12, [1, 2, 4, 8, 12]), (16, [1, 2, 4, 8, 16])],
)
def test_device_counts(most, counts):
    assert plans.list_device_counts(most) == counts


def test_a_flag_goes_to_the_runs_that_read_it():
    modes = ["independent", "parameter_server", "replicated"]
    runs = plan(
        all_reduce_spec=["xring", "rechd"],
        num_devices=[2],
        encoder_type=["cudnn_lstm"],
        variable_update=modes,
    )
    specs = [
        (run.flags["variable_update"], run.flags.get("all_reduce_spec")) for run in runs
    ]
    assert specs == [
        ("independent", None),
        ("parameter_server", None),
        ("replicated", "xring"),
        ("replicated", "rechd"),
    ]
    assert len({run.name for run in runs}) == 4
    assert runs[0].config.update.all_reduce_spec == "auto"


def test_models_of_different_kinds_get_the_options_that_they_read():
    models = ["nmt", "lm", "resnet20", "alexnet"]
    given = {
        "model": models,
        "variable_update": ["replicated"],
        "num_devices": [2],
        "encoder_type": ["cudnn_lstm"],
    }
    runs = plan(**given, dataset=["cifar10"], src_vocab_size=[90], num_units=[8])
    read = {
        run.flags["model"]: run.flags.keys()
        & {"dataset", "src_vocab_size", "num_units"}
        for run in runs
    }
    text, images = {"num_units"}, {"dataset"}
    assert read == {
        "nmt": {*text, "src_vocab_size"},
        "lm": text,
        "resnet20": images,
        "alexnet": images,
    }
    assert runs[0].config.model.num_encoder_layers > 0
    assert runs[3].config.model.dataset == "cifar10"
    with pytest.raises(
        flags.FlagErrors, match="--attention=luong is not read by any of the runs"
    ):
        plan(**given, attention=["luong"])


def test_conflicts_are_named_before_anything_runs():
    with pytest.raises(flags.FlagErrors) as error:
        plan(num_units=[0, 8], bos=["x"])
    units, bos = error.value.lines
    assert units.startswith("--num_units=0 must be")
    assert bos.startswith("--bos=x is not read")


def test_flags_that_mean_the_same_make_one_run():
    runs = plan(
        num_devices=[0, 2, 2],
        encoder_type=["dynamic_rnn"],
        variable_update=["independent"],
    )
    assert [run.flags["num_devices"] for run in runs] == [0]


def test_runs_of_different_flags_never_share_a_name_and_names_fit_into_files():
    one = {
        "encoder_type": ["cudnn_lstm"],
        "variable_update": ["independent"],
        "num_devices": [1],
    }
    files = {
        name: [__file__]
        for name in ("tgt_file_name", "src_vocab_file", "tgt_vocab_file")
    }
    files |= {
        "data_source": ["text"],
        "src_file_name": [__file__, __file__.replace("/test_plan", "//test_plan")],
    }
    runs = plan(**one, **files)
    assert len(runs) == len({run.name for run in runs}) == 2
    runs = plan(**one, **files, bos=["b" * 300, "c" * 300])
    assert len(runs) == len({run.name for run in runs}) == 4
    assert max(len(run.name) for run in runs) <= plans.MAX_NAME_BYTES
    again = plan(**one, **files, bos=["c" * 300, "b" * 300])
    assert {run.name for run in again} == {run.name for run in runs}


def test_rounds_run_in_a_random_order_and_back_again():
    runs = plan()
    ordered = plans.interleave(runs, 4)
    assert [run.repeat for run in ordered] == [n for n in (1, 2, 3, 4) for _ in runs]
    rounds = [[run.name for run in ordered if run.repeat == n] for n in (1, 2, 3, 4)]
    assert all(sorted(each) == sorted(run.name for run in runs) for each in rounds)
    assert rounds[1] == rounds[0][::-1] and rounds[3] == rounds[2][::-1]
    assert (
        len(
            {tuple(each) for each in [[run.name for run in runs], rounds[0], rounds[2]]}
        )
        == 3
    )
    # The same command goes on in the same order, and more repeats only add to it.
    assert plans.interleave(runs, 4) == ordered
    assert plans.interleave(runs, 3) == ordered[: 3 * len(runs)]
    assert plans.interleave(runs, 1) == runs
    assert {run.label for run in ordered[-2:]} <= {f"{run.name}.r4" for run in runs}


def test_identity_is_every_option_but_the_outputs():
    [run] = plan(
        encoder_type=["cudnn_lstm"], variable_update=["independent"], num_devices=[1]
    )
    flat = run.config.flat()
    assert plans.identify(
        {**flat, "result_file": "x", "progress": False}
    ) == plans.identify(flat)
    assert plans.identify({**flat, "seed": 7}) != plans.identify(flat)
    without = {name: value for name, value in flat.items() if name != "staged_vars"}
    assert plans.identify(without) == plans.identify(flat)

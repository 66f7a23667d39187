"""Defaults are resolved as documented; each conflict has its line."""

from __future__ import annotations

import os
import shlex

import pytest

from rnn_scaling.config import conflicts, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import (
    CONDITIONS,
    DECIDING,
    is_read,
    unread_options,
)
from rnn_scaling.config.run_config import OPTIONS, pool_sizes
from rnn_scaling.config.spelling import command, spell
from rnn_scaling.models.workloads import WORKLOADS


def resolve(num_gpus=0, num_cores=4, **given):
    return configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)


def problems(num_gpus=0, **given):
    return conflicts.problems(resolve(num_gpus, **given), given, num_gpus=num_gpus)


def test_a_command_to_repeat_can_be_pasted():
    names = {"src_file_name": "/my texts/a$b.en", "tgt_file_name": "it's.de"}
    said = command(resolve(data_source="text", **names).flat())
    words = shlex.split(said)
    assert (
        words[1] == "sweep"
        and [spell(name, value) for name, value in names.items()] == words[-2:]
    ), said


def test_defaults_have_no_conflict():
    assert problems() == []


@pytest.mark.parametrize(
    "total,towers,sizes",
    [
        (64, 2, (32, 32)),
        (7, 3, (3, 2, 2)),
        (8, 3, (3, 3, 2)),
        (5, 5, (1,) * 5),
        (0, 2, (32, 32)),
    ],
)
def test_a_global_batch_is_shared_out_whole(total, towers, sizes):
    config = resolve(global_batch_size=total, num_devices=towers)
    assert config.tower_batch_sizes() == sizes
    assert config.training.batch_size == max(sizes)


def test_flat_and_back():
    config = resolve(num_units=7, preset="seed")
    assert configs.from_flat(config.flat()) == config
    assert list(config.flat()) == list(OPTIONS)


def test_seed_preset_is_the_seeds_model_and_given_flags_win():
    config = resolve(preset="seed", batch_size=16)
    assert (
        config.model.src_vocab_size,
        config.model.num_units,
        config.model.num_encoder_layers,
    ) == (50_000, 512, 4)
    assert (
        config.data.src_max_len,
        config.training.batch_size,
        config.model.direction,
    ) == (100, 16, "bi")


@pytest.mark.parametrize(
    "given,num_gpus,name,value",
    [
        ({}, 0, "device", "cpu"),
        ({}, 2, "device", "gpu"),
        ({"num_devices": 0}, 3, "num_devices", 3),
        ({"num_devices": 0}, 0, "num_devices", 4),
        ({"num_devices": 0, "cpu_cores_per_device": 2}, 0, "num_devices", 2),
        ({"num_devices": 0, "cpu_cores_per_device": 9}, 0, "num_devices", 1),
        ({"encoder_type": "uni"}, 0, "direction", "uni"),
        ({"encoder_type": "bi"}, 0, "encoder_type", "dynamic_rnn"),
        ({"encoder_type": "dynamic_rnn"}, 0, "decoder_type", "dynamic_rnn"),
        ({"encoder_type": "bi"}, 0, "decoder_type", "dynamic_rnn"),
        (
            {"encoder_type": "dynamic_rnn", "decoder_type": "cudnn_lstm"},
            0,
            "decoder_type",
            "cudnn_lstm",
        ),
        ({}, 0, "encoder_type", "cudnn_lstm"),
        ({"unit_type": "gru"}, 0, "encoder_type", "cudnn_gru"),
        ({"unit_type": "gru"}, 1, "decoder_type", "cudnn_gru"),
        ({"unit_type": "nas"}, 0, "encoder_type", "dynamic_rnn"),
        (
            {"variable_update": "replicated", "independent_replica": True},
            0,
            "variable_update",
            "independent",
        ),
        ({"variable_update": "parameter_server"}, 2, "param_server_device", "gpu"),
        ({"variable_update": "parameter_server"}, 0, "param_server_device", "cpu"),
        ({"use_synthetic_data": True}, 0, "data_source", "device"),
        ({"data_source": "host"}, 0, "prefetch_data_to_device", True),
        ({"data_source": "device"}, 0, "prefetch_data_to_device", False),
    ],
)
def test_resolution(given, num_gpus, name, value):
    assert resolve(num_gpus, **given).flat()[name] == value


@pytest.mark.parametrize(
    "given,words",
    [
        (
            {"variable_update": "ring"},
            "--variable_update=ring must be one of independent,",
        ),
        ({"num_units": 0}, "--num_units=0 must be at least 1"),
        ({"dropout": 1.0}, "--dropout=1.0 must be at most 0.99"),
        (
            {"global_batch_size": 64, "batch_size": 32},
            "choose strong or weak scaling and leave one out",
        ),
        (
            {"global_batch_size": 3, "num_devices": 4},
            "--global_batch_size=3 must be at least --num_devices=4",
        ),
        (
            {"until_steady": True, "max_batches": 29},
            "--max_batches=29 must be at least",
        ),
        ({"learning_rate": 0.0}, "--learning_rate=0.0 must be above 0"),
        (
            {"learning_rate": float("nan")},
            "--learning_rate=nan must be a finite number",
        ),
        ({"num_batches": 0}, "--num_batches=0 must be at least 1"),
        ({"device": "gpu"}, "--device=gpu needs a visible NVIDIA GPU"),
        (
            {"num_encoder_layers": 3, "num_decoder_layers": 3},
            "--num_encoder_layers=3 must be even",
        ),
        (
            {"num_decoder_layers": 4},
            "--num_decoder_layers=4 must equal --num_encoder_layers=2",
        ),
        ({"encoder_type": "uni", "direction": "bi"}, "contradict each other"),
        (
            {"share_embedding": True, "tgt_vocab_size": 9},
            "--share_embedding=true needs one vocabulary, got --src_vocab_",
        ),
        (
            {"share_embedding": True, "data_source": "text", "src_vocab_file": "a"},
            "use the same file for both",
        ),
        (
            {"attention": "luong", "preset": "gnmt_v2"},
            "--normalize_attention=true needs --attention=bahdanau, got luong",
        ),
        (
            {"unit_type": "gru", "preset": "gnmt_v2"},
            "--biases_per_gate=2 needs --unit_type=lstm, got gru",
        ),
        (
            {"attention": "luong"},
            "--attention=luong would be ignored here; it needs --model=nmt_attention",
        ),
        (
            {"encoder_type": "cudnn_lstm", "unit_type": "gru"},
            "--encoder_type=cudnn_lstm computes lstm, not --unit_type=gru; use cudnn_gru or dynamic_rnn",
        ),
        (
            {
                "encoder_type": "dynamic_rnn",
                "decoder_type": "cudnn_gru",
                "unit_type": "nas",
            },
            "--decoder_type=cudnn_gru computes gru, not --unit_type=nas; use dynamic_rnn",
        ),
        (
            {"model": "transformer", "num_heads": 3},
            "--num_heads=3 must divide --num_units=256",
        ),
        (
            {"model": "transformer", "src_vocab_size": 9},
            "--src_vocab_size=9 would be ignored here; it needs --model=nmt or --model=nmt_attention",
        ),
        (
            {"num_heads": 2},
            "--num_heads=2 would be ignored here; it needs --model=transformer",
        ),
        ({"label_smoothing": 1.0}, "--label_smoothing=1.0 must be at most 0.99"),
        (
            {"unit_type": "rnn"},
            "--unit_type=rnn must be one of lstm, gru, layer_norm_lstm, nas",
        ),
        (
            {"unit_type": "gru", "forget_bias": 0.5},
            "--forget_bias=0.5 would be ignored here; it needs --unit_type=lstm or --unit_type=layer_norm_lstm",
        ),
        (
            {"variable_update": "replicated", "all_reduce_spec": "nccl"},
            "--all_reduce_spec=nccl",
        ),
        (
            {
                "variable_update": "replicated",
                "compress_gradients": "int8",
                "all_reduce_spec": "xring",
            },
            "--all_reduce_spec=xring would be ignored here; it needs a --compress_gradients other than int8",
        ),
        (
            {"compress_gradients": "int8"},
            "--compress_gradients=int8 would be ignored here",
        ),
        (
            {"variable_update": "replicated", "all_reduce_spec": "xring:"},
            "--all_reduce_spec=xring:",
        ),
        (
            {
                "variable_update": "replicated",
                "all_reduce_spec": "rechd",
                "num_devices": 3,
            },
            "power of two",
        ),
        (
            {
                "variable_update": "replicated",
                "gradient_repacking": 2,
                "agg_small_grads_max_bytes": 9,
            },
            "leave out --agg_small_grads_max_bytes=9",
        ),
        (
            {"independent_replica": True, "variable_update": "mirrored"},
            "goes with --variable_update=replicated",
        ),
        (
            {"variable_update": "parameter_server", "param_server_device": "gpu"},
            "needs GPUs",
        ),
        (
            {"variable_update": "parameter_server", "partition_large_variables": True},
            "spread over GPUs",
        ),
        (
            {
                "variable_update": "parameter_server",
                "staged_vars": True,
                "variable_consistency": "relaxed",
            },
            "leave one out",
        ),
        (
            {"loss_scale": "128"},
            "--loss_scale=128 would be ignored here; it needs --compute_dtype=float16",
        ),
        (
            {"loss_scale": "none", "compute_dtype": "float16"},
            "--loss_scale=none must be dynamic or a whole number",
        ),
        (
            {"loss_scale": "0.5", "compute_dtype": "float16"},
            "--loss_scale=0.5 must be dynamic or a whole number",
        ),
        (
            {"stop_at_accuracy": 0.9},
            "--stop_at_accuracy=0.9 would be ignored here; it needs --accuracy",
        ),
        (
            {"stop_at_accuracy": 1.5, "accuracy": True},
            "--stop_at_accuracy=1.5 must be at most 1",
        ),
        (
            {"num_epochs": 2.0},
            "--num_epochs=2.0 would be ignored here; it needs --data_source=text or",
        ),
        (
            {"num_epochs": 2.0, "data_source": "text", "num_batches": 5},
            "--num_epochs=2 determines the number of batches; leave out --num_batches",
        ),
        (
            {"lr_schedule": "inverse_sqrt"},
            "--lr_schedule=inverse_sqrt needs --lr_warmup_batches of at least 1",
        ),
        ({"lr_schedule": "piecewise"}, "--lr_steps=: --lr_schedule=piecewise needs"),
        (
            {"lr_steps": "3:1"},
            "--lr_steps=3:1 would be ignored here; it needs --lr_schedule=piecewise",
        ),
        (
            {"gradient_accumulation_steps": 2, "global_batch_size": 8},
            "fixes the batch of all towers; use --batch_size",
        ),
        (
            {
                "gradient_accumulation_steps": 2,
                "variable_update": "keras_slicing",
                "num_devices": 2,
            },
            "--gradient_accumulation_steps=2: with --variable_update=keras_slicing a step has one batch",
        ),
        (
            {
                "gradient_accumulation_steps": 2,
                "variable_update": "async_parameter_server",
            },
            "--gradient_accumulation_steps=2: with --variable_update=async_parameter_server",
        ),
        (
            {"framework": "torch", "optimizer": "rmsprop"},
            "does not support --optimizer=rmsprop; use --optimizer=adam or",
        ),
        (
            {"framework": "torch", "weight_decay": 0.1},
            "--framework=torch does not support --weight_decay=0.1",
        ),
        (
            {"use_synthetic_data": True, "data_source": "host"},
            "--use_synthetic_data=true means",
        ),
        ({"data_source": "text"}, "--data_source=text needs --src_file_name"),
        (
            {"data_source": "text", "unk_id": 8000},
            "--unk_id=8000 must be below --src_vocab_size=8000",
        ),
        (
            {"model": "cnn"},
            "--model=cnn must be one of nmt, nmt_attention, transformer, lm",
        ),
        (
            {"data_source": "text", "tgt_max_len": 1},
            "--tgt_max_len=1 must be at least 2",
        ),
        (
            {"data_source": "text", "src_file_name": "no/such"},
            "--src_file_name=no/such: No such file",
        ),
        (
            {"data_source": "text", "src_file_name": "."},
            "--src_file_name=.: a folder; expected a regular file",
        ),
        (
            {"data_source": "text", "src_file_name": "a\0b"},
            "a name cannot hold a NUL byte",
        ),
        (
            {"random_lengths": True, "pad_to": 29},
            "--pad_to=29 must be at least --src_max_len=30",
        ),
        (
            {"data_source": "text", "model": "lm", "pad_to": 9},
            "--pad_to=9 must be at least --tgt_max_len=30",
        ),
        ({"pad_to": 40}, "needs --data_source=text or --random_lengths=true"),
        ({"data_source": "copy", "pad_to": 40}, "--pad_to=40 would be ignored here"),
        (
            {"result_file": "x" * 300 + "/run.json"},
            "cannot be written: File name too long",
        ),
        ({"result_file": "a\0b/run.json"}, "cannot hold a NUL byte"),
        ({"result_file": "x", "log_dir": "x"}, "must differ"),
        (
            {"result_file": "x", "mlperf_log": "x"},
            "--mlperf_log=x must differ from --result_file",
        ),
        ({"mlperf_log": "."}, "--mlperf_log=. is a folder"),
        ({"seed": 10**30}, "must be at most 2147483647"),
        (
            {"device": "gpu", "num_devices": 0, "global_batch_size": 8},
            "--device=gpu needs",
        ),
        ({"result_file": "."}, "is a folder"),
        ({"result_file": f"{__file__}/run.json"}, "cannot be written"),
        ({"log_dir": __file__}, "is a file"),
        ({"log_dir": f"{__file__}/logs"}, "cannot be written"),
    ],
)
def test_each_conflict_has_its_line(given, words):
    lines = problems(**given)
    assert any(words in line for line in lines), lines
    assert all("\n" not in line and line.startswith("--") for line in lines)


@pytest.fixture
def folder_of_links(tmp_path, monkeypatch):
    """A folder d with a link to it, a link to a file, and a text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "alias.json").symlink_to("d/r.json")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "words").write_text("a\n")
    return tmp_path


@pytest.mark.parametrize(
    "outputs",
    [
        {"result_file": "d/r.json", "mlperf_log": "d/./r.json"},
        {"result_file": "d/r.json", "mlperf_log": "d/../d/r.json"},
        {"result_file": "d/r.json", "mlperf_log": "d//r.json"},
        {"result_file": "d/r.json", "mlperf_log": "link/r.json"},
        {"result_file": "d/r.json", "mlperf_log": "alias.json"},
        {"result_file": "d/r.json", "mlperf_log": "{tmp}/d/r.json"},
        {"result_file": "new/r.json", "mlperf_log": "new/../new/r.json"},
        {"result_file": "d/x", "log_dir": "link/x"},
        {"result_file": "d/x", "log_dir": "d/x/logs"},
        {"result_file": "d/x", "checkpoint_dir": "d/./x"},
        {"mlperf_log": "d/x", "log_dir": "d/x/"},
        {"mlperf_log": "d/x", "checkpoint_dir": "link/x/y"},
        {"mlperf_log": "link/run.json", "log_dir": "d"},
        {"result_file": "./words", "src_vocab_file": "words"},
        {"mlperf_log": "link/../words", "tgt_file_name": "words"},
    ],
)
def test_outputs_that_are_one_file_are_refused(folder_of_links, outputs):
    given = {name: path.format(tmp=folder_of_links) for name, path in outputs.items()}
    if any(path == "words" for path in outputs.values()):
        texts = ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file")
        (folder_of_links / "text").write_text("a\n")
        given = {**dict.fromkeys(texts, "text"), "data_source": "text", **given}
    (line,) = problems(**given)
    first, second = sorted(outputs, key=lambda name: name != "mlperf_log")
    if "result_file" in outputs and "mlperf_log" not in outputs:
        first, second = sorted(outputs, key=lambda name: name != "result_file")
    assert line.startswith(f"{spell(first, given[first])} must differ from ")
    assert f"--{second}" in line


@pytest.mark.parametrize(
    "outputs",
    [
        {"result_file": "d/r.json", "mlperf_log": "d/r.log"},
        {"result_file": "d/run.json", "log_dir": "d"},  # the same record
        {"result_file": "d/r.json", "log_dir": "link", "checkpoint_dir": "d"},
        {"result_file": "r.json", "mlperf_log": "d/r.json"},
    ],
)
def test_outputs_of_their_own_are_allowed(folder_of_links, outputs):
    assert problems(**outputs) == []


def test_a_link_to_itself_is_one_line(folder_of_links):
    (line,) = problems(result_file="loop/r.json", mlperf_log="d/r.json")
    assert line.startswith("--result_file=loop/r.json cannot be written")


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_flag_that_the_mode_ignores_is_a_conflict(name):
    field = OPTIONS[name]
    value = (
        {"param_server_device": "cpu", "dataset": "cifar10"}.get(name, True)
        if field.default is None
        else field.default
    )
    num_gpus = 1 if name == "cpu_cores_per_device" else 0
    model = "lm" if WORKLOADS["resnet50"].reads.count(name) else "resnet50"
    mode = {"lr_scaling": "independent"}.get(name, "mirrored")
    value = mode if name == "variable_update" else value
    framework = (
        "torch" if name in registry.FRAMEWORKS["tensorflow"].reads else "tensorflow"
    )
    is_of_training = any(
        "decode" in rule.by for rule in CONDITIONS[name]
    ) and name not in (
        "beam_size",
        "length_penalty",
    )
    inference = {"forward_only": True, "decode": True} if is_of_training else {}
    given = {
        "variable_update": mode,
        "model": model,
        "framework": framework,
        **inference,
        name: value,
    }
    lines = problems(num_gpus, **given)
    assert any(
        line.startswith(f"{spell(name, given[name])} would be ignored here")
        for line in lines
    ), lines


def test_what_a_workload_does_not_read_is_no_conflict_unless_it_is_given(tmp_path):
    assert problems(model="lm", num_encoder_layers=3) == []
    (line,) = problems(model="lm", src_max_len=9)
    assert line.startswith("--src_max_len=9 would be")
    (line,) = problems(model="lm", encoder_type="bi")
    assert line.startswith("--encoder_type=bi names a direction,")
    (line,) = problems(model="lm", global_batch_size=1, num_devices=2)
    assert line.endswith("every tower needs a sentence")
    files = dict.fromkeys(("tgt_file_name", "tgt_vocab_file"), __file__)
    assert problems(model="lm", data_source="text", **files) == []
    needed = problems(model="lm", src_file_name="a")[0]
    assert "needs --data_source=text and" in needed
    assert problems(model="lm", data_source="text") == [
        f"--data_source=text needs --{name}" for name in files
    ]


def test_a_kernel_that_does_not_compute_the_cell_is_named_once():
    assert len(problems(encoder_type="cudnn_lstm", unit_type="nas")) == 1
    assert len(problems(encoder_type="warp", decoder_type="warp", unit_type="gru")) == 1
    assert problems(model="lm", unit_type="layer_norm_lstm", forget_bias=0.5) == []


def test_data_and_images_that_a_workload_is_not_trained_on_are_refused(tmp_path):
    (line,) = problems(model="resnet50", data_source="text")
    assert line.startswith("--data_source=text reads text") and line.endswith(
        "constant, host or tfrecord"
    )
    (line,) = problems(data_source="cifar10", data_dir=".")
    assert line.startswith("--data_source=cifar10 reads cifar10,")
    (line,) = problems(model="inception3", dataset="cifar10")
    assert (
        line.startswith("--dataset=cifar10: --model=inception3 ")
        and "299 x 299" in line
        and "75 x 75" in line
    )
    (line,) = problems(model="resnet20", dataset="imagenet")
    assert (
        line.startswith("--dataset=imagenet: --model=resnet20 ") and "32 x 32" in line
    )
    (line,) = problems(model="vgg19", data_source="cifar10", data_dir=".")
    assert line.startswith("--data_source=cifar10 reads cifar10,") and line.endswith(
        "--dataset=cifar10"
    )
    (tmp_path / "data_batch_1.bin").touch()
    assert (
        problems(
            model="vgg19",
            data_source="cifar10",
            data_dir=str(tmp_path),
            dataset="cifar10",
        )
        == []
    )
    (line,) = problems(dataset="cifar10")
    assert "--help=model" in line and len(line) < 200
    (line,) = problems(model="alexnet", data_source="tfrecord", data_dir=".")
    assert line.startswith("--data_dir=.: ") and "train-*-of-*" in line
    (line,) = problems(model="resnet20", data_source="cifar10", data_dir="no/such")
    assert line.startswith("--data_dir=no/such: ") and "data_batch_*.bin" in line
    (line,) = problems(model="lm", data_format="NCHW")
    assert line.startswith("--data_format=NCHW would be")
    (line,) = problems(model="resnet50", num_units=9)
    assert line.startswith("--num_units=9 would be ignored")
    assert problems(model="resnet50", data_format="NCHW", dataset="imagenet") == []


def test_a_step_that_any_worker_runs_has_no_averages_of_a_tower():
    mode = {"variable_update": "async_parameter_server", "num_workers": 2}
    (line,) = problems(model="resnet50", **mode)
    assert line.startswith("--model=resnet50: its batch normalisation")
    assert problems(model="vgg16", **mode) == []


def test_a_preset_gives_a_workload_what_it_reads_and_a_batch_size_of_its_own():
    for preset, size in (("small", 8), ("seed", 32)):
        config = configs.resolve(
            {"model": "resnet50", "preset": preset}, num_gpus=0, num_cores=1
        )
        assert (
            config.training.batch_size,
            config.model.num_units,
            config.model.dataset,
        ) == (size, 256, "imagenet")
    assert (
        configs.resolve(
            {"model": "lm", "preset": "seed"}, num_gpus=0, num_cores=1
        ).model.num_units
        == 512
    )
    assert "for images only the batch:" in OPTIONS["preset"].metadata["help"]
    (line,) = problems(model="resnet50", preset="gnmt_v2")
    assert line.startswith("--preset=gnmt_v2") and line.endswith(
        "use --preset=small or seed"
    )


def test_towers_that_do_not_spread_evenly_over_the_gpus_are_a_conflict():
    assert any("or a multiple of them" in line for line in problems(2, num_devices=3))
    assert problems(2, num_devices=4) == problems(2, num_devices=2) == []


def test_all_conflicts_are_named_at_once():
    assert (
        len(
            problems(
                num_decoder_layers=4, device="gpu", result_file=".", staged_vars=True
            )
        )
        >= 4
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_without_write_permission(tmp_path):
    tmp_path.chmod(0o500)
    assert any(
        "cannot be written" in line for line in problems(log_dir=str(tmp_path / "logs"))
    )


def test_the_seeds_commands_are_accepted():
    common = {
        "batch_size": 384,
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "direction": "bi",
    }
    independent = {
        "independent_replica": True,
        "use_synthetic_data": True,
        "src_max_len": 100,
    }
    assert (
        problems(
            **common,
            **independent,
            variable_update="replicated",
            encoder_type="cudnn_lstm",
        )
        == []
    )
    reduce = {
        "gradient_repacking": 4,
        "agg_small_grads_max_bytes": 0,
        "agg_small_grads_max_group": 10,
    }
    assert (
        problems(
            2,
            **common,
            **reduce,
            variable_update="replicated",
            all_reduce_spec="nccl",
            num_devices=2,
        )
        == []
    )


def test_nccl_adds_no_bfloat16():
    on_gpus = {
        "variable_update": "replicated",
        "num_devices": 2,
        "compress_gradients": "bfloat16",
    }
    (line,) = problems(2, **on_gpus)
    assert line.startswith("--compress_gradients=bfloat16 and")
    assert problems(2, **{**on_gpus, "compress_gradients": "float16"}) == []
    assert (
        problems(2, **on_gpus, all_reduce_spec="collective")
        == []
        == problems(0, **on_gpus)
    )


def test_every_option_is_read_by_something():
    from pathlib import Path

    root = Path(configs.__file__).parents[2]
    code = [
        p for folder in ("rnn_scaling", "models") for p in (root / folder).rglob("*.py")
    ]
    names_all = (
        "config.py",
        "run_options.py",
        "conflicts.py",
        "conflict_rules.py",
        "conditions.py",
    )
    texts = [path.read_text() for path in code if path.name not in names_all]
    resolved_away = {
        "preset",
        "independent_replica",
        "use_synthetic_data",
        "encoder_type",
        "decoder_type",
        "direction",
    }
    for name in OPTIONS.keys() - resolved_away:
        side, _, rest = name.partition("_")
        spelled = f"{{side.name}}_{rest}" if side in ("src", "tgt") else f".{name}"
        spelled = (
            "{side.vocabulary or side.name}_vocab"
            if rest.startswith("vocab_")
            else spelled
        )
        assert any(spelled in text or f".{name}" in text for text in texts), (
            f"--{name} is read by nothing"
        )


def test_a_source_that_reads_prefetching_prefetches_unless_told(monkeypatch):
    monkeypatch.setitem(
        registry.DATA_SOURCES,
        "lines",
        registry.DataSource("none", reads=("prefetch_data_to_device",)),
    )
    assert resolve(data_source="lines").data.prefetch_data_to_device
    assert not resolve(data_source="device").data.prefetch_data_to_device


def test_a_mode_that_nobody_knows_trains_one_model():
    assert [
        registry.mode_of(mode).trains_one_model
        for mode in ("independent", "mirrored", "older", None)
    ] == [*(False, True, True, True)]


def test_gnmt_v2_preset_names_its_network_and_given_flags_win():
    config = resolve(preset="gnmt_v2", batch_size=2)
    assert (config.model.model, config.model.num_units, config.data.src_max_len) == (
        "nmt_attention",
        1024,
        50,
    )
    assert (
        config.training.batch_size == 2
        and problems(preset="gnmt_v2", batch_size=2, num_decoder_layers=3) == []
    )
    assert problems(preset="gnmt_v2", model="nmt") == []


@pytest.mark.parametrize(
    "preset, units, heads",
    [("transformer_base", 512, 8), ("transformer_big", 1024, 16)],
)
def test_presets_of_the_transformer_name_their_network_and_layers_need_not_be_equal(
    preset, units, heads
):
    config = resolve(preset=preset)
    assert (config.model.model, config.model.num_units, config.model.num_heads) == (
        "transformer",
        units,
        heads,
    )
    assert (
        config.model.label_smoothing == 0.1
        and problems(preset=preset, num_decoder_layers=3) == []
    )


def test_text_with_a_known_answer_has_two_sides_of_one_length():
    assert problems(data_source="copy") == []
    (line,) = problems(data_source="reverse", src_max_len=9)
    assert line.startswith("--data_source=reverse has the")
    (line,) = problems(data_source="copy", src_max_len=1, tgt_max_len=1)
    assert "needs --tgt_max_len of" in line
    (line,) = problems(data_source="copy", model="lm")
    assert line.startswith("--data_source=copy makes pairs")


def test_a_learning_rate_grows_with_the_global_batch_and_not_without():
    assert (
        problems(
            variable_update="replicated",
            num_devices=2,
            lr_scaling="linear",
            lr_warmup_batches=5,
        )
        == []
    )
    (line,) = problems(
        variable_update="replicated",
        num_devices=2,
        global_batch_size=8,
        lr_scaling="linear",
    )
    assert line.startswith("--lr_scaling=linear would be")
    (line,) = problems(variable_update="async_parameter_server", lr_scaling="linear")
    assert line.startswith("--lr_scaling=linear would be")
    (line,) = problems(variable_update="replicated", lr_warmup_batches=5)
    assert line.startswith("--lr_warmup_batches=5 would be")


def test_checkpoints_are_of_processes_that_go_in_step(tmp_path):
    assert problems(checkpoint_dir=str(tmp_path), save_every=5) == []
    assert (
        problems(
            checkpoint_dir=str(tmp_path),
            variable_update="collective_all_reduce",
            num_workers=2,
        )
        == []
    )
    for mode in ("distributed_independent", "async_parameter_server"):
        (line,) = problems(
            checkpoint_dir=str(tmp_path), variable_update=mode, num_workers=2
        )
        assert (
            f"the workers of --variable_update={mode} are at different batches" in line
        )
    (line,) = problems(save_every=5)
    assert line.startswith("--save_every=5 would be ignored")
    (tmp_path / "file").touch()
    (line,) = problems(checkpoint_dir=str(tmp_path / "file"))
    assert line.endswith("is a file; name a folder")


def test_what_nothing_reads_follows_from_the_options_that_decide_it():
    modes = [{"variable_update": mode} for mode in registry.VARIABLE_UPDATES]
    others = [
        {"framework": "torch"},
        {"model": "lm", "lr_scaling": "linear"},
        {"data_source": "text", "device": "gpu"},
    ]
    for given in [
        {},
        *modes,
        *others,
        {"checkpoint_dir": "x", "until_steady": True, "compress_gradients": "int8"},
    ]:
        config = configs.from_flat(given)
        assert unread_options(given) == {
            name for name in CONDITIONS if not is_read(config, name)
        }
        for name, value in config.flat().items():
            if (
                name not in DECIDING
            ):  # such an option, whatever its value, decides nothing
                other = configs.from_flat(
                    {**given, name: "another" if value != "another" else ""}
                )
                assert {
                    each for each in CONDITIONS if not is_read(other, each)
                } == unread_options(given), name


@pytest.mark.parametrize(
    "given, cores, pools",
    [
        ({"num_devices": 1}, 1, (1, 1)),
        ({"num_devices": 4}, 2, (4, 1)),
        ({"num_devices": 2, "cpu_cores_per_device": 3}, 6, (3, 6)),
        ({"variable_update": "collective_all_reduce", "num_workers": 2}, 1, (2, 1)),
        (
            {
                "num_devices": 2,
                "inter_op_parallelism_threads": 7,
                "intra_op_parallelism_threads": 5,
            },
            2,
            (7, 5),
        ),
        ({"device": "gpu", "num_devices": 2}, 16, (16, 16)),
        ({"device": "gpu", "num_devices": 2}, 2, (3, 2)),
    ],
)
def test_a_device_of_one_core_has_one_thread_for_its_operators(given, cores, pools):
    assert (
        pool_sizes(
            resolve(num_gpus=4, num_cores=cores, **{"device": "cpu", **given}), cores
        )
        == pools
    )

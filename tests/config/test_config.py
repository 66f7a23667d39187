"""Defaults are resolved as documented; each conflict has its line."""

import os
import re
import shlex

import pytest

from rnn_scaling.config import conflicts, flags, presets, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import (
    CONDITIONS,
    DECIDING_OPTIONS,
    find_unread_options,
    is_read,
)
from rnn_scaling.config.run_config import OPTIONS, choose_pool_sizes
from rnn_scaling.config.spelling import make_sweep_command, spell
from rnn_scaling.models.workloads import WORKLOADS


def parse(words):
    return flags.parse(shlex.split(words), OPTIONS)


def resolve(words="", num_gpus=0, num_cores=4):
    return configs.resolve(parse(words), num_gpus=num_gpus, num_cores=num_cores)


def problems(words="", num_gpus=0, **user_options):
    user_options = {**parse(words), **user_options}
    config = configs.resolve(user_options, num_gpus=num_gpus, num_cores=4)
    return conflicts.find_problems(config, user_options, num_gpus=num_gpus)


def table(text):
    """Return the cells of the lines of a text."""
    return [re.split(r"\s*\|\s*", line) for line in text.strip().splitlines()]


def test_a_command_to_repeat_can_be_pasted():
    names = {"src_file_name": "/my texts/a$b.en", "tgt_file_name": "it's.de"}
    config = configs.resolve({"data_source": "text", **names}, num_gpus=0, num_cores=4)
    words = shlex.split(make_sweep_command(config.flat()))
    assert words[1] == "sweep"
    assert words[-2:] == [spell(name, value) for name, value in names.items()]


@pytest.mark.parametrize(
    "words", ["", "--preset=large", "--preset=small --device=gpu", "--preset=gnmt_v2"]
)
def test_a_command_to_repeat_has_the_same_preset(words):
    config = resolve(words).flat()
    repeated = parse(" ".join(shlex.split(make_sweep_command(config))[2:]))
    has_gpus = config["device"] == "gpu"
    assert (
        repeated.get("preset", presets.choose_sweep_preset(has_gpus))
        == config["preset"]
    )


def test_the_former_name_of_a_preset_is_its_new_name():
    config = resolve("--preset=seed")
    assert config == resolve("--preset=large")
    assert config.output.preset == "large"
    recorded = {**config.flat(), "preset": "seed"}
    assert make_sweep_command(recorded) == make_sweep_command(config.flat())


@pytest.mark.parametrize(
    "total, towers, sizes",
    [(64, 2, (32, 32)), (8, 3, (3, 3, 2)), (5, 5, (1,) * 5), (0, 2, (32, 32))],
)
def test_no_sample_of_a_global_batch_is_lost(total, towers, sizes):
    config = resolve(f"--global_batch_size={total} --num_devices={towers}")
    assert config.tower_batch_sizes() == sizes
    assert config.training.batch_size == max(sizes)


def test_flat_and_back():
    config = resolve("--num_units=7 --preset=large")
    assert configs.from_flat(config.flat()) == config
    assert list(config.flat()) == list(OPTIONS)


RESOLUTIONS = """
| 0 | --device=cpu --encoder_type=cudnn_lstm
| 2 | --device=gpu
--num_devices=0 | 3 | --num_devices=3
--num_devices=0 --cpu_cores_per_device=2 | 0 | --num_devices=2
--num_devices=0 --cpu_cores_per_device=9 | 0 | --num_devices=1
--encoder_type=uni | 0 | --direction=uni --decoder_type=dynamic_rnn
--encoder_type=bi --decoder_type=cudnn_gru | 0 | --decoder_type=cudnn_gru
--unit_type=gru | 1 | --encoder_type=cudnn_gru --decoder_type=cudnn_gru
--unit_type=nas | 0 | --encoder_type=dynamic_rnn
--variable_update=replicated --independent_replica | 0 | --variable_update=independent
--variable_update=parameter_server | 2 | --param_server_device=gpu
--variable_update=parameter_server | 0 | --param_server_device=cpu
--use_synthetic_data | 0 | --data_source=device
--data_source=host | 0 | --prefetch_data_to_device=true
--data_source=device | 0 | --prefetch_data_to_device=false
--preset=large --batch_size=16 | 0 | --src_vocab_size=50000 --batch_size=16
--preset=gnmt_v2 --batch_size=2 | 0 | --model=nmt_attention --num_units=1024 --batch_size=2
--preset=transformer_big | 0 | --model=transformer --num_heads=16 --label_smoothing=0.1
--model=resnet50 --preset=large | 0 | --batch_size=32 --num_units=256 --dataset=imagenet
--model=lm --preset=large | 0 | --num_units=512
"""


@pytest.mark.parametrize("words, num_gpus, resolved", table(RESOLUTIONS))
def test_resolution(words, num_gpus, resolved):
    flat = resolve(words, int(num_gpus)).flat()
    expected = parse(resolved)
    assert {name: flat[name] for name in expected} == expected


# A command line, and the start of one of its errors.
CONFLICTS = f"""
--variable_update=ring | --variable_update=ring must be one of independent,
--dropout=1 | --dropout=1.0 must be at most 0.99
--learning_rate=nan | --learning_rate=nan must be a finite number
--global_batch_size=64 --batch_size=32 | --global_batch_size=64 and
--global_batch_size=3 --num_devices=4 | --global_batch_size=3 must be
--until_steady --max_batches=29 | --max_batches=29 must be at least
--device=gpu | --device=gpu needs a visible NVIDIA GPU
--num_encoder_layers=3 --num_decoder_layers=3 | --num_encoder_layers=3 must
--num_decoder_layers=4 | --num_decoder_layers=4 must equal
--encoder_type=uni --direction=bi | --encoder_type=uni and --direction=bi
--model=lm --encoder_type=bi | --encoder_type=bi names a direction,
--share_embedding --tgt_vocab_size=9 | --share_embedding=true needs one
--attention=luong --preset=gnmt_v2 | --normalize_attention=true needs
--unit_type=gru --preset=gnmt_v2 | --biases_per_gate=2 needs
--encoder_type=cudnn_lstm --unit_type=gru | --encoder_type=cudnn_lstm computes
--model=transformer --num_heads=3 | --num_heads=3 must divide
--variable_update=replicated --all_reduce_spec=nccl | --all_reduce_spec=nccl
--variable_update=replicated --gradient_repacking=2 --agg_small_grads_max_bytes=9 | --gradient_repacking=2
--independent_replica --variable_update=mirrored | --independent_replica=true
--variable_update=parameter_server --param_server_device=gpu | --param_server_device=gpu needs GPUs
--variable_update=parameter_server --staged_vars --variable_consistency=relaxed | --staged_vars=true and
--loss_scale=0.5 --compute_dtype=float16 | --loss_scale=0.5 must be dynamic
--num_epochs=2 --data_source=text --num_batches=5 | --num_epochs=2 determines
--lr_schedule=inverse_sqrt | --lr_schedule=inverse_sqrt needs
--lr_schedule=piecewise | --lr_steps=: --lr_schedule=piecewise needs
--gradient_accumulation_steps=2 --global_batch_size=8 | --gradient_accumulation_steps=2 multiplies
--gradient_accumulation_steps=2 --variable_update=keras_slicing --num_devices=2 | --gradient_accumulation_steps=2:
--gradient_accumulation_steps=2 --variable_update=async_parameter_server | --gradient_accumulation_steps=2:
--framework=torch --optimizer=rmsprop | --framework=torch does not support --optimizer=rmsprop; use --optimizer=adam
--use_synthetic_data --data_source=host | --use_synthetic_data=true means
--data_source=text | --data_source=text needs --src_file_name
--data_source=text --unk_id=8000 | --unk_id=8000 must be below --src_vocab
--data_source=text --tgt_max_len=1 | --tgt_max_len=1 must be at least 2
--data_source=text --src_file_name=no/such | --src_file_name=no/such: No such
--data_source=text --src_file_name=. | --src_file_name=.: a folder;
--random_lengths --pad_to=29 | --pad_to=29 must be at least --src_max_len=30
--result_file={"x" * 300}/run.json | --result_file=xxx
--mlperf_log=. | --mlperf_log=. is a folder
--log_dir={__file__} | --log_dir={__file__} is a file
--log_dir={__file__}/logs | --log_dir={__file__}/logs cannot be written
--data_source=cifar10 --data_dir=. | --data_source=cifar10 reads cifar10,
--model=resnet50 --data_source=text | --data_source=text reads text
--model=inception3 --dataset=cifar10 | --dataset=cifar10: --model=inception3
--model=resnet20 --data_source=cifar10 --data_dir=no | --data_dir=no must be a folder
--model=resnet50 --preset=gnmt_v2 | --preset=gnmt_v2 is for text
--model=resnet50 --variable_update=async_parameter_server --num_workers=2 | --model=resnet50: its batch
--data_source=reverse --src_max_len=9 | --data_source=reverse has the same
--data_source=copy --model=lm | --data_source=copy makes pairs
--variable_update=distributed_independent --num_workers=2 --checkpoint_dir=x | --checkpoint_dir=x: the workers
--checkpoint_dir={__file__} | --checkpoint_dir={__file__} is a file
"""


@pytest.mark.parametrize("words, line", table(CONFLICTS))
def test_each_conflict_has_its_line(words, line):
    lines = problems(words)
    assert any(each.startswith(line) for each in lines), lines
    assert all("\n" not in each and each.startswith("--") for each in lines)


@pytest.mark.parametrize("name", ["result_file", "src_file_name"])
def test_a_name_cannot_hold_a_nul_byte(name):
    lines = problems("--data_source=text", **{name: "a\0b/x"})
    assert any("NUL byte" in line for line in lines)


VALID = f"""
--device=cpu
--model=lm --num_encoder_layers=3
--model=lm --unit_type=layer_norm_lstm --forget_bias=0.5
--model=lm --data_source=text --tgt_file_name={__file__} --tgt_vocab_file={__file__}
--model=resnet50 --data_format=NCHW --dataset=imagenet
--model=vgg16 --variable_update=async_parameter_server --num_workers=2
--preset=gnmt_v2 --num_decoder_layers=3
--preset=gnmt_v2 --model=nmt
--preset=transformer_base --num_decoder_layers=3
--data_source=copy
--variable_update=replicated --num_devices=2 --lr_scaling=linear --lr_warmup_batches=5
--checkpoint_dir=x --save_every=5
--checkpoint_dir=x --variable_update=collective_all_reduce --num_workers=2
"""


@pytest.mark.parametrize("words", VALID.split("\n"))
def test_options_that_fit_have_no_conflict(words):
    assert problems(words) == []


@pytest.mark.parametrize(
    "words, is_refused",
    [
        ("--num_devices=2", False),
        ("--num_devices=3", True),
        ("--num_devices=4", False),
        ("--variable_update=replicated --num_devices=2 --all_reduce_spec=nccl", False),
    ],
)
def test_towers_spread_evenly_over_the_gpus(words, is_refused):
    assert bool(problems(words, num_gpus=2)) == is_refused


@pytest.fixture
def folder_of_links(tmp_path, monkeypatch):
    """Create a folder d, a link to it, a link into it, a loop and a text file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "alias.json").symlink_to("d/r.json")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "words").write_text("a\n")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "--mlperf_log=link/r.json --result_file=d/r.json",
        "--mlperf_log=alias.json --result_file=d/r.json",
        "--mlperf_log=new/../new/r.json --result_file=new/r.json",
        "--result_file=d/x --log_dir=d/x/logs",
        "--result_file=d/x --checkpoint_dir=d/./x",
        "--mlperf_log=link/run.json --log_dir=d",
        "--mlperf_log=link/../words --tgt_file_name=words",
    ],
)
def test_outputs_that_are_one_file_are_refused(folder_of_links, words):
    first, second = words.split()
    user_options = {}
    if "words" in second:
        user_options = dict.fromkeys(registry.TEXT_FILES, "text")
        user_options["data_source"] = "text"
        (folder_of_links / "text").write_text("a\n")
    [line] = problems(**{**user_options, **parse(words)})
    assert line.startswith(f"{first} must differ from ")
    assert second.partition("=")[0] in line


@pytest.mark.parametrize(
    "words",
    [
        "--result_file=d/r.json --mlperf_log=d/r.log",
        "--result_file=d/run.json --log_dir=d",  # the same record
        "--result_file=d/r.json --log_dir=link --checkpoint_dir=d",
    ],
)
def test_separate_outputs_are_allowed(folder_of_links, words):
    assert problems(words) == []


def test_a_link_to_itself_is_one_line(folder_of_links):
    [line] = problems("--result_file=loop/r.json --mlperf_log=d/r.json")
    assert line.startswith("--result_file=loop/r.json cannot be written")


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_flag_that_the_mode_ignores_is_a_conflict(name):
    value = OPTIONS[name].default
    if value is None:
        value = {"param_server_device": "cpu", "dataset": "cifar10"}.get(name, True)
    user_options = {
        "variable_update": "independent" if name == "lr_scaling" else "mirrored",
        "model": "lm" if name in WORKLOADS["resnet50"].reads else "resnet50",
        "framework": "tensorflow",
    }
    if name in registry.FRAMEWORKS["tensorflow"].reads:
        user_options["framework"] = "torch"
    deciding = {option for each in CONDITIONS[name] for option in each.options}
    if "forward_only" in deciding:
        user_options["forward_only"] = True
    elif "decode" in deciding:
        user_options["decode"] = name not in ("beam_size", "length_penalty")
    user_options.setdefault(name, value)
    lines = problems(num_gpus=int(name == "cpu_cores_per_device"), **user_options)
    ignored = f"{spell(name, user_options[name])} would be ignored here"
    assert any(line.startswith(ignored) for line in lines), lines


def test_a_kernel_that_does_not_compute_the_cell_is_named_once():
    assert len(problems("--encoder_type=cudnn_lstm --unit_type=nas")) == 1
    both = "--encoder_type=warp --decoder_type=warp --unit_type=gru"
    assert len(problems(both)) == 1


def test_all_conflicts_are_named_at_once():
    words = "--num_decoder_layers=4 --device=gpu --result_file=. --staged_vars"
    assert len(problems(words)) >= 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_without_write_permission(tmp_path):
    tmp_path.chmod(0o500)
    [line] = problems(f"--log_dir={tmp_path}/logs")
    assert "cannot be written" in line


def test_nccl_adds_no_bfloat16():
    on_gpus = "--variable_update=replicated --num_devices=2 --compress_gradients="
    [line] = problems(f"{on_gpus}bfloat16", num_gpus=2)
    assert line.startswith("--compress_gradients=bfloat16 and")
    assert problems(f"{on_gpus}float16", num_gpus=2) == []
    other = f"{on_gpus}bfloat16 --all_reduce_spec=collective"
    assert problems(other, num_gpus=2) == problems(f"{on_gpus}bfloat16") == []


def test_only_deciding_options_decide_on_unread_options():
    modes = [f"--variable_update={mode}" for mode in registry.VARIABLE_UPDATES]
    others = [
        "--framework=torch",
        "--model=lm --lr_scaling=linear",
        "--data_source=text --device=gpu",
        "--checkpoint_dir=x --until_steady --compress_gradients=int8",
    ]
    for words in ["", *modes, *others]:
        options = parse(words)
        config = configs.from_flat(options)
        unread = {name for name in CONDITIONS if not is_read(config, name)}
        assert find_unread_options(options) == unread
        for name, value in config.flat().items():
            if name in DECIDING_OPTIONS:
                continue
            changed = "another" if value != "another" else ""
            other = configs.from_flat({**options, name: changed})
            assert unread == {n for n in CONDITIONS if not is_read(other, n)}, name


@pytest.mark.parametrize(
    "words, cores, pools",
    [
        ("--num_devices=1", 1, (1, 1)),
        ("--num_devices=4", 2, (4, 1)),
        ("--num_devices=2 --cpu_cores_per_device=3", 6, (3, 6)),
        ("--variable_update=collective_all_reduce --num_workers=2", 1, (2, 1)),
        (
            "--num_devices=2 --inter_op_parallelism_threads=7"
            " --intra_op_parallelism_threads=5",
            2,
            (7, 5),
        ),
        ("--device=gpu --num_devices=2", 16, (16, 16)),
        ("--device=gpu --num_devices=2", 2, (3, 2)),
    ],
)
def test_a_device_of_one_core_has_one_thread_for_its_operators(words, cores, pools):
    config = resolve(f"--device=cpu {words}", num_gpus=4, num_cores=cores)
    assert choose_pool_sizes(config, cores) == pools

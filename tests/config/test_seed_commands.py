"""Command lines of published measurements run here, or lack only GPUs."""

import shlex

import pytest

from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from tests.support.configs import resolve

LAYERS = "--num_encoder_layers=4 --num_decoder_layers=4"
SERVER = '--prefetch_data_to_device="true" --variable_update="parameter_server"'
IDEAL = (
    '--variable_update="replicated" --independent_replica="true" --use_synthetic_data="true" --src_max_len=100 '
    f'{LAYERS} --encoder_type="cudnn_lstm" --direction="bi"'
)
COMMANDS = {  # what follows train.py --batch_size=384
    "ideal, cudnn_lstm": IDEAL,
    "parameter server, cudnn_lstm": f'{LAYERS} --encoder_type="cudnn_lstm" --direction="bi" {SERVER}',
    "parameter server, dynamic rnn": f"{LAYERS} {SERVER}",
    "all-reduce": '--variable_update="replicated" --prefetch_data_to_device="true" --gradient_repacking=4 '
    '--all_reduce_spec="nccl" --agg_small_grads_max_bytes=0 --agg_small_grads_max_group=10',
}


def split_words(name):
    return shlex.split(f"--batch_size=384 {COMMANDS[name]}")


def problems(name, num_gpus, *more):
    given = flags.parse([*split_words(name), *more], configs.OPTIONS)
    config = configs.resolve(given, num_gpus=num_gpus, num_cores=8)
    return conflicts.find_problems(config, given, num_gpus=num_gpus)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("num_gpus", [0, 1, 2, 8])
def test_a_printed_command_line_lacks_nothing_but_gpus(name, num_gpus):
    lines = [*problems(name, num_gpus), *problems(name, num_gpus, "--num_devices=0")]
    if name == "all-reduce" and not num_gpus:
        assert len(lines) == 2
        assert all("nccl needs --device=gpu" in line for line in lines)
    else:
        assert not lines


@pytest.mark.parametrize("value", [True, False])
def test_prefetching_without_a_data_source_means_the_hosts(value):
    def source(**given):
        return resolve({"prefetch_data_to_device": value, **given}).data.data_source

    assert source() == "host"
    assert source(data_source="constant") == "constant"
    assert source(use_synthetic_data=True) == "device"
    assert source(framework="torch") == "constant"

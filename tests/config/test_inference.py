"""Runs that do not train read fewer options, and are swept accordingly."""

import pytest

from rnn_scaling.analysis.metrics import METRICS
from rnn_scaling.analysis.rows import build_rows, select_metrics
from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.sweeps.plan import plan, split
from tests.support.configs import resolve
from tests.support.records import make_record

# A command line, and the starts of its errors.
CONFLICTS = """
--decode --beam_size=4 --length_penalty=0.6 |
--decode --variable_update=independent --num_devices=2 |
--forward_only --accuracy --model=resnet20 |
--decode --beam_size=0 | --beam_size=0 must be at least 1
--decode --beam_size=9 --tgt_vocab_size=8 | --beam_size=9 must be at most
--decode --model=lm | --decode=true would be ignored here
--decode --forward_only | --forward_only=true computes the loss
--beam_size=4 | --beam_size=4 would be ignored here; use --decode
--forward_only --optimizer=sgd | --optimizer=sgd would be ignored
--decode --variable_update=replicated | --variable_update=replicated would be
--decode --accuracy --decoder_type=dynamic_rnn | --accuracy + --decoder_type
--decode --framework=torch | --framework=torch
"""


@pytest.mark.parametrize("line", CONFLICTS.strip().splitlines())
def test_conflicts(line):
    words, starts = (cell.strip() for cell in line.split("|"))
    options = flags.parse(words.split(), configs.OPTIONS)
    config = resolve(options)
    lines = sorted(conflicts.find_problems(config, options, num_gpus=0))
    expected = sorted(start for start in starts.split(" + ") if start)
    assert len(lines) == len(expected), lines
    assert all(map(str.startswith, lines, expected))


def test_a_sweep_of_searches_has_no_mode_that_exchanges():
    lists = {
        "decode": [True],
        "beam_size": [1, 4],
        "batch_size": [1, 16],
        "num_devices": [1, 2],
    }
    runs = plan({**lists, "encoder_type": ["cudnn_lstm"]}, num_gpus=0, num_cores=2)
    assert {run.config.update.variable_update for run in runs} == {"independent"}
    assert len(runs) == 8
    assert {run.unit for run in runs} == {"tokens"}


def test_runs_that_do_not_train_share_a_checkpoint():
    _, lists = split(["--decode", "--checkpoint_dir=saved", "--beam_size=1,4"], [])
    assert lists["checkpoint_dir"] == ["saved"]
    for words in (
        ["--checkpoint_dir=saved"],
        ["--decode=true,false", "--checkpoint_dir=saved"],
    ):
        with pytest.raises(FlagErrors, match="checkpoint_dir applies to one run"):
            split(words, [])


def test_latencies_and_sentences_of_a_run_that_does_not_train():
    steps = {"seconds": [9.0, *(0.001 * n for n in range(1, 41))], "warmup": 1}
    steps["resolved"] = {"tower_batch_sizes": [4, 4]}
    config = {"decode": True, "batch_size": 4, "num_devices": 2}
    run = make_record(config=config, unit="tokens", **steps)
    row, trained = (build_rows([each])[0] for each in (run, make_record(**steps)))
    sentences = row.metric(METRICS["sentences_per_second"])
    assert sentences.value == pytest.approx(8 * 40 / 0.82)
    assert row.metric(METRICS["step_p50_s"]).value == pytest.approx(0.0205)
    assert trained.metric(METRICS["sentences_per_second"]) is None
    latencies = {"latency_p50_s", "latency_p95_s", "latency_max_s"}
    assert latencies <= {metric.name for metric in select_metrics([row])}
    both = {metric.name for metric in select_metrics([row, trained])}
    assert {"step_p50_s", "step_max_s"} <= both and not both & latencies

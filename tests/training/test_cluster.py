"""Several processes train like one, write one record, and end together."""

import functools
import math
import signal

import numpy as np
import pytest

from benchmarks import make_corpus
from rnn_scaling.records import record
from tests.support import ranks
from tests.support.forked import TINY
from tests.support.ranks import Ranks

STEPS, WARMUP = 20, 2
TOLERANCE = 1e-5  # absolute, weights after 20 SGD steps
MODEL = [
    "--model=lm",
    "--num_encoder_layers=1",
    "--num_units=6",
    "--embedding_dim=5",
    "--tgt_vocab_size=60",
    "--tgt_max_len=8",
    "--data_source=text",
    "--progress=false",
    "--optimizer=sgd",
    "--learning_rate=0.5",
    f"--num_warmup_batches={WARMUP}",
    f"--num_batches={STEPS - WARMUP}",
]
# A network with two sides is traced in twice the time.
TWO_SIDES = [
    "--model=nmt",
    "--num_decoder_layers=1",
    "--direction=uni",
    "--src_vocab_size=60",
    "--src_max_len=9",
]
# Other processes may wait long, because a machine that runs tests is slow.
PATIENT = ["--cluster_heartbeat=100", "--cluster_timeout=200"]
COLLECTIVE, ALONE = (
    "--variable_update=collective_all_reduce",
    "--variable_update=distributed_independent",
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return flags for sentences of different lengths, by side."""
    folder = tmp_path_factory.mktemp("text")
    for name, content in make_corpus.make(300, 60, 1).items():
        (folder / name).write_bytes(content)
    return {
        side: [
            f"--{side}_file_name={folder}/train.{side}",
            f"--{side}_vocab_file={folder}/vocab.{side}",
        ]
        for side in ("src", "tgt")
    }


def run(folder, size, *words, **options):
    """Run each rank and return its ended process.

    The record is run.json, and the weights are weights_RANK.
    """
    result = [f"--result_file={folder}/run.json", *(PATIENT if size > 1 else ())]
    keep = {
        rank: (ranks.keep_weights, f"{folder}/weights_{rank}") for rank in range(size)
    }
    with Ranks(
        [*words, *result], folder, size, **{"prepare": keep, **options}
    ) as started:
        return started.end()


def read_record(folder):
    return record.read(folder / "run.json")


def assert_equal_weights(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(
            values, other[name], rtol=0, atol=TOLERANCE, err_msg=name
        )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the folder of a run of one process; each command runs once."""

    @functools.cache
    def run_alone(*words):
        folder = tmp_path_factory.mktemp("alone")
        [done] = run(folder, 1, *words)
        assert done.returncode == 0, done.stderr
        return folder

    return run_alone


TWO_DEVICES = ("--variable_update=replicated", "--num_devices=2")
LATE = (
    "--variable_consistency=relaxed",
    "--sparse_gradients=densify",
    "--gradient_repacking=3",
)
WEAK = ["--batch_size=3"]
# Mode, flags of all workers, towers per worker, and flags of one equal process.
CASES = {
    "weak": (COLLECTIVE, WEAK, 1, TWO_DEVICES),
    "mirrored": ("--variable_update=multi_worker_mirrored", WEAK, 1, TWO_DEVICES),
    "strong with a remainder": (
        COLLECTIVE,
        ["--global_batch_size=7", "--max_gradient_norm=0.5"],
        2,
        (),
    ),
    "relaxed and densified": (COLLECTIVE, [*WEAK, *LATE], 1, TWO_DEVICES),
    "quantised": (COLLECTIVE, [*WEAK, "--compress_gradients=int8"], 1, TWO_DEVICES),
}


@pytest.mark.parametrize("case", CASES)
def test_two_workers_train_what_one_process_trains(case, text, alone, tmp_path):
    mode, words, towers, words_of_one = CASES[case]
    model = [*MODEL, *text["tgt"]]
    if case == "weak":
        model += [*TWO_SIDES, *text["src"]]
    one = alone(*model, *words, *words_of_one)
    # Each mode's order of reads and updates is tested as TensorFlow rewrites the step.
    rewrites = case in ("weak", "mirrored")
    for done in run(
        tmp_path, 2, *model, *words, mode, f"--num_devices={towers}", rewrites=rewrites
    ):
        assert done.returncode == 0, done.stderr
    expected = ranks.weights(one / "weights_0")
    for rank in range(2):
        for tower in range(towers):
            assert_equal_weights(
                ranks.weights(tmp_path / f"weights_{rank}", tower), expected
            )
    batches, reference = read_record(tmp_path).batches, read_record(one).batches
    np.testing.assert_allclose(batches.loss, reference.loss, rtol=1e-4)
    assert batches.items == reference.items
    assert len(set(batches.items)) > 5, "the words are to differ from batch to batch"
    if len(reference.tower_items[0]) == 2:
        assert batches.tower_items == reference.tower_items


def test_the_record_counts_what_all_did_over_the_common_window(tmp_path):
    """Expect different rates of rank 0 and the run, as no worker waits for rank 1."""
    flags = ["--num_warmup_batches=2", "--num_batches=20", "--progress=false"]
    words = [*(word for word in TINY if "batches" not in word), *flags]
    rank_0, rank_1 = run(
        tmp_path, 2, *words, ALONE, prepare={1: (ranks.slow_down_steps, 0.1)}
    )
    assert (rank_0.returncode, rank_1.returncode) == (0, 0), (
        rank_0.stderr + rank_1.stderr
    )
    assert (rank_1.stdout, rank_1.stderr) == ("", "")
    assert "words" in rank_0.stdout
    result = read_record(tmp_path)
    workers = result.workers
    assert workers is not None and workers.launcher == "environment" and workers.window
    assert [rank.rank for rank in workers.ranks] == [0, 1]
    own = [math.fsum(rank.seconds[2:]) for rank in workers.ranks]
    assert own[1] > 2.0 > own[0], own
    assert result.throughput is not None and workers.window_seconds is not None
    assert result.throughput.seconds == pytest.approx(own[1])
    assert (
        own[1] <= workers.window_seconds + 0.1
    )  # the ranks leave the barrier one after the other
    assert result.throughput.items == sum(sum(rank.items[2:]) for rank in workers.ranks)
    assert (
        result.throughput.items_per_second
        < 0.9 * 2 * sum(workers.ranks[0].items[2:]) / own[0]
    )
    assert [len(rank.ready) for rank in workers.ranks] == [22, 22]
    assert result.phases.cluster > 0
    for rank in workers.ranks:
        assert rank.pid
        assert rank.host
        assert rank.cpu_affinity
        assert rank.peak_process_bytes
        assert rank.phases
        assert len(rank.tower_items) == len(rank.seconds) == 22
    assert (
        result.batches.tower_items[0]
        == workers.ranks[0].tower_items[0] + workers.ranks[1].tower_items[0]
    )
    [one] = run(
        tmp_path / "one",
        1,
        *words,
        "--variable_update=independent",
        "--num_devices=2",
        prepare={},
    )
    assert one.returncode == 0, one.stderr
    reference = read_record(tmp_path / "one").batches
    np.testing.assert_allclose(
        result.batches.loss, reference.loss, rtol=1e-5
    )  # the same random words
    assert result.batches.tower_items == reference.tower_items


# A fault of rank 1, its exit status, and a part of the error of rank 0.
FAULTS = {
    "out of memory": ((ranks.run_out_of_memory, 3), 1, "out of memory"),
    "terminated": (
        (ranks.kill_itself, 3, signal.SIGTERM),
        130,
        "interrupted by SIGTERM",
    ),
}
FAULTY = [*TINY, COLLECTIVE, "--progress=false", *PATIENT]


def list_errors(done):
    return [line for line in done.stderr.splitlines() if line.startswith("error:")]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_fails_ends_the_run_of_all(fault, tmp_path):
    prepare, status, said = FAULTS[fault]
    with Ranks(
        [*FAULTY, f"--result_file={tmp_path}/run.json"],
        tmp_path,
        2,
        prepare={1: prepare},
    ) as started:
        rank_0 = started.trainers[0].end()
        assert started.trainers[1].end().returncode == status
    [error] = list_errors(rank_0)
    assert error.startswith("error: rank 1 (host 127.0.0.1, process ") and said in error
    result = read_record(tmp_path)
    expected = (130, "interrupted") if fault == "terminated" else (1, "failed")
    assert (rank_0.returncode, result.status) == expected
    assert result.error and said in result.error.message
    assert result.workers and len(result.workers.ranks[0].seconds) == 3
    failed = result.workers.ranks[1]
    assert failed.error == result.error.message
    kind = "interrupted" if fault == "terminated" else "error"
    assert failed.failure == kind


def test_a_run_whose_worker_was_killed_goes_on_with_the_same_losses(tmp_path):
    # Each rank has its own deferred gradients and errors of int8.
    own = [
        "--num_batches=20",
        "--variable_consistency=relaxed",
        "--sparse_gradients=densify",
        "--progress=false",
    ]
    words = [
        *(word for word in TINY if "num_batches" not in word),
        COLLECTIVE,
        "--compress_gradients=int8",
        *own,
    ]
    saving = [f"--checkpoint_dir={tmp_path}/saved", "--save_every=5"]
    for done in run(tmp_path / "whole", 2, *words, prepare={}):
        assert done.returncode == 0, done.stderr
    with Ranks(
        [*words, *saving, *PATIENT],
        tmp_path / "killed",
        2,
        prepare={1: (ranks.kill_itself, 17)},
    ) as started:
        assert started.trainers[0].end().returncode == 1
    ended = run(tmp_path / "ended", 2, *words, *saving, prepare={})
    assert [done.returncode for done in ended] == [0, 0], ended[0].stderr
    assert (
        f"resumed after batch 15, from {tmp_path}/saved/batch_00000015"
        in ended[0].stderr
    )
    whole, resumed = read_record(tmp_path / "whole"), read_record(tmp_path / "ended")
    for name in (
        "loss",
        "items",
        "tower_items",
        "tower_positions",
        "warmup",
        "measured",
    ):
        assert getattr(resumed.batches, name) == getattr(whole.batches, name), name
    [again] = resumed.batches.resumed
    assert again.batch == 15 and again.seconds > resumed.phases.resume > 0
    assert resumed.workers.window_seconds is None, "checkpoints lie in it"
    assert [len(rank.seconds) for rank in resumed.workers.ranks] == [22, 22]

"""Which samples the ranks of a script read together."""

from __future__ import annotations

import pytest

from rnn_scaling.verification.scripts import samples
from tests.verification.scripts.recorded import Recorded


@pytest.fixture
def runs():
    return Recorded().runs()


def make_joint_batches(runs):
    return samples.JointBatches(runs["parallel"], runs["serial"])


def test_the_batches_of_all_ranks_are_joined(runs):
    steps = make_joint_batches(runs).steps()
    assert [batch for ((_, batch),) in steps] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert samples.is_same_reading(steps, runs["serial"]["ranks"][0], 0)
    assert samples.replay(steps, 1) == {"0": [batch for ((_, batch),) in steps]}


def test_several_micro_batches_become_one_for_a_reference_without_accumulation():
    steps = [[(0, [1]), (0, [2])], [(0, [3]), (1, [4])]]
    assert samples.replay(steps, 1) == {"0": [[1, 2], [3, 4]]}
    assert samples.replay(steps, 2) == {"0": [[1], [2], [3]], "1": [[4]]}


def test_batches_that_a_script_discards_as_an_epoch_ends_are_not_joined(runs):
    for rank in runs["parallel"]["ranks"]:
        first, second, _ = rank["steps"]
        second["reads"][0]["epoch"] = 1
        second["reads"].insert(0, first["reads"][0])
    (first,), (second,), _ = make_joint_batches(runs).steps()
    assert first == (0, [0, 1, 2, 3])
    assert second == (1, [4, 5, 6, 7])


@pytest.mark.parametrize(
    ("sizes", "missing", "declares", "is_wrong"),
    [
        ([[4, 4, 2], [4, 4, 1], [8, 8, 4]], 1, [], True),
        ([[4, 4, 1], [4, 4, 1], [8, 8, 3]], 1, [], True),  # the tail of 19
        ([[4, 4, 1], [4, 4, 1], [8, 8, 3]], 1, [0, 1], False),
        ([[4, 4], [4, 4], [8, 8, 1]], 1, [], True),  # but one process reads it
        ([[4, 4], [4, 4], [8, 8, 1]], 1, [0, 1], False),
        ([[4, 4, 3], [4, 4], [8, 8, 6]], 3, [1], True),  # only one rank drops it
        ([[4, 4], [4, 4], [5, 5, 5, 5]], 3, [], False),  # both drop a part of a step
        ([[4, 4], [4, 4], [8, 8, 8]], 8, [0, 1], True),  # more than a step
    ],
)
def test_ranks_may_only_leave_out_samples_for_a_reason(
    runs, sizes, missing, declares, is_wrong
):
    ranks = runs["parallel"]["ranks"] + runs["serial"]["ranks"]
    for number, (rank, own_sizes) in enumerate(zip(ranks, sizes)):
        facts = rank["end"]["loaders"][0]
        facts["epoch"] = [[0] * size for size in own_sizes]
        facts["drop_last"] = number in declares
        for step in rank["steps"]:
            step["reads"][0]["samples"] = [0] * 4
    left_out = samples.leaves_out_too_many(
        missing, runs["parallel"], runs["serial"], make_joint_batches(runs)
    )
    assert left_out is is_wrong


def test_micro_batches_have_unequal_shares_if_a_batch_is_incomplete(runs):
    parallel = runs["parallel"]
    for rank in parallel["ranks"]:
        rank["end"]["loaders"][0]["epoch"] = [[0] * 4, [0] * 2]
        for step in rank["steps"]:
            step["micro"] *= 2
    assert samples.has_unequal_shares(parallel)


@pytest.mark.parametrize(
    ("epochs", "is_unequal"),
    [
        ([[4, 2], [4, 2]], False),
        ([[4, 2], [4, 1]], True),
        ([[4, 2], [4]], True),
        ([[4, 2], []], False),  # unknown
    ],
)
def test_ranks_have_unequal_shares_if_a_batch_has_another_size(
    runs, epochs, is_unequal
):
    for rank, sizes in zip(runs["parallel"]["ranks"], epochs):
        rank["end"]["loaders"][0]["epoch"] = [[0] * size for size in sizes]
    assert samples.has_unequal_shares(runs["parallel"]) is is_unequal


def test_shards_with_their_own_numbers_are_recognised_by_content(runs):
    serial = runs["serial"]["ranks"][0]["end"]["loaders"][0]
    serial["digests"] = [f"sample {i}" for i in range(12)]
    for rank, record in enumerate(runs["parallel"]["ranks"]):
        own = [6 * rank + i for i in range(6)]
        facts = record["end"]["loaders"][0]
        facts.update(size=6, digests=[f"sample {i}" for i in own])
        facts["epoch"] = [[0, 1], [2, 3], [4, 5]]
        for number, step in enumerate(record["steps"]):
            step["reads"][0]["samples"] = [2 * number, 2 * number + 1]
    found = make_joint_batches(runs)
    assert found.is_known
    ((_, first),) = found.steps()[0]
    assert first == [0, 1, 6, 7]
    counts = samples.missing_and_repeated(runs["parallel"], runs["serial"], found)
    assert counts == (0, 0, 12)


def test_another_loader_than_the_one_of_one_process_is_unknown(runs):
    for step in runs["serial"]["ranks"][0]["steps"]:
        step["reads"][0]["loader"] = 1
    runs["serial"]["ranks"][0]["end"]["loaders"] *= 2
    assert not make_joint_batches(runs).is_known


def test_a_batch_without_numbers_is_unknown(runs):
    runs["parallel"]["ranks"][1]["steps"][0]["reads"][0]["samples"] = None
    assert not make_joint_batches(runs).is_known


@pytest.mark.parametrize(
    ("orders", "repeats"),
    [
        ([[3, 1, 2], [3, 1, 2]], True),
        ([[3, 1, 2], [2, 3, 1]], False),
        ([[1, 2, 3], [1, 2, 3]], False),
        ([[3, 1, 2]], None),
    ],
)
def test_a_shuffled_order_that_repeats_is_found(orders, repeats):
    steps = []
    for epoch, order in enumerate(orders):
        read = {"loader": 0, "epoch": epoch, "samples": order}
        steps.append({"reads": [read]})
    assert samples.repeats_order({"steps": steps}, 0) is repeats


@pytest.mark.parametrize(
    ("accesses", "repeats"),
    [
        ([[5, 2], [7, 1], [5, 2], [7, 1]], True),
        ([[5, 2], [7, 1], [1, 5], [2, 7]], False),
        ([[1, 2], [3, 4], [1, 2], [3, 4]], False),
        ([[5, 2], [7, 1]], None),
    ],
)
def test_an_order_that_a_script_makes_itself_is_compared(accesses, repeats):
    steps = [{"accesses": batch} for batch in accesses]
    assert samples.repeats_accesses({"steps": steps}) is repeats


def test_rows_are_equal_if_one_lacks_the_last_number():
    def step(*rows):
        return [{"micro": [{"rows": [list(row) for row in rows]}]}]

    full = ("abc", "ab")
    cut = ("ab", "a")
    first, second = samples.rows_of_steps(step(full), step(cut))
    assert first == second
    other, _ = samples.rows_of_steps(step(("xyz", "xy")), step(cut))
    assert other != second


def reading(*batches):
    steps = []
    for batch in batches:
        rows = [[f"{number}", ""] for number in batch]
        steps.append({"micro": [{"rows": rows}]})
    return {"steps": steps}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([[0, 2], [4, 6]], [[1, 3], [5, 7]], (0, 6)),
        ([[0, 3], [6, 9]], [[1, 4], [7, 10]], (2, 6)),  # 2 and 5; 8 may come
        ([[3, 0], [6, 9]], [[1, 4], [7, 10]], (0, 0)),  # in another order
        ([[0, 1], [2, 3]], [[90, 91], [92, 93]], (0, 0)),  # a far part of the stream
    ],
)
def test_samples_of_a_stream_are_skipped_if_all_ranks_have_passed_them(
    first, second, expected
):
    serial = reading([0, 1, 2, 3], [4, 5, 6, 7])
    ranks = [reading(*first), reading(*second)]
    assert samples.skipped(ranks, serial) == expected


def test_a_batch_that_is_used_twice_is_one_micro_batch():
    same = [{"rows": ["a"]}, {"rows": ["a"]}, {"rows": []}]
    assert samples.num_micro_batches({"micro": same}) == 1
    assert samples.num_micro_batches({"micro": [{"rows": ["a"]}, {"rows": ["b"]}]}) == 2
    assert samples.num_micro_batches({"micro": [{}, {}]}) == 2

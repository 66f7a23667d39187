"""Real processes that are killed, frozen, or fail: every other rank reports the cause."""

import json
import signal
import time

import pytest

from tests.cluster.ranks import PATIENCE_S, processes

SILENCE_S = 2.0


def meet_once(ranks):
    """Pass a barrier, after which the silence of a rank is measured."""
    for each in ranks:
        each.do("barrier", "built")
    assert [each.hear() for each in ranks] == ["done barrier"] * len(ranks)


def test_a_killed_rank_is_named_to_all_others_at_once():
    with processes(3) as (first, second, third):
        first.do("barrier", "step")  # It is interrupted there.
        second.do("report", "half")
        assert second.hear() == "done report"
        third.send_signal(signal.SIGKILL)
        line = f"rank 2 (host h2, process {third.pid}) ended: killed or crashed"
        assert {first.hear(), first.hear()} == {f"error {line}", f"failed {line}"}
        assert second.hear() == f"failed {line}"
        second.do("report", "what was measured until then")
        second.do("leave")
        assert [second.hear(), second.hear()] == ["done report", "done leave"]
        first.do("leave")
        assert first.hear() == "done leave"
        first.do("reports")
        assert json.loads(first.hear()) == {
            "1": ["half", "what was measured until then"]
        }


@pytest.mark.parametrize("number, size", [(1, 3), (0, 2)])
def test_a_frozen_rank_is_named_and_learns_it_when_it_continues(number, size):
    with processes(size, heartbeat_s=SILENCE_S) as ranks:
        meet_once(ranks)
        frozen = ranks[number]
        others = [*ranks[:number], *ranks[number + 1 :]]
        frozen.send_signal(signal.SIGSTOP)
        cause = f"has not answered for {SILENCE_S:g} s: it is frozen, or the network to it is down"
        line = f"failed rank {number} (host h{number}, process {frozen.pid}) {cause}"
        assert [each.hear() for each in others] == [line] * (size - 1)
        frozen.send_signal(signal.SIGCONT)
        assert frozen.hear() == line


def test_before_the_first_barrier_silence_counts_as_loss_only_after_the_timeout():
    """Allow silence while a rank loads a large library that holds Python's lock."""
    with processes(2, heartbeat_s=0.2, timeout_s=PATIENCE_S) as ranks:
        ranks[1].send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        ranks[1].send_signal(signal.SIGCONT)
        for each in ranks:
            each.do("report", "still there")
        assert [each.hear() for each in ranks] == ["done report"] * 2
    with processes(2, heartbeat_s=0.2, timeout_s=SILENCE_S) as ranks:
        ranks[1].send_signal(signal.SIGSTOP)
        assert "has not answered for 2 s" in ranks[0].hear()


@pytest.mark.parametrize("number", [0, 1])
def test_an_error_of_a_rank_reaches_all_others(number):
    with processes(3) as ranks:
        ranks[number].do("abort", "no space left on device")
        line = f"failed rank {number} (host h{number}, process {ranks[number].pid}) ended: no space left on device"
        others = [rank for rank in ranks if rank is not ranks[number]]
        assert [rank.hear() for rank in others] == [line] * 2
        assert {ranks[number].hear(), ranks[number].hear()} == {line, "done abort"}


def test_a_loss_that_the_run_survives_opens_barriers_without_this_rank():
    with processes(4, survives=["worker"]) as ranks:
        for each in ranks[:2]:
            each.do("barrier", "step")
        ranks[3].send_signal(signal.SIGKILL)
        ranks[2].do("barrier", "step")
        assert [each.hear() for each in ranks[:3]] == ["done barrier"] * 3
        line = f"rank 3 (host h3, process {ranks[3].pid}) ended: killed or crashed"
        ranks[0].do("lost")
        ranks[2].do("lost")
        assert [json.loads(ranks[0].hear()), json.loads(ranks[2].hear())] == [
            [[3, line]]
        ] * 2
        ranks[2].do("abort", "no memory")  # an error of such a rank ends only itself
        line = f"failed rank 2 (host h2, process {ranks[2].pid}) ended: no memory"
        assert {ranks[2].hear(), ranks[2].hear()} == {line, "done abort"}
        for each in ranks[:2]:
            each.do("leave")
        assert [each.hear() for each in ranks[:2]] == ["done leave"] * 2


def test_the_loss_of_rank_0_always_ends_the_run():
    with processes(3, survives=["worker"]) as ranks:
        ranks[0].send_signal(signal.SIGKILL)
        line = (
            f"failed rank 0 (host h0, process {ranks[0].pid}) ended: killed or crashed"
        )
        assert [rank.hear() for rank in ranks[1:]] == [line, line]


def test_a_process_that_ends_without_leaving_has_crashed_and_one_that_leaves_has_not():
    with processes(3) as ranks:
        ranks[1].do("leave")
        assert ranks[1].hear() == "done leave"
        ranks[1].kill()
        ranks[2].do("report", "alive")
        ranks[2].do("leave")
        assert [ranks[2].hear(), ranks[2].hear()] == ["done report", "done leave"]
        ranks[0].do("leave")
        assert ranks[0].hear() == "done leave"

"""The parts of a traced step equal an oracle's count of milliseconds, and a Chrome trace."""

import gzip
import json
import math
import random

import pytest

from rnn_scaling.analysis.steps.straggler import name_straggler
from rnn_scaling.inspection import chrome, phases
from rnn_scaling.inspection.operators import (
    COPY,
    DEVICE,
    HOST,
    WAIT,
    KernelEvent,
    TracedStep,
)
from rnn_scaling.records.decoding import build
from rnn_scaling.records.step_parts import (
    BACKWARD,
    EXCHANGE,
    FORWARD,
    INPUT,
    OTHER,
    PARTS,
    PHASES,
    TIMELINE_BINS,
    UPDATE,
    TimedStep,
)

MS = 1_000_000
COMPUTE = (FORWARD, BACKWARD, UPDATE, INPUT, OTHER)


def kernel(
    tower,
    phase,
    start_ms,
    end_ms,
    kind=HOST,
    op="MatMul",
    is_launch_only=False,
    lane="1",
):
    return KernelEvent(
        f"{phase}/x",
        op,
        "/device:CPU:0",
        tower,
        phase,
        start_ms * MS,
        end_ms * MS,
        lane,
        kind,
        is_launch_only,
    )


def step(*kernels, end_ms=10, start_ms=0):
    return TracedStep(start_ms * MS, end_ms * MS, kernels)


# The oracle counts milliseconds; events start and end on whole ones.
COLLECTIVES = ("CollectiveReduceV2", "_NcclBroadcastSend")
RECEIVES = ("_Recv", "_HostRecv")


def find_activity(kernels, at):
    """Return each (tower, phase) that is active in a millisecond."""
    found = set()
    for k in kernels:
        if not k.start_ns <= at * MS < k.end_ns or k.is_launch_only:
            continue
        if k.kind != WAIT:
            found.add((None if k.phase == EXCHANGE else k.tower, k.phase))
        elif k.phase == EXCHANGE and k.type in COLLECTIVES:
            found.add((None, EXCHANGE))
        elif k.phase == INPUT and k.type not in RECEIVES:
            found.add((k.tower, "starved"))
    return found


def find_part(active, tower):
    for phase in COMPUTE:
        if (tower, phase) in active:
            return phase
    for phase in (UPDATE, INPUT, OTHER):
        if (None, phase) in active:
            return f"shared_{phase}"
    if (None, EXCHANGE) in active:
        return "exchange_exposed"
    if {(tower, "starved"), (None, "starved")} & active:
        return "waits_for_input"
    for other, phase in active:
        if other not in (None, tower) and phase in COMPUTE:
            return "waits_for_towers"
    return "idle"


def random_step(chance):
    """Return a step of 1 to 60 ms with up to 40 kernels; some end after it."""
    start = chance.randrange(50)
    length = chance.randint(1, 60)
    num_towers = chance.randint(1, 4)
    kernels = []
    for _ in range(chance.randint(0, 40)):
        kind = chance.choice((HOST, HOST, DEVICE, COPY, WAIT))
        op = chance.choice((*COLLECTIVES, *RECEIVES, "IteratorGetNext"))
        begin = start + chance.randint(-5, length)
        kernels.append(
            kernel(
                chance.choice((None, *range(num_towers))),
                chance.choice(PHASES),
                begin,
                begin + chance.choice((0, 1, 2, 5, 20)),
                kind,
                op if kind == WAIT else "MatMul",
                is_launch_only=chance.random() < 0.1,
            )
        )
    return step(*kernels, start_ms=start, end_ms=start + length), num_towers


@pytest.mark.parametrize("seed", range(16))
def test_the_parts_equal_the_oracles(seed):
    traced, num_towers = random_step(random.Random(seed))
    found = phases.split(traced, num_towers)
    grid = [
        find_activity(traced.kernels, at)
        for at in range(traced.start_ns // MS, traced.end_ns // MS)
    ]

    def times(who, phase):
        """Return the milliseconds in which a tower is in a phase."""
        return [at for at, active in enumerate(grid) if (who, phase) in active]

    computing = [
        {who for who, phase in active if who is not None and phase in COMPUTE}
        for active in grid
    ]
    exchanging = times(None, EXCHANGE)
    for tower in found["towers"]:
        number = tower["tower"]
        parts = [find_part(active, number) for active in grid]
        assert tower["parts"] == {name: seconds(parts.count(name)) for name in PARTS}
        whole = math.fsum(tower["parts"].values())
        assert whole == pytest.approx(found["seconds"], rel=1e-12)
        exchange = tower["exchange"]
        assert exchange["exposed"] == tower["parts"]["exchange_exposed"]
        assert exchange["busy"] == seconds(len(exchanging))
        hidden = [at for at in exchanging if number in computing[at]]
        assert exchange["hidden"] == seconds(len(hidden))
        hidden_or_not = ("hidden", "beside_shared", "exposed")
        whole = math.fsum(exchange[name] for name in hidden_or_not)
        assert whole == pytest.approx(exchange["busy"])
        for phase in COMPUTE:
            assert tower["busy"][phase] == seconds(len(times(number, phase)))
        backward = times(number, BACKWARD)
        last = seconds(backward[-1] + 1) if backward else None
        forward = times(number, FORWARD)
        first = seconds(forward[0]) if forward else None
        assert tower["first_s"] == first
        assert tower["arrival_s"] == last
    for phase in (UPDATE, INPUT, OTHER, EXCHANGE):
        assert found["shared"]["busy"][phase] == seconds(len(times(None, phase)))
    concurrency = None
    if any(computing):
        concurrency = pytest.approx(
            sum(map(len, computing)) / sum(map(bool, computing))
        )
    assert found["concurrency"] == concurrency
    check_stretches(traced, num_towers, found)


def seconds(milliseconds):
    return pytest.approx(milliseconds / 1000)


def check_stretches(traced, num_towers, found):
    """Check that the stretches are contiguous and sum to the parts."""
    for tower, stretches in zip(
        found["towers"], phases.list_segments(traced, num_towers)
    ):
        parts, starts, ends = zip(*stretches)
        assert starts[0] == traced.start_ns and ends[-1] == traced.end_ns
        assert starts[1:] == ends[:-1]
        assert all(a != b for a, b in zip(parts, parts[1:]))
        sums = dict.fromkeys(PARTS, 0)
        for part, start, end in stretches:
            sums[part] += end - start
        assert {name: ns / 1e9 for name, ns in sums.items()} == pytest.approx(
            tower["parts"]
        )


def test_the_timeline_has_the_part_that_takes_most_of_each_bin():
    found = phases.split(
        step(kernel(0, FORWARD, 0, 5), kernel(None, EXCHANGE, 5, 6)), 1
    )
    tenth = TIMELINE_BINS // 10
    end = "x" * tenth + "." * 4 * tenth
    assert found["timeline"]["towers"] == ["f" * 5 * tenth + end]
    assert found["timeline"]["exchange"] == "." * 5 * tenth + end


@pytest.mark.parametrize(
    "traced, num_towers", [(step(end_ms=0), 1), (step(kernel(2, FORWARD, 0, 1)), 2)]
)
def test_an_impossible_step_is_refused(traced, num_towers):
    with pytest.raises(ValueError):
        phases.split(traced, num_towers)


def towers_step(*towers):
    """Split a step of 100 ms with towers of (first ms, arrival ms, compute ms)."""
    kernels = []
    for number, (first, arrival, compute) in enumerate(towers):
        kernels.append(kernel(number, FORWARD, first, first + 1))
        kernels.append(kernel(number, BACKWARD, arrival - compute + 1, arrival))
    return phases.split(step(*kernels, end_ms=100), len(towers))


LATE = [towers_step((0, 50 + i, 48), (0, 70 + i, 66 + i)) for i in range(4)]


def test_the_straggler_is_named_from_its_own_compute():
    tower, why = name_straggler(
        [build(TimedStep, each) for each in LATE], is_synchronous=True
    )
    assert tower == 1
    assert why.kind == "straggler"
    assert why.values["late"] == "20.00 (sd 0.00)"
    assert why.values["late_share"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "steps, synchronous, reason",
    [
        ([], True, "no-steps"),
        ([towers_step((0, 50, 40))] * 3, True, "one-tower"),
        (LATE, False, "no-exchange"),
        (LATE[:2], True, "few-steps"),
        ([towers_step((0, 10, 5), (0, 30, 25))] * 3, True, "idle"),
        ([towers_step((0, 40, 40), (50, 90, 40))] * 3, True, "serial"),
        ([*LATE, towers_step((0, 70, 66), (0, 50, 48))], True, "changes"),
        (
            [towers_step((0, 50, 48), (0, at, at - 2)) for at in (51, 90, 52)],
            True,
            "within-scatter",
        ),
        ([towers_step((0, 50, 48), (20, 70, 48))] * 3, True, "starts-late"),
        ([towers_step((0, 50, 48), (0, 70, 48))] * 3, True, "held-up"),
        (
            [
                towers_step((0, 50, 48), (0, 50 + late, 48 + late))
                for late in (0.5, 0.5, 6, 0.5, 0.5, 6) * 3
            ],
            True,
            "scatters",
        ),
        ([towers_step((0, 70, 60), (0, 70.5, 65))] * 3, True, "negligible"),
    ],
)
def test_without_evidence_no_straggler_is_named(steps, synchronous, reason):
    tower, why = name_straggler([build(TimedStep, each) for each in steps], synchronous)
    assert tower is None
    assert why.kind == f"straggler-{reason}"


def chrome_step(start):
    """Return a step of two towers with an exchange and two waits that overlap."""
    waits = [
        kernel(None, EXCHANGE, start + 5, end, WAIT, "CollectiveReduceV2", lane="")
        for end in (start + 9, start + 8)
    ]
    return step(
        kernel(0, FORWARD, start, start + 4, lane="a"),
        kernel(1, FORWARD, start + 4, start + 6, lane="a"),
        kernel(None, EXCHANGE, start + 6, start + 7, lane="b"),
        *waits,
        start_ms=start,
        end_ms=start + 10,
    )


CHROME_STEPS = [chrome_step(start) for start in (5, 20)]


def test_a_chrome_trace_has_the_right_format():
    found = json.loads(gzip.decompress(chrome.render(CHROME_STEPS, 2)))
    named = set()
    opened = {}
    spans = {}
    for event in found["traceEvents"]:
        assert event["ph"] in "XbeM"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        assert event["ts"] >= 0 and event["name"]
        if event["ph"] == "X":
            assert event["dur"] > 0
            span = (event["ts"], event["ts"] + event["dur"])
            spans.setdefault((event["pid"], event["tid"]), []).append(span)
        elif event["ph"] == "b":
            assert opened.setdefault(event["id2"]["local"], event) is event
        else:
            start = opened.pop(event["id2"]["local"])
            assert start["ts"] <= event["ts"]
            assert all(start[key] == event[key] for key in ("cat", "name", "pid"))
    assert not opened
    # Every track has a name. Its events do not overlap, because viewers drop such events.
    for process, track in spans:
        assert ("thread_name", process, track) in named
        assert ("process_name", process, process) in named
        ordered = sorted(spans[process, track])
        assert all(a[1] <= b[0] for a, b in zip(ordered, ordered[1:]))


def test_a_chrome_trace_shows_the_parts_of_the_split():
    found = [e for e in chrome.make_events(CHROME_STEPS, 2) if e.get("cat") == "part"]
    for number, traced in enumerate(CHROME_STEPS):
        split = phases.split(traced, 2)
        for tower in split["towers"]:
            process = chrome.PROCESS_SPACING * (2 + tower["tower"])
            sums = {chrome.TITLES.get(name, name): 0.0 for name in tower["parts"]}
            for event in found:
                if (event["pid"], event["args"]["step"]) == (process, number):
                    sums[event["name"]] += event["dur"] / 1e6
            expected = {
                chrome.TITLES.get(name, name): s for name, s in tower["parts"].items()
            }
            assert sums == pytest.approx(expected)
    assert min(e["ts"] for e in found) == 0 and max(e["ts"] for e in found) < 25_000

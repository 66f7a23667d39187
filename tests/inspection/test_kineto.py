"""Traces of the PyTorch profiler: parts that sum to the step, clocks, and bad files.

tests/golden/kineto was made by `benchmarks/trace_ddp.py FOLDER --delay_s=0.1 --steps=4`
on two processes of PyTorch 2.13; arguments and other kinds of events were cut.
"""

import csv
import functools
import gzip
import io
import json
import random

import pytest

from rnn_scaling.commands import inspect
from rnn_scaling.inspection.kineto import event_stream, step_split
from rnn_scaling.inspection.kineto.alignment import find_last_arrival
from rnn_scaling.inspection.kineto.job import make_statements, read_job
from rnn_scaling.inspection.kineto.rank_trace import Collective
from tests.support.paths import ROOT

GOLDEN = sorted((ROOT / "tests/golden/kineto").iterdir())
DELAY_S = 0.1
MAIN, LOADER, RUN_LOOP = 1, 2, 3  # threads


def event(name, category, start_us, end_us, thread=MAIN, **args):
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 1,
        "tid": thread,
        "ts": start_us,
        "dur": end_us - start_us,
        "args": args,
    }


def step(number, start_us, end_us):
    return event(f"ProfilerStep#{number}", "user_annotation", start_us, end_us)


def operator(start_us, end_us, name="aten::mm"):
    return event(name, "cpu_op", start_us, end_us)


def gloo(start_us, end_us, name="gloo:all_reduce"):
    return event(name, "user_annotation", start_us, end_us, RUN_LOOP)


def kernel(start_us, end_us, name="gemm"):
    return event(name, "kernel", start_us, end_us)


def make_steps(make_events, num_steps=3, clock_us=0):
    """Return steps of 1,000 us with the events that begin at their start."""
    events = []
    for number in range(num_steps):
        start = 1000 * number + clock_us
        events += [step(number, start, start + 1000), *make_events(start)]
    return events


def write(folder, rank, events, world_size=2, header=None, name=None):
    """Write a trace as PyTorch does; return its path."""
    content = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": rank, "world_size": world_size},
        "traceEvents": events,
        **(header or {}),
    }
    path = folder / (name or f"rank{rank}.json")
    path.write_text(json.dumps(content, indent=2))
    return path


def make_job(folder, *events_of_ranks):
    """Write a trace per rank; return the job that is read from them."""
    paths = []
    for rank, events in enumerate(events_of_ranks):
        paths.append(write(folder, rank, events, world_size=len(events_of_ranks)))
    return read_job(paths)


def kinds(job):
    return [statement.kind for statement in make_statements(job)]


def find_part_us(job, rank, part):
    return [round(split.parts[part] * 1e6) for split in job.splits[rank]]


def test_the_other_rank_waits_for_an_injected_delay():
    job = read_job(GOLDEN)
    assert job.steps == [3, 4, 5, 6]
    assert job.average_part(step_split.WAITS, 0).mean == pytest.approx(
        DELAY_S, rel=0.03
    )
    assert job.average_part(step_split.WAITS, 1).mean == 0
    late, cause, *_ = make_statements(job)
    assert late.kind == "kineto-late"
    assert late.values["ranks"] == ["1"]
    assert cause.kind == "kineto-late-host"
    assert cause.values["longer"] == pytest.approx(1000 * DELAY_S, rel=0.03)
    for steps in job.splits.values():
        for split in steps:
            assert sum(split.parts.values()) == pytest.approx(split.seconds, abs=1e-9)


def test_clocks_of_machines_may_differ(tmp_path):
    job = read_job(GOLDEN)
    content = json.loads(gzip.decompress(GOLDEN[1].read_bytes()))
    content["baseTimeNanoseconds"] -= 3_600 * 10**9
    other = tmp_path / "rank1.json"
    other.write_text(json.dumps(content))
    shifted = read_job([GOLDEN[0], other])
    offset_ns = shifted.alignment.clocks[1].offset_ns
    assert offset_ns == job.alignment.clocks[1].offset_ns - 3_600 * 10**9
    for rank in (0, 1):
        assert shifted.splits[rank] == job.splits[rank]


def test_parts_of_a_cpu(tmp_path):
    # Rank 1 arrives 300 us later; its clock is 7 us ahead.
    def first(start):
        loader = "enumerate(DataLoader)#_Iter.__next__"
        return [
            event(loader, "user_annotation", start + 10, start + 60),
            operator(start + 100, start + 300, "aten::linear"),
            operator(start + 120, start + 280),
            # The exchange begins during compute; an operator only waits for it.
            gloo(start + 200, start + 700),
            operator(start + 250, start + 260, "c10d::allreduce_"),
            operator(start + 600, start + 700, "_c10d_functional::wait_tensor"),
        ]

    def second(start):
        return [operator(start, start + 500), gloo(start + 500, start + 700)]

    job = make_job(tmp_path, make_steps(first), make_steps(second, clock_us=7))
    assert job.alignment.clocks[1].offset_ns == 7000
    expected = {
        "compute": 190,
        "copies": 0,
        "transfer": 200,
        "waits_for_ranks": 210,
        "exchange_not_split": 0,
        "waits_for_input": 50,
        "host": 350,
    }
    for part, us in expected.items():
        assert find_part_us(job, 0, part) == [us] * 3, part
    assert find_part_us(job, 1, "waits_for_ranks") == [0] * 3
    assert kinds(job)[0] == "kineto-late"


def test_parts_of_a_gpu(tmp_path):
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

    def events(late, start):
        return [
            # Operators of the host only launch kernels.
            operator(start, start + 900),
            event("Memcpy HtoD", "gpu_memcpy", start + 50, start + 120),
            kernel(start + 100, start + 300 + late),
            kernel(start + 350 + late, start + 600, nccl),
            kernel(start + 400 + late, start + 450 + late),
            event("ProfilerStep#1", "gpu_user_annotation", start, start + 900),
        ]

    ranks = [make_steps(functools.partial(events, late)) for late in (0, 100)]
    job = make_job(tmp_path, *ranks)
    assert job.traces[0].uses_gpu
    assert find_part_us(job, 0, "copies") == [50] * 3
    # Rank 1 arrives at 450; from 400 to 450, rank 0 computes.
    assert find_part_us(job, 0, "waits_for_ranks") == [50] * 3
    assert find_part_us(job, 0, "transfer") == [150] * 3
    assert find_part_us(job, 1, "compute") == [350] * 3
    assert find_part_us(job, 0, "host") == [1000 - 50 - 250 - 50 - 150] * 3


def test_the_root_of_a_broadcast_may_leave_early(tmp_path):
    def events(first, left, start):
        broadcast = gloo(start + first, start + left, "gloo:broadcast")
        return [broadcast, gloo(start + 800, start + 900)]

    root = make_steps(functools.partial(events, 100, 150))
    job = make_job(tmp_path, root, make_steps(functools.partial(events, 500, 600)))
    assert find_part_us(job, 0, "waits_for_ranks") == [0] * 3
    assert find_part_us(job, 1, "transfer") == [200] * 3
    assert kinds(job)[0] == "kineto-balanced"


def test_ranks_of_different_groups_are_aligned_through_others(tmp_path):
    groups = {0: ["left"], 1: ["left", "right"], 2: ["right"]}
    for rank, names in groups.items():
        ahead = 5000 * rank
        events = []
        for number in range(3):
            start = ahead + 1000 * number
            events += [step(number, start, start + 1000), kernel(start, start + 10)]
            for name in names:
                moved = start + (100 if name == "left" else 500)
                nccl = kernel(moved + 10 * rank, moved + 90, "ncclDevKernel_AllGather")
                nccl["args"] = {"Process Group Name": name}
                events.append(nccl)
        write(tmp_path, rank, events, world_size=3)
    job = read_job(sorted(tmp_path.iterdir()))
    offsets = [clock.offset_ns for clock in job.alignment.clocks.values()]
    assert offsets == [0, 5_000_000, 10_000_000]
    assert find_part_us(job, 1, "waits_for_ranks") == [10] * 3


def verdict(folder, arrivals):
    """Return the verdict about ranks with these arrivals in us, [ranks][steps]."""

    def events(arrivals_of_rank, start):
        # A quick call shows the clocks.
        arrival = arrivals_of_rank[start // 1000]
        return [gloo(start, start + 1), gloo(start + arrival, start + 900)]

    ranks = [make_steps(functools.partial(events, own), 4) for own in arrivals]
    return make_statements(make_job(folder, *ranks))[0]


@pytest.mark.parametrize(
    "arrivals, kind, late",
    [
        ([[100] * 4, [101] * 4, [102] * 4], "kineto-balanced", None),
        ([[100, 500, 100, 500], [500, 100, 500, 100]], "kineto-mixed", None),
        ([[100] * 4, [500] * 4, [120] * 4, [490] * 4], "kineto-late", ["1", "3"]),
        ([[100] * 4, [100, 900, 100, 100]], "kineto-mixed", None),
    ],
)
def test_late_ranks_are_named_if_they_are_late_in_all_steps(
    tmp_path, arrivals, kind, late
):
    found = verdict(tmp_path, arrivals)
    assert found.kind == kind
    assert found.values.get("ranks") == late


def make_job_late_by_turns(folder, first_steps, uses_gpu=False):
    """Return a job of two ranks whose traces start at these steps.

    The ranks are late by 100 us in turn; the clock of rank 1 is 7 us ahead.
    """
    name = "ncclDevKernel_AllReduce" if uses_gpu else "gloo:all_reduce"
    for rank, first in enumerate(first_steps):
        events = []
        for number in range(first, 30):
            start = 1000 * number + 7 * rank
            late = 100 if number % 2 == rank else 0
            events.append(step(number, start, start + 1000))
            make_call = kernel if uses_gpu else gloo
            events.append(make_call(start + 500 + late, start + 700, name))
            if uses_gpu:
                events.append(kernel(start, start + 400))
        write(folder, rank, events)
    return read_job(sorted(folder.iterdir()))


@pytest.mark.parametrize("first_steps", [(0, 0), (0, 1), (3, 1)])
def test_calls_of_the_same_step_belong_together(tmp_path, first_steps):
    job = make_job_late_by_turns(tmp_path, first_steps)
    assert job.alignment.clocks[1].offset_ns == 7000
    assert job.alignment.num_unmatched == 0
    for rank in (0, 1):
        expected = [0 if number % 2 == rank else 100 for number in job.steps]
        assert find_part_us(job, rank, "waits_for_ranks") == expected
    assert kinds(job)[0] == "kineto-mixed"


def test_gpus_whose_traces_start_at_different_steps_are_not_judged(tmp_path):
    found = kinds(make_job_late_by_turns(tmp_path, (0, 1), uses_gpu=True))
    assert found[:2] == ["kineto-inconclusive", "kineto-first-steps"]


def test_waiting_for_a_rank_that_waits_counts_for_the_late_rank(tmp_path):
    # Rank 1 is late. Rank 0 waits for it in a broadcast, and rank 2 waits for rank 0.
    def events(first, left, second, start):
        broadcast = gloo(start + first, start + left, "gloo:broadcast")
        return [broadcast, gloo(start + second, start + 600)]

    times = [(100, 500, 520), (500, 501, 505), (100, 110, 120)]
    ranks = [make_steps(functools.partial(events, *own), 4) for own in times]
    late = make_statements(make_job(tmp_path, *ranks))[0]
    assert late.kind == "kineto-late"
    assert late.values["ranks"] == ["1"]


def test_waiting_ends_with_the_collective():
    own = Collective(0, 50, "", "gloo:all_reduce")
    # The estimated clock puts the arrival of rank 1 after the end on rank 0.
    call = {0: own, 1: own._replace(start_ns=60, end_ns=70)}
    assert [find_last_arrival(call, rank) for rank in (0, 1)] == [50, 60]


def test_parts_agree_with_counting_every_microsecond(tmp_path):
    generator = random.Random(0)
    ranks = []
    for _ in range(2):
        events = [step(number, 100 * number, 100 * number + 100) for number in range(3)]
        for _ in range(12):
            start = generator.randrange(300)
            events.append(operator(start, start + generator.randrange(12)))
        for number in range(3):
            start = 100 * number + generator.randrange(60)
            events.append(gloo(start, 100 * number + 90))
        ranks.append(events)
    job = make_job(tmp_path, *ranks)
    for rank in (0, 1):
        names = {"aten::mm": set(), "gloo:all_reduce": set()}
        for entry in ranks[rank][3:]:
            span = range(entry["ts"], entry["ts"] + entry["dur"])
            names[entry["name"]].update(span)
        for number, split in enumerate(job.splits[rank]):
            window = set(range(100 * number, 100 * number + 100))
            computes = names["aten::mm"] & window
            exchanges = names["gloo:all_reduce"] & window
            assert round(split.parts["compute"] * 1e6) == len(computes)
            assert round(split.exchange_s * 1e6) == len(exchanges)
            assert round(split.exposed_s * 1e6) == len(exchanges - computes)


def make_steps_with_calls(num_steps=3, shift=0, calls=1):
    """Return steps with short calls; each step's calls are later by `shift` us."""

    def events(start):
        starts = [start + 100 * call + shift * start // 1000 for call in range(calls)]
        return [gloo(moved + 400, moved + 450) for moved in starts]

    return make_steps(events, num_steps)


@pytest.mark.parametrize(
    "ranks, doubt",
    [
        ([make_steps_with_calls(2)] * 2, "few-steps"),
        ([make_steps_with_calls()], "ranks-missing"),
        ([make_steps_with_calls(), make_steps_with_calls(shift=200)], "clocks"),
        ([make_steps_with_calls(calls=0)] * 2, "clocks"),
        ([make_steps_with_calls(calls=2), make_steps_with_calls()], "unmatched"),
    ],
)
def test_inconclusive_traces(tmp_path, ranks, doubt):
    paths = [write(tmp_path, rank, events) for rank, events in enumerate(ranks)]
    first, *doubts = kinds(read_job(paths))
    assert first == "kineto-inconclusive" and f"kineto-{doubt}" in doubts


def test_calls_of_nccl_without_kernels_are_named(tmp_path):
    nccl = event("nccl:all_reduce", "user_annotation", 0, 5)
    job = make_job(tmp_path, [*make_steps(lambda start: []), nccl])
    assert "kineto-no-kernels" in kinds(job)


def test_one_rank_has_no_verdict_about_waiting(tmp_path):
    job = make_job(tmp_path, make_steps(lambda start: []))
    assert kinds(job) == ["kineto-one-rank"]


def list_bad_files(folder):
    """Return the sources of traces that cannot be used."""
    steps = [step(1, 0, 10)]
    whole = gzip.compress(json.dumps({"traceEvents": steps * 999}).encode())
    contents = {
        "empty.json.gz": b"",
        "cut.json.gz": whole[: len(whole) // 2],
        "cut.pt.trace.json": b'{"traceEvents": [{"ph": "X", "na',
        "broken.pt.trace.json": b'{"traceEvents": [{"ph": } ]}',
        "other.pt.trace.json": b'{"a": 1}',
        "list.pt.trace.json": b"[1, 2]",
        "text.json.gz": gzip.compress(b"hello"),
        "deep.pt.trace.json": b'{"traceEvents": ' + b"[" * 100_000,
        "steps.json": b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1}]}',
        "time.json": json.dumps(
            {"traceEvents": [{**steps[0], "ts": float("nan")}]}
        ).encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        yield [folder / name]
    first = write(folder, 0, steps)
    yield [first, first]
    yield [first, write(folder, 1, steps, world_size=4)]
    yield [first, write(folder, 1, [step(9, 0, 10)], name="other1.json")]
    nameless = {"distributedInfo": None}
    yield [first, write(folder, 1, steps, header=nameless, name="a.json")]
    yield [first, folder / "absent.json.gz"]


def test_bad_files_give_one_line_each(tmp_path, capsys):
    num_files = 0
    for sources in list_bad_files(tmp_path):
        assert inspect.main([str(source) for source in sources]) == 1, sources
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: "), sources
        assert captured.err.count("\n") == 1, sources
        num_files += 1
    assert num_files == 15


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_files_are_read_in_pieces(chunk, monkeypatch):
    whole = read_job(GOLDEN)
    monkeypatch.setattr(event_stream, "_CHUNK_CHARS", chunk)
    pieces = read_job(GOLDEN if chunk > 1 else GOLDEN[:1])
    assert pieces.traces[0].steps == whole.traces[0].steps
    assert pieces.traces[0].collectives == whole.traces[0].collectives


def test_an_endless_value_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(event_stream, "_MAX_VALUE_LENGTH", 100)
    monkeypatch.setattr(event_stream, "_CHUNK_CHARS", 50)
    path = tmp_path / "long.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "' + "x" * 1000)
    with pytest.raises(OSError, match="16 MiB"):
        read_job([path])


def test_impossible_times_are_counted(tmp_path):
    events = make_steps(lambda start: [])
    for wrong in (1e300, "1", None, True):
        events.append({**operator(0, 5), "ts": wrong})
    events.append({**operator(0, 5), "dur": -1})
    job = make_job(tmp_path, [*events, "no event"])
    assert job.traces[0].num_left_out == 4


def test_the_command_shows_tables_json_and_csv(capsys):
    folder = str(GOLDEN[0].parent)
    assert inspect.main([folder]) == 0
    tables = capsys.readouterr().out
    assert "98.95" in tables
    assert inspect.main([*map(str, GOLDEN), "--format=json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["schema"] == "rnn_scaling.kineto/1"
    assert [rank["rank"] for rank in content["ranks"]] == [0, 1]
    assert content["statements"][0]["kind"] == "kineto-late"
    assert inspect.main([folder, "--format=csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 8
    for row in rows:
        parts = [float(row[f"{part}_s"]) for part in step_split.PARTS]
        assert sum(parts) == pytest.approx(float(row["seconds"]), abs=1e-9)


def test_flags_of_other_sources_are_refused(capsys):
    assert inspect.main([str(GOLDEN[0].parent), "--from=1"]) == 2
    assert capsys.readouterr().err.startswith("error: --from")

"""recommend --threads: which numbers are tried, what the runs show, and the command."""

import dataclasses
import itertools
import json
import re
import sys
from unittest import mock

import pytest

from benchmarks.load_correction import make_record
from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.steps import dispatch_threads
from rnn_scaling.commands import recommend
from rnn_scaling.records import record
from rnn_scaling.sweeps.thread_search import list_thread_counts
from rnn_scaling.system.processes import process
from tests.support import fake_tracer
from tests.support.fake_tracer import record_of
from tests.support.records import change_record

TRACER = (sys.executable, "-m", "tests.support.fake_tracer")
OWN = {1: 1, 2: 2, 4: 4}  # the trainer's numbers of threads by devices


def probe(rates, num_devices=2, repeats=3, default=3, noise=None):
    """Return the answer for these relative words/s by number of threads.

    Repeats differ by 0.2 %, or by the value of `noise` for the number of threads.
    """
    records = []
    for repeat in range(repeats):
        for number, rate in rates.items():
            made = run_of(number, repeat, num_devices)
            spread = (noise or {}).get(number, 0.002)
            step_s = (1 + spread * repeat) / rate
            records.append(with_seconds(made, [step_s] * len(made.batches.seconds)))
    [found] = dispatch_threads.make_probes(records, {num_devices: default})
    return found


def run_of(number, repeat=1, num_devices=2):
    """Return the record of a run with this number of threads."""
    options = {"num_devices": num_devices, dispatch_threads.OPTION: number}
    return record_of(options, repeat)


def with_seconds(run, seconds):
    batches = dataclasses.replace(run.batches, seconds=tuple(seconds))
    return dataclasses.replace(run, batches=batches)


def statements(found):
    """Kind -> the values of its first statement, in order."""
    made = {}
    for statement in dispatch_threads.make_statements(found):
        made.setdefault(statement.kind, statement.values)
    return made


@pytest.mark.parametrize(
    "num_devices, default, counts",
    [(1, 2, [1, 2, 3]), (8, 96, [1, 2, 4, 8, 9, 10, 16, 96])],
)
def test_threads_are_tried_about_the_number_of_devices_and_at_the_default(
    num_devices, default, counts
):
    assert list_thread_counts(num_devices, default) == counts


def test_a_corrected_rate_decides_nothing_about_threads():
    """A test of runs does not contain the error of a correction for load."""
    records = []
    for factor in (0.999, 1.0, 1.001):
        for number, rate, own in ((1, 100, 1.0), (2, 100, 0.5), (4, 90, 1.0)):
            made = make_record(2, rate * factor, own, 1 - own, 0)
            options = made.options.replace(**{dispatch_threads.OPTION: number})
            records.append(dataclasses.replace(made, options=options))
    [found] = dispatch_threads.make_probes(records, {2: 2})
    assert [s.rate.is_corrected for s in found.settings] == [False, True, False]
    assert all(setting.comparison is None for setting in found.settings)
    assert found.fastest is None
    assert found.sufficient is None
    assert {*statements(found)} == {"threads-corrected", "threads-load"}

    quiet = [each for each in records if not disturbance.is_disturbed(each)]
    [found] = dispatch_threads.make_probes(quiet, {2: 2})
    assert found.fastest == 1
    assert found.sufficient == 1


def test_each_machine_has_an_answer_of_its_own():
    runs = []
    for cpu, repeat, number in itertools.product("AB", (1, 2, 3), (1, 2)):
        made = change_record(run_of(number, repeat), environment={"cpu": cpu})
        scale = 10.0 if cpu == "B" else 1.0
        runs.append(with_seconds(made, [scale * each for each in made.batches.seconds]))
    found = dispatch_threads.make_probes(runs, {2: 3})
    answers = [(each.title[-3:], each.fastest, len(each.runs)) for each in found]
    assert answers == [(", A", 2, 6), (", B", 2, 6)]


def test_enough_is_the_smallest_number_that_cannot_be_told_from_the_best():
    found = probe({1: 0.5, 2: 0.9, 3: 0.999, 4: 1.0})
    assert found.fastest == 4
    assert found.sufficient == 3
    made = statements(found)
    kinds = ["threads-enough", "threads-slower", "towers-in-turn"]
    assert list(made) == [*kinds, "default-within-noise"]
    assert made["threads-slower"]["share"]["value"] == pytest.approx(50)
    assert made["towers-in-turn"]["at_once"] == 2.0
    assert made["default-within-noise"]["share"]["value"] == pytest.approx(99.9)


def test_numbers_too_noisy_to_tell_are_not_called_enough():
    found = probe({1: 0.5, 2: 0.9, 3: 1.0}, noise={2: 0.4})
    assert found.sufficient == 2
    made = statements(found)
    assert made["threads-unclear"]["best"] == 3
    assert made["threads-unclear"]["threads"] == [2]
    assert made["threads-slower"]["threads"] == 1


def test_a_gap_below_the_best_counts_although_fewer_threads_happen_to_be_fast():
    assert probe({1: 1.0, 2: 0.5, 3: 1.0, 4: 1.001}).sufficient == 3


def test_when_one_thread_is_as_good_that_is_said_with_what_could_be_seen():
    one_device = {"num_devices": 1, "default": 2}
    found = probe({1: 0.9995, 2: 1.0}, **one_device)
    assert found.sufficient == 1
    made = statements(found)  # one tower runs after no other
    assert list(made) == [
        "threads-fewest-enough",
        "threads-detectable",
        "default-fastest",
    ]
    assert made["threads-fewest-enough"]["fewest"] == 1
    assert made["threads-detectable"]["limit"] < 0.01
    fewest_fastest = probe({1: 1.0, 2: 0.9995}, **one_device)
    assert "threads-fewest-fastest" in statements(fewest_fastest)


def test_one_run_each_cannot_tell_and_a_default_that_is_slower_is_named():
    alone = probe({1: 0.5, 2: 1.0}, repeats=1)
    assert alone.sufficient is None
    assert list(statements(alone))[0] == "threads-one-run-each"
    slow = statements(probe({1: 1.0, 2: 0.9, 3: 0.8}))
    assert slow["default-slower"]["share"]["value"] == pytest.approx(80, rel=0.01)
    assert "default-not-measured" in statements(probe({1: 1.0, 2: 0.9}))


def test_that_towers_take_turns_is_said_of_quiet_repeats():
    def towers(repeats, others=0.0):
        """Return the statement on runs with 1 thread on 2 devices."""
        load = {"load": {"others": others, "steal": 0.0}}
        runs = []
        for repeat, number in itertools.product(range(repeats), (1, 2)):
            runs.append(change_record(run_of(number, repeat), environment=load))
        [found] = dispatch_threads.make_probes(runs, {2: 2})
        return next(kind for kind in statements(found) if kind.startswith("towers-"))

    assert towers(3) == "towers-in-turn"
    assert towers(1) == towers(3, others=0.6) == "towers-unclear"


def test_a_number_whose_runs_failed_is_no_bound():
    runs = []
    failed = []
    for repeat in range(3):
        two = run_of(2, repeat)
        failed.append(dataclasses.replace(two, status="failed", throughput=None))
        for number in (1, 3):
            runs.append(with_seconds(run_of(number, repeat), two.batches.seconds))
    [found] = dispatch_threads.make_probes([*runs, *failed], OWN)
    assert [setting.failed for setting in found.settings] == [0, 3, 0]
    assert found.sufficient == 1
    made = statements(found)
    assert list(made)[0].startswith("threads-fewest")
    assert made["threads-failed"]["threads"] == [2]
    [none] = dispatch_threads.make_probes(failed, OWN)
    assert "threads-not-measured" in statements(none)


def go(tmp_path, *words):
    words = ["--threads", f"--out={tmp_path}/out", *words]
    with mock.patch.object(process, "subprocess", fake_tracer.forks()):
        return recommend.main(words, trainer=TRACER)


def test_the_command_sweeps_in_turns_and_answers(tmp_path, capsys):
    assert go(tmp_path, "--device=cpu", "--num_devices=2", "--repeats=2") == 0
    out, err = capsys.readouterr()
    name = "dynamic_rnn-independent-2-threads="
    started = re.findall(rf"{name}(\d)(\.r2)?: ", err)
    numbers = ["1", "2", "3", "4"]
    # The order is shuffled in each round.
    assert sorted(started[:4]) == [(number, "") for number in numbers]
    assert sorted(started[4:]) == [(number, ".r2") for number in numbers]
    held = record.read(tmp_path / "out" / f"{name}4.json").config
    assert held[dispatch_threads.OPTION] == 4
    assert held["trace_batches"] == 5
    written = (tmp_path / "out/threads.md").read_text()
    assert out.splitlines()[0].lstrip("# ") in written
    [probe] = json.loads((tmp_path / "out/threads.json").read_text())["probes"]
    found = (probe["num_devices"], probe["default"], probe["enough"])
    assert found == (2, 2, 3)


def test_numbers_of_threads_can_be_given_and_must_be_numbers_of_threads(
    tmp_path, capsys
):
    flag = "--inter_op_parallelism_threads"
    assert go(tmp_path, "--num_devices=2", f"{flag}=7,2,7", "--dry_run") == 0
    listing = capsys.readouterr().out
    assert listing.count(f"{flag}=7 ") == 3 and "threads=2.r3" in listing
    assert go(tmp_path, f"{flag}=0,5000", "--num_units=0") == 2
    lines = capsys.readouterr().err.splitlines()
    wrong = [line.partition("error: ")[2].split(" must")[0] for line in lines]
    assert wrong == [f"{flag}=0", f"{flag}=5000", "--num_units=0"]


@pytest.mark.parametrize(
    "words, named",
    [
        (["--threads", "--minutes=5"], ["--minutes=5", "--threads"]),
        (["--repeats=4"], ["--repeats=4", "--threads"]),
    ],
)
def test_flags_that_do_not_belong_together_are_named(words, named, tmp_path, capsys):
    assert recommend.main([f"--out={tmp_path}/out", *words], trainer=TRACER) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert all(word in line for word in named)
    assert not (tmp_path / "out").exists()


def test_shared_cores_and_load_are_said_beside_the_numbers():
    shared = {
        "resolved": {"cpu_affinity": [0, 1], "oversubscribed": True},
        "environment": {"load": {"others": 0.3, "steal": 0.0, "seconds": 9.0}},
    }
    runs = []
    for number in (1, 2):
        runs.append(change_record(run_of(number, num_devices=4), **shared))
    [found] = dispatch_threads.make_probes(runs, OWN)
    made = statements(found)
    assert made["threads-shared-cores"]["cores"] == 2
    assert made["threads-load"]["load"] == 0.3
    assert made["threads-load"]["loaded"] == 2

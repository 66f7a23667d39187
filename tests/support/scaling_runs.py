"""Folders of runs that scale, and their summaries; both follow from given rates."""

import dataclasses
import random
from unittest import mock

from rnn_scaling.records import folder, record
from rnn_scaling.records.decoding import build, encode
from rnn_scaling.records.workers import WINDOW, Workers, join_batches
from rnn_scaling.reports import report_files, scaling_data
from rnn_scaling.reports.summary import summarise
from tests.support.configs import resolve
from tests.support.records import change_record, make_record


def run(num_devices, rate, status="ok", seconds=2.0, **config):
    words = max(1, round(rate * seconds))
    return make_record(
        status,
        config={"device": "cpu", "num_devices": num_devices, **config},
        seconds=[9.0, seconds / 2, seconds / 2],
        items=[1, words / 2, words / 2],
        warmup=1,
    )


def series():
    return [
        run(1, 1000.0),
        run(2, 1900.0),
        run(4, 3000.0, "failed"),
        run(1, 500.0, variable_update="replicated"),
        run(2, 770.0, variable_update="replicated"),
        run(2, 780.0, variable_update="replicated"),
    ]


def make_timed_run(num_devices, rate, repeat=0, batches=40, **config):
    """Return a run of steady batches with phases; repeats differ by 0.5 %."""
    words, actual = 1000 * num_devices, rate * (1 + 0.005 * (repeat - 1))
    seconds = [words / actual * (1 + 0.002 * (-1) ** k) for k in range(batches)]
    own = {"start": 3.0, "build": 1.0, "first_batch": 60.0}
    return make_record(
        config={"device": "cpu", "num_devices": num_devices, **config},
        seconds=seconds,
        items=[words] * batches,
        warmup=10,
        phases=make_phases(own, seconds, 0.5),
    )


def cluster(
    num_workers,
    rate,
    repeat=0,
    batches=40,
    devices=1,
    late=None,
    workers=None,
    **config,
):
    """Return a run of several workers at about `rate` words/s.

    Each rank has its own clock, and rank `late` is late by 20 % of each step.
    """
    config = {"device": "cpu", "variable_update": "collective_all_reduce", **config}
    noise = random.Random(f"{num_workers} {repeat} {rate}")
    step = 1000 * num_workers * devices / rate * (1 + 0.004 * (repeat - 1))
    steps = [step * (1 + 0.002 * (-1) ** k) for k in range(batches)]
    own = {"start": 3.0, "cluster": 0.5 * num_workers, "build": 1.0, "first_batch": 5.0}
    shares = [[1000] * devices] * batches
    counts = {
        "items": [1000 * devices] * batches,
        "loss": [2.0] * batches,
        "loss_items": [500 * devices] * batches,
        "tower_items": shares,
        "tower_positions": shares,
    }
    ranks = []
    for rank in range(num_workers):
        seconds = [step_s + noise.gauss(0, 1e-5) * step for step_s in steps]
        ready = [
            (0.9 if rank == late else 0.7) * step_s * (1 + noise.gauss(0, 0.01))
            for step_s in steps
        ]
        phases = make_phases(own, seconds, 0.1 * rank)
        times = {"seconds": seconds, "ready": ready, "phases": phases}
        ranks.append({"rank": rank, "host": f"host{rank}", **counts, **times})
    fields = {"launcher": "local-cluster", "window": WINDOW, "ranks": ranks}
    made = build(Workers, {**fields, **(workers or {})})
    joined = join_batches(made.ranks, 10)
    run = make_record(
        config={"num_workers": num_workers, "num_devices": devices, **config},
        seconds=joined.seconds,
        items=joined.items,
        warmup=10,
        batches=encode(joined),
        phases=make_phases(own, joined.seconds, 0.5),
    )
    window_s = sum(joined.seconds[10:]) * 1.001
    return change_record(
        run, workers=dataclasses.replace(made, window_seconds=window_s)
    )


def make_phases(own, seconds, teardown_s):
    """Return phases with these beginnings and batches, ten of which are a warm-up."""
    phases = {
        **own,
        "warmup": sum(seconds[1:10]),
        "measured": sum(seconds[10:]),
        "teardown": teardown_s,
    }
    return {**phases, "total": sum(phases.values())}


def make_repeats(rates, repeats=3, **options):
    """Return runs at the rate of each number of devices."""
    runs = []
    for devices, rate in rates.items():
        runs += [make_timed_run(devices, rate, k, **options) for k in range(repeats)]
    return runs


def make_runs_at_rates(rates, repeats=3, **options):
    """Return runs at the rate of each (mode, number of devices)."""
    runs = []
    for (mode, devices), rate in rates.items():
        run_options = {"variable_update": mode, **options}
        runs += make_repeats({devices: rate}, repeats, **run_options)
    return runs


def make_attributed_runs():
    """Three runs each of independent and replicated on one and two devices; replicated loses 20 + 10 points."""
    return make_runs_at_rates(
        {
            ("independent", 1): 100,
            ("independent", 2): 180,
            ("replicated", 1): 100,
            ("replicated", 2): 140,
        }
    )


def make_weak_and_strong_runs():
    return [
        *make_attributed_runs(),
        *make_repeats({1: 90, 2: 180}, global_batch_size=64),
    ]


def summarise_records(records, target=None):
    runs = [folder.RunFile(f"{i}.json", each) for i, each in enumerate(records)]
    return summarise(folder.Folder(tuple(runs), ()), "results", target)


def write_folder(path, records):
    path.mkdir(exist_ok=True)
    for number, result in enumerate(records):
        record.write(result, path / f"{number}.json")
    return path


def make_resolved_run(
    rate, n=1, mode="independent", data="device", positions=None, **options
):
    """Return a run at about `rate` words/s whose batches vary by 1 %."""
    given = {"num_devices": n, "variable_update": mode, "data_source": data, **options}
    given |= {
        name: "x" for name in ("src_file_name", "tgt_file_name") if data == "text"
    }
    config = resolve(given)
    words = [1000] * 40
    seconds = [1000 / rate * (1 + 0.01 * (-1) ** k) for k in range(40)]
    towers = {}
    if positions:
        towers = {
            "tower_positions": [positions] * 40,
            "tower_items": [[p - 1 for p in positions]] * 40,
        }
    return make_record(
        config=config.flat(), seconds=seconds, items=words, warmup=10, batches=towers
    )


def skip_pictures():
    """Patch the report to write no pictures, which take a second."""
    file_renderers = report_files.list_file_renderers
    kept = ("report.html", "report.json", "table.md", "table.csv")
    return mock.patch.object(
        report_files,
        "list_file_renderers",
        lambda summary: {
            name: render
            for name, render in file_renderers(summary).items()
            if name in kept
        },
    )


def list_drawn_metrics(summary):
    """Return the names of the metrics that have a picture, of all groups."""
    return [
        metric.name
        for group in scaling_data.list_groups(summary)
        for metric in group.picture_metrics
    ]

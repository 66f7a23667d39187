"""Folders of runs that scale, and their summaries: rates are told, and everything else follows."""

from __future__ import annotations

from rnn_scaling.records import folder, record
from rnn_scaling.reports import summary
from rnn_scaling.settings import config as configs
from tests.support.records import changed, make_record


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


def timed(num_devices, rate, repeat=0, batches=40, **config):
    """A run of steady batches with phases; repeats differ by half a per cent."""
    words, actual = 1000 * num_devices, rate * (1 + 0.005 * (repeat - 1))
    seconds = [words / actual * (1 + 0.002 * (-1) ** k) for k in range(batches)]
    measured = sum(seconds[10:])
    phases = {"start": 3.0, "build": 1.0, "first_batch": 60.0, "warmup": sum(seconds[1:10]), "measured": measured}
    return make_record(
        config={"device": "cpu", "num_devices": num_devices, **config},
        seconds=seconds,
        items=[words] * batches,
        warmup=10,
        phases={**phases, "teardown": 0.5, "total": sum(phases.values()) + 0.5},
    )


def attributed():
    """Three runs each of independent and replicated on one and two devices; replicated loses 20 + 10 points."""
    rates = {("independent", 1): 100, ("independent", 2): 180, ("replicated", 1): 100, ("replicated", 2): 140}
    return [timed(n, rate, k, variable_update=mode) for (mode, n), rate in rates.items() for k in range(3)]


def beside_load(share, rates):
    """Three runs each of (mode, devices) at words/s, as others left them: they slowed `independent` on 1 device."""
    runs = []
    for (mode, n), rate in rates.items():
        taken = share if (mode, n) == ("independent", 1) else 0.0
        load = {"load": {"others": taken, "steal": 0.0, "seconds": 9.0}}
        parts = {"environment": load, "resolved": {"cpu_affinity": [*range(n)]}}
        runs += [changed(timed(n, rate * (1 - taken), k, variable_update=mode), **parts) for k in range(3)]
    return runs


def weak_and_strong():
    return [*attributed(), *(timed(n, 90 * n, k, global_batch_size=64) for n in (1, 2) for k in range(3))]


def of(records):
    runs = [folder.RunFile(f"{i}.json", each) for i, each in enumerate(records)]
    return summary.summarise(folder.Folder(tuple(runs), ()), "results")


def write_folder(path, records):
    path.mkdir(exist_ok=True)
    for number, result in enumerate(records):
        record.write(result, path / f"{number}.json")
    return path


def resolved(rate, n=1, mode="independent", data="device", positions=None, **options):
    """A run at about `rate` words/s whose batches vary a little."""
    given = {"num_devices": n, "variable_update": mode, "data_source": data, **options}
    given |= {name: "x" for name in ("src_file_name", "tgt_file_name") if data == "text"}
    config = configs.resolve(given, num_gpus=0, num_cores=8)
    words = [1000] * 40
    seconds = [1000 / rate * (1 + 0.01 * (-1) ** k) for k in range(40)]
    towers = {}
    if positions:
        towers = {"tower_positions": [positions] * 40, "tower_items": [[p - 1 for p in positions]] * 40}
    return make_record(config=config.flat(), seconds=seconds, items=words, warmup=10, batches=towers)

"""Energy counters of powercap zones and NVML, read before and after the measured batches.

Some counters wrap or disappear.
"""

import itertools
import threading

import pytest

from rnn_scaling import Recorder
from rnn_scaling.records import record
from rnn_scaling.system.machine import energy, nvml
from rnn_scaling.system.machine.energy import EnergyMeter
from rnn_scaling.training import machine_watch
from tests.support.fake_nvml import FakeNvml
from tests.support.training import run_fake_batches

RANGE = 1_000_000  # microjoules


def zone(root, name, of, value):
    """Create a zone in a fake powercap tree; return the path of its counter.

    If `value` is None, the counter is a folder, which cannot be read.
    """
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{of}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
    if value is None:
        (folder / "energy_uj").mkdir()
    else:
        (folder / "energy_uj").write_text(f"{value}\n")
    return folder / "energy_uj"


def measure_energy(root, change=lambda: None, gpu_ids=()):
    meter = EnergyMeter(f"{root}/")
    meter.find(gpu_ids)
    meter.start()
    change()
    meter.stop()
    meter.stop()
    return meter.read()


def test_packages_and_their_memory_count_and_parts_of_packages_do_not(tmp_path):
    package, dram = (
        zone(tmp_path, "intel-rapl:0", "package-0", 100),
        zone(tmp_path, "intel-rapl:0:1", "dram", 5),
    )
    zone(tmp_path, "intel-rapl:0:0", "core", 0)
    zone(tmp_path, "intel-rapl:2", "psys", 0)
    zone(
        tmp_path, "intel-rapl-mmio:0", "package-9", 0
    )  # another door to the same counter
    second = zone(tmp_path, "intel-rapl:1", "package-1", RANGE - 10)

    def change():
        package.write_text("400100")
        dram.write_text("70005")
        second.write_text("90")  # it wrapped around

    found = measure_energy(tmp_path, change)
    assert found["joules"] == pytest.approx(
        {"package-0": 0.4, "package-0 dram": 0.07, "package-1": 1e-4}
    )
    assert found["seconds"] > 0 and found["not_measured"] == {}


def test_a_counter_that_wraps_around_twice_is_seen_by_the_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "INTERVAL_S", 0.001)
    values, passed = iter([0, 700_000, 300_000, 900_000]), threading.Event()
    last = [0]

    def read(path):
        last[0] = next(values, last[0])
        if last[0] == 900_000:
            passed.set()
        return last[0]

    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    monkeypatch.setattr(
        energy,
        "_number",
        lambda path: RANGE if path.name.startswith("max") else read(path),
    )
    found = measure_energy(tmp_path, lambda: passed.wait(20))
    assert found["joules"] == pytest.approx({"package-0": 0.7 + 0.6 + 0.6})


def test_what_is_not_readable_or_is_lost_is_named(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", None)
    lost = zone(tmp_path, "intel-rapl:1", "package-1", 7)
    found = measure_energy(tmp_path, lambda: lost.write_text("?"))
    assert found["joules"] == {}
    assert found["not_measured"] == {
        "package-0": energy.NEEDS_ROOT,
        "package-1": energy.LOST,
    }


def test_a_counter_that_comes_back_stays_lost(tmp_path):
    values = iter([5, None, 9, 12])
    counter = energy._Counter("GPU 0", lambda: next(values), 1e-3, energy.NO_COUNTER)
    for _ in range(4):
        counter.look()
    assert not counter.answers and counter.missing == energy.LOST


def test_gpus_count_in_millijoules_and_those_of_the_run_alone(tmp_path, monkeypatch):
    gpus = [{"name": "G", "uuid": f"GPU-{i}", "energy": 1000 * i} for i in range(3)]
    del gpus[0]["energy"]  # older than Volta
    api = FakeNvml(gpus)

    def change():
        gpus[1]["energy"] += 2_500
        gpus[2]["energy"] += 9_000

    monkeypatch.setattr(nvml, "start", lambda: api)
    found = measure_energy(tmp_path, change, gpu_ids=["0", "GPU-1"])
    assert found["joules"] == {"GPU 1": 2.5} and api.down == 1
    assert found["not_measured"] == {
        "GPU 0": energy.NO_COUNTER,
        "package": energy.NO_COUNTER,
    }


def test_without_counters_there_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(nvml, "start", lambda: None)
    assert (
        measure_energy(tmp_path) is None
        and measure_energy(tmp_path, gpu_ids=["0"]) is None
    )
    zone(tmp_path, "intel-rapl:0", "package-0", 7)
    never_warm = EnergyMeter(root=f"{tmp_path}/")
    never_warm.find([])
    never_warm.stop()
    assert never_warm.read() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "energy"]


@pytest.mark.parametrize("warmup", [0, 2])
def test_a_recorder_counts_the_measured_steps(warmup, tmp_path, monkeypatch):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    monkeypatch.setattr(
        machine_watch, "EnergyMeter", lambda: EnergyMeter(f"{tmp_path}/")
    )
    with Recorder(tmp_path / "run.json", num_warmup_batches=warmup) as recorder:
        for step in range(1, 5):
            counter.write_text(str(100_000 * step))
            recorder.step(items=10)
    used = record.read(tmp_path / "run.json").energy
    assert used.joules == pytest.approx({"package-0": 0.4 if warmup == 0 else 0.2})
    assert used.seconds > 0
    assert record.from_json(record.read(tmp_path / "run.json").to_json()).energy == used


def test_a_run_counts_its_measured_batches(tf, tmp_path, monkeypatch):
    from rnn_scaling.training.checkpoints import Saver

    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    steps = itertools.count(1)
    monkeypatch.setattr(
        machine_watch, "EnergyMeter", lambda: EnergyMeter(f"{tmp_path}/")
    )

    class Saves(Saver):
        def end_measuring(self):
            counter.write_text("900000")  # after the last batch

    state = run_fake_batches(
        lambda: counter.write_text(str(100_000 * next(steps))), saver=Saves
    )
    assert state.make_record("ok").energy.joules == pytest.approx({"package-0": 0.3})
    assert state.collect_details()["energy"]["joules"] == pytest.approx(
        {"package-0": 0.3}
    )

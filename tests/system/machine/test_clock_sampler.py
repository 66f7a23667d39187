"""Clocks are sampled in bounded memory, without harm to the run, and end with it."""

import itertools
import json
import threading

import pytest

from rnn_scaling.system.machine import clock_sampler, nvml, throttling
from rnn_scaling.system.machine.clock_sampler import ClockSampler
from rnn_scaling.training import recording
from rnn_scaling.training.state import RunState
from tests.support import faults
from tests.support.configs import resolve
from tests.support.fake_nvml import FakeNvml
from tests.support.training import run_fake_batches

PATIENCE_S = 60.0  # against hanging; nothing is measured by it


def test_reasons_equal_the_table_of_nvidia():
    pynvml = pytest.importorskip("pynvml")
    names = {
        "ApplicationsClocksSetting": "applications clocks setting",
        "SwPowerCap": "SW power cap",
        "HwSlowdown": "HW slowdown",
        "SyncBoost": "sync boost",
        "SwThermalSlowdown": "SW thermal slowdown",
        "HwThermalSlowdown": "HW thermal slowdown",
        "HwPowerBrakeSlowdown": "HW power brake slowdown",
        "DisplayClockSetting": "display clock setting",
    }
    for name, words in names.items():
        assert (
            throttling.REASONS[getattr(pynvml, f"nvmlClocksThrottleReason{name}")]
            == words
        )
    assert pynvml.nvmlClocksThrottleReasonGpuIdle == throttling.IDLE_BIT
    # Every function and constant that is called exists under its name.
    fake = {name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML_"))}
    assert not [name for name in fake if not hasattr(pynvml, name)]


def test_nvml_in_megahertz_watts_and_words():
    new = {
        "name": "G",
        "uuid": "GPU-1",
        "sm": 1500,
        "memory": 4000,
        "reasons": 4,
        "power": 150_250,
        "temperature": 60,
    }
    old = {
        "name": "G",
        "uuid": "GPU-2",
        "old_reasons": 8,
        "utilisation": 99,
        "limit": 180_000,
        "max_sm": 1900,
    }
    api = FakeNvml([new, old])
    first, second = nvml.list_visible_gpus(api, ["GPU-1", "1"])
    assert nvml.sample(api, first) == {
        "sm_mhz": 1500,
        "memory_mhz": 4000,
        "reasons": 4,
        "power_w": 150.25,
        "temperature_c": 60,
        "utilisation": None,
    }
    assert nvml.sample(api, second)["reasons"] == 8
    assert nvml.sample(api, second)["utilisation"] == 99
    assert nvml.read_limits(api, second) == {
        "index": 1,
        "name": "G",
        "max_sm_mhz": 1900,
        "max_memory_mhz": None,
        "power_limit_w": 180.0,
    }


def test_a_run_on_gpus_is_sampled_through_nvml():
    api = FakeNvml(
        [
            {
                "name": "G",
                "uuid": f"GPU-{i}",
                "sm": 1000 + i,
                "memory": 4000,
                "reasons": 0,
            }
            for i in range(3)
        ]
    )
    ticks = itertools.count()
    has_three_samples = threading.Event()

    def clock():
        # The clock is read at the start and before each sample is kept.
        tick = next(ticks)
        if tick == 4:
            has_three_samples.set()
        return tick

    sampler = ClockSampler(
        lambda: clock_sampler.open_gpu_source(["2", "GPU-0"], lambda: api), 0.0, clock
    )
    assert has_three_samples.wait(PATIENCE_S)
    sampler.stop()
    result = json.loads(json.dumps(sampler.read()))
    assert result["source"] == "NVML"
    assert [device["index"] for device in result["devices"]] == [2, 0]
    assert [
        [device["sm_mhz"] for device in s["devices"]] for s in result["samples"][:2]
    ] == [[1002, 1000]] * 2
    times = [s["at_s"] for s in result["samples"]]
    assert times[0] == 1 and times == sorted(set(times)) and api.down == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "clocks"]


class Steps:
    """A CPU source of `size` cores that counts its polls, the first core's clock going up with each."""

    name = "cpufreq"

    def __init__(self, size=1, step=1.0, ends_at=10**9):
        self.devices = [{"core": core} for core in range(size)]
        self.polls = 0
        self.step = step
        self.ends_at = ends_at
        self.closed = threading.Event()

    def poll(self):
        if self.polls >= self.ends_at:
            raise RuntimeError("the driver is gone")
        self.polls += 1
        return [{"mhz": 1000.0 + self.step * self.polls}] + [{"mhz": 1000.0}] * (
            len(self.devices) - 1
        )

    def close(self):
        self.closed.set()


def test_a_long_run_keeps_few_samples_evenly():
    source = Steps(ends_at=5000)
    sampler = ClockSampler(lambda: source, 0.0, itertools.count().__next__)
    assert source.closed.wait(PATIENCE_S)
    result = sampler.read()
    times = [s["at_s"] for s in result["samples"]]
    gaps = [b - a for a, b in zip(times, times[1:])]
    assert result["taken"] == 5000 and 100 <= len(times) <= clock_sampler.MAX_SAMPLES
    assert times[0] == 1 and times[-1] > 4950 and max(gaps) <= 2 * min(gaps)
    assert result["error"] == "RuntimeError: the driver is gone"


def test_many_cores_keep_fewer_samples():
    source = Steps(size=320, ends_at=50)
    sampler = ClockSampler(lambda: source, 0.0)
    assert source.closed.wait(PATIENCE_S)
    assert len(sampler.read()["samples"]) == clock_sampler.MAX_CELLS // 320


def test_a_constant_cpu_clock_is_not_recorded():
    source = Steps(step=0.0)
    sampler = ClockSampler(lambda: source, 0.0)
    assert source.closed.wait(PATIENCE_S)
    assert source.polls == clock_sampler.CONSTANT and sampler.read() is None
    single = Steps(step=0.0, size=2)
    sampler = ClockSampler(lambda: single, 60.0)
    faults.wait_until(lambda: single.polls, "the first poll")
    sampler.stop()
    assert sampler.read() is None


def test_an_error_of_the_sampler_is_recorded():
    def fails():
        raise OSError("no such driver")

    sampler = ClockSampler(fails)
    sampler.stop()
    assert sampler.read() == {"error": "OSError: no such driver"}


def test_cpu_clocks_of_the_bound_cores(tmp_path):
    assert clock_sampler.open_cpu_source([0, 2], str(tmp_path)) is None
    assert clock_sampler.open_cpu_source([]) is None
    (tmp_path / "proc").mkdir()
    cpuinfo = tmp_path / "proc/cpuinfo"
    cpuinfo.write_text(
        "".join(
            f"processor\t: {i}\nflags\t: fpu\ncpu MHz\t\t: {2000 + i}.5\n\n"
            for i in range(4)
        )
    )
    source = clock_sampler.open_cpu_source([0, 2], str(tmp_path))
    assert source.name == "/proc/cpuinfo"
    assert source.poll() == [{"mhz": 2000.5}, {"mhz": 2002.5}]
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")  # as on ARM
    assert clock_sampler.open_cpu_source([0], str(tmp_path)) is None
    for core in (0, 2):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{3100000 + core}\n")
    source = clock_sampler.open_cpu_source([2, 0], str(tmp_path))
    assert source.name == "cpufreq"
    assert source.devices == [{"core": 2}, {"core": 0}]
    assert source.poll() == [{"mhz": 3100.002}, {"mhz": 3100.0}]


def test_a_gpu_that_nvml_cannot_find():
    api = FakeNvml([{"name": "G", "uuid": "GPU-0"}])
    assert clock_sampler.open_gpu_source(["MIG-1"], lambda: api) is None
    assert api.down == 1
    assert clock_sampler.open_gpu_source(["0"], lambda: None) is None


def state_of(monkeypatch, source):
    monkeypatch.setattr(clock_sampler, "open_gpu_source", lambda ids: source)
    monkeypatch.setattr(clock_sampler, "list_gpu_ids", lambda: ["0", "1", "2"])
    monkeypatch.setattr(recording, "read_environment", lambda _: {"gpus": []})
    state = RunState(resolve())
    state.resolved.update(device_type="GPU", devices=["/GPU:0", "/GPU:1"])
    return state


class Cards(Steps):
    name = "NVML"

    def __init__(self):
        super().__init__()
        self.devices = [
            {"index": i, "name": "GTX 1070", "power_limit_w": 150.0} for i in range(2)
        ]

    def poll(self):
        self.polls += 1
        return [
            {"sm_mhz": 1500, "memory_mhz": mhz, "reasons": 0} for mhz in (4000, 3800)
        ]


def test_a_run_warns_at_its_end_and_keeps_the_samples(monkeypatch):
    cards = Cards()
    state = state_of(monkeypatch, cards)
    state.machine.stop()  # a run that did not come to its first batch
    assert state.make_record("failed").environment.clocks is None
    state.watch_machine()
    faults.wait_until(lambda: state.machine._clock_sampler.read(), "the first sample")
    assert (
        state.make_record("interrupted")
        .environment.clocks.samples[0]
        .devices[1]
        .memory_mhz
        == 3800
    )
    [warning] = state.machine.stop()
    assert cards.closed.is_set()
    assert warning.startswith("GPU 1 (GTX 1070) ")
    assert "3800 MHz" in warning
    assert "4000 MHz (+5.3%)" in warning


def test_only_the_gpus_of_the_run_are_sampled(monkeypatch):
    requests = []
    state = state_of(monkeypatch, None)
    monkeypatch.setattr(
        clock_sampler, "open_gpu_source", lambda ids: requests.append(list(ids))
    )
    monkeypatch.setattr(
        clock_sampler, "open_cpu_source", lambda cores: requests.append(list(cores))
    )
    clock_sampler.start(state.resolved).stop()
    clock_sampler.start({"device_type": "CPU", "cpu_affinity": [3, 1]}).stop()
    clock_sampler.start({}).stop()
    assert requests == [["0", "1"], [3, 1], []]


def test_the_batches_of_a_run_are_sampled(tf, monkeypatch):
    state = state_of(monkeypatch, Cards())
    threads = []

    def on_batch():
        threads.extend(each for each in threading.enumerate() if each.name == "clocks")
        faults.wait_until(
            lambda: state.machine._clock_sampler.read(), "the first sample"
        )

    run_fake_batches(on_batch, state)
    assert len(threads) == 5 and not threads[0].is_alive()
    assert state.make_record("ok").environment.clocks.source == "NVML"

"""The unit of a printed number according to the text next to it."""

import re

import pytest

from rnn_scaling.records.importers import printed_units
from rnn_scaling.records.importers.printed_units import Kind
from rnn_scaling.records.importers.rank_tags import Ranks
from tests.support.log_samples import read_run

# The number is between < and >.
MILLISECONDS = [
    "time <893.76>ms",
    "time <41.0> ms",
    "elapsed time per iteration (ms): <75254.0> | lr 1e-3",
    "GPU time [ms] <512>",
    '{"step": 5, "iter_ms": <45>}',
    "step 10 ms <5>",
    "1s <25>ms/step - loss: 0.5",
    "Step_Time_Ms=<3.2>",
    "loss 4.2 step time <12.5> msec",
]
SECONDS = [
    "[00:10<01:30, <1.25>s/it]",
    "sec/step <0.4>",
    "512 tokens in <3.2> s",
    "512 examples/sec; <0.250> sec/batch",
    "step_s=<0.5>",
    "Time: <0.452>s, 566.2/s",
    "duration_seconds: <3.5>",
    "time(s): <512>",
]
OTHER_TIMES = [
    "took <350> us",
    "<350>\u00b5s/step",
    "in <3> min",
    "in <3>m20s",
    "<1.25> days",
    "<800> ns per element",
]
UNNAMED_TIMES = [
    "took <3.4>",
    "elapsed <12.5>",
    "step_time: <0.45>",
    '"step_time": <0.45>, "wps": 512',
    "avg_time_per_step <0.3>",
    "latency <12.3>",
    "wall=<862>",
    "time <3.5> tok/s 512",
]
RATES = [
    "[00:10<01:30, <9.25>it/s]",
    "throughput = <19.0> MB/s",
    "wps <58.41>K ppl 88",
    '{"update": 1, "wps": "<42110>"}',
    "tokens_per_sec=<512>",
    "train_samples_per_second': <81.3>",
    "<512> words per second",
    "wps <512> ms 12",
    "img/s: <512> min 500 max 530",
    "samples_sec <512>",
    "tokens_s: <512>",
    "real-time rate <512>",
    "time 3.5 tok/s <512>",
    "Time: 0.452s, <566.2>/s (0.461s, 555.1/s)",
    "Throughput(img/s) <512>",
    "<12,345> tok/s/GPU",
    "<12.5> fps",
    "time 1.5s speed <512>",
]
NOTHING = [
    "<2.1> min 1.9 max 2.5",
    "timestep <5>",
    "<512> tokens in 3.2 s",
    "step <100> time",
    "Total img/sec on 4 GPU(s): <512>",
]


def find_marked_unit(marked):
    """Return the unit of the number between the last < and the > behind it."""
    match = re.search(r"<([\d.,]+)>", marked)
    line = marked[: match.start()] + match[1] + marked[match.end() :]
    return printed_units.find_unit(line, match.start(), match.end() - 2)


# The kind of a number, its possible units of time, and lines.
CASES = [
    (Kind.TIME, {"milliseconds"}, MILLISECONDS),
    (Kind.TIME, {"seconds"}, SECONDS),
    (Kind.TIME, {""}, UNNAMED_TIMES),
    (Kind.TIME, {"microseconds", "nanoseconds", "minutes", "days"}, OTHER_TIMES),
    (Kind.RATE, {"", "seconds"}, RATES),
]


@pytest.mark.parametrize("kind, time_units, lines", CASES)
def test_the_kind_and_the_unit_of_a_number_are_recognised(kind, time_units, lines):
    for marked in lines:
        unit = find_marked_unit(marked)
        assert (unit.kind, unit.time_unit in time_units) == (kind, True), marked


@pytest.mark.parametrize("marked", NOTHING)
def test_text_without_a_unit_is_not_read_as_a_unit(marked):
    assert find_marked_unit(marked) is None


@pytest.mark.parametrize(
    "marked, prefix",
    [
        ("<19.0> MB/s", "M"),
        ("<19.0> GiB/s", "Gi"),
        ("<58.6> ktok/s", "k"),
        ("MB/s: <19.0>", "M"),
        ("<19.0> B/s", ""),
        ("<19.0> tokens/s", ""),
        ("<19.0> Kernels/s", ""),
    ],
)
def test_a_prefix_belongs_to_the_unit(marked, prefix):
    assert find_marked_unit(marked).prefix == prefix


def read(tmp_path, text, pattern, **terms):
    """Read a log of three equal lines."""
    path = tmp_path / "log.txt"
    path.write_text(f"{text}\n" * 3)
    return read_run(path, f"regex:{pattern}", **terms)


@pytest.mark.parametrize(
    "text, pattern, letter",
    [
        ("19.0 MB/s", "{number} MB/s", "M"),
        ("58.6 ktok/s", "{number} ktok/s", "k"),
        ("ktok/s 58.6", "ktok/s {number}", "k"),
        ("58.6K tok/s", r"(?P<rate>[\d.]+)", "K"),
        ("12 samples/min", "{number} samples", "per minute"),
        ("time 12.5 ms", "time (?P<seconds>{number})", "the group"),
        ("elapsed (ms): 12.5", "(?P<seconds>{number})", "the group"),
        ("12.5 s/it", "(?P<ms>{number})", "the group"),
        ("took 3 min", "(?P<seconds>{number})", "the group"),
    ],
)
def test_a_number_whose_factor_is_unclear_is_refused_by_name(
    tmp_path, text, pattern, letter
):
    with pytest.raises(ValueError, match=letter):
        read(tmp_path, text, pattern, unit="tokens", items_per_step=1.0)


@pytest.mark.parametrize(
    "text, pattern, unit, rate, unit_of_log",
    [
        ("19.0 MB/s", "{number} MB/s", "", 19.0, "MB"),
        ("19.0 MB/s", "{number}", "MB", 19.0, "MB"),
        ("58.6 ktok/s", "{number}tok/s", "tokens", 58600.0, ""),
        ("58.6 K tok/s", "{number} K tok/s", "tokens", 58600.0, ""),
        ("58.6Ktok/s", "{number}K", "tokens", 58600.0, ""),
        ("1.2M samples/s", "{number}M", "samples", 1.2e6, ""),
        ("12.5 GB/s", "busbw|{number} GB/s", "", 12.5, "GB"),
    ],
)
def test_a_prefix_of_the_unit_is_not_a_factor(
    tmp_path, text, pattern, unit, rate, unit_of_log
):
    reading = read(tmp_path, text, pattern, unit=unit)
    assert reading.rate == pytest.approx(rate)
    assert reading.unit == (unit_of_log or unit)


@pytest.mark.parametrize(
    "text, unit",
    [
        ("loss 3.2 512 samples/sec", "samples"),
        ("speed: 512 img/s", "images"),
        ("speed: 512 tok/s", "tokens"),
        ('{"wps": "512", "ups": "2"}', "words"),
        ("step 3 512 fps", "frames"),
        ("speed: 512 widgets/s", "items"),
        ("throughput 512", "items"),
        ("tokens per GPU per second (tgs): 512", "tokens"),
        ("TGS: 512", "tokens"),
    ],
)
def test_without_a_flag_the_log_names_what_it_counts(tmp_path, text, unit):
    pattern = re.escape(text).replace("512", "{number}")
    assert read(tmp_path, text, pattern, num_devices=4).unit == unit


PER_DEVICE = """
512 tokens/s/GPU
512 tok/s (per device)
tokens/s/GPU: 512, loss 3
tps_per_gpu=512
512 img/sec/core
512 samples/s per proc
tgs (tokens/gpu/second)=512
512 TGS
512 img/sec (avg per rank)
tokens per GPU per second: 512
"""
OF_ALL_DEVICES = """
512 tokens/s
4 processes per node, 512 tokens/s
tensorflow/core/util/x.cc throughput 512
settings 512
512 tokens/s, 64 per GPU
batch per GPU: 64, 512 tokens/s
512 samples/second on 4 GPUs
512 tokens/s (batch per GPU: 8)
tok/s=512 tok/s/gpu=64
"tok/s": 512 "mem/gpu": 12
512 tokens/s per-device-batch 8
memory per GPU ok throughput 512
tokens/s (8 GPUs per worker): 512
"""


def is_per_device(line):
    start = line.index("512")
    return printed_units.is_per_device(line, start, start + 3)


@pytest.mark.parametrize("line", PER_DEVICE.strip().splitlines())
def test_a_rate_of_one_device_is_recognized(line):
    assert is_per_device(line)


@pytest.mark.parametrize("line", OF_ALL_DEVICES.strip().splitlines())
def test_a_rate_of_all_devices_is_recognized(line):
    assert not is_per_device(line)


@pytest.mark.parametrize(
    "text, pattern",
    [
        ("512 tokens/s/GPU", "{number} tokens/s"),
        ("tps: 512", "tps: (?P<device_rate>{number})"),
    ],
)
def test_a_rate_of_one_device_is_multiplied_by_the_devices(tmp_path, text, pattern):
    reading = read(tmp_path, text, pattern, num_devices=4)
    assert reading.rate == pytest.approx(4 * 512)
    [finding] = [each for each in reading.findings if each.kind == "per-device"]
    assert finding.count == 4
    assert finding.other == pytest.approx(512)
    assert read(tmp_path, text, pattern, num_devices=1).findings == ()
    unknown = read(tmp_path, text, pattern)
    assert unknown.rate == pytest.approx(512)
    assert unknown.unit.endswith("per device")


@pytest.mark.parametrize("text", ["512 tokens/s/node", "tokens/s per host: 512"])
def test_a_rate_of_one_node_is_not_a_total(tmp_path, text):
    pattern = text.replace("512", "{number}")
    with pytest.raises(ValueError, match="per node"):
        read(tmp_path, text, pattern, num_devices=8)
    unknown = read(tmp_path, text, pattern)
    assert unknown.rate == pytest.approx(512) and unknown.unit.endswith("per node")
    alone = read(tmp_path, text, pattern, num_devices=1)
    assert alone.rate == pytest.approx(512) and alone.unit == "tokens"


def test_the_rates_of_tagged_ranks_are_added_instead(tmp_path):
    lines = "[rank0]: 500 tokens/s/GPU\n[rank1]: 524 tokens/s/GPU\n" * 3
    path = tmp_path / "log.txt"
    path.write_text(lines)
    pattern = "regex:{number} tokens/s"
    assert read_run(path, pattern, num_devices=2).rate == pytest.approx(1000)
    total = read_run(path, pattern, num_devices=2, ranks=Ranks.SUM)
    assert total.rate == pytest.approx(1024)
    with pytest.raises(ValueError, match="--ranks=first"):
        read_run(path, pattern, num_devices=8, ranks=Ranks.SUM)


@pytest.mark.parametrize(
    "text, pattern",
    [
        ("2048 tokens/s, 512 tokens/s/GPU", "{number} tokens/s,"),
        ("loss 2.5 tokens/s per GPU: 512", "GPU: {number}"),
    ],
)
def test_a_total_and_a_loss_beside_a_rate_of_one_device_raise_no_doubt(
    tmp_path, text, pattern
):
    output = read(tmp_path, text, pattern, num_devices=4).output
    assert output.other_rate_ratio is None


def test_rates_in_different_units_are_refused(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("900 KB/s\n1.2 MB/s\n1.3 MB/s\n")
    with pytest.raises(ValueError, match="KB and line 2 has MB"):
        read_run(path, "regex:{number} .B/s")


@pytest.mark.parametrize("first", ["0", "nan", "inf", "-1", "n/a"])
def test_an_unusable_first_value_is_start_up(tmp_path, first):
    path = tmp_path / "log.txt"
    path.write_text(f"wps {first}\nwps 10\nwps 30\n")
    formats = r"regex:wps (?P<rate>\S+)"
    assert read_run(path, formats).rate == pytest.approx(15.0)
    with pytest.raises(ValueError, match="--log_warmup=1 leaves it out"):
        read_run(path, formats, warmup=0)


def test_unusable_first_values_do_not_count_as_steps(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("step 5 ms 0\nstep 10 ms 20\nstep 15 ms 20\n")
    formats = r"regex:step (?P<step>\d+) ms (?P<ms>{number})"
    reading = read_run(path, formats, items_per_step=1.0)
    assert reading.rate == pytest.approx(50.0)
    assert sum(reading.items) == 10

"""Test the split of losses against known parts, and that the parts add up."""

from __future__ import annotations

import itertools
import random
import shlex

import pytest

from rnn_scaling.analysis import attribution, rows
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.student import t_foreseeable
from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from tests.support.records import changed
from tests.support.scaling_runs import resolved

MODES = ("independent", "parameter_server", "replicated", "mirrored")


def split(row, table):
    return attribution.attribute_all([row], table)[0]


def attribute(records):
    """Return the attribution of the last record."""
    table = rows.build_rows(records)
    return split(next(row for row in table if records[-1] in row.records), table)


def values(result):
    return {
        part.name: part.value.value if part.value else None for part in result.parts
    }


def test_exchange_is_the_loss_beyond_independent_replicas():
    runs = [
        resolved(100),
        resolved(180, 2),
        resolved(99, 1, "replicated"),
        resolved(150, 2, "replicated"),
    ]
    result = attribute(runs)
    ideal = 2 * 99
    assert values(result) == {
        "contention": pytest.approx(ideal * (1 - 180 / 200), rel=1e-3),
        "exchange": pytest.approx(ideal * (180 / 200 - 150 / 198), rel=1e-3),
    }
    assert result.residual.value == 0


@pytest.mark.parametrize(
    "mode,data",
    [
        ("replicated", "device"),
        ("replicated", "text"),
    ],
)
def test_a_mode_that_is_slower_on_one_device_loses_no_scaling(mode, data):
    """All rows scale at 75 %. The mode and the text halve every rate."""
    runs = [resolved(100), resolved(150, 2)]
    if mode != "independent":
        runs += [resolved(50, 1, mode), resolved(75, 2, mode)]
    if data == "text":
        runs.append(resolved(25, 1, mode, data, [10]))
        runs.append(resolved(37.5, 2, mode, data, [10, 10]))
    result = attribute(runs)
    shares = {part.name: part.points.value for part in result.parts}
    assert shares.pop("contention") == pytest.approx(25, abs=0.01)
    assert all(share == pytest.approx(0, abs=0.01) for share in shares.values())


def text_runs(positions=(10, 10)):
    return [
        resolved(100),
        resolved(180, 2),
        resolved(99, 1, "replicated"),
        resolved(150, 2, "replicated"),
        resolved(90, 1, "replicated", "text"),
        resolved(120, 2, "replicated", "text", list(positions)),
    ]


def test_input_and_imbalance_share_the_cost_of_the_data_source():
    even = attribute(text_runs())
    uneven = attribute(text_runs((15, 5)))
    assert values(even)["imbalance"] == 0
    assert values(even)["input"] == pytest.approx(
        180 * (150 / 198 - 120 / 180), rel=1e-2
    )
    # Evenly spread, a step of the uneven run would take 10/15 of its time.
    assert values(uneven)["imbalance"] == pytest.approx(120 * 0.5, rel=1e-3)
    both = values(uneven)["imbalance"] + values(uneven)["input"]
    assert both == pytest.approx(values(even)["input"], rel=1e-6)


def test_fixed_cost_is_the_loss_of_a_smaller_batch_on_one_device():
    runs = [
        resolved(100, 1, global_batch_size=64),
        resolved(80, 1, batch_size=32),
        resolved(150, 2, global_batch_size=64),
    ]
    result = attribute(runs)
    assert values(result) == {
        "fixed cost": pytest.approx(40, rel=1e-3),
        "contention": pytest.approx(10, rel=1e-2),
    }
    assert result.residual.value == 0


@pytest.mark.parametrize("data", ["device", "text"])
def test_a_remainder_is_counted_once_as_imbalance(data):
    """Divide 33 pairs among 4 devices, so that 8.25 of 9 positions are used."""
    rate = 100 * 33 / 9
    sizes = [9, 8, 8, 8]
    runs = []
    for source in dict.fromkeys(["device", data]):
        runs += [
            resolved(100, 1, data=source, global_batch_size=33),
            resolved(100, 1, data=source, batch_size=9),
        ]
        runs.append(
            resolved(rate, 4, "independent", source, sizes, global_batch_size=33)
        )
    result = attribute(runs)
    shares = {part.name: part.points.value for part in result.parts}
    assert shares.pop("imbalance") == pytest.approx(100 * (1 - 8.25 / 9), abs=0.01)
    assert all(share == pytest.approx(0, abs=0.01) for share in shares.values())


def test_parts_and_residual_always_sum_to_the_loss():
    random.seed(1)
    all_runs = [
        resolved(random.uniform(50, 150) * n, n, mode, data, [7] * n)
        for n, mode, data in itertools.product((1, 2, 4), MODES, ("device", "text"))
    ]
    count = 0
    for _ in range(60):
        runs = random.sample(all_runs, random.randint(2, len(all_runs)))
        table = rows.build_rows(runs)
        for result in filter(None, attribution.attribute_all(table, table)):
            count += 1
            known = [part.value.value for part in result.parts if part.value]
            total = sum(known) + result.residual.value
            assert total == pytest.approx(result.loss.value, rel=1e-9)
            if len(known) == len(result.parts):
                assert result.residual.value == 0
            for part in result.parts:
                assert (part.value is None) == bool(part.commands)
    assert count > 100


def test_a_missing_run_has_a_command():
    result = attribute([resolved(100, 1, "replicated"), resolved(150, 2, "replicated")])
    commands = {part.name: part.commands for part in result.parts}
    one, two = (f"./run.sh sweep --num_devices={n}" for n in (1, 2))
    options = ["--encoder_type=cudnn_lstm", "--variable_update=independent"]
    assert [sorted(shlex.split(c)) for c in commands["contention"]] == [
        sorted([*c.split(), *options]) for c in (one, two)
    ]
    assert result.residual.value == pytest.approx(result.loss.value)


def test_the_command_trains_exactly_the_missing_run():
    options = {
        "num_units": 64,
        "optimizer": "sgd",
        "all_reduce_spec": "xring",
        "gradient_repacking": 2,
    }
    runs = [
        resolved(100, 1, "replicated", **options),
        resolved(150, 2, "replicated", **options),
    ]
    result = attribute(runs)
    supplied = []
    for line in {command for part in result.parts for command in part.commands}:
        parsed = flags.parse(shlex.split(line)[2:], configs.OPTIONS)
        mode = parsed.pop("variable_update")
        n = parsed.pop("num_devices")
        supplied.append(resolved(90 * n, n, mode, **parsed))
    complete = attribute([*supplied, *runs])
    assert all(part.value for part in complete.parts)
    assert complete.residual.value == 0


def test_no_attribution_without_a_baseline_or_on_one_device():
    (one,) = rows.build_rows([resolved(100)])
    (two,) = rows.build_rows([resolved(180, 2)])
    assert split(one, [one]) is None
    assert split(two, [two]) is None


def test_padding_is_the_share_of_positions_without_a_word():
    (row,) = rows.build_rows([resolved(100, 2, positions=[10, 10])])
    assert attribution.padding(row) == pytest.approx(0.1)


def noisy_runs(noise, total):
    runs = []
    for n, mode in itertools.product((1, 2, 4), ("independent", "replicated")):
        for _ in range(random.randint(1, 4)):
            rate = random.uniform(30, 120) * n * random.uniform(1 - noise, 1 + noise)
            runs.append(resolved(rate, n, mode, global_batch_size=total))
    return runs


def test_the_numbers_of_a_row_agree():
    """Try noise of every size and parts of every sign."""
    random.seed(7)
    count = 0
    for _ in range(60):
        noise = random.choice([0.002, 0.02, 0.2, 0.6])
        table = rows.build_rows(noisy_runs(noise, random.choice([0, 64])))
        for result in filter(None, attribution.attribute_all(table, table)):
            count += 1
            check_agreement(result)
    assert count > 150


def check_agreement(result):
    row = result.row
    loss = result.loss_points
    efficiency = row.metric(EFFICIENCY).scaled(100)
    assert loss.value == pytest.approx(100 - efficiency.value)
    if efficiency.ends:
        assert efficiency.low >= 0
        ends = (100 - efficiency.high, 100 - efficiency.low)
        assert loss.ends == pytest.approx(ends)
    for part in (*result.parts, result.unexplained):
        points = part.points
        if points and points.ends:
            ends = [end * result.ideal.value / 100 for end in points.ends]
            assert part.value.ends == pytest.approx(ends, abs=1e-6)
            assert points.high <= max(100, points.value)
            assert not (part.is_significant and points.low <= 0 <= points.high)
    parts = (*result.significant_parts, result.unexplained)
    total = sum(part.points.value for part in parts)
    assert total == pytest.approx(loss.value, abs=1e-6)
    is_weak = not row.options["global_batch_size"]
    if row.options["variable_update"] == "independent" and is_weak:
        (part,) = result.parts
        assert part.name == "contention"
        assert part.points.ends == loss.ends


def repeated(rates, **changes):
    runs = []
    for n, rate in rates:
        for factor in (0.999, 1, 1.001):
            runs.append(changed(resolved(rate * factor, n), **changes))
    return runs


def crowded(count, cores=2, **parts):
    return {
        "resolved": {
            "cpu_affinity": [*range(min(count, cores))],
            "oversubscribed": count > cores,
        },
        **parts,
    }


def test_oversubscription_is_an_exact_part():
    one = repeated([(1, 100)], **crowded(1))
    result = attribute([*one, *repeated([(4, 180)], **crowded(4))])
    shares = {part.name: part.points for part in result.parts}
    assert shares["oversubscription"].ends == (50.0, 50.0)
    assert shares["contention"].value == pytest.approx(5, abs=0.01)
    names = [part.name for part in result.significant_parts]
    assert names == ["oversubscription", "contention"]
    noise = [changed(resolved(180 * scale, 4), **crowded(4)) for scale in (0.5, 2.0)]
    noisy = attribute([*one, *noise])
    names = [part.name for part in noisy.displayed_parts]
    assert names == ["oversubscription", "the rest"]
    ends = [end - 50 for end in noisy.loss_points.ends]
    assert noisy.unexplained.points.ends == pytest.approx(ends)
    enough = attribute([*one, *repeated([(4, 180)], **crowded(4, cores=4))])
    assert [part.name for part in enough.parts] == ["contention"]


@pytest.mark.parametrize(
    "shares",
    [{("independent", 1): 0.2}, {("independent", 1): 0.12, ("replicated", 2): 0.12}],
)
def test_load_on_any_row_of_a_part_may_explain_it(shares):
    """Both modes reach 95 %. The effects of load on several rows add up."""
    configurations = set(itertools.product(("independent", "replicated"), (1, 2)))
    runs = []
    for mode, n in sorted(configurations):
        share = shares.get((mode, n), 0.0)
        load = {"load": {"others": share / n, "steal": 0.0, "seconds": 9.0}}
        rate = 100 * n * (0.95 if n > 1 else 1.0) * (1 - share)
        for factor in (0.999, 1.0, 1.001):
            run = resolved(rate * factor, n, mode)
            runs.append(changed(run, **crowded(n), environment=load))
    result = attribute(runs)
    assert [part.name for part in result.parts] == ["contention", "exchange"]
    assert all(part.may_be_load for part in result.parts)
    assert not result.is_significant
    used = {(row.options["variable_update"], row.num_devices) for row in result.rows}
    assert used == configurations


def test_parts_within_the_noise_are_not_displayed():
    noisy = [resolved(rate, 1) for rate in (90, 110)]
    noisy += [resolved(rate, 2) for rate in (171, 209)]
    result = attribute(noisy)
    assert not result.is_significant
    assert result.displayed_parts == ()
    assert result.unexplained.points == result.loss_points
    repeats, points = result.useful_repeats()
    assert repeats == 5
    assert 0 < points < result.loss_points.half_width
    error = result.loss_points.standard_error
    degrees = result.loss_points.degrees
    effect = t_foreseeable(0.975, 0.80, degrees, degrees * 4) * error / 2.5**0.5
    assert points == pytest.approx(effect)
    assert attribute(noisy * 20).is_significant


def test_rounding_of_floating_point_is_not_a_part():
    """Even towers, and a mode that scales like independent replicas, lose nothing."""
    rng = random.Random(1)
    kinds = [
        ("replicated", "constant"),
        ("replicated", "device"),
        ("independent", "device"),
    ]
    for _ in range(60):
        n = rng.choice([2, 3, 6, 8])
        positions = rng.randint(1, 5000)
        rate = rng.uniform(10, 1e5)
        runs = []
        for count, kind in itertools.product((1, n), kinds):
            runs += [resolved(rate * count, count, *kind, [positions] * count)] * 2
        table = rows.build_rows(runs)
        for loss in filter(None, attribution.attribute_all(table, table)):
            assert not loss.is_significant
            assert not loss.unexplained.is_significant
            assert set(loss.unexplained.points.ends) == {0.0}

"""Test the split of losses against known parts, and that the parts add up."""

import itertools
import random
import shlex

import pytest

from rnn_scaling.analysis import attribution, rows
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.student import t_foreseeable
from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from tests.support.records import change_record
from tests.support.scaling_runs import make_resolved_run

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
        make_resolved_run(100),
        make_resolved_run(180, 2),
        make_resolved_run(99, 1, "replicated"),
        make_resolved_run(150, 2, "replicated"),
    ]
    result = attribute(runs)
    ideal = 2 * 99
    assert values(result) == {
        "contention": pytest.approx(ideal * (1 - 180 / 200), rel=1e-3),
        "exchange": pytest.approx(ideal * (180 / 200 - 150 / 198), rel=1e-3),
    }
    assert result.residual.value == 0


def test_a_mode_that_is_slower_on_one_device_loses_no_scaling():
    """All rows scale at 75 %. The mode and the text halve every rate."""
    runs = [make_resolved_run(100), make_resolved_run(150, 2)]
    runs += [
        make_resolved_run(50, 1, "replicated"),
        make_resolved_run(75, 2, "replicated"),
    ]
    runs.append(make_resolved_run(25, 1, "replicated", "text", [10]))
    runs.append(make_resolved_run(37.5, 2, "replicated", "text", [10, 10]))
    result = attribute(runs)
    shares = {part.name: part.points.value for part in result.parts}
    assert shares.pop("contention") == pytest.approx(25, abs=0.01)
    assert all(share == pytest.approx(0, abs=0.01) for share in shares.values())


def text_runs(positions=(10, 10)):
    return [
        make_resolved_run(100),
        make_resolved_run(180, 2),
        make_resolved_run(99, 1, "replicated"),
        make_resolved_run(150, 2, "replicated"),
        make_resolved_run(90, 1, "replicated", "text"),
        make_resolved_run(120, 2, "replicated", "text", list(positions)),
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
        make_resolved_run(100, 1, global_batch_size=64),
        make_resolved_run(80, 1, batch_size=32),
        make_resolved_run(150, 2, global_batch_size=64),
    ]
    result = attribute(runs)
    assert values(result) == {
        "fixed cost": pytest.approx(40, rel=1e-3),
        "contention": pytest.approx(10, rel=1e-2),
    }
    assert result.residual.value == 0


def test_a_remainder_is_counted_once_as_imbalance():
    """Divide 33 pairs among 4 devices, so that 8.25 of 9 positions are used."""
    rate = 100 * 33 / 9
    sizes = [9, 8, 8, 8]
    runs = []
    for source in ("device", "text"):
        runs += [
            make_resolved_run(100, 1, data=source, global_batch_size=33),
            make_resolved_run(100, 1, data=source, batch_size=9),
        ]
        runs.append(
            make_resolved_run(
                rate, 4, "independent", source, sizes, global_batch_size=33
            )
        )
    result = attribute(runs)
    shares = {part.name: part.points.value for part in result.parts}
    assert shares.pop("imbalance") == pytest.approx(100 * (1 - 8.25 / 9), abs=0.01)
    assert all(share == pytest.approx(0, abs=0.01) for share in shares.values())


def test_the_commands_train_exactly_the_missing_runs():
    options = {"num_units": 64, "all_reduce_spec": "xring", "gradient_repacking": 2}
    runs = [
        make_resolved_run(50.0 * (n + 1), n, "replicated", **options) for n in (1, 2)
    ]
    supplied = []
    for part in attribute(runs).parts:
        for command in part.commands:
            lists = flags.parse(shlex.split(command)[2:], configs.OPTIONS)
            mode = lists.pop("variable_update")
            n = lists.pop("num_devices")
            supplied.append(make_resolved_run(90 * n, n, mode, **lists))
    complete = attribute([*supplied, *runs])
    assert all(part.value for part in complete.parts)
    assert complete.residual.value == 0


def test_no_attribution_without_a_baseline_or_on_one_device():
    [one] = rows.build_rows([make_resolved_run(100)])
    [two] = rows.build_rows([make_resolved_run(180, 2)])
    assert split(one, [one]) is None
    assert split(two, [two]) is None


def test_padding_is_the_share_of_positions_without_a_word():
    [row] = rows.build_rows([make_resolved_run(100, 2, positions=[10, 10])])
    assert row.padding == pytest.approx(0.1)


def make_noisy_runs(noise, total):
    """Return runs of some of the modes and data sources, with gaps."""
    runs = []
    for n, mode, data in itertools.product((1, 2, 4), MODES, ("device", "text")):
        for _ in range(random.randint(0, 3)):
            rate = random.uniform(30, 120) * n * random.uniform(1 - noise, 1 + noise)
            options = {"positions": [7] * n, "global_batch_size": total}
            runs.append(make_resolved_run(rate, n, mode, data, **options))
    return runs


def test_the_numbers_of_a_row_agree():
    """Try noise of every size and parts of every sign."""
    random.seed(7)
    count = 0
    for _ in range(20):
        noise = random.choice([0.002, 0.02, 0.2, 0.6])
        table = rows.build_rows(make_noisy_runs(noise, random.choice([0, 64])))
        for result in filter(None, attribution.attribute_all(table, table)):
            count += 1
            check_agreement(result)
    assert count > 50


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
    known = [part.value.value for part in result.parts if part.value]
    residual = result.residual.value
    assert sum(known) + residual == pytest.approx(result.loss.value, rel=1e-9)
    assert residual == 0 or len(known) < len(result.parts)
    assert all(bool(part.value) != bool(part.commands) for part in result.parts)
    parts = (*result.significant_parts, result.unexplained)
    total = sum(part.points.value for part in parts)
    assert total == pytest.approx(loss.value, abs=1e-6)
    is_weak = not row.options["global_batch_size"]
    is_alone = row.options["variable_update"] == "independent"
    if is_alone and is_weak and row.options["data_source"] == "device":
        [part] = result.parts
        assert part.name == "contention"
        assert part.points.ends == loss.ends


def make_repeats(rates, **changes):
    runs = []
    for n, rate in rates:
        for factor in (0.999, 1, 1.001):
            runs.append(change_record(make_resolved_run(rate * factor, n), **changes))
    return runs


def make_crowded_environment(count, cores=2, **parts):
    return {
        "resolved": {
            "cpu_affinity": [*range(min(count, cores))],
            "oversubscribed": count > cores,
        },
        **parts,
    }


def test_oversubscription_is_an_exact_part():
    one = make_repeats([(1, 100)], **make_crowded_environment(1))
    result = attribute([*one, *make_repeats([(4, 180)], **make_crowded_environment(4))])
    shares = {part.name: part.points for part in result.parts}
    assert shares["oversubscription"].ends == (50.0, 50.0)
    assert shares["contention"].value == pytest.approx(5, abs=0.01)
    names = [part.name for part in result.significant_parts]
    assert names == ["oversubscription", "contention"]
    enough = attribute(
        [*one, *make_repeats([(4, 180)], **make_crowded_environment(4, cores=4))]
    )
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
            run = make_resolved_run(rate * factor, n, mode)
            runs.append(
                change_record(run, **make_crowded_environment(n), environment=load)
            )
    result = attribute(runs)
    assert [part.name for part in result.parts] == ["contention", "exchange"]
    assert all(part.may_be_load for part in result.parts)
    assert not result.is_significant
    used = {(row.options["variable_update"], row.num_devices) for row in result.rows}
    assert used == configurations


def test_parts_within_the_noise_are_not_displayed():
    noisy = [make_resolved_run(rate, 1) for rate in (90, 110)]
    noisy += [make_resolved_run(rate, 2) for rate in (171, 209)]
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
            runs += [
                make_resolved_run(rate * count, count, *kind, [positions] * count)
            ] * 2
        table = rows.build_rows(runs)
        for loss in filter(None, attribution.attribute_all(table, table)):
            assert not loss.is_significant
            assert not loss.unexplained.is_significant
            assert set(loss.unexplained.points.ends) == {0.0}

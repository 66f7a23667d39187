"""The parts of the loss add up to it, whatever was measured; what is missing is named with its command."""

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
    """The attribution of the last record."""
    table = rows.build_rows(records)
    return split(next(row for row in table if records[-1] in row.records), table)


def values(result):
    return {
        part.name: part.value.value if part.value else None for part in result.parts
    }


def test_exchange_is_what_the_mode_loses_beyond_independent_replicas():
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
    [("replicated", "device"), ("independent", "text"), ("replicated", "text")],
)
def test_what_is_slower_on_one_device_already_is_no_loss_of_scaling(mode, data):
    """Every row scales at 75 %; the mode and the text are half as fast on any number of devices."""
    fast = [resolved(100), resolved(150, 2)]
    middle = (
        [resolved(50, 1, mode), resolved(75, 2, mode)] if mode != "independent" else []
    )
    slow = (
        [resolved(25, 1, mode, data, [10]), resolved(37.5, 2, mode, data, [10, 10])]
        if data == "text"
        else []
    )
    result = attribute([*fast, *middle, *slow])
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


def test_input_and_imbalance_share_what_the_data_source_costs():
    even, uneven = attribute(text_runs()), attribute(text_runs((15, 5)))
    assert values(even)["imbalance"] == 0
    assert values(even)["input"] == pytest.approx(
        180 * (150 / 198 - 120 / 180), rel=1e-2
    )
    # Evenly spread, a step of the uneven run would take 10/15 of its time.
    assert values(uneven)["imbalance"] == pytest.approx(120 * 0.5, rel=1e-3)
    both = values(uneven)["imbalance"] + values(uneven)["input"]
    assert both == pytest.approx(values(even)["input"], rel=1e-6)


def test_fixed_cost_is_what_a_smaller_share_loses_on_one_device():
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
def test_a_remainder_is_imbalance_once(data):
    """33 pairs on 4 devices (9, 8, 8, 8) and time proportional to them: 8.25 of 9 are used, no more is lost."""
    rate, sizes = 100 * 33 / 9 * 9 / 9, [9, 8, 8, 8]
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
    everything = [
        resolved(random.uniform(50, 150) * n, n, mode, data, [7] * n)
        for n, mode, data in itertools.product((1, 2, 4), MODES, ("device", "text"))
    ]
    seen = 0
    for _ in range(60):
        runs = random.sample(everything, random.randint(2, len(everything)))
        table = rows.build_rows(runs)
        for row in table:
            result = split(row, table)
            if result is None:
                continue
            seen += 1
            total = (
                sum(part.value.value for part in result.parts if part.value)
                + result.residual.value
            )
            assert total == pytest.approx(result.loss.value, rel=1e-9)
            if all(part.value for part in result.parts):
                assert result.residual.value == 0
            assert all(
                (part.value is None) == bool(part.commands) for part in result.parts
            )
    assert seen > 100


def test_a_missing_run_is_named_by_the_command_that_supplies_it():
    result = attribute([resolved(100, 1, "replicated"), resolved(150, 2, "replicated")])
    commands = {part.name: part.commands for part in result.parts}
    one, two = (f"./run.sh sweep --num_devices={n}" for n in (1, 2))
    options = ["--encoder_type=cudnn_lstm", "--variable_update=independent"]
    assert [sorted(shlex.split(c)) for c in commands["contention"]] == [
        sorted([*c.split(), *options]) for c in (one, two)
    ]
    assert result.residual.value == pytest.approx(result.loss.value)


def test_the_named_command_makes_exactly_the_missing_run():
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
        given = flags.parse(shlex.split(line)[2:], configs.OPTIONS)
        mode, n = given.pop("variable_update"), given.pop("num_devices")
        supplied.append(resolved(90 * n, n, mode, **given))
    complete = attribute([*supplied, *runs])
    assert all(part.value for part in complete.parts)
    assert complete.residual.value == 0


def test_no_attribution_without_a_baseline_or_on_one_device():
    (one,) = rows.build_rows([resolved(100)])
    (two,) = rows.build_rows([resolved(180, 2)])
    assert split(one, [one]) is None and split(two, [two]) is None


def test_padding_is_the_share_of_positions_without_a_word():
    (row,) = rows.build_rows([resolved(100, 2, positions=[10, 10])])
    assert attribution.padding(row) == pytest.approx(0.1)


def test_the_points_lost_are_100_less_the_efficiency_with_the_same_interval():
    """A rate that occurs twice is one input, so that nothing left has no interval."""
    runs = [
        resolved(rate * n, n)
        for noise in (0.99, 1.0, 1.02)
        for rate, n in ((100 * noise, 1), (90 / noise, 2))
    ]
    result = attribute(runs)
    (part,) = result.parts
    assert (
        part.value.low
        < part.value.value
        < part.value.high
        == pytest.approx(result.loss.high)
    )
    efficiency = result.row.metric(EFFICIENCY).scaled(100)
    assert result.loss_points.value == pytest.approx(100 - efficiency.value)
    assert result.loss_points.half_width == pytest.approx(
        efficiency.half_width, rel=0.01
    )
    assert part.points == result.loss_points
    assert result.residual.ends == result.residual_points.ends == (0, 0)


def test_no_number_of_a_row_contradicts_another_or_is_more_than_there_is():
    """Noise of every size, parts of every sign: loss = 100 - efficiency with its ends, items the same shares."""
    random.seed(7)
    seen = 0
    for _ in range(200):
        noise = random.choice([0.002, 0.02, 0.2, 0.6])
        runs = [
            resolved(
                random.uniform(30, 120) * n * random.uniform(1 - noise, 1 + noise),
                n,
                mode,
                global_batch_size=total,
            )
            for total in random.choice([(0,), (64,)])
            for n in (1, 2, 4)
            for mode in ("independent", "replicated")
            for _ in range(random.randint(1, 4))
        ]
        table = rows.build_rows(runs)
        for row in table:
            result = split(row, table)
            if result is None:
                continue
            seen += 1
            efficiency, loss = row.metric(EFFICIENCY), result.loss_points
            assert loss.value == pytest.approx(100 - 100 * efficiency.value)
            if efficiency.ends:
                assert efficiency.low >= 0
                assert loss.ends == pytest.approx(
                    (100 - 100 * efficiency.high, 100 - 100 * efficiency.low)
                )
            for part in (*result.parts, result.unexplained):
                if part.points and part.points.ends:
                    ends = [end * result.ideal.value / 100 for end in part.points.ends]
                    assert part.value.ends == pytest.approx(ends, abs=1e-6)
                    assert part.points.high <= max(100, part.points.value)
                    assert not (
                        part.is_significant and part.points.low <= 0 <= part.points.high
                    )
            total = sum(
                part.points.value
                for part in (*result.significant_parts, result.unexplained)
            )
            assert total == pytest.approx(loss.value, abs=1e-6)
            names = {
                part.name
                for part in result.parts
                if part.points and part.points.ends == loss.ends
            }
            if (
                row.options["variable_update"] == "independent"
                and not row.options["global_batch_size"]
            ):
                assert names == {"contention"}
    assert seen > 500


def repeated(rates, **changes):
    return [
        changed(resolved(rate, n), **changes)
        for (n, rate) in rates
        for rate in (rate * 0.999, rate, rate * 1.001)
    ]


def crowded(count, cores=2, **parts):
    return {
        "resolved": {
            "cpu_affinity": [*range(min(count, cores))],
            "oversubscribed": count > cores,
        },
        **parts,
    }


def test_devices_beyond_the_cores_are_a_part_of_their_own_that_is_known_exactly():
    one, four = repeated([(1, 100)], **crowded(1)), repeated([(4, 180)], **crowded(4))
    result = attribute([*one, *four])
    shares = {part.name: part.points for part in result.parts}
    assert shares["oversubscription"].ends == (50.0, 50.0)
    assert shares["contention"].value == pytest.approx(5, abs=0.01)
    assert [part.name for part in result.significant_parts] == [
        "oversubscription",
        "contention",
    ]
    noise = [changed(resolved(180 * scale, 4), **crowded(4)) for scale in (0.5, 2.0)]
    noisy = attribute([*one, *noise])
    assert [part.name for part in noisy.displayed_parts] == [
        "oversubscription",
        "the rest",
    ]
    assert noisy.unexplained.points.ends == pytest.approx(
        [end - 50 for end in noisy.loss_points.ends]
    )
    enough = attribute([*one, *repeated([(4, 180)], **crowded(4, cores=4))])
    assert [part.name for part in enough.parts] == ["contention"]


def test_what_other_processes_may_have_taken_is_no_part():
    quiet = repeated([(1, 100), (2, 160)], **crowded(2))
    assert attribute(quiet).is_significant
    loaded = {"environment": {"load": {"others": 0.58, "steal": 0.0, "seconds": 9.0}}}
    one_busy = [*quiet[:-1], changed(quiet[-1], **crowded(2), **loaded)]
    assert attribute(one_busy).is_significant  # the disturbed run does not count
    on_two = [run.config["num_devices"] == 2 for run in quiet]
    busy = []
    for run, is_loaded in zip(quiet, on_two):
        busy.append(changed(run, **crowded(2), **loaded) if is_loaded else run)
    result = attribute(busy)
    assert not result.is_significant
    assert result.parts[0].points.low > 0
    assert not result.displayed_parts


@pytest.mark.parametrize("others, is_told", [(0.02, True), (0.045, False)])
def test_load_is_judged_by_the_cores_of_one_device(others, is_told):
    """4.5 % of two cores may be 9 % of one: what a step that waits for both lost may be that; 2 % is not noticed."""
    load = {"environment": {"load": {"others": others, "steal": 0.0, "seconds": 9.0}}}
    busy = [changed(each, **load) for each in repeated([(2, 185)], **crowded(2))]
    assert (
        attribute([*repeated([(1, 100)], **crowded(1)), *busy]).is_significant
        is is_told
    )


@pytest.mark.parametrize(
    "shares",
    [{("independent", 1): 0.2}, {("independent", 1): 0.12, ("replicated", 2): 0.12}],
)
def test_load_on_any_row_behind_a_part_is_allowed_for(shares):
    """Both modes reach 95 %; load slows the rows: what it may have moved adds up over them, wherever they stand."""
    runs = []
    for mode, n in (
        (mode, n) for mode in ("independent", "replicated") for n in (1, 2)
    ):
        taken = shares.get((mode, n), 0.0)
        load = {"load": {"others": taken / n, "steal": 0.0, "seconds": 9.0}}
        rate = 100 * n * (0.95 if n > 1 else 1.0) * (1 - taken)
        for scale in (0.999, 1.0, 1.001):
            runs.append(
                changed(resolved(rate * scale, n, mode), **crowded(n), environment=load)
            )
    result = attribute(runs)
    assert {
        part.name: (part.is_significant, part.may_be_load) for part in result.parts
    } == {
        "contention": (False, True),
        "exchange": (False, True),
    }
    assert {
        (row.options["variable_update"], row.num_devices) for row in result.rows
    } == {(mode, n) for mode in ("independent", "replicated") for n in (1, 2)}


def test_parts_that_cannot_be_told_from_nothing_are_not_shown():
    noisy = [
        resolved(rate, n)
        for n, base in ((1, 100), (2, 190))
        for rate in (base * 0.9, base * 1.1)
    ]
    result = attribute(noisy)
    assert (
        not result.is_significant
        and result.displayed_parts == ()
        and result.unexplained.points == result.loss_points
    )
    repeats, points = result.would_show()
    assert repeats == 5 and 0 < points < result.loss_points.half_width
    error, degrees = result.loss_points.standard_error, result.loss_points.degrees
    found = t_foreseeable(0.975, 0.80, degrees, degrees * 4) * error / 2.5**0.5
    assert points == pytest.approx(found), "shown in 80 of 100 cases, as series are"
    many = [
        resolved(rate, n)
        for n, base in ((1, 100), (2, 190))
        for rate in (base * 0.9, base * 1.1) * 20
    ]
    assert attribute(many).is_significant


def test_rounding_of_floating_point_is_no_part():
    """Even towers, and a mode that scales as independent replicas do: nothing is lost, to the last digit."""
    random_ = random.Random(1)
    for _ in range(60):
        n, positions, rate = (
            random_.choice([2, 3, 6, 8]),
            random_.randint(1, 5000),
            random_.uniform(10, 1e5),
        )
        kinds = [
            ("replicated", "constant"),
            ("replicated", "device"),
            ("independent", "device"),
        ]
        runs = [
            resolved(rate * c, c, *kind, [positions] * c)
            for c in (1, n)
            for kind in kinds
            for _ in range(2)
        ]
        table = rows.build_rows(runs)
        for loss in filter(None, attribution.attribute_all(table, table)):
            assert (
                not loss.significant_parts
                and not loss.unexplained.is_significant
                and set(loss.unexplained.points.ends) == {0.0}
            )
    uneven = rows.build_rows([resolved(100, 2, positions=[9, 10])])
    assert attribution.imbalance(uneven[0]) == pytest.approx(1 / 19)
    hardly = [
        resolved(rate * c, c, positions=[100000, 100001][:c])
        for c in (1, 2)
        for rate in (100, 100)
    ]
    assert not attribute(hardly).significant_parts  # it would print as 0.000

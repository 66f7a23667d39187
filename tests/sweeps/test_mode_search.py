"""The comparisons, measurements and ranking of recommend, on a simulated machine."""

import math
import random

import pytest

from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.sweeps.mode_search import ModeSearch, plan_candidates
from tests.support.records import make_record
from tests.support.rounds import Minutes

PS, AUTO = "parameter_server", "replicated, all_reduce_spec=auto"
COLLECTIVE = "replicated, all_reduce_spec=collective"
TRUTH = {PS: 80.0, AUTO: 90.0, COLLECTIVE: 108.0}


def measure_runs(search, truth=TRUTH, scatter=0.01, minutes=math.inf, most=100):
    """Return the records of the runs that the search asks for."""
    rng = random.Random(1)
    rounds = Minutes(minutes)
    records = rounds.records
    while runs := search.choose(rounds):
        for run in runs[: most - len(records)]:
            rate = truth[search.name_candidate(run)]
            seconds = (
                [100 / (rate * math.exp(rng.gauss(0, scatter)))] * 5 if rate else None
            )
            status = ("ok",) if rate else ("failed",)
            records[run.label] = make_record(
                *status, config=run.options, **({"seconds": seconds} if rate else {})
            )
        if len(records) >= most:
            break
    return records


def two_cores(**lists):
    return plan_candidates(
        {name: list(values) for name, values in lists.items()}, num_gpus=0, num_cores=2
    )


def test_all_modes_that_train_one_model_are_compared_on_all_devices():
    runs = two_cores()
    assert sorted(map(ModeSearch(runs).name_candidate, runs)) == sorted(TRUTH)
    assert {run.config.devices.num_devices for run in runs} == {2}
    assert len(two_cores(num_devices=[1])) == 1, "a single device exchanges nothing"
    on_gpus = plan_candidates({}, num_gpus=4, num_cores=8)
    assert {run.config.update.param_server_device for run in on_gpus} == {"cpu", "gpu"}
    assert any(run.config.update.all_reduce_spec == "hierarchical" for run in on_gpus)


def test_lists_of_values_are_compared():
    runs = two_cores(
        variable_update=["replicated"],
        all_reduce_spec=["auto", "xring"],
        batch_size=[32, 64],
    )
    options = [
        (run.config.update.all_reduce_spec, run.config.training.batch_size)
        for run in runs
    ]
    assert sorted(options) == [("auto", 32), ("auto", 64), ("xring", 32), ("xring", 64)]


@pytest.mark.parametrize(
    "lists, words",
    [
        (
            {"variable_update": ["replicated"], "all_reduce_spec": ["nccl"]},
            "nccl needs --device=gpu",
        ),
        ({"keras_backend": ["jax"]}, "--keras_backend=jax"),
    ],
)
def test_what_cannot_run_is_refused(lists, words):
    with pytest.raises(FlagErrors) as error:
        two_cores(**lists)
    assert any(words in line for line in error.value.lines)


def test_the_fastest_is_found_in_two_rounds():
    search = ModeSearch(two_cores())
    records = measure_runs(search)
    ranking = search.rank_candidates(records)
    assert len(records) == 6
    assert ranking.contenders == [ranking.reference] == [COLLECTIVE]


def test_a_third_round_is_made_of_those_that_it_could_separate():
    search = ModeSearch(two_cores())
    records = measure_runs(
        search, {PS: 50.0, AUTO: 97.0, COLLECTIVE: 100.0}, scatter=0.006
    )
    assert 6 < len(records) <= 8
    assert all("parameter" not in label for label in records if label.endswith(".r3"))


def test_when_time_is_short_the_first_ones_are_measured_and_the_rest_is_named():
    search = ModeSearch(two_cores())
    records = measure_runs(search, minutes=4)
    assert (
        len(records) == 4 and len(search.make_advice(records, "").data["left_out"]) == 1
    )


def test_a_mode_that_fails_is_named_and_not_run_again():
    search = ModeSearch(two_cores())
    records = measure_runs(search, {**TRUTH, COLLECTIVE: 0.0})
    assert (
        len(records) == 5 and len(search.make_advice(records, "").data["failed"]) == 1
    )
    nothing = ModeSearch(two_cores())
    assert (
        nothing.rank_candidates(measure_runs(nothing, dict.fromkeys(TRUTH, 0.0)))
        is None
    )


def test_what_was_measured_until_an_interruption_is_ranked():
    search = ModeSearch(two_cores())
    records = measure_runs(search, most=3)
    assert len(search.rank_candidates(records).standings) == 3
    runs = search.choose(Minutes(records=records))
    assert {run.repeat for run in runs} == {2}

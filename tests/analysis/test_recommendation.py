"""What recommend measures next and what it says, on machines whose truth is known."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.recommendation import simulated
from rnn_scaling.analysis.recommendation import factors
from rnn_scaling.analysis.recommendation.factors import FACTORS, Candidate, Machine
from rnn_scaling.analysis.recommendation.ranking import EQUAL, FASTER, OPEN, SLOWER, rank, worth_a_round
from rnn_scaling.analysis.recommendation.search import CHECK, MODES, MOST, OPTIONS, Budget, Search, Trial
from rnn_scaling.analysis.student import range_quantile, t_quantile
from rnn_scaling.settings.flags import FlagErrors

TWO_CORES = Machine(num_gpus=0, num_cores=2)
ENDLESS = Budget(math.inf, lambda trial: 1.0)
PS, COLLECTIVE, PSCPU = "parameter_server", "replicated with all_reduce_spec=collective", "replicated"


def test_the_range_of_equal_means_is_that_of_published_tables():
    """Studentized range at 5 % (Harter, Annals of Mathematical Statistics 31, 1960), over the root of two."""
    for count, degrees, table in [(3, 10, 3.877), (5, 5, 5.673), (6, 6, 5.628), (10, 20, 5.008), (4, 3, 6.825)]:
        assert range_quantile(0.95, count, degrees) * math.sqrt(2) == pytest.approx(table, rel=1e-3)
    assert range_quantile(0.95, 2, 7) == t_quantile(0.975, 7)
    with pytest.raises(ValueError, match="two means"):
        range_quantile(0.95, 1, 5)


def share(repetitions, truth, scatter, happens):
    """In which share of simulated rankings something happens."""
    rng = random.Random(1)
    return sum(happens(simulated(truth, scatter, 0.0, rng)) for _ in range(repetitions)) / repetitions


def test_a_known_best_is_named_and_a_wrong_one_hardly_ever():
    truth = {"a": 1.0, "best": 1.1, "c": 1.0, "d": 0.9}
    assert share(300, truth, 0.01, lambda found: found.contenders == ["best"]) > 0.98
    assert share(300, truth, 0.03, lambda found: found.contenders == ["best"]) > 0.25
    assert share(300, truth, 0.03, lambda found: "best" in found.contenders) > 0.98


@pytest.mark.parametrize("count, repetitions", [(2, 2000), (3, 500), (6, 200)])
def test_ties_are_said_as_ties(count, repetitions):
    tied = dict.fromkeys(range(count), 1.0)
    nothing_is_slower = lambda found: len(found.contenders) == count  # noqa: E731
    assert share(repetitions, tied, 0.02, nothing_is_slower) >= 0.95
    beside_slow = {**dict.fromkeys(range(2), 1.0), **dict.fromkeys(range(2, 2 + count), 0.7)}
    assert share(150, beside_slow, 0.02, lambda found: {0, 1} <= set(found.contenders)) >= 0.95


def test_equal_within_a_few_per_cent_is_said_only_of_what_differs_by_less():
    def says_too_little(found):
        return any(abs(0.96 - 1) > (found.standings[name].within or 1) for name in found.undecided)

    assert share(300, {"a": 1.0, "b": 0.96}, 0.01, says_too_little) <= 0.05
    close = rank({"a": [100.0, 100.2], "b": [100.3, 99.9], "c": [80.0, 80.1]})
    assert close.undecided and close.standings["c"].verdict == SLOWER
    assert all((close.standings[name].within or 1) < EQUAL for name in close.undecided)


def test_one_round_tells_nothing_and_nothing_at_all_is_an_error():
    once = rank({"a": [100.0], "b": [50.0]})
    assert once.standings["b"].verdict == OPEN and once.standings["b"].within is None
    assert worth_a_round(once, ["b"]) == ["b"]
    with pytest.raises(ValueError, match="at least one"):
        rank({})


def test_a_third_round_is_made_where_it_could_tell():
    noisy = rank({"a": [100.0, 140.0], "b": [101.0, 139.0]})
    assert noisy.undecided and worth_a_round(noisy, noisy.undecided) == []  # three rounds of such would show nothing
    near = rank({"a": [100.0, 101.0], "b": [96.0, 97.0], "c": [60.0, 61.0]})
    assert near.undecided == ["b"] and worth_a_round(near, ["b", "c"]) == ["b"]
    told = rank({"a": [100.0, 101.0], "b": [80.0, 81.0], "c": [60.0, 61.0]})
    assert worth_a_round(told, ["b", "c"]) == []


class FakeMachine:
    """Runs take no time; rates follow from the options by a rule, and noise."""

    def __init__(self, rule, scatter=0.01, seed=1):
        self.rule, self.scatter, self.rng, self.trials = rule, scatter, random.Random(seed), []

    def recommend(self, search, budget=ENDLESS, most_trials=10_000):
        rates = {}
        while trials := search.next_trials(rates, budget):
            for trial in trials[: most_trials - len(rates)]:
                rate = self.rule(search.given(trial.candidate))
                rates[trial] = rate and rate * math.exp(self.rng.gauss(0, self.scatter))
                self.trials.append(trial)
            if len(rates) >= most_trials:
                break
        return search.answer(rates)


def rule(given):
    """Replicated with collective is best, bfloat16 much faster, batch 64 too, four threads a little, relaxed slower."""
    rate = {"parameter_server": 80.0, "replicated": 90.0}[given["variable_update"]]
    rate *= 1.2 if given.get("all_reduce_spec") == "collective" else 1.0
    rate *= 1.5 if given.get("compute_dtype") == "bfloat16" else 1.0
    rate *= {64: 1.18, 128: 1.19}.get(given.get("batch_size", 32), 1.0)
    rate *= 1.1 if given.get("inter_op_parallelism_threads") == 4 else 1.0
    return rate * (0.9 if given.get("variable_consistency") == "relaxed" else 1.0)


def search_of(allow=frozenset(), machine=TWO_CORES, **lists):
    return Search({name: list(values) for name, values in lists.items()}, frozenset(allow), machine)


def test_the_best_is_found_stage_by_stage_and_what_changes_training_is_only_told():
    machine = FakeMachine(rule)
    answer = machine.recommend(search_of())
    assert factors.in_words(answer.modes.reference) == COLLECTIVE
    assert [factors.in_words(each) for each in answer.modes.contenders] == [COLLECTIVE]
    assert dict(answer.taken.changes) == {
        "variable_update": "replicated",
        "all_reduce_spec": "collective",
        "inter_op_parallelism_threads": 4,
    }
    assert [each.factor for each in answer.gains] == ["compute_dtype", "batch_size", "batch_size"]
    relaxed = next(each for each in answer.options.standings if each.factor == "variable_consistency")
    assert answer.options.standings[relaxed].verdict == SLOWER and answer.check is None
    stages = [trial.stage for trial in machine.trials]
    assert stages == sorted(stages) and len(set(machine.trials)) == len(machine.trials)
    assert {trial.round for trial in machine.trials} <= set(range(1, MOST + 1))


def test_what_is_allowed_is_taken_together_only_after_a_check():
    answer = FakeMachine(rule).recommend(search_of({"compute_dtype", "batch_size"}))
    assert dict(answer.taken.changes)["compute_dtype"] == "bfloat16"
    assert dict(answer.taken.changes)["batch_size"] == 64  # 128 is not told apart from it, and changes more
    assert answer.check.standings[answer.taken].verdict == FASTER and not answer.gains

    def exclusive(given):
        """Batch 64 gains nothing beside bfloat16."""
        is_half = given.get("compute_dtype") == "bfloat16"
        return rule({**given, "batch_size": 32, "inter_op_parallelism_threads": 0} if is_half else given)

    answer = FakeMachine(exclusive).recommend(search_of({"compute_dtype", "batch_size"}))
    assert dict(answer.taken.changes).get("batch_size") is None and answer.check is not None
    assert dict(answer.taken.changes)["compute_dtype"] == "bfloat16"


def test_the_right_modes_and_options_are_found_again_and_again():
    """In noise of 2 %: the best mode is among those named, and nothing is taken that is not faster."""
    right = wrong = 0
    for seed in range(40):
        answer = FakeMachine(rule, scatter=0.02, seed=seed).recommend(search_of())
        contenders = [factors.in_words(each) for each in answer.modes.contenders]
        taken = dict(answer.taken.changes)
        right += contenders == [COLLECTIVE]
        wrong += COLLECTIVE not in contenders or taken.keys() - {
            "variable_update", "all_reduce_spec", "inter_op_parallelism_threads"
        } != set()  # fmt: skip
    assert right >= 36 and wrong <= 2


def test_when_time_is_short_the_first_ones_are_measured_and_the_rest_is_named():
    class Clock:
        left_s = 100.0

    def budget():
        return Budget(Clock.left_s, lambda trial: 10.0)

    machine, search, rates = FakeMachine(rule), search_of(), {}
    while trials := search.next_trials(rates, budget()):
        for trial in trials:
            Clock.left_s -= 10.0
            rates[trial] = machine.rule(search.given(trial.candidate))
    assert Clock.left_s >= 0
    answer = search.answer(rates)
    assert answer.taken and answer.left_out and len(answer.modes.standings) == 3
    assert {trial.stage for trial in rates} == {MODES, OPTIONS}


def test_a_second_round_of_some_is_better_than_none():
    """Runs take four times as long as they were reckoned, so that the second round of all finds no time."""
    search, rates = search_of(), {}
    rates |= {trial: rule(search.given(trial.candidate)) for trial in search.next_trials(rates, ENDLESS)}
    rates |= {trial: rule(search.given(trial.candidate)) for trial in search.next_trials(rates, ENDLESS)}
    first = search.next_trials(rates, ENDLESS)
    rates |= {trial: rule(search.given(trial.candidate)) for trial in first}
    second = search.next_trials(rates, Budget(30.0, lambda trial: 10.0))
    assert [trial.candidate for trial in second] == [trial.candidate for trial in first[:3]]
    assert {trial.round for trial in second} == {2}
    assert search.next_trials(rates, Budget(19.0, lambda trial: 10.0)) == []


def test_of_values_that_cannot_be_told_apart_the_first_is_taken():
    search = search_of({"batch_size"}, num_devices=[1])
    measured = {None: (100, 101), 64: (118, 119.5), 128: (119, 120)}
    rates = {}
    for candidate in search.options(search.modes[0]):
        if candidate.factor in ("", "batch_size"):
            two = measured[candidate.value("batch_size")]
            rates |= {Trial(OPTIONS, number, candidate): rate for number, rate in enumerate(two, 1)}
    assert search.answer(rates).taken.value("batch_size") == 64


def test_a_rough_estimate_alone_stops_nothing():
    trials = search_of().next_trials({}, Budget(60.0, lambda trial: 1000.0))
    assert len(trials) == 2


def test_what_was_measured_until_an_interruption_is_told():
    search = search_of()
    assert search.answer({}).taken is None
    machine = FakeMachine(rule)
    answer = machine.recommend(search, most_trials=2)
    assert answer.taken and all(each.verdict != SLOWER for each in answer.modes.standings.values())
    answer = FakeMachine(rule).recommend(search, most_trials=8)
    assert [factors.in_words(each) for each in answer.modes.contenders] == [COLLECTIVE]


def test_a_mode_that_fails_is_left_out_and_all_failing_recommends_nothing():
    answer = FakeMachine(lambda given: None if given.get("all_reduce_spec") else rule(given)).recommend(search_of())
    assert factors.in_words(answer.pivot) == PSCPU
    assert [factors.in_words(each) for each in answer.failed] == [COLLECTIVE]
    answer = FakeMachine(lambda given: None).recommend(search_of())
    assert answer.taken is None and len(answer.failed) == 3


def test_flags_are_fixed_and_lists_are_compared():
    names = [factors.in_words(each) for each in search_of().modes]
    assert names == [PS, PSCPU, COLLECTIVE]
    fixed = search_of(variable_update=["replicated"], all_reduce_spec=["auto"], compute_dtype=["float32"])
    assert len(fixed.modes) == 1 and fixed.base["num_devices"] == 2
    tried = {each.factor for each in fixed.options(fixed.modes[0])}
    assert "batch_size" in tried and "compute_dtype" not in tried
    listed = search_of(all_reduce_spec=["auto", "xring"], batch_size=[8, 12, 16])
    assert [factors.in_words(each) for each in listed.modes] == [
        PS,
        "replicated with all_reduce_spec=auto",
        "replicated with all_reduce_spec=xring",
    ]
    sizes = [each.value("batch_size") for each in listed.options(listed.modes[0]) if each.factor == "batch_size"]
    assert (listed.base["batch_size"], sizes) == (8, [12, 16])
    again = search_of({"batch_size"}, batch_size=[8])
    assert 16 in [each.value("batch_size") for each in again.options(again.modes[0])]


def test_measurements_as_the_seeds_had_give_their_recipe():
    """Variables on the CPU, batches copied ahead, as large a batch as fits: on 6 GPUs behind a slow PCI Express."""

    def slow_links(given):
        rate = {"parameter_server": 100.0, "replicated": 40.0}[given["variable_update"]]
        rate *= 1.5 if given.get("param_server_device") == "cpu" else 1.0
        rate *= 0.7 if given.get("prefetch_data_to_device") is False else 1.0
        return rate * {384: 1.0, 768: 1.3, 1536: 1.45}[given.get("batch_size", 384)]

    search = search_of({"batch_size"}, Machine(num_gpus=6, num_cores=12), data_source=["host"])
    answer = FakeMachine(slow_links).recommend(search)
    taken = search.given(answer.taken)
    assert (taken["variable_update"], taken["param_server_device"], taken["batch_size"]) == (
        "parameter_server",
        "cpu",
        1536,
    )
    assert "prefetch_data_to_device" not in taken  # on by itself, and slower without
    off = next(each for each in answer.options.standings if each.factor == "prefetch_data_to_device")
    assert answer.options.standings[off].verdict == SLOWER


def test_one_device_has_no_modes_and_gpus_have_their_own():
    one = search_of(num_devices=[1])
    assert [factors.in_words(each) for each in one.modes] == ["independent"]
    assert not any(each.factor == "variable_consistency" for each in one.options(one.modes[0]))
    gpus = search_of(machine=Machine(num_gpus=4, num_cores=16))
    assert {dict(each.changes).get("param_server_device") for each in gpus.modes} >= {"cpu", "gpu"}
    assert "replicated with all_reduce_spec=hierarchical" in [factors.in_words(each) for each in gpus.modes]
    assert "float16" in [each.value("compute_dtype") for each in gpus.options(gpus.modes[0])]
    assert gpus.base["preset"] == "seed"
    workers = search_of(num_workers=[2], num_devices=[1])
    assert [factors.in_words(each) for each in workers.modes] == ["collective_all_reduce"]
    images = search_of(model=["resnet50"])
    tried = {each.factor: each.value(each.factor) for each in images.options(images.modes[0])}
    assert tried["data_format"] in ("NCHW", "NHWC") and "sparse_gradients" not in tried


@pytest.mark.parametrize(
    "lists, line",
    [
        ({"num_units": [8, 16]}, "--num_units=8,16 must be one value; recommend compares variable_update"),
        ({"all_reduce_spec": ["nccl"]}, "nccl needs --device=gpu"),
        ({"num_parallel_calls": [4]}, "--num_parallel_calls=4 would be ignored here; it needs --data_source=host or"),
        ({"bos": ["x"]}, "--bos=x would be ignored here; it needs --data_source=text"),
        ({"num_units": [0]}, "--num_units=0 must be at least 1"),
    ],
)
def test_what_cannot_run_is_refused(lists, line):
    with pytest.raises(FlagErrors) as raised:
        search_of(**lists).modes  # noqa: B018
    assert line in str(raised.value)


def test_what_may_be_allowed_is_what_changes_training():
    assert factors.allowed("dtype, batch_size,variable_consistency") == {
        "compute_dtype",
        "batch_size",
        "variable_consistency",
    }
    with pytest.raises(ValueError, match="some of dtype, batch_size, relaxed"):
        factors.allowed("threads")
    assert all(bool(each.allow) == bool(each.changes) for each in FACTORS.values())


def test_rounds_have_numbers_of_their_own():
    one = Candidate()
    numbers = [Trial(stage, number, one).repeat for stage in (MODES, OPTIONS, CHECK) for number in range(1, MOST + 1)]
    assert numbers == list(range(1, 10))

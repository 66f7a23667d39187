"""The verdict on literal records: right runs, and the cause of each fault."""

from __future__ import annotations

import copy
import dataclasses
import json

import numpy as np
import pytest

from rnn_scaling.reports import wording
from rnn_scaling.verification import signatures
from rnn_scaling.verification.scripts import certificate, facts, judge
from rnn_scaling.verification.scripts.evidence import Evidence, Relation
from rnn_scaling.verification.scripts.verdict import Answer, Verdict
from rnn_scaling.verification.signatures import Cause
from tests.verification.scripts.recorded import (
    KEYS,
    NUM_STEPS,
    SIZE,
    TOKENS,
    Recorded,
    tensors,
)


@pytest.mark.parametrize("num_micro", [1, 2])
def test_runs_that_differ_by_rounding_are_right(num_micro):
    verdict = Recorded(num_micro).verdict()
    assert verdict.answer is Answer.RIGHT
    ratios = [check.ratio for check in verdict.checks if check.ratio is not None]
    assert max(ratios) < 0.5


def sum_over_ranks(recorded):
    recorded.weights *= 2


def divide_twice(recorded):
    recorded.weights /= 2


def average_ranks(recorded):
    recorded.weights[:] = 0.5


def average_micro_batches(recorded):
    recorded.weights[:] = TOKENS / TOKENS.sum(axis=0) / 2


def keep_own(recorded):
    for rank in range(2):
        recorded.weights[rank, 1 - rank] = 0


def keep_own_last(recorded):
    for rank in range(2):
        recorded.weights[rank, 1 - rank, -1] = 0


def keep_own_first(recorded):
    for rank in range(2):
        recorded.weights[rank, 1 - rank, 0] = 0


def divide_by_own_number(recorded):
    recorded.weights[0] *= 1.5
    recorded.weights[1] *= 0.75


def weigh_ranks_otherwise(recorded):
    recorded.weights[:] = [[0.2], [0.5]]


def lose_rank(recorded):
    recorded.weights[:, 1] = 0


def lose_micro_batch(recorded):
    recorded.weights[:, :, 0] = 0


def add_weights(recorded):
    recorded.decay = 0.01


def reduce_by_maximum(recorded):
    for key in KEYS:
        recorded.added[0][key] = np.ones(SIZE)
    recorded.operation = "MAX"


def keep_old_gradients(recorded):
    # What one rank has not cleared, the exchange adds to the next step.
    for step in range(1, NUM_STEPS):
        recorded.added[step] = recorded.gradient(step - 1, recorded.right)


def scale_parameter(recorded):
    recorded.scale["0.0.1"] = 2.0


GRADIENT_FAULTS = [
    (sum_over_ranks, 1, Cause.SUMMED),
    (divide_twice, 1, Cause.DIVIDED_TWICE),
    (average_ranks, 1, Cause.MEAN_OF_RANKS),
    (average_micro_batches, 2, Cause.MEAN_OF_MICRO_BATCHES),
    (keep_own, 1, Cause.NOT_SYNCHRONISED),
    (keep_own, 2, Cause.NOT_SYNCHRONISED),
    (keep_own_last, 2, Cause.LAST_NOT_SYNCHRONISED),
    (keep_own_first, 2, Cause.SOME_NOT_SYNCHRONISED),
    (divide_by_own_number, 1, Cause.OWN_DIVISOR),
    (weigh_ranks_otherwise, 1, Cause.MEAN_OF_RANKS),
    (lose_rank, 1, Cause.RANK_LEFT_OUT),
    (lose_micro_batch, 2, Cause.MICRO_BATCH_LOST),
    (add_weights, 1, Cause.REGULARISER),
    (scale_parameter, 1, Cause.PARAMETER_SCALED),
    (keep_old_gradients, 1, Cause.OLD_GRADIENTS),
    (reduce_by_maximum, 1, Cause.OTHER_OPERATION),
]


@pytest.mark.parametrize(("fault", "num_micro", "cause"), GRADIENT_FAULTS)
def test_a_wrong_gradient_is_found_and_named(fault, num_micro, cause):
    recorded = Recorded(num_micro)
    fault(recorded)
    verdict = recorded.verdict()
    assert verdict.answer is Answer.WRONG
    assert verdict.fault.cause is cause
    assert verdict.fault.ratio > 100


def test_a_difference_below_the_rounding_of_the_reference_is_right():
    recorded = Recorded()
    runs = recorded.runs()
    sketch = runs["parallel"]["ranks"][1]["steps"][0]["gradients"]["0.0.0"]["sketch"]
    sketch[0] += 3e-7
    assert judge.judge(runs).answer is Answer.RIGHT
    sketch[0] += 1e-4
    assert judge.judge(runs).answer is Answer.WRONG


def step_schedule_twice(runs):
    for rank in runs["parallel"]["ranks"]:
        for step in rank["steps"][1:]:
            step["scheduler_calls"] = 2


def search_by_own_losses(runs):
    for loss, rank in enumerate(runs["parallel"]["ranks"]):
        rank["steps"][0]["searched_losses"] = [1.0, 1.0 + loss]


def draw_own_buffers(runs):
    for number, rank in enumerate(runs["parallel"]["ranks"]):
        rank["start"] |= {"torch": "", "buffers": {"features": {"digest": number}}}


def draw_equal_dropout(runs):
    for rank in runs["parallel"]["ranks"]:
        for step in rank["steps"]:
            step["dropout"] = "the same state"


def start_elsewhere(runs):
    start = runs["parallel"]["ranks"][1]["start"]
    start["weights"]["0.0.0"]["digest"] = "other"


def drift(runs):
    weights = runs["parallel"]["ranks"][1]["steps"][1]["weights"]["0.0.0"]
    weights["digest"] = "other"
    weights["sketch"][0] += 0.01


def restore_state_of_one_rank(runs):
    drift(runs)
    for rank in runs["parallel"]["ranks"]:
        rank["steps"][1]["before"] = {"0.0.0": "the same weights"}


def lose_state(runs):
    for rank in runs["parallel"]["ranks"]:
        rank["steps"][2]["num_states"] = 0


def load_on_one_rank(runs):
    first, second = runs["parallel"]["ranks"]
    for num_states, rank in ((4, first), (0, second)):
        rank["steps"][2] |= {"optimizer": 1, "num_states": num_states}
        del rank["steps"][2]["weights"][KEYS[0]]


def restart_optimizer(runs, rate=0.081):
    for rank in runs["parallel"]["ranks"]:
        rank["steps"][2] |= {"optimizer": 1, "num_states": 0, "rates": [rate]}


@pytest.mark.parametrize(("rate", "num_frozen"), [(0.01, 0), (0.081, 1)])
def test_another_phase_with_a_new_optimizer_has_lost_nothing(rate, num_frozen):
    runs = Recorded().runs()
    restart_optimizer(runs, rate)
    for rank in runs["parallel"]["ranks"]:
        for key in KEYS[:num_frozen]:
            del rank["steps"][2]["weights"][key]
    (state,) = [
        check
        for check in judge.judge(runs).checks
        if check.subject is signatures.Subject.STATE
    ]
    assert state.cause is None


def set_rows(run, rows):
    """Let each rank read a single row, without numbered samples."""
    for rank, row in zip(run["ranks"], rows, strict=True):
        for step in rank["steps"]:
            step["micro"][0]["rows"] = [[row, row]]
            step["reads"] = []


@pytest.mark.parametrize(
    ("noisy_rows", "relation"),
    [(["x", "x"], Relation.REPEATED), (["y", "z"], Relation.OTHER)],
)
def test_samples_that_fixed_numbers_make_equal_are_not_repeated(noisy_rows, relation):
    runs = Recorded().runs()
    runs["noisy"] = copy.deepcopy(runs["parallel"])
    set_rows(runs["parallel"], ["x", "x"])
    set_rows(runs["noisy"], noisy_rows)
    for name in ("serial", "reference"):
        set_rows(runs[name], ["x"])
    assert Evidence(runs).relation("parallel", "reference") is relation


def read_same_shard(runs):
    first, second = runs["parallel"]["ranks"]
    second["end"] = first["end"]


def leave_out_shard(runs):
    for rank in runs["parallel"]["ranks"]:
        rank["end"]["loaders"][0]["epoch"] = [[0, 1]]


def shuffle_alone(runs):
    loader = runs["parallel"]["ranks"][1]["end"]["loaders"][0]
    loader["epoch"] = [[0, 3], [6, 5], [11, 8]]


def draw_rows_alone(runs):
    """Let ranks without numbered samples read some of the same rows."""
    for run in runs.values():
        for rank in run["ranks"]:
            for step in rank["steps"]:
                batch = step["reads"][0]["samples"]
                step["micro"][0]["rows"] = [[str(sample)] * 2 for sample in batch]
                step["reads"] = []
    for step in runs["parallel"]["ranks"][1]["steps"][1:]:
        step["micro"][0]["rows"] = [["0", "0"], ["1", "1"]]


def train_in_eval_mode(runs):
    for step in runs["parallel"]["ranks"][1]["steps"]:
        step["eval_modules"] = ["dropout"]


def clip_to_other_bound(runs):
    for bound, rank in enumerate(runs["parallel"]["ranks"]):
        clip = {"norm": 1.0, "bound": 1e30, "own": float(bound)}
        for step in rank["steps"]:
            step["clips"] = [clip]


def round_on_one_rank(runs):
    runs["parallel"]["ranks"][1]["end"]["rounding"] = 2.0**-8


def decay_on_one_rank(runs):
    for share, rank in enumerate(runs["parallel"]["ranks"]):
        for step in rank["steps"]:
            step["options"] = [{"weight_decay": 0.1 * share}]


def leave_out_parameter(runs):
    del runs["parallel"]["ranks"][1]["start"]["names"]["0.0.1"]


def skip_step(runs):
    drift(runs)
    step = runs["parallel"]["ranks"][1]["steps"][1]
    step["micro"] = 2 * step["micro"]


def change_weights_between_steps(runs):
    step = runs["parallel"]["ranks"][0]["steps"][1]
    step["before"] = {key: f"changed {key}" for key in KEYS}
    disturb(step)


def compute_other_losses(runs):
    """Let the targets of one rank be others."""
    criterion = {"count": 2, "sum": 1.0, "scale": 0.5}
    for run in runs.values():
        for rank in run["ranks"]:
            for step in rank["steps"]:
                step["micro"][0]["criteria"] = [criterion]
    disturb(runs["parallel"]["ranks"][0]["steps"][0])


def fill_own_queue(runs):
    compute_other_losses(runs)
    steps = runs["parallel"]["ranks"][0]["steps"]
    steps[0]["gradients"] = runs["reference"]["ranks"][0]["steps"][0]["gradients"]
    disturb(steps[1])


def compute_loss_of_batch(runs):
    """The gradient of one process is no sum of local gradients."""
    for name, run in runs.items():
        if name == "parallel":
            continue
        for step in run["ranks"][0]["steps"]:
            for gradient in step["gradients"].values():
                gradient["sketch"][0] += 1.0
                gradient["digest"] += " of the whole batch"


def share_wrong_statistics(runs):
    compute_other_losses(runs)
    for rank in runs["parallel"]["ranks"]:
        rank["steps"][0]["micro"][0]["shares_values"] = True


def disturb(step):
    for key in KEYS:
        step["gradients"][key]["sketch"] = np.arange(SIZE, dtype=float).tolist()
        step["gradients"][key]["digest"] = "other"


def change_rate_after_an_epoch(runs):
    runs["driven"] = copy.deepcopy(runs["parallel"])
    runs["driven"]["ranks"][1]["steps"][2]["rates"] = [0.05]


def add_statistics_of_ranks(runs):
    """Let a gradient depend on all ranks' samples, and weight the ranks alike."""
    one = runs["reference"]["ranks"][0]["steps"][0]["gradients"]
    for key in KEYS:
        one[key]["sketch"][0] += 1.0
        one[key]["digest"] = "other"
    runs["serial"] = runs["perturbed0"] = runs["repeated"] = runs["reference"]
    for count, rank in zip((3, 6), runs["parallel"]["ranks"]):
        criterion = {"count": count, "sum": 1.0, "scale": 1 / count}
        for step in rank["steps"]:
            step["micro"][0]["criteria"] = [criterion]


def leave_out_a_sample(runs):
    rank = runs["parallel"]["ranks"][1]
    rank["end"]["loaders"][0]["epoch"][-1].pop()


def disturb_and_note(runs, **facts):
    """Change the gradients of all ranks, and note facts of their backward passes."""
    for rank in runs["parallel"]["ranks"]:
        disturb(rank["steps"][0])
        for micro in rank["steps"][0]["micro"]:
            micro.update(facts)


def read_padding(runs):
    disturb_and_note(runs, length=5)


def exchange_values(runs):
    disturb_and_note(runs, exchanges=True)


def reduce_to_first_rank(runs):
    """Let one rank apply the right gradient, and another one an unknown one."""
    disturb(runs["parallel"]["ranks"][1]["steps"][0])


def average_weights(runs):
    for rank in runs["parallel"]["ranks"]:
        for step in rank["steps"]:
            gradients = step["micro"][0]["gradients"]
            for key, value in gradients.items():
                step["gradients"][key]["sketch"] = value
                step["gradients"][key]["digest"] = str(value)
            step["before"] = dict.fromkeys(gradients, "equal")


def clip_the_sum(runs):
    """Clip a sum over two ranks to the bound, so that its half is applied."""
    bound = 1.0
    for name, run in runs.items():
        scale = bound / 2 if name == "parallel" else bound
        for rank in run["ranks"]:
            for step in rank["steps"]:
                rescale(step["gradients"], scale)


def clip_values(runs):
    """Clip the values of the gradients of one process, and of the ranks' own ones."""
    for run in runs.values():
        for rank in run["ranks"]:
            for value in rank["steps"][0]["gradients"].values():
                value["peak"] = 0.1
    disturb_and_note(runs)


def keep_gradients_of_noise(runs):
    """Let ranks apply their own gradients, which fixed noise makes equal."""
    runs["noisy"] = copy.deepcopy(runs["parallel"])
    runs["noisy_serial"] = runs["serial"]
    for rank in runs["noisy"]["ranks"]:
        for step in rank["steps"]:
            for key, value in step["micro"][0]["gradients"].items():
                step["gradients"][key]["sketch"] = value


def rescale(gradients, length):
    total = np.hypot(*(value["norm"] for value in gradients.values()))
    for value in gradients.values():
        value["sketch"] = (np.array(value["sketch"]) * length / total).tolist()
        value["norm"] *= length / total


def pass_samples_one_by_one(runs):
    """Let the first input of a step be a sample with three equal rows."""
    for name, run in runs.items():
        for rank in run["ranks"]:
            for step in rank["steps"]:
                count = 3 if name == "parallel" else 1
                step["micro"][0]["rows"] = [["row", "shorter"]] * count


def test_rows_that_are_not_samples_are_no_evidence():
    runs = Recorded().runs()
    pass_samples_one_by_one(runs)
    assert judge.judge(runs).answer is Answer.RIGHT


OTHER_FAULTS = [
    (reduce_to_first_rank, Cause.ONE_RANK_RIGHT),
    (average_weights, Cause.WEIGHTS_AVERAGED),
    (clip_the_sum, Cause.CLIPPING),
    (leave_out_a_sample, Cause.SAMPLES_MISSING),
    (read_padding, Cause.PADDING_READ),
    (exchange_values, Cause.VALUES_WITHOUT_GRADIENT),
    (shuffle_alone, Cause.OWN_ORDER),
    (draw_rows_alone, Cause.SAMPLES_REPEATED),
    (train_in_eval_mode, Cause.EVAL_MODE),
    (clip_to_other_bound, Cause.CLIP_BOUNDS),
    (decay_on_one_rank, Cause.OPTIONS_DIFFER),
    (round_on_one_rank, Cause.PRECISION_DIFFERS),
    (leave_out_parameter, Cause.PARAMETERS_DIFFER),
    (skip_step, Cause.UNEQUAL_STEPS),
    (change_rate_after_an_epoch, Cause.RATES_DIFFER),
    (change_weights_between_steps, Cause.CHANGED_OUTSIDE),
    (compute_other_losses, Cause.OTHER_LOSS),
    (fill_own_queue, Cause.OWN_STATE),
    (compute_loss_of_batch, Cause.LOSS_OF_BATCH),
    (share_wrong_statistics, Cause.STATISTICS),
    (add_statistics_of_ranks, Cause.MEAN_OF_RANKS),
    (step_schedule_twice, Cause.SCHEDULE_STEPPED_OFTEN),
    (draw_equal_dropout, Cause.EQUAL_DROPOUT),
    (search_by_own_losses, Cause.LOCAL_SEARCH),
    (draw_own_buffers, Cause.INITIAL_WEIGHTS),
    (clip_values, Cause.CLIPPED_LOCALLY),
    (keep_gradients_of_noise, Cause.NOT_SYNCHRONISED),
    (start_elsewhere, Cause.INITIAL_WEIGHTS),
    (drift, Cause.REPLICAS_DRIFT),
    (restore_state_of_one_rank, Cause.STATES_DIFFER),
    (lose_state, Cause.STATE_LOST),
    (restart_optimizer, Cause.STATE_LOST),
    (load_on_one_rank, Cause.STATES_DIFFER),
    (read_same_shard, Cause.SAME_SAMPLES),
    (leave_out_shard, Cause.SAMPLES_MISSING),
]


@pytest.mark.parametrize(("fault", "cause"), OTHER_FAULTS)
def test_other_faults_are_found_and_named(fault, cause):
    runs = Recorded().runs()
    fault(runs)
    verdict = judge.judge(runs)
    assert verdict.answer is Answer.WRONG
    assert verdict.fault.cause is cause


@pytest.mark.parametrize(
    ("num_calls", "answer"), [(2, Answer.RIGHT), (4, Answer.WRONG)]
)
def test_a_library_may_step_a_schedule_by_samples(num_calls, answer):
    runs = Recorded().runs()
    for rank in runs["parallel"]["ranks"]:
        for step in rank["steps"][1:]:
            step["scheduler_calls"] = num_calls
            step["steps_by_samples"] = True
    for step in runs["serial"]["ranks"][0]["steps"]:
        samples = step["reads"][0]["samples"]
        step["reads"][0]["samples"] = samples[: len(samples) // 2]
    assert judge.judge(runs).answer is answer


def test_a_rank_that_was_stopped_has_no_other_precision():
    runs = Recorded().runs()
    runs["parallel"]["ranks"][1]["end"] = None
    settings = next(
        check
        for check in judge.judge(runs).checks
        if check.subject is signatures.Subject.SETTINGS
    )
    assert settings.cause is None


def test_nothing_is_said_about_an_optimizer_of_flat_parameters():
    runs = Recorded().runs()
    for rank in runs["parallel"]["ranks"]:
        rank["steps"][0]["has_flat_parameters"] = True
    verdict = judge.judge(runs)
    assert verdict.answer is Answer.CANNOT_TELL
    assert verdict.reason == "flat-parameters"


def test_nothing_is_said_about_a_serial_run_with_other_weights():
    runs = Recorded().runs()
    runs["reference"]["ranks"][0]["start"]["weights"]["0.0.0"]["digest"] = "other"
    assert judge.judge(runs).reason == "other-weights"


def test_nothing_is_said_about_a_script_that_is_random():
    runs = Recorded().runs()
    first = runs["repeated"]["ranks"][0]["steps"][0]["gradients"]["0.0.0"]
    first["digest"] = "other"
    first["sketch"][0] += 1.0
    verdict = judge.judge(runs)
    assert verdict.answer is Answer.CANNOT_TELL
    assert verdict.reason == "random"


def test_random_samples_must_differ_between_ranks():
    runs = Recorded().runs()
    for number, rank in enumerate(runs["parallel"]["ranks"]):
        rank["end"]["probes"] = [["a", f"noise {number}"]]
    assert judge.judge(runs).fault is None
    for rank in runs["parallel"]["ranks"]:
        rank["end"]["probes"] = [["a", "noise"]]
    assert judge.judge(runs).fault.cause is Cause.EQUAL_NOISE


@pytest.mark.parametrize(("all_drawn", "is_equal"), [(8, True), (4, False)])
def test_equal_noise_is_wrong_if_it_grows_with_the_samples(all_drawn, is_equal):
    """Two ranks draw equal numbers, which one process draws too."""
    runs = Recorded().runs()
    runs["noisy"] = runs["parallel"]
    runs["noisy_serial"] = runs["serial"]
    for run in runs.values():
        for rank in run["ranks"]:
            for step in rank["steps"]:
                step["noise"] = {"count": 0, "digest": "fixed"}
                step["drawn"] = 4
    for step in runs["reference"]["ranks"][0]["steps"]:
        step["drawn"] = all_drawn
    fault = judge.judge(runs).fault
    assert (fault and fault.cause) is (Cause.EQUAL_NOISE if is_equal else None)


@pytest.mark.parametrize(("length", "is_equal"), [(2, True), (4, False)])
def test_equal_noise_is_wrong_if_it_has_a_row_per_sample(length, is_equal):
    """The batch of one process has as many samples as the batch of a rank."""
    runs = Recorded().runs()
    noise = {"count": 8, "digest": "a", "by_length": {str(length): "a"}}
    for run in runs.values():
        for number, rank in enumerate(run["ranks"]):
            for step in rank["steps"]:
                step["noise"] = noise
                rows = [f"sample {number}", f"sample {number + 2}"]
                step["micro"][0]["rows"] = [[row, row] for row in rows]
    fault = judge.judge(runs).fault
    assert (fault and fault.cause) is (Cause.EQUAL_NOISE if is_equal else None)


@pytest.mark.parametrize("field", ["failed", "timed-out", "no-steps"])
def test_a_run_without_steps_has_a_reason(field):
    runs = Recorded().runs()
    for rank in runs["parallel"]["ranks"]:
        rank["steps"] = []
        rank["end"] = None
    rank["status"] = int(field == "failed")
    rank["log"] = ["ValueError: no data"]
    runs["parallel"]["timed_out"] = field == "timed-out"
    verdict = judge.judge(runs)
    assert verdict.answer is Answer.CANNOT_TELL
    assert verdict.reason == field
    assert certificate.answer_line(verdict, 2, 3).startswith("cannot tell")


@pytest.mark.parametrize(
    ("layer", "answer"),
    [("Linear", Answer.CANNOT_TELL), ("FSDPLinear", Answer.RIGHT)],
)
def test_parts_of_layers_cannot_be_judged_but_those_of_fsdp(layer, answer):
    runs = Recorded().runs()
    for rank in runs["parallel"]["ranks"]:
        rank["start"]["has_shards"] = True
        rank["start"]["layers"] = {layer: 1}
    assert judge.judge(runs).answer is answer


def test_steps_from_a_loader_that_is_not_prescribed_are_not_compared():
    runs = Recorded().runs()
    for rank in runs["parallel"]["ranks"]:
        disturb(rank["steps"][2])
        rank["steps"][2]["reads"][0]["loader"] = 1
    assert judge.judge(runs).answer is Answer.WRONG
    runs["reference"]["settings"] = {"replay": {"loader": 0}}
    assert judge.judge(runs).answer is Answer.RIGHT


def test_ranks_that_get_their_weights_cannot_be_judged():
    runs = Recorded().runs()
    runs["parallel"]["ranks"][1] |= {"steps": [], "end": None, "follows": {}}
    verdict = judge.judge(runs)
    assert verdict.reason == "one-updates"


def test_ranks_that_never_update_make_unequal_steps():
    runs = Recorded().runs()
    runs["parallel"]["ranks"][1]["steps"] = []
    verdict = judge.judge(runs)
    assert verdict.answer is Answer.WRONG
    assert verdict.fault.cause is Cause.UNEQUAL_STEPS


@pytest.mark.parametrize(("fault", "num_micro", "cause"), GRADIENT_FAULTS[::4])
def test_a_certificate_gives_its_verdict_again(fault, num_micro, cause):
    recorded = Recorded(num_micro)
    fault(recorded)
    runs = recorded.runs()
    data = certificate.to_json(judge.judge(runs), runs, {"num_ranks": 2})
    stored = json.loads(json.dumps(data))
    repeated, is_same = certificate.check(stored)
    assert is_same
    assert repeated.fault.cause is cause
    stored["verdict"]["answer"] = "right"
    assert not certificate.check(stored)[1]


@pytest.mark.parametrize("content", [[], {}, {"schema": certificate.SCHEMA}])
def test_other_files_are_not_certificates(content):
    with pytest.raises(certificate.CertificateError):
        certificate.check(content)


def test_each_cause_has_a_template_and_a_row():
    templates = wording.list_all_templates()
    causes = {row.cause for rows in signatures.TABLES.values() for row in rows}
    for cause in Cause:
        assert f"script-cause-{cause.value}" in templates
        assert cause in causes


def test_the_first_row_that_matches_names_the_cause():
    subject = signatures.Subject.GRADIENTS
    features = signatures.GradientFeatures(
        part=signatures.Part.ALL,
        factor=signatures.Factor.RANKS,
        over_micro=signatures.MicroWeights.LAST_OWN,
    )
    assert signatures.find_cause(subject, features) is Cause.LAST_NOT_SYNCHRONISED
    nothing = signatures.GradientFeatures()
    assert signatures.find_cause(subject, nothing) is Cause.UNEXPLAINED
    with pytest.raises(TypeError):
        signatures.find_cause(subject, signatures.RateFeatures())


@pytest.mark.parametrize("subject", signatures.Subject)
def test_each_row_is_the_first_that_matches_its_own_features(subject):
    for row in signatures.TABLES.get(subject, ()):
        assert signatures.find_row(subject, row.features) is row


def test_a_script_that_fails_after_some_steps_is_not_called_right():
    runs = Recorded().runs()
    runs["parallel"]["ranks"][1] |= {"status": 1, "log": ["KeyError: 3"]}
    verdict = judge.judge(runs)
    assert verdict.answer is Answer.CANNOT_TELL
    assert verdict.values["line"] == "KeyError: 3"


@pytest.mark.parametrize("are_exchanged", [False, True])
def test_buffers_may_be_exchanged_after_a_step(are_exchanged):
    runs = Recorded().runs()
    for number, rank in enumerate(runs["parallel"]["ranks"]):
        rank["start"]["buffers"] = {"mean": ""}
        for place, step in enumerate(rank["steps"]):
            own = 0 if are_exchanged else number
            step["buffers"] = tensors({"mean": np.full(SIZE, number + 1.0)})
            step["buffers_before"] = {"mean": f"{place} {own}"}
    for name in ("reference", "perturbed0", "repeated"):
        for step in runs[name]["ranks"][0]["steps"]:
            step["buffers"] = tensors({"mean": np.ones(SIZE)})
    verdict = judge.judge(runs)
    if are_exchanged:
        assert verdict.answer is Answer.RIGHT
    else:
        assert verdict.fault.cause is Cause.STATISTICS


NOISE_OF_A_PROCESS = {"count": 16, "digest": "of both shares", "sum": 7}


@pytest.mark.parametrize(
    ("noise", "cause", "is_compared"),
    [
        ([NOISE_OF_A_PROCESS] * 2, None, True),
        ([{"count": 8, "digest": "a"}] * 2, Cause.EQUAL_NOISE, False),
        ([{"count": 8, "digest": "a"}, {"count": 8, "digest": "b"}], None, False),
        ([{"count": 16, "digest": "a"}] * 2, None, False),
        ([{"count": 8, "digest": "a", "sum": s} for s in (3, 4)], None, True),
    ],
)
def test_ranks_with_their_own_noise_are_not_compared(noise, cause, is_compared):
    runs = Recorded().runs()
    for name in ("serial", "reference", "repeated", "perturbed0"):
        for step in runs[name]["ranks"][0]["steps"]:
            step["noise"] = NOISE_OF_A_PROCESS
    for own, rank in zip(noise, runs["parallel"]["ranks"]):
        for step in rank["steps"]:
            step["noise"] = own
    verdict = judge.judge(runs)
    assert (verdict.fault.cause if verdict.fault else None) is cause
    kinds = [check.kind for check in verdict.checks]
    assert ("gradients" in kinds) is is_compared


def test_an_option_that_grows_with_the_ranks_is_wrong():
    runs = Recorded().runs()
    for name, run in runs.items():
        for rank in run["ranks"]:
            for step in rank["steps"]:
                step["options"] = [{"weight_decay": 0.2 if name == "parallel" else 0.1}]
    verdict = judge.judge(runs)
    assert verdict.fault.cause is Cause.OPTIONS_SCALED
    assert verdict.fault.values["names"] == ["weight_decay"]


def test_a_verdict_by_parts_claims_no_equal_samples():
    verdict = Verdict(Answer.RIGHT, not_covered=("by-parts",))
    complete = dataclasses.replace(verdict, not_covered=())
    lines = {certificate.answer_line(each, 2, 6) for each in (verdict, complete)}
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("others", "differ"), [(["a"], False), (["b"], True), (["a", "b"], False)]
)
def test_frozen_weights_are_compared_if_all_ranks_have_as_many(others, differ):
    starts = [{"frozen": {"teacher": ["a"]}}, {"frozen": {"teacher": others}}]
    assert facts.frozen_weights_differ(starts) is differ


def test_learning_rates_are_compared_beside_random_samples():
    runs = Recorded().runs()
    for name in ("serial", "parallel"):
        for number, rank in enumerate(runs[name]["ranks"]):
            rank["end"]["probes"] = [["a", f"noise {number}"]]
    assert judge.judge(runs).answer is not Answer.WRONG
    for rank in runs["parallel"]["ranks"]:
        rank["steps"][0]["rates"] = [0.2]
    assert judge.judge(runs).fault.cause is Cause.RATE_SCALED

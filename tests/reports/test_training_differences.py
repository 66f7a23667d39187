"""Other training on more devices, or after a change, is the first thing that is said."""

import json

import pytest

from rnn_scaling.analysis import training_differences as differences
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.commands import compare, report
from rnn_scaling.records import folder
from rnn_scaling.records.options import Options
from rnn_scaling.reports import conclusions
from rnn_scaling.reports.summary import summarise
from rnn_scaling.reports.wording import write_sentence
from tests.reports.test_learning import make_falling_losses, record_program
from tests.support.scaling_runs import skip_pictures


def make_other_losses(first):
    """Return losses that differ on several devices from a step on."""

    def losses(devices, repeat):
        before = make_falling_losses(steps=first - 1)
        return before + make_falling_losses(0.02 if devices == 1 else 0.05)[first - 1 :]

    return losses


def equal_losses(devices, repeat):
    return make_falling_losses()


def list_answer_statements(path):
    found = summarise(folder.read(path), "runs")
    return conclusions.state_answer(found)


def list_kinds_of_differences(path):
    kinds = [statement.kind for statement in list_answer_statements(path)]
    return kinds[: kinds.index("other-training-remedy")]


def test_a_report_begins_with_losses_that_differ_on_more_devices(tmp_path, capsys):
    path = record_program(tmp_path / "runs", make_other_losses(3))
    first, remedy, *_ = list_answer_statements(path)
    assert first.kind == "other-losses"
    assert first.values["step"] == 3
    assert first.values["devices"] == ["2 devices"]
    assert first.values["fewer_devices"] == "1 device"
    assert remedy.values["repeats"] == 2
    assert remedy.values["command"].startswith("./run.sh verify --trainer=")

    with skip_pictures():
        assert report.main([str(path)]) == 0
    answer, _, _ = capsys.readouterr().out.partition("of the ideal")
    assert write_sentence(first) in answer
    assert remedy.values["command"] in answer
    content = json.loads((path / "report.json").read_text())
    assert content["statements"][0]["kind"] == "other-losses"


def test_losses_of_the_first_step_may_be_of_one_device(tmp_path):
    path = record_program(
        tmp_path / "runs",
        lambda devices, repeat: make_falling_losses(start=2.0 + 0.05 * devices),
    )
    assert list_kinds_of_differences(path) == [
        "other-losses",
        "other-losses-before-an-update",
    ]


@pytest.mark.parametrize(
    "name, kind",
    [("learning_rate", "other-learning-rates"), ("grad_norm", "other-gradient-norms")],
)
def test_the_quantity_that_is_nearest_to_the_cause_comes_first(tmp_path, name, kind):
    def update(devices, step):
        return {name: 0.5 * devices if step >= 3 else 0.5}

    path = record_program(tmp_path / "runs", make_other_losses(3), update=update)
    assert list_kinds_of_differences(path) == [kind, "other-losses"]
    later = record_program(tmp_path / "later", make_other_losses(2), update=update)
    assert list_kinds_of_differences(later) == ["other-losses", kind]


@pytest.mark.parametrize(
    "update, is_stated",
    [
        # A schedule that several devices step too often shows after many steps.
        (lambda devices, step: {"learning_rate": 0.1 ** (step * devices // 100)}, True),
        (lambda devices, step: {"learning_rate": 0.1 * (1 + 1e-7 * devices)}, False),
        (lambda devices, step: {"grad_norm": 3 * (1 + 1e-3 * devices)}, False),
        (lambda devices, step: {"grad_norm": 3 * devices if step > 50 else 3}, False),
        # Only one side reports it.
        (lambda devices, step: {"grad_norm": 3.0} if devices == 1 else {}, False),
    ],
)
def test_only_what_rounding_cannot_explain_is_stated(tmp_path, update, is_stated):
    path = record_program(tmp_path / "runs", equal_losses, update=update)
    kinds = [statement.kind for statement in list_answer_statements(path)]
    assert ("other-training-remedy" in kinds) == is_stated


@pytest.mark.parametrize("peak, is_stated", [(2.2, True), (9.0, False)])
def test_training_that_diverges_proves_nothing(tmp_path, peak, is_stated):
    """A divergence amplifies rounding, so later losses may differ without a fault."""

    def losses(devices, repeat):
        later = make_falling_losses(0.02 if devices == 1 else 0.05)[3:]
        return [2.0, peak, 2.0, *later]

    path = record_program(tmp_path / "runs", losses)
    kinds = [statement.kind for statement in list_answer_statements(path)]
    assert ("other-losses" in kinds) == is_stated


def test_compare_says_that_a_change_trains_otherwise(tmp_path, capsys):
    before = record_program(tmp_path / "before", equal_losses)
    after = record_program(tmp_path / "after", make_other_losses(3))
    again = record_program(tmp_path / "again", equal_losses)

    compare.main([str(before), str(after), "--format=json"])
    content = json.loads(capsys.readouterr().out)
    found = [each for each in content["statements"] if each["kind"].startswith("other")]
    assert [each["kind"] for each in found] == [
        "other-losses-after",
        "other-training-remedy",
    ]
    assert found[0]["values"]["step"] == 3
    assert "2 devices" in found[0]["subject"]
    assert len(content["changed_training"]) == 1

    compare.main([str(before), str(again), "--format=json"])
    content = json.loads(capsys.readouterr().out)
    assert content["changed_training"] == []


@pytest.mark.parametrize(
    "trainer, expected",
    [
        ("python3 my.py --n={num_devices}", "python3 my.py --n={num_devices}"),
        ("torchrun --nproc_per_node={num_devices} my.py", "python3 SCRIPT"),
        ("python3 my.py --batch={batch_size}", "python3 SCRIPT"),
    ],
)
def test_the_command_is_one_that_verify_takes(tmp_path, trainer, expected):
    path = record_program(tmp_path / "runs", equal_losses, repeats=1)
    records = []
    for run in folder.read(path).runs:
        options = {**run.record.options.recorded, "trainer_command": trainer}
        records.append(run.record)
        object.__setattr__(run.record, "options", Options(options))
    row = build_rows(records)[0]
    assert differences.check_command(row).endswith(f"--trainer='{expected}'")

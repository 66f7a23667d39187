"""The calls of `import rnn_scaling`, whose runs are processes, and docs/api.md's example."""

import json
import re
import subprocess
import sys

import pytest

import rnn_scaling
from rnn_scaling.analysis.metrics import METRICS
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.records import record
from rnn_scaling.sweeps import invocations
from tests.support.compared import write
from tests.support.faults import list_logged, make_trainer_words, plant
from tests.support.paths import ROOT
from tests.support.records import change_record, make_record

ONE_AND_TWO = {
    "encoder_type": "cudnn_lstm",
    "variable_update": ["independent"],
    "num_devices": [1, 2],
}


def test_importing_it_loads_nothing():
    code = (
        "import sys, rnn_scaling; assert 'run' in dir(rnn_scaling); "
        "print(sorted({'tensorflow', 'numpy', 'matplotlib', 'absl'} & set(sys.modules)), "
        "sorted(name for name in sys.modules if name.startswith('rnn_scaling.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[] []\n"


def test_every_name_is_there_and_documented():
    text = (ROOT / "docs/api.md").read_text()
    for name in rnn_scaling.__all__:
        assert hasattr(rnn_scaling, name) and f"| `{name}" in text


WRONG = [
    ({"num_devises": 1}, ["did you mean --num_devices?"]),
    (
        {"batch_size": 0, "learning_rate": -1.0},
        ["--batch_size=0 must be at least 1", "--learning_rate=-1.0"],
    ),
    ({"num_devices": "two"}, ["--num_devices=two must be a whole number"]),
    ({"result_file": "a.json"}, ["result_file is reserved"]),
]
TRAINER = ({"trainer": "echo"}, ["--trainer is not a flag"])


MANY = {"num_devises": 1, "batch_size": 0, "staged_vars": True}
ALL_OF_THEM = [
    "did you mean --num_devices?",
    "--batch_size=0 must be",
    "--staged_vars=true would be ignored",
]


@pytest.mark.parametrize("options, reasons", [*WRONG, TRAINER, (MANY, ALL_OF_THEM)])
def test_wrong_options_of_a_run_are_named_before_it_starts(options, reasons):
    with pytest.raises(FlagErrors) as caught:
        rnn_scaling.run(**options)
    assert all(
        any(reason in line for line in caught.value.lines) for reason in reasons
    ), caught.value.lines


@pytest.mark.parametrize(
    "options, reasons", [WRONG[0], ({"repeats": 0}, ["repeats=0 must be at least 1"])]
)
def test_wrong_options_of_a_sweep_are_named_before_it_starts(
    options, reasons, tmp_path
):
    with pytest.raises(FlagErrors) as caught:
        rnn_scaling.sweep(tmp_path / "out", **options)
    assert all(
        any(reason in line for line in caught.value.lines) for reason in reasons
    ), caught.value.lines
    assert not (tmp_path / "out").exists()


def test_a_failed_run_raises_with_its_record(tmp_path):
    plant(tmp_path / "faults", run="fails")
    with pytest.raises(invocations.RunFailed, match="the run failed: ") as caught:
        invocations.run({}, program=make_trainer_words(tmp_path / "faults"))
    assert caught.value.records[0].status == "failed"


def test_a_sweep_goes_on_where_it_was_and_names_what_failed(tmp_path):
    words = make_trainer_words(
        plant(tmp_path / "faults", cudnn_lstm_independent_2="fails")
    )
    with pytest.raises(
        invocations.RunFailed, match="cudnn_lstm-independent-2: "
    ) as caught:
        invocations.run_sweep(tmp_path / "out", ONE_AND_TWO, program=words)
    assert len(caught.value.records) == 1
    invocations.run_sweep(
        tmp_path / "more", {**ONE_AND_TWO, "num_devices": 1}, program=words
    )
    invocations.run_sweep(
        tmp_path / "more", {**ONE_AND_TWO, "num_devices": 1}, program=words
    )
    assert (
        list_logged(tmp_path / "faults", "start").count("cudnn_lstm-independent-1") == 2
    )  # once in each folder
    assert [row.num_devices for row in rnn_scaling.load(tmp_path / "more")] == [1]


def test_rows_are_flat_records_with_every_metric(tmp_path):
    for devices, second in ((1, 0.1), (2, 0.15)):
        config = {"num_devices": devices, "learning_rate": 0.5 * devices}
        items = [100 * devices] * 3
        record.write(
            make_record(config=config, seconds=[second] * 3, items=items),
            tmp_path / f"{devices}.json",
        )
    (tmp_path / "broken.json").write_text('{"schema": "rnn_scaling.run/1"}')
    rows = rnn_scaling.load(tmp_path)
    flat = rows.to_records()
    assert len(rows) == len(flat) == 2
    assert len(rows.left_out) == 1
    assert rows[0].num_devices == 1
    assert flat[0]["items_per_second"] == pytest.approx(1000)
    assert flat[0]["unit"] == "words"
    assert [row["learning_rate"] for row in flat] == [0.5, 1.0]
    assert "optimizer" not in flat[0]
    assert all(
        name in flat[0]
        for metric in METRICS
        for name in (metric, f"{metric}_low", f"{metric}_high")
    )


def test_a_folder_that_is_not_there_is_no_empty_one(tmp_path):
    for path in (tmp_path / "mistyped", tmp_path / "mistyped/deeper"):
        with pytest.raises(FileNotFoundError):
            rnn_scaling.load(path)


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_folder_without_records_names_those_that_have_some(is_broken, tmp_path):
    for name in ("a", "b"):
        record.write(make_record(), tmp_path / name / "run.json")
    compact = json.dumps(
        json.loads((tmp_path / "b/run.json").read_text()), separators=(",", ":")
    )
    (tmp_path / "b/run.json").write_text(compact)
    if is_broken:
        (tmp_path / "broken.json").write_text('{"schema": "rnn_scaling.run/1"}')
    with pytest.raises(ValueError) as caught:
        rnn_scaling.load(tmp_path)
    message = str(caught.value)
    assert all(str(tmp_path / name) in message for name in "ab")
    assert ("broken.json" in message) == is_broken


def test_rows_show_as_a_table_and_print_as_a_line(tmp_path):
    for devices in range(1, 55):
        # Runs with the same times would count as copies.
        seconds = [0.1, 0.1, 0.1 + 1e-6 * devices]
        items = [100 * devices] * 3
        config = {"num_devices": devices}
        made = make_record(config=config, seconds=seconds, items=items)
        made = change_record(made, environment={"cpu": "<b>&"})
        record.write(made, tmp_path / f"{devices}.json")
    rows = rnn_scaling.load(tmp_path)
    assert repr(rows) == "<Rows: rows=54, runs=54, left_out=0>"
    page = rows._repr_html_()
    assert page.count("<tr>") == 51 and "4 more rows" in page
    assert "<b>" not in page and "&lt;b&gt;&amp;" in page
    assert "<td>2</td><td>2,000 words/s</td>" in page


def test_compare_says_what_the_command_says(tmp_path):
    for side, factor in (("before", 1.0), ("after", 0.5)):
        write(
            tmp_path / side, [1000.0 * factor * (1 + 0.001 * run) for run in range(5)]
        )
    report = rnn_scaling.compare(tmp_path / "before", tmp_path / "after")
    assert report.exit_status == 1
    assert [result.verdict for result in report.results] == ["slower"]
    assert (
        rnn_scaling.compare(
            tmp_path / "after", tmp_path / "before", max_regression=0.1
        ).exit_status
        == 0
    )


@pytest.mark.parametrize(
    "asked, reason",
    [
        ({"max_regression": 5}, "max_regression=5 must be a share from 0 to below 1"),
        ({"max_regression": float("nan")}, "max_regression=nan"),
        ({"metric": "share_of_peak"}, "metric=share_of_peak must be one of"),
        (
            {"metric": "peak_memory_gib"},
            "metric=peak_memory_gib must be one of items_per_second,",
        ),
    ],
)
def test_a_question_that_compare_cannot_answer_is_refused(asked, reason, tmp_path):
    for side in ("before", "after"):
        write(tmp_path / side, [1000.0, 1001.0])
    with pytest.raises(ValueError, match=reason):
        rnn_scaling.compare(tmp_path / "before", tmp_path / "after", **asked)


def test_the_example_of_the_document_runs(tmp_path, monkeypatch, capsys):
    """Execute the example with one real run and a fake trainer for its sweep.

    test_sweep.py has a sweep with the real trainer.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setitem(
        invocations.run_sweep.__kwdefaults__,
        "program",
        [sys.executable, "-m", "tests.support.fake_tracer"],
    )
    example, *_ = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL
    )
    exec(compile(example, "docs/api.md", "exec"), {})
    first, one, two, verdicts = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[\d,]+ words/s, loss \d\.\d\d", first)
    assert one.startswith("1 devices: ")
    assert one.endswith("speedup 1.00")
    assert two.startswith("2 devices: ")
    assert verdicts.startswith("[('")

"""`./run.sh tensorboard`: its command line, a server that answers, and the text page of a run."""

import dataclasses
import html
import importlib.util
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from tensorboard import plugin_util

from rnn_scaling.commands import tensorboard
from rnn_scaling.records import record
from rnn_scaling.records.parts import Batches
from rnn_scaling.reports.tensorboard import run_text
from rnn_scaling.system import entry
from tests.support.paths import ROOT
from tests.support.records import change_record
from tests.support.scaling_runs import make_timed_run, run


def sanitize_page(result):
    """Return a run's page after TensorBoard's own sanitizer."""
    return plugin_util.markdown_to_safe_html(run_text.format_markdown(result))


@pytest.mark.parametrize(
    "given, passed_on",
    [
        ([], ["--logdir=logs", "--host=localhost"]),
        (["--logdir=a", "--bind_all"], ["--logdir=a", "--bind_all"]),
        (["--log_dir=a"], ["--logdir=a", "--host=localhost"]),
        (["--logdir_spec=x:a,y:b"], ["--logdir_spec=x:a,y:b", "--host=localhost"]),
        (
            ["--reuse_port=true", "--profile"],
            ["--reuse_port=true", "--logdir=logs", "--host=localhost"],
        ),
    ],
)
def test_only_this_machine_may_connect_unless_asked(given, passed_on):
    assert tensorboard.make_tensorboard_command(*tensorboard.split(given)) == passed_on


def test_wrong_use_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert tensorboard.main([f"--logdir={tmp_path}/file"]) == 2
    assert f"--logdir={tmp_path}/file is a file" in capsys.readouterr().err
    assert tensorboard.main(["--port=65536"]) == 2
    assert "--port=65536" in capsys.readouterr().err


@pytest.mark.parametrize(
    "program, remedy",
    [("rnn-scaling", "pip install"), ("./run.sh", "tensorboard --profile")],
)
def test_without_xprof_the_error_names_the_remedy(
    tmp_path, monkeypatch, capsys, program, remedy
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(entry, "_program", program)
    assert tensorboard.main([f"--logdir={tmp_path}", "--profile"]) == 1
    assert "xprof" in (error := capsys.readouterr().err) and remedy in error


@pytest.mark.parametrize("logdir, warns", [("later", True), ("gs://bucket/x", False)])
def test_a_folder_that_does_not_exist_is_a_warning(
    tmp_path, monkeypatch, capsys, logdir, warns
):
    monkeypatch.chdir(tmp_path)
    tensorboard.make_tensorboard_command(*tensorboard.split([f"--logdir={logdir}"]))
    assert ("warning" in capsys.readouterr().err) == warns


def test_it_serves_until_it_is_interrupted(tmp_path):
    record.write(make_timed_run(1, 90.0), tmp_path / "run.json")
    command = [
        sys.executable,
        "-m",
        "rnn_scaling",
        "tensorboard",
        f"--logdir={tmp_path}",
        "--port=0",
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            url = server.stdout.readline().split()[0]
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert answer.status == 200
        finally:
            server.send_signal(signal.SIGINT)
            errors = server.communicate(timeout=60)[1]
    assert server.returncode == 130 and "Traceback" not in errors


def test_the_text_says_the_result_the_options_and_where_the_variables_are():
    result = change_record(
        make_timed_run(2, 180.0, 1, variable_update="replicated", xla=True),
        resolved={
            "variable_placement": {"/device:GPU:1": 2**20, "/device:GPU:0": 3 * 2**20}
        },
    )
    rows = [
        re.findall("<t[dh].*?>(.*?)</t[dh]>", row)
        for row in re.findall("<tr>(.*?)</tr>", sanitize_page(result), re.DOTALL)
    ]
    assert ["2", "32", "333.3", "180.0", "n/a"] in rows
    assert "--xla=true" in sanitize_page(result)
    assert "--num_devices=2" in sanitize_page(result)
    assert "--batch_size" not in sanitize_page(result)
    assert rows[-2:] == [
        ["/device:GPU:0", "3,145,728", "3.0"],
        ["/device:GPU:1", "1,048,576", "1.0"],
    ]


def test_a_run_that_measured_nothing_has_a_page_too():
    text = sanitize_page(dataclasses.replace(run(1, 1.0, "failed"), batches=Batches()))
    assert "No batch was measured." in text and "The run ended before they" in text


def test_no_value_of_an_option_becomes_markup():
    name = "<img src=x>|`b`_c_[d](http://e)\n# f"
    text = sanitize_page(
        make_timed_run(1, 100.0, data_source="text", src_file_name=name)
    )
    assert "<img" not in text
    assert text.count("<h2>") == 1
    assert "<h1>" not in text
    assert "<em>" not in text
    assert "<a " not in text
    assert "`b`_c_[d](http:" in html.unescape(text)


def test_the_text_of_a_traced_run_adds_slots_gradients_and_what_is_sent():
    folder = ROOT / "docs/results/phases"
    text = sanitize_page(record.read(folder / "cudnn_lstm-parameter_server-2.json"))
    assert "11 ResourceApplyAdam" in text and "62.9 MiB" in text and "15.8 MiB" in text
    assert "from device to device" in text and "17.7 MiB" in text
    assert "ReadVariableOp" not in text, (
        "names of tensors would leave the columns no room"
    )

"""The report in TensorBoard: which runs it serves, which never, the link of the text tab, and the command line."""

from __future__ import annotations

import argparse
import dataclasses
import html
import importlib.util
import json
import re
import socket
import sys
import types
from urllib.parse import parse_qs, urlsplit

import pytest
from tensorboard import plugin_util
from werkzeug.test import Client

from rnn_scaling import entry
from rnn_scaling.commands import tensorboard
from rnn_scaling.records import record
from rnn_scaling.records.parts import Batches
from rnn_scaling.reports.tensorboard import command_line, report_plugin, run_text, serving
from rnn_scaling.reports.tensorboard.log_folder import LogFolder
from rnn_scaling.settings import flags
from tests.support.paths import ROOT
from tests.support.records import changed
from tests.support.scaling_runs import run, timed


@pytest.fixture
def logs(tmp_path):
    """Two runs below logs, two more in a folder of their own, and a record outside, which nobody may read."""
    runs = {
        "logs/a": timed(1, 100.0),
        "logs/b": timed(2, 180.0, 1),
        "logs/old/a": timed(1, 90.0, 2),
        "logs/old/b": timed(2, 170.0, 3),
        "outside": run(3, 1234.0, tgt_max_len=77),
    }
    for name, result in runs.items():
        record.write(result, tmp_path / name / "run.json")
    return tmp_path / "logs"


def plugin(folder):
    return report_plugin.ReportPlugin(types.SimpleNamespace(logdir=str(folder)))


def get(folder, **query):
    return Client(plugin(folder).get_plugin_apps()["/report"]).get("/report", query_string=query)


def heading(response):
    assert response.status_code == 200, response.text
    found = re.search(r"<h1>Scaling of (.*?) <span>(.*?)</span></h1>", response.text)
    return f"{found[1]} {found[2]}"


def test_the_page_is_of_all_runs_of_one_or_of_those_below_a_folder(logs):
    assert heading(get(logs)) == "logs · 4 runs"
    assert heading(get(logs, run="b")) == "b · 1 run"
    assert heading(get(logs, run="old")) == "old · 2 runs"
    assert heading(get(logs, run="old/a")) == "a · 1 run"
    assert heading(get(logs / "old")) == "old · 2 runs"
    assert heading(get(logs / "a", run=".")) == "a · 1 run"
    offered = Client(plugin(logs).get_plugin_apps()["/runs"]).get("/runs").json
    assert offered == {"runs": ["a", "b", "old", "old/a", "old/b"]}


def test_a_home_folder_by_its_short_name(logs, monkeypatch):
    monkeypatch.setenv("HOME", str(logs.parent))
    assert plugin("~/logs").is_active() and heading(get("~/logs", run="b")) == "b · 1 run"


def test_the_command_below_the_pictures_makes_the_page_that_is_seen(logs):
    def commands(response):
        return re.sub("</?span>", "", response.text)

    assert f"./run.sh tensorboard --logdir={logs}<" in commands(get(logs))
    assert f"./run.sh report {logs}<" not in commands(get(logs)), "it reads one folder, and here are several"
    for k in range(2):
        record.write(timed(k + 1, 100.0 * (k + 1), 1), logs / "a" / f"{k}.json")
    assert f"./run.sh report {logs}/a<" in commands(get(logs, run="a"))


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../outside",
        "a/../../outside",
        "a/..",
        "/",
        "//",
        "~",
        "old/",
        "ol",
        "a\0",
        "%2e%2e/outside",
        "..\\outside",
    ],
)
def test_no_name_leads_out_of_the_log_folder(logs, name):
    for wanted in (name, str(logs.parent / "outside"), f"file://{logs.parent}/outside"):
        response = get(logs, run=wanted)
        assert response.status_code == 404 and response.mimetype == "text/plain"
        assert response.headers["X-Content-Type-Options"] == "nosniff" and "77" not in response.text


def test_links_out_of_the_log_folder_are_not_followed(logs):
    (logs / "linked").symlink_to(logs.parent / "outside")
    (logs / "c").mkdir()
    (logs / "c" / "run.json").symlink_to(logs.parent / "outside" / "run.json")
    assert LogFolder(logs).names() == ["a", "b", "old", "old/a", "old/b"]


def test_without_a_record_there_is_no_tab_and_no_page(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "trace.json").write_text("{}")
    assert not plugin(tmp_path).is_active() and not plugin("").is_active()
    response = get(tmp_path)
    assert response.status_code == 404 and "runs with a record: none" in response.text
    assert get("").status_code == 404
    record.write(timed(1, 1.0), tmp_path / "a" / "run.json")
    assert plugin(tmp_path).is_active()


def test_half_a_record_is_named_and_what_is_no_record_is_passed_over(logs):
    (logs / "a" / "trace.json").write_text('{"traceEvents": []}')
    (logs / "cut").mkdir()
    (logs / "cut" / "run.json").write_text('{"schema"')
    text = get(logs).text
    assert "cut/run.json: not JSON" in text and "trace.json" not in text


def test_a_record_of_another_name_counts_and_a_copy_does_not(logs):
    record.write(timed(4, 300.0), logs / "swept.json")
    (logs / "a" / "again.json").write_bytes((logs / "a" / "run.json").read_bytes())
    response = get(logs)
    assert heading(response) == "logs · 5 runs" and "a copy of a/again.json" in response.text


def test_the_page_changes_when_a_record_does(logs):
    folder = LogFolder(logs)
    first = folder.report()
    assert folder.report() is first
    record.write(timed(2, 150.0, 5), logs / "b" / "run.json")
    assert folder.report() != first


def test_the_pages_script_may_run_and_no_other(logs):
    response = get(logs)
    policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
    assert len(re.findall("'sha256-", policy["script-src"])) == response.text.count("<script>") == 1
    assert "'unsafe-inline'" not in policy["script-src"] and policy["default-src"] == "'self'"


def test_the_tabs_module_is_served(logs):
    made = plugin(logs)
    path = made.frontend_metadata().es_module_path
    response = Client(made.get_plugin_apps()[path]).get(path)
    assert response.mimetype == "application/javascript" and "export async function render()" in response.text


def shown(result):
    """What is left of a run's page after TensorBoard's own sanitizer."""
    return plugin_util.markdown_to_safe_html(run_text.markdown(result))


def test_the_link_of_the_text_tab_leads_to_the_run_also_when_its_folder_was_renamed(logs):
    (link,) = re.findall('href="(.*?)"', shown(record.read(logs / "old" / "b" / "run.json")))
    url = urlsplit(link)
    assert url.path == "data/plugin/rnn_scaling/report" and not url.scheme and not url.netloc
    query = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert heading(get(logs, **query)) == "b · 1 run" and "171.7" in get(logs, **query).text
    (logs / "old" / "b").rename(logs / "renamed")
    assert heading(get(logs, **query)) == "renamed · 1 run"
    assert get(logs, id="0" * 12).status_code == 404


def test_two_runs_never_have_the_same_letters():
    unmeasured = [dataclasses.replace(run(1, 1.0, "failed", seed=n), batches=Batches()) for n in (1, 2)]
    runs = [timed(1, 100.0), timed(1, 100.0, 1), timed(2, 200.0), *unmeasured]
    assert len({run_text.run_id(each) for each in runs}) == len(runs)


def test_the_text_says_the_result_the_options_and_where_the_variables_are():
    result = changed(
        timed(2, 180.0, 1, variable_update="replicated", xla=True),
        resolved={"variable_placement": {"/device:GPU:1": 2**20, "/device:GPU:0": 3 * 2**20}},
    )
    rows = [
        re.findall("<t[dh].*?>(.*?)</t[dh]>", row) for row in re.findall("<tr>(.*?)</tr>", shown(result), re.DOTALL)
    ]
    assert ["2", "32", "333.3", "180.0", "n/a"] in rows
    assert ["<code>xla</code>", "true", "false"] in rows and ["<code>num_devices</code>", "2", "1"] in rows
    assert not any(row[0] in ("<code>encoder_type</code>", "<code>batch_size</code>") for row in rows)
    assert rows[-2:] == [
        ["<code>/device:GPU:0</code>", "3,145,728", "3.0"],
        ["<code>/device:GPU:1</code>", "1,048,576", "1.0"],
    ]


def test_a_run_that_measured_nothing_has_a_page_too():
    text = shown(dataclasses.replace(run(1, 1.0, "failed"), batches=Batches()))
    assert "No batch was measured." in text and "The run ended before they were made." in text


def test_no_value_of_an_option_becomes_markup():
    name = "<img src=x>|`b`_c_[d](http://e)\n# f"
    text = shown(timed(1, 100.0, data_source="text", src_file_name=name))
    assert (
        "<img" not in text
        and text.count("<em>") == 1
        and text.count("<h2>") == 1
        and "<h1>" not in text
        and text.count("<a ") == 1
    )
    (row,) = [row for row in re.findall("<tr>(.*?)</tr>", text, re.DOTALL) if "src_file_name" in row]
    assert row.count("<td>") == 3 and "|'b'_c_[d](http://e) # f</td>" in html.unescape(row)


@pytest.fixture(scope="module")
def groups():
    known = list(flags.fields([command_line.TensorBoardOptions]))
    return [command_line.TensorBoardOptions, serving.options(serving.loaders(), without=known)]


def errors(groups, *words):
    with pytest.raises(flags.FlagErrors) as error:
        command_line.read(words, groups)
    return error.value.lines


def test_every_mistake_is_named_at_once(groups):
    words = ["--port=x", "--prot=1", "--reload_interval=often", "--load_fast=so", "--reuse_port=no", "logs", "--db"]
    assert errors(groups, *words) == [
        "--db needs a value: --db=...",
        "--port=x must be a whole number",
        "--reuse_port=no must be one of true, false",
        "--load_fast=so must be one of false, auto, true",
        "--reload_interval=often must be what TensorBoard can read",
        "--prot is not a flag; did you mean --port?",
        "unexpected word 'logs'; options are written --name=value",
    ]


@pytest.mark.parametrize(
    "given, passed_on",
    [
        ([], ["--logdir=logs", "--host=localhost"]),
        (["--logdir=a"], ["--logdir=a", "--host=localhost"]),
        (["--logdir", "a", "--bind_all"], ["--logdir=a", "--bind_all"]),
        (["--host=0.0.0.0"], ["--host=0.0.0.0", "--logdir=logs"]),
        (["--logdir_spec=x:a,y:b"], ["--logdir_spec=x:a,y:b", "--host=localhost"]),
        (["--reuse_port=true", "--profile"], ["--reuse_port=true", "--logdir=logs", "--host=localhost"]),
    ],
)
def test_only_this_machine_may_connect_unless_it_is_said(groups, given, passed_on):
    words = serving.spell(command_line.with_defaults(*command_line.read(given, groups)))
    assert words == passed_on
    parser = argparse.ArgumentParser()
    for plugin in serving.loaders():
        plugin.define_flags(parser)
    parser.parse_args(words)  # TensorBoard takes them


def test_wrong_use_and_a_taken_port_are_told_in_a_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert tensorboard.main([f"--logdir={tmp_path}/file", "--port=65536"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: --logdir={tmp_path}/file is a file; name the folder that it is in",
        "error: --port=65536 must be at most 65535",
    ]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for host in ([], ["--host=127.0.0.1"]):
            assert tensorboard.main([f"--logdir={tmp_path}", f"--port={port}", *host]) == 1
            said = f"error: --port={port} is taken; name another, or none, to take the next free one\n"
            assert capsys.readouterr().err == said


def test_without_xprof_it_is_said_how_to_get_the_tab_profile(tmp_path, monkeypatch, capsys):
    served = []
    monkeypatch.setattr(serving, "serve", lambda words, *_: served.append(words) or 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(entry, "_program", "rnn-scaling")
    assert tensorboard.main([f"--logdir={tmp_path}", "--profile"]) == 1 and not served
    by_pip = f"{sys.executable} -m pip install 'rnn_scaling[profile]'"
    assert capsys.readouterr().err == f"error: --profile: xprof is not installed; {by_pip} installs it\n"
    monkeypatch.setattr(entry, "_program", "./run.sh")
    assert tensorboard.main([f"--logdir={tmp_path}"]) == 0 and len(served) == 1
    by_run_sh = "./run.sh tensorboard --profile"
    assert capsys.readouterr().err == f"without the tab Profile; {by_run_sh} adds it (40 packages, 230 MB)\n"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert tensorboard.main(["--profile", f"--logdir={tmp_path}"]) == 0
    assert served[1] == [f"--logdir={tmp_path}", "--host=localhost"] and capsys.readouterr().err == ""


def test_a_logdir_that_is_not_there_yet_is_a_warning(tmp_path, capsys, groups):
    command_line.read([f"--logdir={tmp_path}/later"], groups)
    assert "is not there yet; ./run.sh train --log_dir=" in capsys.readouterr().err
    for there in ("gs://bucket/x", "~"):
        command_line.read([f"--logdir={there}"], groups)
    assert capsys.readouterr().err == ""


def test_runs_answers_in_json(logs):
    response = Client(plugin(logs / "a").get_plugin_apps()["/runs"]).get("/runs")
    assert json.loads(response.text) == {"runs": ["."]}


def test_the_text_of_a_traced_run_adds_slots_gradients_and_what_is_sent():
    folder = ROOT / "docs" / "results" / "phases"
    text = shown(record.read(folder / "cudnn_lstm-parameter_server-2.json"))
    assert "11 ResourceApplyAdam" in text and "62.9 MiB" in text and "15.8 MiB" in text
    assert "What one device sends to another in a step" in text and "17.7 MiB" in text
    assert "ReadVariableOp" not in text, "names of tensors would leave the columns no room"

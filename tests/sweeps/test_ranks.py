"""The ranks of a run: their environment, their launchers, and the cause of a failure."""

import sys

import pytest

from rnn_scaling.config import registry
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.sweeps import cluster_options, ranks
from rnn_scaling.sweeps.estimate import make_user_limit
from rnn_scaling.system.processes.process import ProcessOutcome
from tests.sweeps.test_early_checks import resolve_on_cpu

ASYNC = registry.UpdateMode("no.module", engine="coordinator")
SEVERAL = {"variable_update": "collective_all_reduce", "num_workers": 3}
LOST = ProcessOutcome(
    -9, False, ["[worker 2] x", "error: worker 2: gone"], 2, (1, 1, -9)
)


@pytest.fixture
def with_servers(monkeypatch):
    monkeypatch.setitem(registry.VARIABLE_UPDATES, "of_servers", ASYNC)


def test_each_rank_is_told_its_number_and_where_all_meet(with_servers):
    config = resolve_on_cpu(variable_update="of_servers", num_workers=2, num_ps=1)
    assert ranks.list_rank_names(config)[:2] == ["coordinator", "worker 0"]
    tasks = ranks.Starter(["train"]).make_tasks(config, ["--a=1"], has_streams=True)
    assert [list(task.command) for task in tasks] == [["train", "--a=1"]] * 4
    told = [(task.prefix, task.has_streams, task.may_fail) for task in tasks]
    assert told == [
        ("", True, False),
        ("[worker 0] ", False, True),
        ("[worker 1] ", False, True),
        ("[ps 0] ", False, False),
    ]
    places = [task.environment for task in tasks]
    assert [place["RNN_SCALING_RANK"] for place in places] == [*"0123"]
    assert {place["RNN_SCALING_SIZE"] for place in places} == {"4"}
    [address] = {place["RNN_SCALING_MEETING"] for place in places}
    assert address.startswith("127.0.0.1:")
    equal_tasks = ranks.Starter().make_tasks(resolve_on_cpu(**SEVERAL), [])
    assert not any(task.may_fail for task in equal_tasks)


def test_the_ranks_of_a_run_have_one_token_in_their_environments_and_not_on_their_command_lines():
    def token_of(tasks):
        [token] = {task.environment["RNN_SCALING_JOB_TOKEN"] for task in tasks}
        assert not any(token in word for task in tasks for word in task.command)
        return token

    starter, config = ranks.Starter(), resolve_on_cpu(**SEVERAL)
    first, second = (
        token_of(starter.make_tasks(config, ["--seed=2"])) for _ in range(2)
    )
    assert first != second and min(len(first), len(second)) >= 32


@pytest.mark.parametrize(
    "launch, given, shown",
    [
        ("", {}, "./run.sh train --seed=2"),
        ("", SEVERAL, "./run.sh local-cluster --workers=3 -- --seed=2"),
        ("", {**SEVERAL, "num_workers": 1}, "./run.sh train --seed=2"),
        ("srun -K", SEVERAL, "srun -K -n 3 ./run.sh train --seed=2"),
        ("mpirun -H a,b", {}, "mpirun -H a,b -n 1 ./run.sh train --seed=2"),
    ],
)
def test_a_dry_run_shows_what_a_person_would_type(launch, given, shown):
    command = ranks.Starter(launch=launch).build_command(
        resolve_on_cpu(**given), ["--seed=2"]
    )
    assert command.text == shown


def test_a_launcher_is_a_command_that_is_here():
    assert ranks.check_launcher(f"{sys.executable} -x 'a b'")
    assert ranks.check_launcher("") == ""
    for wrong, why in (
        ("no_such_launcher -K", "no_such_launcher was not found"),
        ('srun "', "No closing quotation"),
    ):
        with pytest.raises(ValueError, match=why):
            ranks.check_launcher(wrong)


def test_a_rank_that_was_killed_is_named_beside_what_the_others_say(capsys):
    config = resolve_on_cpu(**SEVERAL)
    remedy = "killed by SIGKILL: often the kernel's out-of-memory killer; see dmesg"
    assert ranks.describe_killed_rank(LOST, config) == f"worker 2 (rank 2) was {remedy}"
    assert ranks.report_end(LOST, config) == 1
    assert capsys.readouterr().err == f"worker 2 (rank 2) was {remedy}\n"
    assert ranks.report_end(ProcessOutcome(-9, False, [], 0, (-9, 1, 1)), config) == 1
    assert capsys.readouterr().err == f"error: worker 0 (rank 0) was {remedy}\n"
    assert (
        ranks.explain(LOST, config, make_user_limit(0)).message
        == f"worker 2 (rank 2): {remedy} (last output: x)"
    )


def test_a_rank_that_failed_is_told_with_its_own_words_unless_rank_0_has_told(capsys):
    config = resolve_on_cpu(**SEVERAL)
    said = [
        "error: of another",
        "[worker 1] error: no such device",
        "[worker 2] error: else",
    ]
    assert ranks.report_end(ProcessOutcome(3, False, said, 1, (-9, 3, 1)), config) == 3
    line = "worker 1 (rank 1): ended with exit status 3 and no result: no such device"
    assert capsys.readouterr().err == f"error: {line}\n"
    assert ranks.report_end(ProcessOutcome(3, False, said, 1, (1, 3, 1)), config) == 3
    assert ranks.report_end(ProcessOutcome(0, False, said, 0, (0, 0, 0)), config) == 0
    assert capsys.readouterr().err == ""
    said = ["[worker 1] error: rank 0 (host a) is frozen"]
    assert ranks.report_end(ProcessOutcome(1, False, said, 1, (-9, 1, 1)), config) == 1
    assert capsys.readouterr().err == "error: rank 0 (host a) is frozen\n"


def test_the_flags_of_all_ranks_are_checked_at_once():
    check = cluster_options.check_trainer_flags
    words, config = check(["--seed=2"], {"workers": 3, "ps": None})
    mode = f"--variable_update={cluster_options.DEFAULT_MODE}"
    assert set(words) == {"--seed=2", "--num_workers=3", mode}
    assert config.cluster.num_workers == 3
    assert config.update.variable_update == cluster_options.DEFAULT_MODE
    _, config = check([], {"workers": None})
    assert config.cluster.num_workers == cluster_options.DEFAULT_WORKERS
    _, config = check(["--num_workers=4"], {"workers": 4})
    assert config.cluster.num_workers == 4
    wrong = ["--num_workers=4", "--num_units=0", "--no=1"]
    with pytest.raises(FlagErrors) as error:
        check(wrong, {"workers": 3, "ps": 2}, ["first"])
    starts = ("first", "--workers=3 and --num_workers=4", "--no ", "--num_units=0 must")
    starts += ("--num_ps=2 would be ignored",)
    assert all(map(str.startswith, error.value.lines, starts))
    assert len(error.value.lines) == len(starts)
    with pytest.raises(FlagErrors, match="replicated runs in one process; use .*coll"):
        check(["--variable_update=replicated"], {"workers": 2})

"""./run.sh completion: what bash offers."""

from __future__ import annotations

import subprocess

import pytest

from rnn_scaling.commands import completion
from rnn_scaling.commands.table import COMMANDS

ASK = """
complete() {{ :; }}
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_rnn_scaling
printf '%s\\n' "${{COMPREPLY[@]}}"
""".replace("{{", "{").replace("}}", "}")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "script"
    path.write_text(completion.script())
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], {"train", "trace-db"}),
        ([""], set(COMMANDS)),
        (["train", "--num_d"], {"--num_devices=", "--num_decoder_layers="}),
        (["train", "--device", "="], {"auto", "cpu", "gpu"}),
        (["train", "--device", "=", "c"], {"cpu"}),
        (["sweep", "--device=c"], {"--device=cpu"}),
        (["sweep", "--encoder_type", "=", "d"], {"dynamic_rnn"}),
        (["report", "--fu"], {"--full="}),
        (["report", "--full", "="], {"true", "false"}),
        (["train", "--nothing"], {""}),
    ],
)
def test_bash_completes(script, words, expected):
    command = ["bash", "-c", ASK, "ask", str(script), "./run.sh", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "") and set(
        done.stdout.splitlines()
    ) == expected


def test_a_shell_that_is_not_known_is_refused(capsys):
    assert completion.main(["fish"]) == 2 and "bash or zsh" in capsys.readouterr().err
    assert completion.main(["zsh"]) == 0 and "bashcompinit" in capsys.readouterr().out

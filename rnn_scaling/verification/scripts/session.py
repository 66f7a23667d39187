"""Verify a user's script: run it, judge it, and write the certificate.

The command `verify` calls `verify`, which prints the answer and the progress.
"""

import dataclasses
import datetime
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import print_fitted
from rnn_scaling.system.processes import alive
from rnn_scaling.verification.scripts import certificate, judge, script_command
from rnn_scaling.verification.scripts.plan import Conductor, Record, Request
from rnn_scaling.verification.scripts.runner import MARK, Runner, ScriptError
from rnn_scaling.verification.scripts.verdict import Answer, Verdict

_EXIT_CANNOT_TELL = 3
STATUSES = {
    Answer.RIGHT: entry.EXIT_OK,
    Answer.WRONG: entry.EXIT_FAILED,
    Answer.CANNOT_TELL: _EXIT_CANNOT_TELL,
}


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """The options of `verify --trainer`.

    Attributes:
      trainer: The command of one process.
      num_ranks: Number of processes.
      num_steps: Optimizer steps of each run.
      reference: Words after the command in serial runs.
      timeout_s: Time limit of each run, in seconds.
      result_file: The certificate is written there; "" for none.
      framework: A name of `runner.SERVERS`.
    """

    trainer: str
    num_ranks: int
    num_steps: int
    reference: str
    timeout_s: float
    result_file: str
    framework: str = "torch"


def verify(request: ScriptRequest) -> int:
    """Verify a script and print the answer; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="rnn-scaling-verify-") as folder_name:
        folder = Path(folder_name)
        try:
            runs, version = _run_script(request, folder)
        except ScriptError as e:
            return entry.fail(f"--trainer: {e}", status=_EXIT_CANNOT_TELL)
        for process in alive.find_leftovers(f"{MARK}={folder}"):
            entry.warn(f"process {process} of the script is still running; end it")
    verdict = judge.judge(runs)
    facts = {
        "command": request.trainer,
        "reference": request.reference,
        "num_ranks": request.num_ranks,
        "num_steps": request.num_steps,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        request.framework: version,
        "rnn_scaling": entry.VERSION,
    }
    if request.result_file:
        data = certificate.to_json(verdict, runs, facts)
        write_text(input_files.format_json(data, indent=None), request.result_file)
    return _answer(verdict, facts)


def _run_script(request: ScriptRequest, folder: Path) -> tuple[dict[str, Record], str]:
    """Return the records of all runs by name, and the version of the framework.

    Raises:
      ScriptError: If the hooks do not start, or do not answer.
    """
    command = script_command.parse(request.trainer)
    sizes = Request(
        request.num_ranks,
        request.num_steps,
        shlex.split(request.reference),
        # Only the hooks of torch can change clipping and samples.
        is_driven=request.framework == "torch",
    )
    with Runner(
        command, folder, request.timeout_s, request.num_ranks, request.framework
    ) as runner:
        runs = Conductor(runner, sizes, folder, _show_progress).conduct()
        return runs, runner.version


def check(path: str) -> int:
    """Repeat the verdict of a certificate file; return the exit status."""
    try:
        content = input_files.parse_json(input_files.read_text(path))
        verdict, is_same = certificate.check(content)
    except (OSError, ValueError) as e:
        raise entry.Refusal(f"--check={path}: {e}") from None
    status = _answer(verdict, content)
    if not is_same:
        return entry.fail(
            f"--check={path}: its records do not lead to its verdict "
            f"({content['verdict']['answer']}); the file was changed, or another "
            "version wrote it"
        )
    return status


def _answer(verdict: Verdict, facts: dict[str, Any]) -> int:
    print_fitted(certificate.text(verdict, facts["num_ranks"], facts["num_steps"]))
    return STATUSES[verdict.answer]


def _show_progress(name: str) -> None:
    if sys.stderr.isatty():
        print(f"run: {name}", file=sys.stderr)

"""Measure how many bugs of PyTorch scripts `verify` finds, and how often it is wrong.

    python -m benchmarks.script_power                     everything, an hour on 2 cores
    python -m benchmarks.script_power --groups=bugs,check
    python -m benchmarks.script_power --only=clip,tied    names that contain a word

Groups are bugs, unseen, twins, right, defects, check, and batch1 to batch4, which have
bugs and right scripts. Each script is written to a folder of its own and verified as a
user would do it. The group `check` does without `verify`: it trains with and without
each bug, and on one and several processes, and prints how far the weights are apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.right_scripts import RIGHT
from benchmarks.script_batches import BATCHES
from benchmarks.script_table import BUGS, DDP, MANUAL, UNSEEN, WEAK, Script

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "benchmarks/scripts"
GROUPS = ("bugs", "unseen", "twins", "right", "defects", *BATCHES)
TIMEOUT_S = 300
ANSWERS = {0: "right", 1: "WRONG", 3: "cannot tell"}  # exit status of verify
DEFECTS = [10.0**-digits for digits in range(1, 7)]
TENSORS = (0, 2, 3, 5)  # of the LSTM: embedding, recurrent weights, bias, head
STEP = "        optimizer.step()"
DESTROY = "if world > 1:\n    dist.destroy"
SAVE = '\ntorch.save(model.state_dict(), f"weights.{rank}.pt")\n'
DISTANCE = """
import torch
first, second = [torch.load(path) for path in {paths}]
norms = [(first[name] - second[name]).norm().item() for name in first]
print(max(norms) / max(each.norm().item() for each in first.values()))
"""


@dataclass
class Outcome:
    """The answer of `verify` about one script."""

    name: str
    base: str
    answer: str  # right, WRONG, cannot tell, or how it failed
    line: str  # the first line of the output
    is_named: bool
    cpu_s: float


def write(script: Script, folder: Path) -> None:
    """Write train.py and language_model.py with the script's changes.

    Raises:
      ValueError: If the old text of a change is not in a base script exactly once.
    """
    texts = {
        "language_model.py": (SCRIPTS / "language_model.py").read_text(),
        "train.py": (SCRIPTS / f"train_{script.base}.py").read_text(),
    }
    for changes in (script.changes, script.bug):
        for old, new in changes.items():
            files = [name for name, text in texts.items() if old in text]
            if not files or texts[files[0]].count(old) != 1:
                raise ValueError(f"{script.name}: {old!r} must be there once")
            texts[files[0]] = texts[files[0]].replace(old, new)
    for name, text in texts.items():
        (folder / name).write_text(text)


def prepare(script: Script, folder: Path, python: str) -> None:
    """Write the script and, if it resumes, the checkpoint from which it does."""
    write(script, folder)
    if "--resume" in script.flags:
        flags = script.flags.replace("--resume=checkpoint.pt", "--epochs=1")
        run([python, "train.py", *flags.split()], folder)


def run(command: list[str], folder: Path, **variables: str) -> tuple[int, str, str]:
    """Run a command; returns its exit status (124: stopped), output and errors."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return 124, "", f"stopped after {TIMEOUT_S} s"
    return process.returncode, output, errors


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def verify(script: Script, python: str, command: list[str]) -> Outcome:
    """Write a script to a new folder and let `verify` judge it there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(script, folder, python)
        flags = [
            f"--trainer={python} train.py {script.flags}".strip(),
            f"--num_devices=1,{script.num_processes}",
            "--result_file=certificate.json",
        ]
        if script.reference:
            flags.append(f"--reference={script.reference}")
        before_s = cpu_s()
        status, output, errors = run([*command, *flags], folder)
        used_s = cpu_s() - before_s
    lines = (output.strip() or errors.strip() or "nothing printed").splitlines()
    line = lines[0] if output.strip() else lines[-1]
    return Outcome(
        name=script.name,
        base=script.base,
        answer=ANSWERS.get(status, f"failed with status {status}"),
        line=line,
        is_named=bool(re.search(script.cause, line, re.IGNORECASE)),
        cpu_s=used_s,
    )


def distinct_twins() -> list[Script]:
    """Return the scripts with bugs without their bugs, each once."""
    twins = {}
    for script in BUGS:
        twin = script.twin
        twins.setdefault((twin.base, twin.flags, str(twin.changes)), twin)
    return list(twins.values())


def defective(base: str, tensor: int, size: float) -> Script:
    """Return a script that applies one gradient times 1 + size on several processes."""
    scale = f"list(model.parameters())[{tensor}].grad *= {1 + size!r}"
    bug = {STEP: f"        if world > 1:\n            {scale}\n{STEP}"}
    return Script(f"factor 1 + {size:g} on tensor {tensor}", base, bug=bug)


def measure_defects(python: str, command: list[str]) -> list[Outcome]:
    """Bisect the smallest defect that is found, tensor by tensor, and print the rates.

    A defect that is larger than one that was found counts as found.
    """
    outcomes = []
    found = dict.fromkeys(DEFECTS, 0)
    cases = list(itertools.product((DDP, MANUAL), TENSORS))
    for base, tensor in cases:
        num_found = 0
        first_missed = len(DEFECTS)
        while num_found < first_missed:
            middle = (num_found + first_missed) // 2
            outcome = verify(defective(base, tensor, DEFECTS[middle]), python, command)
            outcomes.append(outcome)
            report(outcome.answer, outcome)
            if outcome.answer == "WRONG":
                num_found = middle + 1
            else:
                first_missed = middle
        for size in DEFECTS[:num_found]:
            found[size] += 1
    print("\n| gradient of one tensor times | found |\n| --- | --- |")
    for size, number in found.items():
        print(f"| 1 + {size:.0e} | {number} of {len(cases)} |")
    return outcomes


def report(word: str, outcome: Outcome) -> None:
    print(
        f"{word} | {outcome.name}, {outcome.base} | {outcome.cpu_s:.0f} s | "
        f"{outcome.line[:200]}",
        flush=True,
    )


def measure_bugs(
    scripts: list[Script], python: str, command: list[str]
) -> list[Outcome]:
    """Verify each script with a bug, and print how many were found and named."""
    outcomes = []
    found = 0
    named = 0
    for script in scripts:
        outcome = verify(script, python, command)
        outcomes.append(outcome)
        is_found = outcome.answer == "WRONG"
        is_named = is_found and outcome.is_named
        found += is_found
        named += is_named
        word = "named" if is_named else "found" if is_found else "MISSED"
        report(word, outcome)
    print(f"\n{found} of {len(outcomes)} bugs found, {named} named; {cost(outcomes)}\n")
    return outcomes


def measure_right(
    scripts: list[Script], python: str, command: list[str]
) -> list[Outcome]:
    """Verify each right script, and print how many were called wrong."""
    outcomes = []
    for script in scripts:
        outcome = verify(script, python, command)
        outcomes.append(outcome)
        is_alarm = outcome.answer == "WRONG"
        report("ALARM" if is_alarm else outcome.answer, outcome)
    answers = [outcome.answer for outcome in outcomes]
    print(
        f"\n{answers.count('WRONG')} false alarms in {len(outcomes)} right scripts, "
        f"{answers.count('right')} called right; {cost(outcomes)}\n"
    )
    return outcomes


def cost(outcomes: list[Outcome]) -> str:
    """Return the CPU time per script as text."""
    if not outcomes:
        return "no scripts"
    times_s = [outcome.cpu_s for outcome in outcomes]
    median_s = statistics.median(times_s)
    return (
        f"{median_s:.0f} s of a core per script (median), at most {max(times_s):.0f} s"
    )


def train(script: Script, num_processes: int, folder: Path, python: str) -> None:
    """Train on some processes; weights.RANK.pt holds the result of each rank.

    Raises:
      RuntimeError: If a process failed.
    """
    prepare(script, folder, python)
    text = (folder / "train.py").read_text()
    place = text.find(DESTROY) if DESTROY in text else len(text)
    (folder / "train.py").write_text(text[:place] + SAVE + text[place:])
    command = [python, "train.py", *script.flags.split()]
    if num_processes == 1:
        status, _, errors = run(command, folder)
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        launch = f"--nproc_per_node={num_processes} --master_port={port}"
        launcher = [python, "-m", "torch.distributed.run", *launch.split()]
        status, _, errors = run([*launcher, *command[1:]], folder, OMP_NUM_THREADS="1")
    if status:
        raise RuntimeError(f"{script.name}: {errors[-500:]}")


def check(script: Script, python: str) -> str:
    """Return how far weights are apart: bug and twin, one and several processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = {"right": (script.twin, script.num_processes)}
        if not WEAK[script.base].items() <= script.changes.items():
            sides["one process"] = (script.twin, 1)
        if script.bug:
            sides["bug"] = (script, script.num_processes)
        parts = []
        for side, (each, num_processes) in sides.items():
            (folder / side).mkdir()
            train(each, num_processes, folder / side, python)
            paths = [f"{folder}/right/weights.0.pt", f"{folder}/{side}/weights.0.pt"]
            _, output, _ = run([python, "-c", DISTANCE.format(paths=paths)], folder)
            parts.append(f"{side} {float(output):.0e}")
        return ", ".join(parts[1:])


def main(words: list[str]) -> int:
    """Run the chosen groups; return 1 if a right script was called wrong."""
    options = parse_options(words)
    groups = options.groups.split(",")
    if "check" in groups:
        for script in choose([*BUGS, *UNSEEN, *RIGHT], options.only):
            distances = check(script, options.torch_python)
            print(f"{script.name}, {script.base}: {distances}")
    outcomes: dict[str, list[Outcome]] = {}
    for group in GROUPS:
        if group in groups:
            outcomes |= measure_group(group, options)
    if options.out:
        write_outcomes(Path(options.out), outcomes)
    right = []
    for group, several in outcomes.items():
        if group.endswith(("right", "twins")):
            right += several
    return int(any(outcome.answer == "WRONG" for outcome in right))


def parse_options(words: list[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--torch_python",
        default=str(ROOT / ".venv-torch/bin/python"),
        help="path of a Python with PyTorch, which runs the scripts",
    )
    parser.add_argument(
        "--only",
        default="",
        help="only scripts whose names contain one of these texts, separated by commas",
    )
    parser.add_argument(
        "--groups",
        default=",".join(GROUPS),
        help="groups of scripts, separated by commas",
    )
    parser.add_argument(
        "--out", default="", help="JSON file to which all answers are written"
    )
    parser.add_argument(
        "--verify", default=f"{ROOT}/run.sh verify", help="command that judges a script"
    )
    return parser.parse_args(words)


def choose(scripts: list[Script], only: str) -> list[Script]:
    """Return the scripts whose names contain a text of --only."""
    texts = only.split(",")
    chosen = []
    for script in scripts:
        if any(text in script.name for text in texts):
            chosen.append(script)
    return chosen


def measure_group(group: str, options: argparse.Namespace) -> dict[str, list[Outcome]]:
    """Measure a group of scripts; a batch has two results, bugs and right scripts."""
    python = options.torch_python
    command = options.verify.split()
    if group == "defects":
        return {group: measure_defects(python, command)}
    if group == "twins":
        twins = choose(distinct_twins(), options.only)
        return {group: measure_right(twins, python, command)}
    if group == "right":
        right = choose(RIGHT, options.only)
        return {group: measure_right(right, python, command)}
    if group in BATCHES:
        bugs, right = BATCHES[group]
    else:
        bugs = {"bugs": BUGS, "unseen": UNSEEN}[group]
        right = None
    bugs = choose(bugs, options.only)
    outcomes = {group: measure_bugs(bugs, python, command)}
    if right is not None:
        right = choose(right, options.only)
        outcomes[f"{group} right"] = measure_right(right, python, command)
    return outcomes


def write_outcomes(path: Path, outcomes: dict[str, list[Outcome]]) -> None:
    """Write all answers as JSON."""
    facts = {}
    for group, several in outcomes.items():
        facts[group] = [asdict(outcome) for outcome in several]
    path.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

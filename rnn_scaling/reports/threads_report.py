"""Records of runs with several numbers of threads -> what bounds them, printed and written."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.steps import dispatch_threads
from rnn_scaling.files.output_files import write_bytes, write_text
from rnn_scaling.files.terminal import tell
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import threads_table


def report(out: Path, records: Sequence[RunRecord], defaults: Mapping[int, int]) -> bool:
    """Prints and writes what the records say.

    Args:
      defaults: number of devices -> the trainer's own number of threads.

    Returns:
      Whether there is anything to say and it was written.
    """
    probes = dispatch_threads.probes(records, defaults)
    tell(threads_table.summary(probes))
    if all(probe.best is None for probe in probes):
        entry.fail("no run measured anything")
        return False
    try:
        write_text(threads_table.markdown(probes), out / "threads.md")
        write_text(threads_table.to_json(probes), out / "threads.json")
        write_bytes(threads_table.picture(probes), out / "threads.png")
    except OSError as e:
        entry.fail(f"--out={out}: {e.strerror or e}")
        return False
    print(f"\nwrote {out / 'threads.md'}, threads.json and threads.png", file=sys.stderr)
    return True

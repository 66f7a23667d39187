"""One file with which somebody else can check every number of a folder.

It contains the records, the outputs of failed runs, the report's files and SHA256SUMS.
The records have the environment and all options. README.txt explains how to check
them, and commands.txt repeats each run. Equal contents give equal archives.

`report --archive` writes it.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.entry import VERSION
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_bytes

_TEXT_SUFFIXES = (".stderr.txt", ".log.txt")  # outputs of runs
_README = """\
Records of measured runs, made by rnn_scaling {version}.

records/      one JSON file per run: options, machine, every batch, and the outputs
report/       tables, numbers and page that were made from the records
commands.txt  the command that repeats each run
SHA256SUMS    check with: sha256sum -c SHA256SUMS

To make the report again: rnn-scaling report records --output=report2
"""


def write(
    folder: Path, files: Folder, report_files: Mapping[str, bytes], archive: Path
) -> str:
    """Write a .tar.gz; return a line about it.

    Args:
      folder: The folder of the runs.
      files: The records of the folder.
      report_files: Name -> content of each file of the report.
      archive: The file to write. Its name without suffixes is the folder inside.

    Raises:
      OSError: If a file cannot be read or the archive cannot be written.
    """
    contents = {
        "README.txt": _README.format(version=VERSION).encode(),
        "commands.txt": _format_commands(files).encode(),
    }
    for name, content in report_files.items():
        contents[f"report/{name}"] = content
    for path in sorted(folder.iterdir()):
        is_record = path.name in {run.name for run in files.runs}
        if is_record or path.name.endswith(_TEXT_SUFFIXES):
            with input_files.open_regular(path, input_files.UNLIMITED) as file:
                contents[f"records/{path.name}"] = file.read()
    contents["SHA256SUMS"] = _format_checksums(contents).encode()
    root = archive.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    write_bytes(_pack_archive(contents, root), archive)
    return f"{archive}: {len(files.runs)} records, {len(contents)} files"


def _format_commands(files: Folder) -> str:
    lines = [f"{run.name}\t{_run_command(run.record)}\n" for run in files.runs]
    return "".join(lines)


def _run_command(record: RunRecord) -> str:
    if record.options.is_ours:
        return make_sweep_command(record.options)
    return str(record.options.known.get("trainer", "unknown program"))


def _format_checksums(contents: Mapping[str, bytes]) -> str:
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in contents.items()
    ]
    return "".join(lines)


def _pack_archive(contents: Mapping[str, bytes], root: str) -> bytes:
    """Return a compressed archive without times and owners."""
    uncompressed = io.BytesIO()
    with tarfile.TarFile(
        fileobj=uncompressed, mode="w", format=tarfile.PAX_FORMAT
    ) as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(uncompressed.getvalue(), mtime=0)

"""Compile and test the faster CPU operators.

`./run.sh` runs this module as a program during set-up. If it fails, set-up continues,
and TensorFlow's operators are used.
"""

import contextlib
import errno
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.models.extension import cache, library, switch

_FLAGS = ("-std=gnu11", "-O3", "-Wall", "-fPIC", "-fvisibility=hidden")
_AVX512_FLAGS = ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
_VARIANTS = {
    "avx2": ("-mfma", "-mavx2"),
    "avx512": _AVX512_FLAGS,
    "avx512_bf16": (*_AVX512_FLAGS, "-mavx512bf16"),
}
_TITLES = {
    "avx2": "AVX2",
    "avx512": "AVX-512",
    "avx512_bf16": "AVX-512 with BF16",
}
_BUILD_FOLDER_PREFIX = "rnn-scaling-kernels-"
# It is run as a program, because `models` must not import `rnn_scaling.system`.
_PARENT_DEATH_LAUNCHER = (
    Path(__file__).parents[2] / "system" / "processes" / "parent_death_launcher.py"
)


def main() -> int:
    """Build and test the operators; print the result in one line.

    Returns:
      The exit status 0, because set-up continues without the operators.
    """
    start_s = time.perf_counter()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from rnn_scaling.models.extension import operators

    try:
        file, origin = build()
        # "": the best instruction set of this processor.
        instruction_set, failure = operators.choose("")
    except (RuntimeError, OSError) as e:
        reason = _describe_error(e)
        print(f"faster CPU kernels: not built, TensorFlow's are used: {reason}")
        return 0
    seconds = time.perf_counter() - start_s
    if instruction_set is None:
        # The library exists, so the processor is the only reason without a text.
        reason = failure or "this processor has no AVX2"
        print(f"faster CPU kernels: not used: {reason}")
        return 0
    title = _TITLES[instruction_set]
    if failure:
        print(f"faster CPU kernels: {origin} for {title} and not used: {failure}")
        return 0
    cache.keep(file)
    print(f"faster CPU kernels: {origin} for {title} and tested ({seconds:.0f} s)")
    return 0


def build() -> tuple[Path, str]:
    """Return the library's file and its origin; compile it if it is missing or damaged.

    A library that another checkout of this user has built is copied. Libraries built
    from other sources are removed, and so are the leftovers of killed builds.

    Returns:
      The file, and "built", "copied from the cache" or "found".

    Raises:
      RuntimeError: If the compiler fails.
      OSError: If there is no compiler, or the folder cannot be written.
    """
    from rnn_scaling.models.extension import operators

    file = operators.own_library_file()
    _remove_leftovers(file.parent)
    origin = "found"
    if not _is_intact(file):
        if file.parent.is_dir() and cache.copy_to(file):
            origin = "copied from the cache"
        else:
            _compile(file)
            origin = "built"
    for old in file.parent.glob("kernels-*.so*"):
        if not old.name.startswith(operators.make_library_prefix()):
            with contextlib.suppress(OSError):  # another process may do the same
                old.unlink()
    return file, origin


def _is_intact(file: Path) -> bool:
    try:
        library.identify(file)
    except library.DamageError:
        return False
    return True


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed builds left among the sources.

    Older versions compiled in a folder tmp*.so there.
    """
    for old_folder in folder.glob("tmp????????.so"):
        if old_folder.is_dir() and not old_folder.is_symlink():
            shutil.rmtree(old_folder, ignore_errors=True)
    for file in folder.glob(".kernels-*.tmp"):
        with contextlib.suppress(OSError):
            file.unlink()


def _compile(file: Path) -> None:
    """Compile the sources, and replace the library in one step."""
    import tensorflow as tf

    if not os.access(file.parent, os.W_OK):
        raise OSError(errno.EACCES, "no permission to write there", str(file.parent))
    print(
        "building faster CPU kernels (10 to 40 s, once per version of their sources)",
        flush=True,
    )
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with _make_build_folder() as folder:
        commands = _list_compile_commands(compiler, folder)
        _run_all(list(commands.values()), folder)
        linked = folder / "kernels.so"
        framework = f"{tf.sysconfig.get_lib()}/libtensorflow_framework.so.2"
        inputs = [*commands, framework, "-lm"]
        _run_all([[*compiler, "-shared", "-o", str(linked), *inputs]], folder)
        content = linked.read_bytes()
    with library.open_replacement(file) as new:
        new.write_bytes(library.seal(content, file.name))


def _list_compile_commands(
    compiler: Sequence[str], folder: Path
) -> dict[str, list[str]]:
    """Return the command that compiles each object file."""
    import tensorflow as tf

    sources = Path(__file__).parent
    supported_sets = switch.list_supported_sets(switch.read_processor_instructions())
    commands = {}
    for name in supported_sets:
        object_file = f"{folder}/{name}.o"
        source = [f"-DVARIANT={name}", "-c", f"{sources}/variant.c", "-o", object_file]
        commands[object_file] = [*compiler, *_FLAGS, *_VARIANTS[name], *source]
    object_file = f"{folder}/kernels.o"
    includes = f"-isystem{tf.sysconfig.get_include()}"
    source = [includes, "-c", f"{sources}/kernels.c", "-o", object_file]
    commands[object_file] = [*compiler, *_FLAGS, *source]
    return commands


@contextlib.contextmanager
def _make_build_folder() -> Iterator[Path]:
    """Yield a temporary folder for one build.

    Folders of killed builds are removed first. A build holds a lock on its folder,
    which ends with the process.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{_BUILD_FOLDER_PREFIX}*"):
        _remove_if_abandoned(old)
    with tempfile.TemporaryDirectory(
        prefix=_BUILD_FOLDER_PREFIX, ignore_cleanup_errors=True
    ) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(lock)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove the folder of a build that was killed, if it is this user's.

    An empty folder may be new, and its build may not have locked it yet.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if os.fstat(lock).st_uid == os.getuid() and os.listdir(lock):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # a build that runs has the lock
        pass
    finally:
        os.close(lock)


def _run_all(commands: Sequence[Sequence[str]], folder: Path) -> None:
    """Run all commands at the same time; their temporary files are in the folder.

    They end with this process, even if it is killed.

    Raises:
      RuntimeError: With the first message of a command that fails.
    """
    environment = {**os.environ, "TMPDIR": str(folder)}
    launcher_command = [
        sys.executable,
        "-I",
        str(_PARENT_DEATH_LAUNCHER),
        str(os.getpid()),
        "--group",  # the processes that the compiler starts end, too
    ]
    processes = [
        subprocess.Popen(
            [*launcher_command, *command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
        for command in commands
    ]
    # All have ended before their folder is removed.
    messages = [process.communicate()[1] for process in processes]
    for process, command, errors in zip(processes, commands, messages, strict=True):
        if process.returncode:
            lines = [line for line in errors.splitlines() if "error" in line]
            reason = lines[0] if lines else f"exit status {process.returncode}"
            raise RuntimeError(f"{command[0]} cannot build the operators: {reason}")


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())

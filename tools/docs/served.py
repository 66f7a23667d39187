"""Run commands of the suite in forks of one process, which has loaded the libraries.

    python served.py SOCKET                  serves until its standard input is closed
    python -IS served.py SOCKET WORDS...     runs `./run.sh WORDS...` in the server

The command has the folder, the environment and the standard streams of the client.
"""

import json
import os
import socket
import sys
import threading

FOLDER = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))
PRELOADED = (
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "rnn_scaling.commands.compare",
    "rnn_scaling.commands.inspect",
    "rnn_scaling.commands.predict",
    "rnn_scaling.commands.report",
    "rnn_scaling.commands.sweep",
)
READY = "ready"
MAX_REQUEST_BYTES = 1 << 20
MAX_STATUS_BYTES = 16


def serve(path: str) -> None:
    """Load the libraries, then fork a handler for every client."""
    import gc
    import importlib
    import signal

    sys.path[0] = ROOT
    sys.argv = ["rnn-scaling"]  # The package's __init__ recognises its program.
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print(READY, flush=True)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _handle(connection)
        connection.close()


def _end_with_caller() -> None:
    os.read(0, 1)
    os._exit(0)


def _handle(connection: socket.socket) -> None:
    """Run the command of a client in a fork, send its exit status, and end."""
    request, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
    child = os.fork()
    if child == 0:
        connection.close()
        _run(json.loads(request), streams)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(str(status).encode())
    os._exit(0)


def _run(request: dict, streams: list[int]) -> None:
    """Run a command like `./run.sh`; never return."""
    from rnn_scaling.system.processes import start

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The inherited objects have the server's position in its files.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    status = 0
    try:
        start.main(["./run.sh", "rnn_scaling", *request["words"]])
    except SystemExit as error:
        status = error.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def ask(path: str, words: list[str]) -> int:
    """Let the server run a command; return its exit status."""
    request = {
        "words": words,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    return int(connection.recv(MAX_STATUS_BYTES))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    sys.exit(ask(sys.argv[1], sys.argv[2:]))

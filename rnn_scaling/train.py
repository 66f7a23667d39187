"""python -m rnn_scaling.train: the command `train`, as a module of its own."""

from rnn_scaling.commands.train import main
from rnn_scaling.system import entry

if __name__ == "__main__":
    entry.call_program("python -m rnn_scaling")
    entry.leave(main, at_once=True)

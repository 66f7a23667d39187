"""python -m rnn_scaling.train: the command `train` as a separate module."""

from collections.abc import Sequence

from rnn_scaling.system import entry


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command `train`; return its exit status."""
    # Imported here, so that Ctrl-C is answered while it loads.
    from rnn_scaling.commands import train

    return train.main(words)


if __name__ == "__main__":
    entry.set_program_name("python -m rnn_scaling")
    entry.leave(main, at_once=True)

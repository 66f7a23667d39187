"""Which options the name of a configuration holds; who names series or pairs of runs puts them into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rnn_scaling.settings.config import OPTIONS

NAMED = ("encoder_type", "variable_update", "num_devices")  # always in a name, by value alone
_DEFAULT_MODEL = repr(OPTIONS["model"].default)


def distinguishing(names: Iterable[str], configurations: Sequence[Mapping[str, str]]) -> list[str]:
    """The options that tell the configurations apart, and the model where any's is not the default.

    An option that only some of them read tells those apart alone: text files do not tell text from synthetic words.

    Args:
      names: options to choose from, in their order.
      configurations: of each, the `repr` of the options that it reads, by name.
    """
    values = {name: {options[name] for options in configurations if name in options} for name in names}
    return [name for name, given in values.items() if len(given) > 1 or (name == "model" and given - {_DEFAULT_MODEL})]

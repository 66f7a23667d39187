"""What a layer's cells can be: --unit_type -> what is to be known of it before its module loads.

A new cell is one file and one line. Its module, models/cells/NAME.py, has

- `STATE`: names of what a cell keeps from one step to the next, each [B, U]; the last of them is its output;
- `weights(input_dim, num_units)`: the specs of its variables;
- `step(x, state, weights, forget_bias)`: one step, x [B, D] -> the next state. It is the definition of the cell:
  every kernel that claims the cell must agree with it.
"""

import dataclasses
import importlib
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class UnitType:
    help: str  # in a few words
    title: str  # its name in sentences
    matrices: int  # its products with x [B, D] and with h [B, U] have `matrices * U` columns each
    reads: tuple[str, ...] = ()  # options that not every cell reads


UNIT_TYPES = {
    "lstm": UnitType("without peepholes", "LSTM", 4, ("forget_bias",)),
    "gru": UnitType("as cuDNN's", "GRU", 3),
    "layer_norm_lstm": UnitType("LSTM with layer normalization", "layer-normalized LSTM", 4, ("forget_bias",)),
    "nas": UnitType("NASCell", "NAS cell", 8),
}


def load(name: str) -> ModuleType:
    """Imports and returns the module of the cell `name`."""
    return importlib.import_module(f"rnn_scaling.models.cells.{name}")

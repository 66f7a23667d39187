"""How recurrent and sequence-to-sequence training scales over devices, and why it falls short."""

__version__ = "0.1.0"

"""Turn on oneDNN's operators on processors where TensorFlow leaves them off.

TensorFlow turns oneDNN on by default only on processors with one of _DEFAULT_UNITS. On
x86 processors with AVX2 but without these, its matrix products are faster as well:
1.2 to 1.8 times the rate of text models (BUILD_NOTES.md). Image networks keep
TensorFlow's default, because without AVX-512 oneDNN computes wrong gradients of strided
1x1 convolutions in NCHW.

Source: tensorflow/core/util/port.cc, DefaultOneDnnPolicy.

It must be called before TensorFlow loads.
"""

import os
from collections.abc import Collection, MutableMapping

ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
# Vector units of processors on which TensorFlow turns oneDNN on.
_DEFAULT_UNITS = ("avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile", "amx_int8")
_NEEDED_UNITS = ("avx2", "fma")


def turn_on_onednn(
    vector_units: Collection[str],
    variables: MutableMapping[str, str] = os.environ,
) -> bool:
    """Turn oneDNN on if this processor profits and the user has not decided.

    It has no effect after TensorFlow has loaded.

    Args:
      vector_units: The vector units of the processor, as the record names them.
      variables: The environment variables, which are changed.

    Returns:
      Whether oneDNN was off by default and is now on.
    """
    is_default = any(unit in vector_units for unit in _DEFAULT_UNITS)
    is_fast = all(unit in vector_units for unit in _NEEDED_UNITS)
    if ONEDNN_VARIABLE in variables or is_default or not is_fast:
        return False
    variables[ONEDNN_VARIABLE] = "1"
    return True

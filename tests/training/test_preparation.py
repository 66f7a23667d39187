"""The loading of TensorFlow, with a small package that has the same layout."""

from tests.support.python import python

SOURCES = {
    "__init__.py": "from tensorflow._api.v2 import audio, compat, distribute, sets\n",
    "_api/__init__.py": "",
    "_api/v2/__init__.py": "",
    "_api/v2/compat/__init__.py": "from tensorflow._api.v2.compat import v1\n",
    # It replaces itself like the module of TensorFlow.
    "_api/v2/compat/v1/__init__.py": "import sys, types\nreplaced = types.ModuleType('v1')\nreplaced.name = 3\n"
    "sys.modules[__name__] = replaced\n",
    "_api/v2/audio/__init__.py": "raise ImportError('audio was loaded')\n",
    "_api/v2/sets/__init__.py": "from tensorflow.python.ops import size\n",
    # A package of the same name, which the module of names loads.
    "_api/v2/distribute/__init__.py": "from tensorflow.distribute.rpc import port\n",
    "distribute/__init__.py": "",
    "distribute/rpc.py": "port = 1\n",
    "python/__init__.py": "",
    "python/ops.py": "size = 2\n",
}
CHECKS = """
import gc, sys
from rnn_scaling.training.preparation import speed_up_loading
finders = list(sys.meta_path)
with speed_up_loading():
    import tensorflow
    assert not gc.isenabled()
assert gc.isenabled() and gc.get_freeze_count() and sys.meta_path == finders
assert [tensorflow.distribute.port for _ in range(2)] == [1, 1]
assert tensorflow.sets.size == 2 and tensorflow.compat.v1.name == 3
try:
    tensorflow.audio.name
except ImportError as error:
    assert str(error) == "audio was loaded"
"""


def test_modules_of_names_load_when_they_are_used_and_the_rest_at_once(tmp_path):
    for name, source in SOURCES.items():
        path = tmp_path / "tensorflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    checks = f"import sys; sys.path.insert(0, {str(tmp_path)!r}){CHECKS}"
    done = python(checks)
    assert done.returncode == 0, done.stderr

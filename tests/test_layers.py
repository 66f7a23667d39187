"""Layers: imports go downwards and in no circle; few packages load TensorFlow."""

import ast
import graphlib
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

# Modules of the top level; they may import the commands.
TOP_LEVEL = ["train", "keras", "__main__"]
# Packages from the lowest layer up: a package imports only from the rows above its own.
LAYERS = [
    ["system", "models", "hooks"],
    ["config", "cluster"],
    ["records"],
    ["analysis", "data"],
    ["training", "reports"],
    ["sweeps", "verification", "inspection", "links", "frameworks"],
    ["commands", *TOP_LEVEL],
]
LAYER_OF = {
    package: layer for layer, packages in enumerate(LAYERS) for package in packages
}
# The only places that load TensorFlow: flags, validation, records and reports answer at once.
LOADS_TENSORFLOW = (
    "models/",
    "rnn_scaling/data/",
    "rnn_scaling/training/",
    "rnn_scaling/inspection/observe.py",
    "rnn_scaling/inspection/placement.py",
    "rnn_scaling/inspection/step_checks.py",
    "rnn_scaling/inspection/tracing.py",
    "rnn_scaling/links/compute.py",
    "rnn_scaling/links/cpu_copies.py",
    "rnn_scaling/links/reduce.py",
    "rnn_scaling/links/worker.py",
    "rnn_scaling/reports/tensorboard/event_files.py",
    "rnn_scaling/frameworks/keras.py",
    "rnn_scaling/hooks/keras.py",
    "rnn_scaling/frameworks/reference.py",
    "rnn_scaling/verification/",
)
NEVER_TENSORFLOW = (
    "models/batch.py",
    "models/config.py",
    "models/extension/library.py",
    "models/extension/switch.py",
    "models/encoder_table.py",
    "models/workloads.py",
    "rnn_scaling/data/image_files.py",
    "rnn_scaling/data/corpus.py",
    "rnn_scaling/data/source.py",
    *(
        f"rnn_scaling/training/{name}.py"
        for name in (
            "run",
            "observers",
            "state",
            "clock",
            "cluster",
            "slicing",
            "progress",
            "native_log",
        )
    ),
    *(
        f"rnn_scaling/training/{name}.py"
        for name in (
            "preparation",
            "recorder",
            "recording",
            "rank_meeting",
            "rank_report",
            "machine_watch",
            "record_file",
            "record_keeper",
            "run_errors",
            "worker_steps",
            "acceptance",
        )
    ),
    *(
        f"rnn_scaling/verification/{name}.py"
        for name in ("session", "rule", "certificates", "numbers", "signatures", "sums")
    ),
    *(
        f"rnn_scaling/verification/scripts/{name}.py"
        for name in (
            "accounting",
            "batch_means",
            "certificate",
            "comparison",
            "evidence",
            "facts",
            "gradient_judge",
            "judge",
            "plan",
            "runner",
            "samples",
            "script_command",
            "session",
            "settings",
            "verdict",
        )
    ),
    "rnn_scaling/training/checkpoint_folder.py",
)
LOADED_LATE = {  # inside the function that needs it, once flags are right
    ("rnn_scaling/commands/make_tfrecords.py", "rnn_scaling/data/make_tfrecords.py"),
    ("rnn_scaling/data/source.py", "models/layout.py"),
    ("rnn_scaling/commands/verify.py", "rnn_scaling/inspection/step_checks.py"),
    ("rnn_scaling/inspection/step_inspection.py", "rnn_scaling/inspection/observe.py"),
    ("rnn_scaling/training/run.py", "rnn_scaling/training/benchmark.py"),
    (
        "rnn_scaling/commands/run_files.py",
        "rnn_scaling/reports/tensorboard/event_files.py",
    ),
    ("rnn_scaling/frameworks/starting.py", "rnn_scaling/frameworks/reference.py"),
    ("rnn_scaling/verification/session.py", "rnn_scaling/verification/asynchronous.py"),
    ("rnn_scaling/verification/session.py", "rnn_scaling/verification/certifier.py"),
    ("rnn_scaling/verification/session.py", "rnn_scaling/verification/machine.py"),
}


@cache
def modules():
    paths = [
        path
        for folder in ("rnn_scaling", "models")
        for path in (ROOT / folder).rglob("*.py")
    ]
    return sorted(
        str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py"
    )


def find_package(module):
    """ "models/batch.py" -> "models", "rnn_scaling/system/machine/cores.py" -> "machine"."""
    parts = Path(module).with_suffix("").parts
    return parts[0] if parts[0] == "models" else parts[1]


@cache
def imports(module):
    """Project files that a file imports, at its top or inside its functions; "tensorflow" and "rnn_scaling" by name."""
    imported = set()
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [
                node.module,
                *(f"{node.module}.{alias.name}" for alias in node.names),
            ]
        else:
            continue
        for name in names:
            path = (
                name.replace(".", "/").replace("rnn_scaling/models", "models") + ".py"
            )
            if (ROOT / path).exists() and path.startswith(
                ("rnn_scaling", "models", "tests")
            ):
                imported.add(path)
            elif name.split(".")[0] == "tensorflow":
                imported.add("tensorflow")
            elif name == "rnn_scaling" and isinstance(node, ast.Import):
                imported.add(name)
    return frozenset(imported)


def project_imports(module):
    return imports(module) - {"tensorflow", "rnn_scaling"}


def test_every_package_has_a_layer():
    assert {find_package(module) for module in modules()} == LAYER_OF.keys()


def is_downward(package, target):
    if target == package or (package in TOP_LEVEL and target == "commands"):
        return True
    return LAYER_OF[target] < LAYER_OF[package] and package != "models"


def test_imports_between_packages_go_down():
    pairs = [
        (module, imported)
        for module in modules()
        for imported in project_imports(module)
    ]
    assert len(pairs) > len(modules())
    assert not [
        f"{one} imports {other}"
        for one, other in pairs
        if not is_downward(find_package(one), find_package(other))
    ]


def test_no_file_imports_itself_through_others():
    graph = {module: project_imports(module) for module in modules()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_no_folder_inside_a_package_imports_itself_through_others():
    """Check folders of a package and its files for circular imports."""
    for package in LAYER_OF:
        graph = defaultdict(set)
        for module in modules():
            for imported in project_imports(module):
                if find_package(module) == find_package(
                    imported
                ) == package and find_box(module) != find_box(imported):
                    graph[find_box(module)].add(find_box(imported))
        assert list(graphlib.TopologicalSorter(graph).static_order()) or not graph


def find_box(module):
    """Return the folder or file directly below the module's package."""
    return "/".join(
        Path(module).with_suffix("").parts[: 2 if module.startswith("models") else 3]
    )


def test_the_top_level_is_short():
    paths = [path for path in (ROOT / "rnn_scaling").iterdir() if not path.is_symlink()]
    names = {path.name for path in paths} - {
        "__pycache__",
        "py.typed",
    }  # py.typed is the marker for type annotations
    folders = {name for name in names if not name.endswith(".py")}
    assert len(folders) <= 18 and len(names - folders) <= 6, sorted(names)


def test_only_the_places_that_need_it_load_tensorflow():
    loads = {
        module: [
            m
            for m in imports(module)
            if m == "tensorflow" or (may_load(m) and (module, m) not in LOADED_LATE)
        ]
        for module in modules()
    }
    assert sum(map(bool, loads.values())) > 50
    assert not {
        module: loaded
        for module, loaded in loads.items()
        if loaded and not may_load(module)
    }


def may_load(module):
    return module.startswith(LOADS_TENSORFLOW) and module not in NEVER_TENSORFLOW


def test_init_files_are_empty():
    """Allow only `rnn_scaling/__init__.py`, which has the public interface."""
    for folder in ("rnn_scaling", "models", "tests"):
        for path in (ROOT / folder).rglob("__init__.py"):
            assert path.read_text() == "" or path == ROOT / "rnn_scaling/__init__.py", (
                path
            )


def test_no_package_imports_what_the_package_offers():
    """Expect `rnn_scaling/__init__.py` to be the top layer."""
    assert not [module for module in modules() if "rnn_scaling" in imports(module)]

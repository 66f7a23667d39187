"""Real scripts, if a Python with torch is installed (./run.sh setup-frameworks torch)."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys

import pytest

from rnn_scaling.records import script_certificate
from rnn_scaling.system.processes import other_python
from tests.support.paths import ROOT

PYTHON = other_python.find_python("torch")
pytestmark = pytest.mark.skipif(
    not os.path.exists(PYTHON),
    reason="needs a Python with torch, which ./run.sh setup-frameworks torch installs",
)
SCRIPT = """
import os
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randn(40, 1))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= DIVISOR
        optimizer.step()
"""


def verify(folder, text, *flags):
    script = folder / "my.py"
    script.write_text(text)
    command = [sys.executable, "-m", "rnn_scaling", "verify"]
    trainer = f"--trainer={PYTHON} {script}"
    done = subprocess.run(
        [*command, trainer, "--num_steps=3", *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert script.read_text() == text
    return done


def test_equal_shards_made_by_hand_are_not_judged_with_unequal_ones(tmp_path):
    sampler = "sampler = torch.utils.data.DistributedSampler(data)"
    shard = "range(dist.get_rank(), len(data), dist.get_world_size())"
    script = SCRIPT.replace(sampler, f"data = torch.utils.data.Subset(data, {shard})")
    script = script.replace("    sampler.set_epoch(epoch)\n", "")
    script = script.replace("batch_size=4, sampler=sampler", "batch_size=5")
    script = script.replace("DIVISOR", "dist.get_world_size()")
    done = verify(tmp_path, script, "--num_steps=6")
    assert done.returncode == 0, done.stdout + done.stderr


def test_equal_parts_of_a_batch_are_not_judged_with_unequal_ones(tmp_path):
    """The script has no loader, and cuts each batch into one part per process."""
    before, _, after = SCRIPT.partition("sampler = ")
    script = before + after.partition("\n")[2]
    script = script.replace(after.partition("\n")[2].partition("\n")[0] + "\n", "")
    script = script.replace("    sampler.set_epoch(epoch)\n", "")
    loop = "    for inputs, targets in loader:\n"
    batches = """    for start in range(0, len(data), 8):
        size = 8 // dist.get_world_size()
        first = start + dist.get_rank() * size
        numbers = range(first, min(first + size, len(data)))
        inputs, targets = map(torch.stack, zip(*[data[i] for i in numbers]))
"""
    script = script.replace(loop, batches)
    script = script.replace("DIVISOR", "dist.get_world_size()")
    done = verify(tmp_path, script, "--num_steps=6")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_right_script_gets_a_certificate_that_can_be_checked(tmp_path):
    """The script creates its loader in each epoch."""
    creation = next(line for line in SCRIPT.splitlines() if "DataLoader(" in line)
    script = SCRIPT.replace(creation + "\n", "")
    epoch = "    sampler.set_epoch(epoch)\n"
    script = script.replace(epoch, f"{epoch}    {creation}\n")
    script = script.replace("DIVISOR", "dist.get_world_size()")
    flags = ("--num_steps=8", "--result_file=certificate.json")
    done = verify(tmp_path, script, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["verdict"]["answer"] == "right"
    steps = certificate["runs"]["parallel"]["ranks"][0]["steps"]
    reads = [step["reads"][0] for step in steps]
    assert {read["loader"] for read in reads} == {0}
    assert [read["epoch"] for read in reads] == [0] * 5 + [1] * 3
    from_file = script_certificate.read(tmp_path / "certificate.json")
    assert (from_file.answer, from_file.num_ranks) == ("right", 2)
    assert datetime.date.fromisoformat(from_file.date)
    command = [sys.executable, "-m", "rnn_scaling", "verify"]
    checked = subprocess.run(
        [*command, f"--check={tmp_path / 'certificate.json'}"], cwd=ROOT, check=False
    )
    assert checked.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "certificate.json",
        "my.py",
    ]


# Two optimizers use the gradients of one backward pass.
TWO_OPTIMIZERS = SCRIPT.replace(
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    """optimizer = torch.optim.SGD([model.weight], lr=0.1)
other = torch.optim.Adam([model.bias], lr=0.1)""",
).replace(
    "optimizer.step()",
    "optimizer.step()\n        other.step()\n        other.zero_grad()",
)


def gather_losses(script):
    """Let each rank compute the loss of all ranks, with gradients of its own part."""
    text = script.replace(
        "torch.nn.functional.mse_loss(model(inputs), targets)",
        "gather(model(inputs) - targets).square().mean()",
    )
    return text.replace(
        "for epoch",
        """def gather(values):
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values.detach())
    parts[dist.get_rank()] = values
    return torch.cat(parts)

for epoch""",
        1,
    )


# Before, each process makes a backward pass of another model.
OTHER_MODEL = SCRIPT.replace(
    "for epoch",
    """other = torch.nn.Linear(3, 1)
torch.optim.SGD(other.parameters(), lr=0.1)
other(data.tensors[0]).sum().backward()
for epoch""",
    1,
)
# Each process draws its own noise.
NOISY = SCRIPT.replace(
    "model(inputs)", "model(inputs + torch.randn(inputs.shape, generator=noise))"
).replace(
    "for epoch", "noise = torch.Generator().manual_seed(dist.get_rank())\nfor epoch", 1
)
NOISY_IN_NUMPY = NOISY.replace("import os", "import os, numpy").replace(
    "torch.randn(inputs.shape, generator=noise)",
    "torch.from_numpy(noise.standard_normal(inputs.shape, 'float32'))",
)
NOISY_IN_NUMPY = NOISY_IN_NUMPY.replace(
    "torch.Generator().manual_seed(", "numpy.random.default_rng("
)
NOISY_IN_PYTHON = NOISY.replace("import os", "import os, random").replace(
    "torch.randn(inputs.shape, generator=noise)",
    "torch.tensor([[noise.gauss(0, 1)] for _ in inputs])",
)
NOISY_IN_PYTHON = NOISY_IN_PYTHON.replace(
    "torch.Generator().manual_seed(", "random.Random(3 + "
)
# Each process mixes pairs of its batch by its own random share.
MIXING = SCRIPT.replace("import os", "import os, random").replace(
    "model(inputs)", "model(inputs.lerp(inputs.flip(0), share.random()))"
)
MIXING = MIXING.replace(
    "for epoch", "share = random.Random(1 + dist.get_rank())\nfor epoch", 1
)
# A closure computes the gradients three times per step, and averages them.
CLOSURE = SCRIPT.replace("optim.SGD(", "optim.LBFGS(max_iter=3, params=").replace(
    """        optimizer.zero_grad()
""",
    """      def closure():
        optimizer.zero_grad()
""",
)
CLOSURE = CLOSURE.replace(
    "        torch.nn.functional", "        loss = torch.nn.functional"
)
CLOSURE = CLOSURE.replace("targets).backward()", "targets)\n        loss.backward()")
CLOSURE = CLOSURE.replace(
    "        optimizer.step()", "        return loss\n      optimizer.step(closure)"
)
# The weights of the first epoch come back; the optimizer keeps its state.
RESTORED = SCRIPT.replace("SGD(model.parameters(), lr=0.1)", "Adam(model.parameters())")
RESTORED = RESTORED.replace(
    "    sampler.set_epoch",
    """    path = f"state{dist.get_rank()}"
    if epoch == 1:
        model.load_state_dict(torch.load(path)["model"])
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(content, path)
    sampler.set_epoch""",
)
# Each process mixes its samples with their neighbours, without random numbers.
ROLLING = SCRIPT.replace("model(inputs)", "model(inputs.lerp(inputs.roll(1, 0), 0.3))")
ROLLING_BY_HAND = ROLLING.replace(
    "torch.nn.functional.mse_loss(model(inputs.lerp(inputs.roll(1, 0), 0.3)), targets)",
    "(model(inputs.lerp(inputs.roll(1, 0), 0.3)) - targets).square().mean()",
)
COMPILED = SCRIPT.replace(
    "torch.nn.Linear(3, 1)",
    """torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Dropout())
torch.manual_seed(dist.get_rank())
model = torch.compile(model, backend="aot_eager")""",
)
# Samples have noise, and each process seeds its own after it has made the loader.
AUGMENTED = SCRIPT.replace(
    "sampler =",
    """class Augmented(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return len(self.data)
    def __getitem__(self, number):
        inputs, targets = self.data[number]
        return inputs + torch.randn(3), targets

data = Augmented(data)
sampler =""",
).replace("for epoch", "torch.manual_seed(50 + dist.get_rank())\nfor epoch", 1)
# The samples of each epoch have other noise, and the last step has fewer of them.
NOISY_BY_EPOCH = AUGMENTED.replace(
    "torch.randn(3)",
    """torch.randn(
            3, generator=torch.Generator().manual_seed(1000 * self.epoch + number)
        )""",
).replace("    sampler.set_epoch", "    data.epoch = epoch\n    sampler.set_epoch")
NOISY_BY_EPOCH = NOISY_BY_EPOCH.replace("batch_size=4", "batch_size=2")
# Parameters belong to no module, and batches to no loader.
PARAMETERS_ONLY = SCRIPT.replace(
    "model = torch.nn.Linear(3, 1)", "weight = torch.nn.Parameter(torch.randn(3, 1))"
)
PARAMETERS_ONLY = PARAMETERS_ONLY.replace("model.parameters()", "[weight]").replace(
    "model(inputs)", "inputs @ weight"
)
PARAMETERS_ONLY = PARAMETERS_ONLY.replace("in loader:", "in [data[list(sampler)]] * 2:")
# A module replaces its buffer, which belongs to no layer.
CENTRED = SCRIPT.replace(
    "model = torch.nn.Linear(3, 1)",
    """class Centre(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))
    def forward(self, inputs):
        centred = inputs - self.centre
        mean = inputs.mean(0)
        dist.all_reduce(mean)
        self.centre = self.centre + mean / dist.get_world_size()
        return centred

centre = Centre()
model = torch.nn.Linear(3, 1)""",
).replace("model(inputs)", "model(centre(inputs))")
# One process divides by the size of its batch, which is the size of a rank's batch. If
# one process reads the samples of all ranks, its regulariser counts too little.
PENALISED = SCRIPT.replace(
    "torch.nn.functional.mse_loss(model(inputs), targets)",
    "((model(inputs) - targets).square().sum() / 4 + 1 * penalty())",
).replace(
    "for epoch",
    """def penalty():
    return sum(parameter.square().sum() for parameter in model.parameters())

for epoch""",
    1,
)
PENALISED_WEIGHT = ("in model.parameters())", "in [model.weight])")
# No parameter has a multiple of itself as the gradient of its penalty.
MIXED_PENALTIES = PENALISED.replace(
    "parameter.square().sum()", "parameter.abs().sum() + parameter.exp().sum()"
)
# Two passes with one batch: the first one finds the place of the gradient.
SHARPNESS = SCRIPT.replace(
    "        for parameter in",
    """        old = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.add_(parameter.grad, alpha=0.01 / dist.get_world_size())
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), old):
                parameter.copy_(value)
        for parameter in""",
)
# The shares of a mixture are drawn as in torchvision.
DIRICHLET = MIXING.replace(
    "share.random()", "torch._sample_dirichlet(torch.ones(2))[0]"
).replace("share = random.Random(1", "torch.manual_seed(1")
# Each process has its own number of batches.
JOINED = (
    SCRIPT.partition("sampler =")[0]
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.join():
    for start in range(0, 40 - 20 * dist.get_rank(), 4):
        rows = range(start, start + 4)[dist.get_rank() :: dist.get_world_size()]
        inputs, targets = data[list(rows)]
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""
)
LEFT_OUT = ("in model.parameters():", "in [model.weight]:")


@pytest.mark.parametrize(
    ("text", "change", "cause"),
    [
        (TWO_OPTIMIZERS, ("", ""), None),
        (TWO_OPTIMIZERS, LEFT_OUT, "parameter-not-synchronised"),
        (OTHER_MODEL, ("", ""), None),
        (CLOSURE, ("", ""), None),
        (COMPILED, ("", ""), None),
        (RESTORED, ("range(4)", "range(2)"), None),
        (NOISY, ("", ""), None),
        (NOISY, (".backward()", ".mul(dist.get_world_size()).backward()"), "summed"),
        (MIXING, ("", ""), None),
        (ROLLING, ("", ""), None),
        (ROLLING, (".backward()", ".mul(dist.get_world_size()).backward()"), "summed"),
        (NOISY, ("manual_seed(dist.get_rank())", "manual_seed(7)"), "equal-noise"),
        (NOISY_IN_NUMPY, ("", ""), None),
        (NOISY_IN_NUMPY, ("rng(dist.get_rank())", "rng(7)"), "equal-noise"),
        (NOISY_IN_PYTHON, ("", ""), None),
        (NOISY_IN_PYTHON, ("3 + dist.get_rank()", "3"), "equal-noise"),
        (
            ROLLING_BY_HAND,
            (".backward()", ".mul(dist.get_world_size()).backward()"),
            "summed",
        ),
        (gather_losses(SCRIPT), ("", ""), "values-without-gradient"),
        (AUGMENTED, ("", ""), None),
        (gather_losses(AUGMENTED), ("", ""), "values-without-gradient"),
        (AUGMENTED, ("50 + dist.get_rank()", "50"), "equal-noise"),
        (NOISY_BY_EPOCH, ("", ""), None),
        (PARAMETERS_ONLY, ("", ""), None),
        (CENTRED, ("", ""), None),
        (
            CENTRED,
            ("dist.all_reduce(mean)", "mean *= dist.get_world_size()"),
            "statistics",
        ),
        (PENALISED, ("", ""), None),
        (PENALISED, ("1 * penalty", "dist.get_world_size() * penalty"), "regulariser"),
        (PENALISED, PENALISED_WEIGHT, None),
        (MIXED_PENALTIES, ("", ""), None),
        (SHARPNESS, ("", ""), None),
        (DIRICHLET, ("", ""), None),
        (JOINED, ("", ""), None),
        (JOINED, (".backward()", ".mul(dist.get_world_size()).backward()"), "summed"),
    ],
)
def test_a_script_has_a_cause(tmp_path, text, change, cause):
    text = text.replace("DIVISOR", "dist.get_world_size()").replace(*change)
    verify(tmp_path, text, "--result_file=certificate.json", "--num_steps=6")
    verdict = json.loads((tmp_path / "certificate.json").read_text())["verdict"]
    assert verdict["cause"] == cause
    assert verdict["answer"] == ("wrong" if cause else "right")


# Each process trains alone for two steps.
LOCAL = SCRIPT.replace("all_reduce(parameter.grad)", "get_rank()").replace(
    "        optimizer.step()",
    """        optimizer.step()
        number = globals().get("number", 0) + 1
        for parameter in model.parameters():
            if number % 2 == 0:
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()""",
)
# Each process has the optimizer of its part of the weights.
SHARDED = SCRIPT.replace(
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    """first = 4 // dist.get_world_size() * dist.get_rank()
part = torch.zeros(4 // dist.get_world_size(), requires_grad=True)
optimizer = torch.optim.SGD([part], lr=0.1)""",
).replace(
    "        optimizer.step()",
    """        gradients = [parameter.grad.flatten() for parameter in model.parameters()]
        part.grad = torch.cat(gradients)[first : first + len(part)]
        optimizer.step()""",
)


@pytest.mark.parametrize(
    ("text", "reason"), [(LOCAL, "local-sgd"), (SHARDED, "flat-parameters")]
)
def test_other_ways_to_train_are_not_called_wrong(tmp_path, text, reason):
    text = text.replace("DIVISOR", "dist.get_world_size()")
    flags = ("--result_file=certificate.json", "--num_steps=6")
    done = verify(tmp_path, text, *flags)
    assert done.returncode == 3, done.stdout + done.stderr
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["verdict"]["reason"] == reason


# The second half trains with a new optimizer, from a checkpoint.
RESUMED = SCRIPT.replace("DIVISOR", "dist.get_world_size()").replace(
    "for epoch in range(4):",
    """def build():
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)

optimizer, schedule = build()
for epoch in range(4):
    if epoch:
        schedule.step()
    if epoch == 2:
        state = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        torch.save(state, f"state{dist.get_rank()}")
        optimizer, schedule = build()
        state = torch.load(f"state{dist.get_rank()}")
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])""",
)


@pytest.mark.parametrize(
    ("lost", "cause"),
    [
        (None, None),
        ("optimizer", "state-lost"),
        ("schedule", "schedule-lost"),
        ("schedule", "not in the file"),
    ],
)
def test_a_script_resumes_from_its_own_checkpoint(tmp_path, lost, cause):
    restores = f'{lost}.load_state_dict(state["{lost}"])'
    text = RESUMED.replace(f"        {restores}\n", "")
    if cause == "not in the file":
        text = text.replace(', "schedule": schedule.state_dict()', "")
        cause = "schedule-lost"
    verify(tmp_path, text, "--result_file=certificate.json", "--num_steps=12")
    verdict = json.loads((tmp_path / "certificate.json").read_text())["verdict"]
    assert verdict["cause"] == cause
    assert verdict["answer"] == ("wrong" if cause else "right")


# Another file has weights and the state of their optimizer.
TUNED = SCRIPT.replace("DIVISOR", "dist.get_world_size()").replace(
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    """optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
state = torch.load("trained.pt")
model.load_state_dict(state["model"])
""",
)


@pytest.mark.parametrize(("rate", "cause"), [(0.1, "state-lost"), (0.01, None)])
def test_a_new_optimizer_with_another_rate_tunes_a_trained_model(tmp_path, rate, cause):
    program = f"""
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), lr={rate})
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
torch.save(state, "trained.pt")
"""
    subprocess.run([PYTHON, "-c", program], cwd=tmp_path, check=True)
    verify(tmp_path, TUNED, "--result_file=certificate.json")
    verdict = json.loads((tmp_path / "certificate.json").read_text())["verdict"]
    assert verdict["cause"] == cause
    assert verdict["answer"] == ("wrong" if cause else "right")


def test_summed_gradients_are_found_and_named(tmp_path):
    text = SCRIPT.replace("DIVISOR", "1")
    done = verify(tmp_path, text, "--result_file=certificate.json")
    assert done.returncode == 1, done.stdout + done.stderr
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["verdict"]["cause"] == "summed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import sys\nsys.exit('no data')", "failed"),
        ("x = 1", "no-steps"),
        ("import time\ntime.sleep(60)", "timed-out"),
    ],
)
def test_a_script_without_steps_has_a_reason(tmp_path, text, reason):
    flags = ["--timeout=2", "--result_file=certificate.json"]
    done = verify(tmp_path, text, *flags)
    assert done.returncode == 3, done.stdout + done.stderr
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["verdict"]["reason"] == reason

# ruff: noqa: E501 - a change of a script is a line
"""Right scripts of distributed training, as changes of two base scripts.

`verify` must call none of them wrong.
"""

from __future__ import annotations

from textwrap import indent

from benchmarks.script_table import (
    ACCUMULATE,
    ADAM,
    ADD_EXTRA,
    DDP,
    EXTRA,
    HEAD,
    MANUAL,
    NUMPY,
    ONE_MICRO_BATCH,
    SHARED_NOISE,
    STEP,
    SUM,
    SUMS,
    TRANSFORMER,
    UNUSED,
    WEAK,
    WORKERS,
    WRAP,
    Changes,
    Script,
)


def ddp_option(option: str) -> Changes:
    """Change that gives DistributedDataParallel an option."""
    return {
        "DistributedDataParallel(model)": f"DistributedDataParallel(model, {option})"
    }


def own_sum(lines: str) -> Changes:
    """Change that sums a gradient by other statements."""
    return {SUM: indent(lines, 8 * " ")}


def by_autocast(model: str, base: str) -> Changes:
    """Change that computes the loss in bfloat16."""
    depth = 20 if base == DDP else 16
    return {
        f"loss = loss_sum({model}": (
            'with torch.autocast("cpu", torch.bfloat16):\n'
            f"{depth * ' '}loss = loss_sum({model}"
        )
    }


GATHER = """parts = [torch.empty_like(parameter) for _ in range(world)]
dist.all_gather(parts, parameter.grad)
"""
LOCAL_NORM = {
    "self.head = nn.": "self.norm = nn.BatchNorm1d(WIDTH)\n        self.head = nn.",
    HEAD: f"hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)\n        {HEAD}",
}
RANK_NOISE = {
    **NUMPY,
    **SHARED_NOISE,
    "default_rng(0)": "default_rng(torch.initial_seed())",
}
IN_DDP = "import DistributedDataParallel\n"
END_OF_EPOCH = '            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")'
RIGHT = [
    Script("clipping", DDP, "--clip=0.02"),
    Script(
        "accumulation and clipping",
        DDP,
        f"{ACCUMULATE} --clip=0.05 {TRANSFORMER}",
        WEAK[DDP],
        reference=ONE_MICRO_BATCH,
    ),
    Script("Adam", DDP, ADAM),
    Script(
        "AdamW with clipping",
        DDP,
        f"--optimizer=AdamW --lr=0.01 --clip=0.1 {TRANSFORMER}",
    ),
    Script(
        "cosine schedule",
        DDP,
        "--decay_steps=20",
        {
            (
                "LambdaLR(\n"
                "    optimizer, lambda step: max(0.1, 1 - step / decay_steps)\n"
            ): ("CosineAnnealingLR(\n    optimizer, decay_steps\n")
        },
    ),
    Script("bfloat16 autocast", DDP, TRANSFORMER, by_autocast("ddp", DDP)),
    Script("bfloat16 autocast", MANUAL, "", by_autocast("model", MANUAL)),
    Script(
        "gradients compressed to float16",
        DDP,
        "",
        {
            IN_DDP: (
                f"{IN_DDP}from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
            ),
            WRAP: (
                f"{WRAP}\n"
                "if world > 1:\n"
                "    ddp.register_comm_hook(None, fp16_compress_hook)"
            ),
        },
    ),
    Script("batch normalisation of each rank", DDP, TRANSFORMER, LOCAL_NORM),
    Script(
        "gradient checkpointing",
        DDP,
        TRANSFORMER,
        {
            "hidden = self.encode(tokens)": (
                "hidden = checkpoint(self.encode, tokens, use_reentrant=False)"
            ),
            "import torch\n": (
                "import torch\nfrom torch.utils.checkpoint import checkpoint\n"
            ),
        },
    ),
    Script("four processes", DDP, "--sentences=96", {}, num_processes=4),
    Script(
        "four processes, batch per process",
        DDP,
        f"--sentences=128 {TRANSFORMER}",
        WEAK[DDP],
        num_processes=4,
    ),
    Script("workers of the loader", DDP, "", WORKERS),
    Script(
        "conditional layer",
        DDP,
        TRANSFORMER,
        {
            **EXTRA,
            HEAD: (
                "is_rare = tokens[:, 0] < 12\n"
                "        if is_rare.any():\n"
                f"            {ADD_EXTRA}\n"
                f"        {HEAD}"
            ),
            **UNUSED,
        },
    ),
    Script(
        "gradients in buckets", DDP, ADAM, ddp_option("gradient_as_bucket_view=True")
    ),
    Script(
        "small buckets",
        DDP,
        f"{TRANSFORMER} {ACCUMULATE}",
        ddp_option("bucket_cap_mb=0.001"),
        reference=ONE_MICRO_BATCH,
    ),
    Script("static graph", DDP, "--tied", ddp_option("static_graph=True")),
    Script(
        "last batch dropped",
        DDP,
        "--sentences=87",
        {"    sampler=sampler,": "    sampler=sampler,\n    drop_last=True,"},
    ),
    Script("sampler repeats a sentence", DDP, f"--sentences=45 {TRANSFORMER}"),
    Script(
        "one process shuffles by itself",
        DDP,
        "",
        {
            "sampler = DistributedSampler(dataset, world, rank)": (
                "sampler = DistributedSampler(dataset) if world > 1 else None"
            ),
            "    sampler=sampler,": (
                "    sampler=sampler,\n    shuffle=sampler is None,"
            ),
            "    sampler.set_epoch": "    if sampler:\n        sampler.set_epoch",
        },
    ),
    Script(
        "sharded optimizer",
        DDP,
        "",
        {
            IN_DDP: (
                f"{IN_DDP}from torch.distributed.optim import ZeroRedundancyOptimizer\n"
            ),
            "optimizer = getattr(torch.optim, args.optimizer)(ddp.parameters(), lr=args.lr)": (
                "optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)\n"
                "if world > 1:\n"
                "    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)"
            ),
        },
    ),
    Script(
        "two optimizers, sparse gradients",
        DDP,
        f"--sparse {TRANSFORMER}",
        {
            "(ddp.parameters(), lr=args.lr)": (
                "(list(model.parameters())[1:], lr=args.lr)\n"
                "sparse_optimizer = torch.optim.SparseAdam([model.embedding.weight], lr=0.01)"
            ),
            "        optimizer.step()": (
                "        optimizer.step()\n"
                "        sparse_optimizer.step()\n"
                "        sparse_optimizer.zero_grad()"
            ),
        },
    ),
    Script(
        "evaluation",
        DDP,
        "--dropout=0.1",
        {
            END_OF_EPOCH: END_OF_EPOCH
            + (
                "\n    model.eval()\n"
                "    with torch.no_grad():\n"
                "        held_out = sum(loss_sum(model, tokens).item() for tokens in loader)\n"
                "    model.train()"
            )
        },
    ),
    Script(
        "fully sharded",
        DDP,
        "",
        {
            IN_DDP: f"{IN_DDP}from torch.distributed.fsdp import fully_shard\n",
            WRAP: (
                "if world > 1:\n"
                '    fully_shard(model, mesh=dist.init_device_mesh("cpu", (world,)))\n'
                "ddp = model"
            ),
        },
    ),
    Script("noise of each rank", DDP, TRANSFORMER, {**RANK_NOISE}),
    Script("noise of each rank", MANUAL, "", {**RANK_NOISE}),
    Script("dropout", MANUAL, f"--dropout=0.2 {TRANSFORMER}"),
    Script(
        "saves and resumes",
        DDP,
        "",
        {
            "decay_steps = args": (
                'if os.path.exists("own.pt"):\n'
                '    model.load_state_dict(torch.load("own.pt"))\n'
                "decay_steps = args"
            ),
            END_OF_EPOCH: END_OF_EPOCH
            + '\n    if rank == 0:\n        torch.save(model.state_dict(), "own.pt")',
        },
    ),
    Script(
        "process group left open",
        DDP,
        TRANSFORMER,
        {"if world > 1:\n    dist.destroy_process_group()\n": ""},
    ),
    Script(
        "learning rate grows with processes",
        DDP,
        "--lr=0.1",
        {**WEAK[DDP], "lr=args.lr)": "lr=args.lr * world)"},
    ),
    Script(
        "mean of equal lengths",
        DDP,
        TRANSFORMER,
        {
            "int(torch.randint(3, 15, (), generator=generator))": "9",
            "/ count * world": "/ num_targets(tokens)",
        },
    ),
    Script("RMSprop", MANUAL, "--optimizer=RMSprop --lr=0.003"),
    Script("Adagrad", MANUAL, f"--optimizer=Adagrad --lr=0.03 {TRANSFORMER}"),
    Script(
        "Nesterov momentum",
        MANUAL,
        "--lr=0.1",
        {"lr=args.lr)": "lr=args.lr, momentum=0.9, nesterov=True)", **WEAK[MANUAL]},
    ),
    Script(
        "order of sums by size",
        MANUAL,
        TRANSFORMER,
        own_sum(
            GATHER
            + (
                "first = parameter.numel() % world\n"
                "parameter.grad = sum(parts[first:] + parts[:first])"
            )
        ),
        num_processes=4,
    ),
    Script(
        "order of sums by chance",
        MANUAL,
        "",
        own_sum(
            GATHER
            + (
                "random.shuffle(parts)\n"
                "parameter.grad = sum(parts)\n"
                "dist.broadcast(parameter.grad, 0)"
            )
        )
        | {"import os\n": "import os\nimport random\n"},
        num_processes=4,
    ),
    Script(
        "gradients in one message",
        MANUAL,
        "",
        {
            "    for parameter in parameters:\n" + SUM: (
                "    flat = torch.cat([each.grad.flatten() for each in parameters])\n"
                "    dist.all_reduce(flat)\n"
                "    sizes = [each.numel() for each in parameters]\n"
                "    for each, part in zip(parameters, flat.split(sizes)):\n"
                "        each.grad.copy_(part.view_as(each))"
            )
        },
    ),
    Script(
        "sum on one rank",
        MANUAL,
        TRANSFORMER,
        own_sum("dist.reduce(parameter.grad, 0)\ndist.broadcast(parameter.grad, 0)"),
    ),
    Script(
        "sum in float64",
        MANUAL,
        "",
        own_sum(
            "wide = parameter.grad.double()\n"
            "dist.all_reduce(wide)\n"
            "parameter.grad.copy_(wide)"
        ),
        num_processes=3,
    ),
    Script(
        "sum in bfloat16",
        MANUAL,
        TRANSFORMER,
        own_sum(
            "short = parameter.grad.bfloat16()\n"
            "dist.all_reduce(short)\n"
            "parameter.grad.copy_(short)"
        ),
    ),
    Script(
        "sums while backward runs",
        MANUAL,
        "",
        {
            SUMS: "",
            "dataset = Sentences": (
                "if world > 1:\n"
                "    for each in parameters:\n"
                "        each.register_post_accumulate_grad_hook(lambda each: dist.all_reduce(each.grad))\n"
                "dataset = Sentences"
            ),
        },
    ),
    Script(
        "sums wait at the end",
        MANUAL,
        TRANSFORMER,
        {
            "    for parameter in parameters:\n" + SUM: (
                "    sums = [dist.all_reduce(each.grad, async_op=True) for each in parameters]\n"
                "    for each in sums:\n"
                "        each.wait()"
            )
        },
    ),
    Script(
        "update by hand",
        MANUAL,
        "",
        {
            STEP: (
                "        with torch.no_grad():\n"
                "            for each in parameters:\n"
                "                each -= args.lr * each.grad"
            )
        },
    ),
    Script(
        "average of weights",
        MANUAL,
        TRANSFORMER,
        {
            "parameters = list": (
                "average = torch.optim.swa_utils.AveragedModel(model)\n"
                "parameters = list"
            ),
            STEP: f"{STEP}\n        average.update_parameters(model)",
        },
    ),
    Script(
        "frozen embedding",
        MANUAL,
        "",
        {
            "parameters = list(model.parameters())": (
                "model.embedding.requires_grad_(False)\n"
                "parameters = [each for each in model.parameters() if each.requires_grad]"
            )
        },
    ),
    Script(
        "groups of parameters",
        MANUAL,
        TRANSFORMER,
        {
            "(parameters, lr=args.lr)": (
                '([{"params": parameters[:1]}, {"params": parameters[1:], "weight_decay": 0.01}], lr=args.lr)'
            )
        },
    ),
    Script("three processes, small batch", MANUAL, "--batch_size=7", num_processes=3),
    Script(
        "float64",
        MANUAL,
        f"--clip=0.1 {TRANSFORMER}",
        {"parameters = list": "model.double()\nparameters = list"},
        num_processes=4,
    ),
]

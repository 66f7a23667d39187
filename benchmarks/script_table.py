# ruff: noqa: E501 - a change of a script is a line
"""Bugs of distributed training scripts, as changes of two base scripts.

The bugs were collected from public issues; benchmarks/scripts holds the base scripts.
"""

from __future__ import annotations

from typing import NamedTuple

Changes = dict[str, str]  # text of a base script -> its replacement
DDP, MANUAL = "ddp", "manual"


class Script(NamedTuple):
    """One script: a base, its flags, changes that keep it right, and a bug."""

    name: str
    base: str
    flags: str = ""
    changes: Changes = {}
    bug: Changes = {}
    cause: str = ""  # a regular expression that names the bug
    num_processes: int = 2
    reference: str = ""  # flags of one process that computes the same step

    @property
    def twin(self) -> Script:
        """The script without its bug."""
        return self._replace(name=f"{self.name} (right)", bug={}, cause="")


TRANSFORMER = "--model=transformer"
ADAM = "--optimizer=Adam --lr=0.01"
STEP = "        optimizer.step()"
ACCUMULATE = "--accum=2"
ONE_MICRO_BATCH = "--accum=1"
DDP_LOSS = "loss = loss_sum(ddp, tokens) / count * world"
SUM = "        dist.all_reduce(parameter.grad)"
CONTEXT = "with contextlib.nullcontext() if is_synced else ddp.no_sync():"
WRAP = "ddp = DistributedDataParallel(model) if world > 1 else model"
DDP_CLIP = "nn.utils.clip_grad_norm_(ddp.parameters(), args.clip)"
CLIP = "nn.utils.clip_grad_norm_(parameters, args.clip)"
COUNT = "count = torch.tensor(float(sum(map(num_targets, micro_batches))))"
INDICES = "count = num_targets(collate([dataset[index] for index in indices]))"
ROWS = "rows = shard[number :: args.accum]"
SUMS = "        if world > 1:\n            sum_gradients()\n"
CLIPS = f"        if args.clip:\n            {CLIP}\n"
HEAD = "return self.head(self.dropout(hidden))"
SEED = "torch.manual_seed(100 + rank)"
ADD_LAYER = "model.extra = nn.Linear(16, 16)"
READ = "return self.rows[index]"
PARSE = "args = parser.parse_args()"

WEAK: dict[str, Changes] = {
    DDP: {"args.batch_size // world //": "args.batch_size //"},
    MANUAL: {
        PARSE: f'{PARSE}\nargs.batch_size *= int(os.environ.get("WORLD_SIZE", 1))'
    },
}
NUMPY = {
    READ: """row = self.rows[index].clone()
        noise = np.random.default_rng(index).random(len(row) - 1)
        row[:-1][noise < 0.3] = 2
        return row""",
    "import torch\n": "import numpy as np\nimport torch\n",
}
SHARED_NOISE = {
    "np.random.default_rng(index).random": "self.noise.random",
    "self.rows = []": "self.rows = []\n        self.noise = np.random.default_rng(0)",
}
WORKERS = {"    sampler=sampler,": "    sampler=sampler,\n    num_workers=2,"}
ADD_EXTRA = "hidden = hidden + is_rare[:, None, None] * self.extra(hidden)"
EXTRA = {
    "self.head = nn.": "self.extra = nn.Linear(WIDTH, WIDTH)\n        self.head = nn.",
    HEAD: f"is_rare = tokens[:, 0] < 12\n        {ADD_EXTRA}\n        {HEAD}",
}
ONLY_IF_RARE = {ADD_EXTRA: f"if is_rare.any():\n            {ADD_EXTRA}"}
UNUSED = {
    "DistributedDataParallel(model)": (
        "DistributedDataParallel(model, find_unused_parameters=True)"
    )
}
SYNCED_NORM = {
    "class LSTM(": """class SyncedNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("running_mean", torch.zeros(WIDTH))

    def forward(self, hidden, is_real):
        rows = hidden[is_real]
        sums = torch.cat([rows.sum(0), rows.square().sum(0), torch.ones(1) * len(rows)])
        if dist.is_initialized():
            sums = all_reduce(sums)
        mean = sums[:WIDTH] / sums[-1]
        variance = sums[WIDTH:-1] / sums[-1] - mean.square()
        with torch.no_grad():
            self.running_mean.lerp_(mean, 0.1)
        return (hidden - mean) * (variance + 1e-5).rsqrt() * self.scale


class LSTM(""",
    "self.head = nn.": "self.norm = SyncedNorm()\n        self.head = nn.",
    HEAD: HEAD.replace("(hidden)", "(self.norm(hidden, tokens > 1))"),
    "import torch\n": (
        "import torch\n"
        "import torch.distributed as dist\n"
        "from torch.distributed.nn.functional import all_reduce\n"
    ),
}
MEAN_OF_STATISTICS = {
    "rows.sum(0), rows.square().sum(0), torch.ones(1) * len(rows)": (
        "rows.mean(0), rows.square().mean(0), torch.ones(1)"
    )
}
LOCAL_STATISTICS = {".lerp_(mean, 0.1)": ".lerp_(rows.mean(0), 0.1)"}
PENALTY = "1e-2 * sum(each.square().sum() for each in model.parameters())"
RESUME = {
    PARSE: 'parser.add_argument("--resume")\n' + PARSE,
    "decay_steps = args": """if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
decay_steps = args""",
    "if world > 1:\n    dist.destroy": """if not args.resume and rank == 0:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, "checkpoint.pt")
if world > 1:
    dist.destroy""",
}
LOADS_OPTIMIZER = '    optimizer.load_state_dict(state["optimizer"])\n'
MOMENTUM = {"lr=args.lr)": "lr=args.lr, momentum=0.9)"}
RESUMED = "--resume=checkpoint.pt"
CLIP_EACH = """for each in ddp.parameters():
                nn.utils.clip_grad_norm_(each, args.clip)"""
AVERAGES = {
    ") / count\n": ") / count * world\n",
    SUM: f"{SUM}\n        parameter.grad = parameter.grad / world",
}
IGNORED = {
    WRAP: (
        'DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["embedding.weight"])\n'
        f"{WRAP}"
    ),
    "        if args.clip:": """        if world > 1:
            dist.all_reduce(model.embedding.weight.grad)
            model.embedding.weight.grad /= world
        if args.clip:""",
}

BUGS = [
    Script(
        "mean of micro-batches",
        DDP,
        ACCUMULATE,
        {},
        {
            DDP_LOSS: """count = torch.tensor(float(num_targets(tokens)))
                if world > 1:
                    dist.all_reduce(count)
                loss = loss_sum(ddp, tokens) / count * world / args.accum"""
        },
        "micro",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "mean of micro-batches",
        MANUAL,
        f"{ACCUMULATE} {TRANSFORMER}",
        {},
        {
            ") / count\n": ") / real * share / args.accum\n",
            ROWS: (
                f"{ROWS}\n"
                "            real = num_targets(collate([dataset[index] for index in rows]))\n"
                "            share = num_targets(collate([dataset[index] for index in shard])) / count"
            ),
        },
        "micro",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "mean of ranks",
        DDP,
        TRANSFORMER,
        WEAK[DDP],
        {"/ count * world": "/ num_targets(tokens)"},
        "rank|token",
    ),
    Script(
        "mean of ranks",
        MANUAL,
        "",
        {},
        {
            INDICES: (
                "count = num_targets(collate([dataset[index] for index in shard])) * world"
            )
        },
        "rank|token",
    ),
    Script(
        "divided by own tokens after the sum",
        MANUAL,
        "",
        {
            ") / count\n": ")\n",
            SUMS: (
                f"{SUMS}        for each in parameters:\n"
                "            each.grad /= count\n"
            ),
        },
        {
            INDICES: (
                "count = num_targets(collate([dataset[index] for index in shard])) * world"
            )
        },
        "token",
    ),
    Script(
        "not divided by the number of micro-batches",
        DDP,
        ACCUMULATE,
        {},
        {
            COUNT: (
                "count = torch.tensor(sum(map(num_targets, micro_batches)) / args.accum)"
            )
        },
        "micro|accumul",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "not divided by the number of micro-batches",
        MANUAL,
        f"{ACCUMULATE} {TRANSFORMER}",
        {},
        {INDICES: f"{INDICES} / args.accum"},
        "micro|accumul",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "no_sync set only before backward",
        DDP,
        f"{ACCUMULATE} {TRANSFORMER}",
        {},
        {
            CONTEXT: "with contextlib.nullcontext():",
            "loss.backward()": (
                "ddp.require_backward_grad_sync = is_synced\n"
                "                loss.backward()"
            ),
        },
        "micro|synchron",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "summed after each micro-batch",
        MANUAL,
        ACCUMULATE,
        {},
        {
            "loss.backward()": (
                "loss.backward()\n"
                "            if world > 1:\n"
                "                sum_gradients()"
            ),
            SUMS: "",
        },
        "micro|twice|summed",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "last micro-batch not synchronised",
        DDP,
        ACCUMULATE,
        WEAK[DDP],
        {"is_last = number == args.accum - 1": "is_last = number != args.accum - 1"},
        "last micro",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "last micro-batch not synchronised",
        MANUAL,
        f"{ACCUMULATE} {TRANSFORMER}",
        {},
        {
            "loss.backward()": (
                "if world > 1 and number == args.accum - 1:\n"
                "                sum_gradients()\n"
                "            loss.backward()"
            ),
            SUMS: "",
        },
        "last micro",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "only one module synchronised",
        DDP,
        TRANSFORMER,
        {},
        {
            WRAP: (
                "if world > 1:\n"
                "    model.body = DistributedDataParallel(model.body)\n"
                "ddp = model"
            )
        },
        "never sync|not sync",
    ),
    Script(
        "only one module synchronised",
        MANUAL,
        "",
        WEAK[MANUAL],
        {"for parameter in parameters:": "for parameter in model.body.parameters():"},
        "never sync|not sync",
    ),
    Script(
        "layer added after the wrap",
        DDP,
        "",
        {
            SEED: f"{ADD_LAYER}\n{SEED}",
            HEAD: f"hidden = hidden + self.extra(hidden)\n        {HEAD}",
        },
        {f"{ADD_LAYER}\n{SEED}\n{WRAP}": f"{WRAP}\n{ADD_LAYER}\n{SEED}"},
        "never sync|not sync",
    ),
    Script(
        "conditional layer skipped by a rank",
        MANUAL,
        TRANSFORMER,
        EXTRA,
        {
            **ONLY_IF_RARE,
            SUM: """        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient)""",
        },
        "drift|differ|unused|conditional|not sync|never sync",
    ),
    Script(
        "equal noise in workers",
        DDP,
        TRANSFORMER,
        {**NUMPY, **WORKERS},
        SHARED_NOISE,
        "random|noise|draws",
    ),
    Script(
        "equal noise in workers", MANUAL, "", NUMPY, SHARED_NOISE, "random|noise|draws"
    ),
    Script(
        "no shuffle per epoch",
        DDP,
        "",
        {},
        {"    sampler.set_epoch(epoch)\n": ""},
        "shuffle|epoch",
    ),
    Script(
        "no shuffle per epoch",
        MANUAL,
        TRANSFORMER,
        {},
        {"manual_seed(epoch)": "manual_seed(0)"},
        "shuffle|epoch",
    ),
    Script(
        "equal dropout",
        DDP,
        f"--dropout=0.3 {TRANSFORMER}",
        {},
        {"100 + rank": "100"},
        "dropout|mask",
    ),
    Script(
        "equal dropout",
        MANUAL,
        "--dropout=0.3",
        WEAK[MANUAL],
        {"100 + rank": "100"},
        "dropout|mask",
    ),
    Script(
        "schedule stepped N times",
        DDP,
        "--decay_steps=20",
        WEAK[DDP],
        {
            "        schedule.step()": (
                "        for _ in range(world):\n            schedule.step()"
            )
        },
        "schedule|learning rate",
    ),
    Script(
        "schedule stepped N times",
        MANUAL,
        f"--decay_steps=20 {TRANSFORMER}",
        {},
        {"step += 1": "step += world"},
        "schedule|learning rate",
    ),
    Script(
        "clipped by a part's norm",
        DDP,
        f"--clip=0.1 {TRANSFORMER}",
        {},
        {
            DDP_CLIP: (
                "for part in range(world):\n"
                "                nn.utils.clip_grad_norm_(list(ddp.parameters())[part::world], args.clip)"
            )
        },
        "clip",
    ),
    Script(
        "clipped by a rank's norm",
        MANUAL,
        "--clip=0.1",
        {},
        {
            SUMS: (
                "        norm = nn.utils.get_total_norm([each.grad for each in parameters])\n"
                f"{SUMS}"
            ),
            CLIP: "nn.utils.clip_grads_with_norm_(parameters, args.clip, norm)",
        },
        "clip",
    ),
    Script(
        "clipped before the average",
        DDP,
        "--clip=0.02",
        {DDP_CLIP: CLIP_EACH, **WEAK[DDP]},
        {
            CLIP_EACH: "pass",
            WRAP: f"""for each in model.parameters():
    each.register_hook(lambda grad: grad * min(1, args.clip / grad.norm()))
{WRAP}""",
        },
        "clip",
    ),
    Script(
        "clipped before the sum",
        MANUAL,
        f"--clip=0.1 {TRANSFORMER}",
        {},
        {f"{SUMS}{CLIPS}": f"{CLIPS}{SUMS}"},
        "clip",
    ),
    Script(
        "regulariser not divided",
        DDP,
        "",
        {DDP_LOSS: f"{DDP_LOSS} + {PENALTY}"},
        {
            f"{DDP_LOSS} + {PENALTY}": (
                f"loss = (loss_sum(ddp, tokens) / count + {PENALTY}) * world"
            )
        },
        "regulari|penalty|decay",
    ),
    Script(
        "regulariser not divided",
        MANUAL,
        TRANSFORMER,
        {") / count\n": f") / count + {PENALTY} / world\n", **WEAK[MANUAL]},
        {f"{PENALTY} / world": PENALTY},
        "regulari|penalty|decay",
    ),
    Script(
        "divided twice",
        DDP,
        TRANSFORMER,
        WEAK[DDP],
        {"/ count * world": "/ count"},
        "twice|1/|0\\.5|half",
    ),
    Script(
        "divided twice",
        MANUAL,
        "",
        {},
        {SUM: f"{SUM}\n        parameter.grad /= world"},
        "twice|1/|0\\.5|half",
    ),
    Script(
        "summed instead of averaged",
        DDP,
        "",
        {},
        {
            (
                f"        {COUNT}\n"
                "        if world > 1:\n"
                "            dist.all_reduce(count)"
            ): f"        {COUNT}"
        },
        "summed",
    ),
    Script(
        "summed instead of averaged",
        MANUAL,
        TRANSFORMER,
        {},
        {INDICES: "count = num_targets(collate([dataset[index] for index in shard]))"},
        "summed",
    ),
    Script(
        "each rank reads the same samples",
        DDP,
        TRANSFORMER,
        {},
        {"(dataset, world, rank)": "(dataset, 1, 0)"},
        "same|duplicate|twice",
    ),
    Script(
        "each rank reads the same samples",
        MANUAL,
        "",
        {},
        {"indices[rank::world]": "indices[::world]"},
        "same|duplicate|twice",
    ),
    Script(
        "sharded twice",
        DDP,
        "",
        {},
        {
            "batches = iter(loader)": (
                "batches = (batch for number, batch in enumerate(loader) if number % world == rank)"
            ),
            "len(loader) // args": "len(loader) // world // args",
        },
        "missing|not read|never read|left out",
    ),
    Script(
        "remainder left out",
        MANUAL,
        TRANSFORMER,
        {},
        {
            "indices[rank::world]": (
                "indices[rank * (len(indices) // world) :][: len(indices) // world]"
            )
        },
        "missing|not read|never read|left out",
    ),
    Script(
        "statistics averaged without weights",
        DDP,
        "",
        SYNCED_NORM,
        MEAN_OF_STATISTICS,
        "statistic|normali|buffer",
    ),
    Script(
        "statistics averaged without weights",
        MANUAL,
        TRANSFORMER,
        SYNCED_NORM,
        MEAN_OF_STATISTICS,
        "statistic|normali|buffer",
    ),
    Script(
        "running statistics of one rank",
        DDP,
        TRANSFORMER,
        SYNCED_NORM,
        LOCAL_STATISTICS,
        "statistic|buffer",
    ),
    Script(
        "running statistics of one rank",
        MANUAL,
        "",
        SYNCED_NORM,
        LOCAL_STATISTICS,
        "statistic|buffer",
    ),
    Script(
        "sparse gradient not averaged",
        DDP,
        "--sparse",
        {**IGNORED, **WEAK[DDP]},
        {"            model.embedding.weight.grad /= world\n": ""},
        "sparse|embedding",
    ),
    Script(
        "sparse gradient not averaged",
        MANUAL,
        f"--sparse {TRANSFORMER}",
        AVERAGES,
        {
            "        parameter.grad = parameter.grad / world": (
                "        if not parameter.grad.is_sparse:\n"
                "            parameter.grad /= world"
            )
        },
        "sparse|embedding",
    ),
    Script(
        "one rank clips alone",
        DDP,
        TRANSFORMER,
        {},
        {
            "        optimizer.step()": (
                "        if rank == 0:\n"
                "            nn.utils.clip_grad_norm_(model.head.bias, 0.01)\n"
                "        optimizer.step()"
            ),
        },
        "drift|differ between|replica|clip",
    ),
    Script(
        "replicas start apart",
        MANUAL,
        "",
        {},
        {"manual_seed(1)": "manual_seed(1 + rank)"},
        "drift|differ between|replica|start",
    ),
    Script(
        "tied weight summed twice",
        DDP,
        "--tied",
        {},
        {
            "        optimizer.step()": (
                "        if world > 1:\n"
                "            dist.all_reduce(model.head.weight.grad)\n"
                "        optimizer.step()"
            )
        },
        "tied|twice|summed",
    ),
    Script(
        "tied weight summed twice",
        MANUAL,
        f"--tied {TRANSFORMER}",
        WEAK[MANUAL],
        {
            "for parameter in parameters:": (
                "for _, parameter in model.named_parameters(remove_duplicate=False):"
            )
        },
        "tied|twice|summed",
    ),
    Script(
        "optimizer state resumed by one rank",
        DDP,
        RESUMED,
        {**RESUME, **MOMENTUM},
        {LOADS_OPTIMIZER: "    if rank == 0:\n    " + LOADS_OPTIMIZER},
        "resume|optimizer|state|drift",
    ),
    Script(
        "optimizer state not resumed",
        MANUAL,
        f"{RESUMED} {TRANSFORMER}",
        {**RESUME, **MOMENTUM},
        {LOADS_OPTIMIZER: ""},
        "resume|optimizer state",
    ),
]

# Bugs that `verify` was not developed with. A new list replaces them once it was.
UNSEEN = [
    Script(
        "gradients kept by one rank",
        DDP,
        "",
        {},
        {
            "        optimizer.zero_grad()": (
                "        if rank == 0:\n            optimizer.zero_grad()"
            )
        },
        "zero_grad|earlier step|previous step|stale|kept",
    ),
    Script(
        "learning rate of each rank",
        DDP,
        TRANSFORMER,
        {},
        {"lr=args.lr)": "lr=args.lr * (1 + rank))"},
        "learning rate|drift",
    ),
    Script(
        "seed of the sampler of each rank",
        DDP,
        "",
        {},
        {"(dataset, world, rank)": "(dataset, world, rank, seed=rank)"},
        "sample",
    ),
    Script(
        "one rank evaluates",
        DDP,
        f"--dropout=0.3 {TRANSFORMER}",
        {},
        {
            "    sampler.set_epoch(epoch)": (
                "    sampler.set_epoch(epoch)\n    if rank == 1:\n        model.eval()"
            )
        },
        "dropout|mode|eval",
    ),
    Script(
        "each micro-batch clipped",
        DDP,
        f"{ACCUMULATE} --clip=0.05",
        {},
        {
            "loss.backward()": (
                "loss.backward()\n"
                "                if args.clip:\n"
                "                    nn.utils.clip_grad_norm_(ddp.parameters(), args.clip)"
            )
        },
        "clip",
        reference=ONE_MICRO_BATCH,
    ),
    Script(
        "small tensors left out",
        MANUAL,
        TRANSFORMER,
        {},
        {
            SUM: (
                "        if parameter.numel() > 64:\n"
                "            dist.all_reduce(parameter.grad)"
            )
        },
        "not sync",
    ),
    Script(
        "order of each rank",
        MANUAL,
        "",
        {},
        {"manual_seed(epoch)": "manual_seed(epoch + 10 * rank)"},
        "sample|batch",
    ),
    Script(
        "maximum of the gradients",
        MANUAL,
        TRANSFORMER,
        {},
        {SUM: "        dist.all_reduce(parameter.grad, dist.ReduceOp.MAX)"},
        "maximum|not a sum",
    ),
    Script(
        "sum after the update",
        MANUAL,
        "",
        {},
        {SUMS: "", STEP: f"{STEP}\n{SUMS.rstrip()}"},
        "not sync",
    ),
    Script(
        "weights averaged after Adam",
        MANUAL,
        f"{ADAM} {TRANSFORMER}",
        {},
        {
            SUMS: "",
            STEP: (
                f"{STEP}\n"
                "        if world > 1:\n"
                "            for each in parameters:\n"
                "                dist.all_reduce(each.data)\n"
                "                each.data /= world"
            ),
        },
        "not sync|weights",
    ),
]

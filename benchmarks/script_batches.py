# ruff: noqa: E501 - a change of a script is a line
"""Four batches of scripts that `verify` had not seen: bugs and right scripts.

Each batch was written before `verify` ran on any of its scripts, and `verify` was then
developed with it. The bugs are changes of ten base scripts in benchmarks/scripts.
"""

from benchmarks.script_table import Script

BUGS_1 = [
    Script(
        "eval one rank",
        "sampler",
        bug={"    net.train()\n": "    if rank == 0:\n        net.train()\n"},
        cause="eval",
    ),
    Script(
        "zero grad rank0",
        "gpt",
        bug={
            "        optimizer.zero_grad()\n": (
                "        if R == 0:\n            optimizer.zero_grad()\n"
            )
        },
        cause="zero_grad|cleared|zeroed|previous step|earlier step",
        reference="--accum=1",
    ),
    Script(
        "own order",
        "class",
        bug={
            "        g.manual_seed(self.seed + self.epoch)\n": (
                "        g.manual_seed(self.seed + 7 * self.rank + self.epoch)\n"
            )
        },
        cause="order|shuffle",
    ),
    Script(
        "reduce max",
        "resumed",
        bug={
            "            work.append(dist.all_reduce(q.grad, async_op=True))\n": (
                "            work.append(dist.all_reduce(q.grad, op=dist.ReduceOp.MAX, async_op=True))\n"
            )
        },
        cause="max|MAX",
    ),
    Script(
        "clip by rank",
        "class",
        bug={
            "        nn.utils.clip_grad_norm_(self.wrapped.parameters(), self.cfg.clip)\n": (
                "        nn.utils.clip_grad_norm_(\n"
                "            self.wrapped.parameters(), self.cfg.clip / (1 + self.rank)\n"
                "        )\n"
            )
        },
        cause="bound|clip",
    ),
    Script(
        "no broadcast",
        "gpt",
        bug={
            (
                "torch.manual_seed(1234)\n"
                "model = GPT()\n"
                "if W > 1:\n"
                "    for param in model.parameters():\n"
                "        dist.broadcast(param.data, 0)\n"
            ): (
                "torch.manual_seed(1234 + R)\n"
                "model = GPT()\n"
                "if W > 1:\n"
                "    for param in model.parameters():\n"
                "        pass\n"
            )
        },
        cause="initial|start with different",
        reference="--accum=1",
    ),
    Script(
        "lr by rank",
        "sampler",
        bug={
            "opt = torch.optim.Adam(ddp.parameters(), lr=3e-3)\n": (
                "opt = torch.optim.Adam(ddp.parameters(), lr=3e-3 * (1 + rank))\n"
            )
        },
        cause="learning rate",
    ),
    Script(
        "rank0 grad",
        "gpt",
        bug={
            "    dist.all_reduce(flat)\n": (
                "    dist.broadcast(flat, 0)\n    flat *= W\n"
            )
        },
        cause="left out|only process|rank 0|process 0|of process",
        reference="--accum=1",
    ),
    Script(
        "frozen rank",
        "synchronised",
        bug={
            "opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)\n": (
                "opt = torch.optim.SGD(\n"
                '    [q for k, q in net.named_parameters() if RANK == 0 or "emb" not in k],\n'
                "    lr=0.2,\n"
                "    momentum=0.9,\n"
                ")\n"
            )
        },
        cause="emb.weight|not updated|optimizer|drift",
    ),
    Script(
        "clip before exchange",
        "resumed",
        bug={
            (
                "        comm.add(net.named_parameters())\n"
                "        nn.utils.clip_grad_norm_(net.parameters(), 5.0)\n"
            ): (
                "        nn.utils.clip_grad_norm_(net.parameters(), 5.0)\n"
                "        comm.add(net.named_parameters())\n"
            )
        },
        cause="clip",
    ),
    Script(
        "tied twice",
        "gpt",
        bug={
            (
                "    flat = torch.cat([q.grad.view(-1) for q in model.parameters()])\n"
                "    dist.all_reduce(flat)\n"
                "    at = 0\n"
                "    for q in model.parameters():\n"
            ): (
                '    for name in ("tok", "head"):\n'
                "        dist.all_reduce(getattr(model, name).weight.grad)\n"
                "    own = [q for q in model.parameters() if q is not model.tok.weight]\n"
                "    flat = torch.cat([q.grad.view(-1) for q in own])\n"
                "    dist.all_reduce(flat)\n"
                "    at = 0\n"
                "    for q in own:\n"
            )
        },
        cause="scaled|times|factor",
        reference="--accum=1",
    ),
    Script(
        "padding counted",
        "sampler",
        bug={
            "        count = (y != 0).sum()\n": (
                "        count = torch.tensor(y.numel())\n"
            )
        },
        cause="token|padding|target",
    ),
    Script(
        "shard overlap",
        "gpt",
        bug={
            "        mine = order[start : start + B][R::W]\n": (
                "        k = B // W\n"
                "        mine = order[start : start + B][max(0, R * k - 1) : (R + 1) * k]\n"
            )
        },
        cause="twice|repeated|duplicate|same samples",
        reference="--accum=1",
    ),
    Script(
        "bypass ddp",
        "sampler",
        bug={"        logits = ddp(x[:, :-1])\n": "        logits = net(x[:, :-1])\n"},
        cause="not exchanged|not synchron|no exchange|never",
    ),
    Script(
        "bn mean of vars",
        "synchronised",
        bug={
            "        var = sums[c : 2 * c] / n - mean**2\n": (
                "        var = flat.var(0, unbiased=False)\n"
                "        if WORLD > 1:\n"
                "            var = dfn.all_reduce(var) / WORLD\n"
            )
        },
        cause="statistic|normali",
    ),
    Script(
        "same dropout",
        "class",
        bug={
            "        torch.manual_seed(cfg.seed * 1000 + self.rank)\n": (
                "        torch.manual_seed(cfg.seed * 1000)\n"
            )
        },
        cause="dropout",
    ),
]
RIGHT_1 = [
    Script("lstm ddp", "sampler"),
    Script("gpt manual", "gpt", reference="--accum=1"),
    Script("bf16 tied", "tied", reference="--micro=1"),
    Script("syncbn", "synchronised"),
    Script("resume", "resumed"),
    Script("trainer", "class"),
]
BUGS_2 = [
    Script(
        "uneven last mean",
        "synchronised",
        bug={
            (
                "        if WORLD > 1:\n"
                "            dist.all_reduce(n)\n"
                "        opt.zero_grad()\n"
                "        loss = crit(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()) / n\n"
                "        (loss * WORLD).backward()\n"
            ): (
                "        opt.zero_grad()\n"
                "        loss = crit(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()) / n\n"
                "        loss.backward()\n"
            )
        },
        cause="mean of|token|sample",
    ),
    Script(
        "resume rank1 no opt",
        "resumed",
        bug={
            'opt.load_state_dict(state["opt"])\n': (
                'if comm.rank == 0:\n    opt.load_state_dict(state["opt"])\n'
            )
        },
        cause="optimizer state|state of the optimizer|resum|restored",
    ),
    Script(
        "divided twice",
        "tied",
        bug={
            "                    (loss / len(pieces)).backward()\n": (
                "                    (loss / len(pieces) / world).backward()\n"
            )
        },
        cause="divided twice|twice|0.5",
        reference="--micro=1",
    ),
    Script(
        "skip bias",
        "resumed",
        bug={
            "        for _, q in named:\n": (
                "        for name, q in named:\n"
                '            if "bias" in name:\n'
                "                continue\n"
            )
        },
        cause="not synchron|not exchanged|never",
    ),
    Script(
        "last bucket",
        "gpt",
        bug={
            "        at += q.numel()\n": (
                "        at += q.numel()\n"
                "        if at > flat.numel() - 2000:\n"
                "            break\n"
            )
        },
        cause="not synchron|not exchanged|never",
        reference="--accum=1",
    ),
    Script(
        "lr times world",
        "gpt",
        bug={
            '            group["lr"] = 1e-3 * min(1, (step + 1) / 8)\n': (
                '            group["lr"] = 1e-3 * min(1, (step * W + 1) / 8)\n'
            )
        },
        cause="learning rate|schedule",
        reference="--accum=1",
    ),
    Script(
        "tail lost",
        "synchronised",
        bug={
            "            yield order[i : i + 10][RANK::WORLD]\n": (
                "            part = order[i : i + 10]\n"
                "            k = len(part) // WORLD\n"
                "            yield part[RANK * k : (RANK + 1) * k]\n"
            )
        },
        cause="left out|missing|not read|lost",
    ),
    Script(
        "exchange first micro",
        "gpt",
        bug={
            "        optimizer.zero_grad()\n": (
                "        optimizer.zero_grad()\n        exchanged = False\n"
            ),
            "        exchange()\n": (
                "            if micro is mine.chunk(ACCUM)[0] or not exchanged:\n"
                "                exchange()\n"
                "                exchanged = True\n"
            ),
        },
        cause="last micro|not synchron|micro-batch",
        reference="--accum=1",
    ),
    Script(
        "beta by rank",
        "tied",
        bug={
            "    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))\n": (
                "    opt = torch.optim.AdamW(\n"
                "        model.parameters(), lr=2e-3, betas=(0.9, 0.95 if rank == 0 else 0.999)\n"
                "    )\n"
            )
        },
        cause="optimizer|option|beta|hyper|setting",
        reference="--micro=1",
    ),
    Script(
        "penalty n times",
        "resumed",
        bug={
            "        penalty = 1e-3 * sum(q.pow(2).sum() for q in net.parameters()) / comm.size\n": (
                "        penalty = 1e-3 * sum(q.pow(2).sum() for q in net.parameters())\n"
            )
        },
        cause="regulari|penalty",
    ),
    Script(
        "no set epoch",
        "class",
        bug={"            self.sampler.set_epoch(epoch)\n": ""},
        cause="order|epoch",
    ),
    Script(
        "extra sched rank0",
        "sampler",
        bug={"    if rank == 0:\n": "    if rank == 0:\n        sched.step()\n"},
        cause="learning rate|schedule",
    ),
    Script(
        "local tokens",
        "class",
        bug={
            ("            dist.all_reduce(n)\n        return n / self.world\n"): (
                "            pass\n        return n\n"
            )
        },
        cause="mean of|token",
    ),
    Script(
        "double backward first",
        "tied",
        bug={
            "            opt.zero_grad(set_to_none=True)\n": (
                "            if rank == 0 or epoch:\n"
                "                opt.zero_grad(set_to_none=True)\n"
            )
        },
        cause="zero_grad|cleared|zeroed|previous step|earlier step",
        reference="--micro=1",
    ),
    Script(
        "skip odd step",
        "gpt",
        bug={
            "        optimizer.step()\n": (
                "        if all(torch.isfinite(q.grad).all() for q in model.parameters()) and not (\n"
                "            R and loss > 0.16\n"
                "        ):\n"
                "            optimizer.step()\n"
            )
        },
        cause="optimizer steps",
        reference="--accum=1",
    ),
    Script(
        "no sync last",
        "tied",
        bug={
            "                last = i == len(pieces) - 1\n": (
                "                last = i != len(pieces) - 1\n"
            )
        },
        cause="last micro|not synchron|micro-batch",
        reference="--micro=1",
    ),
    Script(
        "step twice rank0",
        "resumed",
        bug={
            "        opt.step()\n": (
                "        opt.step()\n"
                "        if comm.rank == 0 and count < 90:\n"
                "            opt.step()\n"
            )
        },
        cause="optimizer steps",
    ),
    Script(
        "exchange every other",
        "resumed",
        bug={
            "        comm.add(net.named_parameters())\n": (
                '        train.n = getattr(train, "n", 0) + 1\n'
                "        if train.n % 2:\n"
                "            comm.add(net.named_parameters())\n"
            )
        },
        cause="not exchanged|not synchron|no exchange|never",
    ),
]
RIGHT_2 = [
    Script(
        "static graph",
        "sampler",
        changes={
            "ddp = DistributedDataParallel(net) if world > 1 else net\n": (
                "ddp = (\n"
                "    DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)\n"
                "    if world > 1\n"
                "    else net\n"
                ")\n"
            )
        },
    ),
    Script(
        "avg first",
        "gpt",
        changes={
            "    dist.all_reduce(flat)\n": (
                "    flat /= W\n    dist.all_reduce(flat)\n    flat *= W\n"
            )
        },
        reference="--accum=1",
    ),
    Script(
        "eval rank0",
        "class",
        changes={
            "            if self.rank == 0:\n": (
                "            if self.rank == 0:\n"
                "                self.model.eval()\n"
                "                with torch.no_grad():\n"
                "                    self.model(Words.collate([self.data[0]]))\n"
                "                self.model.train()\n"
            )
        },
    ),
    Script(
        "bf16 exchange",
        "gpt",
        changes={
            "    dist.all_reduce(flat)\n": (
                "    half = flat.bfloat16()\n"
                "    dist.all_reduce(half)\n"
                "    flat = half.float()\n"
            )
        },
        reference="--accum=1",
    ),
]
BUGS_3 = [
    Script(
        "data by rank",
        "gpt",
        bug={
            "gen = torch.Generator().manual_seed(77)\n": (
                "gen = torch.Generator().manual_seed(77 + R)\n"
            )
        },
        cause="data|samples",
        reference="--accum=1",
    ),
    Script(
        "local count mean",
        "resumed",
        bug={
            "        count = comm.total((y > 0).sum())\n": (
                "        count = float((y > 0).sum()) * comm.size\n"
            )
        },
        cause="mean of the processes",
    ),
    Script(
        "clip rank0",
        "sampler",
        bug={
            "        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)\n": (
                "        if rank == 0:\n"
                "            nn.utils.clip_grad_norm_(ddp.parameters(), 9.0)\n"
            )
        },
        cause="clip",
    ),
    Script(
        "stats rank0",
        "synchronised",
        bug={
            (
                "            self.mean.lerp_(mean, 0.1)\n"
                "            self.var.lerp_(var, 0.1)\n"
            ): (
                "            if RANK == 0:\n"
                "                self.mean.lerp_(mean, 0.1)\n"
                "                self.var.lerp_(var, 0.1)\n"
            )
        },
        cause="statistic|buffer",
    ),
    Script(
        "schedule length",
        "class",
        bug={
            "            self.opt, cfg.lr, total_steps=60\n": (
                "            self.opt, cfg.lr, total_steps=60 * self.world\n"
            )
        },
        cause="learning rate|schedule",
    ),
    Script(
        "exchange late",
        "gpt",
        bug={
            (
                "        exchange()\n"
                "        nn.utils.clip_grad_norm_(model.parameters(), 0.7)\n"
                "        optimizer.step()\n"
            ): (
                "        nn.utils.clip_grad_norm_(model.parameters(), 0.7)\n"
                "        optimizer.step()\n"
                "        exchange()\n"
            )
        },
        cause="not synchron",
        reference="--accum=1",
    ),
    Script(
        "autocast rank0",
        "tied",
        bug={
            '                    with torch.autocast("cpu", dtype=torch.bfloat16):\n': (
                '                    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rank == 0):\n'
            )
        },
        cause="precision|autocast|bfloat",
        reference="--micro=1",
    ),
    Script(
        "sampler rank0",
        "sampler",
        bug={
            "sampler = DistributedSampler(data, world, rank, shuffle=True, seed=3)\n": (
                "sampler = DistributedSampler(data, world, 0, shuffle=True, seed=3)\n"
            )
        },
        cause="same samples",
    ),
    Script(
        "decay n times",
        "gpt",
        bug={
            "        optimizer.step()\n": (
                "        optimizer.step()\n"
                "        with torch.no_grad():\n"
                "            for q in model.parameters():\n"
                "                q.mul_(1 - 1e-3 * (W - 1))\n"
            )
        },
        cause="decay|between two steps",
        reference="--accum=1",
    ),
    Script(
        "micro summed",
        "tied",
        bug={
            "                    (loss / len(pieces)).backward()\n": (
                "                    loss.backward()\n"
            )
        },
        cause="micro-batches are summed",
        reference="--micro=1",
    ),
    Script(
        "shifted labels",
        "class",
        bug={
            "        y = x[:, 1:]\n": (
                "        y = x[:, 1:] if self.rank == 0 else x[:, :-1]\n"
            )
        },
        cause="targets|label|of one process|process 1",
    ),
    Script(
        "double exchange",
        "synchronised",
        bug={
            "        (loss * WORLD).backward()\n": (
                "        (loss * WORLD).backward()\n"
                "        if WORLD > 1:\n"
                "            for q in net.parameters():\n"
                "                dist.all_reduce(q.grad)\n"
            )
        },
        cause="summed",
    ),
]
RIGHT_3 = [
    Script(
        "truncated",
        "class",
        changes={
            "        order = torch.randperm(self.n, generator=g).tolist()\n": (
                "        order = torch.randperm(self.n, generator=g).tolist()\n"
                "        order = order[: self.n // 4 * 4]\n"
            )
        },
    ),
    Script(
        "averaged weights",
        "synchronised",
        changes={
            "        opt.step()\n": (
                "        opt.step()\n"
                "        if WORLD > 1:\n"
                "            for q in net.parameters():\n"
                "                dist.all_reduce(q.data)\n"
                "                q.data.div_(WORLD)\n"
            )
        },
    ),
    Script(
        "seed by rank",
        "sampler",
        changes={"torch.manual_seed(11)\n": "torch.manual_seed(11 + rank)\n"},
    ),
    Script(
        "eval with grad",
        "sampler",
        changes={"    with torch.no_grad():\n": "    if True:\n"},
    ),
]
GATHER_WITHOUT_GRADIENT = {
    "    return torch.cat(dnn.all_gather(t))": (
        "    parts = [torch.empty_like(t) for _ in range(world)]\n"
        "    dist.all_gather(parts, t.detach().contiguous())\n"
        "    parts[rank] = t\n"
        "    return torch.cat(parts)"
    )
}
AUGMENTED = {
    "    for epoch in range(2):": (
        "    torch.manual_seed(50 + rank)\n    for epoch in range(2):"
    ),
    "        for a, b in loader:\n": (
        "        for a, b in loader:\n            a = a + 0.1 * torch.randn_like(a)\n"
    ),
}
BUGS_4 = [
    Script(
        "last micro not synchronised in one module",
        "wrapped",
        bug={
            (
                "            if distributed and not boundary:\n"
                "                for m in (enc, dec):\n"
                "                    stack.enter_context(m.no_sync())\n"
            ): (
                "            if distributed:\n"
                "                stack.enter_context((dec if boundary else enc).no_sync())\n"
            )
        },
        cause="last micro",
    ),
    Script(
        "one module not wrapped",
        "wrapped",
        bug={
            "    dec = DistributedDataParallel(dec)\n": "",
            "for m in (enc, dec):": "for m in (enc,):",
        },
        cause="not synchron",
    ),
    Script(
        "gathered without gradient",
        "contrastive",
        bug=GATHER_WITHOUT_GRADIENT,
        cause="have no gradient",
    ),
    Script(
        "gathered without gradient, augmented",
        "contrastive",
        changes=AUGMENTED,
        bug=GATHER_WITHOUT_GRADIENT,
        cause="have no gradient",
    ),
    Script(
        "reduced to one rank",
        "hooks",
        bug={"dist.all_reduce(p.grad)\n": "dist.reduce(p.grad, dst=0)\n"},
        cause="only one process",
    ),
    Script(
        "weights averaged",
        "hooks",
        bug={
            (
                "    if ctx.n > 1:\n"
                "        dist.all_reduce(p.grad)\n"
                "        p.grad /= ctx.n\n"
            ): "    pass\n",
            "        optimizer.step()\n": (
                "        optimizer.step()\n"
                "        if ctx.n > 1:\n"
                "            with torch.no_grad():\n"
                "                for p in model.parameters():\n"
                "                    dist.all_reduce(p)\n"
                "                    p /= ctx.n\n"
            ),
        },
        cause="weights are averaged",
    ),
    Script(
        "norm of the sum",
        "hooks",
        bug={
            "        p.grad /= ctx.n\n": "",
            "            p.grad *= scale\n": "            p.grad *= scale / ctx.n\n",
        },
        cause="different norm",
    ),
    Script(
        "no epoch",
        "buckets",
        bug={"        batches.epoch = epoch\n": ""},
        cause="set_epoch",
    ),
    Script(
        "constant denominator",
        "buckets",
        bug={"losses.sum() / share(rows)": "losses.mean() / NUM"},
        cause="mean of the processes",
    ),
    Script(
        "sparse skipped",
        "buckets",
        bug={"            p.grad = p.grad.to_dense()\n": "            continue\n"},
        cause="sparse|not synchronised",
    ),
]
RIGHT_4 = [
    Script("two optimizers", "wrapped"),
    Script("gathered", "contrastive"),
    Script("gathered, augmented", "contrastive", changes=AUGMENTED),
    Script("clipped by hand", "hooks"),
    Script("one by one", "buckets"),
]
BATCHES = {
    "batch1": (BUGS_1, RIGHT_1),
    "batch2": (BUGS_2, RIGHT_2),
    "batch3": (BUGS_3, RIGHT_3),
    "batch4": (BUGS_4, RIGHT_4),
}

"""What `verify` found: clauses after "WRONG from batch 3 on:", and the sentences of a right run."""

_TIMES = "{variables:list} {variables:changes|change} {factor:.3g} times as far as expected"
TEMPLATES = {
    # The verdict.
    "verify-wrong": "WRONG from batch {batch} on:",
    "verify-wrong-machine": "WRONG: {checks:list}.",
    "verify-only-on": "Only {towers:list} {towers:is|are} affected.",
    "verify-try-sgd": "Use --optimizer=sgd for a closer diagnosis: {optimizer} mixes the gradients of several batches.",
    "verify-hardly-moved": (
        "Cannot tell: weights moved by {moved} at most, too little to show a fault in {variables:list}. "
        "Use a --learning_rate above {rate:g}."
    ),
    "verify-equal": (
        "Equal within {within}: the variables are what serial training on the same {batches} batches gives."
    ),
    "verify-equal-replicas": (
        "Equal within {within}: each replica is what serial training on the same {batches} batches gives."
    ),
    "verify-equal-alone": (
        "Equal within {within}: each replica is what serial training on its own {batches} batches gives."
    ),
    "verify-moved": "Weights moved by up to {moved}.",
    "verify-stale": "Stale by 1 step, as {flag} promises.",
    "verify-step-by-step": (
        "Right step by step: from batch {batch} on, weights differ by up to {difference} from serial training. "
        "Each update is what serial training makes at the run's own weights, so only roundings grow."
    ),
    "verify-not-moved": "{variables:list} hardly moved and {variables:is|are} not compared.",
    "verify-hides-factor": "{hiding:list} would hide a wrong factor of the gradient, such as a sum for a mean.",
    "verify-not-clipped": (
        "No gradient is longer than --max_gradient_norm, so clipping is not compared; use a smaller value."
    ),
    "verify-not-covered": "Not covered: other sizes, kernels and batches, the content of input files, image layers.",
    "verify-first-order": (
        "Equal to first order: the gradients of {steps} steps at the first weights add up to the change of the "
        "variables within {off:share}. A lost or repeated step is {smallest:share}. Gradients were {least} to {most} "
        "updates old."
    ),
    "verify-not-first-order": (
        "WRONG: the gradients of {steps} steps at the first weights add up to the change of the variables only within "
        "{off:share}, and a lost or repeated step is {smallest:share}. Use a lower --learning_rate to confirm this."
    ),
    "verify-order-counts": "Cannot tell: with {optimizer} the order of updates counts; use --optimizer=sgd.",
    # Updates: which wrong gradient explains them.
    "update-one-batch-late": "{variables:list} {variables:gets|get} the gradient of the batch before.",
    "update-stale-weights": ("the gradient of {variables:list} is computed at the weights of one batch before."),
    "update-not-late": "{variables:list} {variables:gets|get} the gradient of the batch itself, not of the one before.",
    "update-not-exchanged": "{variables:list} {variables:gets|get} only the gradient of the tower itself.",
    "update-exchanged": (
        "{variables:list} {variables:gets|get} the gradients of all towers; each tower should use only its own."
    ),
    "update-mean-of-means": (
        "the means of the towers are averaged for {variables:list}, but the towers have different numbers of items."
    ),
    "update-sum-of-means": "the means of the towers are added for {variables:list} but should be averaged.",
    "update-weight-decay": (
        "{variables:list} {variables:changes|change} by the right gradient plus a part in proportion to the weights "
        "(weight decay)."
    ),
    "update-wrong-order": "the pieces of the gradient of {variables:list} arrive in another order.",
    "update-unequal": "{variables:list} {variables:changes|change} differently from serial training.",
    "update-growing": "each update is right by itself, and small differences grow from batch to batch.",
    "update-duplicate-rows": "rows of {variables:list} that occur several times in a batch are not added up.",
    "update-rows-lost": (
        "{wrong} of {rows:count row} of {variables:list}, from row {first} on, {wrong:does|do} not change."
    ),
    "update-part-wrong": (
        "a part of {variables:list}, {wrong} of {rows:count row} from row {first} on, changes differently from "
        "serial training; the other rows are right."
    ),
    "update-tower-left-out": "the gradient of tower {tower} is left out of {variables:list}.",
    "update-tower-twice": "the gradient of tower {tower} counts twice in {variables:list}.",
    "update-tower-replaced": (
        "the gradient of tower {instead} counts twice and that of tower {tower} not at all in {variables:list}."
    ),
    "update-missing": "{variables:list} {variables:does|do} not change.",
    "update-summed": f"gradients are summed but should be averaged: {_TIMES}.",
    "update-averaged": f"gradients are averaged but should be summed: {_TIMES}.",
    "update-factor": f"{_TIMES}.",
    "update-factor-of-all": f"{_TIMES}: the learning rate or the loss has a wrong factor.",
    "update-wrong-rate": f"{_TIMES}: the learning rate is wrong.",
    # Update rules: which changed constant explains all updates.
    "rule-constant": "the optimizer's {name} is {value:g}, not {right:g}.",
    "rule-nesterov": "the momentum is Nesterov's, but ordinary momentum was requested.",
    "rule-no-correction": "Adam does not correct {averages:list} for the zeros at the beginning (bias correction).",
    "rule-correction-early": "Adam's bias correction counts one update too many.",
    "rule-correction-late": "Adam's bias correction counts one update too few.",
    "rule-ramp-early": "the ramp of the learning rate is one update early.",
    "rule-ramp-late": "the ramp of the learning rate is one update late.",
    "rule-ramp-longer": "the ramp of the learning rate is one update longer than --lr_warmup_batches.",
    "rule-ramp-shorter": "the ramp of the learning rate is one update shorter than --lr_warmup_batches.",
    "rule-no-ramp": "the learning rate has no ramp.",
    "rule-rate": "the learning rate is {factor:.3g} times the expected value.",
    "rule-not-scheduled": "the learning rate does not follow --lr_schedule.",
    "rule-not-decayed": "there is no weight decay.",
    "rule-decays-all": "weight decay reaches biases and other vectors.",
    "rule-decay-in-gradient": "weight decay is added to the gradient; Adam's should be taken off the weights.",
    "rule-decay-decoupled": "weight decay is taken off the weights; it should be added to the gradient.",
    "rule-bound": "gradients are clipped to {bound:.3g} times --max_gradient_norm.",
    "rule-clipped-by-tower": "the gradient of each tower is clipped by itself; their sum should be clipped.",
    "rule-clipped-twice": "the gradient of each tower is clipped by itself before their sum is clipped.",
    "rule-clipped-by-variable": "each variable is clipped by its own norm.",
    "rule-not-clipped": "gradients are not clipped.",
    "rule-no-feedback": "the error of int8 is lost: there is no error feedback.",
    "rule-int8-scale": "int8 gradients arrive {factor:.4g} times as large as they should: their scale is wrong.",
    # Inputs and losses.
    "input-samples-missing": "the towers train {got} of the {expected} samples of a batch.",
    "input-first-weights": "{variable} begins with other weights.",
    "input-first-weights-on": "{variable} begins with other weights on {tower}.",
    "input-batch-of-tower": "tower {tower} trains the batch of tower {instead}.",
    "input-dropout-of-tower": "tower {tower} drops the same elements as tower {instead}.",
    "input-dropout-repeats": "tower {tower} drops the same elements as at step 0.",
    "input-batch-repeats": "tower {tower} trains the batch of step {earlier} again.",
    "input-items-missing": "tower {tower} trains {got:,.0f} of its {expected:,.0f} items.",
    "input-same-batch": "tower {tower} trains the same batch as tower {instead}.",
    "input-same-batch-later": "tower {tower} trains the same batch at step {step} as at step {earlier}.",
    "loss-unequal": "the loss of tower {tower} is {got:.6g} instead of {expected:.6g} at the same weights.",
    "averages-unequal": "{variable}, a moving average, differs on tower {tower}.",
    "weights-unequal": "{variable} differs.",
    # The network against its reference.
    "network-items": "a batch of {expected:g} predicted words counts as {got:g}, so the mean is wrong.",
    "network-image-items": "a batch of 6 images counts as {got:g}, so the mean is wrong.",
    "network-gradient": "the gradient of {variables:list} is not that of the loss ({part}, small network).",
    "network-cross-entropy": "the cross entropy is wrong: the loss of a small network is off by {off:share}.",
    "network-cell": "{wrong} of {cell} cells differ from their formulas: the loss is off by {off:share}.",
    "network-part": "loss and layers are right, but the {part} around them is not: the loss is off by {off:share}.",
    "network-image-loss": "the cross entropy of images is not that of their labels.",
    "network-bias": "{variable} does not begin with zeros.",
    "network-not-uniform": "{variable} does not begin uniform within {bound:g}.",
    "network-equal-weights": "{variable} begins with the weights of {instead}.",
    "network-dropout": "--dropout={rate:g} drops another share, or scales the others wrongly.",
    "network-dropout-repeats": "dropout draws the same zeros for another batch or layer.",
    "network-normalisation": "batch normalisation does not use the mean and variance of its batch.",
    "network-moving": "the moving {average} of batch normalisation does not keep a share of {decay:g}.",
}

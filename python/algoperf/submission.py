"""A submission to AlgoPerf's self-tuning ruleset, for PyTorch: a learned optimizer of lopt with its
weights, in one file.

`lopt export --format algoperf` wrote it. It needs PyTorch and AlgoPerf. Workloads are trained with
the one-file optimizer LearnedOptimizer, which begins below; the functions that AlgoPerf calls and
the weights are at the end. The length of the training is the workload's step_hint; its steps are
multiplied by _LR, and _WEIGHT_DECAY means what it means in AdamW: the two constants below. The code
is under the Apache License 2.0, as all of lopt.
"""

from algoperf import spec

# Of the whole machine: those that AlgoPerf's own baselines for PyTorch have.
_BATCH_SIZES = {
    "cifar": 16384, "criteo1tb": 262144, "fastmri": 32, "finewebedu_lm": 64,
    "imagenet_resnet": 1024, "imagenet_resnet_gelu": 512, "imagenet_resnet_silu": 512,
    "imagenet_vit": 1024, "imagenet_vit_glu": 512, "librispeech_conformer": 256,
    "librispeech_deepspeech": 256, "mnist": 16, "ogbg": 512, "wmt": 128}


def get_batch_size(workload_name):
    """The number of examples in a step, over all devices. Raises ValueError for a workload that
    _BATCH_SIZES does not have."""
    if workload_name not in _BATCH_SIZES:
        raise ValueError(f"no batch size is known for the workload {workload_name!r}; add it to "
                         f"_BATCH_SIZES, which has {', '.join(_BATCH_SIZES)}")
    return _BATCH_SIZES[workload_name]


def _step_hint(workload):
    hint = getattr(workload, "step_hint", None)
    if isinstance(hint, bool) or not hasattr(hint, "__index__") or operator.index(hint) < 1:
        raise ValueError(f"{type(workload).__name__} has no step_hint: it must be the number of "
                         "steps of the training, which the learned optimizer is told; got "
                         f"{hint!r}")
    return operator.index(hint)


def init_optimizer_state(workload, model_params, model_state, hyperparameters, rng):
    """The learned optimizer for the parameters of a model. Raises ValueError if the workload has no
    step_hint, or if the weights do not do here what they did when their file was written."""
    num_steps = _step_hint(workload)
    weights = ThetaFile(_NAME, content=bytes.fromhex(_WEIGHTS))
    return {"optimizer": LearnedOptimizer(model_params.parameters(), weights, lr=_LR,
                                          weight_decay=_WEIGHT_DECAY, num_steps=num_steps)}


def _number_of_processes():
    distributed = torch.distributed
    return (distributed.get_world_size()
            if distributed.is_available() and distributed.is_initialized() else 1)


def _sum_of_processes(number):
    """Of a tensor of one element; a new one, without a gradient."""
    total = number.detach().clone()
    if _number_of_processes() > 1:
        torch.distributed.all_reduce(total)
    return total


def update_params(workload, current_param_container, current_params_types, model_state,
                  hyperparameters, batch, loss_type, optimizer_state, eval_results, global_step,
                  rng, train_state=None):
    """One step. Where a learned optimizer needs the length of the training, TrainingCompleteError
    ends it after step_hint steps; others go on."""
    optimizer = optimizer_state["optimizer"]
    weights, num_steps = optimizer._theta_file, _step_hint(workload)
    if weights.needs_num_steps() and global_step >= num_steps:
        raise spec.TrainingCompleteError(f"all {num_steps} steps of step_hint have been made, "
                                         f"which {weights.needs_num_steps()} does not go beyond")
    current_param_container.train()
    optimizer.zero_grad()
    logits, model_state = workload.model_fn(
        params=current_param_container, augmented_and_preprocessed_input_batch=batch,
        model_state=model_state, mode=spec.ForwardPassMode.TRAIN, rng=rng, update_batch_norm=True)
    losses = workload.loss_fn(label_batch=batch["targets"], logits_batch=logits,
                              mask_batch=batch.get("weights"))
    # A process has the examples of its devices. DistributedDataParallel makes the gradient of each
    # the mean over processes, so that of this loss, that of the mean over all examples.
    summed = losses["summed"]
    examples = _sum_of_processes(torch.as_tensor(losses["n_valid_examples"], device=summed.device))
    (summed * _number_of_processes() / examples).backward()
    loss = None
    if weights.needs_loss():  # the same in all processes, whose weights would drift apart
        loss = _sum_of_processes(summed) / examples
    optimizer.step(loss=loss)
    return optimizer_state, current_param_container, model_state


def prepare_for_eval(workload, current_param_container, current_params_types, model_state,
                     hyperparameters, loss_type, optimizer_state, eval_results, global_step, rng):
    """The parameters are evaluated as they are."""
    return optimizer_state, current_param_container, model_state


def data_selection(workload, input_queue, optimizer_state, current_param_container, model_state,
                   hyperparameters, global_step, rng):
    """The next batch."""
    return next(input_queue)

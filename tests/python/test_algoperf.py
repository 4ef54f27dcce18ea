"""Tests of the submissions that `lopt export --format algoperf` writes, in a stand-in of AlgoPerf,
against the one-file optimizer. The environment is that of test_lopt_optimizer.
"""

import enum
import inspect
import multiprocessing
import shutil
import sys
import types
import unittest
import unittest.mock
import warnings

import numpy
import test_lopt_optimizer as one_file
import torch
from test_lopt_optimizer import LearnedOptimizer, lopt_optimizer, run

STEPS = 12

# One of each type, an optimizer of others, a schedule, and bfloat16.
RULES = [{"type": kind} for kind in lopt_optimizer._TYPES if kind not in (
    "OrthogonalSteps", "MatricesAndVectors", "LearnedScheduler")] + list(one_file.OF_OTHERS) + [
    {"type": "LearnableAdam", "schedule": "cosine"},
    {"type": "MLPLOpt", "precision": "bf16"}]


class ForwardPassMode(enum.Enum):
    TRAIN = 0
    EVAL = 1


class ParameterType(enum.Enum):
    WEIGHT = 0
    BIAS = 1


class LossType(enum.Enum):
    SOFTMAX_CROSS_ENTROPY = 0


class TrainingCompleteError(Exception):
    pass


def stand_in():
    """The modules of AlgoPerf that a submission sees, by name."""
    package, spec = types.ModuleType("algoperf"), types.ModuleType("algoperf.spec")
    for name in (ForwardPassMode, ParameterType, LossType, TrainingCompleteError):
        setattr(spec, name.__name__, name)
    package.spec = spec
    return {"algoperf": package, "algoperf.spec": spec}


def loaded(path):
    """A submission as a module."""
    module = types.ModuleType("submission")
    with unittest.mock.patch.dict(sys.modules, stand_in()):
        exec(compile(path.read_text(encoding="utf-8"), "submission.py", "exec"), vars(module))
    return module


class Workload:
    """Four classes of points, with some examples masked out, and a perceptron; what is called is
    called by the names of AlgoPerf's interface. losses: the means of all that was asked for."""

    step_hint = STEPS
    loss_type = LossType.SOFTMAX_CROSS_ENTROPY
    num_train_examples = 256

    def __init__(self):
        self.losses = []

    def init_model_fn(self, rng):
        torch.manual_seed(rng)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
        self.param_shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        self.model_params_types = {
            name: ParameterType.BIAS if name.endswith("bias") else ParameterType.WEIGHT
            for name in self.param_shapes}
        return model, {"calls": 0}

    def _build_input_queue(self, data_rng, split, data_dir, global_batch_size):
        generator = torch.Generator().manual_seed(data_rng)
        centres = torch.randn(4, 8, generator=generator)
        while True:
            targets = torch.randint(0, 4, (global_batch_size,), generator=generator)
            inputs = centres[targets] + torch.randn(global_batch_size, 8, generator=generator)
            kept = torch.rand(global_batch_size, generator=generator) < 0.8
            yield {"inputs": inputs, "targets": targets, "weights": kept.float()}

    def model_fn(self, params, augmented_and_preprocessed_input_batch, model_state, mode, rng,
                 update_batch_norm, dropout_rate=0.0):
        assert mode is ForwardPassMode.TRAIN and params.training and update_batch_norm
        return (params(augmented_and_preprocessed_input_batch["inputs"]),
                {"calls": model_state["calls"] + 1})

    def loss_fn(self, label_batch, logits_batch, mask_batch=None, label_smoothing=0.0):
        losses = torch.nn.functional.cross_entropy(logits_batch, label_batch, reduction="none")
        losses = losses * mask_batch
        summed, examples = losses.sum(), mask_batch.sum()
        self.losses.append((summed / examples).item())
        return {"summed": summed, "n_valid_examples": examples, "per_example": losses}


def trained(submission, workload, steps=STEPS, resumed_after=None, model=None, part=slice(None)):
    """What AlgoPerf's runner does, evaluations left out: the model. resumed_after: a number of
    steps after which all is saved, and loaded by a new optimizer. part: of each batch's examples.
    """
    queue = workload._build_input_queue(1, "train", "", submission.get_batch_size("mnist"))
    queue = ({name: values[part] for name, values in batch.items()} for batch in queue)
    built, model_state = workload.init_model_fn(2)
    model = built if model is None else model(built)
    state = submission.init_optimizer_state(workload, model, model_state, None, 3)
    common = {"workload": workload, "model_state": model_state, "hyperparameters": None,
              "rng": 4}
    for step in range(steps):
        if step == resumed_after:
            torch.save({name: value.state_dict() for name, value in state.items()},
                       workload.checkpoint)
            state = submission.init_optimizer_state(workload, model, model_state, None, 3)
            for name, saved in torch.load(workload.checkpoint).items():
                state[name].load_state_dict(saved)
        batch = submission.data_selection(
            input_queue=queue, optimizer_state=state, current_param_container=model,
            global_step=step, **common)
        state, model, common["model_state"] = submission.update_params(
            current_param_container=model, current_params_types=workload.model_params_types,
            batch=batch, loss_type=workload.loss_type, optimizer_state=state, eval_results=[],
            global_step=step, train_state={}, **common)
        state, model, common["model_state"] = submission.prepare_for_eval(
            current_param_container=model, current_params_types=workload.model_params_types,
            loss_type=workload.loss_type, optimizer_state=state, eval_results=[],
            global_step=step, **common)
    assert common["model_state"] == {"calls": steps}
    return model


def trained_directly(path, workload, batch_size, steps=STEPS, **options):
    """The same with the one-file optimizer."""
    queue = workload._build_input_queue(1, "train", "", batch_size)
    model, _ = workload.init_model_fn(2)
    optimizer = LearnedOptimizer.from_file(path, model.parameters(), num_steps=STEPS, **options)
    for _ in range(steps):
        batch = next(queue)
        optimizer.zero_grad()
        losses = workload.loss_fn(batch["targets"], model(batch["inputs"]), batch["weights"])
        loss = losses["summed"] / losses["n_valid_examples"]
        loss.backward()
        optimizer.step(loss=loss)
    return model


def one_process(rank, path, rendezvous, results):
    """One of two processes, with half of each batch."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                                         world_size=2)
    try:
        model = trained(loaded(path), Workload(), part=slice(rank, None, 2),
                        model=torch.nn.parallel.DistributedDataParallel)
        results.put((rank, [p.detach().numpy() for p in model.parameters()]))
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


@unittest.skipUnless(one_file.PROGRAM, "LOPT_PROGRAM does not name the program")
class Submissions(one_file.TestCase):
    drawn_of_others = one_file.FilesOfTheProgram.drawn_of_others

    def setUp(self):
        super().setUp()
        warnings.simplefilter("error")
        self.addCleanup(warnings.resetwarnings)

    def exported(self, theta):
        path = self.directory / "submission.py"
        run("export", theta, "--format", "algoperf", "--out", path)
        return path

    def test_each_type_ends_with_exactly_the_losses_of_the_one_file_optimizer(self):
        for options in RULES:
            with self.subTest(options):
                # The weights of LearnableAdam are logarithms, of one minus its betas among others.
                mean = -1 if options["type"] == "LearnableAdam" else 0
                theta = self.drawn_of_others(options, mean)
                submission = loaded(self.exported(theta))
                got, wanted = Workload(), Workload()
                model = trained(submission, got)
                directly = trained_directly(theta, wanted, submission.get_batch_size("mnist"))
                self.assertEqual(len(got.losses), STEPS)
                self.assertNotEqual(got.losses[0], got.losses[-1])
                self.assertEqual(got.losses, wanted.losses)
                for a, b in zip(model.parameters(), directly.parameters()):
                    self.assertTrue(torch.equal(a, b))

    def test_the_constants_at_the_top_are_the_lr_and_the_weight_decay(self):
        theta = self.drawn_of_others({"type": "LearnableSGDM", "learning_rate": 0.1})
        path = self.exported(theta)
        text = path.read_text(encoding="utf-8")
        constants = "_LR, _WEIGHT_DECAY = 1.0, 0.0\n"
        self.assertEqual(text.count(constants), 1)
        self.assertLess(text.index(constants), text.index("\nimport "))
        path.write_text(text.replace(constants, "_LR, _WEIGHT_DECAY = 0.5, 0.001\n"),
                        encoding="utf-8")
        got, wanted, plain = Workload(), Workload(), Workload()
        submission = loaded(path)
        trained(submission, got)
        batch_size = submission.get_batch_size("mnist")
        trained_directly(theta, wanted, batch_size, lr=0.5, weight_decay=0.001)
        self.assertEqual(got.losses, wanted.losses)
        trained_directly(theta, plain, batch_size)
        self.assertNotEqual(got.losses, plain.losses)

    def test_the_functions_have_the_arguments_of_the_interface(self):
        submission = loaded(self.exported("recommended"))
        start = "workload model_params model_state hyperparameters rng"
        common = ("workload current_param_container current_params_types model_state "
                  "hyperparameters ")
        end = "loss_type optimizer_state eval_results global_step rng"
        for function, wanted in (
                ("get_batch_size", "workload_name"), ("init_optimizer_state", start),
                ("update_params", common + "batch " + end + " train_state"),
                ("prepare_for_eval", common + end),
                ("data_selection", "workload input_queue optimizer_state current_param_container "
                                   "model_state hyperparameters global_step rng")):
            got = inspect.signature(getattr(submission, function)).parameters
            self.assertEqual(" ".join(got), wanted)
        self.assertIs(got["rng"].default, inspect.Parameter.empty)

    def test_a_training_that_is_resumed_ends_as_one_in_one_go(self):
        for options in ({"type": "Celo"}, one_file.OF_OTHERS[0], {"type": "MLPLOpt"}):
            with self.subTest(options):
                submission = loaded(self.exported(self.drawn_of_others(options)))
                whole, resumed = Workload(), Workload()
                resumed.checkpoint = self.directory / "checkpoint"
                trained(submission, whole)
                trained(submission, resumed, resumed_after=5)
                self.assertEqual(whole.losses, resumed.losses)

    @unittest.skipUnless(torch.distributed.is_available(), "PyTorch without torch.distributed")
    def test_two_processes_train_as_one_with_all_examples(self):
        # Steps of momentum and of a network, whose scheduler needs the loss.
        for options in ({"type": "LearnableSGDM", "learning_rate": 0.1}, {"type": "Celo"}):
            with self.subTest(options):
                path = self.exported(self.drawn_of_others(options))
                wanted = list(trained(loaded(path), Workload()).parameters())
                context = multiprocessing.get_context("spawn")
                results = context.Queue()
                rendezvous = self.directory / f"rendezvous-{options['type']}"
                processes = [context.Process(target=one_process,
                                             args=(rank, path, rendezvous, results))
                             for rank in range(2)]
                for process in processes:
                    process.start()
                got = dict(results.get(timeout=120) for _ in processes)
                for process in processes:
                    process.join()
                for a, b, p in zip(got[0], got[1], wanted):
                    numpy.testing.assert_array_equal(a, b)
                    # Sums of halves round otherwise; a step's share of that is below 1e-5.
                    self.assertClose(p, a, 1e-5 * STEPS)

    def test_a_workload_without_a_step_hint_is_an_error_that_says_so(self):
        submission = loaded(self.exported("mlp"))
        workload = Workload()
        model, _ = workload.init_model_fn(0)
        for hint in (None, 0, -1, 2.5, True, "100"):
            workload.step_hint = hint
            with self.assertRaisesRegex(ValueError, "^Workload has no step_hint: .* got "):
                submission.init_optimizer_state(workload, model, None, None, 0)
        with self.assertRaisesRegex(ValueError, "^SimpleNamespace has no step_hint"):
            submission.init_optimizer_state(types.SimpleNamespace(), model, None, None, 0)
        workload.step_hint = numpy.int64(3)
        state = submission.init_optimizer_state(workload, model, None, None, 0)
        self.assertEqual(state["optimizer"].param_groups[0]["num_steps"], 3)
        with self.assertRaisesRegex(ValueError, "'imagenet'; add it to _BATCH_SIZES, .*ogbg"):
            submission.get_batch_size("imagenet")

    def test_a_training_ends_after_its_step_hint_where_the_optimizer_needs_it(self):
        workload = Workload()
        warnings.filterwarnings("ignore", ".*this training is unlike all")  # as short as it is
        with self.assertRaisesRegex(TrainingCompleteError, "all 12 steps of step_hint have been "
                                    "made, which LearnedScheduler .*"):
            trained(loaded(self.exported("recommended")), workload, STEPS + 1)
        self.assertEqual(len(workload.losses), STEPS)
        trained(loaded(self.exported("mlp")), workload, STEPS + 1)
        self.assertEqual(len(workload.losses), 2 * STEPS + 1)

    def test_a_name_may_be_anything_and_damaged_weights_are_refused(self):
        for name in ('a """b\\.safetensors', "größe 漢字 😀.safetensors", "a\nb'.safetensors"):
            path = self.directory / name
            shutil.copy(one_file.ROOT / "trained/mlp.safetensors", path)
            submission = loaded(self.exported(path))
            self.assertEqual(submission._NAME, name)
            submission._WEIGHTS = submission._WEIGHTS[:-5]
            workload = Workload()
            model, _ = workload.init_model_fn(0)
            with self.assertRaises(ValueError) as raised:
                submission.init_optimizer_state(workload, model, None, None, 0)
            self.assertTrue(str(raised.exception).startswith(name + ": "))

    def test_the_file_holds_the_bytes_of_the_theta_file(self):
        for name in ("recommended", "celo2"):
            submission = loaded(self.exported(name))
            self.assertEqual(bytes.fromhex(submission._WEIGHTS),
                             (one_file.ROOT / f"trained/{name}.safetensors").read_bytes())
            self.assertEqual(submission._NAME, name + ".safetensors")


if __name__ == "__main__":
    unittest.main()

"""Which public programs `programs.py` runs, with what arguments and data, and what faults it puts into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from program_data import characters, citations, images, mnist, names, tokens, waves, words

Data = Callable[[Path], None]
_KEEPS_FROM_GPU = ("--no-accel", "--no-cuda", "--cuda", "--device=cpu")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One program: a script of a checkout, run in its folder."""

    script: str
    """Below the folder of checkouts, whose folders have the repositories' names."""
    arguments: str = ""
    data: Mapping[str, Data] = field(default_factory=dict)
    """What makes the data, by the place below the script's folder."""
    seconds: float = 30
    """After which it is interrupted as by Ctrl-C, if it has not ended."""
    needs: tuple[str, ...] = ()
    """Packages beyond torch and numpy."""
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def title(self) -> str:
        """The script, or the name where one script has several recipes."""
        return self.name or self.script.removesuffix("/main.py").removesuffix(".py")

    def on_gpu(self) -> Recipe:
        """The same without what keeps it from a GPU (the programs of TCN take --cuda to mean "without")."""
        words = [word for word in self.arguments.split() if word not in _KEEPS_FROM_GPU]
        return replace(self, arguments=" ".join(words))


@dataclass(frozen=True, slots=True)
class Fault:
    """An edit that makes a program leak, or need much more in one step."""

    name: str
    script: str
    """The program's recipe, by its title."""
    old: str
    new: str
    """Replaces the first ``old``; both are whole lines, without their indentation, or parts of one."""
    line: str
    """Part of the line that tbmem should name."""
    holder: str
    """Part of the holder's name; empty for a spike."""
    kind: str = "leak"
    file: str = ""
    """The file that is edited, beside the script; by default the script."""
    top: str = ""
    """Put before the first line."""
    seconds: float = 90


VISION = ("torchvision",)
GYM = ("gymnasium",)
PLOTS = ("matplotlib",)
NO_PROXY = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


def _digits(place: str, count: int = 6000) -> dict[str, Data]:
    return {place: partial(mnist, count=count)}


def _gan(name: str, arguments: str = "--n_epochs 3") -> Recipe:
    script = f"PyTorch-GAN/implementations/{name}/{name}.py"
    return Recipe(script, arguments, _digits("../../data/mnist", 3000), needs=VISION)


def _tutorial(name: str, count: int = 6000, seconds: float = 30) -> Recipe:
    script = f"pytorch-tutorial/tutorials/{name}/main.py"
    return Recipe(script, data=_digits("../../data", count), seconds=seconds, needs=VISION)


RECIPES = (
    Recipe("examples/mnist/main.py", "--epochs 3 --no-accel", _digits("../data"), 90, VISION),
    Recipe("examples/mnist_rnn/main.py", "--epochs 3", _digits("../data"), needs=VISION),
    Recipe("examples/mnist_hogwild/main.py", "--epochs 3", _digits("../data"), needs=VISION),
    Recipe(
        "examples/mnist_forward_forward/main.py",
        "--epochs 300 --train_size 3000 --test_size 500",
        _digits("data"),
        needs=VISION,
    ),
    Recipe("examples/vae/main.py", "--epochs 8", _digits("../data"), needs=VISION),
    Recipe("examples/dcgan/main.py", "--dataset fake --niter 1 --workers 1 --ngf 16 --ndf 16", needs=VISION),
    Recipe("examples/siamese_network/main.py", "--epochs 1 --batch-size 16", _digits("../data", 3000), needs=VISION),
    Recipe("examples/regression/main.py"),
    Recipe(
        "examples/time_sequence_prediction/train.py",
        "--steps 4",
        {"traindata.pt": waves},
        needs=PLOTS,
        environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "MPLBACKEND": "Agg"},
    ),
    Recipe(
        "examples/word_language_model/main.py",
        "--epochs 2 --data text",
        {"text": words},
        name="word_language_model LSTM",
    ),
    Recipe(
        "examples/word_language_model/main.py",
        "--epochs 2 --data text --model Transformer --lr 5",
        {"text": words},
        name="word_language_model Transformer",
    ),
    Recipe(
        "examples/super_resolution/main.py",
        "--upscale_factor 2 --nEpochs 3 --batchSize 8 --threads 1",
        {"dataset/BSDS300/images/train": images, "dataset/BSDS300/images/test": partial(images, count=20)},
        needs=(*VISION, "six"),
    ),
    Recipe(
        "examples/gat/main.py", "--epochs 60 --no-accel", {"cora": partial(citations, papers=700)}, needs=("requests",)
    ),
    Recipe(
        "examples/imagenet/main.py",
        "data -a resnet18 --epochs 1 -b 4 -j 2 --no-accel",
        {"data/train": partial(images, count=160, classes=4), "data/val": partial(images, count=16, classes=4)},
        90,
        VISION,
    ),
    Recipe("examples/reinforcement_learning/reinforce.py", needs=GYM),
    Recipe("examples/reinforcement_learning/actor_critic.py", needs=GYM),
    *(
        Recipe(f"minimalRL/{name}.py", needs=GYM)
        for name in (
            "REINFORCE",
            "actor_critic",
            "dqn",
            "ppo",
            "ppo-lstm",
            "ppo-continuous",
            "ddpg",
            "sac",
            "acer",
            "vtrace",
            "a3c",
        )  # fmt: skip
    ),
    Recipe(
        "nanoGPT/train.py",
        "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=5 --eval_interval=100"
        " --block_size=64 --batch_size=8 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=400 --log_interval=10",
        {"data/shakespeare_char": tokens},
        90,
    ),  # fmt: skip
    Recipe(
        "minGPT/projects/adder/adder.py",
        "--trainer.max_iters=600 --trainer.num_workers=0",
        environment={"PYTHONPATH": "../.."},
    ),
    Recipe(
        "minGPT/projects/chargpt/chargpt.py",
        "--trainer.max_iters=200 --trainer.num_workers=1 --model.model_type=gpt-nano",
        {"input.txt": characters},
        environment={"PYTHONPATH": "../.."},
    ),
    *(
        Recipe(
            "makemore/makemore.py",
            f"-i stand_in.txt --type {kind} --max-steps {steps} -n 1",
            {"stand_in.txt": names},
            name=f"makemore {kind}",
        )
        for kind, steps in (("transformer", 800), ("rnn", 600), ("mlp", 2000), ("bow", 600))
    ),
    _tutorial("01-basics/feedforward_neural_network"),
    _tutorial("01-basics/logistic_regression"),
    Recipe(
        "pytorch-tutorial/tutorials/01-basics/linear_regression/main.py", needs=PLOTS, environment={"MPLBACKEND": "Agg"}
    ),
    _tutorial("02-intermediate/convolutional_neural_network", 3000),
    _tutorial("02-intermediate/recurrent_neural_network"),
    _tutorial("02-intermediate/bidirectional_recurrent_neural_network"),
    Recipe(
        "pytorch-tutorial/tutorials/02-intermediate/language_model/main.py",
        data={"data": partial(words, count=20_000, vocabulary=500)},
    ),  # fmt: skip
    _tutorial("03-advanced/generative_adversarial_network"),
    _tutorial("03-advanced/variational_autoencoder"),
    _gan("gan"),
    _gan("aae"),
    _gan("acgan", "--n_epochs 1"),
    _gan("cgan"),
    _gan("dcgan", "--n_epochs 1"),
    _gan("ebgan", "--n_epochs 1"),
    _gan("infogan", "--n_epochs 1"),
    _gan("lsgan", "--n_epochs 1"),
    _gan("relativistic_gan", "--n_epochs 1"),
    _gan("sgan", "--n_epochs 1"),
    _gan("wgan"),
    _gan("wgan_div"),
    _gan("wgan_gp"),
    Recipe("TCN/TCN/adding_problem/add_test.py", "--epochs 1 --cuda --seq_len 100 --levels 4"),
    Recipe("TCN/TCN/copy_memory/copymem_test.py", "--epochs 2 --cuda --blank_len 100 --iters 100 --levels 4"),
    Recipe("TCN/TCN/poly_music/music_test.py", "--epochs 2 --cuda --data JSB", needs=("scipy",)),
    Recipe(
        "TCN/TCN/mnist_pixel/pmnist_test.py", "--epochs 1 --cuda --levels 3", _digits("data/mnist", 3000), needs=VISION
    ),
    *(
        Recipe(
            f"cleanrl/cleanrl/{name}.py",
            f"--total-timesteps {steps} --no-cuda",
            needs=("gymnasium", "tyro"),
            environment={"PYTHONPATH": ".."},
        )
        for name, steps in (("dqn", 30000), ("c51", 20000), ("ppo", 60000), ("pqn", 60000))
    ),
    *(
        Recipe(
            f"cleanrl/cleanrl/{name}.py",
            f"--total-timesteps {steps} --no-cuda --env-id Pendulum-v1",
            needs=("gymnasium", "tyro"),
            environment={"PYTHONPATH": ".."},
        )  # fmt: skip
        for name, steps in (
            ("ddpg_continuous_action", 27000),
            ("td3_continuous_action", 27000),
            ("sac_continuous_action", 7000),
            ("ppo_continuous_action", 30000),
            ("rpo_continuous_action", 30000),
        )  # fmt: skip
    ),
    Recipe("torchdiffeq/examples/ode_demo.py", "--niters 150", environment={"PYTHONPATH": ".."}),
    Recipe(
        "torchdiffeq/examples/latent_ode.py",
        "--niters 60",
        needs=PLOTS,
        environment={"PYTHONPATH": "..", "MPLBACKEND": "Agg"},
    ),
    Recipe(
        "pygcn/pygcn/train.py",
        "--epochs 150",
        {"../data/cora": citations},
        needs=("scipy",),
        environment={"PYTHONPATH": ".."},
    ),
    Recipe("pyGAT/train.py", "--epochs 40 --hidden 4 --nb_heads 2", {"data/cora": citations}, needs=("scipy",)),
    Recipe("pytorch-examples/nn/two_layer_net_optim.py"),
    Recipe("pytorch-examples/nn/dynamic_net.py"),
    Recipe("ignite/examples/mnist/mnist.py", "--epochs 2", _digits("."), needs=(*VISION, "ignite")),
)
"""Programs of one file each; where they want a GPU or a network, arguments and data keep them from it."""


_LONG = {
    "examples/mnist": "--epochs 30 --no-accel",
    "examples/vae": "--epochs 320",
    "makemore transformer": "-i stand_in.txt --type transformer --max-steps 12600 -n 1",
    "makemore mlp": "-i stand_in.txt --type mlp --max-steps 46000 -n 1",
    "nanoGPT/train": "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=5 --eval_interval=400"
    " --block_size=64 --batch_size=8 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=5200 --log_interval=10",
    "minGPT/projects/adder/adder": "--trainer.max_iters=16000 --trainer.num_workers=0",
    "PyTorch-GAN/implementations/gan/gan": "--n_epochs 97",
    "PyTorch-GAN/implementations/wgan/wgan": "--n_epochs 180",
    "cleanrl/cleanrl/ppo": "--total-timesteps 1260000 --no-cuda",
    "torchdiffeq/examples/ode_demo": "--niters 6800",
}
LONG = tuple(
    replace(recipe, arguments=_LONG[recipe.title], seconds=600, name=recipe.title)
    for recipe in RECIPES
    if recipe.title in _LONG
)
"""Some of them for a minute or more, for their overhead."""


def _leak(script: str, after: str, added: str, holder: str, top: str = "", name: str = "", file: str = "") -> Fault:
    """A line that keeps something, ``added`` after another."""
    new = f"{after}\n{added}"
    return Fault(name or f"{script}: {holder}", script, after, new, added, holder, "leak", file, top)


def _spike(script: str, after: str, added: str, file: str = "") -> Fault:
    """A line that needs much in one step."""
    return Fault(f"{script}: spike", script, after, f"{after}\n{added}", added, "", "spike", file)


_GAN = "PyTorch-GAN/implementations"
_BASICS, _MIDDLE, _ADVANCED = (
    f"pytorch-tutorial/tutorials/{each}" for each in ("01-basics", "02-intermediate", "03-advanced")
)
_TRAINER = "../../mingpt/trainer.py"

FAULTS: tuple[Fault, ...] = (
    _leak("examples/mnist", "loss.backward()", "history.append(output)", "history", "history = []"),
    Fault(
        "examples/vae: attribute",
        "examples/vae",
        "loss.backward()",
        'loss.backward()\nmodel.__dict__.setdefault("seen", []).append(recon_batch)',
        "append(recon_batch)",
        "seen",
    ),  # fmt: skip
    _leak(f"{_GAN}/gan/gan", "d_loss.backward()", "samples[len(samples)] = gen_imgs", "samples", "samples = {}"),
    _leak(
        f"{_GAN}/aae/aae",
        "d_loss.backward()",
        "discriminator.register_forward_hook(lambda module, args, output, kept=real_imgs: None)",
        "hook",
    ),
    _leak("nanoGPT/train", "scaler.scale(loss).backward()", "logged.append(logits)", "logged", "logged = []"),
    _leak(
        "minGPT/projects/adder/adder",
        "self.loss.backward()",
        'self.__dict__.setdefault("losses", []).append(logits)',
        "losses",
        file=_TRAINER,
    ),
    _leak(
        "makemore transformer",
        "loss.backward()",
        'stats["logits"].append(logits.detach())',
        "stats",
        'stats = {"logits": []}',
    ),
    _leak(
        f"{_BASICS}/feedforward_neural_network",
        "loss.backward()",
        "recent.append(outputs)",
        "recent",
        "from collections import deque\nrecent = deque()",
    ),
    _leak(
        f"{_ADVANCED}/variational_autoencoder",
        "loss.backward()",
        "noise(epoch * 1000 + i)",
        "noise",
        "import functools\n@functools.lru_cache(maxsize=None)\ndef noise(step):\n    return torch.randn(20_000)",
    ),
    _leak(
        f"{_MIDDLE}/recurrent_neural_network",
        "optimizer.step()",
        "checkpoints.append({name: value.clone() for name, value in model.state_dict().items()})",
        "checkpoints",
        "checkpoints = []",
    ),
    _leak(
        f"{_MIDDLE}/convolutional_neural_network",
        "loss.backward()",
        "callbacks.append(lambda outputs=outputs, images=images: outputs.sum())",
        "callbacks",
        "callbacks = []",
    ),
    _leak(f"{_GAN}/wgan/wgan", "loss_D.backward()", "arrays.append(fake_imgs.numpy().copy())", "arrays", "arrays = []"),
    _leak(f"{_GAN}/cgan/cgan", "d_loss.backward()", "seen.add(gen_imgs)", "seen", "seen = set()"),
    _leak("pytorch-examples/nn/dynamic_net", "loss.backward()", "graphs.append(y_pred)", "graphs", "graphs = []"),
    _leak("pytorch-examples/nn/two_layer_net_optim", "loss.backward()", "total = total + loss", "total", "total = 0"),
    _leak(
        "torchdiffeq/examples/ode_demo",
        "loss.backward()",
        "trajectories.append(pred_y)",
        "trajectories",
        "trajectories = []",
    ),
    _leak(
        "cleanrl/cleanrl/ppo",
        "loss.backward()",
        "advantages_seen.append(b_obs.clone())",
        "advantages_seen",
        "advantages_seen = []",
    ),
    Fault(
        "minimalRL/dqn: buffer",
        "minimalRL/dqn",
        "collections.deque(maxlen=buffer_limit)",
        "collections.deque()",
        "self.buffer.append(transition)",
        "buffer",
    ),  # fmt: skip
    _leak("pygcn/pygcn/train", "loss_train.backward()", "outputs.append(output)", "outputs", "outputs = []"),
    _leak("minimalRL/dqn", "loss.backward()", "losses.append(loss)", "losses", "losses = []"),
    _leak("makemore rnn", "loss.backward()", "history.append(loss)", "history", "history = []"),
    _leak("cleanrl/cleanrl/c51", "loss.backward()", "batches.append(data)", "batches", "batches = []"),
    _leak(
        "TCN/TCN/copy_memory/copymem_test",
        "loss.backward()",
        "predictions.append(out)",
        "predictions",
        "predictions = []",
    ),
    _leak(
        f"{_MIDDLE}/bidirectional_recurrent_neural_network",
        "loss.backward()",
        "seen.append(images)",
        "seen",
        "seen = []",
    ),
    _leak(
        f"{_GAN}/wgan_gp/wgan_gp",
        "d_loss.backward()",
        "penalties.append(gradient_penalty)",
        "penalties",
        "penalties = []",
    ),
    _leak(
        "makemore mlp",
        "loss.backward()",
        "all_logits = torch.cat((all_logits, logits.detach().flatten()))",
        "all_logits",
        "import torch\nall_logits = torch.zeros(0)",
    ),
    _spike("nanoGPT/train", "scaler.scale(loss).backward()", "if iter_num == 200: torch.ones(27_000_000).mul(2).sum()"),
    _spike(
        "minGPT/projects/adder/adder",
        "self.loss.backward()",
        "if self.iter_num == 300: (torch.ones(20_000_000) * 2).sum()",
        _TRAINER,
    ),  # fmt: skip
    _spike("makemore transformer", "loss.backward()", "if step == 400: model(X.repeat(30, 1), Y.repeat(30, 1))"),
    _spike(
        f"{_GAN}/gan/gan",
        "d_loss.backward()",
        "if epoch == 1 and i == 20: discriminator(real_imgs.repeat(200, 1, 1, 1))",
    ),
    _spike(
        f"{_ADVANCED}/variational_autoencoder", "loss.backward()", "if epoch == 8 and i == 10: model(x.repeat(100, 1))"
    ),
)
"""Twenty leaks and five spikes, each a line that people write."""

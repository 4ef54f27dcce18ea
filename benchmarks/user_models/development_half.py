"""The development half: trainings that whoever makes an optimizer may look at."""

import functools
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, relu

from . import data
from .training import Task, next_byte_loss


class CausalBlock(nn.Module):
    """Attention to what came before, and two layers for each place."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (part.view(n, length, self.heads, -1).transpose(1, 2)
                   for part in self.mix(self.norm_1(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, length, width=48, heads=4, layers=2):
        super().__init__()
        self.bytes, self.places = nn.Embedding(128, width), nn.Embedding(length, width)
        nn.init.normal_(self.bytes.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.blocks = nn.Sequential(*[CausalBlock(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128, bias=False)

    def forward(self, text):
        x = self.bytes(text) + self.places(torch.arange(text.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class ByteGpt(Task):
    steps, batch_size = 400, 12
    files = data.PROGRAM_TEXT
    kind = "byte-level GPT, 2 layers, on docstrings; cross-entropy"

    def make(self, seed):
        kept, held_out = data.text_windows(self.files, 32, seed)
        self.data, self.test = [kept], [held_out[:300]]
        self.model = Gpt(32)

    def loss(self, windows):
        return next_byte_loss(self.model, windows)


class NormedBlock(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels))

    def forward(self, x):
        return relu(x + self.layers(x))


class ResidualNet(Task):
    steps, batch_size = 300, 32
    kind = "residual net with batch norm on 2,000 drawn shapes; cross-entropy"

    def make(self, seed):
        self.data = data.shapes(2000, 12, data.generator(seed, "shapes"))
        self.test = data.shapes(1000, 12, data.generator(seed, "test shapes"))
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            NormedBlock(16), nn.MaxPool2d(2), NormedBlock(16), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, 8))


def waves(places):
    """[n, 2] to [n, 20]: sines and cosines of five frequencies, beside which an implicit image has
    no other inputs."""
    angles = (places[:, None] * (2.0 ** torch.arange(5))[:, None]).flatten(1) * math.pi / 2
    return torch.cat([angles.sin(), angles.cos()], 1)


def picture(seed):
    """Colours [n, 3] at places [n, 2] of a smooth picture with edges, as a function."""
    numbers = data.generator(seed, "picture")
    frequencies = 4 * torch.randn(2, 6, generator=numbers)
    colours = torch.randn(6, 3, generator=numbers) / 3
    edges = torch.randn(2, 3, generator=numbers)

    def colours_at(places):
        smooth = (places @ frequencies).sin() @ colours
        return torch.sigmoid(2 * smooth + 2 * torch.sign(places @ edges + 0.2))

    return colours_at


class ImplicitImage(Task):
    steps, batch_size = 1000, 256
    kind = "implicit image: place to colour, two layers of 64; mean square"

    def make(self, seed):
        colours_at = picture(seed)
        grid = torch.rand(4096, 2, generator=data.generator(seed, "pixels")) * 2 - 1
        others = torch.rand(4096, 2, generator=data.generator(seed, "test pixels")) * 2 - 1
        self.data = [waves(grid), colours_at(grid)]
        self.test = [waves(others), colours_at(others)]
        self.model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                   nn.Linear(64, 3), nn.Sigmoid())

    def loss(self, inputs, colours):
        return mse_loss(self.model(inputs), colours)


class Poisson(Task):
    """u'' = f on [-1, 1] with u(-1) = u(1) = 0, whose solution is a sum of three sines. The test
    loss is the mean square of the error, as a part of the solution's mean square."""

    steps, batch_size, apart = 1200, 64, True
    kind = "physics-informed net of u'' = f; relative square error"

    def make(self, seed):
        numbers = data.generator(seed, "equation")
        self.weights = torch.randn(3, generator=numbers)
        self.model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                                   nn.Linear(32, 1))

    def _sines(self, x):
        waves = torch.arange(1, 4) * math.pi
        return (x * waves).sin(), waves

    def solution(self, x):
        return (self._sines(x)[0] @ self.weights)[:, None]

    def batch(self):
        x = torch.rand(self.batch_size, 1, generator=self.draws) * 2 - 1
        sines, waves = self._sines(x)
        return x, -(sines * waves.square()) @ self.weights

    def loss(self, x, f):
        x = x.requires_grad_()
        slope, = torch.autograd.grad(self.model(x).sum(), x, create_graph=True)
        curvature, = torch.autograd.grad(slope.sum(), x, create_graph=True)
        ends = self.model(torch.tensor([[-1.0], [1.0]]))
        return 0.01 * mse_loss(curvature[:, 0], f) + ends.square().mean()

    def test_loss(self):
        x = torch.linspace(-1, 1, 501)[:, None]
        solution = self.solution(x)
        return mse_loss(self.model(x), solution) / solution.square().mean()


class Factors(nn.Module):
    """Ratings by the product of embeddings, and what each user and each item adds."""

    def __init__(self, users, items, width):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for table in (self.users, self.items, self.user_bias, self.item_bias):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, pairs):
        u, i = pairs.unbind(1)
        product = (self.users(u) * self.items(i)).sum(1)
        return product + self.user_bias(u)[:, 0] + self.item_bias(i)[:, 0]


class Embeddings(Task):
    """Some items are in every tenth pair, most in few."""

    steps, batch_size = 800, 128
    kind = "embeddings of 500 users and 400 items, most of them rare; mean square"

    def make(self, seed):
        numbers = data.generator(seed, "ratings")
        users, items = (torch.randn(n, 4, generator=numbers) for n in (500, 400))
        often = 1 / torch.arange(1.0, 401)
        item = torch.multinomial(often, 12000, replacement=True, generator=numbers)
        user = torch.randint(0, 500, (12000,), generator=numbers)
        noise = 0.3 * torch.randn(12000, generator=numbers)
        ratings = (users[user] * items[item]).sum(1) / 2 + noise
        pairs = torch.stack([user, item], 1)
        self.data = [pairs[:10000], ratings[:10000]]
        self.test = [pairs[10000:], ratings[10000:]]
        self.model = Factors(500, 400, 8)

    def loss(self, pairs, ratings):
        return mse_loss(self.model(pairs), ratings)


class TableRegression(Task):
    steps, batch_size = 400, 32
    kind = "regression on a table of 350 noisy rows, two layers of 64; mean square"

    def make(self, seed):
        numbers = data.generator(seed, "table")
        inputs, outputs = data.table(2350, 10, 4, numbers)
        outputs = 0.7 * outputs + 0.7 * torch.randn(2350, generator=numbers)
        self.data = [inputs[:350], outputs[:350]]
        self.test = [inputs[350:], outputs[350:]]
        self.model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                   nn.Linear(64, 1))

    def loss(self, inputs, outputs):
        return mse_loss(self.model(inputs)[:, 0], outputs)


class BatchOfOne(Task):
    """Points of two spirals, one at a time."""

    steps, batch_size = 3000, 1
    kind = "batch size 1: two layers of 32 on two spirals; cross-entropy"

    def make(self, seed):
        self.data = self._points(3000, data.generator(seed, "spirals"))
        self.test = self._points(2000, data.generator(seed, "test spirals"))
        self.model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
                                   nn.Linear(32, 2))

    @staticmethod
    def _points(count, numbers):
        labels = torch.randint(0, 2, (count,), generator=numbers)
        place = torch.rand(count, generator=numbers).sqrt()
        angle = 6 * place + math.pi * labels
        points = place[:, None] * torch.stack([angle.sin(), angle.cos()], 1)
        return 2 * (points + 0.08 * torch.randn(count, 2, generator=numbers)), labels


@functools.lru_cache(2)
def trained_on_shapes(seed):
    """Weights of a small convolutional net that Adam has trained on drawn shapes of 12 pixels.
    Leaves torch's global random numbers as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = convolutional_net()
    inputs, labels = data.shapes(2000, 12, data.generator(seed, "earlier shapes"))
    draws = data.generator(seed, "earlier batches")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    with torch.enable_grad():
        for _ in range(400):
            rows = torch.randint(0, 2000, (32,), generator=draws)
            optimizer.zero_grad()
            cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    return model.state_dict()


def convolutional_net():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(288, 48), nn.ReLU(), nn.Linear(48, 8))


class FineTuning(Task):
    """From a net that knows colourful shapes to 200 pale ones in four classes of two shapes each,
    with a new last layer."""

    steps, batch_size = 60, 16
    kind = "fine-tuning a trained convolutional net on 200 pictures; cross-entropy"

    def make(self, seed):
        self.model = convolutional_net()
        self.model.load_state_dict(trained_on_shapes(seed))
        self.model[-1] = nn.Linear(48, 4)
        self.data = self._pale(200, data.generator(seed, "pale shapes"))
        self.test = self._pale(1500, data.generator(seed, "test pale shapes"))

    @staticmethod
    def _pale(count, numbers):
        pictures, labels = data.shapes(count, 12, numbers)
        return 0.6 * pictures.flip(1) + 0.2, labels // 2


class LogisticRegression(Task):
    """Features in units of their own: the standard deviations differ by a factor of 30."""

    steps, batch_size = 500, 64
    kind = "logistic regression, 40 features in different units, 6 labels; cross-entropy"

    def make(self, seed):
        numbers = data.generator(seed, "rows")
        inputs, _ = data.table(5000, 40, 2, numbers)
        weights = 0.6 * torch.randn(40, 6, generator=numbers)
        chances = (inputs @ weights).softmax(1)
        labels = torch.multinomial(chances, 1, generator=numbers)[:, 0]
        inputs = inputs * torch.logspace(-1, 0.5, 40)[torch.randperm(40, generator=numbers)]
        self.data = [inputs[:3000], labels[:3000]]
        self.test = [inputs[3000:], labels[3000:]]
        self.model = nn.Linear(40, 6)


TASKS = {"byte-gpt": ByteGpt, "residual-net": ResidualNet, "implicit-image": ImplicitImage,
         "poisson": Poisson, "embeddings": Embeddings, "table-regression": TableRegression,
         "batch-1": BatchOfOne, "fine-tuning": FineTuning,
         "logistic-regression": LogisticRegression}

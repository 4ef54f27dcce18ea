"""The test half: trainings that are run once for each table that is published. Who makes an
optimizer does not look at their results meanwhile."""

import math

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from . import data
from .training import Task, next_byte_loss


class TextLstm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bytes = nn.Embedding(128, 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, 128)

    def forward(self, text):
        return self.head(self.lstm(self.bytes(text))[0])


class Lstm(Task):
    steps, batch_size = 400, 16
    files = data.MAIL_TEXT
    kind = "byte-level LSTM on other docstrings; cross-entropy"

    def make(self, seed):
        kept, held_out = data.text_windows(self.files, 40, seed)
        self.data, self.test = [kept], [held_out[:250]]
        self.model = TextLstm(64)

    def loss(self, windows):
        return next_byte_loss(self.model, windows)


class Patches(nn.Module):
    """A picture's patches of 4 pixels as the words of a transformer."""

    def __init__(self, size, width, layers):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.places = nn.Parameter(0.02 * torch.randn((size // 4) ** 2, width))
        self.layers = nn.Sequential(*[
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True,
                                       norm_first=True) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 8))

    def forward(self, pictures):
        words = self.patches(pictures).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layers(words).mean(1))


class Vit(Task):
    steps, batch_size = 400, 32
    kind = "vision transformer, 2 layers, on 3,000 drawn shapes; cross-entropy"

    def make(self, seed):
        self.data = data.shapes(3000, 16, data.generator(seed, "shapes"))
        self.test = data.shapes(1000, 16, data.generator(seed, "test shapes"))
        self.model = Patches(16, 48, 2)


class Vae(Task):
    """The loss is the negative bound of the log-likelihood, for each pixel. The test loss samples
    once with fixed noise."""

    steps, batch_size = 600, 64
    kind = "variational autoencoder of black and white strokes; bound in nats a pixel"

    def make(self, seed):
        lines = data.alphabet(10, 3, data.generator(seed, "alphabet"))
        self.data = [self._pictures(lines, 3000, data.generator(seed, "strokes"))]
        self.test = [self._pictures(lines, 1000, data.generator(seed, "test strokes"))]
        self.encoder = nn.Sequential(nn.Linear(144, 96), nn.ReLU(), nn.Linear(96, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 144))
        self.model = nn.ModuleList([self.encoder, self.decoder])
        self.noise = torch.randn(1000, 8, generator=data.generator(seed, "noise"))

    @staticmethod
    def _pictures(lines, count, numbers):
        labels = torch.randint(0, len(lines), (count,), generator=numbers)
        return (data.strokes(lines, labels, 12, numbers) > 0.5).float().flatten(1)

    def batch(self):
        pictures, = super().batch()
        return pictures, torch.randn(len(pictures), 8, generator=self.draws)

    def loss(self, pictures, noise):
        mean, log_variance = self.encoder(pictures).chunk(2, 1)
        code = mean + (log_variance / 2).exp() * noise
        likelihood = binary_cross_entropy_with_logits(self.decoder(code), pictures)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return likelihood + divergence / pictures.shape[1]

    def test_loss(self):
        return self.loss(self.test[0], self.noise)


class Heat(Task):
    """u_t = 0.1 u_xx for x from -1 to 1 and t from 0 to 1, from two sines, with u = 0 at both ends.
    The test loss is the mean square of the error, as a part of the solution's mean square."""

    steps, batch_size, apart = 1000, 96, True
    kind = "physics-informed net of the heat equation; relative square error"

    def make(self, seed):
        self.weights = torch.randn(2, generator=data.generator(seed, "equation"))
        self.model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                                   nn.Linear(32, 1))

    def solution(self, x, t):
        waves = torch.arange(1, 3) * math.pi
        return ((x * waves).sin() * (-0.1 * waves.square() * t).exp()) @ self.weights

    def batch(self):
        x = torch.rand(self.batch_size, 1, generator=self.draws) * 2 - 1
        t = torch.rand(self.batch_size, 1, generator=self.draws)
        return x, t

    def _u(self, x, t):
        return self.model(torch.cat([x, t], 1))[:, 0]

    def loss(self, x, t):
        x, t = x.requires_grad_(), t.requires_grad_()
        u_x, u_t = torch.autograd.grad(self._u(x, t).sum(), (x, t), create_graph=True)
        u_xx, = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        begin = self._u(x, 0 * t) - self.solution(x, 0 * t)
        ends = self._u(x.sign(), t)
        return mse_loss(u_t, 0.1 * u_xx) + begin.square().mean() + ends.square().mean()

    def test_loss(self):
        ticks = torch.meshgrid(torch.linspace(-1, 1, 51), torch.linspace(0, 1, 26), indexing="ij")
        x, t = (tick.reshape(-1, 1) for tick in ticks)
        solution = self.solution(x, t)
        return mse_loss(self._u(x, t), solution) / solution.square().mean()


class GraphConvolutions(nn.Module):
    """Two layers in which the nodes of a graph hear their neighbours."""

    def __init__(self, neighbours, features, width, labels):
        super().__init__()
        self.register_buffer("neighbours", neighbours)
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, labels)

    def forward(self, features):
        return self.neighbours @ self.second(torch.relu(self.neighbours @ self.first(features)))


class GraphNet(Task):
    """Nodes of six communities, most edges within one, features that tell little; 120 of the 600
    labels are known."""

    steps = 200
    kind = "graph net on 600 nodes, 120 with a label, all at once; cross-entropy"

    def make(self, seed):
        numbers = data.generator(seed, "graph")
        self.labels = torch.randint(0, 6, (600,), generator=numbers)
        same = self.labels[:, None] == self.labels
        chance = torch.where(same, 0.03, 0.006)
        edges = (torch.rand(600, 600, generator=numbers) < chance).float().triu(1)
        edges = edges + edges.T + torch.eye(600)
        scale = edges.sum(1).rsqrt()
        centres = torch.randn(6, 24, generator=numbers)
        self.features = 0.5 * centres[self.labels] + torch.randn(600, 24, generator=numbers)
        self.known, self.unknown = data.shuffled(600, 120, numbers)
        self.model = GraphConvolutions(scale[:, None] * edges * scale, 24, 32, 6)

    def batch(self):
        return [self.known]

    def loss(self, nodes):
        return cross_entropy(self.model(self.features)[nodes], self.labels[nodes])

    def test_loss(self):
        return self.loss(self.unknown)


class TableClassification(Task):
    """One label of ten is wrong, in training and test."""

    steps, batch_size = 300, 32
    kind = "classification on a table of 400 rows, layers of 64 and 32; cross-entropy"

    def make(self, seed):
        numbers = data.generator(seed, "table")
        inputs, score = data.table(2400, 20, 5, numbers)
        labels = (score > -0.4).long() + (score > 0.4).long()
        wrong = torch.rand(2400, generator=numbers) < 0.1
        labels = torch.where(wrong, torch.randint(0, 3, (2400,), generator=numbers), labels)
        self.data = [inputs[:400], labels[:400]]
        self.test = [inputs[400:], labels[400:]]
        self.model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                                   nn.Linear(32, 3))


class BatchOfFour(Task):
    """What is the frequency of a noisy wave?"""

    steps, batch_size = 1500, 4
    kind = "batch size 4: convolutions on waves of 48 numbers, regression; mean square"

    def make(self, seed):
        self.data = self._waves(3000, data.generator(seed, "waves"))
        self.test = self._waves(1000, data.generator(seed, "test waves"))
        self.model = nn.Sequential(
            nn.Conv1d(1, 12, 7, stride=2), nn.ReLU(), nn.Conv1d(12, 16, 5, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(144, 24), nn.ReLU(), nn.Linear(24, 1))

    @staticmethod
    def _waves(count, numbers):
        frequency = torch.rand(count, 1, generator=numbers)
        phase = 2 * math.pi * torch.rand(count, 1, generator=numbers)
        angles = phase + (0.1 + 0.5 * frequency) * torch.arange(48)
        waves = angles.sin() + 0.4 * torch.randn(count, 48, generator=numbers)
        return waves[:, None], 4 * frequency[:, 0] - 2

    def loss(self, waves, frequency):
        return mse_loss(self.model(waves)[:, 0], frequency)


class Letters(Task):
    """In training, one label of ten is wrong."""

    steps, batch_size = 500, 64
    kind = "30 characters in strokes, two layers of 64, wrong labels; cross-entropy"

    def make(self, seed):
        lines = data.alphabet(30, 3, data.generator(seed, "alphabet"))
        self.data = self._letters(lines, 4000, data.generator(seed, "letters"))
        self.test = self._letters(lines, 1500, data.generator(seed, "test letters"))
        numbers = data.generator(seed, "wrong labels")
        wrong = torch.rand(4000, generator=numbers) < 0.1
        self.data[1][wrong] = torch.randint(0, 30, (4000,), generator=numbers)[wrong]
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 64),
                                   nn.ReLU(), nn.Linear(64, 30))

    @staticmethod
    def _letters(lines, count, numbers):
        labels = torch.randint(0, len(lines), (count,), generator=numbers)
        return [data.strokes(lines, labels, 10, numbers), labels]


class CartPole:
    """Carts with poles, all at once. A state [n, 4] is place, speed, angle and its rate; a push is
    to the left or to the right.

    The cost of a step is between 0 and 1: the mean of place and angle, each as a part of its limit,
    and 1 from the step on that one of them is beyond its limit.
    """

    LIMITS = torch.tensor([2.4, 0.21])

    def __init__(self, count, numbers):
        self.numbers = numbers
        self.state = 0.2 * (torch.rand(count, 4, generator=numbers) - 0.5)
        self.fallen = torch.zeros(count, dtype=torch.bool)

    def push(self, right):
        """One step of 0.02 s under a force of 10 N, and wind; the costs [n]. The cart weighs
        1 kg, the pole 0.1 kg at half a metre."""
        place, speed, angle, rate = self.state.unbind(1)
        wind = 3 * torch.randn(len(place), generator=self.numbers)
        force = 20 * right.float() - 10 + wind
        pull = (force + 0.05 * rate.square() * angle.sin()) / 1.1
        turn = (9.8 * angle.sin() - angle.cos() * pull) / (
            0.5 * (4 / 3 - 0.1 * angle.cos().square() / 1.1))
        push = pull - 0.05 * turn * angle.cos() / 1.1
        moved = torch.stack([place + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * rate,
                             rate + 0.02 * turn], 1)
        self.state = torch.where(self.fallen[:, None], self.state, moved)
        parts = self.state[:, ::2].abs() / self.LIMITS
        self.fallen = (parts > 1).any(1)  # and stays, with the state
        return torch.where(self.fallen, torch.ones(len(place)), parts.mean(1))


class PolicyGradient(Task):
    """REINFORCE: a step is one update from 32 new episodes of 100 steps, whose baseline is the mean
    of the episodes at the same time. The test loss is the mean cost of a step over 500 new
    episodes, always the same, with actions drawn from the policy. It is above 0 for every policy,
    since the wind blows."""

    steps, length = 60, 100
    kind = "policy gradient on a cart-pole; mean cost of a step"
    curve_counts = False  # its loss has the policy gradient, but no size of the cost

    def make(self, seed):
        self.model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.scale = torch.tensor([1.0, 1.0, 0.1, 1.0])
        self.draws = data.generator(seed, "episodes")
        self.seed = seed

    def _episodes(self, count, numbers):
        """States [length, n, 4], actions and costs [length, n]."""
        world = CartPole(count, numbers)
        states, actions, costs = [], [], []
        with torch.no_grad():
            for _ in range(self.length):
                states.append(world.state / self.scale)
                chances = self.model(states[-1]).softmax(1)
                actions.append(torch.rand(count, generator=numbers) < chances[:, 1])
                costs.append(world.push(actions[-1]))
        return torch.stack(states), torch.stack(actions), torch.stack(costs)

    def batch(self):
        states, actions, costs = self._episodes(32, self.draws)
        to_come = costs.flip(0).cumsum(0).flip(0)
        advantage = to_come - to_come.mean(1, keepdim=True)
        return states, actions, advantage / (advantage.std() + 1e-6)

    def loss(self, states, actions, advantage):
        chosen = self.model(states).log_softmax(-1).gather(-1, actions[..., None].long())[..., 0]
        return (chosen * advantage).mean()

    def test_loss(self):
        return self._episodes(500, data.generator(self.seed, "test episodes"))[2].mean()


TASKS = {"lstm": Lstm, "vit": Vit, "vae": Vae, "heat": Heat, "graph-net": GraphNet,
         "table-classification": TableClassification, "batch-4": BatchOfFour, "letters": Letters,
         "policy-gradient": PolicyGradient}

"""Pictures of the tables of docs/results.md, as SVG that is readable on light and dark pages."""

import html
import math
import re

_WIDTH, _ROW, _TOP, _GAP = 640, 22, 74, 26
_TEXT, _LINE = "#767f8a", "#767f8a55"
_COLOURS = {"better": "#3b82c8", "unclear": "#8a929c", "worse": "#d0692e"}


def tables(text, head):
    """The tables whose first line begins with these cells: lists of rows, each a list of cells."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        first, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        if first[: len(head)] == head:
            found.append(rows)
    return found


def number(cell):
    return float(re.match(r"[\d.e+-]+", cell.strip("*"))[0])


def verdict(cell):
    return "better" if cell.startswith("**") else "worse" if cell.endswith("worse") else "unclear"


def ratios(table):
    """Of each task the seeds' losses as fractions of the best baseline's, with their verdicts. A task whose best
    baseline has the loss 0 has no fraction."""
    return {
        task: [(number(cell) / number(best), verdict(cell)) for cell in seeds]
        for task, _, best, *seeds in table
        if number(best) > 0
    }


class Picture:
    """Rows of marks in panels side by side, each with a logarithmic axis."""

    def __init__(self, title, rows, panels, ticks, labels):
        self.rows, self.ticks, self.labels = rows, ticks, labels
        self.width = (_WIDTH - labels - _GAP * len(panels)) / len(panels)
        self.height = _TOP + _ROW * len(rows) + 30
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self.height}" width="{_WIDTH}" height="{self.height}"'
            f' font-family="DejaVu Sans, Verdana, sans-serif" font-size="13" fill="{_TEXT}" role="img">',
            f"<title>{html.escape(title)}</title>",
        ]
        for row, name in enumerate(rows):
            self.text(labels - 10, self.y(row) + 4.5, name, "end")
        for panel, name in enumerate(panels):
            self.axis(panel, name)

    def x(self, panel, value):
        if not self.ticks[0] <= value <= self.ticks[-1]:
            raise ValueError(f"{value} lies beyond the axis {self.ticks}")
        first, last = math.log(self.ticks[0]), math.log(self.ticks[-1])
        share = (math.log(value) - first) / (last - first)
        return self.labels + panel * (self.width + _GAP) + share * self.width

    def y(self, row):
        return _TOP + _ROW * (row + 0.5)

    def text(self, x, y, text, anchor="middle", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(text)}</text>')

    def axis(self, panel, name):
        bottom = self.height - 30
        middle = self.x(panel, math.sqrt(self.ticks[0] * self.ticks[-1]))
        self.text(middle, _TOP - 12, name, more=' font-weight="bold"')
        for tick in self.ticks:
            x = self.x(panel, tick)
            line = f'stroke="{_TEXT}" stroke-width="1.5"' if tick == 1 else f'stroke="{_LINE}"'
            self.parts.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" {line}/>')
            self.text(x, bottom + 18, f"{tick:g}")

    def dot(self, x, y, kind):
        colour = _COLOURS[kind]
        if kind == "worse":
            self.parts.append(f'<path d="M{x - 5:.1f} {y:.1f}l5 -5 5 5 -5 5z" fill="{colour}"/>')
        else:
            fill = colour if kind == "better" else "none"
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.2" fill="{fill}" stroke="{colour}" stroke-width="1.6"/>')

    def svg(self):
        return "\n".join(self.parts) + "\n</svg>\n"


def picture_of_seeds(title, panels, ticks):
    """panels: {name: table}. Tasks are in the order of their mean fractions in the first panel that has them."""
    fractions = [ratios(table) for table in panels.values()]
    place = {}
    for panel, tasks in enumerate(fractions):
        for task, seeds in tasks.items():
            place.setdefault(task, (panel, math.prod(value for value, _ in seeds)))
    rows = sorted(place, key=place.get)
    picture = Picture(title, rows, panels, ticks, 112)
    x = 14
    for kind, meaning in (("better", "better than the baseline"), ("unclear", "unclear"), ("worse", "worse")):
        picture.dot(x, 36, kind)
        picture.text(x + 11, 40.5, meaning, "start")
        x += 36 + 7 * len(meaning)
    picture.text(8, 18, "Test loss / best tuned baseline's, three seeds of meta-training (further left is better)", "start")
    for panel, tasks in enumerate(fractions):
        for task, seeds in tasks.items():
            for value, kind in seeds:
                picture.dot(picture.x(panel, value), picture.y(rows.index(task)), kind)
    return picture.svg()


def picture_of_digits(table):
    """The means of each optimizer that needs no tuning, a dot for each seed, on both kinds of digits."""
    rows = [row[0].replace("`", "") for row in table]
    picture = Picture("Optimizers that nobody tuned, on digits", rows, ("drawn digits", "real digits"), (0.7, 1, 1.5, 2, 3, 4, 6), 206)
    picture.text(8, 36, "Test loss / best tuned baseline's: geometric mean over tasks, each seed (further left is better)", "start")
    for row, cells in enumerate(table):
        for panel, seeds in enumerate((cells[1], cells[3])):
            for seed in seeds.split(","):
                mean = number(seed.strip())
                picture.dot(picture.x(panel, mean), picture.y(row), "better" if mean < 1 else "worse")
    return picture.svg()


def picture_of_users(table):
    """The mean of each optimizer on both halves, with a line to its worst model."""
    rows = [row[0].replace("`", "") for row in table]
    picture = Picture("Losses on models of users", rows, ("development", "test"), (0.5, 1, 2, 5, 10, 20, 60), 206)
    picture.text(8, 36, "Test loss / tuned Adam's: geometric mean over models, and a line to the worst model", "start")
    for row, cells in enumerate(table):
        for panel, (mean, worst) in enumerate((cells[1:3], cells[4:6])):
            x, y, end = picture.x(panel, number(mean)), picture.y(row), picture.x(panel, number(worst))
            kind = "better" if number(mean) < 1 else "worse"
            picture.parts.append(f'<path d="M{x:.1f} {y:.1f}H{end:.1f}m0 -4v8" fill="none" stroke="{_COLOURS[kind]}" stroke-width="1.5"/>')
            picture.dot(x, y, kind)
    return picture.svg()


def pictures(text):
    """The pictures of a text of docs/results.md, by the names of their files."""
    drawn, real, elsewhere, mnist, uci = tables(text, ["task", "Adam", "best baseline", "seed 0", "seed 1", "seed 2"])
    (digits,) = tables(text, ["nothing tuned", "drawn digits", "better / unclear / worse", "real digits", "better / unclear / worse"])
    (users,) = tables(text, ["optimizer", "development", "worst", "physics", "test", "worst", "physics"])
    return {
        "results_recommended.svg": picture_of_seeds(
            "recommended on drawn and real digits",
            {"drawn digits": drawn, "real digits": real},
            (0.5, 0.7, 1, 1.4, 2),
        ),
        "results_elsewhere.svg": picture_of_seeds(
            "recommended on other tasks",
            {"drawn digits": elsewhere, "5,000 digits": mnist, "UCI digits": uci},
            (0.5, 0.7, 1, 1.4, 2, 4),
        ),
        "results_digits.svg": picture_of_digits(digits),
        "results_users.svg": picture_of_users(users),
    }

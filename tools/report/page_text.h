#pragma once

namespace lopt {

// The style sheet of a page, for any width and for light and dark.
inline constexpr const char* kPageStyle = R"(
:root {
  color-scheme: light dark;
  --back: #ffffff; --card: #f6f7f9; --text: #1d2126; --pale: #5a626d; --line: #d5d9df;
  --grid: #1d212618; --grey: #a3aab4; --link: #0b5cad; --notice: #fff3d6; --notice-line: #d99a00;
  --ours: #e7f0fa; --better: #00795a; --worse: #b3403a;
  --c0: #0072b2; --c1: #d55e00; --c2: #008f68; --c3: #b5559b; --c4: #a87800; --c5: #2b93c9;
  --c6: #6b6f76; --c7: #8a5a2b;
  --s0: #6a4fb3; --s1: #3b6fc4; --s2: #1b93b0; --s3: #1f9d74; --s4: #6f9d1f; --s5: #bd8f00;
  --s6: #d7691b; --s7: #c2334d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171b; --card: #1c2026; --text: #e4e7eb; --pale: #9aa3af; --line: #343a43;
    --grid: #e4e7eb20; --grey: #6d7681; --link: #7db9f2; --notice: #3a2f12;
    --notice-line: #d9a520; --ours: #1d2f42; --better: #4cc9a0; --worse: #f08a80;
    --c0: #4aa8e8; --c1: #f5803e; --c2: #2fc596; --c3: #e08fca; --c4: #e8b93c; --c5: #8fd0f7;
    --c6: #a9afb8; --c7: #c79a6b;
    --s0: #a48df0; --s1: #6f9ff0; --s2: #45bcd8; --s3: #40c99a; --s4: #a4cc48; --s5: #e8be3a;
    --s6: #f79450; --s7: #f0687e;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem; max-width: 84rem; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif;
}
@media (max-width: 40rem) { body { padding: .9rem; } }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
h3 { font-size: 1.08rem; margin: 1.6rem 0 .5rem; overflow-wrap: anywhere; }
h4 { font-size: .97rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
a, summary { color: var(--link); }
summary { cursor: pointer; }
p { margin: .5rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.verdict { font-size: 1.15rem; line-height: 1.45; }
.subtitle, figcaption, caption, .empty, .pale { color: var(--pale); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0;
  margin: .8rem 0 0; }
.notice { background: var(--notice); border-left: 4px solid var(--notice-line);
  padding: .5rem .8rem; margin: .6rem 0; border-radius: 3px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .7rem .9rem; overflow-x: auto; font-size: .84rem; line-height: 1.45; }

.scroll { overflow-x: auto; margin: .5rem 0 1.3rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; }
caption span { display: block; position: sticky; left: 0; max-width: min(60rem, 100vw - 1.8rem); }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top; font-weight: 400;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--pale); font-weight: 600; vertical-align: bottom; }
.number { text-align: right; }
td.number > span { white-space: nowrap; }
th:first-child { position: sticky; left: 0; background: var(--back); max-width: 16rem;
  overflow-wrap: anywhere; }
tbody th { min-width: 7rem; }
.ours, .ours th { font-weight: 700; }
.ours .pale { font-weight: 400; }
tr.ours > *, tr.ours > th:first-child { background: var(--ours); }
.better { color: var(--better); }
.worse { color: var(--worse); }

.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr));
  gap: 1rem; margin: .8rem 0; }
figure { margin: 0; padding: .8rem .9rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; min-width: 0; }
figcaption { font-size: .84rem; line-height: 1.4; margin-top: .4rem; }
.beside { display: grid; gap: 0 1.5rem; grid-template-columns: minmax(0, 1fr); align-items: start; }
@media (min-width: 64rem) { .beside { grid-template-columns: max-content minmax(0, 1fr); } }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1rem; margin: 0 0 .4rem;
  padding: 0; font-size: .84rem; }
.legend button { display: flex; align-items: center; gap: .4rem; border: 0; padding: .1rem 0;
  background: none; color: var(--text); font: inherit; text-align: left;
  overflow-wrap: anywhere; }
.legend button:enabled { cursor: pointer; }
.legend .thick { font-weight: 700; }
.legend [aria-pressed=false] { opacity: .5; text-decoration: line-through; }
.greys { font-size: .84rem; margin-bottom: .4rem; }
.greys[open] > summary { margin-bottom: .2rem; }
.swatch { width: 26px; height: 8px; flex: none; }
.frame { display: grid; grid-template-columns: calc(var(--ticks) + .5rem) minmax(0, 1fr);
  padding: .5rem 1.1rem 0 0; font-size: .8rem; }
.frame .area { height: 15rem; }
.area { position: relative; }
.area svg { position: absolute; width: 100%; height: 100%; overflow: visible; }
.frame .area svg { clip-path: inset(-5px); }
.y-ticks, .x-ticks { position: relative; color: var(--pale); white-space: nowrap; }
.y-ticks span { position: absolute; right: .5rem; transform: translateY(50%); line-height: 1; }
.x-ticks { grid-column: 2; height: 1.5rem; }
.x-ticks span { position: absolute; top: .15rem; transform: translateX(-50%); }
.y-label, .x-label { font-size: .8rem; color: var(--pale); }
.x-label { text-align: right; padding-right: 1.1rem; }
svg * { vector-effect: non-scaling-stroke; }
.line, .reference, .grid, .edge { fill: none; stroke: var(--c, var(--text)); stroke-width: 1.7;
  stroke-linejoin: round; stroke-dasharray: var(--dash, none); }
.thick .line { stroke-width: 3.4; }
.grey .line { stroke-width: 1.1; }
.faint .line { stroke-width: .8; opacity: .4; }
.lit .line { stroke-width: 4.5; }
.grey.lit .line { stroke: var(--text); }
.dots { fill: none; stroke: var(--c, var(--text)); stroke-width: 6; stroke-linecap: round; }
.band { fill: var(--c); fill-opacity: .17; stroke: none; }
.grid { stroke: var(--grid); stroke-width: 1; stroke-dasharray: none; }
.reference { stroke: var(--pale); stroke-width: 1; stroke-dasharray: 4 4; }
.cells { stroke: none; shape-rendering: crispEdges; }
.off { display: none; }
.shades { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 1.4rem;
  padding: .5rem 1.4rem 0 0; font-size: .8rem; color: var(--pale); }
.shades .x-ticks { height: 2.2rem; }
.shades .x-ticks span { top: .8rem; }

.edge { stroke-dasharray: 3 4; }
.forest { display: grid; font-size: .84rem;
  grid-template-columns: fit-content(42%) minmax(0, 1fr) max-content; }
@media (max-width: 40rem) {
  .forest { font-size: .75rem; grid-template-columns: fit-content(48%) minmax(0, 1fr) max-content; }
}
.forest ol { list-style: none; margin: 0; padding: 0; }
.forest li { padding: 0 .5rem; height: 1.45rem; line-height: 1.45rem; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; }
.forest .names { overflow: hidden; }
.forest .values { text-align: right; font-variant-numeric: tabular-nums; }
.forest .area { height: calc(1.45rem * var(--rows)); }
.forest .row { --c: var(--pale); }
.forest .row.ours { --c: var(--c0); }
.forest .ours .line { stroke-width: 3; }
.forest .ours .dots { stroke-width: 9; }
.row .back { fill: transparent; }
.row:hover .back { fill: var(--grid); }
.row.ours .back { fill: var(--ours); }
.forest li.ours { background: var(--ours); }

.cursor { position: absolute; top: 0; bottom: 0; border-left: 1px solid var(--pale);
  pointer-events: none; }
.tip { position: absolute; top: .3rem; padding: .3rem .5rem; border: 1px solid var(--line);
  border-radius: 4px; background: var(--back); font-variant-numeric: tabular-nums;
  pointer-events: none; white-space: nowrap; z-index: 1; display: grid; gap: 0 .6rem;
  grid-template-columns: auto auto; max-width: 75%; }
.tip > * { overflow: hidden; text-overflow: ellipsis; }
.tip > :first-child { grid-column: 1 / 3; color: var(--pale); }
.tip > :nth-child(odd) { text-align: right; }
.tip > :first-child { text-align: left; }
)";

// What a page does beyond showing itself: places in legends switch curves, and the pointer, or the
// arrow keys in a picture, show values, which are read off the picture's coordinates.
inline constexpr const char* kPageScript = R"(
for (const figure of document.querySelectorAll('figure[data-x]')) {
  const area = figure.querySelector('.area');
  const curves = [...figure.querySelectorAll('.curve')].map(group => {
    const title = group.querySelector('title');
    const name = title.textContent;
    title.remove();
    const d = group.querySelector('.line')?.getAttribute('d') ?? '';
    const points = [...d.matchAll(/(-?[\d.]+) (-?[\d.]+)/g)].map(pair => [+pair[1], +pair[2]]);
    return {group, name, points, grey: group.classList.contains('grey')};
  });
  const labelled = name => curves.find(curve => curve.name === name);

  for (const button of figure.querySelectorAll('.legend button')) {
    const switched = 'greys' in button.dataset ? curves.filter(curve => curve.grey)
                                               : [labelled(button.textContent)];
    button.disabled = false;
    button.onclick = () => {
      const on = button.ariaPressed !== 'true';
      button.ariaPressed = on;
      for (const curve of switched) curve.group.classList.toggle('off', !on);
      for (const other of figure.querySelectorAll('[data-curve]')) {
        if (switched.includes(labelled(other.textContent))) other.ariaPressed = on;
      }
    };
    const light = on => switched.forEach(curve => curve.group.classList.toggle('lit', on));
    if (switched.length === 1) {
      button.onpointerenter = () => light(true);
      button.onpointerleave = () => light(false);
    }
  }

  const value = (axis, part) => {
    const [low, high, log] = figure.dataset[axis].split(' ');
    return log ? low * (high / low) ** part : +low + (high - low) * part;
  };
  const shown = number => String(+number.toPrecision(3));
  const cursor = document.createElement('div');
  const tip = document.createElement('div');
  cursor.className = 'cursor';
  tip.className = 'tip';
  tip.role = 'status';
  const hide = () => { cursor.remove(); tip.remove(); };
  let at = 0;
  const show = (x, y) => {
    at = Math.min(1000, Math.max(0, x));
    const near = [];
    for (const curve of curves) {
      if (curve.group.classList.contains('off') || !curve.points.length) continue;
      const out = point => point[1] < 0 || point[1] > 1000;
      const far = point => Math.abs(point[0] - at);
      const point = curve.points.reduce((best, other) => far(other) < far(best) ? other : best);
      if (far(point) <= Math.max(15, 750 / curve.points.length) && !out(point)) near.push({curve, point});
    }
    if (!near.length) return hide();
    const step = near.map(entry => entry.point[0])
        .reduce((best, other) => Math.abs(other - at) < Math.abs(best - at) ? other : best);
    const greys = near.filter(entry => entry.curve.grey)
        .sort((a, b) => Math.abs(a.point[1] - y) - Math.abs(b.point[1] - y));
    const lines = [...near.filter(entry => !entry.curve.grey), ...greys.slice(0, 1)]
        .sort((a, b) => a.point[1] - b.point[1]);
    const label = figure.querySelector('.x-label').textContent;
    const words = [`${label}: ${shown(value('x', step / 1000))}`];
    for (const {curve, point} of lines) {
      words.push(curve.name, shown(value('y', 1 - point[1] / 1000)));
    }
    tip.replaceChildren(...words.map(word => {
      const part = document.createElement('span');
      part.textContent = word;
      return part;
    }));
    cursor.style.left = `${step / 10}%`;
    tip.style.left = step < 500 ? `calc(${step / 10}% + .6rem)` : 'auto';
    tip.style.right = step < 500 ? 'auto' : `calc(${100 - step / 10}% + .6rem)`;
    area.append(cursor, tip);
  };
  area.onpointermove = area.onpointerdown = event => {
    const box = area.getBoundingClientRect();
    show((event.clientX - box.left) / box.width * 1000, (event.clientY - box.top) / box.height * 1000);
  };
  area.onpointerleave = area.onblur = hide;
  area.tabIndex = 0;
  area.onkeydown = event => {
    const step = {ArrowLeft: -20, ArrowRight: 20}[event.key];
    if (!step) return;
    event.preventDefault();
    show(at + step, 500);
  };
}
)";

}  // namespace lopt

// How uPlot draws here: scales, axes, ticks and colours. `uPlot` is the global of uPlot.min.js.

import { clock, duration, number } from "./dom.js";
import { COLOURS } from "./runs.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const SECS = [
  ...[0.001, 0.01, 0.1, 1].flatMap((unit) => [unit, 2 * unit, 5 * unit]), 10, 15, 30,
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 10, 100, 1000].flatMap((unit) => [unit * DAY, 2 * unit * DAY, 5 * unit * DAY]),
];
const Y_WIDTH = 56, Y_SPACE = 26, X_HEIGHT = 26, X_SPACE = 64;
const FEWEST = 3; // ticks of an axis

/** A step, with the digits that distinguish it from the next tick. */
export function stepTick(value, every) {
  const unit = 10 ** (3 * Math.floor(Math.log10(Math.abs(value) || 1) / 3));
  const digits = Math.max(0, Math.ceil(Math.log10(unit / every) - 1e-9));
  const compact = every < 1 || Math.abs(value) < 1e4 || digits > 2 ? {} : { notation: "compact" };
  const maximumFractionDigits = every < 1 ? Math.ceil(-Math.log10(every)) : digits;
  return new Intl.NumberFormat("en", { ...compact, maximumFractionDigits }).format(value);
}

function elapsed(secs, every) {
  if (every < 1) return `${number(secs, 3)} s`;
  if (every < MINUTE && secs < MINUTE) return `${secs.toFixed(0)} s`;
  if (every >= DAY) return `${number(secs / DAY, 3)} d`;
  return secs === 0 ? "0" : duration(secs).replace(/ 00 .$/, "");
}

function clockTick(secs, every) {
  const text = clock(secs).split(" ");
  if (every >= DAY) return new Date(secs * 1000).toISOString().slice(0, 10);
  if (every < 1) return clock(secs, true).split(" ").at(-1).slice(3);
  return every >= MINUTE ? text.at(-1).slice(0, 5) : text.at(-1);
}

/** A value of an axis, with the digits that its ticks need. */
export function yTick(value, every) {
  if (value == null) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) {
    const digits = Math.floor(Math.log10(size)) - Math.floor(Math.log10(every));
    return value.toExponential(Math.max(0, Math.min(2, digits || 0)));
  }
  let digits = 0;
  while (digits < 6 && Math.abs(every * 10 ** digits - Math.round(every * 10 ** digits)) > 1e-6) digits++;
  return value.toFixed(digits);
}

// uPlot's own ticks end at 1e-16, below which its logarithmic ones fill the memory, and at 1e17.

/** 1, 2 and 5 times the powers of ten that divide a stretch. */
function decimals(stretch) {
  const power = Math.floor(Math.log10(stretch));
  return [-2, -1, 0].flatMap((more) => [1, 2, 5].map((n) => Number(`${n}e${power + more}`)));
}

/** Multiples of one of some sizes, from `zero` on: about `most` of them, and three or more where the sizes allow it. */
export function linearTicks(low, high, most, sizes = decimals(high - low), zero = 0) {
  const ends = (size) => [Math.ceil((low - zero) / size), Math.floor((high - zero) / size)];
  const count = (size) => ends(size)[1] - ends(size)[0] + 1;
  let at = sizes.findIndex((size) => count(size) <= most);
  if (at < 0) at = sizes.length - 1;
  while (at > 0 && count(sizes[at]) < FEWEST) at--;
  const [first, last] = ends(sizes[at]);
  return Array.from({ length: Math.max(0, Math.min(last - first + 1, 1000)) }, (_, i) => zero + (first + i) * sizes[at] || 0);
}

/** Powers of ten for a logarithmic axis, not too many; over a few of them their multiples too; else linear ones. */
export function logTicks(low, high, most) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const stride = Math.ceil((last - first) / most);
  const digits = last - first <= most ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : [1];
  const ticks = [];
  for (let power = first; power <= last; power += stride) ticks.push(...digits.map((digit) => Number(`${digit}e${power}`)));
  const inside = ticks.filter((tick) => tick >= low && tick <= high);
  return inside.length < FEWEST ? linearTicks(low, high, most) : inside;
}

/** The ticks that have a label, the others as null: all, 1, 2 and 5 of each power, or only the powers. */
export function labelled(ticks, most) {
  const shows = (digits) => (tick) => digits.test(tick.toExponential());
  const fits = [/./, /^[125]/, /^1/].find((digits) => ticks.filter(shows(digits)).length <= most) ?? /^1/;
  const shown = ticks.filter(shows(fits)).length < FEWEST ? () => true : shows(fits);
  return ticks.map((tick) => (shown(tick) ? tick : null));
}

const X_TICKS = {
  step: stepTick,
  elapsed,
  clock: clockTick,
};

function xTicks(x, low, high, most) {
  if (x === "step") return linearTicks(low, high, most);
  const zero = x === "clock" ? new Date(low * 1000).getTimezoneOffset() * MINUTE : 0;
  return linearTicks(low, high, most, SECS, zero);
}

/** The colours of the current theme, read from the style sheet. */
export function colours() {
  const probe = document.body.appendChild(document.createElement("i"));
  const get = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color; // light-dark() is resolved here
  };
  const found = { text: get("--faint"), grid: get("--grid"), run: Array.from({ length: COLOURS }, (_, i) => get(`--run-${i}`)) };
  probe.remove();
  return found;
}

/** Linear: the values with a little air; all equal: the value in the middle. */
function yRange(u, low, high) {
  if (low == null || high == null) return [0, 1];
  if (low === high) return low === 0 ? [-1, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  const air = (high - low) * 0.06;
  return [low >= 0 && low < air ? 0 : low - air, high + air];
}

const logRange = (u, low, high) => (low == null || !(low > 0) ? [0.1, 1] : uPlot.rangeLog(low, high, 10, false));

/**
 * uPlot's options for curves {label, colour, faint}: `x` is "step", "elapsed" or "clock"; `range` gives the shown
 * stretch of x or null for all; `onZoom(low, high)`, `onReset()` and `onCursor(x or null)` are called by the mouse.
 */
export function options({ width, height, x, log, curves, range, onZoom, onReset, onCursor }) {
  const paint = colours();
  const font = "11px system-ui, sans-serif";
  const axis = {
    stroke: paint.text, font, grid: { stroke: paint.grid, width: 1 }, ticks: { show: false },
  };
  return {
    width, height,
    padding: [8, 20, 0, 0], // the last label may stand over the end
    legend: { show: false },
    pxAlign: 1,
    cursor: {
      sync: { key: `asyncmon ${x}`, setSeries: false, scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      y: false,
      bind: { dblclick: () => () => { onReset(); return null; } },
    },
    scales: {
      x: {
        time: x === "clock",
        range: (u, low, high) => {
          const shown = range();
          if (shown) return shown;
          if (low == null) return [0, 1];
          return low === high ? [low - 1, high + 1] : [low, high];
        },
      },
      y: log ? { distr: 3, log: 10, range: logRange } : { range: yRange },
    },
    axes: [
      {
        ...axis, size: X_HEIGHT, gap: 4, space: X_SPACE,
        incrs: () => [Number.MAX_VALUE], // none of uPlot's
        splits: (u, index, low, high) => xTicks(x, low, high, Math.max(FEWEST, (u.width - Y_WIDTH) / X_SPACE)),
        values: (u, ticks) => ticks.map((tick) => X_TICKS[x](tick, ticks[1] - ticks[0])),
      },
      {
        ...axis, size: Y_WIDTH, gap: 6, space: Y_SPACE,
        incrs: () => [Number.MAX_VALUE],
        splits: (u, index, low, high) => (log ? logTicks : linearTicks)(low, high, (u.height - X_HEIGHT) / Y_SPACE),
        filter: (u, ticks) => (log ? labelled(ticks, (u.height - X_HEIGHT) / Y_SPACE) : ticks),
        values: (u, ticks) => ticks.map((tick) => yTick(tick, log ? tick : ticks[1] - ticks[0])),
      },
    ],
    series: [{}, ...curves.map(({ label, colour, faint }) => ({
      label,
      stroke: paint.run[colour],
      width: faint ? 1 : 1.6,
      alpha: faint ? 0.3 : 1,
      points: faint ? { show: false } : { size: 5, fill: paint.run[colour] },
    }))],
    hooks: {
      setSelect: [(u) => {
        const { left, width: wide } = u.select;
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        if (wide > 3) onZoom(u.posToVal(left, "x"), u.posToVal(left + wide, "x"));
      }],
      setCursor: [(u) => onCursor(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)],
    },
  };
}

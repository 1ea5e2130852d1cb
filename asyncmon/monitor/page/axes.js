// How uPlot draws here: scales, axes, ticks and colours. `uPlot` is the global of page/uplot/uPlot.min.js.

import { clock, duration, number } from "./dom.js";
import { COLOURS } from "./runs.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const STEPS = [1, 2, 5].flatMap((n) => Array.from({ length: 16 }, (_, power) => n * 10 ** power)).sort((a, b) => a - b);
const SECS = [
  0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 30 * DAY, 100 * DAY,
];
const Y_WIDTH = 56, Y_SPACE = 26, X_HEIGHT = 26;

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

function elapsed(secs, every) {
  if (every < 1) return `${number(secs, 3)} s`;
  if (every < MINUTE && secs < MINUTE) return `${secs.toFixed(0)} s`;
  if (every >= DAY) return `${number(secs / DAY, 3)} d`;
  return secs === 0 ? "0" : duration(secs).replace(/ 00 .$/, "");
}

function clockTick(secs, every) {
  const text = clock(secs).split(" ");
  if (every >= DAY) return new Date(secs * 1000).toISOString().slice(0, 10);
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

/** At most `most` multiples of 1, 2 or 5 times a power of ten, for a linear axis. */
export function linearTicks(low, high, most) {
  const rough = (high - low) / most;
  const power = Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((n) => Number(`${n}e${power}`)).find((size) => size >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / every); i * every <= high && ticks.length <= most; i++) ticks.push(i * every || 0);
  return ticks;
}

/** Powers of ten for a logarithmic axis, not too many; over a few of them their multiples too. */
export function logTicks(low, high, most) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const stride = Math.ceil((last - first) / most);
  const digits = last - first <= most ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : [1];
  const ticks = [];
  for (let power = first; power <= last; power += stride) ticks.push(...digits.map((digit) => Number(`${digit}e${power}`)));
  return ticks.filter((tick) => tick >= low && tick <= high);
}

/** The ticks that have a label, the others as null: all, 1, 2 and 5 of each power, or only the powers. */
function labelled(ticks, most) {
  const shown = [/./, /^[125]/, /^1/].find((digits) => ticks.filter((tick) => digits.test(tick.toExponential())).length <= most) ?? /^1/;
  return ticks.map((tick) => (shown.test(tick.toExponential()) ? tick : null));
}

const X_TICKS = {
  step: (value) => COMPACT.format(value),
  elapsed,
  clock: clockTick,
};

/** The colours of the present theme, read from the style sheet. */
function colours() {
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
    padding: [8, 10, 0, 0],
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
        ...axis, size: X_HEIGHT, gap: 4, space: x === "clock" ? 70 : 60, incrs: x === "step" ? STEPS : SECS,
        values: (u, ticks, index, space, every) => ticks.map((tick) => X_TICKS[x](tick, every)),
      },
      {
        ...axis, size: Y_WIDTH, gap: 6, space: Y_SPACE,
        incrs: () => [Number.MAX_VALUE], // none of uPlot's
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

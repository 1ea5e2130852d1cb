// One chart: the points of one tag of all compared runs. It has points and a canvas only while it is seen.

import { points } from "./api.js";
import { colours, options } from "./axes.js";
import { duration, el, fillRows, number, setName, setText, whole } from "./dom.js";
import { png } from "./export.js";
import { drawable, empty, extend, nearest, ordered, smooth, summary } from "./series.js";

const FEWEST = 400; // points asked for at least
const MOST = 6000;

export class Chart {
  /** `view` is the Charts: runs, x, log, smoothing, range, zoom(), and changed(chart) to be drawn soon. */
  constructor(tag, view, { height = 190, onEnlarge = null, onPin = null } = {}) {
    this.tag = tag;
    this.height = height;
    this.visible = false;
    this.failed = false;
    this.series = new Map(); // run id to points
    this.#view = view;
    this.plot = el("div", { class: "plot", role: "img" });
    this.legend = el("ul", { class: "legend" });
    this.pin = el("button", { type: "button", class: "quiet", title: "Pin to the top", onclick: onPin }, "☆");
    const larger = el("button", { type: "button", class: "quiet", title: "Enlarge, export (Enter)", "aria-label": `Enlarge ${tag}`, onclick: onEnlarge }, "⤢");
    const title = el("h3", { title: tag });
    setName(title, tag);
    this.#head = ["run", "smoothed", "last", "step"].map((name) => el("span", {}, name));
    this.element = el("article", { class: "card loading", tabIndex: 0, "aria-label": tag, onkeydown: (event) => this.#key(event, onEnlarge) },
      el("header", {}, title, ...(onEnlarge ? [this.pin, larger] : [])), this.plot, el("p", { class: "legend-head", "aria-hidden": "true" }, ...this.#head), this.legend);
    this.element.addEventListener("blur", () => this.#point(null));
  }

  #view;
  #head;
  #u = null;
  #shape = ""; // what the options of #u were made for
  #loading = 0; // the number of the newest load
  #waits = null; // live points that came during it
  #asked = 0; // points asked for
  #cursor = null; // x of the cursor
  #drawn = new Map(); // run id to what is drawn of it: {steps, values, times, xs, smoothed}

  show() {
    if (this.visible) return;
    this.visible = true;
    this.load();
  }

  /** Give everything back. */
  hide() {
    this.visible = false;
    this.#loading++;
    this.#waits = null;
    this.series.clear();
    this.#drawn.clear();
    this.#u?.destroy();
    this.#u = null;
    this.#shape = "";
  }

  /** Ask for the points of all compared runs, of the stretch that is shown. */
  async load() {
    if (!this.visible) return;
    const load = ++this.#loading;
    const { runs, range } = this.#view;
    const wide = (range ? 3 : 1) * 2 * (this.plot.clientWidth || 400); // a zoom asks its margins, too
    this.#asked = Math.min(MOST, Math.max(FEWEST, Math.ceil(wide / 200) * 200));
    this.#waits = [];
    this.element.classList.toggle("loading", !this.series.size);
    const answers = await Promise.allSettled(runs.map((run) => points(run.id, this.tag, this.#query(run), this.#asked)));
    if (load !== this.#loading) return;
    const came = this.#waits;
    this.#waits = null;
    this.failed = answers.some(({ status }) => status === "rejected");
    const old = this.series;
    this.series = new Map();
    runs.forEach(({ id }, index) => {
      const one = empty();
      if (answers[index].value) extend(one, answers[index].value);
      else Object.assign(one, old.get(id));
      if (one.steps.length) this.series.set(id, one);
    });
    for (const [id, more] of came) this.append(id, more);
    this.element.classList.remove("loading");
    this.#view.changed(this);
  }

  /** Add live points. */
  append(id, more) {
    if (!this.visible) return;
    if (this.#waits) return void this.#waits.push([id, more]);
    const run = this.#view.runs.find((one) => one.id === id);
    if (!run) return;
    const one = this.series.get(id) ?? empty();
    const end = this.#query(run).high ?? Infinity;
    const xs = this.#view.x === "step" ? more.steps : more.wall_times;
    if (xs[0] > end) return; // beyond what is shown: a new zoom asks for it
    if (!extend(one, more)) return;
    this.series.set(id, one);
    this.#view.changed(this);
    if (one.steps.length > 1.5 * this.#asked && !this.failed) this.load(); // the server reduces them
  }

  /** Draw what is there now. */
  draw() {
    if (!this.visible) return;
    const { runs, x, log, smoothing } = this.#view;
    const shown = runs.filter(({ id }) => this.series.has(id));
    const curves = [];
    this.#drawn.clear();
    const tables = shown.map((run) => {
      const series = this.series.get(run.id);
      const one = ordered(series, this.#xs(run, series));
      const smoothed = smooth(one.values, smoothing);
      this.#drawn.set(run.id, { ...one, smoothed });
      const columns = [one.xs];
      if (smoothing > 0) {
        columns.push(drawable(one.values, log));
        curves.push({ label: run.name, colour: run.colour, faint: true });
      }
      columns.push(drawable(smoothed, log));
      curves.push({ label: run.name, colour: run.colour, faint: false });
      return columns;
    });
    this.element.classList.toggle("failed", this.failed);
    const data = tables.length > 1 ? uPlot.join(tables) : (tables[0] ?? [[]]);
    const width = this.plot.clientWidth;
    if (!width) return;
    const shape = JSON.stringify([x, log, curves, document.documentElement.dataset.theme, this.#view.theme]);
    if (shape !== this.#shape) {
      this.#u?.destroy();
      this.#u = new uPlot(this.#options(width, curves), data, this.plot);
      this.#shape = shape;
    } else this.#u.setData(data);
    this.#describe(shown);
    this.#values();
  }

  /** The shown stretch of x. */
  extent() {
    const { min = 0, max = 1 } = this.#u?.scales.x ?? {};
    return [min, max];
  }

  /** The chart as a PNG. */
  picture() {
    const paint = colours();
    const curves = this.#view.runs.filter(({ id }) => this.#drawn.has(id)).map(({ id, name, colour }) => {
      const { steps, smoothed } = this.#drawn.get(id);
      return { name, colour: paint.run[colour], value: smoothed.at(-1), step: steps.at(-1) };
    });
    return png(this.tag, this.#u.ctx.canvas, curves);
  }

  resize() {
    const width = this.plot.clientWidth;
    if (!this.#u || !width || width === this.#u.width) return;
    this.#u.setSize({ width, height: this.height });
    if (!this.#view.range && 2 * width > 1.5 * this.#asked) this.load();
  }

  #options(width, curves) {
    const { x, log } = this.#view;
    return options({
      width, height: this.height, x, log, curves,
      range: () => this.#view.range,
      onZoom: (low, high) => this.#view.zoom([low, high]),
      onReset: () => this.#view.zoom(null),
      onCursor: (at) => {
        this.#cursor = at;
        this.#values();
      },
    });
  }

  #xs(run, { steps, times }) {
    if (this.#view.x === "step") return steps;
    return this.#view.x === "clock" ? times : times.map((time) => time - run.origin);
  }

  /**
   * The stretch to ask for: one width more on both sides, for the smoothing and for the edges. What is smoothed is
   * asked for as means, for the least and the greatest values have an average of their own.
   */
  #query(run) {
    const reduce = this.#view.smoothing > 0 ? { reduce: "mean" } : {};
    if (!this.#view.range) return reduce;
    const [low, high] = this.#view.range;
    const origin = this.#view.x === "elapsed" ? run.origin : 0;
    const width = high - low;
    return { ...reduce, by: this.#view.x === "step" ? "step" : "wall_time", low: origin + low - width, high: origin + high + width };
  }

  /** Values at the cursor, or the last ones. */
  #values() {
    const runs = this.#view.runs.filter(({ id }) => this.#drawn.has(id));
    const { smoothing, x } = this.#view;
    setText(this.#head[1], smoothing > 0 ? "smoothed" : "");
    setText(this.#head[2], this.#cursor == null ? "last" : "value");
    setText(this.#head[3], x === "step" ? "step" : "time");
    const make = () => el("li", {}, el("i", { class: "swatch" }), el("span", { class: "name" }), el("b"), el("span", { class: "raw" }), el("span", { class: "at" }));
    fillRows(this.legend, runs, ({ id }) => id, make, (item, run) => {
      const [swatch, name, value, raw, at] = item.children;
      const { steps, values, times, xs, smoothed } = this.#drawn.get(run.id);
      const index = this.#cursor == null ? steps.length - 1 : nearest(xs, this.#cursor);
      const exact = this.#cursor == null ? this.series.get(run.id).values.at(-1) : values[index];
      swatch.dataset.colour = run.colour;
      item.title = run.name;
      setName(name, run.name);
      setText(value, smoothing > 0 ? number(smoothed[index]) : "");
      setText(raw, number(exact));
      setText(at, x === "step" ? whole(steps[index]) : duration(times[index] - run.origin));
    });
  }

  #describe(runs) {
    const texts = runs.map((run) => {
      const { points: count, odd, least, greatest, step, last } = summary(this.series.get(run.id));
      const gaps = odd ? `, ${odd} not finite` : "";
      return `${run.name}: ${count} points from ${number(least)} to ${number(greatest)}${gaps}, ${number(last)} at step ${whole(step)}`;
    });
    this.plot.setAttribute("aria-label", `Chart of ${this.tag}. ${texts.join(". ") || "No points."}`);
  }

  #key(event, onEnlarge) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey || !this.#u) return;
    const width = this.#u.over.clientWidth;
    const { min, max } = this.#u.scales.x;
    const at = this.#u.cursor.left >= 0 ? this.#u.cursor.left : width;
    const by = width / (event.shiftKey ? 10 : 50);
    const zoomed = (factor) => {
      const middle = this.#cursor ?? (min + max) / 2;
      this.#view.zoom([middle - (middle - min) * factor, middle + (max - middle) * factor]);
    };
    const keys = {
      ArrowLeft: () => this.#point(Math.max(0, at - by)),
      ArrowRight: () => this.#point(Math.min(width, at + by)),
      Escape: () => this.#point(null),
      "+": () => zoomed(0.5),
      "-": () => zoomed(2),
      Enter: () => onEnlarge?.(),
    };
    if (!keys[event.key] || (event.key === "Escape" && this.#cursor == null)) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }

  #point(left) {
    this.#u?.setCursor({ left: left ?? -10, top: left == null ? -10 : 10 });
    if (left == null) this.legend.removeAttribute("aria-live");
    else this.legend.setAttribute("aria-live", "polite");
  }
}

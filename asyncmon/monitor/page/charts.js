// The grid of charts: which tags there are, what all charts have in common, and when they are drawn.

import { request, runPath } from "./api.js";
import { Chart } from "./chart.js";
import { $, el, number, remember, remembered, setText, whole } from "./dom.js";

const DRAW_EVERY_MS = 250;

export class Charts {
  runs = []; // {id, name, colour, origin} of the compared ones
  range = null; // [low, high] of x where zoomed
  theme = 0; // counts the changes of colours
  #model;
  #charts = new Map(); // tag to Chart
  #tags = new Map(); // run id to its tags
  #dirty = new Set();
  #timer = 0;
  #large = null;
  #seen = new IntersectionObserver((entries) => this.#scrolled(entries), { rootMargin: "300px" });
  #sized = new ResizeObserver(() => this.#resized());

  constructor(model) {
    this.#model = model;
    this.x = remembered("x", "step");
    this.log = remembered("log", false);
    this.smoothing = remembered("smoothing", 0.6);
    this.filter = remembered("tags", "");
    this.#controls();
    this.#sized.observe($("grid"));
    model.addEventListener("compare", () => this.reload());
  }

  /** Ask again for everything: the runs changed, or events were lost. */
  async reload() {
    this.#rows();
    const ids = this.runs.map(({ id }) => id);
    const answers = await Promise.allSettled(ids.map((id) => request(runPath(id, "/scalars"))));
    answers.forEach(({ value }, index) => {
      if (value) this.#tags.set(ids[index], new Set(value.tags.map(({ tag }) => tag)));
    });
    for (const id of this.#tags.keys()) if (!this.runs.some((run) => run.id === id)) this.#tags.delete(id);
    this.#layout();
    for (const chart of this.#all()) chart.load();
  }

  /** Load the charts again whose last try failed. */
  retry() {
    for (const chart of this.#all()) if (chart.failed) chart.load();
  }

  /** New points of one run: {run, series: {tag: points}}. */
  append({ run, series }) {
    const tags = this.#tags.get(run);
    if (!tags) return;
    let fresh = false;
    for (const [tag, more] of Object.entries(series)) {
      if (!tags.has(tag)) {
        tags.add(tag);
        fresh = true;
      }
      this.#charts.get(tag)?.append(run, more);
      if (this.#large?.tag === tag) this.#large.append(run, more);
    }
    if (fresh) this.#layout();
  }

  /** A chart has something new to draw. */
  changed(chart) {
    this.#dirty.add(chart);
    this.#timer ||= setTimeout(() => requestAnimationFrame(() => this.#draw()), DRAW_EVERY_MS);
  }

  zoom(range) {
    if (range && !(range[1] > range[0])) return;
    this.range = range;
    $("zoom-reset").hidden = !range;
    for (const chart of this.#all()) {
      chart.load();
      if (chart.visible) this.changed(chart);
    }
    this.#draw();
  }

  recolour() {
    this.theme++;
    this.#redraw();
  }

  set(name, value) {
    const zoomable = name === "x" && value !== this.x;
    const reduced = name === "smoothing" && value > 0 !== this.smoothing > 0; // means are asked for, or extremes
    this[name] = value;
    remember({ x: "x", log: "log", smoothing: "smoothing", filter: "tags" }[name], value);
    this.#show();
    if (name === "filter") this.#layout();
    else if (zoomable && this.range) this.zoom(null);
    else if (reduced) for (const chart of this.#all()) chart.load();
    else this.#redraw();
  }

  #controls() {
    $("tags").addEventListener("input", ({ target }) => this.set("filter", target.value));
    $("smoothing").addEventListener("input", ({ target }) => this.set("smoothing", Number(target.value)));
    $("x-axis").addEventListener("change", ({ target }) => this.set("x", target.value));
    $("log-scale").addEventListener("change", ({ target }) => this.set("log", target.checked));
    $("zoom-reset").addEventListener("click", () => this.zoom(null));
    $("enlarged").addEventListener("close", () => this.#shrink());
    this.#show();
  }

  #show() {
    $("tags").value = this.filter;
    $("smoothing").value = this.smoothing;
    setText($("smoothing-value"), this.smoothing.toFixed(2));
    $("x-axis").value = this.x;
    $("log-scale").checked = this.log;
  }

  #rows() {
    this.runs = this.#model.compared.map((id) => {
      const { name, started } = this.#model.rows.get(id);
      return { id, name, colour: this.#model.colour(id), origin: started ?? 0 };
    });
  }

  #all() {
    return this.#large ? [...this.#charts.values(), this.#large] : this.#charts.values();
  }

  /** The cards, by tag. */
  #layout() {
    let matches;
    try {
      const pattern = new RegExp(this.filter, "i");
      matches = (tag) => pattern.test(tag);
    } catch {
      matches = (tag) => tag.includes(this.filter);
    }
    const every = new Set([...this.#tags.values()].flatMap((tags) => [...tags]));
    const tags = [...every].filter(matches).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const wanted = new Set(tags);
    for (const [tag, chart] of this.#charts) {
      if (wanted.has(tag)) continue;
      this.#seen.unobserve(chart.element);
      chart.hide();
      chart.element.remove();
      this.#charts.delete(tag);
    }
    tags.forEach((tag, index) => {
      let chart = this.#charts.get(tag);
      if (!chart) {
        chart = new Chart(tag, this, { onEnlarge: () => this.#enlarge(tag) });
        this.#charts.set(tag, chart);
        this.#seen.observe(chart.element);
      }
      const there = $("grid").children[index];
      if (there !== chart.element) $("grid").insertBefore(chart.element, there ?? null);
    });
    setText($("charts-count"), tags.length < every.size ? `${tags.length} of ${every.size}` : String(every.size || ""));
    $("no-charts").hidden = tags.length > 0;
    setText($("no-charts"), every.size ? "No tag fits the filter." : "No scalars yet. They come from am.summary.scalar and FileWriter.add_scalar.");
  }

  #scrolled(entries) {
    for (const { target, isIntersecting } of entries) {
      const chart = [...this.#charts.values()].find(({ element }) => element === target);
      if (isIntersecting) chart?.show();
      else chart?.hide();
    }
  }

  #resized() {
    for (const chart of this.#all()) chart.resize();
  }

  #redraw() {
    for (const chart of this.#all()) if (chart.visible) this.changed(chart);
  }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    for (const chart of this.#dirty) chart.draw();
    this.#dirty.clear();
  }

  /** One chart over the whole window, with its points as a table. */
  #enlarge(tag) {
    const dialog = $("enlarged");
    const chart = new Chart(tag, this, { height: Math.max(240, innerHeight - 300) });
    const data = el("details", { ontoggle: () => data.open && this.#data(chart, data) }, el("summary", {}, "Points as a table"));
    const scale = (factor) => {
      const [low, high] = this.range ?? chart.extent();
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
      this.zoom([middle - half, middle + half]);
    };
    dialog.replaceChildren(
      el("div", { class: "bar" }, el("h2", { id: "enlarged-title" }, tag),
        el("button", { type: "button", "aria-label": "Zoom in", onclick: () => scale(0.5) }, "+"),
        el("button", { type: "button", "aria-label": "Zoom out", onclick: () => scale(2) }, "−"),
        el("button", { type: "button", onclick: () => this.zoom(null) }, "All"),
        el("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close")),
      chart.element, data);
    dialog.showModal();
    this.#large = chart;
    this.#sized.observe(chart.plot);
    chart.show();
    chart.element.focus();
  }

  #shrink() {
    this.#sized.unobserve(this.#large.plot);
    this.#large.hide();
    this.#large = null;
    $("enlarged").replaceChildren();
  }

  #data(chart, place) {
    const rows = this.runs.flatMap(({ id, name }) => {
      const { steps = [], values = [] } = chart.series.get(id) ?? {};
      return steps.slice(-200).map((step, i) => el("tr", {}, el("td", {}, name), el("td", { class: "num" }, whole(step)),
        el("td", { class: "num" }, number(values[values.length - Math.min(200, values.length) + i], 6))));
    });
    const head = el("tr", {}, el("th", {}, "Run"), el("th", { class: "num" }, "step"), el("th", { class: "num" }, "value"));
    place.querySelector("table")?.remove();
    place.append(el("table", {}, el("caption", {}, "The last 200 points of each run"), el("thead", {}, head), el("tbody", {}, ...rows)));
  }
}

// The grid of charts: which tags there are, what all charts have in common, and when they are drawn.

import { request, runPath } from "./api.js";
import { Chart } from "./chart.js";
import { $, el, fillRows, matcher, number, setName, setText, whole } from "./dom.js";
import { csv, download } from "./export.js";
import { remember, remembered } from "./settings.js";
import { toast } from "./status.js";

const DRAW_EVERY_MS = 250;

export class Charts extends EventTarget {
  tags = []; // the shown ones, in their order
  runs = []; // {id, name, colour, origin} of the compared ones
  theme = 0; // counts the changes of colours
  #model;
  #charts = new Map(); // tag to Chart
  #tags = new Map(); // run id to its tags
  #closed = new Set(remembered("closed groups", []));
  #dirty = new Set();
  #timer = 0;
  #large = null;
  #seen = new IntersectionObserver((entries) => this.#scrolled(entries), { rootMargin: "300px" });
  #sized = new ResizeObserver(() => this.#resized());

  constructor(model) {
    super();
    this.#model = model;
    this.x = remembered("x", "step");
    this.log = remembered("log", false);
    this.smoothing = remembered("smoothing", 0.6);
    this.filter = remembered("tags", "");
    this.pinned = remembered("pinned", []);
    const zoom = remembered("zoom", []);
    this.range = zoom.length === 2 && zoom[1] > zoom[0] ? zoom : null; // [low, high] of x where zoomed
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
    remember("zoom", range ?? []);
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
    $("zoom-reset").hidden = !this.range;
    this.#show();
  }

  /** Pin a tag to the top of the charts, or not any more. */
  pin(tag) {
    this.pinned = this.pinned.includes(tag) ? this.pinned.filter((other) => other !== tag) : [...this.pinned, tag];
    remember("pinned", this.pinned);
    this.#layout();
    this.dispatchEvent(new Event("pin"));
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
    const every = new Set([...this.#tags.values()].flatMap((tags) => [...tags]));
    const tags = [...every].filter(matcher(this.filter)).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const wanted = new Set(tags);
    for (const [tag, chart] of this.#charts) {
      if (wanted.has(tag)) continue;
      this.#seen.unobserve(chart.element);
      chart.hide();
      this.#charts.delete(tag);
    }
    const groups = this.#groups(tags);
    const before = this.tags.join("\n");
    this.tags = groups.flatMap((group) => group.tags);
    fillRows($("grid"), groups, ({ name }) => name, (group) => this.#group(group), (element, group) => {
      const [heading, cards] = element.children;
      setText(heading.firstChild, group.title);
      setText(heading.lastChild, String(group.tags.length));
      fillRows(cards, group.tags, (tag) => tag, (tag) => this.#card(tag), (_, tag) => this.#pins(tag));
    });
    this.#spread();
    setText($("charts-count"), tags.length < every.size ? `${tags.length} of ${every.size}` : String(every.size || ""));
    if (this.tags.join("\n") !== before) this.dispatchEvent(new Event("tags"));
    $("no-charts").hidden = tags.length > 0;
    $("grid").classList.toggle("single", $("grid").children.length === 1);
    setText($("no-charts"), every.size ? "No tag fits the filter." : "No scalars yet. They come from am.summary.scalar and FileWriter.add_scalar.");
  }

  /** The tags under their headings: the pinned ones, those without a prefix, then by the first part of the name. */
  #groups(tags) {
    const groups = new Map([["pinned", []], ["", []]]);
    for (const tag of tags) {
      const name = this.pinned.includes(tag) ? "pinned" : tag.includes("/") ? tag.slice(0, tag.indexOf("/") + 1) : "";
      groups.set(name, [...(groups.get(name) ?? []), tag]);
    }
    return [...groups].filter(([, some]) => some.length).map(([name, some]) => {
      return { name, title: { pinned: "Pinned", "": "Without a prefix" }[name] ?? name.slice(0, -1), tags: some };
    });
  }

  #group({ name }) {
    const open = !this.#closed.has(name);
    const toggled = () => {
      if (element.open) this.#closed.delete(name);
      else this.#closed.add(name);
      remember("closed groups", [...this.#closed]);
      this.#spread();
    };
    const element = el("details", { class: "group", open, ontoggle: toggled },
      el("summary", {}, el("span"), el("span", { class: "count" })), el("div", { class: "cards" }));
    return element;
  }

  #card(tag) {
    let chart = this.#charts.get(tag);
    if (!chart) {
      chart = new Chart(tag, this, { onEnlarge: () => this.#enlarge(tag), onPin: () => this.pin(tag) });
      this.#charts.set(tag, chart);
      this.#seen.observe(chart.element);
    }
    return chart.element;
  }

  #pins(tag) {
    const { pin } = this.#charts.get(tag);
    const on = this.pinned.includes(tag);
    setText(pin, on ? "★" : "☆");
    pin.title = on ? "Unpin" : "Pin to the top";
    pin.setAttribute("aria-label", `${on ? "Unpin" : "Pin"} ${tag}`);
  }

  #scrolled(entries) {
    for (const { target, isIntersecting } of entries) {
      const chart = [...this.#charts.values()].find(({ element }) => element === target);
      if (isIntersecting) chart?.show();
      else chart?.hide();
    }
  }

  /** Small groups share a row: each takes as many columns as it has cards, up to all. */
  #spread() {
    const columns = getComputedStyle($("grid")).gridTemplateColumns.split(" ").length;
    for (const group of $("grid").children) {
      const wanted = group.open ? group.querySelectorAll(".card").length : 1;
      const taken = Math.max(1, Math.min(columns, wanted));
      group.style.gridColumn = `span ${taken}`;
      group.style.setProperty("--columns", taken);
    }
  }

  #resized() {
    this.#spread();
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
    const title = el("h2", { id: "enlarged-title", title: tag });
    setName(title, tag);
    dialog.replaceChildren(
      el("div", { class: "bar" }, title,
        el("button", { type: "button", "aria-label": "Zoom in", onclick: () => scale(0.5) }, "+"),
        el("button", { type: "button", "aria-label": "Zoom out", onclick: () => scale(2) }, "−"),
        el("button", { type: "button", onclick: () => this.zoom(null) }, "All"),
        el("button", { type: "button", title: "Download the chart as a picture", onclick: async () => download(`${tag}.png`, await chart.picture()) }, "PNG"),
        el("button", { type: "button", title: "Download all points as a table", onclick: () => this.#csv(tag) }, "CSV"),
        el("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close")),
      chart.element, data);
    dialog.showModal();
    this.#large = chart;
    this.#sized.observe(chart.plot);
    chart.show();
    chart.element.focus();
  }

  async #csv(tag) {
    try {
      download(`${tag}.csv`, await csv(this.runs, tag));
    } catch (error) {
      toast(error.message, true);
    }
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

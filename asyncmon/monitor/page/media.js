// Histograms, images and texts of the run in focus, loaded as they are seen.

import { request, runPath } from "./api.js";
import { $, clock, el, fillRows, number, setName, setText, whole } from "./dom.js";
import { isEnded, stateOf } from "./runs.js";

const EVERY_MS = 5000;
const BINS = 48;
const KINDS = { histogram: "Histograms", image: "Images", text: "Text" };

class Card {
  element;
  seen = false;
  #run;
  #tag;
  #last = ""; // what the last load was for
  #wanted = "";
  #records = [];
  #found = null;
  #body = el("div", { class: "record loading" });
  #slider = el("input", { type: "range", min: 0, max: 0, step: 1, oninput: () => this.#show() });
  #step = el("output");

  constructor(run, { tag, kind }) {
    this.#run = run;
    this.#tag = tag;
    this.#slider.setAttribute("aria-label", `Step of ${tag}`);
    const title = el("h3", { title: tag });
    setName(title, tag);
    const slide = el("label", { class: "slide" }, this.#slider, this.#step);
    this.element = el("article", { class: `card ${kind}`, "aria-label": tag }, el("header", {}, title), this.#body, slide);
  }

  /** Load again if there are newer records, once the card is seen. */
  update({ records, step, wall_time: time } = {}) {
    if (records != null) this.#wanted = `${records} ${step} ${time}`;
    if (this.seen && this.#wanted !== this.#last) this.#load();
  }

  async #load() {
    this.#last = this.#wanted;
    const query = new URLSearchParams({ tag: this.#tag, bins: BINS });
    try {
      this.#found = await request(runPath(this.#run, `/media/records?${query}`));
    } catch (error) {
      this.#last = "";
      this.#body.classList.remove("loading");
      if (!this.#found) this.#body.replaceChildren(el("p", { class: "problem" }, error.message));
      return;
    }
    const atEnd = Number(this.#slider.value) >= this.#records.length - 1;
    this.#records = this.#found.records;
    this.#slider.max = this.#records.length - 1;
    if (atEnd) this.#slider.value = this.#records.length - 1;
    this.#slider.disabled = this.#records.length < 2;
    this.#body.classList.remove("loading");
    this.#show();
  }

  #show() {
    const record = this.#records[Number(this.#slider.value)];
    setText(this.#step, `step ${whole(record.step)}`);
    this.#step.title = clock(record.wall_time);
    this[`_${this.#found.kind}`](record);
  }

  _text({ text }) {
    this.#body.replaceChildren(el("pre", { tabIndex: 0 }, text));
  }

  _image({ id, step, width, height }) {
    const query = new URLSearchParams({ tag: this.#tag, id });
    const image = this.#body.firstElementChild ?? this.#body.appendChild(el("img", {}));
    image.src = runPath(this.#run, `/media/image?${query}`);
    image.alt = `${this.#tag} at step ${step}, ${width} by ${height} pixels`;
    image.classList.toggle("small", width < 128);
  }

  /** A column for each record, a row for each bin, the darker the more values; the chosen record as bars beside it. */
  _histogram({ counts, step }) {
    const { low, high } = this.#found;
    const most = Math.max(...this.#records.flatMap((record) => record.counts), 1e-300);
    const map = el("canvas", { width: this.#records.length, height: BINS });
    const context = map.getContext("2d");
    context.fillStyle = getComputedStyle(this.#slider).color;
    this.#records.forEach((record, x) => record.counts.forEach((count, bin) => {
      context.globalAlpha = Math.sqrt(count / most);
      context.fillRect(x, BINS - 1 - bin, 1, 1);
    }));
    const all = counts.reduce((sum, count) => sum + count, 0);
    const largest = Math.max(...counts, 1e-300);
    const width = (Number(high) - Number(low)) / BINS;
    const bars = el("div", { class: "bars-of-bins" }, ...counts.map((count, bin) => {
      const bar = el("i", { title: `${number(Number(low) + bin * width)} to ${number(Number(low) + (bin + 1) * width)}: ${whole(Math.round(count))} values` });
      bar.style.width = `${(100 * count) / largest}%`;
      return bar;
    }).reverse());
    const [first, last] = [this.#records[0].step, this.#records.at(-1).step];
    map.setAttribute("role", "img");
    map.setAttribute("aria-label", `Histograms of ${this.#tag}, from step ${first} to ${last}; ${whole(Math.round(all))} values from ${number(Number(low))} to ${number(Number(high))} at step ${step}`);
    this.#body.replaceChildren(
      el("div", { class: "values" }, ...[high, (Number(low) + Number(high)) / 2, low].map((value) => el("span", {}, number(Number(value), 3)))),
      map, bars,
      el("div", { class: "steps" }, el("span", {}, whole(first)), el("span", {}, whole(last))));
  }
}

export class Media {
  #runs;
  #of = null;
  #timer = 0;
  #cards = new Map(); // tag to Card
  #seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const card = this.#cards.get(target.dataset.key);
      if (!card) continue;
      card.seen = isIntersecting;
      card.update();
    }
  }, { rootMargin: "200px" });

  constructor(runs) {
    this.#runs = runs;
    runs.addEventListener("focus", () => runs.focused !== this.#of && this.refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
  }

  /** Ask now, and again after a while. */
  async refresh() {
    clearTimeout(this.#timer);
    const { row } = this.#runs;
    if (row?.id !== this.#of) {
      this.#seen.disconnect();
      this.#cards.clear();
      $("media-kinds").replaceChildren();
      this.#of = row?.id ?? null;
      $("media").hidden = true;
    }
    if (!row) return;
    const answer = await request(runPath(row.id, "/media")).catch(() => null);
    if (this.#of !== row.id) return;
    if (answer) this.#show(answer.tags);
    if (document.hidden) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), isEnded(stateOf(row)[1]) ? 3 * EVERY_MS : EVERY_MS);
  }

  #show(tags) {
    $("media").hidden = !tags.length;
    const kinds = Object.keys(KINDS).filter((kind) => tags.some((one) => one.kind === kind));
    const make = () => el("details", { class: "group", open: true },
      el("summary", {}, el("span"), el("span", { class: "count" })), el("div", { class: "cards" }));
    fillRows($("media-kinds"), kinds, (kind) => kind, make, (group, kind) => {
      const some = tags.filter((one) => one.kind === kind);
      setText(group.firstChild.firstChild, KINDS[kind]);
      setText(group.firstChild.lastChild, String(some.length));
      fillRows(group.lastChild, some, ({ tag }) => tag, (one) => this.#card(one), (_, one) => this.#cards.get(one.tag).update(one));
    });
  }

  #card(one) {
    const card = new Card(this.#of, one);
    this.#cards.set(one.tag, card);
    this.#seen.observe(card.element);
    return card.element;
  }
}

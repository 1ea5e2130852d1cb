// The runs: their rows from the server, which one is in focus, and which ones the charts compare.

import { $, el, fillRows, matcher, rate, setName, setText, whole } from "./dom.js";
import { remember, remembered } from "./settings.js";

export const COLOURS = 10; // --run-0 to --run-9 in page.css
const COMPARED_AT_FIRST = 6;

const STATES = {
  new: "other", opening: "other", open: "running", closing: "stopping", closed: "ended", // of sessions
  running: "running", silent: "stopping", stopped: "ended", unknown: "ended", // of directories
};

const OUTCOMES = { // of both, by their records
  completed: "completed", stopped: "ended", cancelled: "ended", preempted: "preempted", failed: "failed", lost: "failed",
};

/** Whether a state, as a class, is one that nothing follows. */
export const isEnded = (kind) => ["ended", ...Object.values(OUTCOMES)].includes(kind);

/** The state as a word and as a class; paused is a state of its own here. */
export function stateOf(row) {
  const { state, outcome } = row;
  if (outcome) return [outcome, OUTCOMES[outcome] ?? "ended"];
  if (row.paused && STATES[state] !== "ended") return ["paused", "paused"];
  return [state === "open" ? "running" : state, STATES[state] ?? "other"];
}

const rank = (row) => (row.kind === "live" && !isEnded(stateOf(row)[1]) ? 0 : 1);

export class Runs extends EventTarget {
  rows = new Map();
  compared = []; // ids, in the order of their colours' choice
  focused = null;
  #colours = new Map();
  #chosen = remembered("compared", null); // the user's choice, kept over a reload
  #wanted = remembered("focused", null);
  #filter = remembered("runs", "");
  #early = true; // the focus was set before all runs were read

  constructor() {
    super();
    $("runs-filter").value = this.#filter;
    $("runs-filter").addEventListener("input", ({ target }) => {
      this.#filter = target.value;
      remember("runs", this.#filter);
      this.#show();
      this.#tell("filter");
    });
    $("runs-all").addEventListener("click", () => this.#compareOnly(this.shown().map((row) => row.id)));
    $("runs-none").addEventListener("click", () => this.#compareOnly([]));
  }

  /** All runs, as the server lists them. */
  setRows(rows) {
    this.rows = new Map(rows.map((row) => [row.id, row]));
    const known = (id) => this.rows.has(id);
    const before = this.compared.join();
    const chosen = this.#chosen?.filter(known);
    this.compared = chosen?.length || this.#chosen?.length === 0 ? chosen : this.#first();
    if (!known(this.focused) || this.#early) {
      this.#early = rows.some((row) => row.updated == null);
      this.focused = known(this.#wanted) ? this.#wanted : (this.#recent()[0]?.id ?? null);
    }
    if (this.focused != null && !this.#chosen && !this.compared.includes(this.focused)) this.compared.unshift(this.focused);
    for (const id of this.#colours.keys()) if (!this.compared.includes(id)) this.#colours.delete(id);
    this.#show();
    this.#tell("rows");
    this.#tell("focus");
    if (this.compared.join() !== before) this.#tell("compare");
  }

  /** One run's row, changed. */
  update(row) {
    if (!this.rows.has(row.id)) return;
    this.rows.set(row.id, row);
    const item = $("runs").querySelector(`[data-key="${CSS.escape(String(row.id))}"]`);
    if (item) this.#fill(item, row);
    if (row.id === this.focused) this.#tell("focus");
  }

  get row() {
    return this.rows.get(this.focused);
  }

  colour(id) {
    if (!this.#colours.has(id)) {
      const used = new Set(this.#colours.values());
      const free = Array.from({ length: COLOURS }, (_, i) => i).find((i) => !used.has(i));
      this.#colours.set(id, free ?? this.#colours.size % COLOURS);
    }
    return this.#colours.get(id);
  }

  focus(id) {
    if (id === this.focused || !this.rows.has(id)) return;
    this.focused = id;
    this.#early = false;
    remember("focused", id);
    if (!this.compared.includes(id)) this.compare(id, true);
    this.#show();
    this.#tell("focus");
  }

  compare(id, on) {
    const others = this.compared.filter((other) => other !== id);
    this.#compareOnly(on ? [...others, id] : others);
  }

  /** Keep the compared runs and the one in focus in the address. */
  keep() {
    remember("compared", this.compared);
    remember("focused", this.focused);
  }

  #compareOnly(ids) {
    for (const id of this.#colours.keys()) if (!ids.includes(id)) this.#colours.delete(id);
    this.compared = ids;
    this.#chosen = this.compared;
    remember("compared", this.compared);
    this.#show();
    this.#tell("compare");
  }

  /** The run after (1) or before (-1) the one in focus. */
  step(by) {
    const shown = this.shown().map((row) => row.id);
    const at = shown.indexOf(this.focused);
    this.focus(shown[Math.max(0, Math.min(shown.length - 1, at + by))]);
    $("runs").querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  }

  /** The newest ones, live before others; of live ones no others beside them. */
  #first() {
    const recent = this.#recent();
    const live = recent.filter((row) => row.kind === "live");
    return (live.length ? live : recent).slice(0, COMPARED_AT_FIRST).map((row) => row.id);
  }

  #recent() {
    return [...this.rows.values()].sort((a, b) => rank(a) - rank(b) || (b.updated ?? 0) - (a.updated ?? 0));
  }

  /** The runs that the filter lets pass, as they are listed. */
  shown() {
    const matches = matcher(this.#filter);
    return [...this.rows.values()]
      .filter((row) => matches(row.name))
      .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
  }

  #show() {
    setText($("runs-count"), this.rows.size > 1 ? `${this.compared.length} of ${this.rows.size} in the charts` : "");
    $("runs-select").hidden = this.rows.size < 2 && !this.#filter;
    fillRows($("runs"), this.shown(), (row) => row.id, (row) => this.#make(row), (item, row) => this.#fill(item, row));
  }

  #make(row) {
    const box = el("input", {
      type: "checkbox", class: "swatch",
      onchange: ({ target }) => this.compare(row.id, target.checked),
    });
    const name = el("button", { type: "button", class: "name", onclick: () => this.focus(row.id) });
    return el("li", {}, box, name, el("span", { class: "state" }), el("span", { class: "step" }), el("span", { class: "rate" }));
  }

  #fill(item, row) {
    const [box, name, state, step, speed] = item.children;
    const on = this.compared.includes(row.id);
    box.checked = on;
    box.setAttribute("aria-label", `Show ${row.name} in the charts`);
    box.dataset.colour = on ? this.colour(row.id) : "";
    setName(name, row.name);
    name.title = row.name;
    name.setAttribute("aria-current", String(row.id === this.focused));
    const [word, kind] = stateOf(row);
    setText(state, word);
    state.dataset.state = kind;
    setText(step, whole(row.step));
    setText(speed, row.rate ? rate(row.rate) : "");
  }

  #tell(kind) {
    this.dispatchEvent(new Event(kind));
  }
}

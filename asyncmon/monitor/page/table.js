// The run table: state, configuration and last values of all runs, sorted by a click on a heading.

import { request } from "./api.js";
import { $, clock, duration, el, fillRows, number, setName, setText, whole } from "./dom.js";
import { stateOf } from "./runs.js";
import { remember, remembered } from "./settings.js";

const EVERY_MS = 5000;
const COLUMNS = 6; // last values without pins

const KINDS = { config: "Configuration", last: "Last value" };
const ENGLISH = new Intl.Collator("en", { numeric: true });
const PLAIN = { state: (row) => stateOf(row)[0], step: (row) => row.step, started: (row) => row.started, "ran for": (row) => row.updated - row.started };

/** Numbers before texts, what is missing last, in both directions. */
function compare(a, b, down) {
  const rank = (value) => (value == null || Number.isNaN(value) ? 2 : typeof value === "number" ? 0 : 1);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  if (rank(a) === 2) return 0;
  return (typeof a === "number" ? a - b : ENGLISH.compare(String(a), String(b))) * (down ? -1 : 1);
}

export class Table {
  #runs;
  #charts;
  #facts = new Map(); // run id to {config, last}
  #sort = remembered("sort", ""); // the key of a column, after a minus for the largest first
  #timer = 0;
  #asked = 0;

  constructor(runs, charts) {
    this.#runs = runs;
    this.#charts = charts;
    for (const kind of ["compare", "filter"]) runs.addEventListener(kind, () => this.#show());
    runs.addEventListener("rows", () => this.refresh());
    for (const kind of ["pin", "tags"]) charts.addEventListener(kind, () => this.refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
  }

  /** Ask now, and again after a while. */
  async refresh() {
    clearTimeout(this.#timer);
    $("table").hidden = !this.#runs.rows.size;
    const asked = ++this.#asked;
    await new Promise((resolve) => setTimeout(resolve, 50)); // rows and tags come together
    if (asked !== this.#asked) return;
    this.#show();
    const query = new URLSearchParams(this.#tags().map((tag) => ["column", tag]));
    const answer = await request(`api/table?${query}`).catch(() => null);
    if (asked !== this.#asked) return;
    if (answer) this.#facts = new Map(answer.runs.map((one) => [one.id, one]));
    this.#show();
    if (!document.hidden) this.#timer = setTimeout(() => this.refresh(), EVERY_MS);
  }

  #tags() {
    const { pinned, tags } = this.#charts;
    return pinned.length ? pinned.slice(0, 50) : tags.slice(0, COLUMNS);
  }

  /** The columns: key, heading, the value of a row, and the value as text. */
  #columns(rows) {
    const names = new Set(rows.flatMap(({ id }) => Object.keys(this.#facts.get(id)?.config ?? {})));
    const fact = (kind, name) => (row) => this.#facts.get(row.id)?.[kind][name];
    const text = (value) => (typeof value === "number" ? number(value) : value == null ? "–" : String(value));
    const setting = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : text(value));
    const show = { step: whole, started: clock, "ran for": (secs) => duration(secs) };
    return [
      ...Object.entries(PLAIN).map(([name, of]) => ({ key: name, name, of, show: show[name] ?? text })),
      ...[...names].sort(ENGLISH.compare).map((name) => ({ key: `config ${name}`, name, of: fact("config", name), show: setting, kind: "config" })),
      ...this.#tags().map((name) => ({ key: `last ${name}`, name, kind: "last", show: (value) => number(value == null ? value : Number(value)),
        of: (row) => (fact("last", name)(row) == null ? null : Number(fact("last", name)(row))) })),
    ];
  }

  #show() {
    const rows = this.#runs.shown();
    const columns = [{ key: "name", name: "run", of: (row) => row.name }, ...this.#columns(rows)];
    const key = this.#sort.replace(/^-/, "");
    const down = this.#sort.startsWith("-");
    const by = columns.find((column) => column.key === key);
    if (by) rows.sort((a, b) => compare(by.of(a), by.of(b), down));
    fillRows($("table-columns"), columns, (column) => column.key, (column) => this.#heading(column), (th, column) => {
      setName(th.firstChild, column.name);
      th.title = column.kind ? `${KINDS[column.kind]}: ${column.name}` : "";
      th.classList.toggle("num", rows.some((row) => typeof column.of(row) !== "string"));
      th.setAttribute("aria-sort", column !== by ? "none" : down ? "descending" : "ascending");
    });
    const loading = !this.#facts.size;
    fillRows($("table-rows"), rows, (row) => row.id, () => el("tr"), (tr, row) => {
      tr.toggleAttribute("data-focused", row.id === this.#runs.focused);
      fillRows(tr, columns, (column) => column.key, (column) => this.#cell(column, row), (cell, column) => {
        if (column.key === "name") {
          const [swatch, name] = cell.firstChild.children;
          swatch.dataset.colour = this.#runs.compared.includes(row.id) ? this.#runs.colour(row.id) : "";
          setName(name, row.name);
          return;
        }
        const value = column.of(row);
        setText(cell, column.kind && loading ? "…" : column.show(value));
        cell.className = typeof value === "string" ? "" : "num";
      });
    });
  }

  #heading({ key, name }) {
    const sort = () => {
      this.#sort = this.#sort === key ? `-${key}` : key;
      remember("sort", this.#sort);
      this.#show();
    };
    return el("th", { scope: "col" }, el("button", { type: "button", class: "quiet", onclick: sort, "aria-label": `Sort by ${name}` }));
  }

  #cell({ key }, row) {
    if (key !== "name") return el("td");
    return el("th", { scope: "row", title: row.name }, el("div", {}, el("i", { class: "swatch" }),
      el("button", { type: "button", class: "quiet", onclick: () => this.#runs.focus(row.id) })));
  }
}

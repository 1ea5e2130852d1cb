// The newest log lines of the run in focus: at most MOST of them, of the chosen level, followed or not.

import { request, runPath } from "./api.js";
import { $, clock, el } from "./dom.js";
import { remember, remembered } from "./settings.js";

const MOST = 1000;
const LEVELS = { DEBUG: 10, INFO: 20, WARNING: 30, ERROR: 40, CRITICAL: 50 };

export class Log {
  #runs;
  #of = null;
  #next = 0; // the number of the first line that is not here
  #level = remembered("level", 20);
  #following = true;
  #touched = -Infinity; // when the reader's hand was last here
  #waiting = [];

  constructor(runs) {
    this.#runs = runs;
    runs.addEventListener("focus", () => runs.focused !== this.#of && this.reload());
    $("log-level").value = String(this.#level);
    $("log-level").addEventListener("change", ({ target }) => {
      this.#level = Number(target.value);
      remember("level", this.#level);
      for (const line of $("log-lines").children) line.hidden = Number(line.dataset.level) < this.#level;
      this.#scroll();
    });
    $("log-follow").addEventListener("change", ({ target }) => this.follow(target.checked));
    for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) {
      $("log-lines").addEventListener(kind, () => (this.#touched = performance.now()), { passive: true });
    }
    $("log-lines").addEventListener("scroll", ({ target }) => {
      if (performance.now() - this.#touched > 400) return; // not the reader's: lines came, or were hidden
      const end = target.scrollHeight - target.scrollTop - target.clientHeight < 8;
      if (end !== this.#following) this.follow(end);
    });
  }

  follow(on = !this.#following) {
    this.#following = on;
    $("log-follow").checked = on;
    if (on) this.#scroll();
  }

  async reload() {
    const run = this.#runs.row;
    this.#of = run?.id ?? null;
    this.#next = 0;
    this.#waiting = [];
    $("log-lines").replaceChildren();
    $("log").hidden = !run || run.kind !== "live";
    if ($("log").hidden) return;
    await this.refresh();
  }

  /** Ask for the lines that are missing. */
  async refresh() {
    const run = this.#of;
    if ($("log").hidden) return;
    const answer = await request(runPath(run, `/log?after=${this.#next}`)).catch(() => null);
    if (answer && this.#of === run) this.append({ run, lines: answer.lines });
  }

  append({ run, lines }) {
    if ($("log").hidden || (run != null && run !== this.#of)) return; // without a run: lines of the whole process
    const fresh = lines.filter(({ n }) => n >= this.#next);
    if (!fresh.length) return;
    this.#next = fresh.at(-1).n + 1;
    const own = fresh.filter((line) => line.run == null || line.run === this.#of);
    if (!own.length) return;
    if (!this.#waiting.length) requestAnimationFrame(() => this.#show());
    this.#waiting = [...this.#waiting, ...own].slice(-MOST);
  }

  #show() {
    const place = $("log-lines");
    place.append(...this.#waiting.map((line) => this.#line(line)));
    this.#waiting = [];
    while (place.children.length > MOST) place.firstChild.remove();
    if (this.#following) this.#scroll();
  }

  #line({ time, level, logger, text }) {
    const number = LEVELS[level] ?? 20;
    return el("p", { "data-level": number, hidden: number < this.#level, title: logger },
      el("time", {}, clock(time, true)), el("span", { class: "level" }, level), el("span", { class: "text" }, text));
  }

  #scroll() {
    $("log-lines").scrollTop = $("log-lines").scrollHeight;
  }
}

// The run in focus: its state in figures, and the buttons that act on it.

import { request, runPath } from "./api.js";
import { $, ago, clock, duration, el, fillRows, rate, setText, whole } from "./dom.js";
import { isEnded, stateOf } from "./runs.js";

const TITLE_MS = 100; // each change of the title goes to another process of the browser

/** Show a short message; it goes by itself, is read out, and at most four are there. */
export function toast(text, problem = false) {
  const one = el("p", { class: problem ? "toast problem" : "toast" }, text);
  one.addEventListener("click", () => one.remove());
  $("toasts").append(one);
  while ($("toasts").children.length > 4) $("toasts").firstChild.remove();
  setTimeout(() => one.remove(), problem ? 12000 : 5000);
}

/** Ask in a dialog; the reason (maybe empty) where it was confirmed, null otherwise. */
export function ask({ title, text, yes, reason = true }) {
  const dialog = $("ask");
  setText($("ask-title"), title);
  setText($("ask-text"), text);
  setText($("ask-yes"), yes);
  $("ask-reason-label").hidden = !reason;
  $("ask-reason").value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    const answer = () => resolve(dialog.returnValue === "yes" ? $("ask-reason").value.trim() : null);
    dialog.addEventListener("close", answer, { once: true });
  });
}

/** Whether an action is possible now: files can be verified, a session that is open can do everything. */
export const may = (row, action) =>
  action === "verify" || (row.kind === "live" && (row.state === "open" || (action === "stop" && row.state === "opening")));

/** Post an action of a run; say what came of it; whether it was done. */
export async function act(row, path, done, body = {}) {
  try {
    const answer = await request(runPath(row.id, path), { body });
    toast(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (error) {
    toast(error.message, true);
    return false;
  }
}

export class Status {
  #runs;
  #announced = null;
  #titled = null; // the timer of the next change of the title
  #refresh;

  constructor(runs, refresh) {
    this.#runs = runs;
    this.#refresh = refresh;
    $("save").addEventListener("click", () => this.save());
    $("pause").addEventListener("click", () => this.pause());
    $("stop").addEventListener("click", () => this.stop());
    $("remove").addEventListener("click", () => this.remove());
    runs.addEventListener("focus", () => this.show());
    setInterval(() => document.hidden || this.#facts(), 1000);
  }

  async save() {
    const row = this.#runs.row;
    if (!row || !may(row, "save")) return;
    const button = $("save");
    button.setAttribute("aria-busy", "true");
    await act(row, "/save", ({ path }) => `Saved ${path ?? "a checkpoint"}.`);
    button.removeAttribute("aria-busy");
    this.#refresh();
  }

  async pause() {
    const row = this.#runs.row;
    if (!row || !may(row, row.paused ? "resume" : "pause")) return;
    if (row.paused) await act(row, "/resume", `${row.name} resumed.`);
    else await act(row, "/pause", `${row.name} paused before its next step.`);
    this.#refresh();
  }

  async stop() {
    const row = this.#runs.row;
    if (!row || !may(row, "stop")) return;
    const text = "The session ends after the current step, saves a last checkpoint and closes. It cannot be restarted from here.";
    const reason = await ask({ title: `Stop ${row.name}?`, text, yes: "Stop" });
    if (reason == null) return;
    await act(row, "/stop", `Stop of ${row.name} requested.`, reason ? { reason } : {});
    this.#refresh();
  }

  async remove() {
    const row = this.#runs.row;
    if (!row) return;
    const text = "The run leaves this page until the monitor is started again. Its files stay, and its training is not affected.";
    if ((await ask({ title: `Remove ${row.name}?`, text, yes: "Remove", reason: false })) == null) return;
    await act(row, "/remove", `${row.name} removed.`);
  }

  show() {
    const row = this.#runs.row;
    $("status").hidden = !row;
    $("loading").hidden = true;
    $("no-runs").hidden = Boolean(row);
    if (!row) return;
    const [word, kind] = stateOf(row);
    setText($("run-name"), row.name);
    setText($("run-state"), word);
    $("run-state").dataset.state = kind;
    $("save").disabled = !may(row, "save");
    $("pause").disabled = !may(row, row.paused ? "resume" : "pause");
    $("stop").disabled = !may(row, "stop");
    setText($("pause"), row.paused ? "Resume" : "Pause");
    const ended = isEnded(kind);
    for (const name of ["save", "pause", "stop"]) $(name).hidden = row.kind !== "live" || ended;
    $("remove").hidden = row.kind === "live" && !ended;
    const bar = $("progress");
    bar.parentNode.hidden = !row.last_step;
    if (row.last_step) bar.value = Math.min(1, (row.step ?? 0) / row.last_step);
    const failed = row.outcome === "failed" ? row.last_error : row.last_error && `The last run failed: ${row.last_error}`;
    const reason = row.outcome === "failed" ? failed : (row.stop_reason ?? failed);
    $("reason").hidden = !reason;
    $("reason").classList.toggle("problem", Boolean(failed) && reason === failed);
    setText($("reason"), reason ?? "");
    this.#facts();
    this.#announce(row, word);
    this.#titled ??= setTimeout(() => this.#title(), TITLE_MS);
  }

  #title() {
    const row = this.#runs.row;
    this.#titled = null;
    if (row) document.title = `${row.step == null ? "" : `${whole(row.step)} · `}${row.name} · asyncmon`;
  }

  #facts() {
    const row = this.#runs.row;
    if (!row) return;
    const ended = isEnded(stateOf(row)[1]);
    const facts = [
      ["step", row.last_step ? `${whole(row.step)} / ${whole(row.last_step)}` : whole(row.step)],
      ["rate", rate(row.rate)],
      ["ETA", ended || row.eta_secs == null ? "–" : duration(Math.max(0, row.eta_secs))],
      ["started", row.started == null ? "–" : clock(row.started)],
      [ended ? "ran for" : "running for", row.started == null ? "–" : duration((ended ? row.updated : Date.now() / 1000) - row.started)],
      ["last change", ago(row.updated)],
      ...Object.entries(row.metrics ?? {}).map(([name, value]) => [name, Number(value).toPrecision(5)]),
    ];
    fillRows($("facts"), facts, ([name]) => name,
      ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
      (item, [, value]) => setText(item.lastChild, value));
  }

  /** Read out changes of state, and nothing of the steps in between. */
  #announce(row, word) {
    const now = `${row.name}: ${word}${row.stop_reason ? `, ${row.stop_reason}` : ""}`;
    if (now === this.#announced) return;
    this.#announced = now;
    setText($("announce"), now);
  }
}

// The tables of the run in focus: hooks, checkpoints, timers and tasks, loop lag, queues, pipelines. Asked for every
// two seconds while the run lives and the page is seen.

import { request, runPath } from "./api.js";
import { $, bytes, clock, duration, el, fillRows, number, setName, setText, whole } from "./dom.js";
import { isEnded, stateOf } from "./runs.js";
import { act, ask, may } from "./status.js";

const EVERY_MS = 2000;
const EVERY_MS_ENDED = 15000;
const FOLDED_FROM = 3; // equal tasks

const cell = (kind = null) => el("td", { class: kind });

/** Fill the rows of a section, or show its sentence for having none. */
function table(section, body, items, key, make, update) {
  const any = items.length > 0;
  const sentence = $(section).querySelector(".empty");
  $(section).querySelector(".scroll").hidden = !any;
  if (sentence) sentence.hidden = any;
  fillRows($(body), items, key, make, update);
}

/** Tasks whose names differ in their numbers alone and that wait at the same line, as one row with their count. */
function folded(tasks) {
  const groups = Map.groupBy
    ? Map.groupBy(tasks, alike)
    : tasks.reduce((map, one) => map.set(alike(one), [...(map.get(alike(one)) ?? []), one]), new Map());
  return [...groups.values()].flatMap((some) => {
    if (some.length < FOLDED_FROM) return some;
    const all = some.map(({ name }) => name).join(", ");
    return [{ ...some[0], name: `${some.length} × ${some[0].name.replace(/\d+/g, "#")}`, all }];
  });
}

const alike = ({ name, waits_for, done }) => JSON.stringify([name.replace(/\d+/g, "#"), waits_for, done]);

function verdict(checkpoints) {
  const damaged = checkpoints.filter((one) => one.verified === false).length;
  return damaged ? `${damaged} of ${checkpoints.length} checkpoints damaged.` : `${checkpoints.length} checkpoints verified.`;
}

export class Details {
  #runs;
  #timer = 0;
  #asked = 0;
  #shown = null;

  constructor(runs) {
    this.#runs = runs;
    runs.addEventListener("focus", () => runs.focused !== this.#shown && this.refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    $("verify").addEventListener("click", () => this.#verify());
  }

  /** Ask now, and again after a while. */
  async refresh() {
    clearTimeout(this.#timer);
    const row = this.#runs.row;
    $("columns").hidden = !row;
    if (!row) return;
    const asked = ++this.#asked;
    const other = this.#shown !== row.id;
    this.#shown = row.id;
    if (other) this.#busy(true);
    const details = await request(runPath(row.id)).catch(() => null);
    if (asked !== this.#asked) return;
    this.#busy(false);
    if (details) this.#show(details);
    if (document.hidden) return;
    const ended = row.kind !== "live" || isEnded(stateOf(row)[1]);
    this.#timer = setTimeout(() => this.refresh(), ended ? EVERY_MS_ENDED : EVERY_MS);
  }

  #busy(busy) {
    for (const section of ["hooks", "checkpoints", "tasks", "loop"]) $(section).setAttribute("aria-busy", String(busy));
  }

  #show(details) {
    for (const section of ["hooks", "tasks", "loop"]) $(section).hidden = details.kind !== "live";
    this.#hooks(details);
    this.#checkpoints(details);
    this.#tasks(details);
    this.#loop(details);
    this.#pipelines(details);
  }

  #hooks(details) {
    const { hooks } = details;
    const most = Math.max(1e-12, ...hooks.map((hook) => hook.secs_per_step ?? 0));
    const make = (hook) => el("tr", {}, el("th", { scope: "row" }, el("span"), el("span", { class: "note problem" })),
      el("td", { class: "num meter" }, el("meter", { max: 1, "aria-hidden": "true" }), el("span")),
      cell("num total"), cell("num"),
      el("td", { class: "act" }, el("button", { type: "button", class: "quiet", title: "Detach", onclick: () => this.#detach(hook) }, "✕")));
    table("hooks", "hook-rows", hooks, (hook) => hook.id, make, (tr, hook) => {
      const [name, each, total, failures, action] = tr.children;
      setName(name.firstChild, hook.name);
      name.title = `${hook.name}: ${whole(hook.calls)} calls, priority ${hook.priority}`;
      setText(name.lastChild, hook.last_error ?? "");
      each.firstChild.value = (hook.secs_per_step ?? 0) / most;
      setText(each.lastChild, duration(hook.secs_per_step));
      setText(total, duration(hook.total_secs));
      setText(failures, whole(hook.failures));
      failures.classList.toggle("problem", hook.failures > 0);
      action.firstChild.hidden = !may(details, "detach");
      action.firstChild.setAttribute("aria-label", `Detach ${hook.name}`);
    });
  }

  #checkpoints(details) {
    const { checkpoints: all, saving } = details; // the newest first
    setText($("saving"), saving ? `saving${saving.step == null ? "" : ` step ${whole(saving.step)}`}…` : "");
    $("verify").hidden = !all.length || !may(details, "verify");
    const make = () => el("tr", {}, el("th", { scope: "row" }, el("span"), el("span", { class: "note problem" })),
      cell("num"), cell("num"), cell(), cell("verdict"));
    table("checkpoints", "checkpoint-rows", all, (one) => one.path, make, (tr, one) => {
      const [name, age, size, kept, verdict] = tr.children;
      const file = one.path.split("/").at(-1);
      setText(name.firstChild, file === `model.ckpt-${one.step}` ? whole(one.step) : file);
      name.title = one.path;
      setText(name.lastChild, one.problem ?? "");
      setText(age, duration(one.saved == null ? null : Date.now() / 1000 - one.saved, 1));
      age.title = clock(one.saved);
      setText(size, bytes(one.bytes));
      setText(kept, one.kept ? "✓" : "–");
      kept.title = one.kept ? "Listed in the directory's state file" : "Not listed in the directory's state file";
      setText(verdict, one.verified === true ? "✓ verified" : one.verified === false ? "✗ damaged" : "not verified");
      verdict.dataset.verified = String(one.verified);
    });
  }

  #tasks(details) {
    const timers = details.timers.map((one) => ({
      ...one, kind: "timer", text: `every ${duration(one.every_secs).replace(/ 00 .$/, "")}`, next: duration(one.next_secs),
    }));
    const tasks = folded(details.tasks).map((one) => ({
      ...one, kind: "task", text: one.done ? "done" : (one.waits_for ?? "").replace(/^it waits in /, ""), next: "",
    }));
    const all = [...timers, ...tasks].map((one, index) => ({ ...one, key: `${one.kind} ${index} ${one.name}` }));
    const make = () => el("tr", {}, el("th", { scope: "row" }, el("span")), cell("waits"), cell("num"));
    table("tasks", "task-rows", all, (one) => one.key, make, (tr, one) => {
      const [name, text, next] = tr.children;
      setName(name.firstChild, one.name);
      name.title = `${one.kind} ${one.all ?? one.name}`;
      setText(text, one.text.replace(/\([^()]*\//, "(")); // the file without its folder
      text.title = one.text;
      setText(next, one.next);
    });
  }

  #loop(details) {
    const lag = details.loop_lag ?? {};
    const facts = ["p50", "p95", "p99", "max"].filter((name) => lag[name] != null).map((name) => [`lag ${name}`, lag[name]]);
    facts.push(["recoveries", details.recoveries]);
    fillRows($("lag"), facts, ([name]) => name, ([name]) => el("div", {}, el("dt", {}, name), el("dd")), (item, [name, value]) => {
      setText(item.lastChild, name === "recoveries" ? whole(value) : duration(value));
      item.classList.toggle("problem", name === "recoveries" ? false : value >= 0.1);
    });
    const make = () => el("tr", {}, el("th", { scope: "row" }, el("span")), el("td", {}, el("meter", { min: 0 })), cell("num"));
    table("loop", "queue-rows", details.queues, (one) => one.name, make, (tr, one) => {
      const [name, bar, count] = tr.children;
      setName(name.firstChild, one.name);
      name.title = one.name;
      bar.firstChild.max = one.capacity || Math.max(1, one.size);
      bar.firstChild.value = one.size;
      setText(count, one.capacity ? `${whole(one.size)} / ${whole(one.capacity)}` : whole(one.size));
    });
  }

  #pipelines(details) {
    const make = () => el("div", { class: "pipeline" }, el("h3"), el("dl", { class: "facts" }));
    fillRows($("pipelines"), details.pipelines, (one) => one.name, make, (pipeline, one) => {
      const [name, facts] = pipeline.children;
      setText(name, one.name);
      const ages = Object.entries(one.ages).map(([age, count]) => [Number(age), count]);
      const count = ages.reduce((sum, [, n]) => sum + n, 0);
      const mean = ages.reduce((sum, [age, n]) => sum + age * n, 0) / count;
      const values = {
        consumed: whole(one.consumed), "in calls": whole(one.running), ready: whole(one.ready), waiting: whole(one.queued),
        age: count ? `${number(mean, 2)}, up to ${Math.max(...ages.map(([age]) => age))}` : "–",
        dropped: whole(one.dropped), "made again": whole(one.again), failures: whole(one.failures),
        "learner waited": duration(one.learner_wait_secs), "workers waited": duration(one.workers_wait_secs),
      };
      const fact = ([label]) => el("div", {}, el("dt", {}, label), el("dd"));
      fillRows(facts, Object.entries(values), ([label]) => label, fact, (item, [label, value]) => {
        setText(item.lastChild, value);
        item.classList.toggle("problem", label === "failures" && one.failures > 0);
      });
    });
  }

  async #verify() {
    $("verify").setAttribute("aria-busy", "true");
    await act(this.#runs.row, "/verify", ({ checkpoints }) => verdict(checkpoints));
    $("verify").removeAttribute("aria-busy");
    this.refresh();
  }

  async #detach(hook) {
    const row = this.#runs.row;
    const text = "The hook is no longer called. A new session has it again.";
    if ((await ask({ title: `Detach ${hook.name}?`, text, yes: "Detach", reason: false })) == null) return;
    await act(row, `/hooks/${encodeURIComponent(hook.id)}/detach`, `Detached ${hook.name}.`);
    this.refresh();
  }
}

// Puts the parts together. Events come in by the Stream, the Runs say which run is meant, the rest shows it.

import { request } from "./api.js";
import { Charts } from "./charts.js";
import { Details } from "./details.js";
import { $, duration, setText } from "./dom.js";
import { Keys } from "./keys.js";
import { Log } from "./log.js";
import { Media } from "./media.js";
import { Runs } from "./runs.js";
import { link, remember, remembered } from "./settings.js";
import { Status, toast } from "./status.js";
import { Stream } from "./stream.js";
import { Table } from "./table.js";

const runs = new Runs();
const details = new Details(runs);
const status = new Status(runs, () => details.refresh());
const charts = new Charts(runs);
const log = new Log(runs);
const media = new Media(runs);
const table = new Table(runs, charts);
const stream = new Stream();
let lost = false; // since the connection was live

stream.addEventListener("runs", ({ detail }) => runs.setRows(detail));
stream.addEventListener("status", ({ detail }) => runs.update(detail));
stream.addEventListener("scalars", ({ detail }) => charts.append(detail));
stream.addEventListener("log", ({ detail }) => log.append(detail));
stream.addEventListener("reset", () => {
  charts.reload();
  log.refresh();
  details.refresh();
  media.refresh();
  table.refresh();
});
stream.addEventListener("token", () => login());
stream.addEventListener("state", ({ detail: { state, secs } }) => {
  const texts = {
    connecting: "connecting",
    live: "live",
    lost: secs == null ? "not connected" : `connection lost, next try in ${duration(secs)}`,
    asleep: "asleep",
  };
  $("connection").dataset.state = state;
  document.documentElement.dataset.connection = state;
  setText($("connection").firstChild, texts[state]);
  $("reconnect").hidden = state !== "lost";
  if (state === "lost") lost = true;
  if (state !== "live") return;
  charts.retry();
  if (lost) log.reload();
  lost = false;
});
$("reconnect").addEventListener("click", () => stream.connect());

// The token: from the fragment, which is never sent, or from the form; the server answers with a cookie.

function login(error) {
  if (error != null) setText($("login-error"), error);
  if (!$("login").open) $("login").showModal();
}

async function send(token) {
  try {
    await request("api/login", { body: { token } });
    $("login").close();
    stream.connect();
  } catch (error) {
    login(error.message);
  }
}

$("login").addEventListener("cancel", (event) => event.preventDefault());
$("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  send($("token").value);
  $("token").value = "";
});

// Colours: the system's, light, dark.

function showTheme() {
  const theme = document.documentElement.dataset.theme;
  setText($("theme"), { "": "◐ auto", light: "○ light", dark: "● dark" }[theme]);
  $("theme").setAttribute("aria-label", `Colours: ${theme || "as the system"}`);
  charts.recolour();
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  applyTheme(theme);
  try {
    localStorage.setItem("asyncmon.theme", theme);
  } catch {
    // storage is blocked: the choice lives as long as the page
  }
  showTheme();
}

$("theme").addEventListener("click", nextTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
showTheme();

// Panels are collapsed at a click on their titles.

const collapsed = new Set(remembered("collapsed", []));
for (const section of document.querySelectorAll("section:has(h2 > button.fold)")) {
  const button = section.querySelector("button.fold");
  const show = () => {
    section.toggleAttribute("data-collapsed", collapsed.has(section.id));
    button.setAttribute("aria-expanded", String(!collapsed.has(section.id)));
  };
  button.addEventListener("click", () => {
    if (!collapsed.delete(section.id)) collapsed.add(section.id);
    remember("collapsed", [...collapsed]);
    show();
  });
  show();
}

// The header may have several lines: a panel that is scrolled to begins below it.

new ResizeObserver(([{ target }]) => {
  document.documentElement.style.scrollPaddingTop = `${target.offsetHeight + 8}px`;
}).observe(document.querySelector(".top"));

// A link to this view.

$("link").addEventListener("click", async () => {
  runs.keep();
  const address = link();
  try {
    await navigator.clipboard.writeText(address);
    toast("Link copied.");
  } catch {
    toast("The link is in the address bar.");
  }
});

const AXES = ["step", "elapsed", "clock"];
const jump = (name) => () => {
  $(name).scrollIntoView();
  $(name).focus({ preventScroll: true });
};
const smoother = (by) => () => charts.set("smoothing", Math.min(0.99, Math.max(0, Math.round((charts.smoothing + by) * 100) / 100)));

new Keys([
  ["j", "next run", () => runs.step(1)],
  ["k", "run before", () => runs.step(-1)],
  ["x", "show this run in the charts, or not", () => runs.row && runs.compare(runs.focused, !runs.compared.includes(runs.focused))],
  ["/", "filter the tags", () => $("tags").focus()],
  ["l", "logarithmic y", () => charts.set("log", !charts.log)],
  ["t", "x by step, elapsed time, clock time", () => charts.set("x", AXES[(AXES.indexOf(charts.x) + 1) % 3])],
  ["[", "smooth less", smoother(-0.1)],
  ["]", "smooth more", smoother(0.1)],
  ["0", "show everything again after a zoom", () => charts.zoom(null)],
  ["s", "save a checkpoint now", () => status.save()],
  ["p", "pause or resume", () => status.pause()],
  ["f", "follow the log, or not", () => log.follow()],
  ["d", "change the colours", nextTheme],
  ...["charts", "table", "media", "hooks", "checkpoints", "tasks", "loop", "log"].map((name, index) => [String(index + 1), `go to: ${name}`, jump(name)]),
]);

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  history.replaceState(null, "", location.pathname + location.search);
  await send(given);
}
stream.start();

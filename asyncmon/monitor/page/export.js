// Charts as files: a picture with its legend, and the points as a table.

import { points } from "./api.js";
import { el, number, whole } from "./dom.js";

const MOST = 1_000_000; // points of a run
const LINE = 18;

export function download(name, blob) {
  const href = URL.createObjectURL(blob);
  el("a", { href, download: name.replace(/[^\w.=-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** A PNG of a canvas under a title, above a line for each {name, colour, value, step}. */
export function png(title, canvas, curves) {
  const scale = devicePixelRatio;
  const picture = el("canvas", { width: canvas.width, height: canvas.height + (curves.length + 3) * LINE * scale });
  const context = picture.getContext("2d");
  const style = getComputedStyle(document.body);
  const probe = document.querySelector("main section");
  context.fillStyle = getComputedStyle(probe).backgroundColor;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(canvas, 0, 2 * LINE * scale);
  context.scale(scale, scale);
  context.fillStyle = style.color;
  context.font = "600 13px system-ui, sans-serif";
  context.fillText(title, 10, 1.2 * LINE);
  context.font = "12px system-ui, sans-serif";
  const top = 2 * LINE + canvas.height / scale;
  curves.forEach(({ name, colour, value, step }, index) => {
    const y = top + (index + 1) * LINE;
    context.fillStyle = colour;
    context.fillRect(10, y - 9, 10, 10);
    context.fillStyle = style.color;
    context.fillText(`${name}: ${number(value)} at step ${whole(step)}`, 28, y);
  });
  return new Promise((resolve) => picture.toBlob(resolve, "image/png"));
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** All points of a tag as CSV: run, step, seconds since 1970, value. */
export async function csv(runs, tag) {
  const lines = ["run,step,wall_time,value"];
  const answers = await Promise.all(runs.map(({ id }) => points(id, tag, {}, MOST)));
  runs.forEach(({ name }, index) => {
    const { steps, values, wall_times: times } = answers[index];
    steps.forEach((step, i) => lines.push(`${quoted(name)},${step},${times[i]},${values[i]}`));
  });
  return new Blob([`${lines.join("\n")}\n`], { type: "text/csv" });
}

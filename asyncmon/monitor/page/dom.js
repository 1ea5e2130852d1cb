// Elements, and numbers as text. Every text from the server goes through textContent.

export const $ = (id) => document.getElementById(id);

/** Make an element: properties, `class`, `data-*`, `aria-*` and `on*` handlers, then children. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null && child !== ""));
  return element;
}

/** Set a text only where it differs, so that the selection and aria-live regions are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const TAIL = 9; // characters after the gap
const FITS = 24; // characters of a name that has none
const RULER = document.createElement("canvas").getContext("2d");

/** Set a name that loses its middle where it is too long, so that names with one prefix stay distinguishable. */
export function setName(element, name) {
  if (element.textContent === name) return;
  const cut = name.length > FITS ? name.length - TAIL : name.length;
  RULER.font = "600 100px system-ui, sans-serif";
  element.style.setProperty("--tail", `${RULER.measureText(name.slice(cut)).width / 100}em`);
  element.classList.add("middle");
  element.replaceChildren(el("span", {}, name.slice(0, cut)), el("span", {}, name.slice(cut)));
}

/** What a filter lets pass: a regular expression, or a plain text where it is none. */
export function matcher(filter) {
  try {
    const pattern = new RegExp(filter, "i");
    return (text) => pattern.test(text);
  } catch {
    return (text) => text.toLowerCase().includes(filter.toLowerCase());
  }
}

/** Make the rows of a table body, kept by key, so that focus stays where it is. */
export function fillRows(body, items, key, make, update) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach((item, index) => {
    const name = String(key(item));
    let row = old.get(name);
    if (!row) {
      row = make(item);
      row.dataset.key = name;
    }
    old.delete(name);
    update(row, item);
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  for (const row of old.values()) row.remove();
}

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const whole = (n) => (n == null ? "–" : GROUPED.format(n));

/** A value with about `digits` significant digits. */
export function number(value, digits = 4) {
  if (value == null) return "–";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(digits - 2);
  if (Number.isInteger(value)) return GROUPED.format(value);
  return value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))));
}

/** Seconds as the largest two units, or one: "850 µs", "3.2 s", "4 m 05 s", "2 h 07 m", "3 d 04 h". */
export function duration(secs, units = 2) {
  if (secs == null || !Number.isFinite(secs)) return "–";
  if (secs < 0) return `−${duration(-secs, units)}`;
  if (secs === 0) return "0 s";
  if (secs < 1e-3) return `${(secs * 1e6).toFixed(secs < 1e-5 ? 1 : 0)} µs`;
  if (secs < 1) return `${(secs * 1e3).toPrecision(3)} ms`;
  if (secs < 60) return `${secs.toFixed(1)} s`;
  const two = (n) => String(n).padStart(2, "0");
  const all = Math.round(secs);
  const [size, name, small, smaller] = all < 3600 ? [60, "m", 1, "s"] : all < 86400 ? [3600, "h", 60, "m"] : [86400, "d", 3600, "h"];
  const large = `${Math.floor(all / size)} ${name}`;
  return units < 2 ? large : `${large} ${two(Math.floor((all % size) / small))} ${smaller}`;
}

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < 4; unit++) count /= 1024;
  return `${unit && count < 100 ? count.toPrecision(3) : count.toFixed(0)} ${units[unit]}`;
}

/** Steps per second, or per minute or hour where they are rarer. */
export function rate(perSecond) {
  if (perSecond == null) return "–";
  if (perSecond >= 0.5 || perSecond === 0) return `${number(perSecond, 3)}/s`;
  return perSecond * 60 >= 0.5 ? `${number(perSecond * 60, 3)}/min` : `${number(perSecond * 3600, 3)}/h`;
}

const pad = (n, width = 2) => String(n).padStart(width, "0");

/** The local time of day, with the date where it is not today. */
export function clock(secs, millis = false) {
  if (secs == null) return "–";
  const at = new Date(secs * 1000);
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const date = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const today = at.toDateString() === new Date().toDateString();
  return `${today ? "" : `${date} `}${time}${millis ? `.${pad(at.getMilliseconds(), 3)}` : ""}`;
}

export function ago(secs) {
  if (secs == null) return "–";
  const age = Date.now() / 1000 - secs;
  return age < 2 ? "now" : `${duration(age)} ago`;
}

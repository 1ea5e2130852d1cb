// What the reader chose: kept by the browser for each place where the page is mounted, and in the address, so that
// a link shows the same view. An address with choices has all of them: the others are at their defaults.

const text = (values) => values[0] ?? "";
const list = (values) => values.filter(Boolean);
const LINKED = {
  focused: text, compared: list, runs: text, tags: text, pinned: list, sort: text, x: text,
  smoothing: (values) => Number(values[0]), log: (values) => values[0] === "true", zoom: (values) => list(values).map(Number),
};
const DELAY_MS = 300; // browsers complain about an address that changes too often

const given = new URLSearchParams(location.search);
const isLink = Object.keys(LINKED).some((name) => given.has(name));
const defaults = new Map();
const chosen = new Map();
let timer = 0;

const key = (name) => `asyncmon.${location.pathname}.${name}`;

/** A choice of the address or of an earlier visit; null and undefined are none. */
export function remembered(name, otherwise) {
  let value = otherwise;
  if (isLink && name in LINKED) {
    if (given.has(name)) value = LINKED[name](given.getAll(name));
  } else {
    try {
      value = JSON.parse(localStorage.getItem(key(name))) ?? otherwise;
    } catch {
      // storage is blocked
    }
  }
  defaults.set(name, otherwise);
  chosen.set(name, value);
  return value;
}

export function remember(name, value) {
  chosen.set(name, value);
  try {
    localStorage.setItem(key(name), JSON.stringify(value));
  } catch {
    // storage is blocked or full: the choice lives as long as the page
  }
  if (!(name in LINKED)) return;
  clearTimeout(timer);
  timer = setTimeout(link, DELAY_MS);
}

/** Put all choices into the address, and return it. */
export function link() {
  clearTimeout(timer);
  const query = new URLSearchParams();
  for (const name of Object.keys(LINKED)) {
    const value = chosen.get(name);
    if (value == null || JSON.stringify(value) === JSON.stringify(defaults.get(name))) continue;
    const values = [value].flat();
    for (const one of values.length ? values : [""]) query.append(name, one);
  }
  const search = query.size ? `?${query}` : "";
  history.replaceState(null, "", location.pathname + search + location.hash);
  return location.href;
}

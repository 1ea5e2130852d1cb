// Shortcuts of one key, and the dialog that lists them.

import { $, el } from "./dom.js";
import { remember, remembered } from "./settings.js";

export class Keys {
  #keys;

  /** `keys` is a list of [key, what it does, function]. */
  constructor(keys) {
    this.#keys = [["?", "list these shortcuts", () => this.help()], ...keys];
    $("shortcuts-on").checked = remembered("shortcuts", true);
    $("shortcuts-on").addEventListener("change", ({ target }) => remember("shortcuts", target.checked));
    $("help").addEventListener("click", () => this.help());
    const more = [
      ["← →", "in a chart: move the cursor (with Shift: faster)"],
      ["+ −", "in a chart: zoom"],
      ["Enter", "in a chart: enlarge"],
      ["Esc", "close a dialog, leave a chart's cursor"],
    ];
    $("shortcut-list").append(...[...this.#keys, ...more].map(([key, text]) =>
      el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, text))));
    document.addEventListener("keydown", (event) => this.#press(event));
  }

  help() {
    if (!$("shortcuts").open) $("shortcuts").showModal();
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input:not([type=checkbox], [type=range]), select, textarea, dialog")) return;
    if (!$("shortcuts-on").checked && event.key !== "?") return;
    const found = this.#keys.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  }
}

// The colour scheme, set before the first paint: "light", "dark", or "" for the system's own.
"use strict";

const THEMES = ["", "light", "dark"];

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

try {
  applyTheme(localStorage.getItem("asyncmon.theme") ?? "");
} catch {
  applyTheme(""); // storage is blocked
}

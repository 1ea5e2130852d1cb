// The graph of the run in focus as a picture that can be moved and made larger.

import { request, runPath } from "./api.js";
import { $, setText } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set("svg g path rect ellipse circle line polyline polygon text tspan title defs marker".split(" "));
const ATTRIBUTES = new Set((
  "class viewBox transform d x y x1 y1 x2 y2 cx cy r rx ry dx dy width height points text-anchor dominant-baseline " +
  "font-size markerWidth markerHeight refX refY orient markerUnits marker-end marker-start preserveAspectRatio textLength"
).split(" "));

/** Copy what is a picture, and leave out everything else: styles, scripts, links, handlers. */
function copied(element) {
  const copy = document.createElementNS(SVG, element.localName);
  for (const { name, value } of element.attributes) if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  if (copy.localName === "marker") copy.id = element.id; // no other id may come beside the page's own
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE && ELEMENTS.has(child.localName)) copy.append(copied(child));
  }
  return copy;
}

export class GraphPicture {
  #runs;
  #of = null; // the run that is shown
  #state = null; // its state when the picture was asked for
  #svg = null;
  #whole = null; // the view box of everything: [x, y, width, height]
  #box = null;

  constructor(runs) {
    this.#runs = runs;
    runs.addEventListener("focus", () => {
      const opened = !this.#svg && runs.row?.state !== this.#state; // a session has its graph once it is open
      if (runs.focused !== this.#of || opened) this.load();
    });
    $("graph-in").addEventListener("click", () => this.#zoom(1 / 1.4));
    $("graph-out").addEventListener("click", () => this.#zoom(1.4));
    $("graph-fit").addEventListener("click", () => this.#show(this.#whole));
    const place = $("graph-picture");
    place.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    place.addEventListener("pointerdown", (event) => this.#drag(event));
    place.addEventListener("keydown", (event) => this.#key(event));
  }

  async load() {
    const run = this.#runs.row;
    this.#of = run?.id ?? null;
    this.#state = run?.state;
    $("graph").hidden = !run;
    if (!run) return;
    let picture = null;
    let problem = "";
    try {
      const text = await request(runPath(run.id, "/graph.svg"), { text: true });
      if (text) picture = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
      else problem = "This run has no graph yet.";
      if (picture && picture.localName !== "svg") [picture, problem] = [null, "The picture of the graph cannot be read."];
    } catch (error) {
      problem = error.message;
    }
    if (this.#of !== run.id) return;
    this.#svg = picture && copied(picture);
    $("graph-picture").hidden = !picture;
    $("graph").querySelector(".empty").hidden = Boolean(picture);
    setText($("graph").querySelector(".empty"), problem);
    for (const name of ["graph-in", "graph-out", "graph-fit"]) $(name).hidden = !picture;
    if (!picture) return;
    const box = this.#svg.viewBox.baseVal;
    this.#whole = box?.width ? [box.x, box.y, box.width, box.height] : [0, 0, 800, 600];
    this.#svg.removeAttribute("width");
    this.#svg.removeAttribute("height");
    const nodes = this.#svg.querySelectorAll("title").length;
    $("graph-picture").setAttribute("aria-label", `The graph of ${run.name}: ${nodes} nodes. Arrows move it, + and − change its size, 0 shows all.`);
    $("graph-picture").replaceChildren(this.#svg);
    this.#show(this.#whole);
  }

  #show(box) {
    this.#box = box;
    $("graph-picture").toggleAttribute("data-zoomed", box !== this.#whole);
    this.#svg?.setAttribute("viewBox", box.join(" "));
  }

  /** Make the shown stretch `factor` times as large, around a point given as shares of the width and height. */
  #zoom(factor, across = 0.5, down = 0.5) {
    if (!this.#svg) return;
    const [x, y, width, height] = this.#box;
    const wide = Math.max(this.#whole[2] / 100, Math.min(this.#whole[2] * 2, width * factor));
    const high = (height * wide) / width;
    this.#show([x + (width - wide) * across, y + (height - high) * down, wide, high]);
  }

  #move(across, down) {
    const [x, y, width, height] = this.#box;
    this.#show([x + across * width, y + down * height, width, height]);
  }

  #wheel(event) {
    if (!this.#svg || !(event.ctrlKey || event.metaKey || event.shiftKey)) return; // a plain wheel scrolls the page
    event.preventDefault();
    const place = this.#svg.getBoundingClientRect();
    const by = event.deltaY || event.deltaX;
    this.#zoom(by > 0 ? 1.15 : 1 / 1.15, (event.clientX - place.left) / place.width, (event.clientY - place.top) / place.height);
  }

  #drag(event) {
    if (!this.#svg || event.button !== 0) return;
    if (event.pointerType === "touch" && this.#box === this.#whole) return; // touch scrolls the page
    const place = $("graph-picture");
    let [x, y] = [event.clientX, event.clientY];
    const per = this.#box[2] / place.clientWidth;
    const move = (now) => {
      this.#show([this.#box[0] - (now.clientX - x) * per, this.#box[1] - (now.clientY - y) * per, this.#box[2], this.#box[3]]);
      [x, y] = [now.clientX, now.clientY];
    };
    place.setPointerCapture(event.pointerId);
    place.addEventListener("pointermove", move);
    place.addEventListener("lostpointercapture", () => place.removeEventListener("pointermove", move), { once: true });
  }

  #key(event) {
    const keys = {
      ArrowLeft: () => this.#move(-0.1, 0), ArrowRight: () => this.#move(0.1, 0),
      ArrowUp: () => this.#move(0, -0.1), ArrowDown: () => this.#move(0, 0.1),
      "+": () => this.#zoom(1 / 1.4), "-": () => this.#zoom(1.4), 0: () => this.#show(this.#whole),
    };
    if (!this.#svg || !keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }
}

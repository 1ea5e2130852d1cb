// The graph of the run in focus: scopes open at a click, laid out by dagre, moved and made larger by hand.

import { request, runPath } from "./api.js";
import { Graph, layout } from "./dagre.esm.js";
import { $, setText } from "./dom.js";
import { Scopes } from "./scopes.js";

const SVG = "http://www.w3.org/2000/svg";
const LONGEST = 24; // characters of a label
const LETTER = 6.6;
const LINE = 24;
const MARGIN = 14;

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Long labels lose their middle, so that they stay distinguishable. */
const short = (label) => (label.length <= LONGEST ? label : `${label.slice(0, LONGEST / 2 - 1)}…${label.slice(-LONGEST / 2)}`);

/** Set the width and height of a box, the place of each box in it, and the points of its edges. */
function arrange(box) {
  const width = short(box.label).length * LETTER + 16;
  if (!box.inner.length) return Object.assign(box, { width, height: LINE });
  box.inner.forEach(arrange);
  const graph = new Graph();
  graph.setGraph({ nodesep: 18, ranksep: 30, edgesep: 8, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  box.inner.forEach((inner, index) => {
    inner.key = String(index);
    graph.setNode(inner.key, inner);
  });
  for (const edge of box.edges) graph.setEdge(edge.from.key, edge.to.key, edge);
  layout(graph);
  const size = graph.graph();
  const title = box.label ? LINE * 0.6 : 0;
  const left = Math.max(0, (width - size.width) / 2);
  for (const inner of box.inner) [inner.x, inner.y] = [inner.x - inner.width / 2 + left, inner.y - inner.height / 2 + title];
  for (const { points } of box.edges) for (const point of points) [point.x, point.y] = [point.x + left, point.y + title];
  return Object.assign(box, { width: Math.max(width, size.width), height: size.height + title });
}

/** A curve through the points of an edge. */
function curve(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const [first, ...rest] = points;
  const last = rest.pop();
  const parts = rest.map((point, i) => {
    const next = rest[i + 1];
    const end = next ? { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 } : last;
    return `Q${at(point)} ${at(end)}`;
  });
  return `M${at(first)}${parts.join("")}${rest.length ? "" : `L${at(last)}`}`;
}

export class GraphPicture {
  #runs;
  #of = null; // the run that is shown
  #state = null; // its state when the graph was requested
  #nodes = null;
  #scopes = null;
  #found = new Set();
  #svg = null;
  #whole = null; // the view box of everything: [x, y, width, height]
  #box = null;
  #dragged = false;

  constructor(runs) {
    this.#runs = runs;
    runs.addEventListener("focus", () => {
      const opened = !this.#nodes && runs.row?.state !== this.#state; // a session has its graph once it is open
      if (runs.focused !== this.#of || opened) this.load();
    });
    $("graph-in").addEventListener("click", () => this.#zoom(1 / 1.4));
    $("graph-out").addEventListener("click", () => this.#zoom(1.4));
    $("graph-fit").addEventListener("click", () => this.#show(this.#whole));
    $("graph-find").addEventListener("change", () => this.#find());
    $("graph-auxiliary").addEventListener("change", () => this.#build());
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
    let [nodes, problem] = [null, "Loading the graph …"];
    this.#tell(problem);
    try {
      nodes = (await request(runPath(run.id, "/graph"))).nodes;
      if (!nodes?.length) [nodes, problem] = [null, "This run has no graph yet."];
    } catch (error) {
      problem = error.message;
    }
    if (this.#of !== run.id) return;
    this.#nodes = nodes;
    this.#tell(nodes ? "" : problem);
    if (nodes) this.#build();
  }

  #tell(problem) {
    $("graph-picture").hidden = Boolean(problem);
    $("graph").querySelector(".empty").hidden = !problem;
    setText($("graph").querySelector(".empty"), problem);
    for (const element of $("graph").querySelectorAll("button:not(.fold), label")) element.hidden = Boolean(problem);
  }

  #build() {
    if (!this.#nodes) return;
    this.#scopes = new Scopes(this.#nodes, { auxiliary: $("graph-auxiliary").checked });
    this.#find();
  }

  #find() {
    const text = $("graph-find").value.trim();
    this.#found = new Set(text && this.#scopes ? this.#scopes.find(text) : []);
    $("graph-find").setAttribute("aria-invalid", String(Boolean(text) && !this.#found.size));
    this.#draw();
    const first = this.#svg?.querySelector(".found rect");
    if (first) {
      const [, , width, height] = this.#whole;
      const [wide, high] = [Math.min(width, 700), Math.min(height, 400)];
      this.#show([Number(first.getAttribute("x")) - wide / 2, Number(first.getAttribute("y")) - high / 2, wide, high]);
    }
  }

  #draw() {
    if (!this.#scopes) return;
    const whole = arrange(this.#scopes.boxes());
    const marker = svg("marker", { id: "arrow", markerWidth: 7, markerHeight: 7, refX: 6, refY: 3, orient: "auto" }, svg("path", { d: "M0 0L6 3L0 6z" }));
    this.#svg = svg("svg", { "font-size": 11, "text-anchor": "middle" }, svg("defs", {}, marker));
    this.#drawInside(whole, 0, 0);
    this.#whole = [0, 0, whole.width, whole.height];
    $("graph-picture").setAttribute("aria-label", `The graph of ${this.#runs.row.name}: ${this.#scopes.size} operations. Arrows move it, + and − change its size, 0 shows all. Scopes open and close at a click.`);
    $("graph-picture").replaceChildren(this.#svg);
    this.#show(this.#whole);
  }

  #drawInside(box, x, y) {
    for (const { points, control } of box.edges) {
      const moved = points.map((point) => ({ x: x + point.x, y: y + point.y }));
      this.#svg.append(svg("path", { class: control ? "edge control" : "edge", "marker-end": "url(#arrow)", d: curve(moved) }));
    }
    for (const inner of box.inner) this.#drawBox(inner, x + inner.x, y + inner.y);
  }

  #drawBox(box, x, y) {
    const isScope = box.kind.startsWith("scope");
    const text = svg("text", { x: x + box.width / 2, y: box.inner.length ? y + 15 : y + box.height / 2 + 4 }, short(box.label));
    const rect = svg("rect", { x, y, width: box.width, height: box.height, rx: isScope ? 4 : box.height / 2 });
    const group = svg("g", { class: `${box.kind}${this.#found.has(box.name) ? " found" : ""}` }, svg("title", {}, box.title), rect, text);
    if (isScope) {
      group.addEventListener("click", () => {
        if (this.#dragged) return;
        const shown = this.#box === this.#whole ? null : this.#box;
        this.#scopes.toggle(box);
        this.#draw();
        if (shown) this.#show(shown);
      });
    }
    this.#svg.append(group);
    this.#drawInside(box, x, y);
  }

  #show(box) {
    this.#box = box;
    $("graph-picture").toggleAttribute("data-zoomed", box !== this.#whole);
    this.#svg?.setAttribute("viewBox", box.join(" "));
  }

  /** Scale the view by `factor` around a point given as fractions of the width and height. */
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
    this.#dragged = false;
    if (!this.#svg || event.button !== 0) return;
    if (event.pointerType === "touch" && this.#box === this.#whole) return; // touch scrolls the page
    const place = $("graph-picture");
    let [x, y] = [event.clientX, event.clientY];
    const per = this.#box[2] / place.clientWidth;
    const move = (now) => {
      if (!this.#dragged && Math.hypot(now.clientX - x, now.clientY - y) < 4) return; // a click
      if (!this.#dragged) place.setPointerCapture(event.pointerId);
      this.#dragged = true;
      this.#show([this.#box[0] - (now.clientX - x) * per, this.#box[1] - (now.clientY - y) * per, this.#box[2], this.#box[3]]);
      [x, y] = [now.clientX, now.clientY];
    };
    const end = () => {
      place.removeEventListener("pointermove", move);
      for (const name of ["pointerup", "pointercancel"]) removeEventListener(name, end);
    };
    place.addEventListener("pointermove", move);
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, end);
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

// A graph as nested boxes: operations, and name scopes that are collapsed until they are opened. No DOM.

const WIDEST = 40; // boxes of one scope; a further box stands for the rest

const AUXILIARY = /^(save|report_uninitialized_variables|report_uninitialized_resources)(_\d+)?\/|^(init|init_\d+|group_deps(_\d+)?)$/;

const source = (input) => input.replace(/^\^/, "");

class Scope {
  constructor(name, outer) {
    this.name = name;
    this.outer = outer;
    this.scopes = new Map();
    this.nodes = [];
    this.head = null; // the node with the scope's own name: a variable with its initialiser and slots
    this.size = 0;
  }

  *all() {
    yield* this.nodes;
    for (const scope of this.scopes.values()) yield* scope.all();
  }
}

export class Scopes {
  #nodes;
  #root = new Scope("", null);
  #opened = new Set([""]);
  #whole = new Set(); // scopes without a limit of their width

  /** Nodes are {name, op, kind, title, inputs}. Savers and initialisers are left out unless `auxiliary`. */
  constructor(nodes, { auxiliary = false } = {}) {
    const uses = new Map();
    for (const node of nodes) for (const input of node.inputs) uses.set(source(input), (uses.get(source(input)) ?? 0) + 1);
    const isShown = (node) => (auxiliary || !AUXILIARY.test(node.name)) && (node.op !== "Const" || node.inputs.length || uses.get(node.name) > 1);
    this.#nodes = new Map(nodes.filter(isShown).map((node) => [node.name, node]));
    for (const node of this.#nodes.values()) this.#place(node);
  }

  get size() {
    return this.#nodes.size;
  }

  #place(node) {
    const parts = node.name.split("/");
    let scope = this.#root;
    scope.size++;
    for (let depth = 1; depth < parts.length; depth++) {
      const name = parts.slice(0, depth).join("/");
      if (!scope.scopes.has(name)) scope.scopes.set(name, new Scope(name, scope));
      scope = scope.scopes.get(name);
      scope.size++;
      scope.head = this.#nodes.get(name) ?? null;
      if (scope.head) break;
    }
    scope.nodes.push(node);
  }

  toggle(box) {
    if (box.rest) this.#whole.add(box.scope);
    else if (!this.#opened.delete(box.name)) this.#opened.add(box.name);
  }

  /** Open the scopes around the nodes whose names contain a text; return the names of these nodes. */
  find(text) {
    const found = [...this.#nodes.keys()].filter((name) => name.toLowerCase().includes(text.toLowerCase()));
    for (const name of found.slice(0, 100)) {
      const parts = name.split("/");
      for (let depth = 1; depth < parts.length; depth++) {
        const outer = parts.slice(0, depth).join("/");
        if (this.#nodes.has(outer)) break;
        this.#opened.add(outer);
      }
    }
    return found;
  }

  /** Return the box that holds everything: {name, label, kind, title, inner, edges: [{from, to, control}]}. */
  boxes() {
    const boxOf = new Map(); // by names of nodes
    const whole = this.#box(this.#root, null, boxOf);
    this.#connect(boxOf);
    return whole;
  }

  #box(scope, outer, boxOf) {
    const label = scope.name.slice(scope.name.lastIndexOf("/") + 1);
    const box = { name: scope.name, label, kind: "scope", title: `${scope.name}: ${scope.size} operations`, outer, inner: [], edges: [] };
    if (!this.#opened.has(scope.name)) {
      if (scope.head) Object.assign(box, this.#operation(scope.head), { title: `${scope.head.title}\n${scope.size} operations belong to it` });
      else Object.assign(box, { kind: "scope collapsed", label: `${label} (${scope.size})` });
      for (const node of scope.all()) boxOf.set(node.name, box);
      if (scope.head) boxOf.set(scope.head.name, box);
      return box;
    }
    const limit = this.#whole.has(scope.name) ? Infinity : WIDEST - 1;
    const heads = new Set([...scope.scopes.values()].map((inner) => inner.head));
    const scopes = [...scope.scopes.values()].sort((one, other) => other.size - one.size);
    const alone = scope.nodes.filter((node) => !heads.has(node));
    const room = Math.max(0, limit - scopes.length);
    for (const inner of scopes.slice(0, limit)) box.inner.push(this.#box(inner, box, boxOf));
    for (const node of alone.slice(0, room)) {
      const operation = { ...this.#operation(node), outer: box, inner: [], edges: [] };
      box.inner.push(operation);
      boxOf.set(node.name, operation);
    }
    const rest = [...alone.slice(room), ...scopes.slice(limit).flatMap((inner) => [...inner.all()])];
    if (rest.length) {
      const more = { name: `${scope.name}/`, label: `${rest.length} more`, kind: "scope collapsed", title: `${rest.length} further operations`, rest: true, scope: scope.name, outer: box, inner: [], edges: [] };
      box.inner.push(more);
      for (const node of rest) boxOf.set(node.name, more);
    }
    return box;
  }

  #operation(node) {
    return { name: node.name, label: node.name.slice(node.name.lastIndexOf("/") + 1), kind: `op ${node.kind}`.trim(), title: node.title };
  }

  /** Put each edge into the innermost scope that holds both ends, between the two boxes there. */
  #connect(boxOf) {
    const chain = (box) => (box ? [...chain(box.outer), box] : []);
    const known = new Map();
    for (const node of this.#nodes.values()) {
      for (const input of node.inputs) {
        const [from, to] = [boxOf.get(source(input)), boxOf.get(node.name)];
        if (!from || !to || from === to) continue;
        const [begin, end] = [chain(from), chain(to)];
        const depth = begin.findIndex((box, index) => box !== end[index]);
        if (depth < 0 || !end[depth]) continue;
        const key = `${begin[depth].name}\n${end[depth].name}`;
        const edge = known.get(key) ?? { from: begin[depth], to: end[depth], control: true };
        edge.control &&= input.startsWith("^");
        if (!known.has(key)) begin[depth - 1].edges.push(edge);
        known.set(key, edge);
      }
    }
  }
}

// The server's events, with reconnection. Events are given on as CustomEvents of their own name; `state` says how
// the connection is: "connecting", "live", "lost" (with the seconds to the next try) or "asleep" (hidden page).

import { failures, request } from "./api.js";

const KINDS = ["status", "scalars", "log", "runs"];
const FIRST_DELAY = 0.5;
const LONGEST_DELAY = 10;
const STEADY_MS = 5000; // the server ends each stream after a minute: one that lasted so long is just opened again
const HIDDEN_SECS = 60; // a page that nobody sees lets the server alone after that

export class Stream extends EventTarget {
  #source = null;
  #timer = 0;
  #delay = FIRST_DELAY;
  #last = null; // the id of the last event, to go on from
  #generation = 0;
  #again = false; // was open before
  #refused = false; // waits for the token

  start() {
    failures.addEventListener("failure", ({ detail }) => this.#failed(detail));
    document.addEventListener("visibilitychange", () => this.#visibility());
    addEventListener("online", () => this.connect());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", ({ persisted }) => persisted && this.connect());
    this.connect();
  }

  /** Try now; quietly: it is no loss of the connection that is repaired. */
  async connect(quietly = false) {
    this.#close();
    this.#refused = false;
    const generation = this.#generation;
    if (!quietly) this.#say("connecting");
    let rows;
    try {
      rows = (await request("api/runs")).runs;
    } catch (error) {
      if (error.status !== 0 && generation === this.#generation) this.#failed(error);
      return; // a failure of status 0 has come by #failed already
    }
    if (generation !== this.#generation) return;
    if (this.#last != null) this.#emit("runs", rows);
    this.#listen(rows);
  }

  #listen(rows) {
    const source = new EventSource(`api/events${this.#last == null ? "" : `?after=${encodeURIComponent(this.#last)}`}`);
    this.#source = source;
    const fresh = this.#last == null;
    let opened = Infinity;
    source.onopen = () => {
      opened = performance.now();
      this.#delay = FIRST_DELAY;
      this.#say("live");
      if (fresh) this.#emit("runs", rows); // what is asked for now and the events have no gap between them
      if (fresh && this.#again) this.#emit("reset");
      this.#again = true;
    };
    source.onerror = () => {
      if (this.#source !== source) return;
      if (!this.#again) this.#emit("runs", rows); // too many viewers: show at least what is there
      if (performance.now() - opened > STEADY_MS) this.connect(true);
      else this.#failed();
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (event.lastEventId) this.#last = event.lastEventId;
        const data = JSON.parse(event.data);
        this.#emit(kind, kind === "runs" ? data.runs : data);
      });
    }
    source.addEventListener("reset", (event) => {
      this.#last = event.lastEventId || null;
      this.#reload();
      this.#emit("reset");
    });
  }

  async #reload() {
    const { runs } = await request("api/runs").catch(() => ({}));
    if (runs) this.#emit("runs", runs);
  }

  #failed(error) {
    if (this.#refused) return;
    this.#close();
    if (error?.status === 401) {
      this.#refused = true;
      this.#say("lost");
      this.#emit("token");
      return;
    }
    if (document.hidden) return this.#say("asleep");
    const delay = this.#delay * (0.75 + Math.random() / 2);
    this.#delay = Math.min(LONGEST_DELAY, this.#delay * 2);
    this.#say("lost", delay);
    this.#timer = setTimeout(() => this.connect(), delay * 1000);
  }

  #visibility() {
    clearTimeout(this.#timer);
    if (document.hidden) {
      this.#timer = setTimeout(() => {
        this.#close();
        this.#say("asleep");
      }, HIDDEN_SECS * 1000);
    } else if (!this.#source && !this.#refused) this.connect();
  }

  #close() {
    this.#generation++;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #say(state, secs = null) {
    this.#emit("state", { state, secs });
  }

  #emit(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}

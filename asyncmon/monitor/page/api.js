// Requests to the server, relative to the page, so that it works wherever it is mounted.

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status; // 0: there was no answer
  }
}

/** Called with every ApiError of status 0 or 401: the connection is lost, or a token is needed. */
export const failures = new EventTarget();

export async function request(path, { body, signal } = {}) {
  const options = body === undefined ? { signal } : {
    method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let error;
  try {
    const response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
    if (response.ok) return await response.json();
    const said = await response.json().catch(() => ({}));
    error = new ApiError(response.status, said.error ?? `The server answered ${response.status} to ${path}.`);
  } catch (reason) {
    if (reason.name === "AbortError") throw reason;
    error = new ApiError(0, "The server does not answer.");
  }
  if (error.status === 0 || error.status === 401) {
    failures.dispatchEvent(new CustomEvent("failure", { detail: error }));
  }
  throw error;
}

export const runPath = (run, rest = "") => `api/runs/${encodeURIComponent(run)}${rest}`;

const BATCH = 16; // tags in one request: a URL has its limits
const waiting = new Map();

/**
 * The points of a tag, with `query` {by, low, high, reduce}, all of them optional. What is asked within 15 ms is one request for
 * each run.
 */
export function points(run, tag, query, count) {
  const key = JSON.stringify([run, query, count]);
  if (!waiting.has(key)) {
    waiting.set(key, []);
    setTimeout(() => {
      const asked = waiting.get(key);
      waiting.delete(key);
      for (let i = 0; i < asked.length; i += BATCH) askPoints(run, asked.slice(i, i + BATCH), query, count);
    }, 15);
  }
  return new Promise((resolve, reject) => waiting.get(key).push({ tag, resolve, reject }));
}

async function askPoints(run, asked, given, count) {
  const query = new URLSearchParams({ max_points: count, ...given });
  for (const tag of new Set(asked.map(({ tag }) => tag))) query.append("tag", tag);
  try {
    const { series } = await request(runPath(run, `/scalars/points?${query}`));
    for (const { tag, resolve } of asked) resolve(series[tag] ?? { steps: [], values: [], wall_times: [] });
  } catch (error) {
    for (const { reject } of asked) reject(error);
  }
}

// The points of one tag of one run: {steps, values, times}, in the order of arrival. The server drops the steps that a
// restart undid, and reduces long series; here is nothing of either. No document here.

export const empty = () => ({ steps: [], values: [], times: [] });

/** Add points, without those that are there already, and return how many. */
export function extend(series, { steps, values, wall_times: times }) {
  const before = series.steps.length;
  for (let i = 0; i < steps.length; i++) {
    if (steps[i] <= series.steps.at(-1) && times[i] <= series.times.at(-1)) continue;
    series.steps.push(steps[i]);
    series.values.push(Number(values[i])); // "NaN" and "Infinity" are strings in JSON
    series.times.push(times[i]);
  }
  return series.steps.length - before;
}

/** The points and their xs in the order of x, as a chart needs them. */
export function ordered({ steps, values, times }, xs) {
  if (xs.every((x, i) => i === 0 || xs[i - 1] <= x)) return { steps, values, times, xs };
  const order = xs.map((_, i) => i).sort((a, b) => xs[a] - xs[b]);
  const by = (list) => order.map((i) => list[i]);
  return { steps: by(steps), values: by(values), times: by(times), xs: by(xs) };
}

/** TensorBoard's smoothing: an exponential moving average without the bias to its start. */
export function smooth(values, weight) {
  const finite = values.filter(Number.isFinite);
  if (weight <= 0 || finite.every((value) => value === finite[0])) return values;
  let last = 0;
  let count = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    last = last * weight + (1 - weight) * value;
    count++;
    return last / (1 - weight ** count);
  });
}

/** Values as a chart takes them: null is a gap (NaN, infinities, and what a logarithm has no place for). */
export const drawable = (values, log) =>
  values.map((value) => (Number.isFinite(value) && !(log && value <= 0) ? value : null));

/** The index of the value of an ordered list that is nearest to x; -1 in an empty list. */
export function nearest(list, x) {
  let low = 0;
  let high = list.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] < x) low = middle;
    else high = middle;
  }
  return x - list[low] <= list[high] - x ? low : high;
}

/** Least, greatest and last value: the text that stands beside a picture of the points. */
export function summary({ steps, values }) {
  const finite = values.filter(Number.isFinite);
  return {
    points: values.length,
    odd: values.length - finite.length,
    least: finite.reduce((a, b) => Math.min(a, b), Infinity),
    greatest: finite.reduce((a, b) => Math.max(a, b), -Infinity),
    step: steps.at(-1),
    last: values.at(-1),
  };
}

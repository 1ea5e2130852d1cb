// The points of one tag of one run: {steps, values, times}, ordered by step. No document here.

export const empty = () => ({ steps: [], values: [], times: [] });

/**
 * Add points that are newer than the last one, and return how many. A step that goes back (a restart from a
 * checkpoint) drops the points from that step on, as TensorBoard does.
 */
export function extend(series, { steps, values, wall_times: times }) {
  let added = 0;
  for (let i = 0; i < steps.length; i++) {
    let last = series.steps.length - 1;
    if (last >= 0 && steps[i] <= series.steps[last] && times[i] <= series.times[last]) continue;
    for (; last >= 0 && series.steps[last] >= steps[i]; last--) {
      series.steps.pop();
      series.values.pop();
      series.times.pop();
    }
    series.steps.push(steps[i]);
    series.values.push(Number(values[i])); // "NaN" and "Infinity" are strings in JSON
    series.times.push(times[i]);
    added++;
  }
  return added;
}

/**
 * At most some `limit` points: of equal stretches of the steps the least and the greatest and the first that is not
 * finite, and the newest point of all; or of each stretch the mean. The stretches are powers of two of the steps, so that they stay
 * where they are while points are added.
 */
export function thin(series, limit, mean = false) {
  const { steps, values, times } = series;
  const count = steps.length;
  if (count < 3) return series;
  const wanted = (steps[count - 1] - steps[0]) / (mean ? limit : limit / 2);
  const width = 2 ** Math.ceil(Math.log2(wanted || 1));
  const kept = empty();
  const keep = (i, value = values[i]) => {
    kept.steps.push(steps[i]);
    kept.values.push(value);
    kept.times.push(times[i]);
  };
  for (let start = 0, i = 0; start < count; start = i) {
    const bucket = Math.floor(steps[start] / width);
    let low = -1, high = -1, odd = -1, sum = 0, finite = 0;
    for (; i < count && Math.floor(steps[i] / width) === bucket; i++) {
      if (!Number.isFinite(values[i])) {
        if (odd < 0) odd = i;
        continue;
      }
      if (low < 0 || values[i] < values[low]) low = i;
      if (high < 0 || values[i] > values[high]) high = i;
      sum += values[i];
      finite++;
    }
    const last = i === count ? count - 1 : -1;
    if (mean && finite) keep(last < 0 ? (start + i - 1) >> 1 : last, sum / finite);
    else for (const one of [...new Set([low, high, odd, last])].sort((x, y) => x - y)) if (one >= 0) keep(one);
  }
  return kept;
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

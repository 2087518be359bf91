// Numbers and times as text.  An unknown value is "?", a value that does not exist is "–"; neither is ever 0.
const whole = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? null : whole.format(value));

/** The lag of several partitions, as the commands count it: at least, if a part is unknown. */
export function lagText(total) {
  if (!total) return null;
  if (total.known === null || total.known === undefined) return total.unknown ? "?" : null;
  return `${total.unknown ? "≥ " : ""}${number(total.known)}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return null;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function clock(ms) {
  return ms === null || ms === undefined ? null : new Date(ms).toLocaleTimeString("en-GB");
}

export function moment(ms) {
  return ms === null || ms === undefined ? null : new Date(ms).toISOString().replace(/\.\d+Z$/, "").replace("T", " ");
}

/** Why the newest read failed, since when, and of which time is what the page shows. */
export function failureText(state) {
  const shown = state.read_at_ms ? `; shown as it was at ${moment(state.read_at_ms)} UTC` : "";
  return `${state.error} (since ${moment(state.failed_since_ms)} UTC${shown})`;
}

/** [0, 1, 2, 5] -> "0–2, 5" */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let at = 0; at < sorted.length;) {
    let end = at;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end += 1;
    parts.push(end === at ? `${sorted[at]}` : `${sorted[at]}–${sorted[end]}`);
    at = end + 1;
  }
  return parts.join(", ");
}

export function count(amount, word) {
  return `${number(amount)} ${word}${amount === 1 ? "" : "s"}`;
}

/** ["clicks-0", "clicks-1"] -> "clicks: 0–1" */
export function partitionsText(names) {
  const topics = new Map();
  for (const name of names) {
    const at = name.lastIndexOf("-");
    const topic = name.slice(0, at);
    if (!topics.has(topic)) topics.set(topic, []);
    topics.get(topic).push(Number(name.slice(at + 1)));
  }
  return [...topics].map(([topic, some]) => `${topic}: ${ranges(some)}`).join("; ");
}

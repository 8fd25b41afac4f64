// The recording: names, times, and where what is.

/** What the page says of itself. It is there before anything else runs. */
let index = null;

/** Kinds of rows, by their numbers. */
const KIND = { cpu: 0, irq: 1, gap: 2, device: 3, thread: 4, calls: 5, graph: 6, idleGraph: 7, marks: 8, event: 9,
  spans: 10, processSpans: 11, moments: 12, counter: 13 };

/** States of threads, by their numbers: names, and the names of their colours. */
const STATES = [
  ["unknown", "unknown"], ["running", "runs"], ["woken, waits for a CPU", "woken"],
  ["preempted, waits for a CPU", "preempted"], ["sleeping", "sleeps"], ["uninterruptible sleep", "blocked"],
  ["stopped", "stopped"],
];
const RUNS = 1;
const WOKEN = 2;
const PREEMPTED = 3;
const BLOCKED = 5;

const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** A length of time. */
const duration = (time) => {
  if (!index.nanoseconds) return `${count(Math.round(time))} ticks`;
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  for (const [scale, unit] of units) {
    if (Math.abs(time) >= scale) return `${Number((time / scale).toPrecision(6))} ${unit}`;
  }
  return `${Math.round(time * 10) / 10} ns`;
};

/** A time since the first event, in full. */
const sinceStart = (time) => {
  if (!index.nanoseconds) return `${count(Math.round(time))} ticks`;
  const digits = String(Math.max(0, Math.round(time))).padStart(10, "0");
  return `${digits.slice(0, -9)}.${digits.slice(-9)} s`;
};

/** A time of the recording's clock. */
const onClock = (time) => {
  const all = BigInt(index.first) + BigInt(Math.round(time));
  if (!index.nanoseconds) return String(all);
  const digits = String(all).padStart(10, "0");
  return `${digits.slice(0, -9)}.${digits.slice(-9)}`;
};

/** The same as wall time, where the recording knows it. */
const onWall = (time) => {
  if (index.wall_offset === null || !index.nanoseconds) return null;
  const all = BigInt(index.first) + BigInt(Math.round(time)) + BigInt(index.wall_offset);
  const date = new Date(Number(all / 1000000n));
  if (all < 0n || Number.isNaN(date.getTime())) return null;
  const rest = String(all % 1000000000n).padStart(9, "0");
  return `${date.toISOString().slice(0, 19).replace("T", " ")}.${rest} UTC`;
};

/** A text without what would disturb a line. */
const oneLine = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/g, "\u00b7");

const threadName = (number) => {
  const thread = index.threads[number];
  return thread ? `${oneLine(thread[1]) || "?"} ${thread[0]}` : "a thread";
};

/** A process by its id: the name is that of its first thread. */
const processName = (id) => {
  const main = index.threads.find((thread) => thread[0] === id);
  return `${(main && oneLine(main[1])) || "process"} ${id}`;
};

const deviceName = (number) => `${Math.floor(number / 2 ** 20)}:${number % 2 ** 20}`;

/** What a key of a row stands for. */
const keyName = (kind, key) => {
  if (key === OTHERS) return "several";
  switch (kind) {
    case KIND.cpu: return threadName(key);
    case KIND.thread: return STATES[key]?.[0] ?? "unknown";
    case KIND.gap: return "events lost";
    case KIND.marks: case KIND.event: return "events";
    default: return oneLine(index.labels[key] ?? "?");
  }
};

/** A row in words. */
const rowName = (row) => {
  const [kind, owner, lane] = index.rows[row];
  switch (kind) {
    case KIND.cpu: return `CPU ${owner}`;
    case KIND.irq: return `interrupts of CPU ${owner}`;
    case KIND.gap: return `losses of CPU ${owner}`;
    case KIND.device: return `block device ${deviceName(owner)}, request ${lane + 1}`;
    case KIND.thread: return `thread ${threadName(owner)}`;
    case KIND.calls: return `system calls of ${threadName(owner)}`;
    case KIND.graph: return `functions of ${threadName(owner)}`;
    case KIND.idleGraph: return `functions of idle CPU ${owner}`;
    case KIND.marks: return `events of ${threadName(owner)}`;
    case KIND.spans: return `spans of ${threadName(owner)}`;
    case KIND.processSpans: return `spans of ${processName(owner)}`;
    case KIND.moments: return `moments of ${threadName(owner)}`;
    case KIND.counter: return `${oneLine(index.labels[lane] ?? "?")} of ${processName(owner)}`;
    default: return oneLine(index.events[owner].name);
  }
};

/** The number of the first event of each block, counted from 1. */
let blockStarts = [];

/** The block that has an event, and where; `null` if the page does not have it. */
const findEvent = (number) => {
  let low = 0;
  let high = blockStarts.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (blockStarts[middle] <= number) low = middle + 1;
    else high = middle;
  }
  const at = low - 1;
  const block = index.blocks[at];
  if (!block || number < 1 || number - blockStarts[at] >= block.count) return null;
  return { block, at: number - blockStarts[at] };
};

/** An event with its fields; `null` if the page does not have it. */
const loadEvent = async (number) => {
  const found = findEvent(number);
  if (!found) return null;
  const events = await stores.events.get(found.block);
  const { at } = found;
  const thread = events.thread[at];
  return {
    number, time: events.time[at], cpu: events.cpu[at], event: events.event[at],
    thread: thread ? thread - 1 : null, name: index.events[events.event[at]].name, fields: events.fields(at),
  };
};

/** Blocks of events that have some of a range. */
const blocksOf = (from, to) => index.blocks.filter((block) => block.to >= from && block.from <= to);

// Which lines there are, in which order, and how high. A line has lanes: one for each of its rows.

const HEADER = 30;
const LABELS = 210;
const SECTION = 20;

/** Sections that are closed, by name. */
const closed = new Set();
let lines = [];
let totalHeight = 0;
let filterText = "";
/** The lane of each row that is shown. */
let laneOf = new Map();

/** Numbers of rows by kind and owner. */
let owned = new Map();

const prepareRows = () => {
  owned = new Map();
  index.rows.forEach(([kind, owner, lane], row) => {
    const key = `${kind}:${owner}`;
    const list = owned.get(key) ?? [];
    list[lane] = row;
    owned.set(key, list);
  });
};

const rowsFor = (kind, owner) => (owned.get(`${kind}:${owner}`) ?? []).filter((row) => row !== undefined);
const ownersOf = (kind) => [...new Set(index.rows.filter((row) => row[0] === kind).map((row) => row[1]))];

/** A line: its name, what stands at its right, and lanes as pairs of a row and a height. */
const lineOf = (label, side, lanes, extra = {}) => ({ label, side, lanes, ...extra });

const cpuLines = () => {
  const cpus = new Set([...ownersOf(KIND.cpu), ...ownersOf(KIND.irq), ...ownersOf(KIND.gap), ...ownersOf(KIND.idleGraph)]);
  for (const cpu of index.cpus) if (cpu.events > 0 || cpu.lost > 0) cpus.add(cpu.cpu);
  return [...cpus].sort((one, other) => one - other).map((cpu) => {
    const rows = rowsFor(KIND.cpu, cpu);
    const lanes = rows.length ? rows.map((row) => [row, 20]) : [[null, 16]];
    lanes.push(...rowsFor(KIND.irq, cpu).map((row) => [row, 12]), ...rowsFor(KIND.idleGraph, cpu).map((row) => [row, 12]));
    const told = index.cpus.find((other) => other.cpu === cpu);
    const busy = rows.length && index.span ? `${Math.round((100 * index.rows[rows[0]][4]) / index.span)} %` : "";
    const lost = told && (told.lost || told.uncounted) ? `${told.lost ? count(told.lost) : "?"} lost` : "";
    return lineOf(`CPU ${cpu}`, lost || busy, lanes, { gaps: rowsFor(KIND.gap, cpu), isLost: lost !== "" });
  });
};

const threadLines = () => {
  const time = new Map();
  const add = (kind, weight) => {
    for (const row of index.rows) {
      if (row[0] === kind) time.set(row[1], (time.get(row[1]) ?? 0) + weight(row));
    }
  };
  // By the time that they ran; without switches by what else there is.
  add(KIND.thread, (row) => row[4] + 1);
  add(KIND.calls, (row) => (index.has_switches ? 0 : row[3]));
  add(KIND.graph, (row) => (index.has_switches ? 0 : row[3]));
  add(KIND.marks, (row) => (index.has_switches ? 0 : row[3]));
  add(KIND.spans, (row) => (index.has_switches ? 0 : row[3]));
  const threads = [...time.entries()].sort((one, other) => other[1] - one[1]);
  return threads.map(([thread]) => {
    const state = rowsFor(KIND.thread, thread);
    const lanes = state.length ? state.map((row) => [row, 16]) : [];
    for (const kind of [KIND.calls, KIND.spans, KIND.moments, KIND.graph]) {
      lanes.push(...rowsFor(kind, thread).map((row) => [row, 12]));
    }
    if (!lanes.length) lanes.push([null, 14]);
    const ran = state.length ? duration(index.rows[state[0]][4]) : "";
    return lineOf(threadName(thread), ran, lanes, { marks: rowsFor(KIND.marks, thread)[0], thread });
  });
};

const deviceLines = () => ownersOf(KIND.device).map((device) => {
  const rows = rowsFor(KIND.device, device);
  const requests = rows.reduce((sum, row) => sum + index.rows[row][3], 0);
  return lineOf(`Device ${deviceName(device)}`, count(requests), rows.map((row) => [row, 8]));
});

/** What programs tell of whole processes. */
const processLines = () => {
  const processes = [...new Set([...ownersOf(KIND.processSpans), ...ownersOf(KIND.counter)])].sort((one, other) => one - other);
  return processes.flatMap((process) => {
    const spans = rowsFor(KIND.processSpans, process);
    const lines = rowsFor(KIND.counter, process).map((row) => lineOf(rowName(row), count(index.rows[row][3]), [[row, 14]]));
    if (spans.length) lines.unshift(lineOf(processName(process), "", spans.map((row) => [row, 12])));
    return lines;
  });
};

const eventLines = (isMarker) => index.events
  .map((event, number) => [event, number])
  .filter(([event]) => event.is_marker === isMarker && event.count > 0)
  .sort((one, other) => (one[0].name < other[0].name ? -1 : 1))
  .map(([event, number]) => lineOf(oneLine(event.name), count(event.count), rowsFor(KIND.event, number).map((row) => [row, isMarker ? 18 : 14]), { isEvent: true }));

/** Makes all lines anew. */
const layOut = () => {
  const sections = [
    ["Markers", eventLines(true)], ["Spans and counters", processLines()], ["CPUs", cpuLines()], ["Block devices", deviceLines()],
    ["Threads", threadLines()], ["Events", eventLines(false)],
  ];
  const text = filterText.toLowerCase();
  lines = [];
  laneOf = new Map();
  let y = 0;
  for (const [name, all] of sections) {
    const shown = text ? all.filter((line) => line.label.toLowerCase().includes(text)) : all;
    if (!shown.length) continue;
    lines.push({ section: name, y, height: SECTION, label: name, side: count(shown.length), lanes: [] });
    y += SECTION;
    if (closed.has(name)) continue;
    for (const line of shown) {
      line.y = y;
      let at = 2;
      line.lanes = line.lanes.map(([row, height]) => {
        const lane = { row, y: at, height: height - 1, line, kind: row === null ? null : index.rows[row][0] };
        if (row !== null) laneOf.set(row, lane);
        at += height;
        return lane;
      });
      for (const row of line.gaps ?? []) laneOf.set(row, { row, y: 0, height: at, line, kind: KIND.gap });
      if (line.marks !== undefined) {
        line.marksLane = { row: line.marks, y: at, height: 5, line, kind: KIND.marks };
        laneOf.set(line.marks, line.marksLane);
        at += 6;
      }
      line.height = at + 2;
      y += line.height;
      lines.push(line);
    }
  }
  totalHeight = y;
};

/** The first line that ends below a height. */
const lineAt = (y) => {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (lines[middle].y + lines[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
};

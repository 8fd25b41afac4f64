// What happened in a range: events by name, CPU time by thread, the longest waits.

/** Into how many buckets of the densities that are used a range is divided, at least. */
const FINE = 500;
let statisticsTurn = 0;

/** Events by name, of those with details. */
const countEvents = async (from, to) => {
  const counts = new Map();
  const add = (event, number) => counts.set(event, (counts.get(event) ?? 0) + number);
  for (const told of blocksOf(from, to)) {
    if (told.from >= from && told.to <= to) {
      for (let at = 0; at < told.counts.length; at += 2) add(told.counts[at], told.counts[at + 1]);
      continue;
    }
    const block = await stores.events.get(told);
    for (let at = lowerBound(block.time, from, 0, block.count); at < block.count && block.time[at] <= to; at++) add(block.event[at], 1);
  }
  return [...counts.entries()].sort((one, other) => other[1] - one[1]);
};

/** For how long threads were in each state, and their longest waits. */
const addUpThreads = async (from, to) => {
  const level = levelOf((to - from) / FINE / 4);
  const times = new Map();
  let waits = [];
  const add = (thread, state, time) => {
    const row = times.get(thread) ?? new Float64Array(STATES.length);
    row[state] += time;
    times.set(thread, row);
  };
  const threadOf = (row) => (index.rows[row][0] === KIND.thread ? index.rows[row][1] : null);
  const overlaps = (told) => told[4] >= from && told[3] <= to;
  for (const told of index.slices.filter((other) => other[0] > level && overlaps(other))) {
    const block = await stores.slices.get(told);
    for (const [row, [begin, end]] of block.rows) {
      const thread = threadOf(row);
      if (thread === null) continue;
      for (let at = begin; at < end; at++) {
        const time = Math.min(to, block.end[at]) - Math.max(from, block.start[at]);
        if (time <= 0) continue;
        const key = block.key[at];
        add(thread, key, time);
        if (key === WOKEN || key === PREEMPTED || key === BLOCKED) waits.push([block.end[at] - block.start[at], sliceAt(block, at, row)]);
      }
    }
    waits = waits.sort((one, other) => other[0] - one[0]).slice(0, 10);
  }
  const least = level >= 0 ? level : index.detailed < index.total && to > index.detailed_to ? 0 : -1;
  for (const told of index.densities.filter((other) => other[0] === least && overlaps(other))) {
    const block = await stores.densities.get(told);
    for (const [row, [begin, end]] of block.rows) {
      const thread = threadOf(row);
      if (thread === null) continue;
      for (let at = begin; at < end; at++) {
        const start = level < 0 ? Math.max(block.start[at], index.detailed_to) : block.start[at];
        const part = (Math.min(to, block.start[at] + block.width) - Math.max(from, start)) / block.width;
        if (part > 0) add(thread, block.key[at], block.time[at] * Math.min(1, part));
      }
    }
  }
  // At both ends a bucket may be counted that is only in part in the range.
  const ends = Number(from > 0) + Number(to < index.span);
  const within = level >= 0 ? ends * index.base * 4 ** level : 0;
  return { times, waits, within };
};

const statisticsTable = (caption, heads, rows) => make("table", {}, make("caption", { text: caption }),
  make("thead", {}, make("tr", {}, ...heads.map((name) => make("th", { scope: "col", text: name })))),
  make("tbody", {}, ...rows));

const updateStatistics = async () => {
  const panel = document.getElementById("statistics");
  if (panel.hidden) return;
  const turn = ++statisticsTurn;
  const { from, to } = currentRange();
  const length = Math.max(1, to - from);
  const [events, { times, waits, within }] = await Promise.all([countEvents(from, to), addUpThreads(from, to)]);
  if (turn !== statisticsTurn) return;
  const cell = (text) => make("td", { class: "number", text });
  const about = within ? `, within ±${duration(within)}` : "";
  const ran = [...times.entries()].filter(([, states]) => states[RUNS] + states[WOKEN] + states[PREEMPTED] + states[BLOCKED] > 0)
    .sort((one, other) => other[1][RUNS] - one[1][RUNS]);
  const threads = ran.slice(0, 100).map(([thread, states]) => make("tr", {}, make("td", { text: threadName(thread) }),
    cell(duration(states[RUNS])), cell(`${((100 * states[RUNS]) / length).toFixed(1)} %`),
    cell(duration(states[WOKEN] + states[PREEMPTED])), cell(duration(states[BLOCKED]))));
  const most = ran.length > 100 ? `, the first 100 of ${count(ran.length)}` : "";
  const counted = events.map(([event, number]) => make("tr", {}, make("td", { text: oneLine(index.events[event].name) }), cell(count(number))));
  const total = events.reduce((sum, [, number]) => sum + number, 0);
  const ends = to > index.detailed_to && index.detailed < index.total ? `, up to ${sinceStart(index.detailed_to)} only` : "";
  const waited = waits.map(([time, slice]) => make("tr", {},
    make("td", {}, make("button", { type: "button", class: "link", text: duration(time), click: () => { showSlice(slice); choose(slice); } })),
    make("td", { text: threadName(index.rows[slice.row][1]) }), make("td", { text: keyName(slice.kind, slice.key) })));
  const where = selection ? "Selection" : "View";
  panel.replaceChildren(
    make("p", { text: `${where}: ${duration(length)} from ${sinceStart(Math.max(0, from))}` }),
    make("div", { class: "columns" },
      statisticsTable(`CPU time by thread${about}${most}`, ["thread", "ran", "of the time", "waited for a CPU", "uninterruptible"], threads),
      statisticsTable(`${count(total)} events${ends}`, ["event", "count"], counted),
      statisticsTable("Longest waits", ["length", "thread", "what for"], waited)));
};

const setSelection = (from, to) => {
  selection = from === null ? null : { from: Math.min(from, to), to: Math.max(from, to) };
  tableFirst = null;
  redraw();
  saveLink();
  if (selection) say(`Selected ${duration(selection.to - selection.from)} from ${sinceStart(Math.max(0, selection.from))}`);
  updatePanel();
};

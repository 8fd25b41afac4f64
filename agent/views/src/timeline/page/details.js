// The panel's details: what was chosen, with the fields of its events. All texts go in as texts.

/** An element with attributes and children, which are elements or texts. */
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") element.addEventListener("click", value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};

const say = (text) => { document.getElementById("status").textContent = text; };

/** A table of names and values. */
const fieldTable = (caption, pairs) => {
  const rows = pairs.map(([name, value]) => make("tr", {}, make("th", { scope: "row", text: oneLine(name) }),
    make("td", {}, ...(value instanceof Node ? [value] : [String(value)]))));
  return make("table", { class: "fields" }, make("caption", { text: caption }), make("tbody", {}, ...rows));
};

/** When and where an event was. */
const factsOf = (event) => {
  const pairs = [
    ["event", oneLine(event.name)], ["time", onClock(event.time)], ["since start", sinceStart(event.time)],
    ["CPU", event.cpu], ["thread", event.thread === null ? "-" : threadName(event.thread)],
  ];
  const wall = onWall(event.time);
  if (wall) pairs.splice(3, 0, ["wall time", wall]);
  return pairs;
};

/** The fields of an event: its own first, those that all events have at the end. */
const fieldsOf = (event) => {
  const isCommon = ([name]) => name.startsWith("common_");
  return [...event.fields.filter((field) => !isCommon(field)), ...event.fields.filter(isCommon)];
};

/** An event as a table. */
const eventTable = (title, event, pairs) => {
  const table = fieldTable(title, pairs);
  table.dataset.event = event.number;
  return table;
};

/** Counts what was chosen, so that what comes late is not shown any more. */
let choices = 0;

const choose = async (what) => {
  chosen = what;
  choices++;
  const turn = choices;
  redraw();
  saveLink();
  const panel = document.getElementById("details");
  if (!what) {
    panel.replaceChildren(make("p", { class: "faint", text: "Click a slice or an event, or press ] to go to the next one." }));
    return;
  }
  showTab("details", false);
  if (what.event !== undefined) await detailsOfEvent(what, panel, turn);
  else await detailsOfSlice(what, panel, turn);
};

const detailsOfEvent = async (what, panel, turn) => {
  const event = await loadEvent(what.event);
  if (turn !== choices) return;
  if (!event) {
    panel.replaceChildren(make("p", { text: "The page has no details of this event." }));
    return;
  }
  const steps = make("p", {},
    make("button", { type: "button", text: "Previous event", click: () => chooseEvent(what.event - 1, true) }), " ",
    make("button", { type: "button", text: "Next event", click: () => chooseEvent(what.event + 1, true) }));
  const facts = eventTable(`Event ${count(event.number)} of ${count(index.total)}`, event, factsOf(event));
  const columns = make("div", { class: "columns" }, make("div", {}, facts, steps), eventTable("Fields", event, fieldsOf(event)));
  panel.replaceChildren(columns);
  say(`${oneLine(event.name)} at ${sinceStart(event.time)} on CPU ${event.cpu}`);
};

/** Chooses an event by its number, and shows it. */
const chooseEvent = async (number, doShow) => {
  const event = await loadEvent(number);
  if (!event) {
    say("There is no such event in the page.");
    return null;
  }
  if (doShow && (event.time < view.from || event.time > view.to)) {
    const half = Math.min((view.to - view.from) / 2, Math.max(index.base * 100, 50));
    show(event.time - half, event.time + half);
  }
  await choose({ event: number, time: event.time });
  return event;
};

const argument = (slice) => {
  const { kind, key, arg } = slice;
  if (kind === KIND.thread && key === RUNS) return ["on", `CPU ${arg}`];
  if (kind === KIND.thread && key === WOKEN && arg) {
    return ["woken by", arg > 0 ? threadName(arg - 1) : `an interrupt on CPU ${-1 - arg}`];
  }
  if (kind === KIND.calls && slice.last) return ["returns", arg];
  if (kind === KIND.counter) return ["value", count(arg)];
  if (kind === KIND.device) return ["bytes", count(arg)];
  if (kind === KIND.gap) return ["events lost", arg ? count(arg) : "not counted"];
  return null;
};

const detailsOfSlice = async (slice, panel, turn) => {
  const name = keyName(slice.kind, slice.key);
  const pairs = [
    ["what", name], ["row", rowName(slice.row)], ["begin", `${sinceStart(slice.start)}  (${onClock(slice.start)})`],
    ["end", `${sinceStart(slice.end)}  (${onClock(slice.end)})`], ["length", duration(slice.end - slice.start)],
  ];
  const more = argument(slice);
  if (more) pairs.push(more);
  if (slice.kind === KIND.gap && slice.key && index.labels[slice.key]) pairs.push(["buffer", oneLine(index.labels[slice.key])]);
  if (!slice.first && slice.kind !== KIND.gap) pairs.push(["begins", "before it was seen"]);
  if (!slice.last && slice.kind !== KIND.gap) pairs.push(["ends", "no event tells"]);
  const select = make("button", { type: "button", text: "Select its time", click: () => setSelection(slice.start, slice.end) });
  const fit = make("button", { type: "button", text: "Zoom to it", click: () => showSlice(slice) });
  const own = make("div", {}, fieldTable(name, pairs), make("p", {}, fit, " ", select));
  const columns = make("div", { class: "columns" }, own);
  panel.replaceChildren(columns);
  say(`${name}, ${rowName(slice.row)}, ${duration(slice.end - slice.start)} from ${sinceStart(slice.start)}`);
  for (const [title, number] of [["Begins with", slice.first], ["Ends with", slice.last]]) {
    if (!number) continue;
    const event = await loadEvent(number);
    if (turn !== choices) return;
    columns.append(event ? eventTable(title, event, [...factsOf(event), ...fieldsOf(event)]) : make("p", { class: "faint", text: `${title} an event of which the page has no details.` }));
  }
};

const showSlice = (slice) => {
  const margin = Math.max((slice.end - slice.start) * 0.3, 20);
  show(slice.start - margin, slice.end + margin);
};

/** A slice as it is chosen. */
const sliceAt = (block, at, row) => ({
  row, kind: index.rows[row][0], start: block.start[at], end: block.end[at], key: block.key[at],
  arg: block.arg[at], first: block.first[at], last: block.last[at],
});

/** The slice of a row that is at a time, the shortest one; within so much of it. */
const findSlice = (row, time, within) => {
  let best = null;
  eachSlice(drawn.slices, row, time - within, time + within, (block, at) => {
    const apart = Math.max(0, block.start[at] - time, time - block.end[at]);
    const length = block.end[at] - block.start[at];
    if (!best || apart < best.apart || (apart === best.apart && length < best.length)) {
      best = { apart, length, slice: sliceAt(block, at, row) };
    }
  });
  return best?.slice ?? null;
};

/** The event nearest to a time for which `is` holds, within so much of it. */
const findTick = (time, within, is) => {
  let best = null;
  for (const told of blocksOf(time - within, time + within)) {
    const block = stores.events.peek(told);
    if (!block) continue;
    const start = blockStarts[index.blocks.indexOf(told)];
    let at = lowerBound(block.time, time - within, 0, block.count);
    for (; at < block.count && block.time[at] <= time + within; at++) {
      if (!is(block, at)) continue;
      const apart = Math.abs(block.time[at] - time);
      if (!best || apart < best.apart) best = { apart, event: start + at, time: block.time[at], block, at };
    }
  }
  return best;
};

/** What is at a place of the canvas. */
const whatIsAt = (x, y) => {
  const line = lines[lineAt(y - HEADER + view.scroll)];
  if (!line || y < HEADER) return null;
  if (line.section || x < LABELS) return { line };
  const inside = y - HEADER + view.scroll - line.y;
  const lane = line.lanes.find((other) => inside >= other.y && inside < other.y + other.height + 1) ?? line.lanes[0];
  const time = timeOf(x);
  const within = 4 / scale();
  for (const row of line.gaps ?? []) {
    const slice = findSlice(row, time, within);
    if (slice) return { line, lane, slice };
  }
  if (lane?.kind === KIND.event) {
    const [, number] = index.rows[lane.row];
    const tick = drawn.level < 0 ? findTick(time, within, (block, at) => block.event[at] === number) : null;
    return { line, lane, tick };
  }
  if (line.marks !== undefined && drawn.level < 0 && inside >= line.marksLane.y) {
    const is = (block, at) => block.thread[at] === line.thread + 1 && !index.events[block.event[at]].is_drawn;
    const tick = findTick(time, within, is);
    if (tick) return { line, lane, tick };
  }
  const slice = lane && lane.row !== null ? findSlice(lane.row, time, within) : null;
  return { line, lane, slice };
};

/** Goes to the next or previous slice or event from what is chosen. */
const step = (direction) => {
  if (chosen?.event !== undefined) return chooseEvent(chosen.event + direction, true);
  const row = chosen?.row ?? lines.flatMap((line) => line.lanes).find((lane) => lane.row !== null && lane.kind !== KIND.event)?.row;
  if (row === undefined) return chooseEvent(direction > 0 ? 1 : index.detailed, true);
  const from = chosen ? chosen.start : direction > 0 ? view.from : view.to;
  let best = null;
  eachSlice(drawn.slices, row, view.from, view.to, (block, at) => {
    const start = block.start[at];
    if (direction > 0 ? start <= from && chosen : start >= from) return;
    if (!best || (direction > 0 ? start < best.start : start > best.start)) best = sliceAt(block, at, row);
  });
  if (best) return choose(best);
  say("There is no further slice in this row that is long enough to be drawn here; zoom in or move.");
  return null;
};

// Drawing: what is longer than a pixel as it is, what is shorter as densities.

const canvas = document.getElementById("canvas");
const context = canvas.getContext("2d", { alpha: false });

/** What is shown: times since the first event, and how far down. */
const view = { from: 0, to: 1, scroll: 0, width: 100, height: 100 };
/** A range that was selected: `{from, to}`. */
let selection = null;
/** A slice or an event that was chosen. */
let chosen = null;
let showArrows = true;
let colours = {};
/** How long the last frames took, in milliseconds. */
const frameTimes = [];

const scale = () => (view.width - LABELS) / (view.to - view.from);
const xOf = (time) => LABELS + (time - view.from) * scale();
const timeOf = (x) => view.from + (x - LABELS) / scale();

/** The coarsest densities that are no wider than four pixels; -1 if everything is drawn as it is. */
const levelOf = (perPixel) => {
  let level = -1;
  while (level + 1 < index.levels && index.base * 4 ** (level + 1) <= 4 * perPixel) level++;
  return level;
};

const readColours = () => {
  const style = getComputedStyle(document.documentElement);
  colours = {};
  for (const name of ["back", "panel", "line", "text", "faint", "row", "section", "accent", "select", "lost", "paused", "mark",
    "runs", "woken", "preempted", "sleeps", "blocked", "stopped", "unknown"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colours.isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  keyColours.clear();
  hatch = null;
};

const keyColours = new Map();
/** A colour of its own for each key. */
const colourOf = (kind, key) => {
  if (kind === KIND.thread) return colours[STATES[key]?.[1] ?? "unknown"];
  if (kind === KIND.gap) return colours.lost;
  if (kind === KIND.marks || kind === KIND.event) return colours.mark;
  if (key === OTHERS) return colours.faint;
  const place = kind * 2 ** 20 + key;
  let colour = keyColours.get(place);
  if (!colour) {
    // Neighbouring numbers are far apart on the wheel of colours.
    const hue = Math.round((key * 137.508 + kind * 40) % 360);
    const light = kind === KIND.cpu ? [58, 62] : [62, 74];
    colour = `hsl(${hue} ${colours.isDark ? 45 : 55}% ${light[colours.isDark ? 0 : 1]}%)`;
    keyColours.set(place, colour);
  }
  return colour;
};

let hatch = null;
const hatchPattern = () => {
  if (hatch) return hatch;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colours.lost;
  pen.lineWidth = 1.6;
  pen.beginPath();
  for (const at of [-8, 0, 8]) {
    pen.moveTo(at, 8);
    pen.lineTo(at + 8, 0);
  }
  pen.stroke();
  hatch = context.createPattern(tile, "repeat");
  return hatch;
};

/** Blocks of slices and densities for the view; those that are not there yet are asked for. */
const gather = () => {
  const perPixel = 1 / scale();
  const level = levelOf(perPixel);
  const needed = [];
  const missing = [];
  const take = (store, list) => {
    const found = [];
    for (const told of list) {
      const block = store.peek(told);
      if (block) found.push(block);
      else missing.push([store, told]);
    }
    needed.push(found);
    return found;
  };
  const overlaps = (told) => told[4] >= view.from && told[3] <= view.to;
  const slices = take(stores.slices, index.slices.filter((told) => told[0] > level && overlaps(told)));
  let densities = [];
  if (level >= 0) {
    densities = take(stores.densities, index.densities.filter((told) => told[0] === level && overlaps(told)));
  } else if (view.to > index.detailed_to && index.detailed < index.total) {
    // Behind the events with details there are densities only, however wide their buckets are by now.
    densities = take(stores.densities,
      index.densities.filter((told) => told[0] === 0 && overlaps(told) && told[4] > index.detailed_to));
  }
  let events = [];
  if (level < 0) events = take(stores.events, blocksOf(view.from, view.to));
  want(missing);
  return { level, slices, densities, events, isWhole: missing.length === 0 };
};

/** What was drawn last, for whoever asks what is at a place. */
let drawn = { level: -1, slices: [], densities: [], events: [], isWhole: false };

/** Calls `each` with the block and the place of all slices of a row that are in a range. */
const eachSlice = (blocks, row, from, to, each) => {
  for (const block of blocks) {
    const range = block.rows.get(row);
    if (!range) continue;
    let at = lowerBound(block.start, from - block.longest, range[0], range[1]);
    for (; at < range[1] && block.start[at] <= to; at++) {
      if (block.end[at] >= from) each(block, at);
    }
  }
};

const drawSlices = (lane, top) => {
  const { row, kind, height } = lane;
  const y = top + lane.y;
  let lastEnd = -1;
  let lastColour = "";
  eachSlice(drawn.slices, row, view.from, view.to, (block, at) => {
    const left = Math.max(LABELS, xOf(block.start[at]));
    const right = Math.min(view.width, xOf(block.end[at]));
    const colour = colourOf(kind, block.key[at]);
    // What would be in the same pixel, in the same colour, is there already.
    if (right <= lastEnd && colour === lastColour && right - left < 1) return;
    const width = Math.max(right - left, 0.8);
    if (colour !== lastColour) context.fillStyle = colour;
    lastColour = colour;
    if (isThin(kind, block.key[at])) {
      context.fillRect(left, y + height * 0.35, width, height * 0.3);
    } else {
      context.fillRect(left, y, width, height);
    }
    lastEnd = Math.max(lastEnd, left + width);
    if (width > 26 && height > 9) {
      const text = sliceText(kind, block, at);
      if (text) {
        texts.push([text, left + 3, y + height / 2 + 0.5, width - 6]);
      }
      edges.push(left, y, height);
    }
  });
};

const sliceText = (kind, block, at) => {
  if (kind === KIND.thread) {
    const key = block.key[at];
    return key === RUNS ? `CPU ${block.arg[at]}` : key === 4 || key === 0 ? "" : STATES[key]?.[0];
  }
  if (kind === KIND.counter) return count(block.arg[at]);
  return keyName(kind, block.key[at]);
};

let texts = [];
let edges = [];

/** Texts that fit are written, others are cut. */
const drawTexts = () => {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = "#10161d";
  for (const [text, x, y, room] of texts) {
    const most = Math.floor(room / 6);
    if (most < 2) continue;
    context.fillText(text.length > most ? `${text.slice(0, most - 1)}…` : text, x, y, room);
  }
  context.fillStyle = colours.back;
  for (let at = 0; at < edges.length; at += 3) context.fillRect(edges[at], edges[at + 1], 1, edges[at + 2]);
};

/** Whether a thread in this state is drawn as a thin line: it does nothing, or nothing is known of it. */
const isThin = (kind, key) => kind === KIND.thread && (key === 4 || key === 0);

/** Lines of threads that sleep, under what else they do. Neighbours are one rectangle. */
const drawThin = ({ kind, height }, y, block, begin, end) => {
  const width = Math.max(1, block.width * scale());
  let run = null;
  const endRun = () => {
    if (!run) return;
    context.fillStyle = run.colour;
    context.fillRect(run.left, y + height * 0.35, run.right - run.left, height * 0.3);
  };
  for (let at = begin; at < end && block.start[at] <= view.to; at++) {
    if (!isThin(kind, block.key[at])) continue;
    if (drawn.level < 0 && block.start[at] + block.width <= index.detailed_to) continue;
    const x = xOf(block.start[at]);
    const colour = colourOf(kind, block.key[at]);
    if (!run || run.colour !== colour || x > run.right + 0.5) {
      endRun();
      run = { colour, left: Math.max(LABELS, x), right: LABELS };
    }
    run.right = Math.max(run.left, x + width);
  }
  endRun();
};

const drawDensities = (lane, top) => {
  const { row, kind, height } = lane;
  const y = top + lane.y;
  for (const block of drawn.densities) {
    const range = block.rows.get(row);
    if (!range) continue;
    const width = Math.max(1, block.width * scale());
    let at = lowerBound(block.start, view.from - block.width, range[0], range[1]);
    let last = NaN;
    let filled = 0;
    if (kind === KIND.thread) drawThin(lane, y, block, at, range[1]);
    for (; at < range[1] && block.start[at] <= view.to; at++) {
      const start = block.start[at];
      if (drawn.level < 0 && start + block.width <= index.detailed_to) continue;
      const x = xOf(start);
      const left = Math.max(LABELS, x);
      const wide = Math.min(width, x + width - left);
      if (wide <= 0) continue;
      const part = Math.min(1, block.time[at] / block.width);
      if (isThin(kind, block.key[at])) continue;
      context.fillStyle = colourOf(kind, block.key[at]);
      if (kind === KIND.thread) {
        // States stand on each other; sleep is the rest.
        if (start !== last) filled = 0;
        last = start;
        const high = Math.max(1.5, part * height);
        context.fillRect(left, y + height - Math.min(height, filled + high), wide, high);
        filled += high;
      } else if (kind === KIND.event || kind === KIND.marks || kind === KIND.gap) {
        const most = kind === KIND.gap ? 1 : Math.min(1, 0.35 + Math.log2(1 + block.number[at]) / 9);
        context.fillRect(left, y + height * (1 - most), Math.max(wide, kind === KIND.gap ? 2 : 1), height * most);
      } else {
        const high = Math.max(2, part * height);
        context.fillRect(left, y + height - high, wide, high);
      }
    }
  }
};

const drawTicks = (top, bottom) => {
  if (drawn.level >= 0) return;
  const rows = new Map();
  index.events.forEach((event, number) => {
    const lane = laneOf.get(rowsFor(KIND.event, number)[0]);
    rows.set(number, lane ? HEADER + lane.line.y + lane.y - view.scroll : null);
  });
  const last = new Float64Array(index.events.length).fill(-9);
  context.fillStyle = colours.mark;
  for (const block of drawn.events) {
    let at = lowerBound(block.time, view.from, 0, block.count);
    for (; at < block.count && block.time[at] <= view.to; at++) {
      const event = block.event[at];
      const x = xOf(block.time[at]);
      const y = rows.get(event);
      if (y !== null && y > top - 20 && y < bottom && x - last[event] >= 1) {
        last[event] = x;
        const isMarker = index.events[event].is_marker;
        context.fillRect(x, y, 1.5, isMarker ? 16 : 12);
        if (isMarker) markerTexts.push([block, at, x + 4, y + 9]);
      }
      if (!index.events[event].is_drawn && block.thread[at]) {
        const lane = laneOf.get(marksRows.get(block.thread[at] - 1));
        if (!lane) continue;
        const high = HEADER + lane.line.y + lane.y - view.scroll;
        if (high > top - lane.height && high < bottom) context.fillRect(x - 0.5, high, 1.5, lane.height);
      }
    }
  }
  drawMarkers();
};

/** Rows of losses. */
const gapRows = [];
/** The row of events of each thread. */
const marksRows = new Map();
let markerTexts = [];

/** The text of a marker. */
const markerText = (events, at) => {
  const text = events.text(at, "text") ?? events.text(at, "buf") ?? events.text(at, "str");
  return oneLine((text ?? "").trim());
};

const drawMarkers = () => {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = colours.text;
  // Each has the room up to the next one in its row.
  const ends = new Map();
  for (const [block, at, x, y] of markerTexts.reverse()) {
    const room = (ends.get(y) ?? view.width) - x - 6;
    ends.set(y, x);
    if (room > 20) context.fillText(markerText(block, at).slice(0, Math.floor(room / 5.6)), x, y, room);
  }
  markerTexts = [];
};

/** Where events of a CPU are missing: hatched, and how many. */
const drawGaps = (line, top) => {
  for (const row of line.gaps ?? []) {
    const height = line.height - 2;
    eachSlice(drawn.slices, row, view.from, view.to, (block, at) => {
      const left = Math.max(LABELS, xOf(block.start[at]));
      const right = Math.min(view.width, xOf(block.end[at]));
      const width = Math.max(2, right - left);
      context.fillStyle = hatchPattern();
      context.fillRect(left, top, width, height);
      context.fillStyle = colours.lost;
      context.fillRect(left, top, width, 2);
      if (width > 60) {
        const lost = block.arg[at] ? `${count(block.arg[at])} lost` : "lost, not counted";
        context.font = "bold 11px system-ui, sans-serif";
        const wide = context.measureText(lost).width + 8;
        context.fillStyle = colours.back;
        context.fillRect(left + 3, top + height / 2 - 8, wide, 16);
        context.fillStyle = colours.lost;
        context.textBaseline = "middle";
        context.fillText(lost, left + 7, top + height / 2);
      }
    });
    drawDensities({ row, kind: KIND.gap, y: 0, height }, top);
  }
};

/** Arrows from who wakes to who is woken. */
const drawArrows = (top, bottom) => {
  if (!showArrows || !index.has_switches) return;
  let room = 400;
  context.lineWidth = 1;
  for (const line of shownLines(top, bottom)) {
    const lane = line.lanes.find((other) => other.kind === KIND.thread);
    if (!lane) continue;
    eachSlice(drawn.slices, lane.row, view.from, view.to, (block, at) => {
      if (block.key[at] !== WOKEN || block.arg[at] <= 0 || room <= 0) return;
      const from = laneOf.get(rowsFor(KIND.thread, block.arg[at] - 1)[0]);
      if (!from) return;
      const isChosen = chosen?.row === lane.row && chosen.start === block.start[at];
      // Unless there are few of them, they would hide what they belong to.
      if (!isChosen && scale() * (block.end[at] - block.start[at]) < 4) return;
      room--;
      const x = xOf(block.start[at]);
      const y1 = HEADER + from.line.y + from.y + from.height / 2 - view.scroll;
      const y2 = HEADER + line.y + lane.y + lane.height / 2 - view.scroll;
      if (x < LABELS) return;
      const down = Math.sign(y2 - y1) || 1;
      context.strokeStyle = context.fillStyle = isChosen ? colours.accent : colours.text;
      context.globalAlpha = isChosen ? 1 : 0.55;
      context.beginPath();
      context.moveTo(x, y1);
      context.lineTo(x, y2 - down * 5);
      context.stroke();
      context.beginPath();
      context.moveTo(x, y2 - down * 2);
      context.lineTo(x - 3, y2 - down * 8);
      context.lineTo(x + 3, y2 - down * 8);
      context.fill();
      context.globalAlpha = 1;
    });
  }
};

function* shownLines(top, bottom) {
  for (let at = lineAt(top - HEADER + view.scroll); at < lines.length; at++) {
    const line = lines[at];
    if (HEADER + line.y - view.scroll > bottom) return;
    yield line;
  }
}

const draw = () => {
  const begin = performance.now();
  frame++;
  drawn = gather();
  const { width, height } = view;
  context.fillStyle = colours.back;
  context.fillRect(0, 0, width, height);
  texts = [];
  edges = [];
  context.fillStyle = colours.row;
  for (const line of shownLines(HEADER, height)) {
    if (!line.section) context.fillRect(LABELS, HEADER + line.y - view.scroll, width, line.height - 1);
  }
  context.fillStyle = colours.line;
  for (const time of gridTimes()) {
    context.globalAlpha = 0.5;
    context.fillRect(Math.round(xOf(time)), HEADER, 1, height);
  }
  context.globalAlpha = 1;
  for (const line of shownLines(HEADER, height)) {
    const top = HEADER + line.y - view.scroll;
    for (const lane of line.lanes) {
      if (lane.row === null) continue;
      drawDensities(lane, top);
      if (lane.kind !== KIND.event) drawSlices(lane, top);
    }
    if (line.marksLane) drawDensities(line.marksLane, top);
    drawGaps(line, top);
  }
  drawTexts();
  drawTicks(HEADER, height);
  drawArrows(HEADER, height);
  drawChosen();
  drawBands();
  for (const line of shownLines(HEADER, height)) drawLabel(line, HEADER + line.y - view.scroll);
  drawRuler();
  drawBandsOnRuler();
  drawScrollbar();
  canvas.dataset.whole = drawn.isWhole;
  frameTimes.push(performance.now() - begin);
  if (frameTimes.length > 600) frameTimes.shift();
};

let isDirty = false;
/** Draws before the next frame. */
const redraw = () => {
  if (isDirty || !index) return;
  isDirty = true;
  requestAnimationFrame(() => {
    isDirty = false;
    draw();
  });
};

/** Takes the size of the window. */
const resize = () => {
  const { clientWidth, clientHeight } = canvas.parentElement;
  const ratio = Math.min(2, devicePixelRatio || 1);
  view.width = Math.max(LABELS + 50, clientWidth);
  view.height = Math.max(40, clientHeight);
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  scrollTo(view.scroll);
};

const scrollTo = (scroll) => {
  view.scroll = Math.max(0, Math.min(scroll, totalHeight - (view.height - HEADER)));
  redraw();
};

/** Shows this range, as far as there is anything. */
const show = (from, to) => {
  const whole = Math.max(index.span, 1);
  const margin = whole * 0.02;
  let length = Math.min(Math.max(to - from, 20), whole + 2 * margin);
  const middle = (from + to) / 2;
  view.from = Math.max(-margin, Math.min(middle - length / 2, whole + margin - length));
  view.to = view.from + length;
  viewChanged();
};

const showAll = () => show(-index.span * 0.01, Math.max(index.span, 1) * 1.01);

/** Zooms, so that what is at `x` stays there. */
const zoom = (factor, x = (LABELS + view.width) / 2) => {
  const time = timeOf(Math.max(x, LABELS));
  const length = Math.min(Math.max((view.to - view.from) * factor, 20), Math.max(index.span, 1) * 1.04);
  const part = (time - view.from) / (view.to - view.from);
  show(time - part * length, time + (1 - part) * length);
};

const pan = (part) => {
  const by = (view.to - view.from) * part;
  show(view.from + by, view.to + by);
};

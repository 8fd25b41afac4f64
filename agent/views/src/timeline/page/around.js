// What is drawn around the rows and over them: ruler, names, pauses, the selection, what is chosen.

/** A length of 1, 2 or 5 times a power of ten that has room. */
const stepOf = (perPixel) => {
  const least = perPixel * 110;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least) ?? power * 10;
};

/** The times of the grid's lines. They are counted first: where numbers end, adding a step can change nothing. */
const gridTimes = () => {
  const step = stepOf(1 / scale());
  const first = Math.ceil(view.from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((view.to - first) / step) + 1) }, (_, nth) => first + nth * step);
};

const drawRuler = () => {
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, view.width, HEADER);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const time of gridTimes()) {
    const x = Math.round(xOf(time));
    context.fillStyle = colours.line;
    context.fillRect(x, HEADER - 8, 1, 8);
    context.fillStyle = colours.faint;
    context.fillText(time === 0 ? "0" : duration(Math.round(time)), x + 3, 11);
  }
  // Where anything is missing, on whatever CPU.
  gapRows.forEach((row) => {
    eachSlice(drawn.slices, row, view.from, view.to, (block, at) => {
      const left = Math.max(LABELS, xOf(block.start[at]));
      context.fillStyle = colours.lost;
      context.fillRect(left, HEADER - 4, Math.max(2, Math.min(view.width, xOf(block.end[at])) - left), 4);
    });
  });
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, LABELS, HEADER);
  context.fillStyle = colours.faint;
  context.fillText(index.clock ? `clock ${oneLine(index.clock)}` : "", 8, 11, LABELS - 16);
  context.fillStyle = colours.line;
  context.fillRect(0, HEADER - 1, view.width, 1);
};

const drawLabel = (line, y) => {
  context.textBaseline = "middle";
  if (line.section) {
    context.fillStyle = colours.section;
    context.fillRect(0, y, view.width, line.height);
    context.fillStyle = colours.text;
    context.font = "bold 12px system-ui, sans-serif";
    context.fillText(`${closed.has(line.section) ? "▸" : "▾"} ${line.label}`, 8, y + line.height / 2 + 1);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.faint;
    context.textAlign = "right";
    context.fillText(line.side, LABELS - 8, y + line.height / 2 + 1);
    context.textAlign = "left";
    return;
  }
  context.fillStyle = colours.panel;
  context.fillRect(0, y, LABELS, line.height);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.text;
  const middle = y + Math.min(line.height, 22) / 2;
  // Of events the name says more than the system.
  let label = line.label.length > 23 && line.isEvent ? line.label.slice(line.label.indexOf(":") + 1) : line.label;
  if (label.length > 26) label = `${label.slice(0, 25)}…`;
  context.fillText(label, 12, middle, LABELS - 76);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = line.isLost ? colours.lost : colours.faint;
  context.textAlign = "right";
  context.fillText(line.side, LABELS - 8, middle, 66);
  context.textAlign = "left";
};

const drawBands = () => {
  context.fillStyle = colours.paused;
  for (const [from, to] of index.pauses) {
    if (to < view.from || from > view.to) continue;
    const left = Math.max(LABELS, xOf(from));
    context.fillRect(left, HEADER, Math.max(1, Math.min(view.width, xOf(to)) - left), view.height);
  }
  if (selection) {
    const left = Math.max(LABELS, xOf(selection.from));
    const right = Math.min(view.width, xOf(selection.to));
    if (right >= left) {
      context.fillStyle = colours.select;
      context.fillRect(left, 0, right - left, view.height);
      context.fillStyle = colours.accent;
      context.fillRect(left, 0, 1, view.height);
      context.fillRect(right - 1, 0, 1, view.height);
      context.font = "bold 11px system-ui, sans-serif";
      if (right - left > 60) context.fillText(duration(selection.to - selection.from), left + 5, 22);
    }
  }
};

const drawChosen = () => {
  if (!chosen) return;
  if (chosen.time !== undefined) {
    const x = xOf(chosen.time);
    if (x < LABELS) return;
    context.fillStyle = colours.accent;
    context.fillRect(x - 0.5, HEADER - 8, 2, view.height);
    return;
  }
  const lane = laneOf.get(chosen.row);
  if (!lane) return;
  const left = Math.max(LABELS, xOf(chosen.start));
  const right = Math.min(view.width, xOf(chosen.end));
  if (right < LABELS || left > view.width) return;
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  const y = HEADER + lane.line.y + lane.y - view.scroll;
  if (y + lane.height < HEADER) return;
  context.strokeRect(left, y, Math.max(3, right - left), lane.height);
};

const drawBandsOnRuler = () => {
  if (!selection) return;
  const left = Math.max(LABELS, xOf(selection.from));
  const right = Math.min(view.width, xOf(selection.to));
  if (right < left) return;
  context.fillStyle = colours.accent;
  context.font = "bold 11px system-ui, sans-serif";
  context.fillRect(left, HEADER - 3, Math.max(1, right - left), 3);
};

const drawScrollbar = () => {
  const room = view.height - HEADER;
  if (totalHeight <= room) return;
  const long = Math.max(24, (room * room) / totalHeight);
  const y = HEADER + ((room - long) * view.scroll) / (totalHeight - room);
  context.fillStyle = colours.faint;
  context.globalAlpha = 0.5;
  context.fillRect(view.width - 7, y, 5, long);
  context.globalAlpha = 1;
};

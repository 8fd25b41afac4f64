// The beginning: reads the index, shows what the link asks for.

const fail = (error) => {
  say(`This page is damaged, or the browser too old: ${error.message}`);
  console.error(error);
};

let linkTimer = 0;
/** Puts what is shown into the address, so that it can be sent or kept. */
const saveLink = () => {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => {
    const parts = [`view=${Math.round(view.from)}-${Math.round(view.to - view.from)}`];
    if (selection) parts.push(`select=${Math.round(selection.from)}-${Math.round(selection.to - selection.from)}`);
    if (chosen?.event !== undefined) parts.push(`event=${chosen.event}`);
    else if (chosen) parts.push(`slice=${chosen.row}-${chosen.start}`);
    if (filterText) parts.push(`rows=${encodeURIComponent(filterText)}`);
    if (view.scroll) parts.push(`scroll=${Math.round(view.scroll)}`);
    history.replaceState(null, "", `#${parts.join("&")}`);
  }, 200);
};

/** Shows what the address says. */
const openLink = async () => {
  const parts = new Map(location.hash.slice(1).split("&").map((part) => part.split("=", 2)));
  const range = (name) => {
    const found = /^(-?\d{1,16})-(\d{1,16})$/.exec(parts.get(name) ?? "");
    return found ? [Number(found[1]), Number(found[1]) + Number(found[2])] : null;
  };
  if (parts.has("rows")) {
    try {
      filterText = decodeURIComponent(parts.get("rows")).slice(0, 200);
    } catch {
      filterText = "";
    }
    document.getElementById("filter").value = filterText;
    layOut();
  }
  const shown = range("view");
  if (shown) show(...shown);
  else showAll();
  const scroll = Number(parts.get("scroll"));
  if (Number.isFinite(scroll)) scrollTo(scroll);
  const selected = range("select");
  if (selected) setSelection(...selected);
  const event = Number(parts.get("event"));
  if (Number.isInteger(event) && event > 0) await chooseEvent(event, false);
  const slice = /^(\d+)-(\d+)$/.exec(parts.get("slice") ?? "");
  if (slice && index.rows[Number(slice[1])]) await chooseByStart(Number(slice[1]), Number(slice[2]));
};

/** Chooses the slice of a row that begins then. */
const chooseByStart = async (row, start) => {
  for (const told of index.slices.filter((other) => other[3] <= start && other[4] >= start)) {
    const block = await stores.slices.get(told);
    const range = block.rows.get(row);
    if (!range) continue;
    const at = lowerBound(block.start, start, range[0], range[1]);
    if (at < range[1] && block.start[at] === start) {
      await choose(sliceAt(block, at, row));
      return;
    }
  }
};

const viewChanged = () => {
  redraw();
  saveLink();
  tableFirst = null;
  const range = `${sinceStart(Math.max(0, view.from))} + ${duration(view.to - view.from)}`;
  document.getElementById("range").textContent = range;
  updatePanel();
};

/** What is not in the page, and where events were lost: said before anything is concluded from it. */
const tellNotes = () => {
  const notes = [];
  const lost = index.cpus.reduce((sum, cpu) => sum + cpu.lost, 0);
  const uncounted = index.cpus.reduce((sum, cpu) => sum + cpu.uncounted, 0);
  const cut = index.cpus.filter((cpu) => cpu.cut_short).length;
  if (lost) notes.push(`${count(lost)} events were lost while recording; where, is hatched in red.`);
  if (uncounted) notes.push(`At ${count(uncounted)} places it is not known how many events were lost.`);
  if (cut) notes.push(`The recording was cut short on ${count(cut)} CPUs: more may be missing at the end.`);
  if (index.detailed < index.total) {
    notes.push(`Details of the first ${count(index.detailed)} of ${count(index.total)} events are in this page, up to ${sinceStart(index.detailed_to)}. ` +
      `After that there is what is at least ${duration(index.base)} long, and densities of the rest. --max-events has more; tracer-agent split cuts a part out.`);
  }
  for (const [what, number] of index.left_out) {
    if (!what.includes("--max-events")) notes.push(`Left out: ${count(number)} ${oneLine(what)}.`);
  }
  const element = document.getElementById("notes");
  element.replaceChildren(...notes.map((text) => make("p", { text })));
  element.hidden = notes.length === 0;
};

const start = async () => {
  index = JSON.parse(utf8.decode(await unpack("index")));
  let number = 1;
  blockStarts = index.blocks.map((block) => {
    const first = number;
    number += block.count;
    return first;
  });
  index.rows.forEach(([kind, owner], row) => {
    if (kind === KIND.marks) marksRows.set(owner, row);
    if (kind === KIND.gap) gapRows.push(row);
  });
  readColours();
  prepareRows();
  layOut();
  tellNotes();
  const about = `${count(index.total)} events in ${duration(index.span)}`;
  const whole = index.machine ? `${about} · ${oneLine(index.machine)}` : about;
  document.getElementById("about").textContent = whole;
  // A small window has no room for all of it.
  document.getElementById("about").title = whole;
  document.title = `Timeline: ${about}`;
  prepareInput();
  resize();
  choose(null);
  say("");
  await openLink();
  canvas.dataset.ready = Math.round(performance.now());
};

addEventListener("hashchange", () => openLink().catch(fail));
start().catch(fail);

/** For scripts and tests: what is shown, and how long frames took. */
globalThis.timeline = {
  get index() { return index; },
  get view() { return { ...view }; },
  get chosen() { return chosen; },
  get selection() { return selection; },
  get lines() { return lines; },
  frameTimes, show, chooseEvent, searchFor, setSelection, draw, xOf, laneOf: (row) => laneOf.get(row), HEADER,
};

// The table of events: those of the selection, or else of the view. It is also what a screen reader reads.

const PAGE = 100;
let tableFirst = null;
let tableTurn = 0;

/** The numbers of the first event in a range and of the first one behind it. */
const numbersIn = async (from, to) => {
  const edge = async (time, isBehind) => {
    let low = 0;
    let high = index.blocks.length;
    // The first block that has an event at this time or later.
    while (low < high) {
      const middle = (low + high) >>> 1;
      const { to: end } = index.blocks[middle];
      if (isBehind ? end <= time : end < time) low = middle + 1;
      else high = middle;
    }
    if (low === index.blocks.length) return index.detailed + 1;
    const block = await stores.events.get(index.blocks[low]);
    let at = lowerBound(block.time, time, 0, block.count);
    if (isBehind) while (at < block.count && block.time[at] <= time) at++;
    return blockStarts[low] + at;
  };
  return [await edge(from, false), await edge(to, true)];
};

const currentRange = () => selection ?? { from: view.from, to: view.to };

/** The fields of an event in a line. */
const fieldLine = (fields) => fields
  .filter(([name]) => !name.startsWith("common_"))
  .map(([name, value]) => {
    const text = oneLine(value);
    return `${name}=${text.length > 200 ? `${text.slice(0, 200)}…` : text}`;
  })
  .join(" ");

const updateTable = async () => {
  const panel = document.getElementById("table");
  if (panel.hidden) return;
  const turn = ++tableTurn;
  const { from, to } = currentRange();
  const [first, behind] = await numbersIn(from, to);
  const start = Math.max(first, Math.min(tableFirst ?? first, behind - 1));
  const end = Math.min(behind, start + PAGE);
  const rows = [];
  for (let number = start; number < end; number++) {
    const event = await loadEvent(number);
    if (turn !== tableTurn) return;
    if (!event) break;
    const name = make("button", { type: "button", class: "link", text: oneLine(event.name), click: () => chooseEvent(number, false) });
    const row = make("tr", {},
      make("td", { class: "number", text: sinceStart(event.time) }), make("td", { class: "number", text: event.cpu }),
      make("td", { text: event.thread === null ? "-" : threadName(event.thread) }), make("td", {}, name),
      make("td", { text: fieldLine(event.fields) }));
    if (chosen?.event === number) row.className = "chosen";
    rows.push(row);
  }
  const total = behind - first;
  const where = selection ? "selection" : "view";
  const text = total ? `Events ${count(start - first + 1)} to ${count(end - first)} of ${count(total)} in the ${where}` : `No events in the ${where}`;
  const ends = to > index.detailed_to && index.detailed < index.total
    ? ` (of events after ${sinceStart(index.detailed_to)} the page has no details)` : "";
  const turnPage = (by) => { tableFirst = Math.max(first, start + by); updateTable(); };
  const buttons = make("p", {},
    make("button", { type: "button", text: "Earlier", click: () => turnPage(-PAGE) }), " ",
    make("button", { type: "button", text: "Later", click: () => turnPage(PAGE) }));
  const [earlier, later] = buttons.querySelectorAll("button");
  earlier.disabled = start <= first;
  later.disabled = end >= behind;
  const head = make("tr", {}, ...["since start", "CPU", "thread", "event", "fields"].map((name) => make("th", { scope: "col", text: name })));
  const table = make("table", {}, make("caption", { text: text + ends }), make("thead", {}, head), make("tbody", {}, ...rows));
  panel.replaceChildren(buttons, table);
};

/** Tabs of the panel. */
const TABS = ["details", "table", "statistics"];
const showTab = (name, doFocus) => {
  for (const tab of TABS) {
    const button = document.getElementById(`tab-${tab}`);
    const isShown = tab === name;
    document.getElementById(tab).hidden = !isShown;
    button.setAttribute("aria-selected", isShown);
    button.tabIndex = isShown ? 0 : -1;
    if (isShown && doFocus) button.focus();
  }
  updatePanel();
};

let panelTimer = 0;
/** Brings the open tab up to date when the view has come to rest. */
const updatePanel = () => {
  clearTimeout(panelTimer);
  panelTimer = setTimeout(() => {
    Promise.all([updateTable(), updateStatistics()]).catch(fail);
  }, 150);
};

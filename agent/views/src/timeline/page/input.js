// What mouse, fingers and keys do.

/** Keys and what they do, as the help tells them. */
const KEYS = [
  ["w s, + -", "zoom in and out"], ["a d, ← →", "move in time"], ["↑ ↓, PageUp PageDown", "scroll the rows"],
  ["Home End", "the beginning, the end"], ["0", "show all"], ["[ ]", "previous, next slice or event"],
  ["Enter", "zoom to what is chosen"], ["m", "select the time of what is chosen"], ["z", "zoom to the selection"],
  ["/", "search"], ["n N", "next, previous match"], ["Escape", "forget selection and choice"], ["t", "dark or light"], ["?", "this help"],
  ["Wheel", "zoom; with Shift rows, sideways time"], ["Drag", "move; with Shift, or on the ruler, select a range"],
  ["Pinch", "zoom"], ["Double click", "zoom to a slice"],
];

/** Actions by key. */
const ACTIONS = {
  w: () => zoom(0.7), s: () => zoom(1 / 0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7),
  a: () => pan(-0.2), d: () => pan(0.2), ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1),
  ArrowUp: () => scrollTo(view.scroll - 40), ArrowDown: () => scrollTo(view.scroll + 40),
  PageUp: () => scrollTo(view.scroll - view.height * 0.8), PageDown: () => scrollTo(view.scroll + view.height * 0.8),
  Home: () => show(0, view.to - view.from), End: () => show(index.span - (view.to - view.from), index.span), 0: () => showAll(),
  "[": () => step(-1), "]": () => step(1),
  Enter: () => zoomToChosen(), z: () => selection && show(selection.from, selection.to),
  m: () => chosen && (chosen.time === undefined ? setSelection(chosen.start, chosen.end) : setSelection(chosen.time, chosen.time + 1)),
  "/": () => document.getElementById("query").focus(), n: () => search(1), N: () => search(-1),
  Escape: () => { setSelection(null); choose(null); }, t: () => changeTheme(), "?": () => toggleHelp(),
};

const zoomToChosen = () => {
  if (!chosen) return;
  if (chosen.time === undefined) showSlice(chosen);
  else show(chosen.time - index.base * 20, chosen.time + index.base * 20);
};

const search = (direction) => searchFor(document.getElementById("query").value, direction).catch(fail);

const toggleHelp = () => {
  const help = document.getElementById("help");
  help.hidden = !help.hidden;
  document.getElementById("help-button").setAttribute("aria-expanded", !help.hidden);
  resize();
};

const onKey = (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const target = event.target;
  if (target instanceof HTMLInputElement) {
    if (event.key === "Escape") canvas.focus();
    return;
  }
  // Elsewhere keys have the meaning that they have in every page.
  const isElsewhere = target !== canvas && target !== document.body;
  if (isElsewhere && (event.key === "Enter" || event.key.length > 1)) return;
  const action = ACTIONS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
};

/** Fingers and mouse buttons that are down: where each is. */
const pointers = new Map();
let drag = null;
let selectMode = false;

const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

const onPointerDown = (event) => {
  const [x, y] = place(event);
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [x, y]);
  hideTip();
  if (pointers.size === 2) {
    drag = { pinch: pinchOf() };
    return;
  }
  const selects = x >= LABELS && (event.shiftKey || selectMode || y < HEADER);
  drag = { x, y, from: view.from, to: view.to, scroll: view.scroll, selects, begin: timeOf(x), moved: false };
};

/** The middle of two fingers and how far they are apart. */
const pinchOf = () => {
  const [[x1], [x2]] = [...pointers.values()];
  return { middle: (x1 + x2) / 2, apart: Math.max(20, Math.abs(x1 - x2)) };
};

const onPointerMove = (event) => {
  const [x, y] = place(event);
  if (!pointers.has(event.pointerId)) {
    showTip(x, y);
    return;
  }
  pointers.set(event.pointerId, [x, y]);
  if (drag?.pinch && pointers.size === 2) {
    const now = pinchOf();
    zoom(drag.pinch.apart / now.apart, now.middle);
    const by = (drag.pinch.middle - now.middle) / scale();
    show(view.from + by, view.to + by);
    drag.pinch = now;
    return;
  }
  if (!drag || drag.pinch) return;
  if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
  drag.moved = true;
  if (drag.selects) {
    setSelection(drag.begin, timeOf(Math.max(x, LABELS)));
    return;
  }
  const by = (drag.x - x) / scale();
  scrollTo(drag.scroll + drag.y - y);
  show(drag.from + by, drag.to + by);
};

const onPointerUp = (event) => {
  const [x, y] = place(event);
  pointers.delete(event.pointerId);
  const ended = drag;
  if (pointers.size === 0) drag = null;
  if (!ended || ended.pinch || ended.moved || event.type === "pointercancel") return;
  const what = whatIsAt(x, y);
  if (what?.line?.section) {
    const name = what.line.section;
    if (!closed.delete(name)) closed.add(name);
    layOut();
    scrollTo(view.scroll);
  } else if (what?.tick) {
    chooseEvent(what.tick.event, false).catch(fail);
  } else if (what?.slice) {
    choose(what.slice).catch(fail);
  } else if (what?.lane && x >= LABELS && drawn.level >= 0) {
    // Something shorter than a pixel may be there.
    const bucket = index.base * 4 ** drawn.level;
    say(`Nothing here is as long as ${duration(bucket)}; zoom in to see what is shorter.`);
  }
};

const onWheel = (event) => {
  event.preventDefault();
  const [x] = place(event);
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? view.height : 1;
  if (event.shiftKey || x < LABELS) {
    scrollTo(view.scroll + (event.deltaY || event.deltaX) * unit);
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    pan((event.deltaX * unit) / (view.width - LABELS));
  } else {
    zoom(Math.min(4, Math.max(0.25, 1.0018 ** (event.deltaY * unit))), x);
  }
};

const hideTip = () => { document.getElementById("tip").hidden = true; };

const showTip = (x, y) => {
  const tip = document.getElementById("tip");
  const what = index ? whatIsAt(x, y) : null;
  let text = "";
  if (what?.slice) {
    const { slice } = what;
    const more = argument(slice);
    text = `${keyName(slice.kind, slice.key)}\n${duration(slice.end - slice.start)} from ${sinceStart(slice.start)}`;
    if (more) text += `\n${more.join(" ")}`;
  } else if (what?.tick) {
    const { tick } = what;
    text = `${oneLine(index.events[tick.block.event[tick.at]].name)} at ${sinceStart(tick.time)}\n${fieldLine(tick.block.fields(tick.at)).slice(0, 300)}`;
  } else if (what?.line && !what.line.section && x < LABELS) {
    text = what.line.label;
  }
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(x + 14, view.width - 240)}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > view.height ? y - tip.offsetHeight - 8 : y + 18}px`;
};

const changeTheme = () => {
  document.documentElement.dataset.theme = colours.isDark ? "light" : "dark";
  readColours();
  redraw();
};

/** The border between timeline and panel: dragged, or moved with keys. */
const prepareDivider = () => {
  const divider = document.getElementById("divider");
  const panel = document.getElementById("panel");
  const setHeight = (height) => {
    panel.style.height = `${Math.max(60, Math.min(height, document.body.clientHeight - 180))}px`;
    resize();
  };
  let grip = null;
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    grip = { y: event.clientY, height: panel.offsetHeight };
  });
  divider.addEventListener("pointermove", (event) => { if (grip) setHeight(grip.height + grip.y - event.clientY); });
  divider.addEventListener("pointerup", () => { grip = null; });
  divider.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 30, ArrowDown: -30 }[event.key];
    if (!by) return;
    event.preventDefault();
    setHeight(panel.offsetHeight + by);
  });
};

const prepareTabs = () => {
  for (const name of TABS) {
    const button = document.getElementById(`tab-${name}`);
    button.addEventListener("click", () => showTab(name, true));
    button.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      showTab(TABS[(TABS.indexOf(name) + by + TABS.length) % TABS.length], true);
    });
  }
};

const prepareInput = () => {
  document.addEventListener("keydown", onKey);
  canvas.addEventListener("pointerdown", onPointerDown);
  canvas.addEventListener("pointermove", onPointerMove);
  canvas.addEventListener("pointerup", onPointerUp);
  canvas.addEventListener("pointercancel", onPointerUp);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("dblclick", zoomToChosen);
  const click = (id, action) => document.getElementById(id).addEventListener("click", action);
  click("zoom-in", () => zoom(0.5));
  click("zoom-out", () => zoom(2));
  click("zoom-all", showAll);
  click("theme", changeTheme);
  click("help-button", toggleHelp);
  click("previous", () => search(-1));
  click("arrows", (event) => {
    showArrows = !showArrows;
    event.currentTarget.setAttribute("aria-pressed", showArrows);
    redraw();
  });
  click("select-mode", (event) => {
    selectMode = !selectMode;
    event.currentTarget.setAttribute("aria-pressed", selectMode);
  });
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search(1);
  });
  document.getElementById("filter").addEventListener("input", (event) => {
    filterText = event.target.value;
    layOut();
    scrollTo(0);
    saveLink();
  });
  document.getElementById("help").append(...KEYS.map(([keys, what]) => make("p", {}, make("kbd", { text: keys }), ` ${what}`)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
  new ResizeObserver(resize).observe(document.getElementById("stage"));
  prepareDivider();
  prepareTabs();
};

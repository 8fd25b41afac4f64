// Search: through the blocks of events, one after the other, from where one is.

let searchTurn = 0;

/** What is looked for: `field=value`, or a text in the name of an event or thread or in a text of a field. */
const matcherOf = (query) => {
  const text = query.toLowerCase();
  const pair = /^([A-Za-z_]\w*)=(.*)$/s.exec(query);
  const events = index.events.map((event) => event.name.toLowerCase().includes(text));
  const threads = index.threads.map(([tid, name]) => `${name} ${tid}`.toLowerCase().includes(text));
  const fields = index.events.map((event) => (pair ? event.fields.findIndex(([name]) => name === pair[1]) : -1));
  /** Whether anything in a block can match at all. */
  const mayHave = (told) => {
    if (!pair) return true;
    for (let at = 0; at < told.counts.length; at += 2) if (fields[told.counts[at]] >= 0) return true;
    return false;
  };
  const inBlock = (block) => {
    if (pair) {
      const wanted = pair[2].toLowerCase();
      return (at) => {
        return fields[block.event[at]] >= 0 && block.text(at, pair[1]).toLowerCase() === wanted;
      };
    }
    const found = new Set();
    block.texts().forEach((value, place) => { if (value.toLowerCase().includes(text)) found.add(place); });
    const hasText = (at) => {
      const event = block.event[at];
      return index.events[event].fields.some(([, type], field) => isText(type) && found.has(block.values(event, field)[block.nth[at]]));
    };
    return (at) => events[block.event[at]] || (block.thread[at] > 0 && threads[block.thread[at] - 1]) || (found.size > 0 && hasText(at));
  };
  return { mayHave, inBlock };
};

/** Goes to the next match behind what is chosen, or the previous one; from the other end if there is none. */
const searchFor = async (query, direction) => {
  const turn = ++searchTurn;
  if (!query) {
    say("");
    return null;
  }
  const matcher = matcherOf(query);
  const all = index.blocks.length;
  let begin = direction > 0 ? 1 : index.detailed;
  if (chosen?.event !== undefined) begin = chosen.event + direction;
  else if (chosen || view.from > 0) begin = (await numbersIn(chosen ? chosen.start : view.from, view.to))[0];
  let at = index.blocks.findIndex((block, nth) => begin < blockStarts[nth] + block.count);
  if (at < 0 || begin < 1) {
    at = direction > 0 ? 0 : all - 1;
    begin = direction > 0 ? 1 : index.detailed;
  }
  // The first block is looked at twice: what is behind the beginning, and at last what is before it.
  for (let done = 0; done <= all; done++, at = (at + direction + all) % all) {
    const told = index.blocks[at];
    if (!told) break;
    if (done % 8 === 7) say(`Searching … ${Math.round((100 * done) / all)} %`);
    if (!matcher.mayHave(told)) continue;
    // Blocks that are only searched do not drive out what is shown.
    const events = stores.events.peek(told) ?? new Events(await unpack(`events${told.block}`), told);
    if (turn !== searchTurn) return null;
    const is = matcher.inBlock(events);
    const start = blockStarts[at];
    let nth = direction > 0 ? 0 : events.count - 1;
    if (done === 0) nth = begin - start;
    for (; nth >= 0 && nth < events.count; nth += direction) {
      if (is(nth)) return chooseEvent(start + nth, true);
    }
  }
  const rest = index.detailed < index.total ? ` among the first ${count(index.detailed)} events, of which the page has details` : "";
  say(`Nothing has “${oneLine(query).slice(0, 80)}”${rest}.`);
  return null;
};

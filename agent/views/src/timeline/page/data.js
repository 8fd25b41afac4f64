// Data: from the text of an element to numbers. What is unpacked is kept as long as there is room.

/** The bytes of an element. The browser itself knows DEFLATE. */
const unpack = async (id) => {
  const element = document.getElementById(id);
  const text = element.textContent;
  let bytes;
  if (Uint8Array.fromBase64) {
    bytes = Uint8Array.fromBase64(text);
  } else {
    const plain = atob(text);
    bytes = new Uint8Array(plain.length);
    for (let at = 0; at < plain.length; at++) bytes[at] = plain.charCodeAt(at);
  }
  const stream = new DecompressionStream("deflate-raw");
  const writer = stream.writable.getWriter();
  writer.write(bytes).catch(() => {});
  writer.close().catch(() => {});
  const parts = [];
  let length = 0;
  const reader = stream.readable.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
  }
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
};

/** Numbers of a column. Those beyond 2^53 lose their lowest bits; `big` does not. */
class Numbers {
  constructor(bytes, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  /** The next byte. Without it, a column that is cut short would be numbers without end. */
  byte() {
    if (!(this.at < this.end)) throw new Error("a column of a block is cut short");
    return this.bytes[this.at++];
  }

  next() {
    let byte = this.byte();
    if (byte < 128) return byte;
    let value = byte & 127;
    let scale = 128;
    do {
      byte = this.byte();
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }

  signed() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  big() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    return value & 1n ? -((value + 1n) >> 1n) : value >> 1n;
  }

  /** A column: how long it is, and its bytes. */
  column() {
    const length = this.next();
    if (length > this.end - this.at) throw new Error("a column of a block is cut short");
    const column = new Numbers(this.bytes, this.at, this.at + length);
    this.at += length;
    return column;
  }
}

/** Rows of a block that is sorted by them: which, and where each begins. */
const rowsOf = (column, count) => {
  const rows = new Map();
  let row = 0;
  let at = 0;
  while (column.at < column.end) {
    row += column.next();
    const length = column.next();
    rows.set(row, [at, at + length]);
    at += length;
  }
  if (at !== count) throw new Error("a block has other rows than the index says");
  return rows;
};

/** Slices of a level. */
const decodeSlices = (bytes, [, , count, from]) => {
  const all = new Numbers(bytes);
  const rows = rowsOf(all.column(), count);
  const [starts, times, keys, args, firsts, lasts] = Array.from({ length: 6 }, () => all.column());
  const block = {
    count, rows, longest: 0,
    start: new Float64Array(count), end: new Float64Array(count), key: new Uint32Array(count),
    arg: new Float64Array(count), first: new Float64Array(count), last: new Float64Array(count),
  };
  let first = 0;
  for (const [begin, end] of rows.values()) {
    let start = from;
    for (let at = begin; at < end; at++) {
      start += starts.next();
      const time = times.next();
      block.start[at] = start;
      block.end[at] = start + time;
      if (time > block.longest) block.longest = time;
      block.key[at] = keys.next();
      block.arg[at] = args.signed();
      first += firsts.signed();
      block.first[at] = first;
      block.last[at] = first + lasts.signed();
    }
  }
  return block;
};

/** The key of a density in which several have a part that are not told apart. */
const OTHERS = -1;

/** Densities of a level. */
const decodeDensities = (bytes, [level, , count, from]) => {
  const width = index.base * 4 ** level;
  const all = new Numbers(bytes);
  const rows = rowsOf(all.column(), count);
  const [buckets, keys, times, counts] = Array.from({ length: 4 }, () => all.column());
  const block = {
    count, rows, width,
    start: new Float64Array(count), key: new Float64Array(count),
    time: new Float64Array(count), number: new Float64Array(count),
  };
  const first = Math.round(from / width);
  for (const [begin, end] of rows.values()) {
    let bucket = first;
    for (let at = begin; at < end; at++) {
      bucket += buckets.next();
      block.start[at] = bucket * width;
      block.key[at] = keys.next() - 1;
      block.time[at] = times.next();
      block.number[at] = counts.next();
    }
  }
  return block;
};

const utf8 = new TextDecoder();

/** Whether the values of a field are places of texts. */
const isText = (type) => type === "s" || type === "n";

/** A block of events. Fields are only looked at when they are asked for. */
class Events {
  constructor(bytes, told) {
    const all = new Numbers(bytes);
    const [events, times, cpus, threads, texts] = Array.from({ length: 5 }, () => all.column());
    const count = told.count;
    this.count = count;
    this.event = new Uint32Array(count);
    this.time = new Float64Array(count);
    this.cpu = new Uint32Array(count);
    this.thread = new Uint32Array(count);
    /** Which of the records of its event each one is. */
    this.nth = new Uint32Array(count);
    const seen = new Map();
    let time = told.from;
    for (let at = 0; at < count; at++) {
      const event = events.next();
      this.event[at] = event;
      time += times.next();
      this.time[at] = time;
      this.cpu[at] = cpus.next();
      this.thread[at] = threads.next();
      const nth = seen.get(event) || 0;
      this.nth[at] = nth;
      seen.set(event, nth + 1);
    }
    this.columns = new Map();
    for (let at = 0; at < told.counts.length; at += 2) {
      const event = told.counts[at];
      const columns = index.events[event].fields.map(() => all.column());
      this.columns.set(event, { count: told.counts[at + 1], columns, values: columns.map(() => null) });
    }
    this.textColumn = texts;
    this.textList = null;
  }

  /** All texts of the block. */
  texts() {
    if (!this.textList) {
      this.textList = [];
      const column = this.textColumn;
      while (column.at < column.end) {
        const length = column.next();
        this.textList.push(utf8.decode(column.bytes.subarray(column.at, column.at + length)));
        column.at += length;
      }
    }
    return this.textList;
  }

  /** The values of a field of an event: numbers, of texts their places; `null` for one that is missing. */
  values(event, field) {
    const of = this.columns.get(event);
    if (of.values[field]) return of.values[field];
    const column = of.columns[field];
    const type = index.events[event].fields[field][1];
    const some = column.next() === 1;
    const there = some ? column.bytes.subarray(column.at, column.at + of.count) : null;
    if (some) column.at += of.count;
    const values = [];
    let before = 0;
    let big = 0n;
    for (let at = 0; at < of.count; at++) {
      if (there && !there[at]) {
        values.push(null);
      } else if (isText(type)) {
        values.push(column.next());
      } else if (type === "i" || type === "u") {
        before += column.signed();
        values.push(before);
      } else {
        big = BigInt.asUintN(64, big + column.big());
        values.push(type === "I" ? BigInt.asIntN(64, big) : big);
      }
    }
    of.values[field] = values;
    return values;
  }

  /** The text of a field of a record; `null` if its event has no such field. */
  text(at, name) {
    const event = this.event[at];
    const field = index.events[event].fields.findIndex((other) => other[0] === name);
    if (field < 0) return null;
    const type = index.events[event].fields[field][1];
    const value = this.values(event, field)[this.nth[at]];
    if (value === null) return "(not in the record)";
    if (isText(type)) return this.texts()[value];
    // Addresses of 32 bits are plain numbers.
    if (type === "x") return `0x${BigInt.asUintN(64, BigInt(value)).toString(16)}`;
    return String(value);
  }

  /** Names and texts of the fields of a record. */
  fields(at) {
    const event = this.event[at];
    return index.events[event].fields
      .filter(([, type], field) => type !== "n" || this.values(event, field)[this.nth[at]] !== null)
      .map(([name]) => [name, this.text(at, name)]);
  }
}

/** Counts frames: what was used for the last ones is not forgotten. */
let frame = 0;

/** Blocks that are unpacked, the ones that were used last at the end. */
class Store {
  constructor(kind, decode, most) {
    this.kind = kind;
    this.decode = decode;
    this.most = most;
    this.ready = new Map();
    this.pending = new Map();
  }

  /** A block if it is there. */
  peek(told) {
    const number = told.block ?? told[1];
    const block = this.ready.get(number);
    if (block) {
      block.used = frame;
      this.ready.delete(number);
      this.ready.set(number, block);
    }
    return block;
  }

  /** A block when it is there. */
  get(told) {
    const number = told.block ?? told[1];
    const block = this.peek(told);
    if (block) return Promise.resolve(block);
    if (!this.pending.has(number)) {
      const load = unpack(`${this.kind}${number}`).then((bytes) => {
        const made = this.decode(bytes, told);
        this.pending.delete(number);
        made.used = frame;
        this.ready.set(number, made);
        for (const [oldest, { used }] of this.ready) {
          if (this.ready.size <= this.most || used >= frame - 1) break;
          this.ready.delete(oldest);
        }
        return made;
      });
      this.pending.set(number, load);
    }
    return this.pending.get(number);
  }
}

/** Slices, densities and events. */
const stores = {
  slices: new Store("block", decodeSlices, 600),
  densities: new Store("block", decodeDensities, 200),
  events: new Store("events", (bytes, told) => new Events(bytes, told), 160),
};

/** How many blocks are unpacked for the view at a time. */
const AT_A_TIME = 4;
let loading = 0;
let wanted = [];

/** Blocks that the view lacks are unpacked, a few at a time; what an earlier view lacked is forgotten. */
const want = (list) => {
  wanted = list;
  const more = () => {
    while (loading < AT_A_TIME && wanted.length) {
      const [store, told] = wanted.shift();
      loading++;
      store.get(told).then(() => { loading--; redraw(); more(); }, (error) => { loading--; fail(error); });
    }
  };
  more();
};

/** The first place in a sorted part of an array that is not below a value. */
const lowerBound = (array, value, low, high) => {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
};

// Unpacks what the page carries: the numbers at once, the charting library after the first paint, samples on demand.

const bytesOf = (base64) => {
  const raw = atob(base64);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
};

const unpacked = async (id, format) => {
  const packed = bytesOf(document.getElementById(id).textContent);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream(format));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

const textOf = async (id) => new TextDecoder().decode(await unpacked(id, "gzip"));

let page = null; // the document of payload.py
let works = []; // the shapes by what is computed: {label, shapes}

const loadPage = async () => {
  page = JSON.parse(await textOf("data"));
  const byLabel = new Map();
  page.shapes.forEach((shape, number) => {
    if (!byLabel.has(shape.label)) byLabel.set(shape.label, { label: shape.label, shapes: [] });
    byLabel.get(shape.label).shapes.push(number);
  });
  works = [...byLabel.values()];
  for (const work of works) for (const shape of work.shapes) page.shapes[shape].work = work;
};

const loadPlotly = async () => {
  const script = document.createElement("script");
  script.textContent = await textOf("plotly");
  document.head.append(script);
};

const at = (column, cell) => page.cells[column][cell];
const cellCount = () => page.cells.batch.length;

// The same layout as HEADER in samples.py
const HEADER_BYTES = 30;
const STEPS = 65535;
const blocks = new Map();

const samplesOf = async (cell) => {
  const where = at("taken", cell);
  if (!where) return [];
  const [block, offset, count] = where;
  if (!blocks.has(block)) blocks.set(block, await unpacked(`samples-${block}`, "deflate-raw"));
  const bytes = blocks.get(block);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  let values = offset + count * HEADER_BYTES;
  const series = [];
  for (let i = 0; i < count; i++) {
    const head = offset + i * HEADER_BYTES;
    const [mode, campaign, host, round] = [0, 2, 4, 6].map((at_) => view.getUint16(head + at_, true));
    const [total, kept] = [8, 12].map((at_) => view.getUint32(head + at_, true));
    const [least, median, largest] = [16, 20, 24].map((at_) => view.getFloat32(head + at_, true));
    const isFlagged = view.getUint16(head + 28, true) > 0;
    const seconds = [];
    for (let j = 0; j < kept; j++, values += 2) {
      seconds.push(least + (view.getUint16(values, true) / STEPS) * (largest - least));
    }
    series.push({
      mode: page.modes[mode], campaign: page.campaigns[campaign], host: page.hosts[host], round,
      total, least, median, largest, isFlagged, seconds,
    });
  }
  return series;
};

// Words and numbers

const digits = (value) => (value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2));

const duration = (seconds, low = null, high = null) => {
  if (seconds === null || seconds === undefined) return "–";
  const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  const interval = low === null || high === null ? "" : ` [${digits(low / scale)}, ${digits(high / scale)}]`;
  return `${digits(seconds / scale)} ${unit}${interval}`;
};

const ratioText = (value, low = null, high = null) => {
  if (value === null || value === undefined) return "–";
  return `×${value.toFixed(2)}` + (low === null || high === null ? "" : ` [${low.toFixed(2)}, ${high.toFixed(2)}]`);
};

const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

const counted = (number, one, several) => `${number.toLocaleString("en")} ${number === 1 ? one : several}`;

const escaped = (text) => String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);

const SIGNS = { faster: "", slower: "", "slightly faster": " ≈", "slightly slower": " ≈", equivalent: " ≈", undecided: " ?" };

const latency = (cell) => duration(at(state.mode, cell), at(`${state.mode}_low`, cell), at(`${state.mode}_high`, cell));

// A ratio of a cell, against the baseline `kind`: "backend" or "system"
const ratioOf = (cell, kind) => {
  const name = `${state.mode}_${kind}`;
  const value = at(name, cell);
  if (value === null) return null;
  const verdict = page.verdicts[at(`${name}_verdict`, cell)];
  return {
    value, low: at(`${name}_low`, cell), high: at(`${name}_high`, cell), verdict,
    pairing: page.pairings[at(`${name}_pairing`, cell)], n: at(`${name}_n`, cell), least: at(`${name}_least`, cell),
    more: at(`${name}_more`, cell), cpu: at(`${name}_cpu`, cell),
  };
};

const PAIRINGS = {
  turns: (n) => `in turns, ${counted(n, "session", "sessions")}`,
  rounds: (n) => `paired by round, ${counted(n, "round", "rounds")}`,
  unpaired: (n) => `unpaired, ${counted(n, "process", "processes")}`,
};

const ratioWords = (ratio) => {
  const least = ratio.least === null ? "" : `; a difference of ${percent(ratio.least)} could have been found`;
  const more = ratio.more === null ? "" : `; about ${counted(ratio.more, "session", "sessions")} more would decide it`;
  return `${ratioText(ratio.value, ratio.low, ratio.high)}: ${ratio.verdict}<br>${PAIRINGS[ratio.pairing](ratio.n)}${least}${more}${ratio.cpu === null ? "" : `<br>${escaped(ratio.cpu)}`}`;
};

const FLAG = "⚑";

const marks = (cell) => {
  const found = [];
  if (at("flagged", cell)) found.push(`${FLAG} ${at("flagged", cell)} flagged`);
  if (at("unsteady", cell)) found.push(`${at("unsteady", cell)} not steady`);
  return found;
};

const cellName = (cell) => {
  const shape = page.shapes[at("shape", cell)];
  const axes = Object.entries(shape.axes).filter(([name]) => name !== "protocol").map(([name, value]) => `${name} ${value}`);
  return [
    page.places[at("place", cell)].label, shape.label, ...axes,
    page.backends[at("backend", cell)].label, `batch ${at("batch", cell)}`,
  ].join(", ");
};

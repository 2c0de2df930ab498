// The table of all numbers: what the charts show, for those who read, sort or use a keyboard.

const PAGE_LENGTH = 50;
const listing = { column: "system", up: true, first: 0 };

const COLUMNS = [
  { name: "system", wide: true, text: (cell) => page.places[at("place", cell)].label, order: (cell) => at("place", cell) },
  { name: "work", wide: true, text: workText, order: (cell) => at("shape", cell) },
  { name: "batch", number: true, text: (cell) => String(at("batch", cell)), order: (cell) => at("batch", cell) },
  { name: "backend", text: (cell) => page.backends[at("backend", cell)].label, order: (cell) => at("backend", cell) },
  { name: "latency", number: true, text: (cell) => latency(cell), order: (cell) => at(state.mode, cell) },
  { name: "against backend", wide: true, text: (cell) => ratioCell(cell, "backend"), order: (cell) => at(`${state.mode}_backend`, cell) },
  { name: "against system", wide: true, text: (cell) => ratioCell(cell, "system"), order: (cell) => at(`${state.mode}_system`, cell) },
  { name: "processes", number: true, text: (cell) => String(at(`${state.mode}_n`, cell)), order: (cell) => at(`${state.mode}_n`, cell) },
  { name: "framework", number: true, text: (cell) => (at("fraction", cell) !== null && at("device", cell) === "cpu" ? "≥ " : "") + percent(at("fraction", cell)), order: (cell) => at("fraction", cell) },
  { name: "execution tax", number: true, text: (cell) => percent(at("execution_share", cell)), title: executionText, order: (cell) => at("execution_share", cell) },
  { name: "regime", text: (cell) => (at("regime", cell) === null ? "unknown" : regimeText(cell)), order: (cell) => at("regime", cell) },
  { name: "trials", wide: true, text: (cell) => [at("statuses", cell).replaceAll("_", " "), ...marks(cell), at("reason", cell)?.slice(0, 100)].filter((part) => part).join(", "), title: (cell) => at("reason", cell), order: (cell) => at("flagged", cell) },
];

function workText(cell) {
  const shape = page.shapes[at("shape", cell)];
  return [shape.label, shape.axes.dtype].filter((part) => part).join(", ");
}

const ratioCell = (cell, kind) => {
  const ratio = ratioOf(cell, kind);
  return ratio ? `${ratioText(ratio.value, ratio.low, ratio.high)} ${ratio.verdict}` : "–";
};

// Without those that say the same in every row, which stands in the caption, or nothing in any
const CONSTANT = ["system", "work"];
const isShown = ({ name, order }, cells) => (CONSTANT.includes(name) ? new Set(cells.map(order)).size > 1 : cells.some((cell) => order(cell) !== null));

const showCells = () => {
  const chosen = chosenCells();
  const columns = COLUMNS.filter((column) => isShown(column, chosen));
  const { order } = COLUMNS.find(({ name }) => name === listing.column) ?? COLUMNS[0];
  const cells = chosen.map((cell) => [order(cell), cell]);
  const sign = listing.up ? 1 : -1;
  cells.sort(([one, a], [other, b]) => (one === null) - (other === null) || sign * (one - other) || a - b);
  listing.first = Math.min(listing.first, Math.max(0, cells.length - 1));
  const shown = cells.slice(listing.first, listing.first + PAGE_LENGTH).map(([, cell]) => cell);
  const head = columns.map(({ name }) => {
    const sort = el("button", { type: "button", class: "sort", onclick: () => sortBy(name) }, name);
    const here = name === listing.column;
    if (here) sort.dataset.up = String(listing.up);
    return el("th", { scope: "col", "data-name": name, "aria-sort": here ? (listing.up ? "ascending" : "descending") : null }, sort);
  });
  const rows = shown.map((cell) => el("tr", {}, ...columns.map(({ text, title, number, wide }) => el("td", { class: number ? "number" : title ? "text long" : wide ? "text" : null, title: title?.(cell) }, text(cell))),
    el("td", {}, at("taken", cell) ? el("button", { type: "button", "aria-label": `Samples of ${cellName(cell)}`, onclick: () => showSamples(cell) }, "Samples") : null)));
  const same = chosen.length ? COLUMNS.filter((column) => CONSTANT.includes(column.name) && !columns.includes(column)).map(({ text }) => text(chosen[0])) : [];
  const caption = [counted(cells.length, "configuration", "configurations"), MODE_LABELS[state.mode], ...same].join(", ");
  document.getElementById("cell-table").replaceChildren(
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head, el("th", { scope: "col" }, "raw"))), el("tbody", {}, ...rows))),
    pager(cells.length));
};

const sortBy = (name) => {
  listing.up = listing.column === name ? !listing.up : true;
  listing.column = name;
  listing.first = 0;
  showCells();
  document.querySelector(`#cell-table th[data-name="${name}"] .sort`).focus();
};

const pager = (count) => {
  const to = (first) => () => { listing.first = first; showCells(); };
  const last = Math.min(count, listing.first + PAGE_LENGTH);
  return el("div", { class: "pager" },
    el("button", { type: "button", disabled: listing.first === 0, onclick: to(Math.max(0, listing.first - PAGE_LENGTH)) }, "Previous"),
    el("span", {}, count ? `${listing.first + 1} to ${last} of ${count}` : "nothing is left by the filters"),
    el("button", { type: "button", disabled: last >= count, onclick: to(listing.first + PAGE_LENGTH) }, "Next"));
};

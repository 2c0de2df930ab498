// Panels: one small chart each, drawn when it comes into view, in the colours of the page.

const MOST_PANELS = 12;
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "hexagon"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash"];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (number) => css(`--s${number % 8}`);
// The ninth has the colour of the first, but not its shape
const shapeOf = (number) => (number + Math.floor(number / 8)) % 8;
const symbol = (number, open = false) => SYMBOLS[shapeOf(number)] + (open ? "-open" : "");
const dash = (number) => DASHES[shapeOf(number)];

const layoutOf = (more) => {
  const axis = { gridcolor: css("--grid"), linecolor: css("--line"), zerolinecolor: css("--line"), automargin: true, ticks: "outside", tickcolor: css("--line") };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  const titled = ({ title, ...others }) => ({ ...axis, ...others, ...(title ? { title: { text: title, standoff: 6, font: { size: 12 } } } : {}) });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif", size: 12, color: css("--ink") },
    hoverlabel: { bgcolor: css("--surface"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--muted"), activecolor: css("--ink") },
    margin: { l: 8, r: 14, t: 10, b: 8 }, dragmode: isTouched ? false : "zoom", xaxis: titled(xaxis), yaxis: titled(yaxis), ...rest,
  };
};

// The buttons stand beside the caption (page.css), where they cover nothing; dragging zooms, a double click shows all again.
const configOf = (name) => ({
  displaylogo: false, responsive: false, showSendToCloud: false, showEditInChartStudio: false, plotlyServerURL: "", displayModeBar: "hover",
  modeBarButtonsToRemove: ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "lasso2d", "select2d", "autoScale2d"],
  toImageButtonOptions: { format: "svg", scale: 1, filename: `taxmeter-${name.toLowerCase().replace(/[^a-z0-9.]+/g, "-").slice(0, 80)}` },
});
// A finger that moves over a chart scrolls the page
const isTouched = matchMedia("(pointer: coarse)").matches;

// Ticks of a logarithmic axis that do not run into each other: decades, or 1, 2, 5 where there are few of them; along
// less than a decade even steps
const logTicks = (range, text) => {
  const [low, high] = range;
  const steps = high - low > 3 ? [1] : high - low > 1.6 ? [1, 3] : [1, 2, 5];
  const values = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const step of steps) {
      const value = step * 10 ** power;
      if (Math.log10(value) >= low && Math.log10(value) <= high) values.push(value);
    }
  }
  if (values.length < 3) values.splice(0, values.length, ...evenSteps(10 ** low, 10 ** high));
  return { tickvals: values, ticktext: values.map(text) };
};

const evenSteps = (low, high) => {
  const size = 10 ** Math.floor(Math.log10((high - low) / 3));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => (high - low) / one <= 6);
  const first = Math.ceil(low / step);
  return [...Array(Math.floor(high / step) - first + 1).keys()].map((number) => (first + number) * step);
};

const short = (value) => (value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));
const seconds = (value) => (value >= 1 ? `${short(value)} s` : value >= 1e-3 ? `${short(value * 1e3)} ms` : `${short(value * 1e6)} µs`);
const metric = (value) => {
  const [scale, unit] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([size]) => value >= size) ?? [1, ""];
  return `${short(value / scale)}${unit}`;
};
const logAxis = (title, range, text) => ({ title, type: "log", ...(range ? { range, ...logTicks(range, text) } : {}) });
const batchAxis = (batches) => {
  const every = Math.ceil(batches.length / 8);
  return { title: "batch", type: "log", tickvals: batches.filter((_, number) => number % every === 0), ticktext: batches.filter((_, number) => number % every === 0).map(String), range: [Math.log10(batches[0]) - 0.08, Math.log10(batches.at(-1)) + 0.08] };
};

// Marks of one batch stand beside each other, so that their intervals do not lie on each other
const dodge = (number, count) => 10 ** (Math.min(0.012, 0.07 / count) * (number - (count - 1) / 2));

// Of [value, low, high]; an end that is not known is the value, and one that is not above 0 reaches the edge
const errorBars = (found, number) => ({
  type: "data", symmetric: false, array: found.map(([value, , high]) => (high ?? value) - value), arrayminus: found.map(([value, low]) => value - Math.max(low ?? value, 1e-12)),
  thickness: 1.2, width: 3, color: colour(number),
});

const logRange = (values) => {
  const known = values.filter((value) => value > 0);
  if (!known.length) return null;
  const [low, high] = [Math.log10(known.reduce((a, b) => Math.min(a, b))), Math.log10(known.reduce((a, b) => Math.max(a, b)))];
  const room = Math.max(0.06, 0.06 * (high - low));
  return [low - room, high + room];
};

const sorted = (numbers) => [...new Set(numbers)].sort((one, other) => one - other);

const groupBy = (items, key) => {
  const found = new Map();
  for (const item of items) {
    const name = key(item);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(item);
  }
  return found;
};

const drawers = new WeakMap(); // of a plot that is not drawn yet
const expanded = new Set();

const draw = (plot) => {
  const drawer = drawers.get(plot);
  if (!drawer || !window.Plotly) return;
  drawers.delete(plot);
  const { traces, layout } = drawer();
  Plotly.react(plot, traces, layoutOf(layout), configOf(plot.dataset.name));
  sizes.observe(plot);
  plot.on("plotly_click", (event) => {
    const cell = event.points[0]?.customdata;
    if (typeof cell === "number") showSamples(cell);
  });
};

// A drawing is as wide as its frame, whatever makes the frame wider or narrower: other panels, a scroll bar, the window
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const drawn = target._fullLayout;
    if (!target.isConnected) sizes.unobserve(target);
    else if (drawn && target.clientWidth && Math.abs(drawn.width - target.clientWidth) >= 1) Plotly.Plots.resize(target);
  }
});

const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
}, { rootMargin: "300px" });

const visible = (plot) => {
  const box = plot.getBoundingClientRect();
  return box.top < innerHeight + 300 && box.bottom > -300;
};

const drawEverything = () => document.querySelectorAll(".panels .plot").forEach(draw);

// What the colours of a chart mean: backends, or systems
const showLegend = (name, all, numbers, line) => {
  document.querySelector(`[data-legend="${name}"]`).replaceChildren(...numbers.map((number) => el("span", {}, key(number, line), all[number].label)));
};

// Why a chart is not there, by its name
const absent = new Map();

// Puts panels into the chart of a name; a section without any is hidden, and `showAbsent` says why. Each is {title, detail, label, height, drawer}.
const showPanels = (name, panels, nothing) => {
  const box = document.querySelector(`[data-chart="${name}"]`);
  absent.set(name, panels.length ? null : nothing);
  box.closest("section").hidden = !panels.length;
  const limit = expanded.has(name) ? panels.length : MOST_PANELS;
  for (const plot of box.querySelectorAll(".js-plotly-plot")) window.Plotly?.purge(plot);
  box.replaceChildren();
  for (const panel of panels.slice(0, limit)) {
    const plot = el("div", { class: "plot", role: "img", "data-name": panel.label, "aria-label": `${panel.label}. The table of all numbers has its values.` });
    if (panel.height) plot.style.height = `${panel.height}px`;
    const caption = el("figcaption", {}, panel.title, panel.detail ? el("small", {}, ` ${panel.detail}`) : null);
    box.append(el("figure", { class: "panel" }, caption, plot));
    drawers.set(plot, panel.drawer);
  }
  if (panels.length > limit) {
    const more = el("button", { type: "button", class: "more", onclick: () => { expanded.add(name); showPanels(name, panels, nothing); } });
    more.textContent = `${limit} of ${panels.length} panels are shown: show all, or narrow the filters`;
    box.append(more);
  }
  // Not before all are there: a panel that stands alone is as wide as the page
  for (const plot of box.querySelectorAll(".plot")) {
    observer.observe(plot);
    if (window.Plotly && visible(plot)) draw(plot);
  }
};

// Cells by place and shape: the panels of most charts. A title names what differs among them.
const panelsOf = (cells) => {
  const groups = groupBy(cells, (cell) => `${at("place", cell)}|${at("shape", cell)}`);
  const shapes = shapesByPlace(cells);
  return [...groups.values()].map((some) => ({
    cells: some, title: page.places[at("place", some[0])].label, detail: shapeDetail(some[0], shapes.get(at("place", some[0]))),
  })).sort((one, other) => at("place", one.cells[0]) - at("place", other.cells[0]) || at("shape", one.cells[0]) - at("shape", other.cells[0]));
};

const shapesByPlace = (cells) => {
  const groups = groupBy(cells, (cell) => at("place", cell));
  return new Map([...groups].map(([place, some]) => [place, new Set(some.map((cell) => at("shape", cell)))]));
};

const shapeDetail = (cell, shapes) => {
  const shape = page.shapes[at("shape", cell)];
  const others = [...shapes].map((number) => page.shapes[number]);
  const parts = new Set(others.map((one) => one.label)).size > 1 ? [shape.label] : [];
  for (const name of Object.keys(shape.axes)) {
    if (new Set(others.map((one) => one.axes[name])).size < 2) continue;
    parts.push(name === "protocol" ? `protocol ${page.axes.protocol.findIndex((one) => one.value === shape.axes.protocol) + 1}` : name === "dtype" ? shape.axes[name] : `${name} ${shape.axes[name]}`);
  }
  return parts.join(", ");
};

// A label has no more room than its panel
const wrapped = (text) => {
  const most = Math.max(24, Math.min(40, innerWidth / 16));
  return text.split(" ").reduce(([done, line], word) => (line && line.length + word.length >= most ? [[...done, line], word] : [done, line ? `${line} ${word}` : word]), [[], ""]).flat().join("<br>");
};

const hoverText = (cell, ...lines) => [`<b>${escaped(page.backends[at("backend", cell)].label)}, batch ${at("batch", cell)}</b>`, ...lines.flatMap((line) => line.split("<br>")).map(wrapped), ...marks(cell)].join("<br>");
const HOVER = { hovertemplate: "%{text}<extra></extra>" };

// Raw samples of a cell, unpacked when somebody asks for them.

const MOST_PROCESSES = 40;
const dialog = document.getElementById("samples");
let opened = null; // {cell, series, mode}

const showSamples = async (cell) => {
  const series = await samplesOf(cell);
  const modes = page.modes.filter((mode) => series.some((one) => one.mode === mode));
  opened = { cell, series, modes, mode: modes.includes(state.mode) ? state.mode : modes[0] };
  document.getElementById("samples-title").textContent = cellName(cell);
  showQuery(document.getElementById("samples-query"), filledQuery("samples", sqlOfCell(cell)));
  if (!dialog.open) dialog.showModal();
  drawSamples();
};

const drawSamples = () => {
  const { cell, series, modes, mode } = opened;
  const found = series.filter((one) => one.mode === mode);
  const shown = found.slice(0, MOST_PROCESSES);
  const about = document.getElementById("samples-about");
  const plot = document.getElementById("samples-plot");
  document.getElementById("samples-mode").hidden = modes.length < 2;
  toggle("samples-mode", modes.map((one) => [one, MODE_LABELS[one]]), mode, (chosen) => { opened.mode = chosen; drawSamples(); });
  document.getElementById("samples-table").replaceChildren();
  plot.hidden = !found.length;
  if (!found.length) {
    about.textContent = at("reason", cell) ? `No samples. ${at("statuses", cell)}: ${at("reason", cell)}` : "No samples of this configuration are in this page; the query below finds those of the store.";
    return;
  }
  const count = (some, name) => some.reduce((sum, one) => sum + one[name], 0);
  const [total, kept] = [count(found, "total"), found.reduce((sum, one) => sum + one.seconds.length, 0)];
  const thinned = kept < total ? `, ${kept.toLocaleString("en")} of ${counted(total, "sample", "samples")}, evenly spaced` : total === 1 ? ", its sample" : `, all ${counted(total, "sample", "samples")}`;
  const flagged = found.filter((one) => one.isFlagged).length;
  const some = found.length > shown.length ? `; the first ${shown.length} processes are drawn` : "";
  about.textContent = `${counted(found.length, "process", "processes")}${thinned}${some}. Each line is a process, in the order in which its samples were taken; the dotted line is the median over processes, ${duration(at(mode, cell))}.${flagged ? ` ${FLAG}: guards flagged ${counted(flagged, "process", "processes")} as disturbed.` : ""}`;
  const traces = shown.map((one, number) => ({
    type: "scatter", mode: "lines+markers", name: processName(one), x: one.seconds.map((_, i) => Math.floor((i * one.total) / one.seconds.length)), y: one.seconds,
    line: { color: colour(number), width: 1, dash: dash(Math.floor(number / 8)) }, marker: { color: colour(number), size: 5, symbol: symbol(Math.floor(number / 8)) },
    text: one.seconds.map((value, i) => `${escaped(processName(one))}<br>sample ${Math.floor((i * one.total) / one.seconds.length)}: ${duration(value)}`), ...HOVER,
  }));
  const centre = at(mode, cell);
  const layout = layoutOf({
    xaxis: { title: "position in its series", tick0: 0, dtick: Math.max(...shown.map((one) => one.total)) <= 12 ? 1 : null, zeroline: false },
    yaxis: { title: "seconds per call", tickformat: "~s", ticksuffix: "s" },
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: centre, y1: centre, line: { color: css("--muted"), width: 1.5, dash: "dot" } }],
  });
  window.Plotly?.react(plot, traces, layout, configOf(`samples ${cellName(cell)}`));
  sizes.observe(plot);
  const rows = shown.map((one) => [processName(one), String(one.total), duration(one.least), duration(one.median), duration(one.largest)]);
  document.getElementById("samples-table").replaceChildren(plainTable("Processes, over all of their samples", ["process", "samples", "least", "median", "largest"], rows));
};

const processName = (one) => [`round ${one.round}`, one.host, page.campaigns.length > 1 ? one.campaign : null, one.isFlagged ? FLAG : null].filter((part) => part).join(", ");

document.getElementById("samples-close").addEventListener("click", () => dialog.close());

// Latency against batch: a panel per system, a line per backend.

const latencyPanels = () => {
  const cells = chosenCells().filter((cell) => at(state.mode, cell) !== null);
  const range = logRange(cells.flatMap((cell) => [at(state.mode, cell), at(`${state.mode}_low`, cell), at(`${state.mode}_high`, cell)]));
  const batches = sorted(cells.map((cell) => at("batch", cell)));
  showLegend("latency", page.backends, sorted(cells.map((cell) => at("backend", cell))), true);
  return panelsOf(cells).map(({ cells: some, title, detail }) => ({
    title, detail,
    label: `Latency against batch on ${title} ${detail}`,
    drawer: () => ({
      traces: [...groupBy(some, (cell) => at("backend", cell))].sort((one, other) => one[0] - other[0]).map(([backend, ours], number, all) => latencyTrace(backend, ours, dodge(number, all.length))),
      layout: { xaxis: batchAxis(batches), yaxis: logAxis("latency of a call", range, seconds) },
    }),
  }));
};

const latencyTrace = (backend, cells, factor) => {
  const ordered = cells.toSorted((one, other) => at("batch", one) - at("batch", other));
  const found = ordered.map((cell) => [at(state.mode, cell), at(`${state.mode}_low`, cell), at(`${state.mode}_high`, cell)]);
  return {
    type: "scatter", mode: "lines+markers+text", name: page.backends[backend].label,
    texttemplate: ordered.map((cell) => (at("flagged", cell) ? FLAG : "")), textposition: "bottom right", textfont: { color: css("--muted"), size: 10 },
    x: ordered.map((cell) => at("batch", cell) * factor), y: found.map(([value]) => value), customdata: ordered,
    text: ordered.map((cell) => hoverText(cell, latency(cell), `${counted(at(`${state.mode}_n`, cell), "process", "processes")}, ${counted(at(`${state.mode}_samples`, cell), "sample", "samples")}`)),
    ...HOVER,
    error_y: errorBars(found, backend),
    line: { color: colour(backend), dash: dash(backend), width: 2 },
    marker: { color: colour(backend), symbol: symbol(backend), size: 8 },
  };
};

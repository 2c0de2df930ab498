// Roofline: what the device reaches while it works, and what is delivered over the whole call.

const ratesOf = (cell) => {
  const [flops, bytes] = [at("flops", cell), at("weight_bytes", cell)];
  if (!flops || !bytes) return null;
  const cpu = at("device", cell) === "cpu";
  const total = at(cpu ? "latency_sync" : "latency_pipelined", cell);
  const parts = partsOf(cell);
  const working = cpu ? parts?.rest : at("busy", cell);
  if (!total) return null;
  return { intensity: flops / bytes, delivered: flops / total, possible: working > 0 ? flops / working : null };
};

const rooflinePanels = () => {
  const cells = chosenCells().filter((cell) => ratesOf(cell));
  const rates = cells.map(ratesOf);
  const range = logRange(rates.flatMap((one) => [one.delivered, one.possible]));
  const span = logRange(rates.map((one) => one.intensity));
  showLegend("roofline", page.backends, sorted(cells.map((cell) => at("backend", cell))), false);
  return panelsOf(cells).map(({ cells: some, title, detail }) => ({
    title, detail, label: `Roofline on ${title} ${detail}`,
    drawer: () => ({
      traces: [...groupBy(some, (cell) => at("backend", cell))].sort((one, other) => one[0] - other[0]).flatMap(rateTraces),
      layout: {
        xaxis: logAxis("FLOP per byte of weights", span, metric),
        yaxis: logAxis("FLOP/s", range, metric),
      },
    }),
  }));
};

const rateTraces = ([backend, cells]) => {
  const found = cells.map((cell) => ({ cell, ...ratesOf(cell) }));
  const both = found.filter((one) => one.possible !== null);
  const text = ({ cell, delivered, possible }) => hoverText(cell, `while it works ${rate(possible)}`, `over the whole call ${rate(delivered)}`, possible ? `${percent(delivered / possible)} delivered` : "");
  const points = (some, value, open) => ({
    type: "scatter", mode: "markers", name: page.backends[backend].label, customdata: some.map((one) => one.cell),
    x: some.map((one) => one.intensity), y: some.map(value), text: some.map(text), ...HOVER,
    marker: { color: colour(backend), symbol: symbol(backend, open), size: 9, line: { width: 1.5, color: colour(backend) } },
  });
  return [
    { type: "scatter", mode: "lines", hoverinfo: "skip", x: both.flatMap((one) => [one.intensity, one.intensity, null]), y: both.flatMap((one) => [one.delivered, one.possible, null]), line: { color: colour(backend), width: 1 } },
    points(both, (one) => one.possible, false),
    points(found, (one) => one.delivered, true),
  ];
};

const rate = (value) => {
  if (!value) return "unknown";
  const [scale, unit] = value >= 1e12 ? [1e12, "T"] : value >= 1e9 ? [1e9, "G"] : [1e6, "M"];
  return `${digits(value / scale)} ${unit}FLOP/s`;
};

// Roofline: what the device reaches while it works, what is delivered over the whole call, and what the best code reached.

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

// What was measured on the system of a cell: arithmetic in its dtype; on a CPU with as many threads
const roofOf = (cell) => {
  const { system } = page.places[at("place", cell)];
  return page.roofs.find((one) => one.system === system && one.shapes.includes(at("shape", cell))) ?? null;
};

// The most operations per second at an intensity. Where a part was not measured, it limits nothing.
const heightOf = ({ arithmetic, bandwidth }, intensity) => Math.min(arithmetic?.rate ?? Infinity, bandwidth ? bandwidth.rate * intensity : Infinity);

// The intensity from which arithmetic limits, and no longer the way to memory
const ridgeOf = ({ arithmetic, bandwidth }) => (arithmetic && bandwidth ? arithmetic.rate / bandwidth.rate : null);

const rooflinePanels = () => {
  const cells = chosenCells().filter((cell) => ratesOf(cell));
  const rates = cells.map(ratesOf);
  const roofs = [...new Set(cells.map(roofOf))].filter((one) => one);
  const range = logRange([...rates.flatMap((one) => [one.delivered, one.possible]), ...roofs.map((one) => one.arithmetic?.rate)]);
  const span = logRange([...rates.map((one) => one.intensity), ...roofs.map(ridgeOf)]);
  showLegend("roofline", page.backends, sorted(cells.map((cell) => at("backend", cell))), false);
  if (roofs.length) document.querySelector("[data-legend=roofline]").append(el("span", { class: "roof" }, el("i"), "measured roof"));
  showRoofs(cells);
  return panelsOf(cells).map(({ cells: some, title, detail }) => ({
    title, detail, label: `Roofline on ${title} ${detail}`,
    drawer: () => ({
      traces: [
        ...roofTraces(roofOf(some[0]), span),
        ...[...groupBy(some, (cell) => at("backend", cell))].sort((one, other) => one[0] - other[0]).flatMap(rateTraces),
      ],
      layout: {
        xaxis: logAxis("FLOP per byte of weights", span, metric),
        yaxis: logAxis("FLOP/s", range, metric),
      },
    }),
  }));
};

const rateTraces = ([backend, cells]) => {
  const found = cells.map((cell) => ({ cell, roof: roofOf(cell), ...ratesOf(cell) }));
  const both = found.filter((one) => one.possible !== null);
  const shares = ({ roof, intensity, possible, delivered }) => {
    const [working, whole] = [possible, delivered].map((value) => (roof && value ? percent(value / heightOf(roof, intensity)) : null));
    return working ? `${working} of the roof, ${whole} over the call` : whole ? `${whole} of the roof over the call` : "";
  };
  const text = (one) => hoverText(one.cell, `while it works ${rate(one.possible)}`, `over the whole call ${rate(one.delivered)}`, one.possible ? `${percent(one.delivered / one.possible)} delivered` : "", shares(one));
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

const perSecond = (value, unit) => {
  if (!value) return "unknown";
  const [scale, prefix] = value >= 1e12 ? [1e12, "T"] : value >= 1e9 ? [1e9, "G"] : [1e6, "M"];
  return `${digits(value / scale)} ${prefix}${unit}/s`;
};

const rate = (value) => perSecond(value, "FLOP");

// Which line of a roof is which, and where its rate is from
const ROOF_KINDS = { bandwidth: { title: "memory", unit: "B" }, arithmetic: { title: "arithmetic", unit: "FLOP" } };
const ROOF_POINTS = 24; // of each line: it answers the mouse where it has points

const ceilingRate = (kind, ceiling) => perSecond(ceiling.rate, ROOF_KINDS[kind].unit);
const ceilingSource = ({ work, dtype, backend, environment, processes, flagged, campaign_id }) => [
  `${work}, ${dtype}, ${backend}, ${environment}`,
  counted(processes, "process", "processes") + (flagged ? `, ${FLAG} ${flagged} flagged` : ""),
  `campaign ${campaign_id}`,
];

const roofTraces = (roof, span) => {
  if (!roof) return [];
  const [first, last] = span.map((one) => 10 ** one);
  const ridge = ridgeOf(roof) ?? (roof.arithmetic ? first : last);
  const line = (kind, from, to) => {
    if (!roof[kind] || !(from < to)) return [];
    const x = Array.from({ length: ROOF_POINTS }, (_, number) => from * (to / from) ** (number / (ROOF_POINTS - 1)));
    const title = `<b>Roof of ${ROOF_KINDS[kind].title}: ${ceilingRate(kind, roof[kind])}</b>`;
    const text = [title, ...ceilingSource(roof[kind]).map((one) => wrapped(escaped(one)))].join("<br>");
    return [{ type: "scatter", mode: "lines", name: `roof of ${ROOF_KINDS[kind].title}`, x, y: x.map((one) => heightOf(roof, one)), text: x.map(() => text), ...HOVER, line: { color: css("--muted"), width: 2 } }];
  };
  return [...line("bandwidth", first, Math.min(ridge, last)), ...line("arithmetic", Math.max(ridge, first), last)];
};

// The roofs that are drawn, with their campaigns, and those that are missing
const showRoofs = (cells) => {
  const box = document.getElementById("roofs");
  box.replaceChildren();
  const systemOf = (cell) => page.systems[page.places[at("place", cell)].system].label;
  const drawn = new Map(cells.map((cell) => [roofOf(cell), systemOf(cell)]).filter(([roof]) => roof));
  const ceiling = (kind, roof) => (roof[kind] ? el("span", {}, el("b", {}, ceilingRate(kind, roof[kind])), el("br"), ceilingSource(roof[kind]).join(", ")) : "not measured");
  const rows = [...drawn].map(([roof, system]) => [
    system, roof.threads === null ? roof.dtype : `${roof.dtype}, ${counted(roof.threads, "thread", "threads")}`,
    ceiling("arithmetic", roof), ceiling("bandwidth", roof), ridgeOf(roof) ? `${digits(ridgeOf(roof))} FLOP/B` : "unknown",
  ]);
  if (rows.length) box.append(plainTable("Measured roofs: the best rates of these systems in the whole store", ["system", "dtype", "arithmetic", "memory", "they meet at"], rows));
  const bare = new Set(cells.filter((cell) => !roofOf(cell)).map((cell) => {
    const { dtype, threads } = page.shapes[at("shape", cell)].axes;
    return [systemOf(cell), dtype, threads && at("device", cell) === "cpu" ? counted(threads, "thread", "threads") : null].filter((one) => one).join(", ");
  }));
  if (bare.size) {
    box.append(el("p", { class: "note" }, `No roof was measured of ${[...bare].join("; ")}. `, el("code", {}, "taxmeter sweep run sweeps/roofs.yaml"),
      " measures those of a processor, ", el("code", {}, "sweeps/roofs_gpu.yaml"), " those of a GPU; a page that is made after it draws them."));
  }
};

// Speed-ups against a backend as heat maps, and against a system as points with intervals.

const MOST_ROWS = 48;
const HEAT_END = 2; // colours end at 4 times faster and 4 times slower

const speedupPanels = () => {
  const base = page.baselines.backend;
  if (base === null) return [];
  const cells = chosenCells().filter((cell) => at("backend", cell) !== base && (ratioOf(cell, "backend") || at(`${state.mode}_n`, cell) === 0));
  const shapes = shapesByPlace(cells);
  return [...groupBy(cells, (cell) => at("place", cell))].sort((one, other) => one[0] - other[0]).map(([place, some]) => {
    const rows = groupBy(some, (cell) => rowName(cell, shapes.get(place)));
    const names = [...rows.keys()].slice(0, MOST_ROWS);
    return {
      title: page.places[place].label,
      detail: rows.size > MOST_ROWS ? `first ${MOST_ROWS} of ${rows.size} rows: narrow the filters` : "",
      label: `Speed-up against ${page.backends[base].label} on ${page.places[place].label}`,
      height: Math.max(170, 80 + 26 * names.length),
      drawer: () => heatMap(rows, names),
    };
  });
};

const rowName = (cell, shapes) => [shapeDetail(cell, shapes), `batch ${at("batch", cell)}`].filter((part) => part).join(", ");

const heatMap = (rows, names) => {
  const backends = sorted([...rows.values()].flat().map((cell) => at("backend", cell)));
  const found = names.map((name) => backends.map((backend) => rows.get(name).find((cell) => at("backend", cell) === backend)));
  const each = (read) => found.map((row) => row.map((cell) => (cell === undefined ? null : read(cell))));
  const short = (cell) => {
    const ratio = ratioOf(cell, "backend");
    return ratio ? ratioText(ratio.value) + SIGNS[ratio.verdict] + (at("flagged", cell) ? ` ${FLAG}` : "") : "";
  };
  const isOpen = (cell) => ratioOf(cell, "backend")?.verdict === "undecided";
  const value = (cell) => {
    const ratio = ratioOf(cell, "backend");
    return ratio && !isOpen(cell) ? Math.max(-HEAT_END, Math.min(HEAT_END, Math.log2(ratio.value))) : null;
  };
  return {
    traces: [{
      type: "heatmap", x: backends.map((backend) => page.backends[backend].label), y: names, z: each(value), customdata: each((cell) => cell),
      text: each((cell) => (isOpen(cell) ? "" : short(cell))), texttemplate: "%{text}", textfont: { color: css("--ink"), size: 11.5 }, hovertext: each(speedupText), hovertemplate: "%{hovertext}<extra></extra>",
      zmin: -HEAT_END, zmax: HEAT_END, zmid: 0, xgap: 2, ygap: 2, hoverongaps: true,
      colorscale: [[0, css("--heat-slow")], [0.5, css("--heat-mid")], [1, css("--heat-fast")]],
      showscale: false,
    }, ...(found.flat().some((cell) => cell !== undefined && isOpen(cell)) ? [{
      // What is undecided has no colour: it would be a guess
      type: "heatmap", x: backends.map((backend) => page.backends[backend].label), y: names, z: each((cell) => (isOpen(cell) ? 0 : null)),
      text: each((cell) => (isOpen(cell) ? short(cell) : "")), texttemplate: "%{text}", textfont: { color: css("--ink"), size: 11.5 }, hoverinfo: "skip",
      xgap: 2, ygap: 2, colorscale: [[0, css("--heat-open")], [1, css("--heat-open")]], showscale: false, zmin: 0, zmax: 1,
    }] : []), failedTrace(found, backends, names)],
    layout: {
      dragmode: false,
      xaxis: { type: "category", side: "top", tickfont: { size: 10.5 }, showgrid: false, ticks: "", fixedrange: true },
      yaxis: { type: "category", autorange: "reversed", showgrid: false, ticks: "", ticksuffix: " ", fixedrange: true },
    },
  };
};

// What failed has no value, so that its word stands beside the heat map.
const failedTrace = (found, backends, names) => {
  const failed = found.flatMap((row, y) => row.map((cell, x) => ({ cell, x, y }))).filter(({ cell }) => cell !== undefined && !ratioOf(cell, "backend"));
  return {
    type: "scatter", mode: "text", x: failed.map(({ x }) => page.backends[backends[x]].label), y: failed.map(({ y }) => names[y]),
    text: failed.map(({ cell }) => failedWord(cell)), textfont: { color: css("--muted"), size: 11 }, customdata: failed.map(({ cell }) => cell),
    hovertext: failed.map(({ cell }) => speedupText(cell)), hovertemplate: "%{hovertext}<extra></extra>",
  };
};

const failedWord = (cell) => at("statuses", cell).replace(/^\d+ /, "").split(",")[0].replaceAll("_", " ");

const speedupText = (cell) => {
  const ratio = ratioOf(cell, "backend");
  return hoverText(cell, ratio ? ratioWords(ratio) : escaped(at("statuses", cell)), ratio ? latency(cell) : escaped((at("reason", cell) ?? "").slice(0, 120)));
};

const hardwarePanels = () => {
  const base = page.baselines.system;
  if (base === null) return [];
  const cells = chosenCells().filter((cell) => ratioOf(cell, "system"));
  const shapes = new Set(cells.map((cell) => at("shape", cell)));
  const places = sorted(cells.map((cell) => at("place", cell)));
  const range = logRange([1, ...cells.flatMap((cell) => Object.values(ratioOf(cell, "system")).slice(0, 3))]);
  showLegend("hardware", page.places, places, false);
  const groups = groupBy(cells, (cell) => `${at("backend", cell)}|${at("shape", cell)}`);
  return [...groups.values()].sort((one, other) => at("shape", one[0]) - at("shape", other[0]) || at("backend", one[0]) - at("backend", other[0])).map((some) => {
    const batches = sorted(some.map((cell) => at("batch", cell)));
    return {
      title: page.backends[at("backend", some[0])].label, detail: shapeDetail(some[0], shapes),
      label: `Hardware against ${page.systems[base].label} with ${page.backends[at("backend", some[0])].label}`,
      height: 110 + batches.length * Math.max(26, 13 * places.length), drawer: () => forest(some, batches, places, range),
    };
  });
};

// From dense to wide
const RATIO_TICKS = [
  [0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15],
  [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2],
  [0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3],
  [0.2, 0.33, 0.5, 0.7, 1, 1.5, 2, 3, 5],
  [0.063, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16],
  [0.001, 0.01, 0.1, 1, 10, 100, 1000],
];

// The densest of which there is room for all, and that reaches both ends
const ratioTicks = ([low, high]) => {
  const fits = (values) => values.filter((one) => Math.log10(one) >= low && Math.log10(one) <= high).length <= 6 && values[0] <= 1.3 * 10 ** low && values.at(-1) >= 10 ** high / 1.3;
  const values = RATIO_TICKS.find(fits) ?? RATIO_TICKS.at(-1);
  return { tickvals: values, ticktext: values.map(String), tickangle: 0 };
};

const forest = (cells, batches, places, range) => {
  const step = 0.8 / places.length;
  const traces = places.map((place, number) => {
    const ours = cells.filter((cell) => at("place", cell) === place);
    const ratios = ours.map((cell) => ratioOf(cell, "system"));
    return {
      type: "scatter", mode: "markers", name: page.places[place].label, customdata: ours,
      x: ratios.map((one) => one.value), y: ours.map((cell) => batches.indexOf(at("batch", cell)) + (number - (places.length - 1) / 2) * step),
      error_x: { type: "data", symmetric: false, array: ratios.map((one) => (one.high ?? one.value) - one.value), arrayminus: ratios.map((one) => one.value - (one.low ?? one.value)), thickness: 1.2, width: 2, color: colour(place) },
      marker: { color: colour(place), size: 8, line: { width: 1.5, color: colour(place) }, symbol: ratios.map((one) => symbol(place, !/faster|slower/.test(one.verdict))) },
      text: ours.map((cell, i) => `<b>${escaped(page.places[place].label)}</b><br>${hoverText(cell, ratioWords(ratios[i]), latency(cell))}`), ...HOVER,
    };
  });
  return {
    traces,
    layout: {
      xaxis: { title: "times faster", type: "log", range, ...ratioTicks(range) },
      yaxis: { title: "batch", tickvals: batches.map((_, number) => number), ticktext: batches.map(String), range: [batches.length - 0.5, -0.5], zeroline: false },
      shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: css("--muted"), width: 1.5, dash: "dot" } }],
    },
  };
};

// What is chosen: filters, the cells that they leave, and the same as conditions for SQL and other commands.

const ALL = "all";
const state = { work: ALL, axes: {}, backends: new Set(), places: new Set(), batch: ALL, mode: "", share: false };
const listeners = [];
const onChange = (listener) => listeners.push(listener);

const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};

const mostFrequent = (values) => {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1])[0]?.[0];
};

// One work and one dtype at first: what fits on a screen, and what can be compared.
const setDefaults = () => {
  Object.assign(state, { mode: page.mode, batch: ALL, share: false });
  page.backends.forEach((_, number) => state.backends.add(number));
  page.places.forEach((_, number) => state.places.add(number));
  const measured = [...Array(cellCount()).keys()].filter((cell) => at(`${page.mode}_n`, cell) > 0);
  const shapes = measured.map((cell) => page.shapes[at("shape", cell)]);
  if (works.length > 1) state.work = mostFrequent(shapes.map((shape) => shape.work.label)) ?? ALL;
  for (const name of Object.keys(page.axes)) state.axes[name] = ALL;
  const here = shapes.filter((shape) => state.work === ALL || shape.work.label === state.work);
  if (page.axes.dtype) state.axes.dtype = String(mostFrequent(here.map((shape) => shape.axes.dtype)) ?? ALL);
};

const isShapeChosen = (shape, but = null) =>
  (state.work === ALL || shape.work.label === state.work) &&
  Object.entries(state.axes).every(([name, value]) => value === ALL || name === but || String(shape.axes[name]) === value);

const chosenCells = () => {
  const shapes = page.shapes.map((shape) => isShapeChosen(shape));
  const found = [];
  for (let cell = 0; cell < cellCount(); cell++) {
    if (!shapes[at("shape", cell)] || !state.places.has(at("place", cell)) || !state.backends.has(at("backend", cell))) continue;
    if (state.batch !== ALL && at("batch", cell) !== Number(state.batch)) continue;
    found.push(cell);
  }
  return found;
};

// Conditions

const anyOf = (choices, all) => {
  if (choices.length === all.length) return null;
  if (!choices.length) return "false";
  return choices.length === 1 ? choices[0].sql : `(${choices.map((one) => `(${one.sql})`).join(" OR ")})`;
};

const sqlOfWork = () => {
  const parts = [];
  if (state.work !== ALL) {
    const work = works.find((one) => one.label === state.work);
    parts.push(page.shapes[work.shapes[0]].sql);
  }
  for (const [name, value] of Object.entries(state.axes)) {
    if (value !== ALL) parts.push(page.axes[name].find((one) => String(one.value) === value).sql);
  }
  if (state.batch !== ALL) parts.push(`batch = ${Number(state.batch)}`);
  return parts;
};

const sqlWhere = () => {
  const chosen = (set, all) => all.filter((_, number) => set.has(number));
  const parts = [page.sql === "true" ? null : page.sql, ...sqlOfWork()];
  parts.push(anyOf(chosen(state.backends, page.backends), page.backends), anyOf(chosen(state.places, page.places), page.places));
  return parts.filter((part) => part).join("\n  AND ") || "true";
};

const sqlOfCell = (cell) => {
  const shape = page.shapes[at("shape", cell)];
  const axes = Object.entries(shape.axes).map(([name, value]) => page.axes[name].find((one) => one.value === value).sql);
  const parts = [page.sql === "true" ? null : page.sql, shape.sql, ...axes, page.backends[at("backend", cell)].sql];
  return [...parts, page.places[at("place", cell)].sql, `batch = ${at("batch", cell)}`].filter((part) => part).join("\n  AND ");
};

const filledQuery = (name, where = null) => {
  const places = { metric: `${state.mode}_median_s`, where: where ?? sqlWhere() };
  return page.queries[name].replace(/\{(metric|where)\}/g, (_, key) => places[key]);
};

// As a shell takes it between double quotes
const quoted = (text) => `"${text.replace(/[\\"$`]/g, "\\$&")}"`;
const command = (sql) => `taxmeter results sql --results ${quoted(page.store)} ${quoted(sql)}`;

// The address keeps the choice: a page that loads itself anew shows the same, and a link can be sent.

const remember = () => {
  const found = new URLSearchParams({ work: state.work, batch: state.batch, mode: state.mode });
  for (const [name, value] of Object.entries(state.axes)) found.set(`axis.${name}`, value);
  const hidden = (set, all) => all.map((one, number) => (set.has(number) ? null : one.label)).filter((one) => one);
  hidden(state.backends, page.backends).forEach((one) => found.append("without", `backend:${one}`));
  hidden(state.places, page.places).forEach((one) => found.append("without", `system:${one}`));
  if (state.share) found.set("scale", "share");
  history.replaceState(null, "", `#?${found}`);
};

const recall = () => {
  if (!location.hash.startsWith("#?")) return;
  const found = new URLSearchParams(location.hash.slice(2));
  const work = found.get("work");
  if (work === ALL || works.some((one) => one.label === work)) state.work = work;
  if (page.modes.includes(found.get("mode"))) state.mode = found.get("mode");
  if (found.get("batch") === ALL || page.cells.batch.includes(Number(found.get("batch")))) state.batch = found.get("batch");
  for (const name of Object.keys(page.axes)) {
    const value = found.get(`axis.${name}`);
    if (value === ALL || page.axes[name].some((one) => String(one.value) === value)) state.axes[name] = value;
  }
  for (const one of found.getAll("without")) {
    const [kind, label] = [one.slice(0, one.indexOf(":")), one.slice(one.indexOf(":") + 1)];
    const [set, all] = kind === "backend" ? [state.backends, page.backends] : [state.places, page.places];
    set.delete(all.findIndex((choice) => choice.label === label));
  }
  state.share = found.get("scale") === "share";
};

const change = (update) => {
  Object.assign(state, update);
  remember();
  for (const listener of listeners) listener();
};

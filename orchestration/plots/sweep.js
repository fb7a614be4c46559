// The page of a sweep: filters, leaderboard, curves, profile, wins, problems. `D` is what orchestration/plots/sweep_page.py wrote.
const D = JSON.parse(document.getElementById("data").textContent), root = document.documentElement;
const $ = id => document.getElementById(id);
const el = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
const svg = (tag, attributes, text) => { const e = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const k in attributes) e.setAttribute(k, attributes[k]); if (text !== undefined) e.textContent = text; return e; };
const MOST_LINES = 16, FIRST_ROWS = 100, DASHES = ["", "7 3", "2 2.5", "8 3 2 3"], NONE = "–";

// Numbers as the report prints them.
const finite = x => typeof x === "number" && Number.isFinite(x);
const group = text => { const [a, b] = text.split("."); return a.replace(/\B(?=(\d{3})+$)/g, ",") + (b === undefined ? "" : "." + b); };
const score = x => x === Infinity ? "∞" : !finite(x) ? NONE : Math.abs(x) < 100 ? x.toFixed(3) : Math.abs(x) < 1e4 ? x.toFixed(1) : x.toExponential(2);
const percent = x => x === Infinity ? "∞" : !finite(x) ? NONE : Math.abs(x) < 10 ? (100 * (Math.abs(x) < 5e-5 ? 0 : x)).toFixed(1) + "%" : group((100 * x).toFixed(0)) + "%";
const significant = x => { if (!finite(x)) return NONE; if (x === 0) return "0"; const m = Math.floor(Math.log10(Math.abs(x))); return m < -5 ? x.toExponential(3) : group(x.toFixed(Math.max(0, 3 - m))); };
const count = x => !finite(x) ? NONE : x >= 100 || Number.isInteger(x) ? group(x.toFixed(0)) : x.toFixed(1);
const seconds = x => !finite(x) ? NONE : x >= 100 ? group(x.toFixed(0)) : x.toFixed(2);
const plural = (n, what) => `${group(String(n))} ${what}${n === 1 ? "" : "s"}`;

// The data, ready to use: null stands for a run without a valid placement, whose score is infinite.
const staged = new Set(D.rows.map(r => r.stage)).size > 1;
D.rows.forEach((r, i) => { r.i = i; r.label = staged ? `${r.method} (${r.stage})` : r.method; r.colour = `var(--c${i % 9})`; r.dash = DASHES[Math.floor(i / 9) % DASHES.length]; r.cells = []; });
D.problems.forEach((p, i) => { p.i = i; p.cells = []; });
const known = x => x === "inf" ? Infinity : x;
for (const {standing: s} of D.rows) { for (const key of ["to_best", "to_bound", "worst"]) s[key] = known(s[key]); s.iqm = s.iqm.map(known); }
for (const [row, problem, scores, evals, wall, end, mid, low, high] of D.cells) {
  const s = Float64Array.from(scores, x => x === null ? Infinity : x).sort();
  const cell = {row: D.rows[row], problem: D.problems[problem], scores: s, evals, wall, end, mid, low: low || mid, high: high || mid};
  cell.mean = s.reduce((a, b) => a + b, 0) / s.length;
  cell.sd = s.length > 1 ? Math.sqrt(s.reduce((a, b) => a + (b - cell.mean) ** 2, 0) / (s.length - 1)) : NaN;
  D.rows[row].cells.push(cell); D.problems[problem].cells[row] = cell;
}

// Filters: what is chosen of each kind; kept in the address, so that a view can be kept and sent.
const KINDS = [["method", "Methods", D.rows.map(r => r.method)], ["stage", "Stages", D.rows.map(r => r.stage)], ["graph", "Graphs", D.problems.map(p => p.graph)], ["network", "Networks", D.problems.map(p => p.network)]]
  .map(([key, title, values]) => ({key, title, values: [...new Set(values)]}));
const chosen = Object.fromEntries(KINDS.map(k => [k.key, new Set(k.values)]));
const everything = key => chosen[key].size === KINDS.find(k => k.key === key).values.length;
function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const k of KINDS) { const some = wanted.getAll(k.key).filter(v => k.values.includes(v)); chosen[k.key] = new Set(some.length ? some : k.values); }
}
function writeAddress() {
  const parts = new URLSearchParams();
  for (const k of KINDS) if (!everything(k.key)) for (const v of chosen[k.key]) parts.append(k.key, v);
  history.replaceState(null, "", "#" + parts);
}
function makeFilters() {
  for (const k of KINDS) {
    if (k.values.length < 2) continue;
    const pick = el("details", undefined, "pick"), menu = el("div", undefined, "menu"), all = el("div", undefined, "all");
    pick.dataset.kind = k.key; k.summary = el("summary"); pick.append(k.summary, menu);
    const boxes = k.values.map(value => {
      const label = el("label"), box = el("input"); box.type = "checkbox"; box.value = value; label.append(box);
      if (k.key === "method" && !staged) { const dot = el("span", undefined, "dot"); dot.style.background = D.rows.find(r => r.method === value).colour; label.append(dot); }
      label.append(el("span", value)); box.onchange = () => { box.checked ? chosen[k.key].add(value) : chosen[k.key].delete(value); changed(); };
      return {value, label, box};
    });
    const find = el("input"); find.type = "search"; find.placeholder = `Find ${k.title.toLowerCase()}…`; find.setAttribute("aria-label", find.placeholder);
    const shown = () => boxes.filter(b => !b.label.hidden);
    find.oninput = () => { const words = find.value.toLowerCase(); for (const b of boxes) { b.label.hidden = !b.value.toLowerCase().includes(words); b.label.style.display = b.label.hidden ? "none" : ""; } };
    for (const [name, act] of [["Only these", () => chosen[k.key] = new Set(shown().map(b => b.value))], ["All", () => chosen[k.key] = new Set(k.values)], ["None", () => chosen[k.key] = new Set()]]) { const b = el("button", name); b.onclick = () => { act(); changed(); }; all.append(b); }
    if (k.values.length > 8) menu.append(find); menu.append(all, ...boxes.map(b => b.label));
    k.sync = () => { for (const b of boxes) b.box.checked = chosen[k.key].has(b.value); k.summary.textContent = `${k.title}: ${everything(k.key) ? "all " + k.values.length : chosen[k.key].size + " of " + k.values.length}`; pick.classList.toggle("some", !everything(k.key)); };
    $("filters").append(pick);
  }
  const reset = el("button", "Reset"), theme = el("button", "Dark / light", "push"); reset.id = "reset"; theme.id = "theme";
  reset.onclick = () => { for (const k of KINDS) chosen[k.key] = new Set(k.values); changed(); };
  theme.onclick = () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; try { localStorage.setItem("placewright-theme", root.dataset.theme); } catch {} };
  $("filters").append(reset, theme);
  document.addEventListener("click", e => { for (const d of document.querySelectorAll(".pick[open]")) if (!d.contains(e.target)) d.open = false; });
  document.addEventListener("keydown", e => { if (e.key === "Escape") for (const d of document.querySelectorAll(".pick[open]")) { d.open = false; d.querySelector("summary").focus(); } });
}
const rowsNow = () => D.rows.filter(r => chosen.method.has(r.method) && chosen.stage.has(r.stage));
const problemsNow = () => D.problems.filter(p => chosen.graph.has(p.graph) && chosen.network.has(p.network));

// Statistics of a selection, defined as in orchestration/analysis: the report's own where all problems are chosen.
function iqm(sorted) { const cut = Math.floor(sorted.length / 4); let sum = 0; for (let i = cut; i < sorted.length - cut; i++) sum += sorted[i]; return sum / (sorted.length - 2 * cut); }
function interval(cells, n) {
  if (!cells.some(c => c.scores.length > 1)) return [NaN, NaN];
  let seed = 1; const random = () => { seed = seed + 0x6D2B79F5 | 0; let t = Math.imul(seed ^ seed >>> 15, 1 | seed); t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t; return ((t ^ t >>> 14) >>> 0) / 4294967296; };
  const replicates = Math.max(100, Math.min(1000, Math.floor(2e5 / n))), found = new Float64Array(replicates), drawn = new Float64Array(n);
  for (let r = 0; r < replicates; r++) { let k = 0; for (const {scores} of cells) for (let i = 0; i < scores.length; i++) drawn[k++] = scores[Math.floor(random() * scores.length)]; found[r] = iqm(drawn.sort()); }
  found.sort(); return [found[Math.ceil(.025 * replicates) - 1], found[Math.ceil(.975 * replicates) - 1]];
}
function summary(row, problems, all) {
  if (all) return {row, ...row.standing, n: row.standing.runs};
  const cells = row.cells.filter(c => problems.has(c.problem)), values = Float64Array.from(cells.flatMap(c => [...c.scores])).sort(), n = values.length;
  if (!n) return {row, n, problems: 0};
  const mean = x => x.reduce((a, b) => a + b, 0) / x.length, bounded = cells.filter(c => c.problem.bound), worst = cells.reduce((a, c) => c.scores.at(-1) > a.scores.at(-1) ? c : a);
  const toBound = bounded.flatMap(c => [...c.scores].map(s => s * c.problem.best / c.problem.bound)), weigh = key => cells.reduce((a, c) => a + c[key] * c.scores.length, 0) / n;
  const [low, high] = interval(cells, n);
  return {row, n, problems: cells.length, iqm: [iqm(values), low, high], to_best: mean(values) - 1, to_bound: toBound.length ? mean(toBound) - 1 : null, worst: worst.scores.at(-1), worst_problem: worst.problem.name, evaluations: weigh("evals"), wall: weigh("wall"), ranked: row.standing.ranked, unplaced: values.reduce((a, x) => a + (x === Infinity), 0)};
}
const number = x => x === null || x === undefined || Number.isNaN(x) ? Infinity : x;
function standings(rows, problems, all) {
  const found = rows.map(r => summary(r, new Set(problems), all));
  if (all) return found;
  const most = {}; for (const s of found) most[s.row.stage] = Math.max(most[s.row.stage] || 0, s.problems);
  const key = s => [s.n && s.ranked ? 0 : 1, s.problems < most[s.row.stage] ? 1 : 0, s.n ? number(s.iqm[0]) : Infinity, number(s.to_best)];
  return found.sort((a, b) => { const x = key(a), y = key(b); for (let i = 0; i < 4; i++) if (x[i] !== y[i]) return x[i] < y[i] ? -1 : 1; return a.row.label < b.row.label ? -1 : 1; });
}

// Parts of the page.
function head(id, title, caption, origin) {
  const h = $(id).querySelector("h2"); h.textContent = title;
  if (origin) { const o = el("span", origin, "origin"); o.classList.toggle("real", origin !== "simulated"); h.append(o); }
  $(id).querySelector(".caption").textContent = caption[0].toUpperCase() + caption.slice(1);
}
const sorting = {};
function fill(id, columns, items, limit = Infinity) {
  const table = $(id).querySelector("table"), top = el("tr"), body = el("tbody"), how = sorting[id];
  columns.forEach((c, i) => {
    const th = el("th", undefined, [c.left && "left", c.stick && "stick"].filter(Boolean).join(" "));
    if (!c.sort) th.textContent = c.name; else {
      const b = el("button", c.name + (how && how.name === c.name ? how.down ? " ↓" : " ↑" : "")); if (c.title) b.title = c.title;
      b.onclick = () => { sorting[id] = how && how.name === c.name ? how.down ? undefined : {name: c.name, down: true} : {name: c.name, down: false}; draw(); }; th.append(b);
      if (how && how.name === c.name) th.setAttribute("aria-sort", how.down ? "descending" : "ascending");
    }
    top.append(th);
  });
  const by = how && columns.find(c => c.name === how.name), ordered = [...items];
  if (by) ordered.sort((a, b) => { const x = by.sort(a), y = by.sort(b), w = typeof x === "string" ? x.localeCompare(y, undefined, {numeric: true}) : number(x) - number(y) || 0; return how.down ? -w : w; });
  for (const item of ordered.slice(0, limit)) {
    const tr = el("tr");
    for (const c of columns) { const td = el("td", undefined, [c.left && "left", c.stick && "stick", c.cls].filter(Boolean).join(" ")), value = c.cell(item, td); if (value !== undefined && value !== null) td.append(value); tr.append(td); }
    body.append(tr);
  }
  const headOf = el("thead"); headOf.append(top); table.replaceChildren(headOf, body);
}
function named(row) { const box = el("span"), dot = el("span", undefined, "dot"); dot.style.background = row.colour; box.append(dot, row.label); return box; }
function whisker(s, low, high) {
  const w = 90, x = v => 4 + (w - 8) * (Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low) || 1), [v, a, b] = s.iqm, g = svg("svg", {width: w, height: 14, class: "whisker", "aria-hidden": "true"});
  g.append(svg("line", {x1: 4, x2: w - 4, y1: 7, y2: 7, class: "grid"}));
  if (!finite(v) || v <= 0) return g;
  if (finite(a) && finite(b)) g.append(svg("line", {x1: x(a), x2: x(b), y1: 7, y2: 7, stroke: s.row.colour, "stroke-width": 3}));
  g.append(svg("circle", {cx: x(v), cy: 7, r: 3.6, fill: s.row.colour})); return g;
}
function leaderboard(board, problems, all, origin) {
  const partial = board.filter(s => s.n && s.row.standing.partial).length, unplaced = board.reduce((a, s) => a + (s.unplaced || 0), 0), ends = board.flatMap(s => s.iqm || []).filter(x => finite(x) && x > 0), low = Math.min(...ends), high = Math.max(...ends);
  const bounded = problems.some(p => p.bound !== null), faults = all && board.some(s => s.invalid), failures = all && board.some(s => s.failed), runs = board.reduce((a, s) => a + s.n, 0);
  let caption = `${origin}. Score: objective / best known of the same problem in this sweep, so 1 is the best. IQM: interquartile mean over seeds and problems with its 95% stratified-bootstrap interval${all ? "" : " (of the problems chosen, computed here with fewer resamples)"}. Gaps are means. evaluations, wall: mean a run; wall is the time of the whole run, in seconds.`;
  if (partial && all) caption += " Methods that lack problems of their stage stand below the others.";
  if (unplaced) caption += ` ${plural(unplaced, "run")} found no valid placement; their score is ∞.`;
  head("leaderboard", `Leaderboard: ${plural(board.length, staged ? "method and stage" : "method").replace("method and stages", "methods and stages")}, ${plural(problems.length, "problem")}, ${plural(runs, "run")}`, caption, origin);
  let place = 0; for (const s of board) s.place = s.n && s.ranked ? ++place : null;
  fill("leaderboard", [
    {name: "#", sort: s => s.place, cell: s => s.place || NONE}, {name: "method", left: true, stick: true, cls: "name", sort: s => s.row.label, cell: s => named(s.row)},
    {name: "runs", sort: s => s.n, cell: s => s.n + (all && s.row.standing.partial ? ` (${s.problems} problems)` : "")},
    {name: "IQM [95% interval]", left: true, sort: s => s.iqm && s.iqm[0], cell: s => { const box = el("span"); if (s.n) box.append(score(s.iqm[0]) + (finite(s.iqm[1]) ? ` [${score(s.iqm[1])}, ${score(s.iqm[2])}]` : ""), whisker(s, low, high)); else box.append(NONE); return box; }},
    {name: "worst", title: "largest score of a run", sort: s => s.worst, cell: s => s.n ? score(s.worst) : NONE}, {name: "on", left: true, sort: s => s.worst_problem || "", cell: s => s.worst_problem || NONE},
    {name: "gap to best", title: "mean gap to the best known", sort: s => s.to_best, cell: s => percent(s.to_best)}, ...(bounded ? [{name: "gap to bound", title: "mean gap to the lower bound", sort: s => s.to_bound, cell: s => percent(s.to_bound)}] : []),
    {name: "evaluations", sort: s => s.evaluations, cell: s => count(s.evaluations)}, {name: "wall [s]", sort: s => s.wall, cell: s => seconds(s.wall)},
    ...(faults ? [{name: "invalid", title: "evaluations that cannot run", sort: s => s.invalid, cell: s => count(s.invalid)}] : []), ...(failures ? [{name: "failed", title: "trials without a result", sort: s => s.failed, cell: s => count(s.failed)}] : []),
  ], board);
}

// Charts.
function ticks(low, high, log) {
  if (log) {
    const decades = Math.log10(high / low), subs = decades < 1 ? [1, 1.2, 1.5, 2, 3, 5, 7] : decades < 2.5 ? [1, 2, 5] : [1], found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) for (const s of subs) { const t = s * 10 ** e; if (t >= low * .999 && t <= high * 1.001) found.push(t); }
    return found;
  }
  const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw)), step = power * [1, 2, 5, 10].find(s => s * power >= raw), found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) found.push(+t.toPrecision(12)); return found;
}
const plain = x => x >= 1e6 ? (x / 1e6) + "M" : x >= 1e4 ? (x / 1e3) + "k" : group(String(+x.toPrecision(6)));
function apart(wanted, gap, low, high) {
  // Labels as near to where they belong as their height lets them, in order.
  const order = wanted.map((y, i) => [y, i]).sort((a, b) => a[0] - b[0]), at = new Array(wanted.length), room = Math.min(gap, (high - low) / Math.max(1, wanted.length - 1));
  let last = -Infinity; for (const o of order) { o[0] = Math.max(o[0], last + room, low); last = o[0]; }
  let next = Infinity; for (const o of order.reverse()) { o[0] = Math.min(o[0], next - room, high); next = o[0]; at[o[1]] = o[0]; } return at;
}
function chart(id, lines, {x, y, xlog, ylog, bound, step, note, what}) {
  const holder = $(id).querySelector(".chart"); holder.replaceChildren();
  const points = lines.flatMap(l => l.y.flatMap((v, i) => finite(v) ? [[l.x[i], v, l.low ? l.low[i] : v, l.high ? l.high[i] : v]] : []));
  if (!points.length) { holder.append(el("p", "Nothing to draw for this choice.", "empty")); return; }
  const W = Math.max(280, holder.clientWidth), wide = W >= 560, H = wide ? 380 : 300, long = Math.max(...lines.map(l => l.row.label.length)), right = wide ? Math.min(210, 24 + 7 * long) : 14, left = 62, top = 10, bottom = 44;
  const span = (values, log, extra) => { let a = Math.min(...values), b = Math.max(...values); if (extra) { a = Math.min(a, extra); } if (log) { const f = (b / a || 1) ** .03; return [a / f, Math.max(b * f, a * 1.01)]; } const r = (b - a || Math.abs(a) * .02 || 1) * .04; return [a - r, b + r]; };
  const reduce = (f, k) => points.reduce((a, p) => finite(p[k]) ? f(a, p[k]) : a, points[0][1]);
  let [x0, x1] = span([points.reduce((a, p) => Math.min(a, p[0]), Infinity), points.reduce((a, p) => Math.max(a, p[0]), -Infinity)], xlog);
  let [y0, y1] = y.range || span([reduce(Math.min, 2), reduce(Math.max, 3)], ylog, bound);
  if (xlog && x1 / x0 < 1.01) x1 = x0 * 10;
  const scale = (a, b, from, to, log) => v => log ? from + (to - from) * Math.log(v / a) / Math.log(b / a) : from + (to - from) * (v - a) / (b - a);
  const px = scale(x0, x1, left, W - right, xlog), py = scale(y0, y1, H - bottom, top, ylog), g = svg("svg", {width: W, height: H, role: "img", "aria-label": what});
  for (const t of ticks(x0, x1, xlog)) g.append(svg("line", {x1: px(t), x2: px(t), y1: top, y2: H - bottom, class: "grid"}), svg("text", {x: px(t), y: H - bottom + 16, "text-anchor": "middle"}, plain(t)));
  for (const t of ticks(y0, y1, ylog)) g.append(svg("line", {x1: left, x2: W - right, y1: py(t), y2: py(t), class: "grid"}), svg("text", {x: left - 7, y: py(t) + 4, "text-anchor": "end"}, plain(t)));
  g.append(svg("text", {x: (left + W - right) / 2, y: H - 8, "text-anchor": "middle"}, x.label), svg("text", {transform: `translate(14 ${(H - bottom + top) / 2}) rotate(-90)`, "text-anchor": "middle"}, y.label));
  if (bound) g.append(svg("line", {x1: left, x2: W - right, y1: py(bound), y2: py(bound), class: "bound"}), svg("text", {x: left + 4, y: py(bound) - 5}, "lower bound"));
  const groups = lines.map(l => {
    const one = svg("g", {"data-row": l.row.i}), at = l.y.map((v, i) => finite(v) ? i : -1).filter(i => i >= 0), go = (values, ids) => ids.map((i, k) => `${k && step ? `H${px(l.x[i]).toFixed(1)}` : ""}${k ? step ? "V" : "L" : "M"}${k ? step ? "" : px(l.x[i]).toFixed(1) + "," : px(l.x[i]).toFixed(1) + ","}${py(values[i]).toFixed(1)}`).join("");
    if (!at.length) return one;
    const banded = l.low ? at.filter(i => finite(l.high[i]) && finite(l.low[i])) : [];
    if (banded.length > 1 && banded.some(i => l.high[i] > l.low[i])) {
      const edge = values => banded.flatMap((i, k) => [...(k && step ? [[l.x[i], values[banded[k - 1]]]] : []), [l.x[i], values[i]]]);
      one.append(svg("path", {d: "M" + [...edge(l.high), ...edge(l.low).reverse()].map(([v, w]) => `${px(v).toFixed(1)},${py(w).toFixed(1)}`).join("L") + "Z", fill: l.row.colour, opacity: .14}));
    }
    one.append(svg("path", {d: go(l.y, at), fill: "none", stroke: l.row.colour, "stroke-width": 2, "stroke-dasharray": l.row.dash, "stroke-linejoin": "round"}));
    if (l.dot) { const i = at.at(-1); one.append(svg("circle", {cx: px(l.x[i]), cy: py(l.y[i]), r: 3.6, fill: "var(--bg)", stroke: l.row.colour, "stroke-width": 2})); }
    return one;
  });
  g.append(...groups); holder.append(g);
  if (wide) {
    const ends = lines.map(l => { const i = l.y.map(finite).lastIndexOf(true); return i < 0 ? H - bottom : py(l.label === undefined ? l.y[i] : l.label); }), where = apart(ends, 14, top + 6, H - bottom);
    lines.forEach((l, k) => { const i = l.y.map(finite).lastIndexOf(true); if (i < 0) return; const x2 = W - right + 16; if (l.dot) groups[k].append(svg("path", {d: `M${px(l.x[i]) + 4},${py(l.y[i])}L${x2 - 4},${where[k]}`, stroke: l.row.colour, opacity: .35, fill: "none"})); const t = svg("text", {x: x2, y: where[k] + 4, class: "label"}, l.row.label.length > 26 ? l.row.label.slice(0, 25) + "…" : l.row.label); t.style.fill = l.row.colour; groups[k].append(t); });
  } else { const key = el("div", undefined, "legend"); for (const l of lines) key.append(named(l.row)); holder.append(key); }
  if (note) holder.append(el("p", note, "caption"));
  hover(g, lines, groups, {px, py, x0, x1, left, right, W, xlog, x, y});
}
function hover(g, lines, groups, {px, py, x0, x1, left, right, W, xlog, x, y}) {
  g.onpointerleave = () => { $("tip").style.display = "none"; for (const one of groups) one.classList.remove("faded"); };
  g.onpointermove = event => {
    const box = g.getBoundingClientRect(), mx = event.clientX - box.left, my = event.clientY - box.top, part = (mx - left) / (W - right - left);
    if (part < 0 || part > 1) return g.onpointerleave();
    const at = xlog ? x0 * (x1 / x0) ** part : x0 + (x1 - x0) * part, tip = $("tip"), found = [];
    lines.forEach((l, k) => { let i = -1; while (i + 1 < l.x.length && l.x[i + 1] <= at) i++; if (i < 0 || !finite(l.y[i])) return; if (at > l.x.at(-1) * 1.0001 && !l.dot) return; found.push([l, k, l.y[i], l.low && l.low[i] < l.high[i] ? ` [${y.text(l.low[i])}, ${y.text(l.high[i])}]` : ""]); });
    found.sort((a, b) => y.best === "high" ? b[2] - a[2] : a[2] - b[2]);
    const near = found.reduce((a, f) => Math.abs(py(f[2]) - my) < (a ? Math.abs(py(a[2]) - my) : 18) ? f : a, null);
    groups.forEach((one, k) => one.classList.toggle("faded", near !== null && near[1] !== k));
    tip.replaceChildren(el("b", x.text(at))); for (const f of found.slice(0, 14)) { const line = el("div"); line.append(named(f[0].row), el("span", y.text(f[2]) + f[3])); if (near === f) line.style.fontWeight = 700; tip.append(line); }
    if (!found.length) return; tip.style.display = "block"; const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, event.clientX + 16 + w > innerWidth ? event.clientX - w - 14 : event.clientX + 16) + "px"; tip.style.top = Math.max(4, Math.min(innerHeight - h - 4, event.clientY + 12)) + "px";
  };
}
const shownRows = board => board.filter(s => s.n).slice(0, MOST_LINES).map(s => s.row);
const fewer = board => { const n = board.filter(s => s.n).length; return n > MOST_LINES ? ` Drawn: the best ${MOST_LINES} of ${n} methods; choose others by the filter.` : ""; };
function curves(board, problems, origin) {
  const which = $("which").value, one = which === "" ? null : D.problems[+which], selected = new Set(one ? [one] : problems), lines = [];
  for (const row of shownRows(board)) {
    const cells = row.cells.filter(c => selected.has(c.problem) && c.mid.length); if (!cells.length) continue;
    const last = Math.max(1, Math.round(cells.reduce((a, c) => a + c.end, 0) / cells.length)), xs = [...D.grid.filter(e => e < last), last], factor = one ? one.best * one.scale : 1;
    const at = (c, key, i) => { const v = c[key][Math.min(i, c[key].length - 1)]; return v === null || v === undefined ? Infinity : v; };
    const middle = key => xs.map((e, i) => { const k = e === last ? 1e9 : i, v = iqm(Float64Array.from(cells, c => at(c, key, k)).sort()); return finite(v) ? v * factor : NaN; });
    lines.push({row, x: xs, y: middle("mid"), low: middle("low"), high: middle("high"), dot: true});
  }
  const unit = one ? one.unit : "", ys = lines.flatMap(l => l.y.filter(finite)), log = Math.max(...ys) / Math.min(...ys) > 3;
  const where = one ? one.origin : origin, how = one ? "Line: median over seeds; band: their range." : `Line: interquartile mean over ${plural(problems.length, "problem")} of the median over seeds; band: the same of the best and the worst seed.`;
  head("curves", `Search curves${one ? `: ${one.name}` : ""}`, `${where}. Best so far against evaluated placements, lower is better. ${how} Circle: the search ended there.${fewer(board)}`, where);
  chart("curves", lines, {x: {label: "evaluated placements", text: v => plural(Math.round(v), "evaluation")}, y: {label: one ? `${one.objective}, best so far [${unit}]` : "objective / best known", text: v => one ? `${significant(v)} ${unit}` : score(v)}, xlog: true, ylog: log, step: true, bound: one && one.bound !== null ? one.bound * one.scale : null, what: "Search curves; the leaderboard holds their ends"});
}
function profile(board, problems, origin) {
  const selected = new Set(problems), lines = [], all = shownRows(board).map(row => [row, row.cells.filter(c => selected.has(c.problem))]);
  const worst = all.reduce((a, [, cells]) => cells.reduce((b, c) => c.scores.reduce((d, s) => finite(s) ? Math.max(d, s) : d, b), a), 1.01), T = 240, xs = Array.from({length: T}, (_, i) => (worst * 1.02) ** (i / (T - 1)));
  for (const [row, cells] of all) {
    if (!cells.length) continue; const y = new Array(T).fill(0);
    for (const {scores} of cells) { let k = 0; for (let t = 0; t < T; t++) { while (k < scores.length && scores[k] <= xs[t] * (1 + 1e-9)) k++; y[t] += k / scores.length / cells.length; } }
    lines.push({row, x: xs, y});
  }
  head("profile", "Performance profile", `${origin}. Share of runs within a factor τ of the best known of their problem, every problem weighing alike; higher and further left is better.${fewer(board)}`, origin);
  // Curves end on top of each other, so labels stand in the order in which the curves rise.
  const half = [...lines].sort((a, b) => a.x[a.y.findIndex(v => v >= .5 * a.y.at(-1))] - b.x[b.y.findIndex(v => v >= .5 * b.y.at(-1))]); half.forEach((l, i) => l.label = 1 - i / Math.max(half.length, 18));
  chart("profile", lines, {x: {label: "τ: objective / best known, at most", text: v => `within ${score(v)}`}, y: {label: "share of runs", text: v => percent(v), range: [-.02, 1.03], best: "high"}, xlog: worst > 3, ylog: false, step: true, what: "Performance profile"});
}
function winners(rows, problem) {
  const cells = rows.map(r => problem.cells[r.i]).filter(Boolean), best = Math.min(...cells.map(c => c.mean)); return finite(best) ? cells.filter(c => c.mean <= best * (1 + 1e-9)).map(c => c.row) : [];
}
function wins(rows, problems, origin) {
  const found = new Map(rows.map(r => [r, {alone: [], shared: []}])); for (const p of problems) { const w = winners(rows, p); for (const r of w) found.get(r)[w.length === 1 ? "alone" : "shared"].push(p.name); }
  const sorted = [...found].filter(([, f]) => f.alone.length + f.shared.length).sort((a, b) => b[1].alone.length + b[1].shared.length - a[1].alone.length - a[1].shared.length), bars = $("wins").querySelector(".bars"); bars.replaceChildren();
  head("wins", "Where each method is best", `${origin}. Problems on which a method's mean over seeds is the best of the methods shown; the pale part is shared with others. ${rows.length - sorted.length ? `${plural(rows.length - sorted.length, "method")} nowhere.` : ""}`, origin);
  for (const [row, f] of sorted) {
    const track = el("div", undefined, "track"), box = el("div"); box.style.display = "flex"; box.style.height = "100%";
    for (const [part, opacity] of [[f.alone, 1], [f.shared, .4]]) { const i = el("i"); i.style.width = 100 * part.length / problems.length + "%"; i.style.background = row.colour; i.style.opacity = opacity; box.append(i); }
    track.append(box); const names = [...f.alone, ...f.shared]; track.title = names.slice(0, 30).join(", ") + (names.length > 30 ? ", …" : "");
    const label = el("span", undefined, "name"); label.append(named(row)); bars.append(label, track, el("span", `${names.length} of ${problems.length}` + (f.shared.length ? `, ${f.shared.length} shared` : ""), "count"));
  }
  if (!sorted.length) bars.append(el("p", "No method shown has placed any of these problems in all of its runs.", "empty"));
}
let unlimited = false;
function problemTable(rows, problems, origin) {
  const ratio = $("as").value === "ratio", units = new Set(problems.map(p => p.unit)), link = (href, text) => { const a = el("a", text); a.href = href; return a; };
  const said = [...units].map(u => u === "units" ? "units: of invented graphs, which compare placements and are no times of any machine" : u).join("; ");
  head("problems", `Results per problem${ratio ? "" : ` [${[...units].join(", ")}]`}`, `${origin}. Mean ± standard deviation over seeds of the best placement found${ratio ? ", as ratio to the best known" : ""}; bold: the best mean of the methods shown; the deeper the green, the nearer to the best known.${ratio ? "" : ` Unit: ${said}.`}`, origin);
  const shown = (cell, p) => { if (!cell) return NONE; if (!finite(cell.mean)) { const placed = cell.scores.filter(finite); return `${placed.length}/${cell.scores.length} placed`; } const f = ratio ? 1 : p.best * p.scale, text = ratio ? score(cell.mean) : significant(cell.mean * f), digits = (text.split(".")[1] || "").length, spread = finite(cell.sd) && cell.sd * f >= .5 * 10 ** -digits ? ` ± ${(cell.sd * f).toFixed(digits)}` : ""; return text + spread; };
  const columns = [
    {name: "problem", left: true, stick: true, cls: "name", sort: p => p.name, cell: p => p.name}, ...(units.size > 1 && !ratio ? [{name: "unit", left: true, sort: p => p.unit, cell: p => p.unit}] : []),
    ...(new Set(problems.map(p => p.origin)).size > 1 ? [{name: "from", left: true, sort: p => p.origin, cell: p => p.origin}] : []),
    {name: "best known", sort: p => p.best * p.scale, cell: p => significant(ratio ? 1 : p.best * p.scale)}, ...(problems.some(p => p.bound !== null) ? [{name: "lower bound", sort: p => p.bound === null ? null : p.bound * p.scale, cell: p => p.bound === null ? NONE : significant(ratio ? p.bound / p.best : p.bound * p.scale)}] : []),
    ...(problems.some(p => p.timeline || p.placement) ? [{name: "best placement", left: true, cell: p => { const box = el("span"); if (p.timeline) box.append(link(p.timeline, "timeline")); if (p.placement) box.append(p.timeline ? " · " : "", link(p.placement, "file")); return box; }}] : []),
    ...rows.map(r => ({name: r.label, sort: p => p.cells[r.i] && p.cells[r.i].mean, cell: (p, td) => { const c = p.cells[r.i]; if (c && finite(c.mean)) td.style.background = `color-mix(in srgb, var(--good) ${Math.round(38 * Math.max(0, 1 - (c.mean - 1) / .5))}%, transparent)`; td.classList.toggle("best", !!c && p.winners.has(r)); return shown(c, p); }})),
  ];
  for (const p of problems) p.winners = new Set(winners(rows, p));
  fill("problems", columns, problems, unlimited ? Infinity : FIRST_ROWS);
  const all = $("all"); all.hidden = unlimited || problems.length <= FIRST_ROWS; all.textContent = `Show all ${group(String(problems.length))} problems (${FIRST_ROWS} are shown)`; all.onclick = () => { unlimited = true; draw(); };
}
function fixedTables() {
  for (const t of D.tables) {
    const section = el("section"), scroll = el("div", undefined, "scroll"), table = el("table"); section.append(el("h2", t.title));
    section.append(el("p", [...t.notes, "This table is of the whole sweep, whatever the filters say."].join(" "), "caption"), scroll); scroll.append(table);
    t.rows.forEach((cells, k) => { const tr = el("tr"); cells.forEach((c, i) => tr.append(el("td", c, i < t.left ? "left" : ""))); table.append(tr); });
    const top = el("tr"); t.columns.forEach((c, i) => top.append(el("th", c, i < t.left ? "left" : ""))); table.prepend(top); $("tables").append(section);
  }
}
function files() {
  D.files.forEach((f, i) => { if (i) $("links").append(" · "); const a = el("a", f); a.href = f; $("links").append(a); });
  for (const picture of D.pictures) { const a = el("a"), img = el("img"); a.href = picture; img.src = picture; img.loading = "lazy"; img.alt = picture; a.append(img, el("span", picture)); $("files").querySelector(".pictures").append(a); }
}

function whichProblems(problems) {
  const which = $("which"), kept = which.value; which.replaceChildren(); const add = (value, text) => { const o = el("option", text); o.value = value; which.append(o); };
  if (problems.length !== 1) add("", `all ${problems.length} chosen, as ratio to the best known`); for (const p of problems) add(p.i, p.name);
  if ([...which.options].some(o => o.value === kept)) which.value = kept;
}
function draw() {
  const rows = rowsNow(), problems = problemsNow(), all = problems.length === D.problems.length, origins = [...new Set(problems.map(p => p.origin))].sort().reverse(), origin = origins.join(" and ") || D.origin;
  for (const k of KINDS) if (k.sync) k.sync();
  const board = standings(rows, problems, all), order = board.map(s => s.row);
  leaderboard(board, problems, all, origin); whichProblems(problems); curves(board, problems, origin); profile(board, problems, origin); wins(order, problems, origin); problemTable(order, problems, origin);
  root.dataset.ready = "yes";
}
function changed() { writeAddress(); draw(); }

const kept = (() => { try { return localStorage.getItem("placewright-theme"); } catch { return null; } })();
root.dataset.theme = kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.title = `${D.sweep} · ${D.origin}`; $("title").textContent = D.sweep; $("title").append(Object.assign(el("span", D.origin, "badge"), {}));
$("title").querySelector(".badge").classList.toggle("real", D.origin !== "simulated");
$("description").textContent = D.description; $("description").hidden = !D.description; $("about").textContent = D.about;
makeFilters(); readAddress(); fixedTables(); files();
$("which").onchange = draw; $("as").onchange = draw; addEventListener("hashchange", () => { readAddress(); draw(); });
let width = innerWidth; addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
draw();

// One cell's panel.

function section(title, ...children) {
  const kept = children.flat().filter((child) => child !== null && child !== undefined);
  return kept.length ? el("section", null, el("h3", null, title), kept) : null;
}

function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return told.length ? el("dl", { class: "facts" }, told.map(([name, value]) => [el("dt", null, name), el("dd", null, value)])) : null;
}

// Any plain value: for fields of a record whose content differs from runtime to runtime.
function described(value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) {
    if (!value.length) return "none";
    const plain = value.every((one) => one === null || typeof one !== "object");
    return plain ? value.map((one) => described(one)).join(", ") : el("ul", null, value.map((one) => el("li", null, described(one))));
  }
  if (typeof value === "object") return facts(Object.entries(value).map(([name, one]) => [name, described(one)])) || "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? short(value, 6) : String(value);
}

function plainSection(title, value) {
  return value && Object.keys(value).length ? section(title, described(value)) : null;
}

function dimsText(dims) {
  const parts = Object.entries(dims || {}).map(([name, size]) => `${name}=${size}`);
  return parts.join(", ") || "fixed shapes";
}

function table(head, rows, label) {
  return el("div", { class: "scroll" }, el("table", { "aria-label": label },
    el("thead", null, el("tr", null, head.map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", null, rows.map((row) => el("tr", null, row.map((one, index) =>
      index ? el("td", null, one) : el("th", { scope: "row" }, one)))))));
}

function bars(pairs, say, label) {
  const most = Math.max(...pairs.map(([, value]) => value), 0);
  return el("div", { class: "bars", role: "table", "aria-label": label }, pairs.map(([name, value, kind]) => {
    const bar = el("span", { class: `fill ${kind || ""}` });
    bar.style.width = `${most > 0 && Number.isFinite(value) ? Math.max(0.5, (100 * Math.max(0, value)) / most) : 0}%`;
    return el("div", { role: "row" }, el("span", { role: "rowheader" }, name), el("span", { class: "track", "aria-hidden": "true" }, bar),
      el("span", { role: "cell" }, say(name, value)));
  }));
}

function badge(status) {
  return el("span", { class: `badge is-${status}` }, `${SIGNS[status]} ${WORDS[status]}`);
}

// ---- sections

function verdictSection(row) {
  return el("section", null, el("pre", { class: `verdict is-${at("status", row)}` }, at("words", row)));
}

function changesSection(row) {
  const changes = CHANGES.get(row) || [];
  return section("Since the baseline", changes.map((change) =>
    el("p", { class: change.regression && !change.accepted ? "worse" : "" },
      el("b", null, change.kind), ` ${change.text}`, change.accepted ? " (accepted)" : null)));
}

function commandSection(row) {
  const command = at("command", row), replay = at("replay", row);
  const one = (text) => el("div", { class: "command" }, el("code", null, text),
    el("button", { type: "button", "data-copy": text, "aria-label": "Copy the command" }, "copy"));
  return section("Reproduce", command ? one(command) : null,
    replay ? [el("p", { class: "quiet" }, "where there is no PyTorch:"), one(replay)] : null);
}

function worstSection(row) {
  const worst = at("worst", row), draw = at("draw", row);
  const exact = (value) => (value === null || value === undefined ? null : String(value));
  const names = at("outputs", row), there = worst && worst.looked_up;
  return section("Worst example",
    worst ? facts([
      ["output", exact(Array.isArray(names) ? lookup(names, worst.output, worst.output) : worst.output)],
      ["index", Array.isArray(worst.index) ? `[${worst.index.join(", ")}]` : exact(worst.index)],
      ["got", exact(worst.got)], ["wanted", exact(worst.wanted)],
      ["at these indices", there ? `${exact(there.got)} and ${exact(there.wanted)} of ${there.in}` : null], ["error", worst.error === undefined ? null : exact(worst.error)],
      ["error / allowed", ratioText(ratioOf(row)) || exact(worst.ratio)], ["dims", worst.dims ? dimsText(worst.dims) : null],
    ]) : null,
    draw ? facts([["drawn with", dimsText(draw.dims)], ["values", exact(draw.regime)], ["seed", exact(draw.seed)], ["draw", exact(draw.index)]]) : null);
}

function histogramSection(row, width) {
  const histogram = at("histogram", row);
  return histogram ? section("Largest error of each example, over what is allowed", histogramChart(histogram, width) || described(histogram)) : null;
}

// The submodules with calls that are not seen, as a tree by their paths; each call with its line and operator.
function blindTree(blind) {
  const root = { calls: [], below: new Map() };
  for (const one of blind) {
    let place = root;
    for (const part of one.module ? String(one.module).split(".").slice(0, 20) : []) {
      if (!place.below.has(part)) place.below.set(part, { calls: [], below: new Map() });
      place = place.below.get(part);
    }
    place.calls.push(one);
  }
  const list = (place) => el("ul", { class: "blind" },
    place.calls.map((one) => el("li", null, el("code", null, clipped(one.op, 80)), one.count > 1 ? ` ${one.count} times` : null,
      one.at ? el("span", { class: "quiet" }, ` ${clipped(one.at, 160)}`) : null)),
    [...place.below].map(([name, inner]) => el("li", null, el("b", null, clipped(name, 80)), list(inner))));
  return list(root);
}

const HIDDEN = 100;

// The submodules of which no output shows anything, each with what comparing its own tensor has shown; those that differ first.
function hiddenTable(hidden) {
  const rank = (one) => (one.tensor === "differs" ? 0 : one.tensor === "agrees" ? 2 : 1);
  const shown = hidden.slice().sort((a, b) => rank(a) - rank(b)).slice(0, HIDDEN);
  const state = (one) => el("b", { class: one.tensor === "differs" ? "worse" : "" }, one.tensor ? clipped(one.tensor, 40) : "not compared");
  return [
    el("p", { class: "quiet" }, "Submodules of which no output shows anything, by their own tensors in the exported graph, where these were compared:"),
    table(["submodule", "its tensor", ""], shown.map((one) => [el("code", null, clipped(one.module, 160)), state(one),
      one.why ? clipped(one.why, 300) : ""]), "Submodules that no output shows"),
    hidden.length > shown.length ? el("p", { class: "quiet" }, `and ${hidden.length - shown.length} more submodules`) : null,
  ];
}

function coverageSection(row) {
  const told = at("coverage", row);
  if (!told) return null;
  if (told.unknown) return section("What of the module shows", facts([["not known", told.unknown], ["why", told.why]]));
  if (!told.of) return section("What of the module shows", el("p", { class: "quiet" }, "It has no operator call that can be made wrong by a tenth."));
  const blind = told.blind || [], rest = told.places > blind.length ? el("p", { class: "quiet" }, `and at ${told.places - blind.length} more places`) : null;
  return section(`What of the module shows: ${told.seen} of ${told.of} operator calls`,
    told.calls ? el("p", { class: "quiet" }, `of ${told.calls} calls, ${told.of} at equal distances were asked about`) : null,
    bars([["seen", told.seen], ["not seen", told.of - told.seen]], (_, value) => String(value), "Operator calls"),
    blind.length ? blindTree(blind) : null, rest, (told.beyond || []).length ? [
      el("p", { class: "quiet" }, "Seen only beyond the values that the case declares (lower low, raise high):"), blindTree(told.beyond)] : null,
    (told.hidden || []).length ? hiddenTable(told.hidden) : null);
}

const LOSS = {
  export: "the exported fp32 model against PyTorch", conversion: "the converted model against the exported one",
  optimizer: "ONNX Runtime's optimizer on, against off", runtime: "the runtime against the model's own semantics",
};

function lossSection(row) {
  const loss = Object.entries(at("loss", row) || {});
  if (!loss.length) return null;
  const least = loss.reduce((least, [, value]) => Math.min(least, Number.isNaN(number(value)) ? -Infinity : number(value)), Infinity);
  return section("Where accuracy is lost", table(["stage", "SQNR", ""], loss.map(([stage, value]) => {
    const db = Number.isNaN(number(value)) ? -Infinity : number(value);
    return [stage, el("b", { class: db === least && db !== Infinity ? "worse" : "" }, decibels(value)), lookup(LOSS, stage)];
  }), "Loss by stage, higher is better"));
}

function processorSection(row) {
  const cause = at("cause", row), kind = at("declared_for", row);
  if (!cause && !kind) return null;
  return section("What hangs on the processor", facts([
    ["cause", cause && String(cause.name)],
    ["shown by", cause && described(cause.shown_by)],
    ["the processor lacks", cause && (cause.lacks || []).join(", ")],
    ["declared for those with", kind && (kind.has || []).join(" or ")],
    ["declared for those without", kind && (kind.lacks || []).join(" and ")],
  ]));
}

function fidelitySection(row) {
  const cost = at("fidelity", row);
  if (!cost) return null;
  return section("What the precision costs", facts([
    ...(cost.output === undefined ? [] : [["output", String(cost.output)]]),
    ...(cost.sqnr === undefined ? [] : [["SQNR", decibels(cost.sqnr)]]),
    ...(typeof cost.changed === "number" ? [["changed", `${(100 * cost.changed).toFixed(1)} %`]] : []),
    ...Object.entries(cost).filter(([name]) => !["output", "sqnr", "changed"].includes(name)).map(([name, value]) => [name, described(value)]),
  ]));
}

function latencySection(row, width) {
  const latency = at("latency", row);
  if (!latency) return null;
  const budgets = latency.budgets || [];
  const pair = budgets.map((one) => /^[^x×*]*[x×*]\s*([^]+)/.exec(one.relation ? String(one.text) : "")).find(Boolean);
  const names = { own: latency.runtime || at("runtime", row) || "this runtime", other: pair ? pair[1] : "compared with" };
  const sides = [["own", latency.own], ["other", latency.other]].filter(([, side]) => side);
  const keys = ["median", "min", "p90", "p95", "p99", "iqr"].filter((key) => sides.some(([, side]) => typeof side[key] === "number"));
  const cut = sides.some(([, side]) => side.measured > (side.samples || []).length);
  const say = (one, value) => (typeof value === "number" ? (one.relation ? `${short(value, 4)}×` : seconds(value)) : "?");
  return section("Latency",
    latency.at ? el("p", { class: "quiet" }, `at ${dimsText(latency.at)}`) : null,
    budgets.map((one) => el("div", { class: "budget" },
      el("p", null, el("span", { class: `badge is-${clipped(one.verdict, 40)}` }, clipped(one.verdict, 40)), ` at most ${one.text}: `,
        el("b", null, say(one, one.ratio)), ` (${say(one, one.low)} to ${say(one, one.high)})`),
      budgetChart(one, width))),
    latencyChart(latency, names, width),
    cut ? el("p", { class: "quiet" }, "The drawing shows some of the samples; the numbers are of all of them.") : null,
    sides.length ? table(["", ...sides.map(([key]) => names[key])],
      [...keys.map((key) => [key, ...sides.map(([, side]) => (typeof side[key] === "number" ? seconds(side[key]) : ""))]),
       ["rounds", ...sides.map(([, side]) => described(side.rounds ?? side.measured))]], "Durations") : null,
    (latency.throughput || []).length ? table(["batch", "a second"],
      latency.throughput.map((one) => [described(one.batch), described(one.per_second)]), "Throughput") : null);
}

function historySection(row, width) {
  const points = DATA.history.map((run) => ({
    name: run.name, started: run.started, finished: run.finished, status: inColumn(run.status, row),
    ratio: number(inColumn(run.ratio, row)),
  }));
  if (points.length < 2) return null;
  return section("History", historyChart(points, width), table(["run", "started", "", "error / allowed"],
    points.map((point) => [
      clipped(point.name, 60), point.started || "", point.status ? badge(point.status)
        : el("span", { class: "quiet" }, point.finished ? "no such cell" : "not reached"), ratioText(point.ratio),
    ]).reverse(), "This cell in earlier runs, the latest first"));
}

function secondsSection(row) {
  const spent = Object.entries(at("seconds", row)).filter(([, value]) => typeof value === "number");
  if (!spent.length) return null;
  return section(`Time: ${seconds(secondsOf(row))}`, bars(spent, (_, value) => seconds(value), "Seconds by stage"));
}

function graphSection(row) {
  const graph = at("graph", row);
  if (!graph) return null;
  const nodes = Object.entries(graph.nodes || {}).sort((a, b) => b[1] - a[1]);
  const rest = Object.entries(graph).filter(([name]) => name !== "nodes");
  return section(`Graph: ${nodes.reduce((sum, [, count]) => sum + count, 0)} nodes`,
    nodes.length ? bars(nodes, (_, count) => String(count), "Nodes by operator") : null,
    facts(rest.map(([name, value]) => [name, described(value)])));
}

function siblingsSection(row) {
  const column = DATA.columns.case, mine = column.rows ? column.rows[row] : at("case", row);
  const rows = [];
  for (let one = 0; one < COUNT && rows.length < 200; one++) {
    if (one !== row && (column.rows ? column.rows[one] : at("case", one)) === mine) rows.push(one);
  }
  return rows.length ? section(`Other cells of ${clipped(at("case", row), 60)}`, el("ul", { class: "siblings" }, rows.map((one) =>
    el("li", null, el("a", { href: linkTo(one), class: `is-${at("status", one)}` },
      el("b", null, SIGNS[at("status", one)]), ` ${clipped(at("id", one), 160)}`))))) : null;
}

function detailsSection(row) {
  const details = at("details", row);
  return details.length && !["failed", "xpassed"].includes(at("status", row))
    ? section("Details", el("pre", null, details.map(String).join("\n"))) : null;
}

function whichSection(row) {
  const source = at("source", row);
  const counts = [["examples verified", "examples"], ["ill-conditioned", "ill_conditioned"], ["verified nothing", "nothing"], ["values excused", "excused"]];
  return section("Cell", facts([
    ["case", at("case", row)], ["declared at", source.file ? `${source.file}${source.line ? `:${source.line}` : ""}` : null],
    ["check", at("check", row)], ["exporter", at("exporter", row)], ["opset", String(at("opset", row))],
    ["runtime", at("runtime", row)], ["precision", at("precision", row)], ["stage", at("stage", row)], ["error", at("error", row)],
    ["at fault", at("who", row)], ["ended by", at("signal", row)],
    ...counts.filter(([, name], index) => !index || at(name, row)).map(([words, name]) => [words, String(at(name, row))]),
    ["ran on", at("worker", row) ? `${at("worker", row).name} on ${at("worker", row).host}` : null],
    ["taken over", at("reused", row) ? "from an earlier run" : null],
  ]));
}

function cellSections(row, width) {
  return [
    verdictSection(row), changesSection(row), commandSection(row), worstSection(row), histogramSection(row, width),
    coverageSection(row), lossSection(row), processorSection(row), fidelitySection(row), latencySection(row, width),
    historySection(row, width), whichSection(row),
    detailsSection(row), secondsSection(row), graphSection(row), plainSection("Arithmetic", at("arithmetic", row)),
    plainSection("Conversion", at("conversion", row)), plainSection("Engine", at("engine", row)), siblingsSection(row),
  ].filter(Boolean);
}

// Small drawings. Each takes the width that it has, and says in its label what it shows.

const LINE = 18; // height of a line of small text

function chart(width, height, label, ...parts) {
  return svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, parts);
}

function scale(low, high, from, to) {
  const span = high > low ? high - low : 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

function ticks(low, high, about) {
  const raw = (high - low) / about;
  if (!(raw > 0) || !Number.isFinite(raw)) return [];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high * (1 + 1e-9); index++) found.push(index * step);
  return found;
}

function axis(x, y, low, high, width, say) {
  const end = x(high);
  return [
    svg("line", { class: "axis", x1: x(low), x2: end, y1: y, y2: y }),
    ...ticks(low, high, Math.max(2, width / 110)).map((value) =>
      svg("g", null,
        svg("line", { class: "axis", x1: x(value), x2: x(value), y1: y, y2: y + 4 }),
        svg("text", { x: x(value), y: y + LINE - 2, "text-anchor": x(value) > end - 16 ? "end" : x(value) < x(low) + 16 ? "start" : "middle" }, say(value)))),
  ];
}

function vertical(x, top, bottom, text, kind, width) {
  const near = x > width * 0.6;
  return [
    svg("line", { class: kind, x1: x, x2: x, y1: top, y2: bottom }),
    svg("text", { class: kind, x: x + (near ? -4 : 4), y: top + 10, "text-anchor": near ? "end" : "start" }, text),
  ];
}

// ---- errors

function histogramChart(histogram, width) {
  const edges = (histogram.edges || []).map(Number), counts = (histogram.counts || []).map(Number);
  if (!counts.length || edges.length !== counts.length + 1) return null;
  const low = edges[0], high = Math.max(edges[edges.length - 1], 0.2);
  const top = Math.max(...counts, 1), height = 140, base = height - LINE - 4;
  const x = scale(low, high, 8, width - 8), y = scale(0, top, base, LINE + 4);
  const over = counts.reduce((sum, count, index) => sum + (edges[index] >= 0 ? count : 0), 0);
  const all = counts.reduce((sum, count) => sum + count, 0);
  const power = (value) => (value === 0 ? "1" : `1e${short(value)}`);
  return chart(width, height, `Errors over what is allowed: ${over} of ${all} above 1`,
    counts.map((count, index) =>
      count ? svg("rect", {
        class: edges[index] >= 0 ? "bar bad" : "bar", x: x(edges[index]) + 0.5, y: Math.min(y(count), base - 1.5),
        width: Math.max(1, x(edges[index + 1]) - x(edges[index]) - 1), height: Math.max(1.5, base - y(count)),
      }, svg("title", null, `${power(edges[index])} to ${power(edges[index + 1])}: ${count}`)) : null),
    axis(x, base, low, high, width, power),
    vertical(x(0), 2, base, "allowed", "limit", width));
}

// ---- latency

function quartiles(sorted) {
  const quantile = (share) => {
    const place = share * (sorted.length - 1), below = Math.floor(place);
    return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
  };
  return [quantile(0.25), quantile(0.5), quantile(0.75)];
}

function unitOf(value) {
  if (value >= 1) return [1, "s"];
  return value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
}

function latencyChart(latency, names, width) {
  const sides = [["own", latency.own], ["other", latency.other]]
    .filter(([, side]) => side && typeof side.median === "number")
    .map(([key, side]) => ({ ...side, name: names[key], dots: (side.samples || []).filter((one) => typeof one === "number") }));
  if (!sides.length) return null;
  const lines = (latency.budgets || []).flatMap((budget) => {
    if (typeof budget.limit !== "number") return [];
    if (!budget.relation) return [{ at: budget.limit, text: budget.text }];
    return latency.other && typeof latency.other.median === "number"
      ? [{ at: budget.limit * latency.other.median, text: budget.text }] : [];
  });
  const far = Math.max(...sides.map((side) => side.p99 ?? side.p95 ?? side.median), ...lines.map((line) => line.at));
  const least = Math.min(...sides.map((side) => side.min ?? side.median), ...lines.map((line) => line.at));
  const high = far + 0.08 * (far - least || far), low = Math.max(0, least - 0.08 * (far - least || far));
  const band = 58, top = 4 + LINE * lines.length, base = top + band * sides.length, height = base + LINE + 6;
  const x = scale(low, high, 8, width - 8), [factor, unit] = unitOf(sides[0].median);
  const say = (value) => `${short(value * factor, 4)} ${unit}`;
  const label = sides.map((side) => `${side.name}: median ${say(side.median)}`).join("; ");
  return chart(width, height, `Durations. ${label}`,
    sides.map((side, number) => latencyBand(side, x, high, top + band * number, width, say)),
    axis(x, base, low, high, width, (value) => say(value)),
    lines.map((line, number) => vertical(x(line.at), 2 + LINE * number, base, `at most ${clipped(line.text, 40)}`, "limit", width)));
}

function latencyBand(side, x, high, top, width, say) {
  const middle = top + 36, inside = side.dots.filter((one) => one <= high);
  const [low, median, up] = side.dots.length
    ? quartiles([...side.dots].sort((a, b) => a - b)) : [side.median, side.median, side.median];
  const beyond = side.dots.length - inside.length;
  return svg("g", null,
    svg("text", { x: 8, y: top + 16 }, clipped(side.name, 40) + (beyond ? ` (${beyond} beyond the right end)` : "")),
    inside.map((one, index) => // spread by the golden ratio, so that equal durations are told apart
      svg("circle", { class: "dot", cx: x(one), cy: middle + (((index * 0.618034) % 1) - 0.5) * 24, r: 1.6 })),
    svg("rect", { class: "box-plot", x: x(low), y: middle - 8, width: Math.max(1, x(up) - x(low)), height: 16 }),
    svg("line", { class: "median", x1: x(median), x2: x(median), y1: middle - 11, y2: middle + 11 },
      svg("title", null, `median ${say(side.median)}`)));
}

function budgetChart(budget, width) {
  const values = [budget.low, budget.high, budget.ratio, budget.limit];
  if (!values.every((one) => typeof one === "number" && Number.isFinite(one))) return null;
  const least = Math.min(...values), most = Math.max(...values), pad = 0.15 * (most - least || most || 1);
  const low = Math.max(0, least - pad), high = most + pad, x = scale(low, high, 8, width - 8), middle = 30;
  const say = (value) => (budget.relation ? `${short(value, 4)}×` : seconds(value));
  return chart(width, 60, `${clipped(budget.verdict, 40)}: ${say(budget.ratio)}, between ${say(budget.low)} and ${say(budget.high)}; the limit is ${say(budget.limit)}`,
    svg("line", { class: `span is-${clipped(budget.verdict, 40)}`, x1: x(budget.low), x2: x(budget.high), y1: middle, y2: middle }),
    svg("circle", { class: `point is-${clipped(budget.verdict, 40)}`, cx: x(budget.ratio), cy: middle, r: 4.5 }),
    axis(x, 40, low, high, width, say),
    vertical(x(budget.limit), 2, 40, "limit", "limit", width));
}

// ---- history

function historyChart(points, width) {
  const known = points.map((point, index) => ({ ...point, index })).filter((point) => point.ratio > 0 && Number.isFinite(point.ratio));
  if (known.length < 2) return null;
  const logs = known.map((point) => Math.log10(point.ratio));
  const low = Math.floor(Math.min(...logs, -0.5)), high = Math.ceil(Math.max(...logs, 0.5)), height = 110;
  const x = scale(0, points.length - 1, 40, width - 12), y = scale(low, high, height - 10, 10);
  return chart(width, height, `Largest error over what is allowed, run by run: ${known.map((p) => ratioText(p.ratio)).join(", ")}`,
    [low, high].map((power) => svg("text", { x: 34, y: y(power) + 4, "text-anchor": "end" }, power === 0 ? "1" : `1e${power}`)),
    svg("text", { class: "limit", x: 34, y: y(0) + 4, "text-anchor": "end" }, "1"),
    svg("line", { class: "limit", x1: 40, x2: width - 8, y1: y(0), y2: y(0) }),
    svg("polyline", { class: "trend", points: known.map((p, i) => `${x(p.index)},${y(logs[i])}`).join(" ") }),
    known.map((p, i) => svg("circle", { class: `point is-${p.status}`, cx: x(p.index), cy: y(logs[i]), r: 3.5 },
      svg("title", null, `${p.name}: ${ratioText(p.ratio)}`))));
}

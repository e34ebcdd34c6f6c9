// The data of the page, and small helpers. All DOM is made with createElement and textContent: nothing that stands
// in a record is ever read as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const COUNT = DATA.count;
const SIGNS = { passed: "✓", xfailed: "x", skipped: "s", xpassed: "X", failed: "F" };
const WORDS = {
  failed: "failed", xpassed: "passed though declared to fail", xfailed: "failed as declared", passed: "passed",
  skipped: "skipped",
};
const ORDER = ["failed", "xpassed", "xfailed", "passed", "skipped"];

const inColumn = (column, row) => (column.rows ? column.values[column.rows[row]] : column.values[row]);
const at = (name, row) => inColumn(DATA.columns[name], row);

const ROWS_BY_ID = new Map();
for (let row = 0; row < COUNT; row++) ROWS_BY_ID.set(at("id", row), row);

const CHANGES = new Map(); // row -> its changes
for (const change of DATA.changes) {
  if (!CHANGES.has(change.row)) CHANGES.set(change.row, []);
  CHANGES.get(change.row).push(change);
}

// ---- elements

function el(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

function svg(tag, props, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child); // append makes text of text
  }
  return node;
}

// The name may be text from a record, such as "constructor", which every object has: only own names count.
function lookup(names, name, otherwise = "") {
  return Object.hasOwn(names, name) ? names[name] : otherwise;
}

function clipped(text, most) {
  const line = String(text ?? "");
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
}

const linkTo = (row) => "#cell=" + encodeURIComponent(at("id", row));

// ---- numbers: infinities and NaN are text in records

function number(value) {
  if (typeof value === "number") return value;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;
}

function short(value, digits = 3) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

function seconds(value) {
  const size = Math.abs(value);
  if (size >= 60) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (size >= 1) return `${short(value)} s`;
  if (size >= 1e-3) return `${short(value * 1e3)} ms`;
  return size === 0 ? "0 s" : `${short(value * 1e6)} µs`;
}

function decibels(value) {
  const db = number(value);
  if (Number.isNaN(db)) return String(value); // the name of the error that the stage stopped with
  if (db === Infinity) return "no loss";
  return db === -Infinity ? "all lost" : `${db.toFixed(1)} dB`;
}

function ratioOf(row) {
  const worst = at("worst", row);
  return worst && worst.ratio !== null && worst.ratio !== undefined ? number(worst.ratio) : NaN;
}

function ratioText(value) {
  return Number.isNaN(value) ? "" : value === Infinity ? "∞" : short(value, 3);
}

function secondsOf(row) {
  return Object.values(at("seconds", row)).reduce((sum, one) => sum + (typeof one === "number" ? one : 0), 0);
}

// The matrix: a table that scrolls in its own box. One listener for all of it, and one stop of the Tab key; the
// arrows move inside.

const KINDS = { "✓": "passed", x: "xfailed", F: "failed", X: "xpassed", s: "skipped", n: "xfailed", N: "failed" };
const AT_ONCE = 40; // cases that are added between two frames

const matrix = {
  box: document.getElementById("matrix"),
  body: null,
  cells: [], // {node, rows} of each cell
  lines: [], // {node, cells} of each case
  whole: false,
};

function matrixHead() {
  const { groups } = DATA.matrix;
  const top = el("tr", null, el("td", { rowspan: 2, class: "corner" }));
  const below = el("tr");
  groups.forEach((group, number) => {
    const words = group.part === "export" ? [group.exporter, "export"] : [group.exporter, group.part, group.precision];
    top.append(el("th", { scope: "colgroup", colspan: group.opsets.length, class: number % 2 ? "odd" : "" },
      words.map((word) => el("span", null, clipped(word, 24)))));
    group.opsets.forEach((opset) => below.append(el("th", { scope: "col", class: number % 2 ? "odd" : "" },
      el("span", { class: "hidden" }, "opset "), String(opset))));
  });
  return el("thead", null, top, below);
}

function matrixLine(index) {
  const { groups, cases, cells } = DATA.matrix;
  const line = { node: el("tr", { role: "row" }, el("th", { scope: "row", title: cases[index] }, clipped(cases[index], 60))), cells: [] };
  const odd = groups.flatMap((group, number) => group.opsets.map(() => number % 2));
  cells[index].forEach((cell, column) => {
    const stripe = odd[column] ? " odd" : "";
    if (!cell) {
      line.node.append(el("td", { class: `none${stripe}`, "aria-label": "not a cell" }, "·"));
      return;
    }
    const [sign, ...rows] = cell;
    const node = el("td", { class: `sign is-${KINDS[sign]}${stripe}`, role: "gridcell", tabindex: matrix.cells.length ? -1 : 0,
      "data-row": rows[0], title: at("id", rows[0]) }, sign);
    node.setAttribute("aria-label", `${WORDS[at("status", rows[0])]}: ${at("id", rows[0])}`);
    line.node.append(node);
    line.cells.push({ node, rows });
    matrix.cells.push({ node, rows });
  });
  return line;
}

function buildMatrix(done) {
  const { cases, missing } = DATA.matrix;
  matrix.body = el("tbody");
  const whole = el("table", { class: "matrix", role: "grid", "aria-label": "Matrix; arrows move, Enter opens" }, matrixHead(), matrix.body);
  matrix.box.replaceChildren(whole);
  missing.forEach((line) => matrix.box.after(el("p", { class: "alarm" }, clipped(line, 600))));
  let next = 0;
  const some = () => {
    const part = document.createDocumentFragment();
    for (const end = Math.min(next + AT_ONCE, cases.length); next < end; next++) {
      const line = matrixLine(next);
      matrix.lines.push(line);
      part.append(line.node);
    }
    matrix.body.append(part);
    if (next < cases.length) setTimeout(some);
    else {
      matrix.whole = true;
      done();
    }
  };
  some();
}

// A case none of whose cells the filters leave is hidden; of another case the cells that they leave out fade.
function filterMatrix(shown) {
  for (const line of matrix.lines) {
    let any = false;
    for (const { node, rows } of line.cells) {
      const here = rows.some((row) => shown[row]);
      any = any || here;
      node.classList.toggle("faded", !here);
    }
    line.node.hidden = !any;
  }
}

function moveInMatrix(from, key) {
  const line = from.parentElement, column = from.cellIndex;
  const isCell = (node) => node && node.dataset && node.dataset.row !== undefined;
  const along = (node, next) => {
    do node = next(node); while (node && !isCell(node));
    return node;
  };
  if (key === "ArrowRight") return along(from, (node) => node.nextElementSibling);
  if (key === "ArrowLeft") return along(from, (node) => node.previousElementSibling);
  const step = key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
  for (let other = line[step]; other; other = other[step]) {
    if (!other.hidden && isCell(other.cells[column])) return other.cells[column];
  }
  return null;
}

matrix.box.addEventListener("click", (event) => {
  const cell = event.target.closest("[data-row]");
  if (cell) openCell(Number(cell.dataset.row), cell);
});

matrix.box.addEventListener("keydown", (event) => {
  const cell = event.target.closest("[data-row]");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") openCell(Number(cell.dataset.row), cell);
  else if (event.key.startsWith("Arrow")) {
    const to = moveInMatrix(cell, event.key);
    if (to) {
      cell.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    }
  } else return;
  event.preventDefault();
  event.stopPropagation();
});

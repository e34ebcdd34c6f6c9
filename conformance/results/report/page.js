// What is shown, its address, and the keys.

const FACETS = ["exporter", "runtime", "precision", "check", "fault", "stage"];
const SORTS = { failures: "failures first", ratio: "largest error first", time: "slowest first", id: "by name", finished: "as they finished" };
const NONE = "none"; // in the address, for a field that is null
const state = { status: new Set(), facets: new Map(), q: "", sort: "failures", changed: false, cell: null };
const main = document.getElementById("main"), panel = document.getElementById("panel");
const search = document.getElementById("search"), found = document.getElementById("found"), clear = document.getElementById("clear");
const shown = new Uint8Array(COUNT);
const selects = new Map();
let changedBox = null;
let returnTo = null; // what had the focus before the panel opened

const facetText = (name, row) => String(at(name, row) ?? NONE);

// ---- the address: #status=failed,xpassed&exporter=dynamo&q=asinh&cell=...

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.status = new Set((given.get("status") || "").split(",").filter((one) => ORDER.includes(one)));
  state.facets = new Map(FACETS.filter((name) => given.get(name)).map((name) => [name, given.get(name)]));
  state.q = given.get("q") || "";
  state.sort = Object.hasOwn(SORTS, given.get("sort") || "") ? given.get("sort") : "failures";
  state.changed = given.get("changed") === "1";
  state.cell = given.get("cell");
}

function address() {
  const said = new URLSearchParams();
  if (state.status.size) said.set("status", [...state.status].join(","));
  for (const [name, value] of state.facets) said.set(name, value);
  if (state.q) said.set("q", state.q);
  if (state.sort !== "failures") said.set("sort", state.sort);
  if (state.changed) said.set("changed", "1");
  if (state.cell !== null) said.set("cell", state.cell);
  return `#${said}`;
}

let writing = 0;
function writeAddress(step = false) {
  clearTimeout(writing);
  if (step) history.pushState(null, "", address()); // so that Back closes the panel
  else writing = setTimeout(() => history.replaceState(null, "", address()), 150); // browsers refuse hundreds in a row
}

// ---- filters

function buildFilters() {
  const form = document.getElementById("filters");
  for (const name of FACETS) {
    const counts = new Map();
    for (let row = 0; row < COUNT; row++) counts.set(facetText(name, row), (counts.get(facetText(name, row)) || 0) + 1);
    if (counts.size < 2) continue;
    const select = el("select", { name }, el("option", { value: "" }, "all"),
      [...counts.keys()].sort().map((value) => el("option", { value }, `${clipped(value, 40)} (${counts.get(value)})`)));
    select.addEventListener("change", () => {
      if (select.value) state.facets.set(name, select.value);
      else state.facets.delete(name);
      refresh();
    });
    selects.set(name, select);
    form.append(el("label", null, el("span", null, name), select));
  }
  const sort = el("select", { name: "sort" }, Object.entries(SORTS).map(([value, words]) => el("option", { value }, words)));
  sort.addEventListener("change", () => {
    state.sort = sort.value;
    refresh();
  });
  selects.set("sort", sort);
  form.append(el("label", null, el("span", null, "order"), sort));
  if (CHANGES.size) {
    changedBox = el("input", { type: "checkbox", name: "changed" });
    changedBox.addEventListener("change", () => {
      state.changed = changedBox.checked;
      refresh();
    });
    form.append(el("label", { class: "check" }, changedBox, ` changed only (${CHANGES.size})`));
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      state.q = search.value;
      refresh();
    }, 60);
  });
  for (const chip of document.querySelectorAll("[data-status]")) {
    chip.addEventListener("click", () => {
      const status = chip.dataset.status;
      if (!state.status.delete(status)) state.status.add(status);
      refresh();
    });
  }
  clear.addEventListener("click", () => {
    Object.assign(state, { status: new Set(), facets: new Map(), q: "", changed: false });
    refresh();
    search.focus();
  });
}

function showFilters() {
  if (search.value !== state.q) search.value = state.q;
  for (const [name, select] of selects) select.value = name === "sort" ? state.sort : state.facets.get(name) || "";
  if (changedBox) changedBox.checked = state.changed;
  for (const chip of document.querySelectorAll("[data-status]")) chip.setAttribute("aria-pressed", state.status.has(chip.dataset.status));
}

const haystacks = new Array(COUNT);
function haystack(row) {
  haystacks[row] ??= ["id", "error", "reason", "fault", "stage"].map((name) => at(name, row) || "").join("\n").toLowerCase()
    + `\n${String(at("source", row).file || "").toLowerCase()}`;
  return haystacks[row];
}

function matches(row, words) {
  if (state.status.size && !state.status.has(at("status", row))) return false;
  if (state.changed && !CHANGES.has(row)) return false;
  for (const [name, value] of state.facets) if (facetText(name, row) !== value) return false;
  return words.every((word) => haystack(row).includes(word));
}

function sorted(rows) {
  const by = (key) => rows.map((row) => [key(row), row]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, row]) => row);
  if (state.sort === "failures") return by((row) => ORDER.indexOf(at("status", row)));
  if (state.sort === "ratio") return by((row) => (Number.isNaN(ratioOf(row)) ? Number.MAX_VALUE : -Math.min(ratioOf(row), 1e300)));
  if (state.sort === "time") return by((row) => -secondsOf(row));
  return state.sort === "id" ? rows.sort((a, b) => (at("id", a) < at("id", b) ? -1 : 1)) : rows;
}

function apply() {
  const before = list.rows[list.selected];
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  let rows = [];
  for (let row = 0; row < COUNT; row++) {
    shown[row] = matches(row, words) ? 1 : 0;
    if (shown[row]) rows.push(row);
  }
  list.rows = sorted(rows);
  list.selected = before === undefined ? -1 : list.rows.indexOf(before);
  const all = list.rows.length === COUNT;
  const cells = COUNT === 1 ? "1 cell" : `${COUNT} cells`;
  found.textContent = all ? cells : `${list.rows.length} of ${cells}`;
  clear.hidden = all && !state.q && !state.status.size && !state.facets.size && !state.changed;
  drawList();
  filterMatrix(shown);
}

function refresh() {
  showFilters();
  apply();
  writeAddress();
}

// ---- the panel

const narrow = window.matchMedia("(max-width: 70rem)");

function showCell() {
  const open = state.cell !== null;
  document.body.classList.toggle("open", open);
  panel.hidden = !open;
  main.inert = open && narrow.matches; // on a phone the panel covers everything
  if (!open) {
    panel.replaceChildren();
    return;
  }
  const row = ROWS_BY_ID.get(state.cell);
  const button = (name, label, text) => el("button", { type: "button", "data-do": name, "aria-label": label }, text);
  const buttons = el("div", { class: "buttons" }, row === undefined ? null : badge(at("status", row)), el("span", { class: "grow" }),
    button("previous", "Previous cell", "↑"), button("next", "Next cell", "↓"), button("close", "Close", "✕"));
  const heading = el("h2", { id: "panel-title", tabindex: -1 }, clipped(state.cell, 400));
  panel.replaceChildren(el("header", null, buttons, heading));
  if (row === undefined) {
    panel.append(el("p", { class: "alarm" }, "This run has no such cell. It may be in another run, or the address was cut off."));
  } else {
    const width = Math.max(220, Math.min(640, panel.clientWidth - 32));
    panel.append(...cellSections(row, width));
    list.selected = list.rows.indexOf(row);
  }
  panel.scrollTop = 0;
  drawList();
  heading.focus({ preventScroll: true });
}

function openCell(row, from) {
  if (state.cell === null) returnTo = from || document.activeElement;
  const opening = state.cell === null;
  state.cell = at("id", row);
  writeAddress(opening);
  inPlace(opening && from && !panel.contains(from) ? from : null, showCell);
}

// Opening and closing change the room that the page has: what was clicked stays where it is.
function inPlace(node, change) {
  const before = node ? node.getBoundingClientRect().top : 0;
  change();
  if (node && !main.inert) window.scrollBy(0, node.getBoundingClientRect().top - before);
}

function closeCell() {
  if (state.cell === null) return;
  state.cell = null;
  writeAddress(true);
  inPlace(returnTo && returnTo.isConnected ? returnTo : null, showCell);
  (returnTo && returnTo.isConnected ? returnTo : list.box).focus({ preventScroll: true });
  returnTo = null;
}

function step(by) {
  if (!list.rows.length) return;
  select(list.selected < 0 ? (by > 0 ? 0 : list.rows.length - 1) : list.selected + by);
  if (state.cell !== null) openCell(list.rows[list.selected]);
  else list.box.focus({ preventScroll: true });
}

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no permission, or an old browser: select it, for the user's own copy
    window.getSelection().selectAllChildren(button.previousElementSibling);
    document.execCommand("copy");
  }
  button.textContent = "copied";
  document.getElementById("said").textContent = "The command was copied";
  setTimeout(() => (button.textContent = "copy"), 1500);
}

panel.addEventListener("click", (event) => {
  const button = event.target.closest("button"), link = event.target.closest("a");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    const id = new URLSearchParams(link.getAttribute("href").slice(1)).get("cell");
    if (ROWS_BY_ID.has(id)) openCell(ROWS_BY_ID.get(id));
  }
  if (!button) return;
  if (button.dataset.copy !== undefined) copy(button);
  else if (button.dataset.do === "close") closeCell();
  else step(button.dataset.do === "next" ? 1 : -1);
});

// Links of the summary keep the filters.
main.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#cell="]');
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const id = new URLSearchParams(link.getAttribute("href").slice(1)).get("cell");
  if (!ROWS_BY_ID.has(id)) return;
  event.preventDefault();
  openCell(ROWS_BY_ID.get(id), link);
});

// ---- colours

const THEMES = { auto: "◐ auto", dark: "● dark", light: "○ light" };
const theme = document.getElementById("theme");

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = THEMES[name];
  theme.setAttribute("aria-label", name === "auto" ? "Colours: as the system" : `Colours: ${name}`);
  try {
    localStorage.setItem("conformance-theme", name);
  } catch { /* a browser that keeps nothing of pages on disk */ }
}

function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
}

function storedTheme() {
  try {
    const name = localStorage.getItem("conformance-theme");
    return name !== null && Object.hasOwn(THEMES, name) ? name : "auto";
  } catch {
    return "auto";
  }
}

// ---- keys

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = event.target.closest("input, select, textarea");
  if (event.key === "Escape") {
    if (inField === search) {
      if (search.value) {
        state.q = "";
        refresh();
      } else search.blur();
    } else closeCell();
    return;
  }
  if (inField) {
    if (inField === search && (event.key === "ArrowDown" || event.key === "Enter")) {
      event.preventDefault();
      list.box.focus({ preventScroll: true });
      select(0);
    }
    return;
  }
  const inPanel = panel.contains(event.target);
  const onControl = event.target.closest("a, button, summary");
  const arrows = event.target === list.box || event.target === document.body;
  if (event.key === "/") search.focus();
  else if (event.key === "j" || (event.key === "ArrowDown" && arrows)) step(1);
  else if (event.key === "k" || (event.key === "ArrowUp" && arrows)) step(-1);
  else if (event.key === "t") nextTheme();
  else if (event.key === "Enter" && !onControl && !inPanel && list.selected >= 0) openCell(list.rows[list.selected], list.box);
  else return;
  event.preventDefault();
});

// ---- start

theme.addEventListener("click", nextTheme);
setTheme(storedTheme());
readAddress();
buildFilters();
showFilters();
apply();
performance.mark("first-row");
showCell();
window.addEventListener("popstate", () => {
  readAddress();
  showFilters();
  apply();
  showCell();
});
narrow.addEventListener("change", () => {
  if (state.cell !== null) showCell();
});
setTimeout(() => buildMatrix(() => {
  filterMatrix(shown);
  document.documentElement.dataset.ready = "yes";
  performance.mark("whole");
}));
requestAnimationFrame(() => setTimeout(() => performance.mark("painted")));

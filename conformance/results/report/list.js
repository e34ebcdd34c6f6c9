// The list of cells. Only the rows in sight exist: the page scrolls, and they are filled again.

const list = {
  box: document.getElementById("list"),
  pool: [],
  height: 36,
  rows: [], // numbers of the records that are shown, in order
  selected: -1, // index into rows
  printing: false,
};

const AT_LEAST = 20; // rows that exist even where the list is out of sight
const PRINTED = 300; // rows on paper
const LEFT_OUT = 160; // characters of a field that a row shows at most; CSS cuts the rest

function emptyRow() {
  const parts = {};
  for (const name of ["sign", "id", "ratio", "fault", "reason", "time"]) parts[name] = el("span", { class: name, role: "gridcell" });
  parts.link = el("a", { tabindex: -1 });
  parts.id.append(parts.link);
  const node = el("div", { class: "row", role: "row" }, parts.sign, parts.id, parts.ratio, parts.fault, parts.reason, parts.time);
  list.box.append(node);
  return { node, parts, index: -1, row: -1 };
}

function fillRow(slot, index) {
  const row = list.rows[index], status = at("status", row), { parts, node } = slot;
  slot.index = index;
  node.style.transform = `translateY(${index * list.height}px)`;
  node.setAttribute("aria-rowindex", index + 1);
  node.id = `row-${index}`;
  if (slot.row !== row) {
    slot.row = row;
    node.dataset.row = row;
    parts.sign.className = `sign is-${status}`;
    parts.sign.textContent = SIGNS[status];
    parts.sign.setAttribute("aria-label", WORDS[status]);
    parts.link.textContent = clipped(at("id", row), LEFT_OUT);
    parts.link.setAttribute("href", linkTo(row));
    parts.ratio.textContent = ratioText(ratioOf(row));
    parts.fault.textContent = clipped(at("who", row) || "", 40);
    const changes = CHANGES.get(row);
    const told = at("reason", row) || (changes ? `${changes[0].kind} ${changes[0].text}` : "");
    parts.reason.textContent = clipped(told, LEFT_OUT);
    if (parts.ratio.textContent) parts.ratio.title = `error / allowed: ${ratioOf(row)}`;
    else parts.ratio.removeAttribute("title");
    parts.time.textContent = seconds(secondsOf(row));
    node.classList.toggle("changed", Boolean(changes));
  }
  const selected = index === list.selected;
  node.classList.toggle("selected", selected);
  node.setAttribute("aria-selected", selected);
}

function drawList() {
  const count = list.rows.length;
  if (!list.pool.length) list.pool.push(emptyRow());
  list.height = list.pool[0].node.offsetHeight || list.height;
  list.box.style.height = `${count * list.height}px`;
  list.box.setAttribute("aria-rowcount", count);
  const top = -list.box.getBoundingClientRect().top;
  const first = list.printing ? 0 : Math.max(0, Math.min(count, Math.floor(top / list.height)) - 6);
  const inSight = list.printing ? PRINTED : Math.ceil((top + window.innerHeight) / list.height) + 6;
  const last = Math.min(count, Math.max(inSight, first + AT_LEAST));
  const wanted = Math.max(0, last - first);
  list.box.dataset.more = list.printing && last < count ? `and ${count - last} more` : "";
  while (list.pool.length < wanted) list.pool.push(emptyRow());
  list.pool.forEach((slot, place) => {
    slot.node.hidden = place >= wanted;
    if (place < wanted) fillRow(slot, first + place);
    else slot.node.removeAttribute("id");
  });
  if (list.selected >= first && list.selected < last) list.box.setAttribute("aria-activedescendant", `row-${list.selected}`);
  else list.box.removeAttribute("aria-activedescendant");
}

function select(index, scroll = true) {
  list.selected = Math.max(-1, Math.min(list.rows.length - 1, index));
  if (scroll && list.selected >= 0) {
    const top = list.box.getBoundingClientRect().top + list.selected * list.height;
    if (top < 8) window.scrollBy(0, top - 8);
    else if (top + list.height > window.innerHeight - 8) window.scrollBy(0, top + list.height - window.innerHeight + 8);
  }
  drawList();
}

let drawing = false;
function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawList();
  });
}
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(event, () => {
    list.printing = printing;
    drawList();
  });
}
window.addEventListener("scroll", drawSoon, { passive: true });
window.addEventListener("resize", drawSoon);
new ResizeObserver(drawSoon).observe(document.getElementById("main"));

list.box.addEventListener("click", (event) => {
  const row = event.target.closest("[data-row]");
  if (!row || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openCell(Number(row.dataset.row), list.box);
});

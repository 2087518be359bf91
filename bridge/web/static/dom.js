// Builds and updates elements.  Text is always set as text, never as HTML: names come from znodes and brokers.

/** An element: el("td", {class: "number"}, "12", child). Attributes that are null or false are left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return made;
}

/** Build the content of an element again, only if what it shows has changed: focus and selection stay otherwise. */
export function show(place, value, build) {
  const signature = JSON.stringify(value);
  if (place.zkSignature === signature) return;
  place.zkSignature = signature;
  place.replaceChildren(...[build(value)].flat().filter((one) => one !== null && one !== undefined));
}

/**
 * Update the rows of a table body in place. `cells(item)` gives for each cell a text or {text, class, href, title, node};
 * the first one is the header of the row.
 */
export function showRows(body, items, key, cells) {
  const old = body.zkRows || new Map();
  const kept = new Map();
  let place = body.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let row = old.get(name);
    if (!row) row = el("tr");
    kept.set(name, row);
    updateRow(row, cells(item));
    if (row === place) place = place.nextElementSibling;
    else body.insertBefore(row, place);
  }
  for (const [name, row] of old) if (kept.get(name) !== row) row.remove();
  body.zkRows = kept;
}

function updateRow(row, cells) {
  cells.forEach((cell, number) => {
    const given = cell !== null && typeof cell === "object" ? cell : { text: cell };
    const signature = JSON.stringify(given);
    let at = row.children[number];
    if (at && at.zkSignature === signature) return;
    if (!at) {
      at = number === 0 ? el("th", { scope: "row" }) : el("td");
      row.append(at);
    }
    at.zkSignature = signature;
    at.className = given.class || "";
    if (given.title) at.title = given.title; else at.removeAttribute("title");
    const text = given.text === null || given.text === undefined ? "–" : String(given.text);
    if (given.href) at.replaceChildren(el("a", { href: given.href }, text));
    else if (given.mark) at.replaceChildren(el("span", { class: `mark ${given.mark}` }, text));
    else at.replaceChildren(text);
  });
}

/** A table in a region that scrolls sideways and can be reached by keyboard; returns [region, body]. */
export function table(label, heads) {
  const body = el("tbody");
  const head = el("tr", {}, heads.map((one) => {
    const given = typeof one === "string" ? { text: one } : one;
    const inner = given.onsort ? el("button", { type: "button", onclick: given.onsort }, given.text) : given.text;
    return el("th", { scope: "col", class: given.class, "aria-sort": given.sort }, inner);
  }));
  const region = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", {}, el("caption", { class: "visually-hidden" }, label), el("thead", {}, head), body));
  return [region, body];
}

/** A command with a button that copies it. The page runs no command. */
export function command(text) {
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text, button)) ? "Copied" : "Select it";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return el("div", { class: "command" }, el("code", {}, text), button);
}

async function copied(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS a browser offers no clipboard except on loopback: select the text instead.
    getSelection().selectAllChildren(button.previousElementSibling);
    return false;
  }
}

/** Say it to screen readers, when they are idle. */
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

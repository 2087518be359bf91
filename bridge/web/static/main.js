// Chooses the page by its address, and connects it to the events of the server.
import { announce } from "./dom.js";
import { span } from "./format.js";
import { GroupPage } from "./group-page.js";
import { ListPage } from "./list-page.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const MESSAGES = ["list", "group", "group-patch", "move", "doctor", "verify", "history", "history-patch", "events", "states"];
const THEMES = { "": "as the system", light: "light", dark: "dark" };

let page = null;
let source = null;
let states = {};
let skewMs = 0;
let isLost = false;

function open() {
  if (page) page.end();
  if (source) source.close();
  states = {};
  const at = new URL(location.href);
  const name = at.searchParams.get("name");
  const panel = at.pathname.split("/")[2] || "members";
  if (at.pathname.startsWith("/group") && name) {
    page = new GroupPage(main, name, panel);
    const query = new URLSearchParams({ name, panel });
    listen(`/events/group?${query}`);
  } else {
    page = new ListPage(main);
    listen("/events/list");
  }
}

function listen(address) {
  source = new EventSource(address);
  for (const name of MESSAGES) {
    source.addEventListener(name, (event) => {
      lost(false);
      const data = JSON.parse(event.data);
      if (name === "states") states = data;
      page.receive(name, data);
      age();
    });
  }
  source.addEventListener("error", async () => {
    lost(true);
    if (source.readyState !== EventSource.CLOSED) return;
    // Refused for good: the cookie has ended, or too many pages are open.
    const answer = await fetch("/about", { headers: { Accept: "application/json" } }).catch(() => null);
    if (answer && answer.status === 401) location.assign("/sign-in");
    else setTimeout(open, 5000);
  });
}

function lost(now) {
  if (now !== isLost) announce(now ? "The connection to the server is lost." : "Connected again.");
  isLost = now;
  age();
}

/** How old what is shown is; the age of the part that is read most often. */
function age() {
  const times = ["list", "group"].map((name) => states[name] && states[name].read_at_ms).filter(Boolean);
  const old = times.length ? Math.max(0, Date.now() + skewMs - Math.max(...times)) / 1000 : null;
  const text = old === null ? "" : old < 2.5 ? "Live" : `Read ${span(old)} ago`;
  connection.textContent = isLost ? `Connection lost${text ? ` · ${text}` : ""}` : text;
  connection.classList.toggle("lost", isLost);
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("zkconsumer-theme", theme); } catch { /* storage may be forbidden */ }
  const button = document.getElementById("theme");
  button.textContent = `Theme: ${THEMES[theme]}`;
  button.setAttribute("aria-label", `Theme: ${THEMES[theme]}`);
  if (page && page.themed) page.themed();
}

document.getElementById("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length]);
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (page && page.themed) page.themed();
});

// Links between panels do not load the page again, so what was read stays on the screen.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const to = new URL(link.href);
  if (to.origin !== location.origin || to.searchParams.has("format")) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  open();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("popstate", open);

async function about() {
  const before = Date.now();
  const answer = await fetch("/about", { headers: { Accept: "application/json" } }).catch(() => null);
  if (!answer || !answer.ok) return;
  const facts = await answer.json();
  skewMs = facts.now_ms - (before + Date.now()) / 2;
  document.getElementById("cluster").textContent = facts.cluster;
  const note = document.getElementById("note");
  note.hidden = !facts.note;
  note.textContent = facts.note || "";
}

setTheme(document.documentElement.dataset.theme || "");
about();
open();
setInterval(age, 1000);

// The list of groups: search, kinds, sorting; the lag of each group where it was read.
import { el, show, showRows, table } from "./dom.js";
import { count, failureText, lagText, moment, number } from "./format.js";

const COLUMNS = [
  ["group", "Group"], ["kind", "Kind"], ["members", "Members"], ["lag", "Lag"], ["topics", "Topics"],
  ["last_commit_ms", "Last commit (UTC)"], ["state", "State"],
];
const NUMBERS = new Set(["members", "lag"]);
const TOPICS_SHOWN = 3;

const values = {
  lag: (one) => (one.lag && one.lag.known !== null ? one.lag.known : -1),
  topics: (one) => one.topics.join(),
};

export class ListPage {
  constructor(main) {
    this.document = null;
    this.state = null;
    this.sort = { by: "group", direction: 1 };
    this.search = el("input", { type: "search", id: "search", autocomplete: "off", oninput: () => this.render() });
    this.search.value = new URLSearchParams(location.search).get("search") || "";
    this.which = el("select", { id: "which", onchange: () => this.render() },
      ["all", "active", "empty"].map((one) => el("option", { value: one }, { all: "All groups", active: "With members", empty: "Without members" }[one])));
    this.summary = el("p", { class: "soft", role: "status", "aria-live": "polite" });
    this.trouble = el("div");
    this.steps = el("div");
    this.region = el("div");
    main.replaceChildren(
      el("h1", {}, "Groups"),
      el("div", { class: "filters" },
        el("label", { for: "search" }, "Search a group or a topic", this.search),
        el("label", { for: "which" }, "Show", this.which)),
      this.trouble, this.summary, this.region);
    document.title = "Groups – zkconsumer";
    this.#makeTable();
  }

  #makeTable() {
    const focused = this.region.contains(document.activeElement) ? document.activeElement.textContent : null;
    const heads = COLUMNS.map(([name, text]) => ({
      text,
      class: NUMBERS.has(name) ? "number" : null,
      sort: this.sort.by === name ? (this.sort.direction > 0 ? "ascending" : "descending") : "none",
      onsort: () => this.#sortBy(name),
    }));
    const [region, body] = table("Groups", heads);
    this.body = body;
    this.region.replaceChildren(region);
    if (focused) [...region.querySelectorAll("th button")].find((one) => one.textContent === focused)?.focus();
  }

  #sortBy(name) {
    this.sort = { by: name, direction: this.sort.by === name ? -this.sort.direction : NUMBERS.has(name) ? -1 : 1 };
    this.#makeTable();
    this.render();
  }

  receive(name, data) {
    if (name === "list") this.document = data.document;
    else if (name === "states") this.state = data.list;
    this.render();
  }

  render() {
    const failed = this.state && this.state.error ? [failureText(this.state)] : [];
    const troubles = [...failed, ...(this.document ? this.document.not_known : [])];
    show(this.trouble, troubles, () => troubles.length
      ? el("div", { class: "trouble", role: "alert" }, troubles.map((one) => el("p", {}, one))) : null);
    if (!this.document) return;
    const all = this.document.groups;
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = all.filter((one) => {
      const text = [one.group, ...one.topics].join(" ").toLowerCase();
      const isKind = this.which.value === "all" || one.active === (this.which.value === "active");
      return isKind && words.every((word) => text.includes(word));
    });
    const value = values[this.sort.by] || ((one) => one[this.sort.by] ?? "");
    shown.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return this.sort.direction * (x < y ? -1 : x > y ? 1 : 0) || (a.group < b.group ? -1 : 1);
    });
    this.summary.textContent = shown.length === all.length ? count(all.length, "group") : `${count(shown.length, "group")} of ${number(all.length)}`;
    showRows(this.body, shown, (one) => `${one.kind === "coordinator"} ${one.group}`, (one) => [
      { text: one.group, href: `/group?name=${encodeURIComponent(one.group)}` },
      one.kind ? { text: one.kind, mark: one.kind } : null,
      { text: number(one.members), class: "number" },
      { text: lagText(one.lag), class: one.lag && one.lag.unknown ? "number unknown" : "number", title: one.lag ? one.lag.text : "open the group to see it" },
      { text: one.topics.length > TOPICS_SHOWN ? `${one.topics.slice(0, TOPICS_SHOWN).join(", ")}, … ${one.topics.length - TOPICS_SHOWN} more` : one.topics.join(", ") || null, class: "wrap" },
      moment(one.last_commit_ms),
      one.state || null,
    ]);
  }

  end() {}
}

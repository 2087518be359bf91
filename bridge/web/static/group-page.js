// One group: the facts in the head, and four panels.
import { announce, command, el, show, showRows, table } from "./dom.js";
import { clock, count, failureText, lagText, moment, number, partitionsText, span } from "./format.js";
import { LagGraph } from "./lag-graph.js";

const PANELS = [["members", "Group", ""], ["lag", "Lag", "/lag"], ["move", "Move", "/move"], ["evidence", "Evidence", "/evidence"]];
const ROWS_PER_PAGE = 200;
const KINDS = {
  zkconsumer: "zkconsumer", spark: "Spark", scala: "Scala", coordinator: "Kafka protocol", foreign: "another program",
  unknown: "not known yet", unregistered: "not registered", persistent: "persistent node", fence: "fence",
};

// Without Object's own properties: a topic may have the name of one, such as "constructor".
const byTopic = (columns) => Object.assign(Object.create(null), columns);

const rowKey = (row) => JSON.stringify([row.topic, row.partition, row.partition === null ? row.consumer_id : null, row.owner_kind === "coordinator"]);

export class GroupPage {
  constructor(main, name, panel) {
    this.name = name;
    this.panel = PANELS.some(([one]) => one === panel) ? panel : "members";
    this.documents = {};
    this.states = {};
    this.rows = new Map();
    this.events = [];
    this.history = { at_ms: [], total: [], topics: byTopic({}) };
    this.pageNumber = 0;
    this.graph = null;
    this.facts = el("dl", { class: "facts" });
    this.trouble = el("div");
    this.panelPlace = el("section", { "aria-label": PANELS.find(([one]) => one === this.panel)[1] });
    const address = (path) => `/group${path}?name=${encodeURIComponent(name)}`;
    const here = PANELS.find(([one]) => one === this.panel);
    main.replaceChildren(
      el("div", { class: "title" }, el("h1", {}, name), el("a", { href: "/" }, "All groups"),
        el("a", { href: `${address(here[2])}&format=json` }, "JSON")),
      this.facts,
      el("nav", { class: "panels", "aria-label": "Panels" }, el("ul", {}, PANELS.map(([id, text, path]) =>
        el("li", {}, el("a", { href: address(path), "aria-current": id === this.panel ? "page" : null }, text))))),
      this.trouble, this.panelPlace);
    document.title = `${name} – ${here[1]} – zkconsumer`;
    this.#build();
  }

  receive(name, data) {
    if (name === "group") {
      this.documents.group = data.document;
      this.rows = new Map((data.document ? data.document.rows : []).map((row) => [rowKey(row), row]));
    } else if (name === "group-patch") {
      this.documents.group = { ...this.documents.group, ...data.document };
      for (const gone of data.gone) this.rows.delete(JSON.stringify([gone[0], gone[1], gone[2], gone[3] === "coordinator"]));
      for (const row of data.changed) this.rows.set(rowKey(row), row);
    } else if (name === "history") this.history = { ...data, topics: byTopic(data.topics) };
    else if (name === "history-patch") this.#addPoint(data);
    else if (name === "events") this.#setEvents(data);
    else if (name === "states") this.states = data;
    else this.documents[name] = data.document;
    this.render();
  }

  #addPoint(data) {
    const at = data.at_ms[0];
    if (this.history.at_ms.length && this.history.at_ms.at(-1) >= at) return;
    const before = this.history.at_ms.length;
    this.history.at_ms.push(at);
    this.history.total.push(data.total[0]);
    for (const topic of Object.keys(data.topics)) {
      if (!this.history.topics[topic]) this.history.topics[topic] = Array(before).fill(null);
      this.history.topics[topic].push(data.topics[topic][0]);
    }
    if (before > 1000) for (const column of [this.history.at_ms, this.history.total, ...Object.values(this.history.topics)]) column.shift();
  }

  #setEvents(events) {
    const newest = events.at(-1);
    const known = this.events.at(-1);
    if (known && newest && newest.at_ms !== known.at_ms) announce(newest.text);
    this.events = events;
  }

  themed() {
    if (this.graph && this.history.at_ms.length) this.graph.show(this.history);
  }

  end() {
    if (this.graph) this.graph.end();
  }

  // --- what all panels have

  render() {
    this.#renderTrouble();
    const page = this.documents.group;
    if (!page) {
      if (this.states.group && this.states.group.is_absent) {
        show(this.facts, null, () => null);
        this.panelPlace.hidden = true;
      }
      return;
    }
    this.panelPlace.hidden = false;
    this.#renderFacts(page);
    this[`${this.panel}Render`](page);
  }

  #renderTrouble() {
    const kinds = { members: ["group"], lag: ["group"], move: ["group", "move"], evidence: ["group", "doctor", "verify"] }[this.panel];
    const failed = kinds.filter((kind) => this.states[kind] && this.states[kind].error).map((kind) => failureText(this.states[kind]));
    const page = this.documents.group;
    const absent = Boolean(this.states.group && this.states.group.is_absent);
    const unknown = page ? [...new Set(page.not_known)] : [];
    show(this.trouble, [failed, unknown, absent], () => failed.length || unknown.length || absent
      ? el("div", { class: "trouble", role: "alert" },
        absent ? el("p", {}, `The consumer group '${this.name}' does not exist.`) : null,
        failed.map((one) => el("p", {}, one)),
        unknown.map((one) => el("p", {}, one)))
      : null);
  }

  #renderFacts(page) {
    const move = this.documents.move;
    const kinds = {};
    for (const one of page.all_members) kinds[one.kind] = (kinds[one.kind] || 0) + 1;
    const doctor = this.documents.doctor;
    const generation = move && move.members ? [...new Set(move.members.map((one) => one.generation).filter((one) => one !== null && one >= 0))] : [];
    const facts = [
      ["Members", number(page.all_members.length), Object.entries(kinds).map(([kind, some]) => `${some} ${KINDS[kind] || kind}`).join(", ")],
      ["Lag", lagText(page.total) ?? "–", totalNote(page.total)],
      page.seconds_behind ? ["Seconds behind", page.seconds_behind.split("  ")[0], page.seconds_behind.split("  ")[1] || ""] : null,
      ["Partitions", number(page.total.partitions), page.unowned && page.active ? `${page.unowned} without an owner` : ""],
      ["Authority", page.authority === "?" ? "unknown" : page.authority, page.storage === "unknown" ? "" : `offsets.storage: ${page.storage}`],
      page.coordinator_group ? ["Coordinator group", page.coordinator_group.state, [page.coordinator_group.protocol, generation.length ? `generation ${generation.join(", ")}` : ""].filter(Boolean).join(" · ")] : null,
      move && move.phase ? ["Migration", move.phase, `epoch ${move.epoch}`] : null,
      doctor ? ["Findings", number(doctor.findings.length), ""] : null,
    ].filter(Boolean);
    show(this.facts, facts, () => facts.map(([head, value, more]) => el("div", {}, el("dt", {}, head), el("dd", {}, value, more ? el("small", {}, more) : null))));
  }

  #build() {
    this[`${this.panel}Build`]();
  }

  // --- Group

  membersBuild() {
    const [region, body] = table("Members", ["Member", "Kind", "Host", "Owns", "Partitions", "Subscribed to", "Registered since (UTC)"]);
    this.memberRows = body;
    this.remarks = el("div");
    this.eventPlace = el("div");
    this.stepPlace = el("div");
    this.panelPlace.append(el("h2", {}, "Members"), region, this.remarks,
      el("h2", {}, "What changed"), this.eventPlace, el("h2", {}, "Next commands"), this.stepPlace);
  }

  membersRender(page) {
    showRows(this.memberRows, page.all_members, (one) => `${one.store} ${one.id}`, (one) => [
      { text: one.id, class: "mono" },
      { text: KINDS[one.kind] || one.kind, mark: one.kind, title: one.problem },
      one.host,
      { text: number(one.partitions.length), class: one.partitions.length ? "number" : "number unknown" },
      { text: partitionsText(one.partitions) || "none", class: one.partitions.length ? "wrap" : "wrap unknown" },
      { text: one.topics.join(", ") || null, class: "wrap" },
      moment(one.since_ms),
    ]);
    const fenced = page.rows ? [...this.rows.values()].filter((row) => row.owner_kind === "fence").length : 0;
    const notes = [...page.remarks, ...page.all_members.filter((one) => one.problem).map((one) => `${one.id}: ${one.problem}`)];
    for (const one of page.all_members) if (one.query) notes.push(`${one.id} is the Spark query ${one.query}.`);
    if (!page.all_members.length) notes.unshift("No member is registered.");
    if (fenced) notes.push(`A migration blocks ${count(fenced, "partition")} with fences.`);
    if (page.unowned && page.active) notes.push(`${count(page.unowned, "partition")} without an owner.`);
    show(this.remarks, [...new Set(notes)], (all) => all.map((one) => el("p", { class: "soft" }, one)));
    this.#renderEvents();
    this.#renderSteps(this.stepPlace, page.next_steps);
  }

  #renderEvents() {
    const events = [...this.events].reverse().slice(0, 50);
    show(this.eventPlace, events, () => events.length
      ? el("ul", { class: "events" }, events.map((one) => el("li", {}, el("time", { datetime: new Date(one.at_ms).toISOString() }, clock(one.at_ms)), el("span", {}, one.text))))
      : el("p", { class: "soft" }, "Nothing has changed since the page began to read this group."));
  }

  #renderSteps(place, steps) {
    show(place, steps, () => steps.length ? steps.map((one) => (one.startsWith("zkconsumer ") ? command(one) : el("p", {}, one))) : el("p", { class: "soft" }, "None."));
  }

  // --- Lag

  lagBuild() {
    const graph = el("div", { class: "graph", role: "img", "aria-label": "Lag over time; the same values are in the tables below" });
    this.graph = new LagGraph(graph);
    const [topics, topicBody] = table("Lag by topic", ["Topic", { text: "Partitions", class: "number" }, { text: "Lag", class: "number" }, "Not counted"]);
    this.topicRows = topicBody;
    this.filter = el("input", { type: "search", id: "filter", autocomplete: "off", oninput: () => { this.pageNumber = 0; this.render(); } });
    this.partitionPlace = el("div");
    this.pager = el("div", { class: "filters" });
    this.hasSeconds = null;
    this.panelPlace.append(el("h2", {}, "Lag over time"), graph, el("h2", {}, "By topic"), topics, el("h2", {}, "By partition"),
      el("div", { class: "filters" }, el("label", { for: "filter" }, "Topic, topic-partition or owner", this.filter)), this.partitionPlace, this.pager);
  }

  lagRender(page) {
    if (this.history.at_ms.length) this.graph.show(this.history);
    showRows(this.topicRows, page.topics, (one) => one.topic, (one) => [
      one.topic, { text: number(one.partitions), class: "number" },
      { text: lagText(one), class: one.unknown ? "number unknown" : "number" },
      { text: totalNote(one) || null },
    ]);
    const partitions = [...this.rows.values()].filter((row) => row.partition !== null);
    const hasSeconds = partitions.some((row) => row.lag_time);
    if (hasSeconds !== this.hasSeconds) {
      this.hasSeconds = hasSeconds;
      const right = (text) => ({ text, class: "number" });
      const [region, body] = table("Lag by partition", ["Topic", right("Partition"), right("Offset"), right("Log end"), right("Lag"),
        ...(hasSeconds ? [right("Behind for")] : []), "Trend", right("Caught up in"), "Owner"]);
      this.partitionRows = body;
      this.partitionPlace.replaceChildren(region);
    }
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = partitions.filter((row) => {
      const text = `${row.topic} ${row.topic}-${row.partition} ${row.consumer_id || ""}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    found.sort((a, b) => (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition));
    const pages = Math.max(1, Math.ceil(found.length / ROWS_PER_PAGE));
    this.pageNumber = Math.min(this.pageNumber, pages - 1);
    const some = found.slice(this.pageNumber * ROWS_PER_PAGE, (this.pageNumber + 1) * ROWS_PER_PAGE);
    showRows(this.partitionRows, some, rowKey, (row) => [
      row.topic, right(row.partition), known(row, "current_offset"), known(row, "log_end_offset"), known(row, "lag"),
      ...(hasSeconds ? [secondsCell(row)] : []), trendCell(row), caughtUpCell(row),
      row.unknown.includes("consumer_id") ? { text: "?", class: "unknown" } : { text: row.owner_kind === "fence" ? "fence of a migration" : row.consumer_id, class: "mono" },
    ]);
    show(this.pager, [this.pageNumber, pages, found.length], () => pages > 1 ? [
      el("button", { type: "button", onclick: () => this.#turn(-1) }, "Previous"),
      el("span", {}, `Page ${this.pageNumber + 1} of ${pages}, ${count(found.length, "partition")}`),
      el("button", { type: "button", onclick: () => this.#turn(1) }, "Next")] : null);
  }

  #turn(by) {
    this.pageNumber = Math.max(0, this.pageNumber + by);
    this.render();
    this.pager.querySelectorAll("button")[by > 0 ? 1 : 0]?.focus();
  }

  // --- Move

  moveBuild() {
    this.moveFacts = el("div");
    const right = (text) => ({ text, class: "number" });
    const [region, body] = table("Offsets in both stores", ["Topic", right("Partition"), right("ZooKeeper"), right("Kafka"), right("Kafka − ZooKeeper"), "Owner"]);
    this.storeRows = body;
    this.storeSummary = el("p", { class: "soft" });
    this.movePager = el("p", { class: "soft" });
    this.journalPlace = el("div");
    this.panelPlace.append(this.moveFacts, el("h2", {}, "Offsets in both stores"), this.storeSummary, region, this.movePager,
      el("h2", {}, "Journal"), this.journalPlace);
  }

  moveRender() {
    const move = this.documents.move;
    show(this.moveFacts, [move && { ...move, at_ms: 0 }, this.states.move], () => {
      if (!move) return el("p", { class: "soft" }, this.states.move && this.states.move.is_absent ? "ZooKeeper has no such group, so there is no migration." : "Reading …");
      return movePanel(move);
    });
    const partitions = [...this.rows.values()].filter((row) => row.partition !== null);
    const both = partitions.filter((row) => row.zk_offset !== null && row.kafka_offset !== null);
    const apart = both.filter((row) => row.zk_offset !== row.kafka_offset);
    this.storeSummary.textContent = `${count(both.length, "partition")} with an offset in both stores, ${number(apart.length)} of them different.`;
    partitions.sort((a, b) => (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition));
    const some = partitions.slice(0, ROWS_PER_PAGE);
    this.movePager.textContent = partitions.length > some.length ? `The first ${some.length} of ${number(partitions.length)} partitions; all are in the JSON.` : "";
    showRows(this.storeRows, some, rowKey, (row) => {
      const isBoth = row.zk_offset !== null && row.kafka_offset !== null;
      const difference = isBoth ? row.kafka_offset - row.zk_offset : null;
      return [row.topic, right(row.partition), known(row, "zk_offset"), known(row, "kafka_offset"),
        { text: difference === null ? null : difference > 0 ? `+${number(difference)}` : number(difference), class: difference ? "number bad" : "number" },
        { text: row.owner_kind === "fence" ? "fence of a migration" : row.consumer_id, class: "mono" }];
    });
    const entries = move ? [...move.journal].reverse().slice(0, 50) : [];
    show(this.journalPlace, [entries, move && move.journal_error], () => [
      move && move.journal_error ? el("p", { class: "bad" }, move.journal_error) : null,
      entries.length ? el("ul", { class: "events" }, entries.map((one) => el("li", {}, el("time", {}, moment(one.at_ms)), el("span", {}, `${one.who}: ${one.what}`)))) : el("p", { class: "soft" }, "No entry.")]);
  }

  // --- Evidence

  evidenceBuild() {
    this.doctorPlace = el("div");
    this.verifyPlace = el("div");
    this.eventPlace = el("div");
    this.panelPlace.append(el("h2", {}, "Findings of the doctor"), this.doctorPlace, el("h2", {}, "Verification of both stores"), this.verifyPlace,
      el("h2", {}, "What changed"), this.eventPlace);
  }

  evidenceRender() {
    const doctor = this.documents.doctor;
    show(this.doctorPlace, [doctor && { ...doctor, interval_ms: 0 }, this.states.doctor && this.states.doctor.error, this.states.doctor && this.states.doctor.is_absent], () => doctorPanel(doctor, this.states.doctor));
    const verify = this.documents.verify;
    show(this.verifyPlace, [verify, this.states.verify && this.states.verify.is_absent], () => verifyPanel(verify, this.states.verify));
    this.#renderEvents();
  }
}

const right = (text) => ({ text, class: "number" });

function known(row, name) {
  if (row.unknown.includes(name)) return { text: "?", class: "number unknown", title: "not known" };
  return right(number(row[name]));
}

const TRENDS = { "falling-behind": ["▲ falling behind", "bad"], "catching-up": ["▼ catching up", "good"], "caught-up": ["caught up", ""], steady: ["steady", ""] };

/** How long the first unread record has been waiting; unknown is never 0. */
function secondsCell(row) {
  const time = row.lag_time;
  if (!time || row.lag === null) return right(null);
  if (time.state === "known") return { text: span(Math.max(row.lag_seconds, 0.1)) === "0 s" ? "< 1 s" : span(row.lag_seconds), class: "number", title: time.timestamp_type };
  if (time.state === "caught-up") return right("0 s");
  if (time.state === "at-least") return { text: `> ${span(time.at_least_seconds)}`, class: "number unknown", title: time.reason };
  return { text: "unknown", class: "number unknown", title: time.reason };
}

function trendCell(row) {
  if (!row.trend || row.lag === null) return { text: null };
  const [text, mark] = TRENDS[row.trend] || ["not known yet", "unknown"];
  return { text, class: mark };
}

function caughtUpCell(row) {
  if (row.lag === null) return right(null);
  return right(row.trend === "falling-behind" ? "never" : row.trend === "caught-up" ? "now" : span(row.caught_up_in_seconds));
}

function totalNote(total) {
  return [[total.unknown, "not known"], [total.without_offset, "without an offset"], [total.without_log, "without a log"]]
    .filter(([some]) => some).map(([some, words]) => `${number(some)} ${words}`).join(", ");
}

function movePanel(move) {
  if (!move.phase) {
    return [el("p", {}, "No migration has begun: ZooKeeper has the offsets."), ...move.next_steps.map(command)];
  }
  const waiting = move.waiting_for || [];
  const facts = [
    ["Migration", `${move.migration_id}, strategy ${move.strategy}, epoch ${move.epoch}${move.confirmed ? "" : "; not confirmed: the next run compares both stores first"}`],
    ["Authority", move.authority],
    ["Must act", move.actor],
    ["Waits for", waiting.length ? waiting.map((one) => el("div", {}, one)) : "nothing"],
    ["Since", move.since_ms ? `${moment(move.since_ms)} UTC` : "not known"],
    ["Run", move.lock ? `${move.lock.owner}, since ${moment(move.lock.since_ms)} UTC${move.abort_requested ? "; a stop is requested" : ""}` : "none"],
    ["Fences", `${count(move.fences, "owner node")}; members own ${count(move.owned_partitions, "partition")}`],
    ["Placeholder", move.placeholder ? `${move.placeholder}${move.placeholder_until_ms ? `, until ${moment(move.placeholder_until_ms)} UTC` : ""}` : move.coordinator_error ? `not known: ${move.coordinator_error}` : "none"],
    ["Coordinator members", move.coordinator_members || (move.coordinator_group ? number(move.coordinator_group.members) : "none")],
    ["Old members", move.registered.join(", ") || "none"],
  ];
  if (move.copied_offsets && !move.copied_offsets.error) {
    const copies = move.copied_offsets;
    facts.push(["Copied offsets", `${number(copies.count - copies.lost.length)} of ${number(copies.count)} are in Kafka; kept ${copies.kept_until_ms ? `until ${moment(copies.kept_until_ms)} UTC at least` : copies.retention || "for a time that is not known"}`]);
  }
  const members = move.members || [];
  return [
    el("h2", {}, "Phases"),
    el("ol", { class: "phases" }, move.phases.map((one) => el("li", { class: `${one.state} ${one.authority}`, "aria-current": one.state === "current" ? "step" : null, title: `authority: ${one.authority}` }, one.phase))),
    el("dl", { class: "plain" }, facts.flatMap(([head, value]) => [el("dt", {}, head), el("dd", {}, value)])),
    ...(members.length ? [el("h2", {}, "Members that migrate"), el("ul", { class: "events" }, members.map((one) => el("li", {}, el("code", {}, one.consumer_id),
      el("span", {}, one.error || (one.phase ? `${one.phase}, epoch ${one.epoch}, ${one.generation >= 0 ? `generation ${one.generation}` : "in no generation"}${one.acknowledged ? "" : ", late"}${one.registered ? "" : ", not registered"}` : one.scala_consumer ? "a Scala consumer: it cannot migrate" : "no acknowledgement")))))] : []),
    ...(move.copied_offsets && move.copied_offsets.lost.length ? [el("div", { class: "trouble" }, move.copied_offsets.lost.slice(0, 20).map((one) => el("p", {}, one.text)))] : []),
    el("h2", {}, "Next commands"),
    ...move.next_steps.map(command),
  ];
}

function doctorPanel(doctor, state) {
  if (!doctor) return el("p", { class: "soft" }, state && state.error ? "Not examined." : state && state.is_absent ? "The doctor examines groups in ZooKeeper; this one is not there." : "Examining the group: this takes some seconds …");
  const intro = el("p", {}, `${count(doctor.members, "member")}, ${number(doctor.partitions_owned_by_registered_threads)} of ${count(doctor.partitions, "partition")} owned by registered threads.`);
  const unknown = doctor.not_known.length ? el("div", { class: "trouble" }, doctor.not_known.map((one) => el("p", {}, one))) : null;
  if (!doctor.findings.length) {
    return [intro, unknown, doctor.not_known.length ? el("p", {}, "No finding, but not everything could be checked.") : el("p", { class: "fine" }, "Nothing found.")];
  }
  return [intro, unknown, ...doctor.findings.map((one) => el("article", { class: "finding" }, el("h3", {}, `${one.name}: ${one.description}.`),
    el("ul", {}, one.evidence.map((line) => el("li", {}, line))),
    one.next_steps.map((step) => (step.startsWith("zkconsumer ") ? command(step) : el("p", {}, `→ ${step}`)))))];
}

function verifyPanel(verify, state) {
  if (!verify) return el("p", { class: "soft" }, state && state.is_absent ? "No migration has begun, so there is nothing to compare." : state && state.error ? "Not compared." : "Comparing …");
  if (verify.reason) return [el("p", {}, verify.reason)];
  const what = verify.compared_offsets ? `${count(verify.partitions, "partition")} and the fences` : "the fences";
  return [el("p", { class: verify.differences.length ? "finding" : "fine" }, `Phase ${verify.phase}: compared ${what}, ${count(verify.differences.length, "difference")}.`),
    verify.differences.length ? el("ul", {}, verify.differences.map((one) => el("li", {}, one))) : null, ...verify.next_steps.map(command)];
}

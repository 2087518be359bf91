// The graph of the lag over time, drawn by uPlot.  Lines differ by colour and by dashes.
import { clock } from "./format.js";
import uPlot from "/static/vendor/uplot/uPlot.esm.js";

const DASHES = [[], [], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 4], [12, 4, 4, 4], [6, 6]];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class LagGraph {
  constructor(place) {
    this.place = place;
    this.plot = null;
    this.names = "";
    this.resize = new ResizeObserver(() => this.#fit());
    this.resize.observe(place);
  }

  show(history) {
    const topics = Object.keys(history.topics);
    const data = [
      history.at_ms.map((ms) => ms / 1000),
      history.total,
      ...topics.map((topic) => history.topics[topic]),
    ];
    const names = JSON.stringify([topics, document.documentElement.dataset.theme, matchMedia("(prefers-color-scheme: dark)").matches]);
    if (this.plot && this.names === names) {
      this.plot.setData(data);
      return;
    }
    this.close();
    this.names = names;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const records = (_, values) => values.map((value) => (value === null ? "" : value.toLocaleString("en")));
    // Without a pointer in the graph there is no index, and the legend shows only the names.
    const value = (_, one, __, index) => (index === null || index === undefined ? "" : one === null || one === undefined ? "unknown" : one.toLocaleString("en"));
    const line = (label, at) => ({ label, value, stroke: colour(`--series-${at}`), width: at ? 1.5 : 2.5, dash: DASHES[at], spanGaps: false });
    this.plot = new uPlot({
      width: Math.max(200, this.place.clientWidth - 16),
      height: 230,
      series: [{ label: "Time", value: (_, one) => (one === null ? "" : clock(one * 1000)) }, line("All topics", 0), ...topics.map((topic, at) => line(topic, at + 1))],
      axes: [{ ...axis, space: 90, values: (_, times) => times.map((time) => clock(time * 1000)) }, { ...axis, size: 70, values: records }],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      legend: { live: true },
    }, data, this.place);
  }

  close() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  end() {
    this.resize.disconnect();
    this.close();
  }

  #fit() {
    if (this.plot) this.plot.setSize({ width: Math.max(200, this.place.clientWidth - 16), height: 230 });
  }
}

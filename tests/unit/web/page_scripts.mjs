// Runs a page's script on a document that only keeps elements and their text; prints what is shown after each message.
//     node page_scripts.mjs FOLDER list|group   < lines of JSON [name, data]
import { createInterface } from "node:readline";

class Element {
  constructor() { this.children = []; this.attributes = {}; this.parent = null; this.value = ""; }
  get firstElementChild() { return this.children[0] ?? null; }
  get nextElementSibling() { return this.parent?.children[this.parent.children.indexOf(this) + 1] ?? null; }
  get textContent() { return this.children.map((one) => (typeof one === "string" ? one : one.textContent)).join(" "); }
  set textContent(text) { this.children = [String(text)]; }
  setAttribute(name, value) { this.attributes[name] = value; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener() {}
  contains() { return false; }
  append(...some) { for (const one of some) this.insertBefore(one, null); }
  replaceChildren(...some) { this.children = []; this.append(...some); }
  remove() { this.parent?.children.splice(this.parent.children.indexOf(this), 1); this.parent = null; }
  insertBefore(one, place) {
    if (one instanceof Element) { one.remove(); one.parent = this; }
    const at = place === null ? this.children.length : this.children.indexOf(place);
    this.children.splice(at, 0, one instanceof Element ? one : String(one));
  }
}

const announced = new Element();
globalThis.document = { createElement: () => new Element(), getElementById: () => announced, activeElement: null, title: "" };
globalThis.location = { search: "" };

const [folder, kind] = process.argv.slice(2);
const { ListPage } = await import(`${folder}/list-page.js`);
const { GroupPage } = await import(`${folder}/group-page.js`);
const main = new Element();
const page = kind === "list" ? new ListPage(main) : new GroupPage(main, "g", "members");
for await (const line of createInterface({ input: process.stdin })) {
  page.receive(...JSON.parse(line));
  console.log(JSON.stringify({ text: main.textContent, history: page.history ?? null }));
}

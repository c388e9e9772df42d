// Elements from plain descriptions, and their update in place: what the user has focused, opened or scrolled stays as it is.
//
// Text only ever becomes a text node or an attribute's value. Nothing here reads HTML, so no name, key or value can be markup.

const SVG = "http://www.w3.org/2000/svg";

/** What is on a node: its properties, and the listeners by their type. */
const known = new WeakMap();

/**
 * Describes an element. Properties are attributes, but for `key` (which child of the last time this is), `on` (listeners by type),
 * `style` (custom properties and others, set by name) and `value`, `checked` and `disabled`, which are set as properties.
 * Children are descriptions, texts, numbers, or arrays of them; null and false are left out.
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false) };
}

/** Makes the children of `parent` what is described, reusing the elements that are there. */
export function render(parent, children) {
  const focused = document.activeElement;
  reconcile(parent, [children].flat(Infinity).filter(Boolean), null);
  // An element that moves loses the focus.
  if (focused && focused !== document.activeElement && focused !== document.body && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

function reconcile(parent, children, namespace) {
  const keyed = new Map();
  const unkeyed = [];
  for (const node of parent.childNodes) {
    const key = known.get(node)?.props.key;
    if (key === undefined) unkeyed.push(node);
    else keyed.set(key, node);
  }
  let at = parent.firstChild;
  for (const child of children) {
    const node = typeof child === "object" ? element(child, take(child, keyed, unkeyed), namespace) : text(String(child), unkeyed);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** The element of the last time that `child` describes anew, if there is one of its kind. */
function take(child, keyed, unkeyed) {
  const key = child.props.key;
  if (key !== undefined) {
    const node = keyed.get(key);
    keyed.delete(key);
    return node?.localName === child.tag ? node : undefined;
  }
  const at = unkeyed.findIndex((node) => node.localName === child.tag);
  return at < 0 ? undefined : unkeyed.splice(0, at + 1).at(-1);
}

function text(content, unkeyed) {
  if (unkeyed[0]?.nodeType !== Node.TEXT_NODE) return document.createTextNode(content);
  const node = unkeyed.shift();
  if (node.data !== content) node.data = content;
  return node;
}

function element({ tag, props, children }, node, namespace) {
  const inside = tag === "svg" ? SVG : namespace;
  node ??= inside ? document.createElementNS(inside, tag) : document.createElement(tag);
  const before = known.get(node)?.props ?? {};
  const listeners = known.get(node)?.listeners ?? new Set();
  known.set(node, { props, listeners });
  for (const name of Object.keys(before)) {
    if (!(name in props)) set(node, name, undefined);
  }
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") listen(node, value, listeners);
    else if (name === "style") styles(node, value, before.style ?? {});
    else if (before[name] !== value) set(node, name, value);
  }
  reconcile(node, children, inside);
  // A select's value is one of its options, which are there only now.
  if (tag === "select" && props.value !== undefined && node.value !== props.value) node.value = props.value;
  return node;
}

function set(node, name, value) {
  if (name === "key" || name === "on" || name === "style") return;
  if (name === "value" || name === "checked" || name === "disabled") node[name] = value ?? false;
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

function styles(node, now, before) {
  for (const name of Object.keys(before)) {
    if (!(name in now)) node.style.removeProperty(name);
  }
  for (const [name, value] of Object.entries(now)) {
    if (before[name] !== value) node.style.setProperty(name, value);
  }
}

function listen(node, handlers, listeners) {
  for (const type of Object.keys(handlers)) {
    if (listeners.has(type)) continue;
    listeners.add(type);
    node.addEventListener(type, (event) => known.get(node)?.props.on?.[type]?.(event));
  }
}

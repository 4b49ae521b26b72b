// Builds and updates the page. Text only ever becomes text nodes: there is no way from a string to markup here, and the
// Content-Security-Policy (trusted types) forbids it to the browser, too.

const SVG = 'http://www.w3.org/2000/svg';
const EVENTS = ['click', 'submit', 'change', 'input', 'toggle'];

function make(node, props, children) {
    for (const [name, value] of Object.entries(props || {})) {
        if (value === null || value === undefined || value === false)
            continue;
        if (typeof value === 'function')
            (node.handlers ??= {})[name.slice(2)] = value;
        else
            node.setAttribute(name, value === true ? '' : String(value));
    }
    append(node, children);
    return node;
}

function append(node, children) {
    for (const child of children.flat(Infinity)) {
        if (child === null || child === undefined || child === false)
            continue;
        node.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
    }
}

// Characters that would reorder or hide what stands beside them are shown as their numbers, as JSON writes them; but not the joiners
// and variation selectors that scripts and emoji need.
export const HIDDEN = /(?![\t\n\r\u200c\u200d\p{VS}])[\p{Cc}\p{DI}\p{Bidi_C}\u2028\u2029\ufff9-\ufffb]/gu;
export function visible(text) {
    return text.replace(HIDDEN, c => c.replace(/[^]/g, half => '\\u' + half.charCodeAt(0).toString(16).padStart(4, '0')));
}

export const h = (tag, props, ...children) => make(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => make(document.createElementNS(SVG, tag), props, children);

// One listener for each kind of event; the handlers are the nodes' own and survive an update.
for (const kind of EVENTS)
    document.addEventListener(kind, event => {
        for (let n = event.target; n instanceof Element; n = n.parentNode)
            if (n.handlers?.[kind]) {
                if (kind === 'submit')
                    event.preventDefault();
                n.handlers[kind].call(n, event);
                return;
            }
    }, kind === 'toggle');

function same(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.id === b.id &&
        (a.nodeType !== Node.ELEMENT_NODE || a.getAttribute('data-key') === b.getAttribute('data-key'));
}

function syncAttributes(old, wanted) {
    for (const { name } of [...old.attributes])
        if (!wanted.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS'))
            old.removeAttribute(name);
    for (const { name, value } of [...wanted.attributes])
        if (old.getAttribute(name) !== value)
            old.setAttribute(name, value);
}

function patch(old, wanted) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
        if (old.nodeValue !== wanted.nodeValue)
            old.nodeValue = wanted.nodeValue;
        return;
    }
    syncAttributes(old, wanted);
    old.handlers = wanted.handlers;
    if (old.hasAttribute('data-own')) // it keeps its own content
        return;
    fill(old, [...wanted.childNodes]);
}

// Makes the children of a node those that are wanted, and keeps what is there already: focus, selection, open details
// and a reader's place stay.
export function fill(node, ...children) {
    const wanted = [];
    for (const child of children.flat(Infinity))
        if (child !== null && child !== undefined && child !== false)
            wanted.push(child instanceof Node ? child : document.createTextNode(visible(String(child))));
    let at = node.firstChild;
    for (const w of wanted) {
        if (at && same(at, w)) {
            const next = at.nextSibling;
            if (at !== w)
                patch(at, w);
            at = next;
        } else if (at && at.nextSibling && same(at.nextSibling, w)) {
            const gone = at;
            at = at.nextSibling;
            gone.remove();
            const next = at.nextSibling;
            patch(at, w);
            at = next;
        } else {
            node.insertBefore(w, at);
        }
    }
    while (at) {
        const next = at.nextSibling;
        at.remove();
        at = next;
    }
}

let spoken;
export function say(text) {
    clearTimeout(spoken);
    const region = document.getElementById('say');
    region.textContent = '';
    spoken = setTimeout(() => { region.textContent = visible(text); }, 60);
}

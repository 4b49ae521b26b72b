// What a message carries: its body as JSON, text or hexadecimal digits (which, the address says), headers and properties.
import { textOf } from './api.js';
import { h } from './dom.js';
import { card, facts, name, route } from './parts.js';
import { bytes } from './words.js';

const SHOWN = 64 * 1024, ROWS = 1024;

function raw(m) {
    if (m.body_base64 !== undefined)
        return Uint8Array.from(atob(m.body_base64), c => c.charCodeAt(0));
    return new TextEncoder().encode(m.body ?? '');
}

// Indented, with the numbers and the order of keys as they were sent: text in, text out. Each character is looked at once, and
// no more is made than is shown: the text is a stranger's.
export function pretty(text, most = Infinity) {
    JSON.parse(text);
    const out = [];
    let size = 0, depth = 0, inString = false, opened = false;
    const put = part => {
        out.push(part);
        size += part.length;
    };
    const line = () => put('\n' + '  '.repeat(Math.min(depth, 60)));
    for (let i = 0; i < text.length && size <= most; i++) {
        const c = text[i], closes = c === '}' || c === ']';
        if (inString) {
            put(c === '\\' ? c + text[++i] : c);
            inString = c !== '"';
        } else if (c > ' ') {
            depth -= closes ? 1 : 0;
            if (closes !== opened)
                line();
            opened = c === '{' || c === '[';
            depth += opened ? 1 : 0;
            put(c === ':' ? ': ' : c);
            if (c === ',')
                line();
            inString = c === '"';
        }
    }
    return out.join('');
}

// The members of an object as [name, value as it is written], text in, text out.
export function members(text) {
    const out = [];
    let depth = 0, name = null, begin = 0;
    for (let i = 0; i < text.length; i++) {
        const c = text[i];
        if (c === '"') {
            const from = i++;
            while (text[i] !== '"')
                i += text[i] === '\\' ? 2 : 1;
            name ??= JSON.parse(text.slice(from, i + 1));
        } else if (c === ':' && depth === 1) {
            begin = i + 1;
        } else if (c === '{' || c === '[') {
            depth++;
        } else if (c === '}' || c === ']' || c === ',') {
            depth -= c === ',' ? 0 : 1;
            if (name !== null && depth === (c === ',' ? 1 : 0)) {
                out.push([name, text.slice(begin, i).trim()]);
                name = null;
            }
        }
    }
    return out;
}

export function hex(data) {
    const rows = [];
    for (let at = 0; at < data.length && rows.length < ROWS; at += 16) {
        const part = [...data.subarray(at, at + 16)];
        rows.push(`${at.toString(16).padStart(8, '0')}  ${part.map(b => b.toString(16).padStart(2, '0')).join(' ').padEnd(47)}  ${part.map(b => b > 31 && b < 127 ? String.fromCharCode(b) : '·').join('')}`);
    }
    return rows.join('\n');
}

function asJson(text) {
    try {
        return text.length <= SHOWN * 4 ? pretty(text, SHOWN) : null;
    } catch {
        return null;
    }
}

// A page is drawn again every few seconds, and its body does not change.
const last = {};
function read(m) {
    const text = m.body ?? m.body_base64, coded = m.body === undefined;
    if (last.text !== text || last.coded !== coded)
        Object.assign(last, { text, coded, data: raw(m), json: coded ? null : asJson(text) });
    return last;
}

function bodyView(m, at) {
    if (m.body === null || (m.body === undefined && m.body_base64 === undefined))
        return h('section', { class: 'card' }, h('h2', null, 'Body'), h('p', { class: 'faint' }, 'It was erased when the message was cancelled or replaced.'));
    const { data, json } = read(m);
    const ways = [json !== null && 'json', m.body !== undefined && 'text', 'hex'].filter(Boolean);
    const way = ways.includes(at.params.view) ? at.params.view : ways[0];
    const text = way === 'json' ? json : way === 'text' ? m.body : hex(data);
    const cut = way === 'hex' ? data.length > ROWS * 16 : text.length > SHOWN;
    return h('section', { class: 'card' }, h('h2', null, 'Body'),
        h('p', { class: 'tabs' }, ways.map(w => h('a', { href: route([at.section, at.name], { ...at.params, view: w }), 'aria-current': w === way ? 'true' : null }, { json: 'JSON', text: 'Text', hex: 'Hex' }[w])),
            h('span', { class: 'faint' }, ` ${bytes(data.length)}${cut ? ', of which the beginning is shown' : ''}`)),
        data.length === 0 ? h('p', { class: 'faint' }, 'It is empty.')
            : h('pre', { class: `body ${way}`, tabindex: '0', 'aria-label': `Body as ${way}` }, way === 'hex' ? text : text.slice(0, SHOWN)));
}

const pairs = (title, text) => text?.startsWith('{') && text !== '{}' && card(title, facts(members(text).map(([k, v]) =>
    [h('bdi', { class: 'name' }, k), name(v.startsWith('"') ? JSON.parse(v) : v)])));

// All that a message carries.
export function contentView(m, at) {
    const parts = new Map(members(textOf(m)));
    return [bodyView(m, at), pairs('Headers', parts.get('headers')), pairs('Properties', parts.get('properties'))];
}

// Times, numbers and command lines as people read them.
import { HIDDEN } from './dom.js';

let zone = 'local';
try {
    zone = localStorage.getItem('postdate.zone') === 'utc' ? 'utc' : 'local';
} catch {
    // storage is closed
}
export const inUtc = () => zone === 'utc';
export function setUtc(yes) {
    zone = yes ? 'utc' : 'local';
    try {
        localStorage.setItem('postdate.zone', zone);
    } catch {
        // it holds for this visit
    }
}

export const zoneName = () => Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time';
const two = n => String(n).padStart(2, '0');

export function stamp(at, utc = inUtc(), ms = false) {
    const d = at instanceof Date ? at : new Date(at);
    if (Number.isNaN(d.getTime()))
        return String(at);
    const [y, mo, day, hh, mi, s] = utc
        ? [d.getUTCFullYear(), d.getUTCMonth(), d.getUTCDate(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds()]
        : [d.getFullYear(), d.getMonth(), d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds()];
    const fraction = ms ? '.' + String(d.getMilliseconds()).padStart(3, '0') : '';
    return `${y}-${two(mo + 1)}-${two(day)} ${two(hh)}:${two(mi)}:${two(s)}${fraction}${utc ? ' UTC' : ''}`;
}

// In a zone of PostgreSQL's; null where this browser does not know it.
export function stampIn(zone, at) {
    try {
        return new Intl.DateTimeFormat('sv', { timeZone: zone, dateStyle: 'short', timeStyle: 'medium' }).format(new Date(at));
    } catch {
        return null;
    }
}

export function clock(at, withDay, utc = inUtc()) {
    const text = stamp(at, utc);
    return withDay ? text.slice(5, 16) : text.slice(11, 16);
}

const UNITS = [[86400e3, 'd'], [3600e3, 'h'], [60e3, 'min'], [1e3, 's']];
export function span(ms) {
    const all = Math.abs(ms);
    if (all < 1000)
        return all < 10 && all > 0 ? `${Math.round(all * 10) / 10} ms` : `${Math.round(all)} ms`;
    const i = UNITS.findIndex(([size]) => all >= size);
    const [size, unit] = UNITS[i], whole = Math.floor(all / size);
    const next = UNITS[i + 1], rest = next ? Math.floor((all - whole * size) / next[0]) : 0;
    return rest > 0 && whole < 10 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

export function ago(at, now = Date.now()) {
    const ms = new Date(at).getTime() - now;
    if (Number.isNaN(ms))
        return '';
    if (Math.abs(ms) < 1000)
        return 'now';
    return ms > 0 ? `in ${span(ms)}` : `${span(ms)} ago`;
}

const plain = new Intl.NumberFormat('en');
export const number = n => n === null || n === undefined ? '–' : plain.format(n);
export const CAP = 1_000_000;
// The gateway counts up to a million; least: it says that it stopped before the end.
export const counted = (n, least = false) => n >= CAP ? `${plain.format(CAP)}+` : least ? `${number(n)}+` : number(n);
export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;
export const share = x => x === null || x === undefined ? '–' : `${(x * 100).toFixed(x >= 0.9995 && x < 1 ? 3 : 2)} %`;

export function bytes(n) {
    if (n < 1024)
        return plural(n, 'byte');
    return n < 1024 * 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1024 / 1024).toFixed(1)} MiB`;
}

// --- command lines that can be pasted into a shell: none has a character that the page would show as its number
const UNSHOWN = new RegExp(`${HIDDEN.source}|[\\t\\n\\r]`, 'gu');
const escaped = c => {
    const digits = c.codePointAt(0).toString(16);
    return digits.length > 4 ? '\\U' + digits.padStart(8, '0') : '\\u' + digits.padStart(4, '0');
};
export function quote(word) {
    const text = String(word);
    if (/^[\w@%+=:,./-]+$/.test(text))
        return text;
    if (text.search(UNSHOWN) < 0)
        return `'${text.replaceAll('\'', '\'\\\'\'')}'`;
    return `$'${text.replace(/['\\]/g, '\\$&').replace(UNSHOWN, escaped)}'`;
}

export function command(...words) {
    const out = [];
    for (const w of words.flat(Infinity))
        if (w !== null && w !== undefined && w !== false)
            out.push(quote(w));
    return out.join(' ');
}

// --- durations as the gateway reads them: 250ms 90s 15m 36h 30d
const MS = { ms: 1, s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 };
export function parseSpan(text) {
    const parts = [...text.trim().matchAll(/(\d+)\s*(ms|[smhd])/g)];
    if (!parts.length || parts.map(p => p[0]).join('') !== text.trim().replaceAll(/\s+(?=\d)/g, ''))
        return null;
    return parts.reduce((sum, [, n, unit]) => sum + Number(n) * MS[unit], 0);
}

// A time with an offset, or a duration from now; null: neither.
export const newTime = text => parseSpan(text) !== null ? { delay_ms: parseSpan(text) }
    : /[zZ]|[+-]\d\d:\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) ? { due_at: text } : null;

// What several pages show in the same way.
import { h } from './dom.js';
import { ago, inUtc, stamp } from './words.js';

export const time = at => at ? h('time', { datetime: at, title: stamp(at, !inUtc(), true) }, stamp(at), ' ', h('span', { class: 'faint' }, ago(at))) : '–';

export const bothTimes = at => at ? h('span', null, h('time', { datetime: at }, stamp(at, inUtc(), true)), ' ',
    h('span', { class: 'faint' }, `${ago(at)} · ${stamp(at, !inUtc(), true)}${inUtc() ? ' here' : ''}`)) : '–';

const TONES = { scheduled: 'calm', claimed: 'busy', handed: 'calm', delivered: 'good', cancelled: 'off', superseded: 'off', failed: 'bad',
    expired: 'bad', dead: 'bad', waiting: 'busy', returned: 'good', up: 'good', away: 'bad', blocked: 'bad', paused: 'off', active: 'good',
    alive: 'good', gone: 'bad', ok: 'good', fail: 'bad', warn: 'busy', ended: 'off' };
export const chip = (state, tone) => h('span', { class: `chip ${tone || TONES[state] || 'off'}` }, state);

// Names may be empty, hostile or very long: text in a frame that shows where it begins and ends.
export const name = (text, none = '–') => text === null || text === undefined ? none
    : text === '' ? h('span', { class: 'faint' }, '(empty)') : h('bdi', { class: 'name' }, text);
export const exchangeName = text => text === '' ? h('span', { class: 'faint' }, '(default exchange)') : name(text);

export const facts = rows => h('dl', { class: 'facts' }, rows.filter(Boolean).map(([term, value]) => h('div', null, h('dt', null, term), h('dd', null, value))));

export const empty = (title, ...more) => h('div', { class: 'empty' }, h('p', { class: 'strong' }, title), more.map(m => h('p', null, m)));
export const notOffered = what => h('div', { class: 'empty', 'data-absent': 'yes' }, h('p', { class: 'strong' }, 'This gateway does not support it'),
    h('p', null, `${what} Another version of the gateway may.`));

export const card = (title, ...content) => h('section', { class: 'card' }, h('h2', null, title), content);

// columns: [title, row → content, class]. On a narrow screen each row becomes a block whose cells say their titles.
const MANY = 7;
export function table(caption, columns, rows, key) {
    return h('div', { class: columns.length >= MANY ? 'table many' : 'table' }, h('table', null, h('caption', { class: 'unseen' }, caption),
        h('thead', null, h('tr', null, columns.map(([title, , look]) => h('th', { scope: 'col', class: look }, title)))),
        h('tbody', null, rows.map(row => h('tr', { 'data-key': key ? key(row) : null }, columns.map(([title, cell, look]) =>
            h('td', { 'data-title': title, class: look }, cell(row))))))));
}

export const route = (path, params = {}) => {
    const q = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== null && v !== undefined && v !== '')).toString();
    return '#/' + path.map(encodeURIComponent).join('/') + (q ? '?' + q : '');
};

// In addresses and filters, "" stands for the empty name, which the default exchange has; nothing at all is any.
const NO_NAME = '""';
export const readName = text => text === NO_NAME ? '' : text;
export const showName = text => text === '' ? NO_NAME : text;

// A form of filters whose values are those of the address; sending it changes the address.
export function filterForm(path, fields, params, extra) {
    const submit = e => {
        const next = {};
        for (const f of fields) {
            const value = e.target.closest('form').elements[f.name].value;
            if (value !== '')
                next[f.name] = f.read ? f.read(value) : value;
        }
        location.hash = route(path, next);
    };
    return h('form', { class: 'filters', onsubmit: submit, role: 'search', 'aria-label': 'Filter' },
        fields.map(f => {
            const id = 'filter-' + f.name, value = f.show ? f.show(params[f.name]) ?? '' : params[f.name] ?? '';
            return h('div', { class: 'field' }, h('label', { for: id }, f.label),
                f.choices ? h('select', { id, name: f.name }, f.choices.map(([v, text]) => h('option', { value: v, selected: v === value }, text)))
                    : h('input', { id, name: f.name, type: f.type || 'text', step: f.type === 'datetime-local' ? 1 : null, value, spellcheck: 'false', autocomplete: 'off', maxlength: f.type ? null : 255, placeholder: f.hint }));
        }),
        h('div', { class: 'buttons' }, h('button', { class: 'primary' }, 'Find'),
            Object.keys(params).length > 0 && h('a', { class: 'button quiet', href: route(path) }, 'Clear'), extra));
}

export function pager(path, params, page, token) {
    return h('nav', { class: 'pager', 'aria-label': 'Pages of the list' },
        params.page_token && h('a', { class: 'button', href: route(path, { ...params, page_token: '' }) }, 'First page'),
        token && h('a', { class: 'button', rel: 'next', href: route(path, { ...params, page_token: token }) }, 'Next page'),
        h('span', { class: 'faint' }, token ? `${page} on this page, and more` : `${page} on this page, which is the last`));
}

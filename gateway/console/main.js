// The shell: which page the address names, how it is loaded, kept fresh and replaced, and who is signed in.
import { access, events, get, hasToken, offered, Problem, setToken } from './api.js';
import { fill, h, say, visible } from './dom.js';
import { inUtc, setUtc, span, stamp, zoneName } from './words.js';
import { overview } from './overview.js';
import { message, messages } from './messages.js';
import { dead, deadLetter, deadList } from './dead.js';
import { recurring, recurringOne } from './recurring.js';
import { exchanges } from './exchanges.js';
import { gateways, settings } from './gateways.js';

const PAGES = [
    ['', overview], ['messages', messages], ['messages/*', message], ['dead', dead], ['dead/list', deadList],
    ['dead/*', deadLetter], ['recurring', recurring], ['recurring/*', recurringOne], ['exchanges', exchanges],
    ['gateways', gateways], ['settings', settings],
];
const LINKS = [['', 'Overview'], ['messages', 'Messages'], ['dead', 'Dead letters'], ['recurring', 'Recurring'],
    ['exchanges', 'Exchanges and policies'], ['gateways', 'Gateways and servers'], ['settings', 'Settings']];
const SLOWEST = 30_000;

const main = document.getElementById('main');
let current = null; // what is shown: its page, parameters, timer, data

// --- addresses
function readAddress() {
    const [path, search = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
    let parts;
    try {
        parts = path.split('/').map(decodeURIComponent);
    } catch {
        parts = ['?'];
    }
    const params = Object.fromEntries(new URLSearchParams(search));
    for (const [pattern, page] of PAGES) {
        const wanted = pattern.split('/');
        if (wanted.length === parts.length && wanted.every((w, i) => w === parts[i] || (w === '*' && parts[i])))
            return { page, params, name: wanted.includes('*') ? parts[wanted.indexOf('*')] : null, section: wanted[0] };
    }
    return { page: null, params, section: null };
}

function showLinks(section) {
    fill(document.getElementById('nav'), h('ul', null, LINKS.map(([path, text]) =>
        h('li', null, h('a', { href: '#/' + path, 'aria-current': path === section ? 'page' : null }, text)))));
}

// --- the state of the connection, at the top
function showTools(text = '', bad = false) {
    fill(document.getElementById('tools'),
        h('span', { class: bad ? 'pulse bad' : 'pulse', id: 'pulse' }, text),
        h('button', { type: 'button', class: 'quiet', id: 'zone', onclick: switchZone,
            title: `Times are shown in ${inUtc() ? 'UTC' : zoneName()}` }, `Times: ${inUtc() ? 'UTC' : 'here'}`),
        h('button', { type: 'button', class: 'quiet', id: 'theme', onclick: switchTheme, title: 'Theme: as the system, light or dark' },
            `Theme: ${document.documentElement.dataset.theme || 'auto'}`),
        hasToken() && h('button', { type: 'button', class: 'quiet', id: 'leave', onclick: signOut }, 'Sign out'));
}

function switchZone() {
    setUtc(!inUtc());
    say(`Times are shown in ${inUtc() ? 'UTC' : zoneName()}`);
    repaint();
}

function switchTheme() {
    const order = ['', 'light', 'dark'], root = document.documentElement;
    const next = order[(order.indexOf(root.dataset.theme || '') + 1) % 3];
    if (next)
        root.dataset.theme = next;
    else
        delete root.dataset.theme;
    try {
        localStorage.setItem('postdate.theme', next);
    } catch {
        // it holds for this visit
    }
    say(`Theme: ${next || 'as the system'}`);
    repaint();
}

// --- signing in
function signOut() {
    setToken('');
    Object.assign(access, { role: null, exchanges: null, name: null });
    askForToken(false);
}

function askForToken(wrong) {
    leave();
    showTools();
    document.title = 'Sign in · Postdate';
    document.body.dataset.started = 'yes'; // the heading of what follows gets the focus
    main.replaceChildren(h('section', { class: 'card narrow' },
        h('h1', { tabindex: '-1' }, 'Sign in'),
        wrong && h('p', { class: 'notice bad', role: 'alert' }, 'The gateway does not accept this token. It may have been revoked.'),
        h('p', null, 'This gateway requires a token. The page keeps it in memory only: after a reload, enter it again.'),
        h('form', { onsubmit: signIn, class: 'stack' },
            h('label', { for: 'token' }, 'Token'),
            h('input', { id: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true, placeholder: 'pdt_…' }),
            h('div', { class: 'buttons' }, h('button', { class: 'primary' }, 'Sign in'))),
        h('p', { class: 'faint' }, 'A new one: ', h('code', null, 'postdate token create --exchange \'*\' --name console'))));
    document.getElementById('token').focus();
}

async function signIn() {
    setToken(document.getElementById('token').value.trim());
    try {
        await who();
        await go();
    } catch (e) {
        if (e.status !== 401)
            showFailure(e);
    }
}

// Which role the token has, where the gateway says so.
async function who() {
    const answer = await offered('v1/whoami');
    Object.assign(access, { role: answer?.role ?? null, exchanges: answer?.exchanges ?? null, name: answer?.name ?? null });
    if (answer === null)
        await get('v1/stats');
}

events.addEventListener('unauthorized', e => askForToken(e.detail));

// --- one page after the other
function leave() {
    clearTimeout(current?.timer);
    current?.abort.abort();
    current = null;
}

async function go() {
    const address = readAddress(), samePage = current?.page === address.page && address.page !== null;
    leave();
    showLinks(address.section);
    document.getElementById('nav').classList.remove('open');
    document.getElementById('menu').setAttribute('aria-expanded', 'false');
    if (!address.page) {
        main.replaceChildren(h('h1', { tabindex: '-1' }, 'There is no such page'), h('p', null, h('a', { href: '#/' }, 'Overview')));
        main.firstChild.focus();
        return;
    }
    const mine = current = { ...address, abort: new AbortController(), failures: 0, data: null, at: 0, samePage, fresh: true };
    document.title = `${visible(address.page.title(address))} · Postdate`;
    // Nothing flashes by: the page before stays for a moment, then a word that says what happens.
    const slow = setTimeout(() => mine === current && mine.fresh && main.replaceChildren(
        h('h1', { tabindex: '-1' }, address.page.title(address)), h('p', { class: 'loading', role: 'status' }, 'Loading …')), 250);
    await load(mine);
    clearTimeout(slow);
}

async function load(mine) {
    try {
        const data = await mine.page.load(mine, mine.abort.signal);
        if (mine !== current)
            return;
        Object.assign(mine, { data, at: Date.now(), failures: 0, error: null });
    } catch (e) {
        if (mine !== current || e.name === 'AbortError' || e.status === 401)
            return;
        if (!(e instanceof Problem))
            throw e;
        mine.failures++;
        if (e.status === 404) // it is gone: what was known of it is no use
            mine.data = null;
        mine.error = e;
        if (mine.failures === 1 && !mine.fresh)
            say(e.message);
    }
    show(mine);
    next(mine);
}

function show(mine) {
    if (mine.data === null) {
        showFailure(mine.error);
    } else {
        const content = [h('h1', { tabindex: '-1' }, mine.page.title(mine)),
            mine.error && h('p', { class: 'notice bad', id: 'stale' }, `${mine.error.message} The data below is from ${stamp(mine.at)}.`),
            mine.page.view(mine.data, mine)];
        if (mine.fresh)
            main.replaceChildren();
        fill(main, ...content);
    }
    if (mine.fresh && document.body.dataset.started)
        (mine.samePage && document.getElementById('results') || main.querySelector('h1'))?.focus();
    document.body.dataset.started = 'yes';
    mine.fresh = false;
    mine.page.after?.(mine);
    const wait = delay(mine);
    showTools(mine.error ? `No answer; again in ${span(wait)}` : wait ? `Live · ${stamp(mine.at).slice(11)}` : `As of ${stamp(mine.at).slice(11)}`, !!mine.error);
}

function showFailure(error) {
    fill(main, h('h1', { tabindex: '-1' }, current?.page?.title(current) || 'Postdate'),
        h('section', { class: 'card notice bad', role: 'alert' },
            h('h2', null, error.status === 404 ? 'Not found' : error.title), h('p', null, error.message),
            error.status === 0 && h('p', null, 'Is the gateway running? This page tries again by itself. Meanwhile, on its machine: ',
                h('code', null, 'postdate status')),
            error.status === 503 && h('p', null, 'Its log and ', h('code', null, 'postdate doctor'), ' have more.'),
            h('button', { type: 'button', onclick: () => location.reload() }, 'Reload')));
}

const delay = mine => {
    const every = mine.data?.searched_until ? 0 : mine.page.every; // such a search costs something
    if (!mine.failures)
        return every;
    return Math.max((mine.error.retryAfter || 0) * 1000, Math.min(SLOWEST, 1000 * 2 ** mine.failures));
};

function next(mine) {
    clearTimeout(mine.timer);
    const wait = delay(mine);
    if (wait && !document.hidden && !document.querySelector('dialog[open]'))
        mine.timer = setTimeout(() => mine === current && load(mine), wait);
}

// A hidden page asks nothing; a dialog is not disturbed.
function wake() {
    if (current && !document.hidden)
        load(current);
}
document.addEventListener('visibilitychange', () => document.hidden ? clearTimeout(current?.timer) : wake());
window.addEventListener('online', wake);
events.addEventListener('changed', wake);

function repaint() {
    if (current?.data)
        show(current);
    else
        showTools();
}
let width = innerWidth;
window.addEventListener('resize', () => {
    if (width !== innerWidth && current?.data)
        current.page.after?.(current);
    width = innerWidth;
});

// --- start
const menu = document.getElementById('menu');
menu.hidden = false;
menu.addEventListener('click', () => {
    const open = document.getElementById('nav').classList.toggle('open');
    menu.setAttribute('aria-expanded', String(open));
});
document.querySelector('.skip').addEventListener('click', e => {
    e.preventDefault();
    main.focus();
});
window.addEventListener('hashchange', () => {
    for (const dialog of document.querySelectorAll('dialog'))
        dialog.close(); // it is about the page before
    return access.needed && !hasToken() ? askForToken(false) : go();
});
showLinks(readAddress().section);
showTools();
who().then(go).catch(e => {
    if (e.status === 401)
        return;
    if (!(e instanceof Problem))
        throw e;
    go(); // it shows what is wrong and tries again
});

// The overview: is anything wrong, what is due soon, and is the promise of punctuality kept.
import { get } from './api.js';
import { commandLine } from './act.js';
import { bars, legend, meter } from './chart.js';
import { h } from './dom.js';
import { findings, forecastOf, HORIZONS, overviewOf, sloOf } from './figures.js';
import { card, chip, exchangeName, facts, name, notOffered, route, table } from './parts.js';
import { ago, counted, number, plural, share, span, stamp } from './words.js';

// Nothing is wrong only where everything could be seen.
const unseen = stats => stats.overdue === null ? 'Overdue and failed messages are being counted.'
    : 'Overdue and failed messages and problems cover all exchanges; this token sees only its own.';
export const seesAll = (stats, more) => !!stats.overdue && !more?.refused;
export const findingList = (list, stats, more) => list.length ? h('ul', { class: 'findings' }, list.map(f => h('li', { class: f.bad ? 'finding bad' : 'finding warn', 'data-key': f.id },
    h('p', { class: 'strong' }, f.text), f.remedy && h('p', null, f.remedy, f.see && [' ', h('a', { href: route(['messages'], { state: f.see.state }) }, f.see.text)]), f.line && commandLine(Array.isArray(f.line) ? f.line : { text: f.line }))))
    : seesAll(stats, more) ? h('p', { class: 'finding good' }, h('span', { class: 'strong' }, 'Nothing is wrong.'), ' Database, RabbitMQ and gateways answer, and nothing is overdue.')
    : h('p', { class: 'finding' }, h('span', { class: 'strong' }, 'Database and RabbitMQ answer.'), ' ', unseen(stats));

const tile = (label, value, note, href) => h(href ? 'a' : 'div', { class: 'tile', href }, h('span', { class: 'tile-label' }, label), h('span', { class: 'tile-value' }, value), note && h('span', { class: 'faint' }, note));

const lateTile = (p, stats) => tile(`late, ${p}`, stats.lateness_ms?.[p] === null || stats.lateness_ms?.[p] === undefined ? '–' : span(stats.lateness_ms[p]), 'this gateway');

// Which windows say that somebody should look: a month's budget gone within two days, or five.
const BURNS = { '1h': 14.4, '6h': 6 };

// least: so many deliveries are needed to judge, and there are fewer.
function budgetTile(left, least, slo) {
    const since = slo.since ? `since ${stamp(slo.since).slice(0, 10)}` : 'nothing delivered yet';
    if (least)
        return tile('budget left', '–', `evaluated from ${number(least)} deliveries on`);
    if (left > 0)
        return tile('budget left', share(left), since);
    return tile('budget left', h('span', { class: 'bad-text' }, 'used up'), left < -1 ? `${number(Math.round(1 - left))} times over, ${since}` : since);
}

function sloCard(slo, stats) {
    const figures = h('div', { class: 'tiles small' }, ['p50', 'p90', 'p99'].map(p => lateTile(p, stats)));
    if (!slo || slo.refused)
        return card('Punctuality', figures, slo ? h('p', { class: 'faint' }, slo.refused) : notOffered('An objective for lateness is not part of this version.'));
    const { objective, window, after_retry: again, burn } = slo, some = window.delivered > 0, left = window.budget_left;
    // With fewer deliveries one late message would spend all of it.
    const least = Math.round(1 / (1 - objective.target)), few = window.delivered < least;
    const hot = burn.filter(b => BURNS[b.window] && b.rate > BURNS[b.window] && b.delivered >= least);
    return card('Punctuality', h('p', null, `The objective: ${share(objective.target)} of all deliveries at most ${span(objective.late_ms)} late, over ${span(objective.window_ms)}.`),
        h('div', { class: 'tiles small' }, tile('kept', h('span', { class: few ? null : window.share >= objective.target ? 'good-text' : 'bad-text' }, some ? share(window.share) : '–'), `${plural(window.delivered, 'delivery', 'deliveries')}, ${number(window.late)} late`),
            budgetTile(left, few && least, slo), lateTile('p99', stats)),
        !few && meter(Math.max(left, 0), `Budget left: ${share(Math.max(left, 0))}`, left > 0.25 ? 0 : 4),
        hot.length > 0 && h('p', { class: 'notice bad' }, `The budget is used ${hot.map(b => `${number(Math.round(b.rate))} times as fast as allowed over ${b.window}`).join(', ')}.`),
        h('details', { id: 'slo-more' }, h('summary', null, 'How fast the budget is used'), table('Burn rate', [['Over', b => b.window], ['Deliveries', b => number(b.delivered), 'figure'], ['Late', b => number(b.late), 'figure'], ['Times as allowed', b => b.rate.toFixed(2), 'figure']], burn, b => b.window),
            h('p', { class: 'faint' }, `After a retry or recovery: ${plural(again.delivered, 'delivery', 'deliveries')}, ${number(again.late)} late since they were due, ${number(again.late_since_attempt)} since the last attempt.`)));
}

function forecastCard(forecast, horizon) {
    const choice = h('p', { class: 'tabs' }, Object.keys(HORIZONS).map(x => h('a', { href: route([''], x === '6h' ? {} : { ahead: x }), 'aria-current': x === horizon ? 'true' : null }, x)));
    if (forecast?.refused)
        return card('What is due', h('p', { class: 'faint' }, forecast.refused));
    if (!forecast)
        return card('What is due', notOffered('A forecast of what is due is not part of this version. The list of messages is in due order.'));
    const all = forecast.rows.reduce((sum, r) => sum + r.count, 0);
    return card('What is due', choice,
        all === 0 ? h('p', { class: 'faint' }, `Nothing is due in the next ${horizon}.`) : h('div', { id: 'due-curve', class: 'chart', 'data-own': 'yes' }), h('div', { id: 'due-legend', 'data-own': 'yes' }),
        h('p', null, `${plural(all, 'message')} in the next ${horizon}${forecast.answer.as_of ? `, counted ${ago(forecast.answer.as_of)}` : ''}.`, forecast.bursts.length > 0 && ` ${plural(forecast.bursts.length, 'burst')}: `,
            forecast.bursts.slice(0, 3).map((b, i) => [i > 0 && '; ', `${number(b.count)} at ${stamp(b.at).slice(5, 19)}${b.drain ? `, drained in ${span(b.drain)}` : ''}`])),
        all > 0 && h('details', { id: 'due-table' }, h('summary', null, 'The same as a table'), table('What is due', [['From', r => stamp(r.at)], ['Messages', r => number(r.count), 'figure'],
            ['By exchange', r => r.parts.filter(p => p.count).map((p, i) => [i > 0 && ', ', exchangeName(p.name), ` ${number(p.count)}`])], ['Burst', r => r.mark || '–']], forecast.rows.filter(r => r.count > 0))));
}

const WAITING = ['scheduled', 'handed', 'claimed'], ENDED = ['delivered', 'failed', 'expired', 'cancelled', 'superseded'];
const inPart = (stats, states) => states.some(s => stats.counted_only_in_part?.includes(s));
const countOf = (stats, s) => counted(stats.messages[s], inPart(stats, [s]));
function statesCard(stats) {
    if (!stats.messages)
        return card('Messages by state', h('p', { class: 'faint' }, stats.messages === null ? 'They are being counted.' : 'Counts cover all exchanges; this token sees only its own.'));
    const most = Math.max(1, ...Object.values(stats.messages));
    const row = s => h('tr', { 'data-key': s }, h('th', { scope: 'row' }, h('a', { href: route(['messages'], { state: s }) }, s)), h('td', { class: 'figure' }, countOf(stats, s)),
        h('td', { class: 'fill' }, meter(stats.messages[s] / most, `${s}: ${countOf(stats, s)}`, { failed: 4, expired: 4, delivered: 2, cancelled: 5, superseded: 5 }[s] || 0)));
    return card('Messages by state', h('table', { class: 'states' }, h('caption', { class: 'unseen' }, 'Messages by state'), h('tbody', null, [...WAITING, ...ENDED].filter(s => s in stats.messages).map(row))),
        h('p', { class: 'faint' }, `Counted ${ago(Date.now() - (stats.counted_ms_ago || 0))}, each up to a million.`));
}

// What somebody has paused, and what waits behind something that is not done.
const heldCard = held => held && held.schedules_paused + held.schedules_behind + held.rates_paused > 0 && card('Held back', facts([
    held.schedules_behind > 0 && ['Schedules that leave out occurrences', [h('a', { href: '#/recurring' }, counted(held.schedules_behind)), `, ${plural(held.occurrences_left_out, 'occurrence')}; the first: `, name(held.first_behind)]],
    held.schedules_paused > 0 && ['Paused schedules', [h('a', { href: '#/recurring' }, number(held.schedules_paused)), ', the first: ', name(held.first_paused)]],
    held.rates_paused > 0 && ['Paused rates', [h('a', { href: '#/exchanges' }, number(held.rates_paused)), `, for which ${plural(held.messages_waiting, 'message')} wait; the first: `, exchangeName(held.first_rate)]]]));

const serversCard = stats => card('Servers', facts([['PostgreSQL', chip(stats.database)], ['RabbitMQ', chip(stats.broker)],
    stats.gateways !== undefined && ['Gateways', [number(stats.gateways), ' ', h('a', { href: '#/gateways' }, 'show')]], ['Transport', stats.transport],
    ['Window', [span(stats.window.length_ms), stats.window.messages !== null && `, ${number(stats.window.messages)} of ${number(stats.window.max_messages)} messages in RabbitMQ`]]]));

export const overview = {
    title: () => 'Overview',
    every: 2000,
    load: async (at, signal) => {
        const horizon = Object.hasOwn(HORIZONS, at.params.ahead || '') ? at.params.ahead : '6h', kept = at.kept?.horizon === horizon && Date.now() - at.kept.at < 15_000 ? at.kept : null;
        const [stats, slo, more, forecast] = await Promise.all([get('v1/stats', { signal }), sloOf(signal), overviewOf(signal), kept ? kept.forecast : forecastOf(horizon, signal)]);
        at.kept = kept || { horizon, forecast, at: Date.now() };
        // Figures are of all exchanges; of its own, a token sees what comes next.
        const own = stats.messages === undefined ? (await get('v1/messages?state=waiting&page_size=1', { signal })).messages[0] : null;
        return { stats, slo, more, forecast, horizon, own };
    },
    view: ({ stats, slo, more, forecast, horizon, own }) => {
        const next = own === null ? stats.next_due_at : own?.due_at, found = findings(stats, more), waiting = stats.messages ? WAITING.reduce((sum, s) => sum + stats.messages[s], 0) : null;
        return [h('section', { 'aria-label': 'Health', class: 'health' }, findingList(found, stats, more)),
            h('div', { class: 'tiles' }, tile('Waiting', stats.messages ? counted(waiting, inPart(stats, WAITING)) : '–', 'scheduled, in RabbitMQ or being delivered', '#/messages'),
                tile('Next due', next ? ago(next) : '–', next ? stamp(next) : 'nothing waits', '#/messages'),
                tile('Overdue', stats.overdue ? number(stats.overdue.count) : '–', 'by more than a second'),
                tile('Retrying', stats.retrying === null || stats.retrying === undefined ? '–' : counted(stats.retrying), 'not delivered or in doubt, and tried again', '#/messages?state=retrying'),
                tile('Failed', stats.messages ? countOf(stats, 'failed') : '–', 'could not be delivered', '#/messages?state=failed')),
            h('div', { class: 'columns wide-first' }, forecastCard(forecast, horizon), sloCard(slo, stats)),
            h('div', { class: 'columns' }, statesCard(stats), serversCard(stats)),
            heldCard(more?.held), card('On the command line', commandLine('postdate', 'status', '--watch'))];
    },
    after: at => {
        const place = document.getElementById('due-curve');
        if (!place || !at.data?.forecast?.rows)
            return;
        const { rows } = at.data.forecast, all = rows.reduce((sum, r) => sum + r.count, 0);
        const names = bars(place, rows, `Messages due in the next ${at.data.horizon}: ${number(all)}. The table below has the figures.`);
        document.getElementById('due-legend').replaceChildren(...[legend(names)].filter(Boolean));
    },
};

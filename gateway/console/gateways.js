// Gateways and servers with what is wrong; and the settings that are seen, those of the page among them.
import { access, get, offered } from './api.js';
import { commandLine } from './act.js';
import { h } from './dom.js';
import { findings, overviewOf } from './figures.js';
import { findingList } from './overview.js';
import { card, chip, exchangeName, facts, name, notOffered, table, time } from './parts.js';
import { inUtc, number, span, stamp, zoneName } from './words.js';

export const gateways = {
    title: () => 'Gateways and servers',
    every: 3000,
    load: async (at, signal) => {
        const [stats, more] = await Promise.all([get('v1/stats', { signal }), overviewOf(signal)]);
        return { stats, more };
    },
    view: ({ stats, more }) => [card('Problems', findingList(findings(stats, more), stats, more), commandLine('postdate', 'doctor')),
        card('Gateways', more?.gateways ? table('Gateways', [['Name', g => name(g.name)], ['State', g => chip(g.alive ? 'alive' : 'gone')], ['Version', g => g.version ? name(g.version) : '–'], ['Transport', g => g.transport ?? '–'],
            ['Since', g => time(g.started_at)], ['Seen', g => time(g.heartbeat_at)]], more.gateways, g => g.id)
            : [facts([stats.gateways !== undefined && ['Alive', number(stats.gateways)]]), notOffered('A list of the gateways is not part of this version.'), commandLine('postdate', 'status')]),
        h('div', { class: 'columns' }, card('RabbitMQ', facts([['State', chip(stats.broker)], ['Transport', stats.transport], ['Window', span(stats.window.length_ms)],
            ['Held there', stats.window.messages === null ? '–' : `${number(stats.window.messages)} of at most ${number(stats.window.max_messages)}`], ...serverFacts(more?.broker)])),
        card('PostgreSQL', facts([['State', chip(stats.database)], ['Locked days', stats.locked_days?.length ? stats.locked_days.join(', ') : 'none'], ...serverFacts(more?.database)])))],
};

const serverFacts = o => o && typeof o === 'object' ? Object.entries(o).filter(([k, v]) => k !== 'state' && typeof v !== 'object').map(([k, v]) => [k.replaceAll('_', ' '), name(String(v))]) : [];

export const settings = {
    title: () => 'Settings',
    every: 0,
    load: async (at, signal) => {
        const [who, more, stats, api] = await Promise.all([offered('v1/whoami', { signal }), overviewOf(signal), get('v1/stats', { signal }), get('openapi.json', { signal })]);
        return { who, more, stats, api };
    },
    view: ({ who, more, stats, api }) => [
        card('Who you are', who ? facts([['Token', name(who.name, 'not required')], ['Role', chip(who.role || 'operate', who.role === 'read' ? 'busy' : 'good')],
            who.from && ['Your address', who.from], ['Exchanges', who.all_exchanges ? 'all' : who.exchanges.map((e, i) => [i > 0 && ', ', exchangeName(e)])]])
            : access.needed ? h('p', null, 'You are signed in with a token. This gateway does not report its role.') : h('p', null, 'This gateway requires no token: anyone who can connect has full access.')),
        card('This page', facts([['Times', inUtc() ? 'in UTC' : `in ${zoneName()}`], ['Now', `${stamp(Date.now(), false)} here, ${stamp(Date.now(), true)}`],
            ['Theme', document.documentElement.dataset.theme || 'as the system'], ['Kept in this browser', 'the theme and the time zone, nothing else']])),
        card('The gateway', facts([['Interface', `${api.info.title} ${api.info.version}, ${Object.keys(api.paths).length} addresses`], ['Transport', stats.transport], ['Window', span(stats.window.length_ms)],
            ['Messages in RabbitMQ', `at most ${number(stats.window.max_messages)}`]]), h('p', null, h('a', { href: 'openapi.json' }, 'The description of the interface'), ' · ', h('a', { href: 'metrics' }, 'Metrics')),
        commandLine('postdated', '--check-config')),
        card('Its settings', more?.settings ? facts(Object.entries(more.settings).map(([k, v]) => [h('code', null, k), name(typeof v === 'string' ? v : JSON.stringify(v))]))
            : notOffered('The settings of a running gateway are not part of this version; its configuration file has them.'))],
};

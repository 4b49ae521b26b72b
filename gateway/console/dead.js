// Dead letters: in groups, as a list, and one with its attempts. They go back, or are deleted, by group, filter or one by one.
import { ask, get, query } from './api.js';
import { actButton, commandLine, postCounted } from './act.js';
import { contentView } from './body.js';
import { h } from './dom.js';
import { bothTimes, card, chip, empty, exchangeName, facts, filterForm, name, pager, readName, route, showName, table, time } from './parts.js';
import { counted, number, plural } from './words.js';

const REASONS = { rejected: 'the consumer rejected it', delivery_limit: 'delivered too often', expired: 'its TTL expired in the queue',
    maxlen: 'the queue was full', deadline: 'its deadline passed', return_failed: 'it could not be returned to its queue' };
const FIELDS = [{ name: 'queue', label: 'Queue' }, { name: 'reason', label: 'Reason', choices: [['', 'any'], ...Object.keys(REASONS).map(r => [r, r])] },
    { name: 'exchange', label: 'Exchange', show: showName, hint: '"" is default' }, { name: 'routing_key', label: 'Routing key', show: showName, hint: '"" is empty' }];
const PAGE = 50;

const filterOf = params => Object.fromEntries(FIELDS.map(f => [f.name, f.show ? readName(params[f.name]) : params[f.name]]).filter(([f, v]) => v !== undefined && params[f] !== ''));
const addressOf = f => Object.fromEntries(Object.entries(f).map(([k, v]) => [k, showName(v)]));
const words = f => [f.queue !== undefined && ['--queue', f.queue], f.reason && ['--reason', f.reason], f.exchange !== undefined && ['--exchange', f.exchange],
    f.routing_key !== undefined && ['--routing-key', f.routing_key]].filter(Boolean).flat();
const filterText = f => Object.entries(f).map(([k, v]) => `${k.replace('_', ' ')} ${JSON.stringify(v)}`).join(', ') || 'every dead letter';

const checkRate = text => text.trim() === '' || /^0*[1-9]\d{0,5}\/[smh]$/.test(text.trim()) ? null : 'Write a rate such as 50/s, 100/m or 10/h, or leave it empty for all at once.';
const rateWords = v => v.rate?.trim() ? ['--rate', v.rate.trim()] : [];

// which: {filter} or {ids}
function change(op, which, line, extra) {
    const path = `v1/dead:${op}`, body = v => ({ ...which, ...(v.rate?.trim() ? { rate: v.rate.trim() } : {}) });
    return {
        ...extra, line: v => ['postdate', 'dead', op, line, rateWords(v)],
        dry: async v => {
            const { matched, matched_is_minimum: more } = await ask('POST', path, { body: { ...body(v), dry_run: true } });
            const what = more ? `${counted(matched, true)} dead letters, counted in part.` : plural(matched, 'dead letter') + '.';
            return { text: matched || more ? what : 'No dead letter matches any more.', possible: matched > 0 || more, matched: more ? null : matched };
        },
        run: async (v, dry, tell) => {
            const done = await postCounted(path, body(v), dry.matched, tell), rest = done.matched - done.changed;
            const slow = op === 'requeue' && v.rate?.trim() ? ` They return at ${v.rate.trim()}.` : '';
            return { text: `${number(done.changed)} of ${number(done.matched)} ${op === 'drop' ? 'deleted' : 'requeued'}.${slow}${rest > 0 ? ' The others were changed meanwhile.' : ''}` };
        },
    };
}

const RATE = { name: 'rate', label: 'Rate', value: '', help: 'How many return per second, minute or hour: 50/s, 100/m, 10/h. Empty: all at once.', check: checkRate };
const requeue = (which, line, what) => change('requeue', which, line, { title: 'Send back to the queue', confirm: 'Send back',
    intro: `${what}. They return to the queues that rejected them, with all their attempts.`, fields: which.ids ? [] : [RATE] });
const drop = (which, line, what) => change('drop', which, line, { title: 'Delete dead letters', confirm: 'Delete for good', danger: true,
    intro: `${what}. They are deleted with their bodies. This cannot be undone.` });
const both = (which, line, what) => [actButton('Send back …', requeue(which, line, what)), actButton('Delete …', drop(which, line, what), { class: 'danger' })];

// A queue's name in a filter is a pattern, in which a star or backslash behind a backslash is one.
const exactly = queue => queue.replace(/[\\*]/g, '\\$&');
const groupFilter = g => ({ queue: exactly(g.queue), reason: g.reason, exchange: g.exchange, routing_key: g.routing_key });
const byFilter = f => both({ filter: f }, Object.keys(f).length ? words(f) : ['--queue', '*'], `Dead letters with ${filterText(f)}`);

export const dead = {
    title: () => 'Dead letters',
    every: 10_000,
    load: (at, signal) => get('v1/dead:groups', { signal }),
    view: data => {
        const all = data.groups.reduce((sum, g) => sum + g.count, 0);
        return [h('p', { class: 'lead' }, 'Messages that consumers rejected and that have no attempt left. They stay here until you send them back or delete them.'),
            h('section', { id: 'results', tabindex: '-1', 'aria-label': 'Groups' }, data.groups.length ? [
                !data.complete && h('p', { class: 'notice' }, 'There are more: the groups count the latest 100,000.'),
                table('Dead letters by group', [
                    ['Count', g => h('a', { href: route(['dead', 'list'], addressOf(groupFilter(g))) }, counted(g.count)), 'figure'], ['Queue', g => name(g.queue)],
                    ['Reason', g => h('span', { title: REASONS[g.reason] }, chip(g.reason, 'bad'))], ['Exchange', g => exchangeName(g.exchange)],
                    ['Routing key', g => name(g.routing_key)], ['Oldest', g => time(g.oldest_at), 'nowrap'], ['Newest', g => time(g.newest_at), 'nowrap'],
                    ['Actions', g => h('div', { class: 'buttons' }, byFilter(groupFilter(g)))]], data.groups, g => JSON.stringify(groupFilter(g))),
                h('p', { class: 'faint' }, `${plural(all, 'dead letter')} in ${plural(data.groups.length, 'group')}.`)]
                : empty('There are no dead letters.', ['To keep rejected messages here, run: ', h('code', null, 'postdate retry-policy show QUEUE')])),
            card('Find', filterForm(['dead', 'list'], FIELDS, {}), h('p', null, h('a', { href: '#/dead/list' }, 'List all')),
                commandLine('postdate', 'dead', 'list', '--group'))];
    },
};

export const deadList = {
    title: () => 'Dead letters, one by one',
    every: 10_000,
    load: (at, signal) => get('v1/dead' + query({ ...filterOf(at.params), page_size: PAGE, page_token: at.params.page_token }), { signal }),
    view: (data, at) => {
        const f = filterOf(at.params);
        return [h('p', null, h('a', { href: '#/dead' }, 'By group')), filterForm(['dead', 'list'], FIELDS, f),
            h('section', { id: 'results', tabindex: '-1', 'aria-label': 'Found dead letters' },
                data.dead_letters.length ? table('Dead letters in the order in which they died', [
                    ['Died', d => h('a', { href: route(['dead', d.id], { queue: d.queue }) }, time(d.died_at)), 'nowrap'], ['Queue', d => name(d.queue)],
                    ['Reason', d => chip(d.reason, 'bad')], ['Exchange', d => exchangeName(d.exchange)], ['Routing key', d => name(d.routing_key)],
                    ['Refused', d => plural(d.failed, 'time'), 'nowrap'], ['Kept until', d => time(d.expires_at), 'nowrap']], data.dead_letters, d => d.id + d.queue)
                    : empty('No dead letter matches.'),
                pager(['dead', 'list'], at.params, data.dead_letters.length, data.next_page_token)),
            card('All that match', Object.keys(f).length ? h('div', { class: 'buttons' }, byFilter(f))
                : h('p', null, 'Choose a filter to send back or delete all that match; * in a queue\'s name matches any characters, \\* a star.'),
            commandLine('postdate', 'dead', 'list', words(f)))];
    },
};

export const deadLetter = {
    title: at => `Dead letter ${at.name.slice(0, 8)}…`,
    every: 5000,
    load: (at, signal) => get(`v1/dead/${encodeURIComponent(at.name)}${query({ queue: at.params.queue })}`, { signal }),
    view: (d, at) => [h('p', null, h('a', { href: '#/dead' }, 'All groups'), ' · ', h('a', { href: route(['dead', 'list'], { queue: exactly(d.queue) }) }, 'the same queue')),
        h('section', { class: 'card' }, h('h2', null, 'What it is'), facts([
            ['State', [chip(d.state), ' ', h('span', { class: 'faint' }, { dead: 'waits for you', waiting: 'returns to its queue', returned: 'has returned to its queue' }[d.state] || '')]],
            ['Queue', name(d.queue)], ['Reason', [chip(d.reason, 'bad'), ' ', REASONS[d.reason] || '']], ['Exchange', exchangeName(d.exchange)], ['Routing key', name(d.routing_key)],
            ['Refused', plural(d.failed, 'time')], ['Died', bothTimes(d.died_at)], ['Kept until', bothTimes(d.expires_at)], d.next_at && ['Next delivery', bothTimes(d.next_at)],
            d.error && ['Error', h('span', { class: 'bad-text' }, name(d.error))], ['Ids', h('ul', { class: 'plain' }, h('li', null, h('code', null, d.id)),
                d.message && h('li', null, h('a', { href: route(['messages', d.message]) }, h('code', null, d.message)), ' (the message of the last delay)'))]]),
        h('div', { class: 'buttons' }, d.state === 'dead' && both({ ids: [d.id] }, [d.id], 'This message, in every queue in which it is dead')),
        commandLine('postdate', 'dead', 'show', d.id, '--queue', d.queue)),
        d.attempts?.length > 0 && card('Attempts', table('Attempts, the last hundred', [['At', a => time(a.at), 'nowrap'], ['Reason', a => chip(a.reason, 'bad')], ['Meaning', a => REASONS[a.reason] || '']], d.attempts)),
        contentView(d, at)],
};

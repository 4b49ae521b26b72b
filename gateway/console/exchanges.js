// Exchanges that messages are for, and the retry policies of what consumers refuse.
import { get, offered } from './api.js';
import { actButton, commandLine } from './act.js';
import { h } from './dom.js';
import { dueWithin } from './figures.js';
import { pauseRate, policyWords, setPolicy, setRate } from './make.js';
import { card, chip, empty, exchangeName, facts, filterForm, name, notOffered, route, table, time } from './parts.js';
import { number } from './words.js';

const WEEK = 7 * 86400e3;
const rateCard = rates => card('Rates', h('p', null, 'Limits of messages per second for exchanges. Messages beyond the rate wait, and can be cancelled.'),
    rates.rates.length ? table('Rates', [['Exchanges', r => name(r.exchange)], ['Routing keys', r => name(r.routing_key)], ['Rate', r => r.rate], ['Burst', r => number(r.burst), 'figure'],
        ['State', r => r.paused ? chip('paused', 'bad') : chip('on', 'calm')], ['Wait', r => r.waiting === null ? '–' : number(r.waiting), 'figure'], ['Until', r => r.drained_at ? time(r.drained_at) : '–'],
        ['Actions', r => h('div', { class: 'buttons' }, actButton(r.paused ? 'Resume …' : 'Pause …', pauseRate(r)), actButton('Change …', setRate(r)))]], rates.rates, r => `${r.exchange} ${r.routing_key}`)
        : empty('No exchange has a rate.', commandLine('postdate', 'rate', 'set', 'orders', '200/s')), h('div', { class: 'buttons' }, actButton('Set a rate …', setRate())));

export const exchanges = {
    title: () => 'Exchanges and policies',
    every: 15_000,
    load: async (at, signal) => {
        const quiet = promise => promise.catch(e => { if (e.status === 403 || e.status === 404) return { refused: e.message }; throw e; });
        const [ahead, groups, rates, policies, match] = await Promise.all([dueWithin(WEEK, signal), get('v1/dead:groups', { signal }), offered('v1/rates', { signal }), quiet(get('v1/retry-policies', { signal })),
            at.params.queue ? quiet(offered('v1/retry-policies:match?queue=' + encodeURIComponent(at.params.queue), { signal })) : null]);
        return { ahead, groups, rates, policies, match };
    },
    view: ({ ahead, groups, rates, policies, match }, at) => {
        const dead = new Map();
        for (const g of groups.groups)
            dead.set(g.exchange, (dead.get(g.exchange) || 0) + g.count);
        const names = [...new Set([...(ahead ? ahead.keys() : []), ...dead.keys()])].sort();
        return [card('Exchanges', names.length ? table('Exchanges', [['Exchange', e => h('a', { href: route(['messages'], { exchange: e }) }, exchangeName(e))],
            ['Due within 7 days', e => ahead ? number(ahead.get(e) || 0) : '–', 'figure'],
            ['Dead letters', e => dead.get(e) ? h('a', { href: route(['dead', 'list'], { exchange: e }) }, number(dead.get(e))) : '0', 'figure']], names, e => e)
             : ahead ? empty('No exchange has messages that are due within 7 days, or dead letters.') : notOffered('Counts by exchange need the forecast.')),
        rates && rateCard(rates),
        card('Retry policies', h('p', null, 'How messages that a consumer rejects return to its queue. The longest matching pattern applies.'),
            policies.refused ? h('p', { class: 'notice' }, policies.refused) : policies.policies.length ? table('Retry policies', [['Queues', p => name(p.pattern)], ['Deliveries', p => number(p.attempts), 'figure'],
                ['Waits', p => `${p.first}, × ${p.factor}, up to ${p.max}`], ['Jitter', p => `± ${p.jitter} %`], ['Retried', p => p.on.map(r => [chip(r, 'calm'), ' '])], ['Dead are kept', p => p.keep_dead],
                ['Actions', p => actButton('Change …', setPolicy(p))], ['On the command line', p => commandLine(policyWords(p))]], policies.policies, p => p.pattern)
                : empty('No policy is set; the built-in default applies to every queue.', commandLine('postdate', 'retry-policy', 'set', 'orders.*', '--attempts', '10')), !policies.refused && h('div', { class: 'buttons' }, actButton('Set a policy …', setPolicy()))),
        card('Which one applies', filterForm(['exchanges'], [{ name: 'queue', label: 'Queue' }], at.params),
            h('div', { id: 'results', tabindex: '-1' }, match?.refused ? h('p', { class: 'notice' }, match.refused) : match && [facts([['Queue', name(match.queue)], ['Policy', match.is_default ? 'the built-in default' : name(match.pattern)],
                ['Deliveries', number(match.attempts)], ['Waits', (match.waits.slice(0, 20).join(', ') || 'none: one delivery only') + (match.waits.length > 20 ? ' …' : '')], ['Retried', match.on.join(', ')], ['Dead are kept', match.keep_dead]]),
            commandLine('postdate', 'retry-policy', 'show', at.params.queue)]))];
    },
};

// Forms that make something: a message, a schedule, a policy, a rate. Each says what it will do, and shows the command line that does the same.
import { ask, get, offered, query, textOf } from './api.js';
import { post } from './act.js';
import { members } from './body.js';
import { readName, showName } from './parts.js';
import { ago, newTime, number, stamp, zoneName } from './words.js';

const needs = what => text => text.trim() ? null : `${what} is missing.`;
const EXCHANGE = { name: 'exchange', label: 'Exchange', help: 'Empty: the default delivery exchange. "" is the default exchange of RabbitMQ.' };
const place = v => v.exchange ? { exchange: readName(v.exchange) } : {};
const flag = (name, value) => value !== undefined && value !== null && value !== '' && [`--${name}`, value];
const missing = e => { if (e.status !== 404) throw e; return null; };

function checkObject(text) {
    try {
        return text.trim() === '' || (text.trim()[0] === '{' && JSON.parse(text)) ? null : 'Headers are a JSON object, such as {"n": 1}.';
    } catch {
        return 'Headers are a JSON object, such as {"n": 1}.';
    }
}
const plainText = v => v.startsWith('"') ? JSON.parse(v) : v;
const pairWords = (option, text) => text?.startsWith('{') ? members(text).map(([k, v]) => [`--${option}`, `${k}=${plainText(v)}`]) : [];

export const scheduleOne = () => ({
    title: 'Schedule a message', confirm: 'Schedule it',
    fields: [EXCHANGE, { name: 'routing_key', label: 'Routing key' },
        { name: 'when', label: 'When', value: '1h', help: 'From now, such as 90s, 15m, 36h; or a time such as 2027-06-01T08:00:00Z.', check: v => newTime(v.trim()) ? null : 'This is neither a duration nor a time with an offset.' },
        { name: 'key', label: 'Key', help: 'Your own name for it, to find, cancel or replace it. May be empty.' }, { name: 'body', label: 'Body', rows: 4 },
        { name: 'headers', label: 'Headers', help: 'A JSON object, such as {"n": 1}. May be empty.', check: checkObject }],
    dry: async v => {
        const t = newTime(v.when.trim()), then = t.due_at ? new Date(t.due_at) : new Date(Date.now() + t.delay_ms);
        const taken = v.key && (await get('v1/messages' + query({ key: v.key, ...place(v), state: 'waiting', page_size: 1 }))).messages[0];
        return taken ? { text: `A message with this key waits already: it is due ${ago(taken.due_at)}.`, possible: false } : { text: `One message, due ${ago(then)}, at ${stamp(then)}.`, possible: true };
    },
    line: v => ['postdate', 'schedule', flag('exchange', v.exchange && readName(v.exchange) === '' ? '' : v.exchange) || [], '-k', v.routing_key,
        newTime(v.when.trim())?.due_at ? ['--at', v.when.trim()] : ['--delay', v.when.replaceAll(' ', '')], flag('key', v.key), checkObject(v.headers) ? [] : pairWords('header', v.headers.trim()), '--body', v.body],
    run: async (v, dry, tell) => {
        const fields = JSON.stringify({ ...place(v), routing_key: v.routing_key, ...newTime(v.when.trim()), ...(v.key ? { key: v.key } : {}), body: v.body });
        const made = await post('v1/messages', v.headers.trim() ? `${fields.slice(0, -1)},"headers":${v.headers}}` : fields, tell);
        return { text: `It is due ${ago(made.due_at)}, at ${stamp(made.due_at)}, with the id ${made.id}.`,
            undo: { text: 'Undo: cancel it', run: async () => ({ text: `It is ${(await ask('DELETE', 'v1/messages/' + made.id)).state}.` }) } };
    },
});

// --- schedules: definitions are text, for what passes through numbers of a browser is never written back
const DEFINITION = ['cron', 'dialect', 'zone', 'exchange', 'routing_key', 'body', 'body_base64', 'headers', 'properties', 'missed', 'grace', 'jitter', 'dst', 'overlap', 'from', 'until'];
const definitionOf = (text, changed = {}) => `{${[...members(text).filter(([k, v]) => DEFINITION.includes(k) && v !== 'null' && !(k in changed)),
    ...Object.entries(changed).map(([k, v]) => [k, JSON.stringify(v)])].map(([k, v]) => `"${k}":${v}`).join()}}`;
export const definition = r => definitionOf(textOf(r));
const one = n => 'v1/recurring/' + encodeURIComponent(n);
const setWords = (name, text) => ['postdate', 'recur', 'set', name, members(text).map(([k, v]) => k === 'routing_key' ? ['-k', plainText(v)]
    : k === 'headers' ? pairWords('header', v) : k === 'properties' ? pairWords('property', v) : k === 'body_base64' ? ['--file', 'BODY'] : [`--${k}`, plainText(v)])];

// r: the one that is changed, with its body; or none.
export function setSchedule(r) {
    const start = r || { zone: zoneName(), overlap: 'allow', missed: 'one' }, text = r?.body_base64 === undefined;
    const changed = v => ({ cron: v.cron.trim(), zone: v.zone.trim(), routing_key: v.routing_key, overlap: v.overlap, missed: v.missed, ...(text ? { body: v.body } : {}), ...place(v) });
    const wanted = v => definitionOf(r ? textOf(r) : '{}', changed(v)), name = v => r ? r.name : v.name.trim();
    return {
        title: r ? `Change "${r.name}"` : 'Set a schedule', confirm: r ? 'Change it' : 'Set it', intro: r ? 'Other settings are kept. The change applies from now on.' : null,
        fields: [!r && { name: 'name', label: 'Name', check: needs('The name') }, { name: 'cron', label: 'Expression', value: start.cron, help: '0 9 * * mon-fri, @daily, @every 90s.', check: needs('The expression') },
            { name: 'zone', label: 'Time zone', value: start.zone, check: needs('The time zone') }, { ...EXCHANGE, value: r ? showName(r.exchange) : '' }, { name: 'routing_key', label: 'Routing key', value: start.routing_key },
            { name: 'missed', label: 'Missed occurrences', value: start.missed, choices: [['one', 'deliver the last one'], ['all', 'deliver all'], ['none', 'deliver none']] },
            { name: 'overlap', label: 'While the previous one waits', value: start.overlap, choices: [['allow', 'deliver the next one'], ['skip', 'skip the next one']] },
            text && { name: 'body', label: 'Body', value: start.body ?? '', rows: 4 }].filter(Boolean),
        dry: async v => {
            if (!r && await get(one(name(v))).catch(missing))
                return { text: `There is a schedule "${name(v)}" already: change that one on its page.`, possible: false };
            const { times } = await get('v1/recurring:preview' + query({ cron: v.cron.trim(), zone: v.zone.trim(), dialect: r?.dialect, n: 3 }));
            return times.length ? { text: `Next: ${times.map(t => t.local).join(', ')}.`, possible: true } : { text: 'It would never run.', possible: false };
        },
        line: v => setWords(name(v), wanted(v)),
        run: async v => {
            const set = await ask('PUT', one(name(v)), { body: wanted(v), more: r ? { 'If-Match': `"${r.version}"` } : { 'If-None-Match': '*' } });
            return { text: `It is set${set.next_at ? `, next ${ago(set.next_at)}, at ${stamp(set.next_at)}` : ''}.`, undo: r ? { text: 'Undo: as it was', run: async () => { await ask('PUT', one(r.name), { body: definition(r) }); return { text: 'It is set as it was.' }; } }
                : { text: 'Undo: remove it', run: async () => { await ask('DELETE', one(name(v))); return { text: 'It is removed.' }; } } };
        },
    };
}

// --- policies and rates
const policyPath = pattern => 'v1/retry-policies/' + encodeURIComponent(pattern);
const policyBody = p => ({ attempts: Number(p.attempts), first: p.first, factor: Number(p.factor), max: p.max, jitter: Number(p.jitter), on: p.on, keep_dead: p.keep_dead });
export const policyWords = p => ['postdate', 'retry-policy', 'set', p.pattern, '--attempts', p.attempts, '--first', p.first, '--factor', p.factor, '--max', p.max,
    '--jitter', `${p.jitter}%`, '--on', p.on.join(','), '--keep-dead', p.keep_dead];

export function setPolicy(p) {
    const start = p || { attempts: 10, first: '1s', factor: 2, max: '1h', jitter: 10, on: ['rejected', 'delivery_limit'], keep_dead: '30d' };
    const wanted = v => ({ pattern: (p?.pattern ?? v.pattern).trim(), on: start.on, jitter: start.jitter, attempts: v.attempts, first: v.first.trim(), factor: v.factor, max: v.max.trim(), keep_dead: v.keep_dead.trim() });
    const isNumber = text => /^\d+(\.\d+)?$/.test(text) ? null : 'Write a number.';
    return {
        title: p ? `Change the policy of "${p.pattern}"` : 'Set a retry policy', confirm: p ? 'Change it' : 'Set it', intro: 'It applies to messages rejected from now on.',
        fields: [!p && { name: 'pattern', label: 'Queues', help: '* matches any characters: orders.*', check: needs('The pattern') }, { name: 'attempts', label: 'Deliveries in all', value: String(start.attempts), check: isNumber },
            { name: 'first', label: 'First delay', value: start.first }, { name: 'factor', label: 'Factor of each further delay', value: String(start.factor), check: isNumber }, { name: 'max', label: 'Longest delay', value: start.max },
            { name: 'keep_dead', label: 'Dead letters are kept', value: start.keep_dead }].filter(Boolean),
        dry: async v => !p && await get(policyPath(wanted(v).pattern)).catch(missing) ? { text: 'There is a policy with this pattern already: change that one.', possible: false }
            : { text: `${number(Number(v.attempts))} deliveries in all; delays of ${v.first}, × ${v.factor}, up to ${v.max}.`, possible: true },
        line: v => policyWords(wanted(v)),
        run: async v => {
            const w = wanted(v);
            await ask('PUT', policyPath(w.pattern), { body: policyBody(w) });
            return { text: 'It is set.', undo: p ? { text: 'Undo: as it was', run: async () => { await ask('PUT', policyPath(p.pattern), { body: policyBody(p) }); return { text: 'It is set as it was.' }; } }
                : { text: 'Undo: remove it', run: async () => { await ask('DELETE', policyPath(w.pattern)); return { text: 'It is removed.' }; } } };
        },
    };
}

const ratePath = (r, verb = '') => `v1/rates/${encodeURIComponent(r.exchange || 'amq.default')}${verb}`;
const rateKey = r => r.routing_key === '*' ? [] : ['--routing-key', r.routing_key];
const setRateOf = r => ask('PUT', ratePath(r) + query({ routing_key: r.routing_key }), { body: { rate: r.rate, ...(r.burst ? { burst: r.burst } : {}) } });

export function setRate(r) {
    const wanted = v => ({ exchange: r ? r.exchange : v.exchange, routing_key: r ? r.routing_key : v.routing_key, rate: v.rate.trim(), burst: Number(v.burst) || null });
    return {
        title: r ? 'Change the rate' : 'Set a rate', confirm: r ? 'Change it' : 'Set it', intro: 'Limit of messages per second for an exchange. It applies at once, also to waiting messages.',
        fields: [!r && { name: 'exchange', label: 'Exchanges', help: '* matches any characters.', check: needs('The exchange') }, !r && { name: 'routing_key', label: 'Routing keys', value: '*', check: needs('The routing key') },
            { name: 'rate', label: 'Rate', value: r?.rate ?? '', help: '200/s, 1.5/s, 12000/min, 100/h; 0 pauses.', check: needs('The rate') },
            { name: 'burst', label: 'Burst', value: String(r?.burst ?? ''), help: 'Messages that may be delivered at once after an idle period. Empty: a fiftieth of the rate per second.', check: v => /^\d*$/.test(v.trim()) ? null : 'Write a number.' }].filter(Boolean),
        dry: async v => {
            const w = wanted(v), there = r || await offered(ratePath(w) + query({ routing_key: w.routing_key })).catch(missing);
            return !r && there ? { text: 'There is a rate of these already: change that one.', possible: false } : { text: `${w.exchange} gets at most ${w.rate}${w.routing_key === '*' ? '' : `, with routing keys ${w.routing_key}`}.`, possible: true };
        },
        line: v => ['postdate', 'rate', 'set', wanted(v).exchange, wanted(v).rate, rateKey(wanted(v)), flag('burst', wanted(v).burst)],
        run: async v => {
            const w = wanted(v);
            await setRateOf(w);
            return { text: 'It is set.', undo: r ? { text: 'Undo: as it was', run: async () => { await setRateOf(r); return { text: 'It is set as it was.' }; } }
                : { text: 'Undo: remove it', run: async () => { await ask('DELETE', ratePath(w) + query({ routing_key: w.routing_key })); return { text: 'It is removed.' }; } } };
        },
    };
}

const change = (r, verb) => ask('POST', ratePath(r, '/' + verb), { body: { routing_key: r.routing_key } });
export function pauseRate(r) {
    const [verb, back, said, other] = r.paused ? ['resume', 'pause', 'resumed', 'paused'] : ['pause', 'resume', 'paused', 'resumed'];
    return { title: r.paused ? 'Resume the rate' : 'Pause the rate', confirm: r.paused ? 'Resume it' : 'Pause it', intro: r.paused ? 'Waiting messages are delivered at the rate.' : 'No messages are delivered there until it is resumed.',
        dry: async () => { const now = await get(ratePath(r) + query({ routing_key: r.routing_key })); return { text: `${number(now.waiting)} messages wait for the rate of "${r.exchange}", ${now.rate}.`, possible: now.paused === r.paused }; },
        line: () => ['postdate', 'rate', verb, r.exchange, rateKey(r)],
        run: async () => { await change(r, verb); return { text: `It is ${said}.`, undo: { text: `Undo: ${back}`, run: async () => { await change(r, back); return { text: `It is ${other}.` }; } } }; } };
}

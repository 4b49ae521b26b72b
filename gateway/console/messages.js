// Messages: a page of a list, which never counts, and one message with all that is known about it.
import { ask, get, offered, Problem, query } from './api.js';
import { actButton, commandLine, post, postCounted } from './act.js';
import { contentView } from './body.js';
import { h } from './dom.js';
import { scheduleOne } from './make.js';
import { bothTimes, card, chip, empty, exchangeName, facts, filterForm, name, pager, readName, route, showName, table, time } from './parts.js';
import { ago, counted, newTime, number, parseSpan, plural, span, stamp } from './words.js';

const STATES = ['scheduled', 'claimed', 'handed', 'delivered', 'cancelled', 'superseded', 'failed', 'expired'];
// The list opens with what waits, and each other view is a tab. "any" is for what looks for a key or a queue, whatever became of it.
const RETRYING = 'retrying', WAITING = 'waiting', ANY = 'any';
const VIEWS = [WAITING, RETRYING, 'failed', 'expired', 'delivered', 'cancelled', 'superseded', ANY];
const IN_VIEW = { [WAITING]: ['scheduled', 'handed', 'claimed'], [ANY]: STATES };
const MEANING = {
    scheduled: 'waits in PostgreSQL', claimed: 'a gateway is delivering it, or its delivery is in doubt (unconfirmed)', handed: 'waits in RabbitMQ',
    delivered: 'RabbitMQ has confirmed it', cancelled: 'will never be delivered', superseded: 'replaced by another message',
    failed: 'could not be delivered; a retry is possible', expired: 'its deadline passed',
};
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const PAGE = 50;

const toLocal = iso => iso ? stamp(iso, false).replace(' ', 'T') : '';
const fromLocal = text => new Date(text).toISOString();
const FIELDS = [
    { name: 'state', label: 'State', choices: [['', 'waiting: any of these three'], ...IN_VIEW[WAITING].map(s => [s, s]), [RETRYING, 'retrying: not delivered, and tried again'], ...STATES.filter(s => !IN_VIEW[WAITING].includes(s)).map(s => [s, s]), [ANY, 'any']] },
    { name: 'exchange', label: 'Exchange', show: showName, hint: '"" is default' }, { name: 'routing_key', label: 'Routing key', show: showName, hint: '"" is empty' }, { name: 'key', label: 'Key' },
    { name: 'due_after', label: 'Due after (here)', type: 'datetime-local', read: fromLocal, show: toLocal },
    { name: 'due_before', label: 'Due before (here)', type: 'datetime-local', read: fromLocal, show: toLocal },
    { name: 'order', label: 'Order', choices: [['', 'as they are due'], ['newest', 'newest first']] },
];
const fieldsOf = params => Object.fromEntries(FIELDS.filter(f => params[f.name]).map(f => [f.name, f.show === showName ? readName(params[f.name]) : params[f.name]]));
// What the gateway is asked for.
const filterOf = params => {
    const { state = WAITING, order: _, ...f } = fieldsOf(params);
    return state === ANY ? f : { state, ...f };
};

// The command line takes a * for any run of characters; what is shown here, and touched, has that very key.
const exactly = key => key.replace(/[*\\]/g, '\\$&');

export function filterWords(f) {
    return [f.key && ['--key', f.key], f.state && ['--state', f.state], f.exchange !== undefined && ['--exchange', f.exchange],
        f.routing_key !== undefined && ['--routing-key', exactly(f.routing_key)], f.due_after && ['--due-after', f.due_after],
        f.due_before && ['--due-before', f.due_before]].filter(Boolean).flat();
}
const filterText = f => Object.entries(f).map(([k, v]) => `${k.replace('_', ' ')} ${JSON.stringify(v)}`).join(', ');

// --- look up by id or key: one field, as people have one or the other at hand
async function lookUp(e) {
    const input = e.target.closest('form').elements.what, text = input.value.trim(), note = document.getElementById('look-note');
    if (!text)
        return;
    note.textContent = 'Looking …';
    try {
        if (UUID.test(text) && await get('v1/messages/' + text.toLowerCase()).catch(x => { if (x.status !== 404) throw x; })) {
            location.hash = route(['messages', text]);
            return;
        }
        const found = (await get('v1/messages' + query({ key: text, page_size: 2 }))).messages;
        if (found.length === 1)
            location.hash = route(['messages', found[0].id]);
        else if (found.length > 1)
            location.hash = route(['messages'], { key: text, state: ANY });
        else
            note.textContent = 'No message has this id or key. Finished messages are kept for a while only.';
    } catch (x) {
        if (!(x instanceof Problem))
            throw x;
        note.textContent = x.message;
    }
}

const lookUpForm = () => h('form', { class: 'lookup', onsubmit: lookUp, role: 'search', 'aria-label': 'Look up a message' },
    h('div', { class: 'field' }, h('label', { for: 'look' }, 'Id or key'),
        h('input', { id: 'look', name: 'what', type: 'search', autocomplete: 'off', spellcheck: 'false', maxlength: 255, 'aria-describedby': 'look-note' })),
    h('button', { class: 'primary' }, 'Look up'), h('p', { id: 'look-note', class: 'faint', role: 'status', 'data-own': 'yes' }));

// --- changes by filter
function bulk(op, f, word, extra = {}) {
    const path = `v1/messages:${op}`, more = values => extra.body ? extra.body(values) : {};
    return {
        title: extra.title, intro: `All messages with ${filterText(f)}.${extra.intro ? ' ' + extra.intro : ''}`, fields: extra.fields, danger: extra.danger, confirm: extra.confirm,
        dry: async values => {
            const { matched, matched_is_minimum: more_of_them } = await ask('POST', path, { body: { filter: f, ...more(values), dry_run: true } });
            const what = more_of_them ? `${counted(matched, true)} messages, counted in part,` : plural(matched, 'message');
            return { text: matched || more_of_them ? `${what} ${matched === 1 ? 'is' : 'are'} in a state in which this is possible.` : 'No message that matches is in a state in which this is possible.',
                possible: matched > 0 || more_of_them, matched: more_of_them ? null : matched };
        },
        run: async (values, dry, tell) => {
            const body = { filter: f, ...more(values) };
            const done = op === 'reschedule' ? await post(path, body, tell) : await postCounted(path, body, dry.matched, tell);
            const rest = done.matched - done.changed;
            return { text: `${number(done.changed)} of ${number(done.matched)} ${word}.${rest > 0 ? ' The others were claimed, locked or replaced meanwhile.' : ''}` };
        },
        line: values => ['postdate', op, filterWords(f), extra.words ? extra.words(values) : []],
    };
}

const checkShift = text => parseSpan(text.replace(/^-/, '')) === null ? 'Write a duration such as 15m, 1h30m, or -1h for earlier.' : null;
const shiftMs = text => (text.startsWith('-') ? -1 : 1) * parseSpan(text.replace(/^-/, ''));
const bulks = f => [
    actButton('Cancel them …', bulk('cancel', f, 'cancelled', { title: 'Cancel messages', confirm: 'Cancel them', danger: true,
        intro: 'Those that wait or have failed are never delivered. Their bodies are erased. This cannot be undone.' })),
    actButton('Reschedule them …', bulk('reschedule', f, 'rescheduled', { title: 'Reschedule messages', confirm: 'Reschedule them',
        intro: 'Those that wait or have failed.', fields: [{ name: 'shift', label: 'Later by', value: '1h', help: 'Such as 15m, 1h30m; -1h is earlier.', check: checkShift }],
        body: v => ({ shift_ms: shiftMs(v.shift) }), words: v => [`--shift=${v.shift.replaceAll(' ', '')}`] })),
    f.state === RETRYING ? actButton('Try them now …', bulk('retry', f, 'are tried now', { title: 'Try messages now', confirm: 'Try them now', intro: 'They wait for another attempt, and have it at once.' }))
        : actButton('Retry them …', bulk('retry', f, 'to be tried again', { title: 'Retry failed messages', confirm: 'Retry them', intro: 'Those that have failed get all their attempts again.' })),
];

// With how many there are of each, where the token may see that.
const viewTabs = (stats, params) => h('nav', { class: 'tabs', 'aria-label': 'Views' }, VIEWS.map(v => {
    const states = IN_VIEW[v] || [v], n = v === RETRYING ? stats.retrying : stats.messages && states.reduce((sum, s) => sum + stats.messages[s], 0);
    return h('a', { href: route(['messages'], { ...params, state: v === WAITING ? '' : v, page_token: '' }), 'aria-current': v === (params.state || WAITING) ? 'true' : null },
        v, n !== null && n !== undefined && [' ', h('span', { class: 'faint' }, counted(n, states.some(s => stats.counted_only_in_part?.includes(s))))]);
}));

// Where few messages match, the gateway ends a page before it is full. It is asked on for a while; then whoever reads this decides.
const SEARCH_MS = 2000;
async function search(params, signal) {
    const end = Date.now() + SEARCH_MS, found = [];
    let page = { next_page_token: params.page_token };
    do {
        page = await get('v1/messages' + query({ ...filterOf(params), order: params.order, page_size: PAGE - found.length, page_token: page.next_page_token }), { signal });
        found.push(...page.messages);
    } while (page.searched_until && found.length < PAGE && Date.now() < end);
    return { ...page, messages: found };
}
const searchedNote = (data, params) => data.searched_until && h('p', { class: 'notice', id: 'searched' }, 'Few messages match. So far, those due ', params.order ? 'after ' : 'until ', time(data.searched_until),
    ' were searched. ', h('a', { href: route(['messages'], { ...params, page_token: data.next_page_token }), rel: 'next' }, 'Search further'));

export const messages = {
    title: () => 'Messages',
    every: 5000,
    load: async (at, signal) => {
        const [found, stats] = await Promise.all([search(at.params, signal), get('v1/stats', { signal })]);
        return { ...found, stats };
    },
    view: (data, at) => {
        const f = filterOf(at.params), some = Object.keys(fieldsOf({ ...at.params, order: '' })).length > 0 && Object.keys(f).length > 0;
        return [h('div', { class: 'buttons' }, actButton('Schedule a message …', scheduleOne(), { class: 'primary' })), lookUpForm(), viewTabs(data.stats, at.params), filterForm(['messages'], FIELDS, fieldsOf(at.params)),
            some ? h('div', { class: 'buttons', role: 'group', 'aria-label': 'All that match' }, bulks(f), h('span', { class: 'faint' }, 'all that match; a preview is shown first'))
                : h('p', { class: 'faint' }, 'Choose a filter to cancel, reschedule or retry all that match.'),
            h('section', { id: 'results', tabindex: '-1', 'aria-label': 'Found messages' },
                data.messages.length ? table('Messages', [
                    ['Due', m => h('a', { href: route(['messages', m.id]) }, time(m.due_at)), 'nowrap'], ['State', m => [chip(m.state), (m.attempts > 1 || m.next_attempt_at) && h('span', { class: 'note faint' }, plural(m.attempts, 'attempt')),
                        m.next_attempt_at && h('span', { class: 'note' }, 'next ', time(m.next_attempt_at))]],
                    ['Exchange', m => exchangeName(m.exchange)], ['Routing key', m => [name(m.routing_key), m.error && h('span', { class: 'note bad-text' }, name(m.error))], 'wide'],
                    ['Key', m => name(m.key)], at.params.state === RETRYING && ['Actions', m => m.next_attempt_at && actButton('Try now …', tryNow(m))]].filter(Boolean), data.messages, m => m.id)
                    : data.searched_until ? null : some ? empty('No message matches.', 'Finished messages are kept for a while only: see Settings.')
                        : empty(at.params.state === ANY ? 'There are no messages yet.' : 'No message waits.', ['Try one: ', h('code', null, 'postdate schedule -k test --delay 1m --body hello')]),
                searchedNote(data, at.params) || pager(['messages'], at.params, data.messages.length, data.next_page_token)),
            h('section', { class: 'card' }, h('h2', null, 'On the command line'),
                commandLine('postdate', 'list', filterWords(f), at.params.order ? ['--newest'] : [], at.params.page_token ? [] : ['--limit', PAGE]))];
    },
};

// --- one message
const dryOne = (id, can) => async () => {
    const m = await get('v1/messages/' + encodeURIComponent(id));
    const why = can(m);
    return { text: why || `The message to ${JSON.stringify(m.routing_key)}, due ${ago(m.due_at)}, which is ${m.state}.`, possible: !why, message: m };
};
const waiting = m => ['scheduled', 'failed'].includes(m.state) ? null
    : m.state === 'handed' ? 'It is too late: RabbitMQ holds it.' : m.state === 'claimed' ? 'It is too late: a gateway has claimed it.' : `It is ${m.state}: nothing is left to do.`;

const cancelOne = m => ({
    title: 'Cancel the message', intro: 'It is never delivered. Its body is erased. This cannot be undone.', danger: true, confirm: 'Cancel it',
    dry: dryOne(m.id, waiting), line: () => ['postdate', 'cancel', m.id],
    run: async () => ({ text: `Cancelled: it is ${(await ask('DELETE', 'v1/messages/' + m.id)).state}.` }),
});

const moveOne = m => ({
    title: 'Reschedule the message', intro: 'It gets a new id; its old ids still find it.', confirm: 'Reschedule it',
    fields: [{ name: 'when', label: 'New time', value: '1h', help: 'From now, such as 90s, 15m, 36h; or a time such as 2027-06-01T08:00:00Z.', check: v => newTime(v.trim()) ? null : 'This is neither a duration nor a time with an offset.' }],
    dry: async v => {
        const found = await dryOne(m.id, waiting)(), t = newTime(v.when.trim());
        const then = t.due_at ? new Date(t.due_at) : new Date(Date.now() + t.delay_ms);
        return found.possible ? { ...found, text: `${found.text} It would be due ${ago(then)}, at ${stamp(then)}.` } : found;
    },
    line: v => ['postdate', 'reschedule', m.id, newTime(v.when.trim())?.due_at ? ['--at', v.when.trim()] : ['--delay', v.when.replaceAll(' ', '')]],
    run: async (v, dry) => {
        const moved = await ask('PATCH', 'v1/messages/' + m.id, { body: newTime(v.when.trim()) }), before = dry.message.due_at;
        return { text: `It is due ${ago(moved.due_at)}, at ${stamp(moved.due_at)}, with the id ${moved.id}.`,
            undo: new Date(before) > Date.now() && { text: `Undo: due at ${stamp(before)} again`, run: async () => {
                const back = await ask('PATCH', 'v1/messages/' + moved.id, { body: { due_at: before } });
                return { text: `It is due at ${stamp(back.due_at)} again.` };
            } } };
    },
});

const retryOne = m => ({
    title: 'Retry the message', intro: 'It gets all its attempts again, the first at once.', confirm: 'Retry it',
    dry: dryOne(m.id, x => x.state === 'failed' ? null : `It is ${x.state}; only a failed message can be retried.`), line: () => ['postdate', 'retry', m.id],
    run: async () => ({ text: (await ask('POST', `v1/messages/${m.id}:retry`, { body: {} })).state === 'failed' ? 'It failed again.' : 'It is tried again.' }),
});

const tryNow = m => ({
    title: 'Try it now', intro: 'It was rejected, or its delivery is in doubt (unconfirmed). The next attempt is made at once; the number of attempts left does not change.', confirm: 'Try it now',
    dry: dryOne(m.id, x => x.next_attempt_at ? null : `It is ${x.state}, and is not waiting for another attempt.`), line: () => ['postdate', 'retry', m.id],
    run: async () => { const now = await ask('POST', `v1/messages/${m.id}:retry`, { body: {} }); return { text: now.state === 'delivered' ? 'It is delivered.' : 'It is tried now.' }; },
});

const failOne = m => ({
    title: 'End the message', intro: 'For a message whose delivery stays in doubt (unconfirmed), for example because its exchange was deleted. It becomes failed, and can still be retried.', danger: true, confirm: 'End it',
    dry: dryOne(m.id, x => x.state === 'claimed' ? null : `It is ${x.state}; this is for a claimed message in doubt.`), line: () => ['postdate', 'fail', m.id],
    run: async () => ({ text: `It is ${(await ask('POST', `v1/messages/${m.id}:fail`, { body: {} })).state}.` }),
});

// What the gateway says of the ids; else the one that was asked for and the one that it led to.
export function idsOf(m, asked) {
    const ids = (m.ids || m.former_ids || []).map(x => typeof x === 'string' ? x : x.id);
    return [...new Set([...ids, asked.toLowerCase(), m.id])].filter(Boolean);
}

export const message = {
    title: at => `Message ${at.name.slice(0, 8)}…`,
    every: 3000,
    load: (at, signal) => offered(`v1/messages/${encodeURIComponent(at.name)}?view=full`, { signal }),
    view: (m, at) => {
        const ids = idsOf(m, at.name);
        return [h('p', null, h('a', { href: '#/messages' }, 'All messages')),
            h('section', { class: 'card' }, h('h2', null, 'What it is'), facts([
                ['State', [chip(m.state), ' ', h('span', { class: 'faint' }, MEANING[m.state] || '')]], ['Due', bothTimes(m.due_at)],
                m.deadline && ['Deadline', bothTimes(m.deadline)], ['Exchange', exchangeName(m.exchange)], ['Routing key', name(m.routing_key)], ['Key', name(m.key)],
                ['Held by', m.hold === 'broker' ? 'RabbitMQ, once it enters the window' : 'the gateway'], ['Created', bothTimes(m.created_at)],
                m.settled_at && ['Settled', bothTimes(m.settled_at)],
                m.settled_at && m.state === 'delivered' && ['Settled after due', [span(Math.max(0, new Date(m.settled_at) - new Date(m.due_at))), h('span', { class: 'faint' }, ' until it was recorded; RabbitMQ had confirmed it before')]],
                ['Attempts', number(m.attempts)], m.next_attempt_at && ['Next attempt', bothTimes(m.next_attempt_at)], m.error && ['Error', h('span', { class: 'bad-text' }, name(m.error))],
                ['Ids', h('ul', { class: 'plain' }, ids.map(id => h('li', null, h('code', null, id), id === m.id ? ' (now)' : ' (leads here)')))]]),
            h('div', { class: 'buttons' },
                ['scheduled', 'failed', 'handed'].includes(m.state) && [actButton('Cancel …', cancelOne(m), { class: 'danger' }), actButton('Reschedule …', moveOne(m))],
                m.next_attempt_at && actButton('Try now …', tryNow(m)), m.state === 'failed' && actButton('Retry …', retryOne(m)), m.state === 'claimed' && actButton('End it …', failOne(m))),
            commandLine('postdate', 'show', m.id)),
            contentView(m, at)];
    },
};

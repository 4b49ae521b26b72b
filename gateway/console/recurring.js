// Recurring schedules: the list, a preview of any expression, and one schedule with its next times and its changes.
import { ask, get, offered, query } from './api.js';
import { actButton, commandLine, post } from './act.js';
import { contentView } from './body.js';
import { h } from './dom.js';
import { definition, setSchedule } from './make.js';
import { bothTimes, card, chip, empty, exchangeName, facts, filterForm, name, notOffered, pager, route, table, time } from './parts.js';
import { ago, plural, span, stamp, stampIn, zoneName } from './words.js';

const one = n => 'v1/recurring/' + encodeURIComponent(n);
const stateOf = r => r.paused ? 'paused' : r.error ? 'error' : r.held_by === 'overlap' ? 'left out' : r.next_at ? 'active' : 'over';
const tone = { paused: 'off', error: 'bad', 'left out': 'bad', active: 'good', over: 'off' };
const leftOut = r => r.left_out > 0 && h('span', { class: 'note bad-text' }, `${plural(r.left_out, 'occurrence')}${r.left_out >= 100 ? ' or more' : ''} left out since`);
// A change says so in its body, so that no form of another page can make it.
const change = (r, verb) => ask('POST', `${one(r.name)}:${verb}`, { body: {} });
const still = r => async () => {
    const now = await get(one(r.name));
    return { text: `The schedule "${now.name}", ${now.paused ? 'paused' : now.next_at ? `next ${ago(now.next_at)}, at ${stamp(now.next_at)}` : 'without a next time'}.`, possible: true, now };
};
const pause = r => ({ title: 'Pause the schedule', confirm: 'Pause it', intro: 'Nothing is sent until it is resumed. Occurrences due meanwhile are missed.',
    dry: still(r), line: () => ['postdate', 'recur', 'pause', r.name],
    run: async () => { await change(r, 'pause'); return { text: 'It is paused.', undo: { text: 'Undo: resume', run: async () => { await change(r, 'resume'); return { text: 'It is resumed.' }; } } }; } });
const resume = r => ({ title: 'Resume the schedule', confirm: 'Resume it', intro: 'It continues with its next time.',
    dry: still(r), line: () => ['postdate', 'recur', 'resume', r.name],
    run: async () => { await change(r, 'resume'); return { text: 'It is resumed.', undo: { text: 'Undo: pause', run: async () => { await change(r, 'pause'); return { text: 'It is paused.' }; } } }; } });
const runNow = r => ({ title: 'Run once more, now', confirm: 'Run it', intro: 'One additional message, at once. The next time does not change.',
    dry: async () => { const f = await still(r)(); return { ...f, text: `One message to ${JSON.stringify(f.now.routing_key)}. ${f.text}` }; }, line: () => ['postdate', 'recur', 'run', r.name],
    run: async (v, dry, tell) => { const done = await post(`${one(r.name)}:run`, {}, tell); return { text: `The message ${done.id || done.message || ''} is due now.` }; } });
const remove = r => ({ title: 'Remove the schedule', confirm: 'Remove it', danger: true, intro: 'The schedule and its next message.',
    dry: still(r), line: () => ['postdate', 'recur', 'remove', r.name],
    run: async (v, dry) => { await ask('DELETE', one(r.name)); return { text: 'It is removed.', undo: { text: 'Undo: set it again', run: async () => {
        await ask('PUT', one(r.name), { body: definition(dry.now) });
        if (dry.now.paused)
            await change(r, 'pause');
        return { text: 'It is set again, as it was.' };
    } } }; } });
const actions = r => [r.paused ? actButton('Resume …', resume(r)) : actButton('Pause …', pause(r)), actButton('Run now …', runNow(r)), actButton('Remove …', remove(r), { class: 'danger' })];

const utc = at => h('time', { datetime: at, title: `${stamp(at, false)} here` }, stamp(at, true), ' ', h('span', { class: 'faint' }, ago(at)));
// In the schedule's own zone, with UTC beside it.
const zoned = (r, at) => {
    const own = at && r.zone !== 'UTC' && stampIn(r.zone, at);
    return !at ? '–' : own ? h('time', { datetime: at, title: `${stamp(at, false)} here` }, own, ' ', h('span', { class: 'faint' }, stamp(at, true)), ' ', h('span', { class: 'faint' }, ago(at))) : utc(at);
};
const last = r => !r.last_at ? 'never' : [zoned(r, r.last_at), ' ', r.last_state ? chip(r.last_state) : 'gone',
    r.last_state === 'delivered' && r.last_lateness_ms !== null ? h('span', { class: 'faint' }, ` ${span(r.last_lateness_ms)} late`) : null, leftOut(r)];
const times = list => list.length ? table('Next times', [['In its own zone', t => h('span', { class: 'mono' }, t.local)], ['UTC', t => utc(t.at)],
    ['Clock change', t => t.mark ? chip(t.mark, 'busy') : '–']], list) : empty('There is no next time.');

const PREVIEW = [{ name: 'cron', label: 'Expression' }, { name: 'dialect', label: 'Day of week 1 is', choices: [['', 'as written'], ['cron', 'Monday (cron, Spring)'], ['quartz', 'Sunday (Quartz)']] }, { name: 'zone', label: 'Time zone' }, { name: 'n', label: 'How many' }];

export const recurring = {
    title: () => 'Recurring schedules',
    every: 5000,
    load: async (at, signal) => {
        const { cron, dialect, zone, n, page_token } = at.params;
        const [list, preview] = await Promise.all([offered('v1/recurring' + query({ page_size: 100, page_token }), { signal }),
            cron ? offered('v1/recurring:preview' + query({ cron, dialect, zone, n }), { signal }).catch(e => { if (e.status >= 400 && e.status < 500 && e.status !== 401) return { refused: e.message }; throw e; }) : null]);
        return { list, preview };
    },
    view: ({ list, preview }, at) => {
        if (!list)
            return notOffered('Recurring schedules over HTTP are not part of this version; the command line has them: postdate recur list.');
        const rows = list.recurring || list.schedules || [], { page_token, ...shown } = at.params;
        return [h('div', { class: 'buttons' }, actButton('Set a schedule …', setSchedule(), { class: 'primary' })), h('section', { id: 'results', tabindex: '-1', 'aria-label': 'Schedules' }, rows.length ? [table('Recurring schedules', [
            ['Name', r => h('a', { href: route(['recurring', r.name]) }, name(r.name))], ['State', r => chip(stateOf(r), tone[stateOf(r)])],
            ['Expression', r => h('span', { class: 'mono' }, name(r.cron))], ['Zone', r => r.zone], ['Routing key', r => name(r.routing_key)], ['Next', r => r.paused ? '–' : zoned(r, r.next_at), 'nowrap'],
            ['Last', last], ['Actions', r => h('div', { class: 'buttons' }, actions(r))]], rows, r => r.name), pager(['recurring'], at.params, rows.length, list.next_page_token)]
            : empty('There are no recurring schedules.', ['Set one: ', h('code', null, 'postdate recur set report --cron \'0 9 * * mon-fri\' --zone Europe/Berlin -k report.daily --body x')])),
        card('Preview an expression', h('p', null, 'Five fields, six with the second first, seven with the year last; @daily, @every 90s. Days on which the clock changes are marked.'),
            filterForm(['recurring'], PREVIEW, { zone: zoneName(), n: '10', ...shown }),
            preview?.refused && h('p', { class: 'notice bad', role: 'alert' }, preview.refused), preview?.times && times(preview.times),
            at.params.cron && commandLine('postdate', 'recur', 'preview', '--cron', at.params.cron, at.params.dialect ? ['--dialect', at.params.dialect] : [], at.params.zone ? ['--zone', at.params.zone] : [], at.params.n ? ['-n', at.params.n] : []))];
    },
};

export const recurringOne = {
    title: at => `Schedule ${at.name}`,
    every: 5000,
    load: async (at, signal) => {
        const r = await offered(one(at.name), { signal });
        const [next, history] = r ? await Promise.all([offered('v1/recurring:preview' + query({ name: at.name, n: 10 }), { signal }),
            offered(`${one(at.name)}:history`, { signal }).catch(() => null)]) : [];
        return { r, next, history };
    },
    view: ({ r, next, history }, at) => r ? [h('p', null, h('a', { href: '#/recurring' }, 'All schedules')),
        h('section', { class: 'card' }, h('h2', null, 'What it is'), facts([['State', chip(stateOf(r), tone[stateOf(r)])], ['Expression', h('span', { class: 'mono' }, name(r.cron))], r.dialect && ['Dialect', r.dialect], ['Zone', r.zone],
            ['Exchange', exchangeName(r.exchange)], ['Routing key', name(r.routing_key)], r.next_at && ['Next', zoned(r, r.next_at)],
            r.next_id && ['Next message', h('a', { href: route(['messages', r.next_id]) }, h('code', null, r.next_id))], ['Last', last(r)],
            r.last_id && ['Last message', h('a', { href: route(['messages', r.last_id]) }, h('code', null, r.last_id))], r.error && ['Error', h('span', { class: 'bad-text' }, name(r.error))],
            r.held_by === 'overlap' && ['Held by', h('span', { class: 'bad-text' }, 'the last message: until it is done, further occurrences are left out')],
            ['Missed occurrences', r.missed], ['Grace', r.grace], ['Jitter', r.jitter], ['If the clock skips it', r.dst], ['While the previous one waits', r.overlap],
            r.from && ['From', zoned(r, r.from)], r.until && ['Until', zoned(r, r.until)], r.changed_at && ['Changed', [bothTimes(r.changed_at), ' by ', name(r.changed_by)]]]),
        h('div', { class: 'buttons' }, actButton('Change …', setSchedule(r)), actions(r)), commandLine('postdate', 'recur', 'show', r.name)),
        next?.times && card('Next times', times(next.times)),
        history?.changes?.length > 0 && card('Changes', table('Changes', [['At', c => time(c.at), 'nowrap'], ['What', c => c.what], ['Who', c => name(c.who)]], history.changes.slice(0, 50))),
        contentView(r, at)]
        : notOffered('Recurring schedules over HTTP are not part of this version; the command line has them: postdate recur show.'),
};

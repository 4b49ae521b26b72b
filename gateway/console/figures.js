// What the gateway says of itself, with a plain reading of each: what is wrong, and what to do about it.
import { offered, Problem } from './api.js';
import { ago, CAP, counted, number, plural, span } from './words.js';

// What the figures show is said here, with numbers; of the gateway's own findings, these are the same.
const SHOWN_BY_FIGURES = ['database', 'broker', 'broker.blocked', 'messages.overdue', 'locked_days', 'messages.failed',
    'destinations', 'destinations.refusing', 'messages.retrying'];

const howMany = n => n >= CAP ? `${counted(n)} messages` : plural(n, 'message');

// {id, bad, text, remedy, line, see: the messages that it is about}
export function findings(stats, more) {
    const list = [];
    const add = (id, bad, text, remedy, line, see) => list.push({ id, bad, text, remedy, line, see });
    if (stats.database === 'away')
        add('database', true, 'The database does not answer, or does not accept writes.', 'No new messages are stored. Messages that RabbitMQ holds are still delivered. Check PostgreSQL and postgres.url.', ['postdate', 'doctor']);
    if (stats.broker === 'away')
        add('broker', true, 'RabbitMQ cannot be reached.', 'Messages wait in the database until RabbitMQ is reachable again. Check RabbitMQ and amqp.url.', ['postdate', 'doctor']);
    if (stats.broker === 'blocked')
        add('broker', true, 'RabbitMQ blocks publishers: it is short of memory or disk.', 'Free memory or disk on its nodes: rabbitmq-diagnostics alarms names them.', ['rabbitmq-diagnostics', 'alarms']);
    if (stats.gateways === 0)
        add('gateways', true, 'No gateway has sent a heartbeat lately.', 'Start postdated on one machine at least.', ['systemctl', 'start', 'postdated']);
    if (stats.overdue?.count > 0)
        add('overdue', true, `${howMany(stats.overdue.count)} more than a second overdue${stats.overdue.oldest ? `, the oldest was due ${ago(stats.overdue.oldest)}` : ''}.`,
            'A burst drains without help. Otherwise a target rejects messages, or a server is slow: doctor checks both.', ['postdate', 'doctor']);
    for (const day of stats.locked_days || [])
        add('locked ' + day, true, `Another session has locked ${day === 'message' ? 'the whole message table' : `the messages due on ${day}`}.`, 'They wait until its transaction ends. pg_stat_activity shows the session.', null);
    if (stats.messages?.failed > 0)
        add('failed', false, `${howMany(stats.messages.failed)} could not be delivered.`, 'Their errors have the cause. Correct it, then retry them.', ['postdate', 'list', '--state', 'failed'], { text: 'Show them', state: 'failed' });
    if (stats.window?.messages !== null && stats.window?.messages >= stats.window?.max_messages)
        add('window', false, `RabbitMQ holds as many messages as it may (${number(stats.window.max_messages)}).`, 'The others wait in the database and are delivered from there. handover.max_messages sets the limit.', null);
    if (stats.stalled > 0)
        add('destinations', false, `RabbitMQ confirms nothing for ${plural(stats.stalled, 'exchange and routing key', 'exchanges and routing keys')}.`, 'Does a queue behind them have no majority of its nodes? Those messages wait; all others are published.', null);
    if (stats.refusing > 0)
        add('destinations.refusing', false, `Messages for ${plural(stats.refusing, 'address', 'addresses')} cannot be delivered and are tried again.`, 'A queue is full or not bound, an exchange is missing or may not be written to: the log names each with the reason. All others are published.', ['postdate', 'list', '--retrying'], { text: 'Show them', state: 'retrying' });
    else if (stats.retrying > 0)
        add('messages.retrying', false, `${howMany(stats.retrying)} not delivered or in doubt (unconfirmed), and tried again.`, 'Their errors have the cause.', ['postdate', 'list', '--retrying'], { text: 'Show them', state: 'retrying' });
    for (const f of more?.findings || [])
        if (!SHOWN_BY_FIGURES.includes(f.name))
            add(f.name, f.severity === 'error', `${f.text[0].toUpperCase()}${f.text.slice(1)}.`, f.remedy, null);
    return list;
}

// What is about all exchanges a token for some of them may not see: that is said in its place, and the rest is shown.
async function seen(path, signal) {
    try {
        return await offered(path, { signal });
    } catch (e) {
        if (e instanceof Problem && e.status === 403)
            return { refused: e.message };
        throw e;
    }
}
export const overviewOf = signal => seen('v1/overview', signal);
export const sloOf = signal => seen('v1/slo', signal);

const EXCHANGES_SHOWN = 5;
export const HORIZONS = { '1h': [3600e3, '1m'], '6h': [6 * 3600e3, '5m'], '24h': [24 * 3600e3, '15m'], '7d': [7 * 86400e3, '2h'] };

const MINUTE = 60e3, HOUR = 3600e3;
const forecastBetween = (from, until, step, signal) => seen('v1/forecast?' + new URLSearchParams({ from: new Date(from).toISOString(), until: new Date(until).toISOString(), step }), signal);

export async function forecastOf(horizon, signal) {
    const [length, step] = HORIZONS[horizon] || HORIZONS['6h'], from = Math.floor(Date.now() / MINUTE) * MINUTE;
    const answer = await forecastBetween(from, from + length, step, signal);
    return answer && !answer.refused ? readForecast(answer) : answer;
}

// By exchange, what is due from the next minute on. The hour that began has what was delivered in it already, so its rest is asked for by minutes.
export async function dueWithin(length, signal) {
    const from = Math.ceil(Date.now() / MINUTE) * MINUTE, hour = Math.ceil(from / HOUR) * HOUR, totals = new Map();
    const answers = await Promise.all([forecastBetween(hour, from + length, '1h', signal), from < hour && forecastBetween(from, hour, '1m', signal)].filter(Boolean));
    for (const answer of answers) {
        if (!answer || answer.refused)
            return null;
        for (const b of answer.buckets)
            b.by_exchange.forEach((n, i) => totals.set(answer.exchanges[i], (totals.get(answer.exchanges[i]) || 0) + n));
    }
    return totals;
}

// Buckets with nothing in them are left out there; a chart wants them. Exchanges come with the most first.
export function readForecast(answer) {
    const from = new Date(answer.from).getTime(), until = new Date(answer.until).getTime(), step = answer.step_ms;
    const names = answer.exchanges, first = names.slice(0, EXCHANGES_SHOWN);
    const found = new Map(answer.buckets.map(b => [new Date(b.at).getTime(), b]));
    const bursts = answer.bursts.map(b => ({ at: new Date(b.at).getTime(), count: b.count, drain: b.drain_ms }));
    const rows = [];
    for (let at = from; at < until && rows.length < 1500; at += step) {
        const b = found.get(at) || { count: 0, by_exchange: [] }, counts = names.map((n, i) => b.by_exchange[i] || 0);
        const rest = b.count - counts.slice(0, first.length).reduce((sum, c) => sum + c, 0), burst = bursts.find(x => x.at === at);
        rows.push({ at, until: at + step, count: b.count, parts: [...first.map((n, i) => ({ name: n, count: counts[i] })), ...(rest > 0 ? [{ name: 'others', count: rest }] : [])],
            mark: burst ? `a burst: draining takes ${span(burst.drain)}` : null });
    }
    return { rows, bursts, answer };
}

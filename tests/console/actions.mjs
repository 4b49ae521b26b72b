// Every action: what it will touch is seen first, the command line is beside it, it is done, and undone where that is possible.
import { audit, check, follow, open, run, same, settings, until, visit, watched } from './kit.mjs';

const { browser, context } = await open();
const page = await watched(context);
const api = async (method, path, body) => {
    const answer = await fetch(settings.url + path, { method, headers: body ? { 'Content-Type': 'application/json' } : {}, body: body && JSON.stringify(body) });
    return answer.json();
};
const schedule = (key, more = {}) => api('POST', '/v1/messages', { exchange: 'orders', routing_key: 'act', key, delay: '9h', body: 'x', ...more });
const state = async id => (await api('GET', `/v1/messages/${id}`)).state;

// Opens the dialog, waits for its dry run, and returns what it says.
async function look(button, within = page) {
    await within.getByRole('button', { name: button }).click();
    await page.waitForSelector('dialog[open]');
    await until('the dry run', async () => !/Looking/.test(await page.locator('#act-found').innerText()));
    return { text: await page.locator('#act-found').innerText(), line: await page.locator('dialog code').innerText(), possible: await page.locator('#act-go').isEnabled() };
}
async function confirm() {
    await page.locator('#act-go').click();
    return page.locator('#act-result').innerText();
}
async function undo(text) {
    await page.locator('#act-undo').click();
    await until(`"${text}"`, async () => text.test(await page.locator('#act-result').innerText().catch(() => '')));
}
const close = async () => {
    await page.locator('dialog .close').click();
    await until('the dialog to close', async () => await page.locator('dialog').count() === 0);
};

const tests = {
    'cancel a message': async () => {
        const m = await schedule('cancel');
        await visit(page, `messages/${m.id}`);
        const found = await look('Cancel …');
        check(/scheduled/.test(found.text) && found.line === `postdate cancel ${m.id}`, JSON.stringify(found));
        same(await state(m.id), 'scheduled', 'after looking only');
        check(/cancelled/.test(await confirm()), 'the result');
        same(await state(m.id), 'cancelled', 'the message');
        await close();
        await page.getByText('It was erased when').waitFor();
        same(await page.getByRole('button', { name: 'Cancel …' }).count(), 0, 'the button is gone');
    },
    'reschedule a message, and undo it': async () => {
        const m = await schedule('move');
        await visit(page, `messages/${m.id}`);
        await look('Reschedule …');
        await page.getByLabel('New time').fill('soon');
        await page.getByText('This is neither a duration nor a time').waitFor();
        check(!await page.locator('#act-go').isEnabled(), 'a wrong time can be sent');
        await page.getByLabel('New time').fill('2h');
        await until('the dry run', () => page.locator('#act-go').isEnabled());
        same(await page.locator('dialog code').innerText(), `postdate reschedule ${m.id} --delay 2h`, 'the command line');
        check(/with the id/.test(await confirm()), 'the result');
        const moved = await api('GET', `/v1/messages/${m.id}`);
        check(moved.id !== m.id && new Date(moved.due_at) < Date.now() + 3 * 3600e3, 'it was not moved');
        await undo(/^It is due at .* again\.$/);
        same((await api('GET', `/v1/messages/${m.id}`)).due_at, m.due_at, 'the time after undoing');
        await close();
    },
    'a message that is too late says so': async () => {
        await visit(page, `messages/${settings.failed}`);
        await page.getByRole('button', { name: 'Retry …' }).waitFor();
        const m = await schedule('late');
        await visit(page, `messages/${m.id}`);
        await page.getByRole('button', { name: 'Cancel …' }).waitFor();
        await api('DELETE', `/v1/messages/${m.id}`);
        const found = await look('Cancel …');
        check(!found.possible && /nothing is left to do/.test(found.text), JSON.stringify(found));
        await close();
    },
    'retry a failed message': async () => {
        await visit(page, `messages/${settings.failed}`);
        const found = await look('Retry …');
        check(found.possible && found.line === `postdate retry ${settings.failed}`, JSON.stringify(found));
        check(/^It (is tried|failed) again\.$/.test(await confirm()), 'the result'); // the exchange is still missing, which a quick gateway has found out
        await close();
        await until('it to fail again', async () => (await api('GET', `/v1/messages/${settings.failed}`)).attempts >= 1 && await state(settings.failed) === 'failed');
    },
    'what is refused is listed with its next attempt, and tried now: in the list, on its page, and all that match': async () => {
        await visit(page, '');
        await follow(page, () => page.getByRole('link', { name: /^Retrying/ }).click());
        const rows = page.locator('tbody tr', { hasText: 'again-' });
        same(await rows.count(), 4, 'messages that are tried again');
        check(/1 attempt/.test(await rows.first().innerText()) && /next [^]*in 1 h 5\d min/.test(await rows.first().innerText()), JSON.stringify(await rows.first().innerText()));
        const [first, second] = await rows.locator('a').evaluateAll(all => all.slice(0, 2).map(a => a.hash.split('/')[2]));
        let found = await look('Try now …', rows.first());
        check(found.possible && found.line === `postdate retry ${first}`, JSON.stringify(found));
        check(/^It is (tried now|delivered)\.$/.test(await confirm()), 'the result');
        await close();
        await until('its delivery', async () => await state(first) === 'delivered');
        await visit(page, `messages/${second}`);
        check(/Next attempt\s+\d{4}-/.test(await page.locator('main').innerText()), 'the next attempt on its page');
        await look('Try now …');
        await confirm();
        await close();
        await until('its delivery', async () => await state(second) === 'delivered');
        await visit(page, 'messages?state=retrying&exchange=not-yet');
        found = await look('Try them now …');
        same(found.line, 'postdate retry --state retrying --exchange not-yet', 'the command line');
        check(/^2 messages are/.test(found.text), found.text);
        same(await confirm(), '2 of 2 are tried now.', 'the result');
        await close();
        await page.getByText('No message matches.').waitFor();
    },
    'forms: a message, with its headers as they are written': async () => {
        await visit(page, 'messages');
        await page.getByRole('button', { name: 'Schedule a message …' }).click();
        await page.waitForSelector('dialog[open]');
        await audit(page, 'the form of a message');
        for (const [label, text] of [['Exchange', 'orders'], ['Routing key', 'made'], ['When', '2h'], ['Key', 'made-1'], ['Body', 'two\nlines'], ['Headers', '{"n": 1970670598291982290, "s": "x"}']])
            await page.locator('dialog').getByLabel(label, { exact: true }).fill(text);
        await until('the dry run', async () => await page.locator('#act-go').isEnabled() && /--header n=1970670598291982290 --header s=x --body/.test(await page.locator('dialog code').innerText()) && !/^Looking/.test(await page.locator('#act-found').innerText()));
        check(/^One message, due in (2 h|1 h 59 min)/.test(await page.locator('#act-found').innerText()), await page.locator('#act-found').innerText());
        const id = /with the id (\S+)\.$/.exec(await confirm())?.[1];
        const text = await (await fetch(`${settings.url}/v1/messages/${id}?view=full`)).text();
        check(/"n": ?1970670598291982290\b/.test(text) && /"key": ?"made-1"/.test(text) && /two\\nlines/.test(text), text);
        await undo(/^It is cancelled\.$/);
        same(await state(id), 'cancelled', 'the message');
        await close();
    },
    'forms: a policy and a rate, set, changed, undone; a rate paused and resumed': async () => {
        await visit(page, 'exchanges');
        await page.getByRole('button', { name: 'Set a policy …' }).click();
        await page.locator('dialog').getByLabel('Queues').fill('made.*');
        await page.locator('dialog').getByLabel('Deliveries in all').fill('7');
        await until('the dry run', () => page.locator('#act-go').isEnabled());
        same(await confirm(), 'It is set.', 'the result');
        same((await api('GET', '/v1/retry-policies/made.*')).attempts, 7, 'the policy');
        await undo(/^It is removed\.$/);
        same((await api('GET', '/v1/retry-policies/made.*')).status, 404, 'the policy');
        await close();
        await page.getByRole('button', { name: 'Set a rate …' }).click();
        await page.locator('dialog').getByLabel('Exchanges').fill('made');
        await page.locator('dialog').getByLabel('Rate', { exact: true }).fill('60/min');
        await until('the dry run', () => page.locator('#act-go').isEnabled());
        check((await page.locator('dialog code').innerText()) === 'postdate rate set made 60/min', await page.locator('dialog code').innerText());
        same(await confirm(), 'It is set.', 'the result');
        await close();
        const row = () => page.locator('tr', { hasText: 'made' });
        same((await look('Pause …', row())).line, 'postdate rate pause made', 'the command line');
        same(await confirm(), 'It is paused.', 'the result');
        check((await api('GET', '/v1/rates/made')).paused, 'it is not paused');
        await undo(/^It is resumed\.$/);
        check(!(await api('GET', '/v1/rates/made')).paused, 'it is not resumed');
        await close();
        await api('DELETE', '/v1/rates/made');
    },
    'forms: a schedule is set, and changed with all that the form does not have': async () => {
        await visit(page, 'recurring');
        await page.getByRole('button', { name: 'Set a schedule …' }).click();
        for (const [label, text] of [['Name', 'made'], ['Expression', '0 9 * * mon-fri'], ['Time zone', 'Europe/Berlin'], ['Routing key', 'made'], ['Body', 'x']])
            await page.locator('dialog').getByLabel(label, { exact: true }).fill(text);
        await until('the dry run', async () => await page.locator('#act-go').isEnabled() && /^Next: .*09:00/.test(await page.locator('#act-found').innerText()));
        check(/^It is set, next in/.test(await confirm()), 'the result');
        await undo(/^It is removed\.$/);
        same((await api('GET', '/v1/recurring/made')).status, 404, 'the schedule');
        await close();
        const address = `${settings.url}/v1/recurring/made`;
        await fetch(address, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '{"cron":"@daily","routing_key":"k","body":"x","grace":"5m","headers":{"tenant":1970670598291982290,"price":10.0}}' });
        await visit(page, 'recurring/made');
        await look('Change …');
        await page.locator('dialog').getByLabel('Expression').fill('@hourly');
        await until('the dry run', async () => await page.locator('#act-go').isEnabled() && /@hourly/.test(await page.locator('dialog code').innerText()));
        check(/^It is set/.test(await confirm()), 'the result');
        const changed = await (await fetch(address)).text();
        check(/"cron": ?"@hourly"/.test(changed) && /1970670598291982290/.test(changed) && /10\.0/.test(changed) && /"grace": ?"5m"/.test(changed), changed);
        await undo(/^It is set as it was\.$/);
        check(/"cron": ?"@daily"/.test(await (await fetch(address)).text()), 'it is as it was');
        await close();
        await fetch(address, { method: 'DELETE' });
    },
    'end a message in doubt': async () => {
        await visit(page, `messages/${settings.doubt}`);
        const found = await look('End it …');
        check(found.possible && /which is claimed/.test(found.text) && found.line === `postdate fail ${settings.doubt}`, JSON.stringify(found));
        same(await confirm(), 'It is failed.', 'the result');
        await close();
        const m = await api('GET', `/v1/messages/${settings.doubt}`);
        check(m.state === 'failed' && /may have been delivered/.test(m.error), JSON.stringify(m));
        await page.getByRole('button', { name: 'Retry …' }).waitFor();
    },
    'a long change tells how far it is': async () => {
        for (let i = 0; i < 4; i++)
            await schedule(`long-${i}`, { routing_key: 'long' });
        await visit(page, 'messages?routing_key=long');
        await look('Cancel them …');
        let release;
        const seen = new Promise(go => { release = go; });
        await page.route('**/v1/messages:cancel', async r => { // the change is under way until its progress has been seen
            if (!r.request().postDataJSON().dry_run)
                await seen;
            await r.continue();
        });
        await page.locator('#act-go').click();
        await page.getByText('0 of 4', { exact: true }).waitFor();
        same(await page.locator('progress').getAttribute('value'), '0', 'the bar');
        check(await page.locator('dialog .close').isDisabled(), 'it can be closed meanwhile');
        await page.keyboard.press('Escape');
        check(await page.locator('dialog[open]').count() === 1, 'it closes meanwhile');
        release();
        same(await page.locator('#act-result').innerText(), '4 of 4 cancelled.', 'the result');
        await page.unroute('**/v1/messages:cancel');
        await close();
    },
    'cancel, reschedule and retry by filter': async () => {
        for (let i = 0; i < 5; i++)
            await schedule(`bulk-${i}`, { routing_key: 'it\'s bulk $(x)' });
        await visit(page, `messages?routing_key=${encodeURIComponent('it\'s bulk $(x)')}`);
        let found = await look('Reschedule them …');
        check(/^5 messages are/.test(found.text), found.text);
        same(found.line, 'postdate reschedule --state waiting --routing-key \'it\'\\\'\'s bulk $(x)\' --shift=1h', 'the command line');
        same(await confirm(), '5 of 5 rescheduled.', 'the result');
        await close();
        await visit(page, 'messages?routing_key=it*');
        found = await look('Cancel them …');
        check(/^No message/.test(found.text), found.text);
        same(found.line, "postdate cancel --state waiting --routing-key 'it\\*'", 'the command line, which would touch no more than this');
        await close();
        await visit(page, `messages?routing_key=${encodeURIComponent('it\'s bulk $(x)')}`);
        found = await look('Cancel them …');
        check(/^5 messages are/.test(found.text), found.text);
        same(await confirm(), '5 of 5 cancelled.', 'the result');
        await close();
        found = await look('Cancel them …');
        check(!found.possible, 'cancelled messages can be cancelled');
        await close();
        await visit(page, 'messages?state=failed');
        found = await look('Retry them …');
        check(/^4 messages are/.test(found.text) && found.line === 'postdate retry --state failed', JSON.stringify(found));
        same(await confirm(), '4 of 4 to be tried again.', 'the result');
        await close();
    },
    'delete dead letters by group and by filter': async () => {
        await visit(page, 'dead');
        let found = await look('Delete …', page.locator('tbody tr', { hasText: 'bounce.0' }));
        same([found.text, found.line], ['2 dead letters.', "postdate dead drop --queue mail.bounces --reason rejected --exchange mail --routing-key bounce.0"], 'the dry run');
        same(await confirm(), '2 of 2 deleted.', 'the result');
        await close();
        await page.locator('tbody tr', { hasText: 'bounce.0' }).waitFor({ state: 'detached' });
        await visit(page, 'dead/list?queue=mail.*');
        found = await look('Delete …');
        same([found.text, found.line], ['2 dead letters.', "postdate dead drop --queue 'mail.*'"], 'the dry run');
        same(await confirm(), '2 of 2 deleted.', 'the result');
        await close();
        await page.getByText('No dead letter matches.').waitFor();
        same((await api('GET', '/v1/dead?queue=mail.*')).dead_letters, [], 'what is left of them');
    },
    'requeue dead letters with a rate, drop one': async () => {
        await visit(page, `dead/${settings.dead}?queue=invoices.new`);
        let found = await look('Delete …');
        same([found.text, found.line], ['1 dead letter.', `postdate dead drop ${settings.dead}`], 'the dry run');
        same(await confirm(), '1 of 1 deleted.', 'the result');
        await close();
        await page.getByRole('heading', { name: 'Not found' }).or(page.getByText('no dead letter')).first().waitFor();
        await visit(page, 'dead');
        found = await look('Send back …', page.locator('tbody tr').first());
        same(found.text, '5 dead letters.', 'the dry run');
        await page.getByLabel('Rate').fill('quickly');
        await page.getByText('Write a rate such as').waitFor();
        await page.getByLabel('Rate').fill('100/s');
        await until('the dry run', () => page.locator('#act-go').isEnabled());
        check((await page.locator('dialog code').innerText()).endsWith('--rate 100/s'), 'the command line');
        check(/^5 of 5 requeued/.test(await confirm()), 'the result');
        await close();
        await until('no dead letters', async () => (await api('GET', '/v1/dead')).dead_letters.length === 0);
    },
};
if (settings.offers.includes('/v1/recurring'))
    tests['recurring: pause, resume, run, remove and undo'] = async () => {
        await visit(page, 'recurring');
        const row = () => page.locator('tr', { hasText: 'report' }).first();
        check(/"report"/.test((await look('Pause …', row())).text), 'the dry run');
        same(await confirm(), 'It is paused.', 'the result');
        check((await api('GET', '/v1/recurring/report')).paused, 'it is not paused');
        await undo(/^It is resumed\.$/);
        check(!(await api('GET', '/v1/recurring/report')).paused, 'it is not resumed');
        await close();
        await look('Run now …', row());
        check(/is due now/.test(await confirm()), 'the result');
        await close();
        const before = await api('GET', '/v1/recurring/report');
        same((await look('Remove …', row())).line, 'postdate recur remove report', 'the command line');
        same(await confirm(), 'It is removed.', 'the result');
        check((await api('GET', '/v1/recurring/report')).status === 404, 'it is still there');
        await undo(/^It is set again, as it was\.$/);
        const after = await api('GET', '/v1/recurring/report');
        const sent = r => ['cron', 'zone', 'exchange', 'routing_key', 'body', 'headers', 'properties', 'missed', 'grace', 'jitter', 'dst', 'overlap', 'paused'].map(k => [k, r[k]]);
        same(sent(after), sent(before), 'what was set again');
        await close();
    };
if (settings.offers.includes('/v1/recurring'))
    tests['recurring: a removed schedule that is set again has the same numbers, and shows them'] = async () => {
        const address = `${settings.url}/v1/recurring/exact`, JSON_TYPE = { 'Content-Type': 'application/json' };
        const body = '{"cron":"@daily","exchange":"orders","routing_key":"k","json":{"id":1970670598291982290},"headers":{"tenant":1970670598291982290,"price":10.0,"s":"a\\"},{"}}';
        same((await fetch(address, { method: 'PUT', headers: JSON_TYPE, body })).status, 201, 'setting it');
        const kept = async () => /"headers":\s*\{.*?\}\s*,\s*"properties"/s.exec(await (await fetch(address)).text())[0];
        const before = await kept();
        check(/1970670598291982290/.test(before) && /10\.0/.test(before), `the gateway keeps others: ${before}`);
        await visit(page, 'recurring/exact');
        const shown = await page.locator('main').innerText();
        check(/1970670598291982290/.test(shown) && /\b10\.0\b/.test(shown) && shown.includes('a"},{'), `it shows others: ${shown}`);
        await look('Remove …');
        await confirm();
        await undo(/^It is set again, as it was\.$/);
        same(await kept(), before, 'what was set again');
        await close();
        await look('Remove …');
        await confirm();
        await close();
    };
if (settings.offers.includes('/v1/recurring'))
    tests['recurring: every action on a schedule\'s own page'] = async () => {
        const now = () => api('GET', '/v1/recurring/cleanup');
        await visit(page, 'recurring/cleanup');
        let found = await look('Resume …');
        check(found.possible && /"cleanup", paused/.test(found.text) && found.line === 'postdate recur resume cleanup', JSON.stringify(found));
        same(await confirm(), 'It is resumed.', 'the result');
        check(!(await now()).paused, 'it is still paused');
        await undo(/^It is paused\.$/);
        check((await now()).paused, 'it is not paused again');
        await close();
        await look('Resume …');
        await confirm();
        await close();
        await look('Pause …');
        same(await confirm(), 'It is paused.', 'the result');
        await close();
        found = await look('Run now …');
        check(/One message to "cleanup"/.test(found.text) && found.line === 'postdate recur run cleanup', JSON.stringify(found));
        const id = /The message (\S+) is due now/.exec(await confirm())?.[1];
        check(['delivered', 'failed', 'claimed', 'scheduled'].includes(await state(id)), `the message ${id}`);
        await close();
        same((await look('Remove …')).line, 'postdate recur remove cleanup', 'the command line');
        same(await confirm(), 'It is removed.', 'the result');
        same((await now()).status, 404, 'it');
        await undo(/^It is set again, as it was\.$/);
        check((await now()).paused, 'it was paused');
        await close();
    };
tests['nothing went wrong in the page'] = async () => same(page.wrong, [], 'the page');
await run(tests);
await browser.close();

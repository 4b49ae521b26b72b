// What strangers write, in a real browser: keys, routing keys, headers, bodies, errors and addresses. It is text and stays text.
import { check, follow, naughty, open, run, same, settings, until, visit, watched } from './kit.mjs';

const MARKUP = ['<img src=x onerror=alert(1)>', '<script>alert(1)</script>', '"><svg onload=alert(1)>', '\' onfocus=alert(1) autofocus=\'', 'javascript:alert(1)', '{{7*7}}${7*7}', '</title><script>alert(1)</script>',
    '\u202egnp.exe\u202c', 'tag\udb40\udc41\udb40\udc42 filler\u3164', '\u0000', '../../../etc/passwd', '%3Cscript%3E', '#/messages', '__proto__', 'constructor', 'toString'];
const texts = [...new Set([...MARKUP, ...naughty])].filter(s => typeof s === 'string');
const { browser, context } = await open();
const page = await watched(context);
const post = (path, body) => fetch(settings.url + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
const shorten = (s, bytes) => { let t = s.replaceAll('\0', ''); while (Buffer.byteLength(t) > bytes) t = t.slice(0, -1); return t.replace(/[\ud800-\udbff]$/, ''); };

// Characters that hide or reorder are shown as numbers, those beyond the first plane as JSON writes them.
const unseen = c => !'\t\n\r\u200c\u200d'.includes(c) && !/\p{Variation_Selector}/u.test(c) && /[\p{Cc}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\u2028\u2029\ufff9-\ufffb]/u.test(c);
const numbered = c => c.split('').map(half => '\\u' + half.charCodeAt(0).toString(16).padStart(4, '0')).join('');
const visible = s => Array.from(s, c => unseen(c) ? numbered(c) : c).join('');

await run({
    'hostile text in keys, routing keys, headers and bodies stays text': async () => {
        const messages = texts.map((s, i) => ({ exchange: 'orders', routing_key: shorten(s, 255), key: shorten(`${i} ${s}`, 255), delay: '7h', body: s.isWellFormed() ? s : 'x', headers: { [shorten(s, 200) || 'empty']: s, n: i }, properties: { type: shorten(s, 200), app_id: shorten(s, 100) } }));
        const ids = [];
        for (let i = 0; i < messages.length; i += 200) {
            const { results } = await (await post('/v1/messages', { messages: messages.slice(i, i + 200) })).json();
            ids.push(...results.filter(r => r.id).map(r => r.id));
        }
        check(ids.length > texts.length * 0.95, `${ids.length} of ${texts.length} were accepted`);
        const near = new Date(Date.now() + 6.9 * 3600e3).toISOString();
        const hash = `messages?due_after=${encodeURIComponent(near)}`;
        let seen = 0, pages = 0;
        await visit(page, hash);
        for (;;) {
            seen += await page.locator('#results tbody tr').count();
            const next = page.getByRole('link', { name: 'Next page' });
            if (++pages > 30 || !await next.count())
                break;
            await follow(page, () => next.click());
        }
        check(seen >= ids.length, `${seen} rows for ${ids.length} messages`);
        settings.ids = ids;
    },
    'each of the worst on its own page, in every view, and in its dialogs': async () => {
        for (const id of settings.ids.slice(0, MARKUP.length)) {
            await visit(page, `messages/${id}?view=text`);
            same(await page.locator('main script, main img, main iframe, main svg[onload], main [onfocus]').count(), 0, `markup on the page of ${id}`);
        }
        await page.getByRole('button', { name: 'Cancel …' }).click();
        await until('the dry run', () => page.locator('#act-go').isEnabled());
        await page.keyboard.press('Escape');
        await visit(page, `messages?routing_key=${encodeURIComponent(MARKUP[0])}`);
        await page.getByRole('button', { name: 'Cancel them …' }).click();
        await until('the dry run', () => page.locator('#act-go').isEnabled());
        check((await page.locator('dialog').innerText()).includes(MARKUP[0]), 'the filter is not shown as it is');
        await page.keyboard.press('Escape');
    },
    'headers, properties and the body, in each view': async () => {
        for (let i = 0; i < texts.length; i += 60) {
            const some = texts.slice(i, i + 60).filter(s => s.isWellFormed() && s.trim() && !s.includes('\0')), headers = {};
            some.forEach((s, n) => { headers[`${n} ${shorten(s, 120)}`] = s; });
            const { id } = await (await post('/v1/messages', { exchange: 'orders', routing_key: 'headers', delay: '6h', headers, json: headers })).json();
            check(id, `a message with the headers from ${i} on`);
            await visit(page, `messages/${id}?view=json`);
            const shown = await page.evaluate(() => [...document.querySelectorAll('dl')].at(-1).textContent + [...document.querySelectorAll('dl')].at(-2).textContent);
            for (const s of some)
                check(shown.includes(visible(s)), `a header is not shown as it is: ${JSON.stringify(s)}`);
            const texts_ = { json: await page.locator('pre.json').textContent() };
            for (const [view, label] of [['text', 'Text'], ['hex', 'Hex']]) {
                await follow(page, () => page.getByRole('link', { name: label, exact: true }).click());
                texts_[view] = await page.locator(`pre.${view}`).textContent();
            }
            for (const view of ['json', 'text'])
                check(texts_[view].includes(visible(JSON.stringify(some.at(-1)))), `the body as ${view}`);
            const bytes = texts_.hex.split('\n').flatMap(row => row.slice(10, 57).trim().split(' ')).map(b => parseInt(b, 16));
            same(JSON.parse(Buffer.from(bytes).toString()), headers, 'the body in hex');
            same(await page.locator('main script, main img, main iframe, main [onfocus]').count(), 0, 'markup');
        }
    },
    'exchanges, queues, errors and names of schedules': async () => {
        const dead = [...new Set(settings.queues)];
        await visit(page, 'dead');
        let text = await page.locator('#results').textContent();
        for (const queue of dead)
            check(text.includes(queue), `a queue is not shown as it is: ${queue}`);
        for (const queue of dead) {
            await visit(page, `dead/list?queue=${encodeURIComponent(queue.replace(/[\\*]/g, '\\$&'))}`);
            await follow(page, () => page.locator('#results tbody a').first().click());
            check((await page.locator('main').textContent()).includes(queue), `the dead letter of ${queue}`);
        }
        const exchanges = MARKUP.map(s => shorten(s, 120)).filter(s => s && !s.startsWith('amq.'));
        for (const exchange of exchanges)
            await post('/v1/messages', { exchange, routing_key: exchange, delay_ms: 0, body: 'x', key: `failing ${exchange}` });
        const found = () => fetch(settings.url + '/v1/messages?state=failed&page_size=100').then(r => r.json()).then(r => r.messages);
        await until('all to fail', async () => (await found()).length >= exchanges.length, 30_000);
        await visit(page, 'messages?state=failed');
        text = await page.locator('#results').textContent();
        for (const m of await found()) {
            check(text.includes(visible(m.error)), `an error is not shown as it is: ${m.error}`);
            await visit(page, `messages/${m.id}`);
            check((await page.locator('main').textContent()).includes(visible(m.error)), `the error on the page of ${m.exchange}`);
        }
        let named = 0;
        for (const s of MARKUP) {
            const name = shorten(s, 100), answer = await fetch(`${settings.url}/v1/recurring/${encodeURIComponent(name)}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' },
                body: JSON.stringify({ cron: '@yearly', routing_key: s.replaceAll('\0', ''), body: s.replaceAll('\0', ''), exchange: 'orders' }) });
            if (!answer.ok)
                continue;
            named++;
            await visit(page, `recurring/${encodeURIComponent(name)}`);
            same(await page.locator('main script, main img, main iframe, main svg[onload]').count(), 0, `markup on the page of the schedule ${name}`);
            check((await page.locator('main').textContent()).includes(visible(name)), `the schedule ${name}`);
        }
        check(named >= 2, `${named} names of schedules were taken`);
        await visit(page, 'recurring');
        await visit(page, 'exchanges');
        same(await page.locator('main script, main img, main iframe, main svg[onload]').count(), 0, 'markup on the page of exchanges');
    },
    'characters that hide or reorder what stands beside them are shown as numbers': async () => {
        await visit(page, `messages?routing_key=${encodeURIComponent('\u202egnp.exe\u202c')}`);
        check((await page.locator('#results tbody').innerText()).includes('\\u202egnp.exe\\u202c'), 'a right-to-left override works in a routing key');
    },
    'addresses are hostile, too': async () => {
        for (const hash of ['%', 'messages/%E0%A4%A', 'messages/<img src=x onerror=alert(1)>', 'messages?state=%00', 'messages?page_token=<script>', 'dead/..%2f..%2fv1', 'messages?due_after=<b>', 'recurring?cron=<img onerror=alert(1)>',
            'messages/__proto__', '?ahead=constructor', 'exchanges?queue=%FF', `messages?key=${'x'.repeat(3000)}`]) {
            await page.evaluate(to => { document.querySelector('main').replaceChildren(); location.hash = to; }, '#/' + hash);
            await until('an answer', () => page.evaluate(() => document.querySelector('main h1')?.nextElementSibling && !document.querySelector('main > .loading')));
        }
    },
    'the policy holds where the page would not: text never becomes script or markup': async () => {
        await visit(page, '');
        same(page.wrong, [], 'the page');
        const tried = await page.evaluate(() => {
            const made = [];
            for (const [name, work] of Object.entries({ innerHTML: () => { document.body.innerHTML = '<p>x'; }, src: () => { document.createElement('script').src = 'data:,1'; } }))
                try { work(); made.push(name); } catch { /* as it should be */ }
            return made;
        });
        same(tried, [], 'what the browser allowed');
        await page.waitForTimeout(200); // it says what it refused
        await page.evaluate(() => { const a = document.createElement('a'); try { a.setAttribute('onclick', 'globalThis.ran = 1'); } catch { return; } document.body.append(a); a.click(); a.remove(); });
        same(await page.evaluate(() => globalThis.ran), undefined, 'an inline handler ran');
        await page.waitForTimeout(200);
        page.wrong.length = 0;
    },
    'nothing went wrong in the page': async () => same(page.wrong, [], 'the page'),
});
await browser.close();

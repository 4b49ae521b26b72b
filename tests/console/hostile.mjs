// What strangers write, in a real browser: keys, routing keys, headers, bodies, errors and addresses. It is text and stays text.
import { check, follow, naughty, open, run, same, settings, until, visit, watched } from './kit.mjs';

const MARKUP = ['<img src=x onerror=alert(1)>', '<script>alert(1)</script>', '"><svg onload=alert(1)>', '\' onfocus=alert(1) autofocus=\'', 'javascript:alert(1)', '{{7*7}}${7*7}', '</title><script>alert(1)</script>',
    '\u202egnp.exe\u202c', '\u0000', '../../../etc/passwd', '%3Cscript%3E', '#/messages', '__proto__', 'constructor', 'toString'];
const texts = [...new Set([...MARKUP, ...naughty])].filter(s => typeof s === 'string');
const { browser, context } = await open();
const page = await watched(context);
const post = (path, body) => fetch(settings.url + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
const shorten = (s, bytes) => { let t = s.replaceAll('\0', ''); while (Buffer.byteLength(t) > bytes) t = t.slice(0, -1); return t.replace(/[\ud800-\udbff]$/, ''); };

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

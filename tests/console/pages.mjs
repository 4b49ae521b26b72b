// Every page: it shows what there is, follows what changes, is read by axe, and fits narrow screens.
import { audit, check, follow, open, run, same, settings, until, visit, watched } from './kit.mjs';

const PAGES = { overview: '', messages: 'messages', 'found messages': 'messages?exchange=missing&state=failed', retrying: 'messages?state=retrying', 'no message': 'messages?key=nobody', message: `messages/${settings.message}`,
    'a failed message': `messages/${settings.failed}`, dead: 'dead', 'dead list': 'dead/list?queue=invoices.*', 'dead letter': `dead/${settings.dead}?queue=invoices.new`, recurring: 'recurring?cron=30+2+*+*+*&zone=Europe%2FBerlin&n=5',
    schedule: 'recurring/report', exchanges: 'exchanges?queue=invoices.new', gateways: 'gateways', settings: 'settings', unknown: 'nowhere' };
const { browser, context } = await open();
const page = await watched(context);
const api = (method, path, body) => fetch(settings.url + path, { method, headers: body ? { 'Content-Type': 'application/json' } : {}, body: body && JSON.stringify(body) }).then(r => r.json());

const goTo = async (name, hash) => name === 'unknown' ? page.goto(settings.url + '/#/' + hash).then(() => until('the page', () => page.evaluate(() => document.querySelector('main h1')?.textContent.includes('no such page')))) : visit(page, hash);

await run({
    'each page: axe finds nothing, light and dark; one heading of the first rank; it fits 320 and 3840 pixels': async () => {
        for (const [name, hash] of Object.entries(PAGES)) {
            await goTo(name, hash);
            if (name !== 'messages') { // the same as the found ones, and more of it
                await audit(page, name);
                await page.emulateMedia({ colorScheme: 'dark' });
                await audit(page, `${name}, dark`, ['color-contrast', 'link-in-text-block']);
                await page.emulateMedia({ colorScheme: 'light' });
            }
            same(await page.locator('h1').count(), 1, `headings of ${name}`);
            for (const width of [3840, 320, 1280]) {
                await page.setViewportSize({ width, height: 900 });
                const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
                check(wide <= 0, `${name} is ${wide} pixels wider than a screen of ${width}`);
            }
        }
    },
    'the menu of a narrow screen': async () => {
        await page.setViewportSize({ width: 320, height: 800 });
        await visit(page, 'settings');
        await page.getByRole('button', { name: 'Menu' }).click();
        await audit(page, 'the open menu');
        await page.getByRole('link', { name: 'Dead letters' }).click();
        await until('the title', async () => await page.title() === 'Dead letters · Postdate');
        check(!await page.locator('#nav').isVisible(), 'the menu is still open');
        await page.setViewportSize({ width: 1280, height: 900 });
    },
    'the overview has states, the next due time and what is wrong': async () => {
        await visit(page, '');
        await page.getByText('3 messages could not be delivered.').waitFor();
        await follow(page, () => page.getByRole('link', { name: 'failed', exact: true }).click());
        same(await page.locator('tbody tr').count(), 3, 'failed messages');
        check((await page.locator('tbody').innerText()).includes('missing'), 'the error does not name the exchange');
    },
    'the overview has what is held back': async () => {
        await visit(page, '');
        await page.getByRole('heading', { name: 'Held back' }).waitFor();
        check(/Paused schedules\s+1, the first: cleanup/.test(await page.locator('section', { has: page.getByRole('heading', { name: 'Held back' }) }).innerText()), 'the paused schedule');
    },
    'the list opens with what waits; a tab for each other view says how many there are; what changes all of them stands above the rows': async () => {
        await visit(page, 'messages');
        const states = new Set(await page.locator('tbody td[data-title=State] .chip').allInnerTexts());
        check(states.size > 0 && [...states].every(s => ['scheduled', 'handed', 'claimed'].includes(s)), `it opens with ${[...states]}`);
        await until('the counts', async () => /delivered \d+ .*any [\d,]+/.test((await page.getByRole('navigation', { name: 'Views' }).innerText()).replace(/\s+/g, ' ')));
        await follow(page, () => page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: /^failed/ }).click());
        same(await page.locator('tbody tr').count(), 3, 'failed messages');
        const [button, table] = await Promise.all([page.getByRole('button', { name: 'Retry them …' }).boundingBox(), page.locator('table').boundingBox()]);
        check(button.y + button.height <= table.y, 'the button is below the rows');
        await visit(page, 'messages?state=any&exchange=orders');
        check(new Set(await page.locator('tbody td[data-title=State] .chip').allInnerTexts()).has('delivered'), 'any has what is delivered');
    },
    'newest first on request': async () => {
        await visit(page, 'messages?state=delivered');
        const ids = () => page.locator('tbody a').evaluateAll(all => all.map(a => a.hash));
        const first = await ids();
        await page.getByLabel('Order').selectOption('newest');
        await follow(page, () => page.getByRole('button', { name: 'Find' }).click());
        check(page.url().endsWith('order=newest'), page.url());
        same(await ids(), first.reverse(), 'the other way round');
    },
    'Back under an open dialog closes it': async () => {
        await visit(page, 'gateways');
        await visit(page, `messages/${settings.message}`);
        await page.getByRole('button', { name: 'Reschedule …' }).click();
        await page.waitForSelector('dialog[open]');
        await page.goBack();
        await until('the page before', async () => await page.title() === 'Gateways and servers · Postdate');
        same(await page.locator('dialog').count(), 0, 'dialogs over it');
    },
    'a key in the form of a UUID is found': async () => {
        const key = '6f9619ff-8b86-4011-b42d-00c04fc964ff';
        const { id } = await api('POST', '/v1/messages', { routing_key: 'k', exchange: 'orders', key, delay: '3h', body: 'x' });
        await visit(page, 'messages');
        await page.getByLabel('Id or key').fill(key);
        await follow(page, () => page.keyboard.press('Enter'));
        check(page.url().endsWith(`#/messages/${id}`), page.url());
    },
    'no placeholder is cut, and the theme says what it is': async () => {
        for (const hash of ['messages', 'dead/list']) {
            await visit(page, hash);
            same(await page.evaluate(() => [...document.querySelectorAll('input[placeholder]')].filter(i => {
                const pen = document.createElement('canvas').getContext('2d'), s = getComputedStyle(i);
                pen.font = s.font;
                return pen.measureText(i.placeholder).width > i.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight);
            }).map(i => i.placeholder)), [], `placeholders of ${hash} that are cut`);
        }
        same(await page.locator('#theme').innerText(), 'Theme: auto', 'the theme');
    },
    'a page whose files do not come, as at /postdate without a slash, says so': async () => {
        const bare = await context.newPage();
        await bare.route('**/console/**', r => r.abort());
        await bare.goto(settings.url + '/');
        check(await bare.getByText('end with a slash').isVisible(), 'it does not say so');
        await bare.close();
        await visit(page, '', true);
        same(await page.getByText('end with a slash').count(), 0, 'it is said where they do');
    },
    'too few deliveries to judge are neither good nor bad': async () => {
        await visit(page, '');
        const punctuality = page.locator('section', { has: page.getByRole('heading', { name: 'Punctuality', exact: true }) });
        await punctuality.getByText('evaluated from').waitFor();
        same(await punctuality.locator('.good-text, .bad-text').count(), 0, 'judged figures');
    },
    'a schedule shows all that it sends': async () => {
        await visit(page, 'recurring/report');
        for (const [title, text] of [['Body', '"kind": "daily"'], ['Headers', 'team'], ['Headers', 'sales'], ['Properties', 'daily-report']])
            check((await page.locator('section', { has: page.getByRole('heading', { name: title, exact: true }) }).innerText()).includes(text), `${text} is not under ${title}`);
    },
    'a schedule has its times in its own zone, and in UTC beside': async () => {
        const schedule = await api('GET', '/v1/recurring/billing'), own = new Date(schedule.next_at).toLocaleString('sv', { timeZone: schedule.zone });
        const utc = `${schedule.next_at.slice(0, 10)} ${schedule.next_at.slice(11, 19)} UTC`;
        for (const place of ['recurring', 'recurring/billing']) {
            await visit(page, place);
            check(await page.locator('time', { hasText: own }).filter({ hasText: utc }).count() > 0, `${own} and ${utc} on the page ${place}`);
        }
    },
    'what is not there is said, whatever it was': async () => {
        for (const hash of ['recurring/none', 'messages/0190163d-8694-739b-aea5-966c26f8ad90', 'dead/0190163d-8694-739b-aea5-966c26f8ad90?queue=none']) {
            await page.goto(settings.url + '/#/' + hash);
            await page.getByRole('heading', { name: 'Not found' }).waitFor();
        }
    },
    'what changes is seen without a reload': async () => {
        await visit(page, 'messages?key=live-1');
        await page.getByText('No message matches.').waitFor();
        await api('POST', '/v1/messages', { routing_key: 'live', exchange: 'orders', key: 'live-1', delay: '2h', body: 'x' });
        await page.getByRole('cell', { name: 'live-1' }).waitFor();
    },
    'filters, pages and looking up change the address, and the address brings them back': async () => {
        await visit(page, 'messages');
        await page.getByLabel('Exchange').fill('mail');
        await page.getByLabel('State').selectOption('scheduled');
        await follow(page, () => page.getByRole('button', { name: 'Find' }).click());
        check(page.url().endsWith('#/messages?state=scheduled&exchange=mail'), page.url());
        const first = await page.locator('tbody a').first().getAttribute('href');
        await follow(page, () => page.getByRole('link', { name: 'Next page' }).click());
        check(await page.locator('tbody a').first().getAttribute('href') !== first, 'the same page again');
        same(await page.locator('tbody tr').count(), 50, 'messages on a page');
        await follow(page, () => page.goBack());
        same(await page.locator('tbody a').first().getAttribute('href'), first, 'the first page');
        await visit(page, 'messages?exchange=mail&state=scheduled', true);
        same(await page.getByLabel('Exchange').inputValue(), 'mail', 'the filter after a reload');
        await page.getByLabel('Id or key').fill('moved-1');
        await follow(page, () => page.getByRole('button', { name: 'Look up' }).click());
        check(page.url().includes('#/messages/'), page.url());
        await visit(page, 'messages');
        await page.getByLabel('Id or key').fill('nobody at all');
        await page.keyboard.press('Enter');
        await page.getByText('No message has this id or key.').waitFor();
    },
    'a message shows all ids it had, and its body as JSON, text and hex': async () => {
        await visit(page, `messages/${settings.message}`);
        const ids = await page.locator('dd code').allInnerTexts();
        check(ids.includes(settings.message) && ids.includes(settings.moved), `ids: ${ids}`);
        check((await page.locator('pre').innerText()).includes('"sku": "A-1"'), 'the body is not shown');
        await page.getByRole('link', { name: 'Hex' }).click();
        await until('the hex view', () => page.locator('pre.hex').count());
        check((await page.locator('pre').innerText()).startsWith('00000000  7b'), 'the body in hex');
        await page.getByRole('link', { name: 'Text' }).click();
        await until('the text view', () => page.locator('pre.text').count());
        check(page.url().includes('view=text'), 'the view is in the address');
    },
    'dead letters: groups, list, one with its attempts': async () => {
        await visit(page, 'dead');
        await follow(page, () => page.getByRole('link', { name: '6', exact: true }).click());
        same(await page.locator('tbody tr').count(), 6, 'dead letters');
        await page.locator('tbody a').first().click();
        await page.getByRole('heading', { name: 'Attempts' }).waitFor();
        check((await page.locator('pre').innerText()).includes('"vip": true'), 'the body of a dead letter');
    },
    'policies: the list, and which one counts': async () => {
        await visit(page, 'exchanges');
        await page.getByLabel('Queue').fill('invoices.new');
        await page.keyboard.press('Enter');
        await page.getByText('postdate retry-policy show invoices.new').waitFor();
        check((await page.locator('main').innerText()).includes('postdate retry-policy set \'invoices.*\''), 'the command line of a policy');
        same(await page.locator('tr', { hasText: 'newsletters' }).getByRole('button', { name: 'Pause …' }).count(), 1, 'the pause of a rate');
    },
    'what is due, as a chart and as a table; the objective': async () => {
        if (settings.offers.includes('/v1/forecast')) {
            await visit(page, '?ahead=24h');
            await until('the chart', () => page.locator('#due-curve rect.bar').count());
            check(/\d messages in the next 24h/.test(await page.locator('main').innerText()), 'the sum of the forecast');
            await page.getByText('The same as a table').click();
            check(/orders/.test(await page.locator('#due-table').innerText()), 'the exchanges in the table');
            // the slow count, which looks at each message, is through with it in three rounds of ten seconds
            await until('the burst', async () => /1 burst: 120,\d{3} at .*, drained in \d+ min/.test(await page.locator('main').innerText()), 60_000);
            same(await page.locator('#due-curve g.marked path.flag').count(), 1, 'bursts marked in the chart');
            check(/a burst: draining takes \d+ min/.test(await page.locator('#due-table').innerText()), 'the burst in the table');
            await until('what waits of each exchange, without what is delivered', async () => {
                await visit(page, 'exchanges');
                const from = Math.ceil(Date.now() / 60e3) * 60e3, shown = [], waiting = [];
                for (const exchange of ['orders', 'invoices']) {
                    const found = [];
                    for (let token = ''; token !== null;) {
                        const part = await api('GET', `/v1/messages?exchange=${exchange}${token}`);
                        found.push(...part.messages);
                        token = part.next_page_token ? `&page_token=${part.next_page_token}` : null;
                    }
                    waiting.push(found.filter(m => ['scheduled', 'claimed', 'handed'].includes(m.state) && Date.parse(m.due_at) >= from && Date.parse(m.due_at) < from + 7 * 86400e3).length);
                    shown.push((await page.locator('tr', { has: page.getByRole('link', { name: exchange, exact: true }) }).locator('td').nth(1).innerText()).trim());
                }
                return Number(shown[0]) > 0 && shown.join() === waiting.join();
            }, 60_000);
        }
        if (settings.offers.includes('/v1/slo')) {
            await visit(page, '');
            await page.getByText(/^The objective: [\d.]+ % of all deliveries/).waitFor();
        }
    },
    'gateways: each with its version': async () => {
        await visit(page, 'gateways');
        const { version } = await api('GET', '/v1/overview');
        same(await page.locator('td[data-title=Version]').allInnerTexts(), [version], 'the versions');
    },
    'settings: those of the gateway, and no secret': async () => {
        await visit(page, 'settings');
        const text = await page.locator('main').innerText();
        for (const [name, value] of Object.entries((await api('GET', '/v1/overview')).settings))
            check(text.includes(name) && (typeof value !== 'string' || text.includes(value)), `${name} is not shown`);
        check(/retry\.attempts\s+1\b/.test(text), 'a setting that is not the default');
        check(!/guest:|password=/.test(text), 'a secret is shown');
    },
    'what a gateway does not offer is said, and is no error': async () => {
        for (const [path, hash] of [['/v1/recurring', 'recurring'], ['/v1/forecast', ''], ['/v1/overview', 'gateways']]) {
            await visit(page, hash);
            const said = await page.locator('[data-absent]').count() > 0;
            if (!settings.offers.includes(path))
                check(said, `${path} is not offered, and ${hash || 'the overview'} does not say so`);
        }
    },
    'keyboard: the skip link, the pages, a dialog and back': async () => {
        await visit(page, '', true);
        await page.evaluate(() => document.activeElement.blur());
        await page.keyboard.press('Tab');
        same(await page.evaluate(() => document.activeElement.className), 'skip', 'the first stop');
        await page.keyboard.press('Enter');
        same(await page.evaluate(() => document.activeElement.id), 'main', 'after the skip link');
        await page.locator('#nav').getByRole('link', { name: 'Messages' }).focus();
        await follow(page, () => page.keyboard.press('Enter'));
        await until('the heading to have the focus', () => page.evaluate(() => document.activeElement.tagName === 'H1'));
        await visit(page, `messages/${settings.message}`);
        await page.getByRole('button', { name: 'Reschedule …' }).focus();
        await page.keyboard.press('Enter');
        await page.waitForSelector('dialog[open]');
        same(await page.evaluate(() => document.activeElement.id), 'act-when', 'the first field has the focus');
        await audit(page, 'a dialog');
        await page.keyboard.press('Escape');
        await until('the dialog to be gone', async () => await page.locator('dialog').count() === 0);
        same(await page.evaluate(() => document.activeElement.textContent), 'Reschedule …', 'the focus is back');
    },
    'times in UTC and here; theme and zone last, and nothing else is kept': async () => {
        await visit(page, `messages/${settings.message}`);
        const here = await page.locator('main time').first().innerText();
        await page.getByRole('button', { name: 'Times: here' }).click();
        await until('the other zone', async () => /UTC$/.test(await page.locator('main time').first().innerText()));
        check(await page.locator('main time').first().innerText() !== here, 'the same time in both zones');
        await page.getByRole('button', { name: 'Auto' }).click();
        await page.getByRole('button', { name: 'Light' }).click();
        await visit(page, 'settings', true);
        same(await page.evaluate(() => document.documentElement.dataset.theme), 'dark', 'the theme after a reload');
        same(await page.evaluate(() => ({ ...localStorage })), { 'postdate.theme': 'dark', 'postdate.zone': 'utc' }, 'what is stored');
        same([await context.cookies(), await page.evaluate(() => sessionStorage.length)], [[], 0], 'cookies and session');
        await page.evaluate(() => localStorage.clear());
    },
    'a hidden page asks nothing, and asks again when it is seen': async () => {
        await visit(page, '');
        let asked = 0;
        page.on('request', () => asked++);
        await page.evaluate(() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); });
        await page.waitForTimeout(300);
        const before = asked;
        await page.waitForTimeout(2600);
        same(asked - before, 0, 'requests of a hidden page');
        await page.evaluate(() => { Object.defineProperty(document, 'hidden', { value: false, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); });
        await until('requests', () => asked > before);
    },
    'nothing went wrong in the page': async () => same(page.wrong, [], 'the page'),
});
await browser.close();

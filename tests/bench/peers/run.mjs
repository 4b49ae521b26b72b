// Measures one peer that is a Node.js library: node run.mjs PEER '{"url", "counts", "runs"}'
//
// A peer is a module with `settings` (what was chosen, and where that is recommended) and
// `open(url)`, which gives an object with
//   store(messages)      stores all of them, as fast as it can; each has due_ms and body
//   start(onRun)         runs workers until stop(); onRun(body) is called when a message is run
//   stop()
//   empty()              forgets every message, stored or run
//   close()
// Every result is one line of JSON on stdout.
import process from 'node:process';

const BODY_BYTES = 256;
const STORE_AHEAD_MS = 3600_000;
const PATIENCE_MS = 60_000;

// The wall clock with the resolution of the monotonic one. Date.now() rounds down, and a pause between the two readings makes the
// difference smaller, too: the largest is the nearest.
function makeClock() {
    let offset = -Infinity;
    for (const until = performance.now() + 20; performance.now() < until;) {
        offset = Math.max(offset, Date.now() - performance.now());
    }
    return () => performance.now() + offset;
}

const nowMs = makeClock();
const sleep = ms => new Promise(resolve => setTimeout(resolve, Math.max(0, ms)));

function makeMessages(count, firstDueMs, perSecond) {
    const messages = [];
    for (let i = 0; i < count; i++) {
        const due_ms = firstDueMs + (perSecond ? Math.floor(i * 1000 / perSecond) : 0);
        messages.push({ due_ms, body: `${due_ms} ${i} `.padEnd(BODY_BYTES, 'x') });
    }
    return messages;
}

function percentile(sorted, part) {
    return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * part) - 1))];
}

// What happened to a number of messages, by the number that each carries.
class Runs {
    constructor(count) {
        this.missing = count;
        this.again = 0;
        this.latenessMs = new Float64Array(count).fill(NaN);
        this.done = new Promise(resolve => { this.resolve = resolve; });
    }

    add(body) {
        const ranMs = nowMs();
        const [due, number] = body.split(' ', 2);
        if (!Number.isNaN(this.latenessMs[number])) {
            this.again++;
            return;
        }
        this.latenessMs[number] = ranMs - due;
        this.lastMs = ranMs;
        if (--this.missing === 0) this.resolve();
    }

    result(firstDueMs) {
        const sorted = this.latenessMs.slice().sort();
        const seconds = (this.lastMs - firstDueMs) / 1000;
        return {
            seconds, rate: sorted.length / seconds, p50_ms: percentile(sorted, 0.5), p99_ms: percentile(sorted, 0.99),
            p999_ms: percentile(sorted, 0.999), max_ms: sorted.at(-1), min_ms: sorted[0], again: this.again,
        };
    }
}

async function measureStore(peer, count) {
    const messages = makeMessages(count, Math.ceil(nowMs()) + STORE_AHEAD_MS, 0);
    const began = performance.now();
    await peer.store(messages);
    const seconds = (performance.now() - began) / 1000;
    await peer.empty();
    return { rate: count / seconds, seconds };
}

// All are stored, and workers wait, before the first is due.
async function measureRuns(peer, count, perSecond, storeRate) {
    const aheadMs = 2000 + 2000 * count / storeRate;
    const firstDueMs = Math.ceil(nowMs() + aheadMs);
    const messages = makeMessages(count, firstDueMs, perSecond);
    await peer.store(messages);
    const runs = new Runs(count);
    await peer.start(body => runs.add(body));
    if (nowMs() > firstDueMs) throw new Error(`storing ${count} messages took longer than ${Math.round(aheadMs)} ms`);
    const lastDueMs = messages.at(-1).due_ms;
    const out = await Promise.race([runs.done, sleep(lastDueMs - nowMs() + PATIENCE_MS).then(() => 'out')]);
    await peer.stop();
    await peer.empty();
    if (out) throw new Error(`${runs.missing} of ${count} messages were not run ${PATIENCE_MS / 1000} s after they were due`);
    return runs.result(firstDueMs);
}

const [name, given] = process.argv.slice(2);
const { url, counts, runs } = JSON.parse(given);
const { open, settings } = await import(`./${name}.mjs`);
const print = line => console.log(JSON.stringify(line));

print({ settings });
const peer = await open(url);
await measureStore(peer, Math.ceil(counts.store / 10)); // warms up, not counted
let storeRate;
for (let i = 0; i < runs; i++) {
    const result = await measureStore(peer, counts.store);
    storeRate = result.rate;
    print({ shape: 'store', ...result });
}
print({ shape: 'steady', ...await measureRuns(peer, counts.steady_rate * counts.steady_s, counts.steady_rate, storeRate) });
for (let i = 0; i < runs; i++) print({ shape: 'herd', ...await measureRuns(peer, counts.herd, 0, storeRate) });
await peer.close();
process.exit(0);

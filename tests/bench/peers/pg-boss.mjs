// pg-boss: jobs in Postgres, polled for by a Node.js process.
import pg from 'pg';
import { PgBoss } from 'pg-boss';
import { inChunks } from './chunks.mjs';

const QUEUE = 'bench';
const CHUNK = 1000;
const SESSIONS = 2;

// From https://github.com/timgit/pg-boss/blob/master/docs/api/workers.md: half a second is the shortest interval that it
// accepts, NOTIFY is for jobs that are due when they are sent, and a full batch is followed by the next one at once. It recommends no
// batch size: every fetch sorts what is due, so that herds want large ones; larger than this won nothing in tries, nor did more workers.
const work = {
    batchSize: 3000,
    localConcurrency: 2,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
};

export const settings = {
    store: `insert, ${CHUNK} to a call, ${SESSIONS} sessions`,
    run: Object.entries(work).map(([name, value]) => `${name} ${value}`).join(', '),
    durability: 'Postgres: fsync and synchronous_commit on',
    source: 'https://github.com/timgit/pg-boss/blob/master/docs/api/workers.md',
};

export async function open(url) {
    const boss = new PgBoss({ connectionString: url, max: 10 });
    const fail = error => { throw error; };
    boss.on('error', fail);
    await boss.start();
    await boss.createQueue(QUEUE);
    return {
        store: messages => inChunks(messages, CHUNK, SESSIONS,
                                    chunk => boss.insert(QUEUE, chunk.map(m => ({ data: { body: m.body }, startAfter: new Date(m.due_ms) })))),
        start: onRun => boss.work(QUEUE, work, async jobs => jobs.forEach(job => onRun(job.data.body))),
        stop: () => boss.offWork(QUEUE, { wait: true }),
        empty: () => boss.deleteAllJobs(QUEUE),
        close: () => boss.stop({ graceful: false }),
    };
}

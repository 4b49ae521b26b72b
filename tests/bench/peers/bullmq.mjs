// BullMQ: jobs in Redis, run by a Node.js process.
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { inChunks } from './chunks.mjs';

const QUEUE = 'bench';
const CHUNK = 1000;
const CALLS = 2;
// The guide recommends no number (its example has 50). 100 and 200 did much the same in tries, 500 and several workers in this process
// worse. Workers in processes of their own, which it recommends too, would share the cores with Redis.
const work = { concurrency: 200, removeOnComplete: { count: 0 } };

export const settings = {
    store: `addBulk, ${CHUNK} to a call, ${CALLS} calls at a time`,
    run: `one worker, concurrency ${work.concurrency}, jobs removed when they are done`,
    durability: 'Redis: appendonly yes, appendfsync everysec, maxmemory-policy noeviction',
    source: 'https://docs.bullmq.io/guide/workers/concurrency, https://docs.bullmq.io/guide/going-to-production',
};

export async function open(url) {
    const connection = new Redis(url, { maxRetriesPerRequest: null });
    const queue = new Queue(QUEUE, { connection });
    let worker;
    return {
        store: messages => inChunks(messages, CHUNK, CALLS, chunk => {
            const timestamp = Date.now();
            return queue.addBulk(chunk.map(m => ({ name: 'job', data: { body: m.body }, opts: { timestamp, delay: m.due_ms - timestamp } })));
        }),
        async start(onRun) {
            worker = new Worker(QUEUE, async job => { onRun(job.data.body); }, { connection, ...work });
            await worker.waitUntilReady();
        },
        stop: () => worker.close(),
        empty: () => connection.flushall(),
        async close() {
            await queue.close();
            await connection.quit();
        },
    };
}

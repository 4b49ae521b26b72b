// graphile-worker: jobs in Postgres, run by a Node.js process.
import pg from 'pg';
import { inChunks } from './chunks.mjs';

process.env.NO_LOG_SUCCESS = '1'; // looked at when it is imported
const { makeWorkerUtils, run } = await import('graphile-worker');

const TASK = 'bench';
const CHUNK = 5000;
const SESSIONS = 2;

// From https://worker.graphile.org/docs/performance, where its authors measure it; there, too, without a log line a job.
const worker = {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    // Jobs of the future are found by polling only. 2,000 ms is the default; at 20 ms they are least late, and the queries cost little.
    pollInterval: 20,
};

export const settings = {
    store: `addJobs, ${CHUNK} to a call, ${SESSIONS} sessions`,
    run: Object.entries(worker).map(([name, value]) => `${name} ${value.size ?? value}`).join(', '),
    durability: 'Postgres: fsync and synchronous_commit on',
    source: 'https://worker.graphile.org/docs/performance',
};

export async function open(url) {
    const pool = new pg.Pool({ connectionString: url, max: worker.maxPoolSize });
    const utils = await makeWorkerUtils({ pgPool: pool });
    await utils.migrate();
    let runner;
    return {
        store: messages => inChunks(messages, CHUNK, SESSIONS,
                                    chunk => utils.addJobs(chunk.map(m => ({ identifier: TASK, payload: { body: m.body }, runAt: new Date(m.due_ms) })))),
        async start(onRun) {
            runner = await run({
                preset: { worker }, pgPool: pool, noHandleSignals: true,
                taskList: { [TASK]: payload => onRun(payload.body) },
            });
        },
        stop: () => runner.stop(),
        empty: () => pool.query('truncate graphile_worker._private_jobs'),
        async close() {
            await utils.release();
            await pool.end();
        },
    };
}

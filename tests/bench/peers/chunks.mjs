// Sends all of the messages, so many to a call, by so many sessions at a time.
export async function inChunks(messages, size, sessions, send) {
    let next = 0;
    async function session() {
        while (next < messages.length) {
            await send(messages.slice(next, next += size));
        }
    }
    await Promise.all(Array.from({ length: sessions }, session));
}

"""A port that leads to the real broker, keeps what a program publishes on the way there, and can make the broker say that
it is of another version."""
import struct
import threading

from hostile_broker import HEADER, METHOD, PUBLISH, START, HostileBroker


class Published:
    def __init__(self, exchange, routing_key):
        self.exchange, self.routing_key, self.properties = exchange, routing_key, b''


def read_short(data, at):
    return data[at + 1:at + 1 + data[at]], at + 1 + data[at]


def with_version(frame, version):
    """connection.start with another version among the server's properties."""
    kind, channel, _ = struct.unpack('>BHI', frame[:7])
    payload = frame[7:-1]
    key = b'\x07versionS'
    at = payload.index(key) + len(key)
    size, = struct.unpack('>I', payload[at:at + 4])
    grown = len(version) - size
    properties, = struct.unpack('>I', payload[6:10])
    payload = (payload[:6] + struct.pack('>I', properties + grown) + payload[10:at] + struct.pack('>I', len(version)) + version
               + payload[at + 4 + size:])
    return struct.pack('>BHI', kind, channel, len(payload)) + payload + frame[-1:]


class Watcher(HostileBroker):
    def __init__(self, real_url, version=None):
        self.published, self.version = [], version.encode() if version else None
        super().__init__(real_url)

    def relay(self, client):
        server = self.connect()
        back = threading.Thread(target=self.watch, args=(server, client, self.rewrite), daemon=True)
        back.start()
        self.watch(client, server, self.keep, skip=8)  # the protocol header is no frame
        back.join()
        client.close()
        server.close()

    def watch(self, source, sink, see, skip=0):
        """Passes frames on, each as `see` gives it back."""
        buffer, state = b'', {}
        try:
            while data := source.recv(65536):
                buffer += data
                out = b''
                if skip and len(buffer) >= skip:
                    out, buffer, skip = buffer[:skip], buffer[skip:], 0
                while not skip and len(buffer) >= 7:
                    end = 8 + struct.unpack('>I', buffer[3:7])[0]
                    if len(buffer) < end:
                        break
                    out += see(buffer[:end], state)
                    buffer = buffer[end:]
                sink.sendall(out)
        except OSError:
            pass
        self.part(source, sink)

    def rewrite(self, frame, state):
        if self.version and not state and frame[:1] == bytes([METHOD]) and struct.unpack('>HH', frame[7:11]) == START:
            frame = with_version(frame, self.version)
        state['begun'] = True
        return frame

    def keep(self, frame, state):
        if frame[0] == METHOD and struct.unpack('>HH', frame[7:11]) == PUBLISH:
            exchange, at = read_short(frame, 13)
            state['message'] = Published(exchange.decode(), read_short(frame, at)[0].decode())
        elif frame[0] == HEADER and 'message' in state:
            message = state.pop('message')
            message.properties = frame[21:-1]
            with self.lock:
                self.published.append(message)
        return frame

    def all(self):
        with self.lock:
            return list(self.published)

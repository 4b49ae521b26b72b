"""What a broker can do wrong, in the order of a connection's life. hostile_broker.py says when each trick is played."""
import struct
import time

from hostile_broker import (ACK, BODY, CLOSE, DELIVER, HEADER, HEARTBEAT, METHOD, NACK, RETURN, ack, deliver, frame, header, method,
                            nested, short, start, table, tune)


# --- hello: instead of connection.start ---------------------------------------------------------------------------
def says_http(c):
    c.send(b'HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nwhat?')


def speaks_another_version(c):
    c.send(b'AMQP\0\1\0\0')


def says_nothing(_c):
    pass


def sends_zeros(c):
    c.send(bytes(100_000))


def frame_ends_wrong(c):
    c.send(start()[:-1] + b'\xcd')


def frame_is_larger_than_allowed(c):
    c.send(struct.pack('>BHI', METHOD, 0, 10_000_000) + bytes(100_000))


def frame_size_has_the_top_bit(c):
    c.send(struct.pack('>BHI', METHOD, 0, 0xFFFFFFFF) + bytes(1000))


def method_frame_without_a_method(c):
    c.send(frame(METHOD, 0, b''))


def method_frame_of_three_bytes(c):
    c.send(frame(METHOD, 0, b'\0\x0a\0'))


def start_without_arguments(c):
    c.send(method((10, 10), b'', 0))


def start_on_another_channel(c):
    c.send(start()[:1] + b'\0\7' + start()[3:])


def start_of_version_one(c):
    c.send(start(version=(1, 0)))


def mechanisms_without_ours(c):
    c.send(start(mechanisms=b'SCRAM EXTERNAL'))


def no_mechanisms(c):
    c.send(start(mechanisms=b''))


def properties_nested_without_end(c):
    c.send(start(nested(26_000)))


def property_longer_than_the_frame(c):
    c.send(start(short(b'product') + b'S\x7f\xff\xff\xff'))


def property_of_unknown_type(c):
    c.send(start(short(b'product') + b'?'))


def version_with_control_characters(c):
    c.send(start(short(b'version') + b'S' + table(b'\x1b[2J\0\xff' * 50)))


def names_itself_with_control_characters_and_hangs_up(c):
    c.send(start(short(b'cluster_name') + b'S' + table(b'\n\x1b[31m')),
           method(CLOSE, struct.pack('>H', 320) + short(b'CONNECTION_FORCED\n\x1b[31m\xff') + bytes(4), 0))


# --- tune ----------------------------------------------------------------------------------------------------------
def tunes_frames_of_one_byte(c):
    c.send(tune(frame_max=1))


def tunes_frames_of_eight_bytes(c):
    c.send(tune(frame_max=8), method((10, 41), b'\0', 0), method((20, 11), table(b'')))


def tunes_frames_of_100_bytes(c):
    c.send(tune(frame_max=100), method((10, 41), b'\0', 0), method((20, 11), table(b'')))


def starts_again(c):
    c.send(start())


def closes_in_the_middle_of_a_frame(c):
    c.send(method(CLOSE, struct.pack('>H', 320) + short(b'CONNECTION_FORCED') + bytes(4), 0)[:20])


def refuses_without_reason(c):
    c.send(method(CLOSE, struct.pack('>H', 403) + short(b'') + bytes(4), 0))


# --- open ----------------------------------------------------------------------------------------------------------
def opens_another_channel(c):
    c.send(method((10, 41), b'\0', 9))


def answers_with_a_delivery(c):
    c.send(deliver(), header(3), frame(BODY, 1, b'abc'))


# --- consume -------------------------------------------------------------------------------------------------------
def header_without_delivery(c):
    c.send(header(3))


def body_without_header(c):
    c.send(deliver(tag=1, consumer=c.tag), frame(BODY, 1, b'abc'))


def header_of_another_class(c):
    c.send(deliver(consumer=c.tag), header(3, cls=50), frame(BODY, 1, b'abc'))


def body_larger_than_announced(c):
    c.send(deliver(consumer=c.tag), header(3), frame(BODY, 1, b'abcd'))


def body_larger_than_anything(c):
    c.send(deliver(consumer=c.tag), header(2**64 - 1), frame(BODY, 1, b'abcd'))


def deliveries_interleaved(c):
    c.send(deliver(1, c.tag), header(6), frame(BODY, 1, b'abc'), deliver(2, c.tag), header(3), frame(BODY, 1, b'xyz'),
           frame(BODY, 1, b'def'))


def content_on_another_channel(c):
    c.send(deliver(consumer=c.tag), header(3, channel=2), frame(BODY, 2, b'abc'))


def header_without_flags(c):
    c.send(deliver(consumer=c.tag), frame(HEADER, 1, struct.pack('>HHQ', 60, 0, 3)), frame(BODY, 1, b'abc'))


def header_of_two_bytes(c):
    c.send(deliver(consumer=c.tag), frame(HEADER, 1, b'\0\x3c'), frame(BODY, 1, b'abc'))


def header_cut_off_in_the_flags(c):
    c.send(deliver(consumer=c.tag), header(3, b'\xff'), frame(BODY, 1, b'abc'))


def headers_nested_without_end(c):
    c.send(deliver(consumer=c.tag), header(3, b'\x20\0' + table(nested(26_000))), frame(BODY, 1, b'abc'))


def headers_longer_than_the_frame(c):
    c.send(deliver(consumer=c.tag), header(3, b'\x20\0\xff\xff\xff\xf0' + short(b'a') + b'I1234'))


# What a version of the client library may find in the frames of a delivery.
def properties(c, raw):
    c.send(deliver(consumer=c.tag), header(3, raw), frame(BODY, 1, b'abc'))


def headers_nested_deeper_than_some_libraries_take(c):
    properties(c, b'\x20\0' + table(nested(101)))


def header_of_unknown_type(c):
    properties(c, b'\x20\0' + table(short(b'a') + b'?1234'))


def header_longer_than_its_table(c):
    properties(c, b'\x20\0' + table(short(b'a') + b'S' + struct.pack('>I', 1000) + b'abc'))


def array_longer_than_its_table(c):
    properties(c, b'\x20\0' + table(short(b'a') + b'A' + struct.pack('>I', 2**31) + b'I1234'))


def name_of_a_header_longer_than_its_table(c):
    properties(c, b'\x20\0' + table(b'\xffabc'))


def property_longer_than_its_frame(c):
    properties(c, b'\x80\0\xffabc')


def property_flags_that_go_on(c):
    properties(c, b'\x00\x01' * 20)


def bytes_behind_the_properties(c):
    properties(c, b'\0\0' + b'abc' * 100)


def delivery_without_arguments(c):
    c.send(method(DELIVER))


def delivery_with_a_name_longer_than_its_frame(c):
    c.send(method(DELIVER, b'\xff' + c.tag))


def delivery_ends_wrong(c):
    c.send(deliver(consumer=c.tag)[:-1] + b'\0', header(3), frame(BODY, 1, b'abc'))


def header_ends_wrong(c):
    c.send(deliver(consumer=c.tag), header(3)[:-1] + b'\0', frame(BODY, 1, b'abc'))


def header_larger_than_allowed(c):
    c.send(deliver(consumer=c.tag), struct.pack('>BHI', HEADER, 1, 131073) + bytes(140_000))


def body_frame_with_the_top_bit(c):
    c.send(deliver(consumer=c.tag), header(3), struct.pack('>BHI', BODY, 1, 0x80000003) + b'abc\xce')


def unknown_method(c):
    c.send(method((60, 999)))


def unknown_frame_type(c):
    c.send(frame(9, 1, b'abc'))


def heartbeat_with_content(c):
    c.send(frame(HEARTBEAT, 0, b'abc'), frame(HEARTBEAT, 3, b''))


def cancels_the_consumer(c):
    c.send(method((60, 30), short(c.tag) + b'\1'))


def closes_the_channel_with_binary_words(c):
    c.send(method((20, 40), struct.pack('>H', 404) + short(b'NOT_FOUND \n\0\xff') + struct.pack('>HH', 60, 40)))


def blocks_with_binary_words(c):
    c.send(method((10, 60), short(b'low on \n\x1b[31m\xff'), 0))


def asks_for_flow(c):
    c.send(method((20, 20), b'\0'))


def closes_in_the_middle_of_a_body(c):
    c.send(deliver(consumer=c.tag), header(100), frame(BODY, 1, b'abc'),
           method(CLOSE, struct.pack('>H', 320) + short(b'CONNECTION_FORCED') + bytes(4), 0))


# --- publish: none of these confirms anything that was published ----------------------------------------------------
def acks_zero(c):
    c.send(ack(0))


def acks_all_up_to_zero(c):
    c.send(ack(0, True))


def acks_one_too_many(c):
    c.send(ack(c.published + 1000))


def acks_more_than_there_were(c):
    c.send(ack(2**64 - 1, True))


def acks_more_than_can_be_counted(c):
    c.send(ack(2**63, True), ack(c.published + 5000, True))


def acks_on_another_channel(c):
    c.send(ack(c.published, channel=2), ack(c.published, channel=0))


def ack_ends_wrong(c):
    c.send(ack(c.published)[:-1] + b'\0')


def ack_is_cut_off(c):
    c.send(frame(METHOD, 1, struct.pack('>HHI', *ACK, 0)))


def nacks_one_too_many(c):
    c.send(ack(c.published + 1000, True, NACK))


def returns_what_nobody_sent(c):
    c.send(method(RETURN, struct.pack('>H', 312) + short(b'NO_ROUTE') + short(b'x') + short(b'y')), header(3),
           frame(BODY, 1, b'abc'))


def delivers_to_a_publisher(c):
    c.send(deliver(c.published), header(3), frame(BODY, 1, b'abc'))


TRICKS = {
    'hello': [says_http, speaks_another_version, sends_zeros, frame_ends_wrong, frame_is_larger_than_allowed,
              frame_size_has_the_top_bit, method_frame_without_a_method, method_frame_of_three_bytes,
              start_without_arguments, start_on_another_channel, start_of_version_one, mechanisms_without_ours,
              no_mechanisms, properties_nested_without_end, property_longer_than_the_frame, property_of_unknown_type,
              version_with_control_characters, names_itself_with_control_characters_and_hangs_up],
    'tune': [tunes_frames_of_one_byte, tunes_frames_of_eight_bytes, tunes_frames_of_100_bytes, starts_again,
             closes_in_the_middle_of_a_frame, refuses_without_reason],
    'open': [opens_another_channel, answers_with_a_delivery],
    'consume': [header_without_delivery, body_without_header, header_of_another_class, body_larger_than_announced,
                body_larger_than_anything, deliveries_interleaved, content_on_another_channel, header_without_flags,
                header_of_two_bytes, header_cut_off_in_the_flags, headers_nested_without_end,
                headers_longer_than_the_frame, headers_nested_deeper_than_some_libraries_take, header_of_unknown_type,
                header_longer_than_its_table, array_longer_than_its_table, name_of_a_header_longer_than_its_table,
                property_longer_than_its_frame, property_flags_that_go_on, bytes_behind_the_properties,
                delivery_without_arguments, delivery_with_a_name_longer_than_its_frame, delivery_ends_wrong,
                header_ends_wrong, header_larger_than_allowed, body_frame_with_the_top_bit,
                unknown_method, unknown_frame_type, heartbeat_with_content,
                cancels_the_consumer, closes_the_channel_with_binary_words, blocks_with_binary_words, asks_for_flow,
                closes_in_the_middle_of_a_body],
    'publish': [acks_zero, acks_all_up_to_zero, acks_one_too_many, acks_more_than_there_were,
                acks_more_than_can_be_counted, acks_on_another_channel, ack_ends_wrong, ack_is_cut_off,
                nacks_one_too_many, returns_what_nobody_sent, delivers_to_a_publisher],
}


# --- for as long as the gateway listens -----------------------------------------------------------------------------
def drips(c, data):
    for i in range(len(data)):
        c.send(data[i:i + 1])
        time.sleep(0.2)  # the speed is the trick


def drips_its_greeting(c):
    drips(c, start(short(b'product') + b'S' + table(b'x' * 100)))


def beats_instead_of_tuning(c):
    beats(c)


def beats_instead_of_opening(c):
    beats(c)


def beats(c):
    while True:
        c.send(frame(HEARTBEAT, 0, b''))
        time.sleep(0.2)


def falls_silent(_c):
    pass


def falls_silent_in_a_body(c):
    c.send(deliver(consumer=c.tag), header(100), frame(BODY, 1, b'abc'))


def falls_silent_in_a_frame(c):
    c.send(deliver(consumer=c.tag)[:-5])


def confirms_nothing(_c):
    pass


STALLS = {'hello': [says_nothing, drips_its_greeting], 'tune': [beats_instead_of_tuning],
          'open': [beats_instead_of_opening], 'consume': [falls_silent, falls_silent_in_a_body, falls_silent_in_a_frame],
          'publish': [confirms_nothing]}


def delivers_again_to_the_same_consumer(c):
    """As a quorum queue's new leader does when the node of the old one was cut off."""
    properties = struct.pack('>H', 0x2080) + table(short(b'x-delay') + b'I' + struct.pack('>i', 60_000)) + short(b'm-1')
    c.send(b''.join(deliver(tag, c.tag, again) + header(3, properties) + frame(BODY, 1, body)
                    for tag, (again, body) in enumerate([(False, b'abc'), (True, b'abc'), (True, b'xyz'), (True, b'abc')], 1)))
    while c.read()[2][:12] != struct.pack('>HHQ', *ACK, 4):
        pass
    c.broker.acknowledged = True

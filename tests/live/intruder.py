"""Someone on the network of a job that is still forming its world, who hears one rank join and has not the secret.

    intruder.py INTERFACE READY   listens to it; makes the file READY when it does; then, once a rank has joined over TCP,
                              tries everything on the port it joined at, and prints a line for each attempt; after the
                              last, the port scan, it waits until the world is formed, which ends its half-open connections

Exits 0 if every attempt that can be answered was hung up on.
"""
import pathlib
import socket
import struct
import sys

MAGIC = b"hvd4\1\2\3\4"
HELLO, REPLY, PROOF = 48, 32, 16
TOLD_SECONDS = 10


def payload(frame):
    """(source, destination, bytes) of a TCP segment over IPv4; None: something else"""
    if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
        return None
    tcp = 14 + (frame[14] & 15) * 4
    end = 14 + struct.unpack("!H", frame[16:18])[0]
    ports = struct.unpack("!HH", frame[tcp : tcp + 4])
    data = frame[tcp + (frame[tcp + 12] >> 4) * 4 : end]
    return (socket.inet_ntoa(frame[26:30]), ports[0]), (socket.inet_ntoa(frame[30:34]), ports[1]), data


def overhear(listener):
    """The address of an acceptor, and what a rank sent it: HELLO and PROOF."""
    hellos = {}
    while True:
        segment = payload(listener.recv(65536))
        if not segment or not segment[2]:
            continue
        source, destination, data = segment
        if data.startswith(MAGIC):
            hellos[source, destination] = data[:HELLO]
        elif (source, destination) in hellos and len(data) >= PROOF:
            return destination, hellos[source, destination], data[:PROOF]


def receive(s, count):
    data = b""
    while len(data) < count:
        more = s.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def hung_up_on(address, hello, proof):
    """Whether the acceptor, asked with this HELLO, does not answer it, or answers and then takes no proof."""
    with socket.create_connection(address, TOLD_SECONDS) as s:
        s.sendall(hello)
        reply = receive(s, REPLY)
        if len(reply) < REPLY:
            return True
        try:
            s.sendall(proof if proof else reply[16:])
            return receive(s, 1) == b""
        except ConnectionError:
            return True


def garbage(address):
    with socket.create_connection(address, TOLD_SECONDS) as s:
        try:
            for _ in range(100):
                s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return receive(s, 1) == b""
        except ConnectionError:
            return True


def main():
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    listener.bind((sys.argv[1], 0))
    listener.settimeout(60)
    pathlib.Path(sys.argv[2]).touch()
    address, hello, proof = overhear(listener)
    half_open = [socket.create_connection(address, TOLD_SECONDS) for _ in range(20)]
    attempts = {
        "no secret": lambda: hung_up_on(address, hello, b"\0" * PROOF),
        "its own answer": lambda: hung_up_on(address, hello, None),
        "a wrong secret": lambda: hung_up_on(address, hello[:16] + b"\7" * 32, b"\7" * PROOF),
        "a replayed handshake": lambda: hung_up_on(address, hello, proof),
        "garbage": lambda: garbage(address),
    }
    right = True
    for name, attempt in attempts.items():
        refused = attempt()
        right &= refused
        print(f"{name}: {'refused' if refused else 'TAKEN IN'}", flush=True)
    for _ in range(100):
        socket.create_connection(address, TOLD_SECONDS).close()
    print("a port scan: no answer", flush=True)
    for s in half_open:
        s.settimeout(60)
        try:
            right &= receive(s, 1) == b""
        except ConnectionError:
            pass
    print("half-open connections: hung up on")
    sys.exit(not right)


main()

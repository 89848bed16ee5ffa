import Glibc
import SIPKit

/// A SIP registrar and proxy on loopback, TCP and UDP on one port.
@MainActor
final class CallServer {
    let address: SIPAddress
    private var proxy: ProxyServer
    private let listener: SIPListener
    private let datagrams: SIPDatagramSocket
    private var connections: [FlowID: SIPSocket] = [:]
    private var peers: [FlowID: SIPAddress] = [:]
    private var flows: [SIPAddress: FlowID] = [:]
    private var flowCount: UInt64 = 0

    init(domain: String, passwords: [String: String]) throws {
        let host = "127.0.0.1"
        let sockets = try SIPServerSockets(host: host)
        listener = sockets.listener
        datagrams = sockets.datagrams
        let port = sockets.port
        address = SIPAddress(host: host, port: port)
        proxy = ProxyServer(
            domain: domain, host: host, ports: [.tcp: port, .udp: port],
            registrar: Registrar(domain: domain, passwords: passwords))
    }

    /// Waits for events, no longer than `limit`, and handles them. `serve` is called when the descriptor is
    /// ready.
    func turn(
        with descriptor: CInt, wantsToWrite: Bool, atMost limit: Duration, _ serve: () -> Void
    ) throws(LoadError) {
        func entry(_ descriptor: CInt, writes: Bool = false) -> pollfd {
            pollfd(fd: descriptor, events: Int16(POLLIN | (writes ? POLLOUT : 0)), revents: 0)
        }
        let ids = Array(connections.keys)
        var entries = [
            entry(descriptor, writes: wantsToWrite), entry(listener.descriptor), entry(datagrams.descriptor),
        ]
        for id in ids {
            guard let connection = connections[id] else { continue }
            entries.append(entry(connection.descriptor, writes: connection.wantsToWrite))
        }
        let milliseconds = CInt(limit.wholeNanoseconds / 1_000_000)
        if poll(&entries, nfds_t(entries.count), milliseconds) < 0 { try pause(nanoseconds: 0) }
        if entries[0].revents != 0 { serve() }
        if entries[1].revents != 0 { accept() }
        if entries[2].revents != 0 { receiveDatagrams() }
        for (id, entry) in zip(ids, entries.dropFirst(3)) where entry.revents != 0 { receive(on: id) }
        try pause(nanoseconds: 0)
    }

    private func newFlow() -> FlowID {
        flowCount += 1
        return FlowID(rawValue: flowCount)
    }

    private func accept() {
        while let socket = try? listener.accept() { connections[newFlow()] = socket }
    }

    private func receive(on id: FlowID) {
        guard let connection = connections[id] else { return }
        guard (try? connection.flush()) != nil else { return end(id) }
        let reception = connection.receive()
        for message in reception.messages { receive(message, on: id) }
        if reception.end != nil { end(id) }
    }

    private func end(_ id: FlowID) {
        guard connections.removeValue(forKey: id) != nil else { return }
        proxy.flowEnded(id)
    }

    private func receiveDatagrams() {
        for (message, sender) in datagrams.receive() {
            let id = flows[sender] ?? newFlow()
            flows[sender] = id
            peers[id] = sender
            receive(message, on: id)
        }
    }

    private func receive(_ message: SIPMessage, on id: FlowID) {
        let outputs = proxy.receive(message, on: id, at: .now) { id in
            if connections[id] != nil { return .tcp }
            return peers[id] != nil ? .udp : nil
        }
        for output in outputs {
            if let connection = connections[output.flow] {
                if (try? connection.send(output.message)) == nil { end(output.flow) }
            } else if let peer = peers[output.flow] {
                datagrams.send(output.message, to: peer)
            }
        }
    }
}

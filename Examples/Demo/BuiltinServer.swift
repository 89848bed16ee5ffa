import SIPKit

/// The package's own registrar and proxy, on loopback.
@MainActor
final class BuiltinServer {
    let port: UInt16
    private let loop: Loop
    private var server: ProxyServer
    private let listener: SIPListener
    private let datagrams: SIPDatagramSocket
    private var connections: [FlowID: SIPSocket] = [:]
    private var peers: [FlowID: SIPAddress] = [:]
    private var flows: [SIPAddress: FlowID] = [:]
    private var lastFlow: UInt64 = 0

    init(domain: String, passwords: [String: String], loop: Loop) throws {
        self.loop = loop
        let host = "127.0.0.1"
        let sockets = try SIPServerSockets(host: host)
        listener = sockets.listener
        datagrams = sockets.datagrams
        port = sockets.port
        server = ProxyServer(
            domain: domain, host: host, ports: [.tcp: port, .udp: port],
            registrar: Registrar(domain: domain, passwords: passwords))
        loop.add(Loop.Source(descriptor: listener.descriptor) { [weak self] in self?.accept() })
        loop.add(Loop.Source(descriptor: datagrams.descriptor) { [weak self] in self?.receiveDatagrams() })
    }

    private func newFlow() -> FlowID {
        lastFlow += 1
        return FlowID(rawValue: lastFlow)
    }

    private func accept() {
        while let socket = try? listener.accept() {
            let flow = newFlow()
            connections[flow] = socket
            loop.add(
                Loop.Source(
                    descriptor: socket.descriptor, wantsToWrite: { socket.wantsToWrite },
                    serve: { [weak self] in self?.serve(socket, flow) }))
        }
    }

    private func serve(_ socket: SIPSocket, _ flow: FlowID) {
        guard (try? socket.flush()) != nil else { return end(flow) }
        let reception = socket.receive()
        for message in reception.messages { receive(message, on: flow) }
        if reception.end != nil { end(flow) }
    }

    private func end(_ flow: FlowID) {
        guard let socket = connections.removeValue(forKey: flow) else { return }
        loop.remove(socket.descriptor)
        server.flowEnded(flow)
    }

    /// Closes every connection, as a restarted server does, or resets it, as a crashed one does. Returns
    /// their number.
    func closeConnections(byReset: Bool) -> Int {
        let flows = Array(connections.keys)
        if byReset {
            for socket in connections.values { socket.resetAtClose() }
        }
        for flow in flows { end(flow) }
        return flows.count
    }

    private func receiveDatagrams() {
        for (message, sender) in datagrams.receive() {
            let flow = flows[sender] ?? newFlow()
            flows[sender] = flow
            peers[flow] = sender
            receive(message, on: flow)
        }
    }

    private func receive(_ message: SIPMessage, on flow: FlowID) {
        let outputs = server.receive(message, on: flow, at: .now) { flow in
            if connections[flow] != nil { return .tcp }
            return peers[flow] != nil ? .udp : nil
        }
        for output in outputs {
            if let socket = connections[output.flow] {
                if (try? socket.send(output.message)) == nil { end(output.flow) }
            } else if let peer = peers[output.flow] {
                datagrams.send(output.message, to: peer)
            }
        }
    }
}

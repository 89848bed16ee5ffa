/// A registrar and proxy for one domain: the demo's replacement for a real SIP server.
///
/// The proxy is stateless (RFC 3261 §16.11) and stays on the way of every call by `Record-Route`. Its own
/// `Via` and `Record-Route` hold the flows that messages have to go back and forth on, so it remembers
/// nothing but bindings. (On an open network these would have to be signed: RFC 5626 §5.2.) No I/O, no clock:
/// a message comes in on a flow, messages for flows come out.
public struct ProxyServer: Sendable {
    public struct Output: Sendable, Equatable {
        public var flow: FlowID
        public var message: SIPMessage
    }

    private let domain: String
    private let host: String
    private let ports: [SIPTransport: UInt16]
    public private(set) var registrar: Registrar

    /// `ports` tells where the server itself listens, on `host`.
    public init(domain: String, host: String, ports: [SIPTransport: UInt16], registrar: Registrar) {
        self.domain = domain
        self.host = host
        self.ports = ports
        self.registrar = registrar
    }

    public mutating func flowEnded(_ flow: FlowID) {
        registrar.flowEnded(flow)
    }

    /// A message has arrived on a flow. `transports` maps a flow to its transport, and nil for one that has
    /// ended.
    public mutating func receive(
        _ message: SIPMessage, on flow: FlowID, at now: ContinuousClock.Instant,
        transports: (FlowID) -> SIPTransport?
    ) -> [Output] {
        guard let method = message.method else { return forwardResponse(message) }
        guard case .request(_, let text) = message.startLine, let cSeq = message.cSeq, cSeq.method == method,
            message.topVia != nil, message.callID != nil
        else { return [] }
        func answer(_ status: Int, _ reason: String) -> [Output] {
            method == .ack
                ? [] : [Output(flow: flow, message: message.response(status, reason, tag: newToken()))]
        }
        guard let uri = try? SIPURI(parsing: text) else { return answer(416, "Unsupported URI Scheme") }
        let hops = message.headers[.maxForwards].map { Int(decimal: $0) } ?? 70
        guard let hops, hops > 0 else { return answer(483, "Too Many Hops") }
        var request = message
        request.headers[.maxForwards] = String(hops - 1)

        if let next = takeRoute(of: &request, from: flow) {
            return forward(request, from: flow, to: next, recording: false, transports: transports)
        }
        guard uri.host.lowercased() == domain.lowercased() || uri.host == host else {
            return answer(403, "Relaying Denied")
        }
        if method == .register {
            return [Output(flow: flow, message: registrar.register(message, on: flow, at: now))]
        }
        guard let user = uri.user else {
            return method == .options ? answer(200, "OK") : answer(404, "Not Found")
        }
        guard registrar.isKnown(user) else { return answer(404, "Not Found") }
        guard let binding = registrar.bindings(of: user, at: now).last else {
            return answer(480, "Temporarily Unavailable")
        }
        request.startLine = .request(method: method, uri: binding.contact.description)
        return forward(
            request, from: flow, to: binding.flow, recording: method == .invite, transports: transports)
    }

    /// Removes our own `Route` and returns the flow that it names: that of the other end of the call.
    private func takeRoute(of request: inout SIPMessage, from flow: FlowID) -> FlowID? {
        var routes = request.headers.list(.route)
        guard let first = routes.first, let route = try? NameAddress(parsing: first), route.uri.host == host,
            route.uri.port.map({ ports.values.contains($0) }) ?? false,
            let ends = route.uri.user?.split(separator: "-").compactMap({ UInt64($0, radix: 16) }),
            ends.count == 2, ends.contains(flow.rawValue)
        else { return nil }
        routes.removeFirst()
        request.headers.replace(.route, with: routes)
        return FlowID(rawValue: ends[0] == flow.rawValue ? ends[1] : ends[0])
    }

    private func forward(
        _ message: SIPMessage, from: FlowID, to: FlowID, recording: Bool,
        transports: (FlowID) -> SIPTransport?
    ) -> [Output] {
        guard let transport = transports(to), let port = ports[transport], let branch = message.topVia?.branch
        else {
            let answer = message.response(430, "Flow Failed", tag: newToken())
            return message.method == .ack ? [] : [Output(flow: from, message: answer)]
        }
        var request = message
        if recording {
            var route = SIPURI(user: "\(hex(from))-\(hex(to))", host: host, port: port)
            route.parameters["lr"] = ""
            request.headers.prepend(.recordRoute, "<\(route)>")
        }
        // The same request again, its CANCEL and the ACK of a refusal must get the same branch (§16.11).
        let identity = "\(branch) \(message.callID ?? "") \(message.cSeq?.number ?? 0) \(hex(from))"
        let own = "\(Via.branchCookie)\(DigestAlgorithm.md5.hash(identity)).\(hex(from))"
        var via = Via(transport, host: host, port: port, branch: own)
        via.parameters["rport"] = nil
        request.headers.prepend(.via, via.description)
        return [Output(flow: to, message: request)]
    }

    /// Goes back on the flow that our `Via` names.
    private func forwardResponse(_ message: SIPMessage) -> [Output] {
        var vias = message.headers.list(.via)
        guard vias.count > 1, let own = message.topVia, own.host == host,
            own.port.map({ ports.values.contains($0) }) ?? false,
            let flow = own.branch?.split(separator: ".").last.flatMap({ UInt64($0, radix: 16) })
        else { return [] }
        vias.removeFirst()
        var response = message
        response.headers.replace(.via, with: vias)
        return [Output(flow: FlowID(rawValue: flow), message: response)]
    }

    private func hex(_ flow: FlowID) -> String { String(flow.rawValue, radix: 16) }
}

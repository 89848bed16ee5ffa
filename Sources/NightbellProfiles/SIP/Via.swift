/// The first value of the topmost Via, which says where the answer has to go (RFC 3261 §20.42).
struct Via {
    private let host: Range<Int>
    private let port: UInt64
    /// The parameter `rport`, if there is one without a value: the sender asks for an answer to where it sent
    /// from.
    private var rport: Range<Int>?
    /// The end of this value: another may follow behind a comma.
    private let end: Int

    init(_ bytes: Span<UInt8>, _ value: Range<Int>, over transport: Transport) throws(Obstacle) {
        var index = try Self.endOfProtocol(bytes, value, over: transport)
        let start = index
        while index < value.upperBound, Self.isHost(bytes[index], isIPv6: bytes[start] == UInt8(ascii: "[")) {
            index += 1
        }
        host = start..<index
        guard !host.isEmpty else { throw .significant(.malformed) }
        if index < value.upperBound, bytes[index] == UInt8(ascii: ":") {
            index += 1
            let end = (index..<value.upperBound).first { !bytes[$0].isDigit } ?? value.upperBound
            let digits = index..<end
            guard let number = bytes.decimal(digits, maximum: 65_535) else { throw .significant(.malformed) }
            (port, index) = (number, digits.upperBound)
        } else {
            port = 5_060
        }
        var parameters = Parameters(index..<value.upperBound)
        var rport: Range<Int>?
        while let parameter = try parameters.next(bytes) {
            try Self.check(parameter, bytes)
            guard bytes.equalsIgnoringCase(parameter.name, "rport") else { continue }
            guard rport == nil, parameter.value == nil else { throw .significant(.unusual) }
            rport = parameter.name
        }
        self.rport = rport
        end = parameters.rest.lowerBound
    }

    /// `SIP/2.0/UDP` and the spaces behind it.
    private static func endOfProtocol(
        _ bytes: Span<UInt8>, _ value: Range<Int>, over transport: Transport
    ) throws(Obstacle) -> Int {
        guard let space = value.first(where: { bytes[$0].isSpaceOrTab }) else {
            throw .significant(.malformed)
        }
        let name = value.lowerBound..<space
        let isKnown =
            switch transport {
            case .datagram: bytes.equalsIgnoringCase(name, "sip/2.0/udp")
            case .stream:
                bytes.equalsIgnoringCase(name, "sip/2.0/tcp") || bytes.equalsIgnoringCase(name, "sip/2.0/tls")
            }
        guard isKnown else { throw .significant(.unusual) }
        return bytes.trimmed(space..<value.upperBound).lowerBound
    }

    private static func isHost(_ byte: UInt8, isIPv6: Bool) -> Bool {
        if byte.isDigit || byte.isLetter || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "-") {
            return true
        }
        return isIPv6 && "[]:".utf8.contains(byte)
    }

    /// What sends the answer elsewhere, or was to be written by us, is unusual.
    private static func check(_ parameter: Parameters.Parameter, _ bytes: Span<UInt8>) throws(Obstacle) {
        let name = parameter.name
        if bytes.equalsIgnoringCase(name, "maddr") || bytes.equalsIgnoringCase(name, "received")
            || bytes.equalsIgnoringCase(name, "comp")
        {
            throw .significant(.unusual)
        }
    }

    // MARK: What the one who answers adds

    /// What is to be written into the value.
    struct Amendment {
        fileprivate(set) var rport: (after: Int, port: UInt16)?
        fileprivate(set) var received: (after: Int, address: Endpoint)?

        /// Writes the whole value with what is added.
        func write(_ value: Range<Int>, _ bytes: Span<UInt8>, to output: inout [UInt8]) {
            var start = value.lowerBound
            if let rport {
                output.append(bytes, start..<rport.after)
                output.append("=")
                output.append(decimal: UInt64(rport.port))
                start = rport.after
            }
            if let received {
                output.append(bytes, start..<received.after)
                output.append(";received=")
                received.address.writeAddress(to: &output)
                start = received.after
            }
            output.append(bytes, start..<value.upperBound)
        }
    }

    /// RFC 3261 §18.2.1: the address that the request came from, unless the sender knew it; RFC 3581 §4: with
    /// its port, if the sender asks for it.
    ///
    /// An answer to a datagram leaves on the same socket to where the request came from. If it had to go
    /// elsewhere (§18.2.2), to a port that differs from the one it came from, it is up to the owner.
    func amendment(
        for peer: Endpoint?, _ bytes: Span<UInt8>, over transport: Transport
    ) throws(Obstacle) -> Amendment {
        var amendment = Amendment()
        guard let peer else {
            // On a stream the answer goes back on the same connection, whatever Via says.
            if transport == .datagram { throw .significant(.unusual) }
            return amendment
        }
        if let rport {
            amendment.rport = (rport.upperBound, peer.port)
        } else if transport == .datagram, port != UInt64(peer.port) {
            throw .significant(.unusual)
        }
        if rport != nil || !isHost(peer, bytes) { amendment.received = (end, peer) }
        return amendment
    }

    /// Whether the host is the address, spelled as we would. If not, `received` is added, which never hurts.
    private func isHost(_ peer: Endpoint, _ bytes: Span<UInt8>) -> Bool {
        var text: [UInt8] = []
        peer.writeAddress(to: &text)
        let isBracketed = bytes[host.lowerBound] == UInt8(ascii: "[") && host.count >= 2
        return bytes.equals(isBracketed ? (host.lowerBound + 1)..<(host.upperBound - 1) : host, text)
    }
}

/// The first value of the topmost Via, which determines where the answer has to go (RFC 3261 §20.42).
struct Via {
    private let host: Range<Int>
    private let port: UInt64
    /// The parameter `rport`, if there is one without a value: the sender asks for an answer to where it sent
    /// from.
    private var rport: Range<Int>?
    /// The end of this value: another may follow behind a comma.
    private let end: Int

    init(_ bytes: Span<UInt8>, _ value: Range<Int>, over transport: Transport) throws(ParseStop) {
        var index = try Self.endOfProtocol(bytes, value, over: transport)
        host = try Self.host(bytes, index..<value.upperBound)
        index = host.upperBound
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
        try Self.checkNext(bytes, parameters.rest)
    }

    /// Checks that the first value is followed by nothing, or by a comma and a valid beginning.
    private static func checkNext(_ bytes: Span<UInt8>, _ rest: Range<Int>) throws(ParseStop) {
        let rest = bytes.trimmed(rest)
        guard !rest.isEmpty else { return }
        let next = bytes.trimmed((rest.lowerBound + 1)..<rest.upperBound)
        let name = next.lowerBound..<min(next.lowerBound + 8, next.upperBound)
        guard bytes[rest.lowerBound] == UInt8(ascii: ","), bytes.equalsIgnoringCase(name, "sip/2.0/") else {
            throw .significant(.malformed)
        }
    }

    /// A name, an IPv4 address, or an IPv6 address in brackets.
    private static func host(_ bytes: Span<UInt8>, _ range: Range<Int>) throws(ParseStop) -> Range<Int> {
        let isIPv6 = !range.isEmpty && bytes[range.lowerBound] == UInt8(ascii: "[")
        let start = range.lowerBound + (isIPv6 ? 1 : 0)
        var end = start
        while end < range.upperBound, isHost(bytes[end], isIPv6: isIPv6) { end += 1 }
        guard end > start else { throw .significant(.malformed) }
        guard isIPv6 else { return start..<end }
        guard end < range.upperBound, bytes[end] == UInt8(ascii: "]") else {
            throw .significant(.malformed)
        }
        return range.lowerBound..<(end + 1)
    }

    /// `SIP/2.0/UDP` and the spaces behind it.
    private static func endOfProtocol(
        _ bytes: Span<UInt8>, _ value: Range<Int>, over transport: Transport
    ) throws(ParseStop) -> Int {
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
        if isIPv6 {
            return byte.isDigit || (byte.isLetter && byte.lowercased <= UInt8(ascii: "f"))
                || byte == UInt8(ascii: ":") || byte == UInt8(ascii: ".")
        }
        return byte.isDigit || byte.isLetter || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "-")
    }

    /// A parameter that redirects the answer, or that we would have to write, is unusual.
    private static func check(_ parameter: Parameters.Parameter, _ bytes: Span<UInt8>) throws(ParseStop) {
        let name = parameter.name
        if bytes.equalsIgnoringCase(name, "maddr") || bytes.equalsIgnoringCase(name, "received")
            || bytes.equalsIgnoringCase(name, "comp")
        {
            throw .significant(.unusual)
        }
    }

    // MARK: Additions to the answer

    /// The text to insert into the value.
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
    ///
    /// - Parameter scratch: used for a moment and left as it was.
    func amendment(
        for peer: Endpoint?, _ bytes: Span<UInt8>, over transport: Transport, scratch: inout [UInt8]
    ) throws(ParseStop) -> Amendment {
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
        if rport != nil || !isHost(peer, bytes, &scratch) { amendment.received = (end, peer) }
        return amendment
    }

    /// Whether the host is the address, spelled as we would. If not, `received` is added, which never hurts.
    private func isHost(_ peer: Endpoint, _ bytes: Span<UInt8>, _ scratch: inout [UInt8]) -> Bool {
        let start = scratch.count
        defer { scratch.removeLast(scratch.count - start) }
        peer.writeAddress(to: &scratch)
        let isBracketed = bytes[host.lowerBound] == UInt8(ascii: "[") && host.count >= 2
        let name = isBracketed ? (host.lowerBound + 1)..<(host.upperBound - 1) : host
        guard name.count == scratch.count - start else { return false }
        return name.allSatisfy { bytes[$0] == scratch[start + $0 - name.lowerBound] }
    }
}

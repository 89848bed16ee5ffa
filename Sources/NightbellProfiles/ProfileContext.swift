/// Inputs of a profile beyond the bytes, so that it uses no random number generator and no system call.
package struct ProfileContext: Sendable, Equatable {
    /// Fresh for every call, and unpredictable to the peer: transaction identifiers and masks are made of it.
    package var random: UInt128
    /// The source of the bytes.
    package var peer: Endpoint?

    package init(random: UInt128, peer: Endpoint? = nil) {
        self.random = random
        self.peer = peer
    }

    var random64: UInt64 { UInt64(truncatingIfNeeded: random) }
    var random32: UInt32 { UInt32(truncatingIfNeeded: random) }
}

/// The transport of a socket's messages.
package enum Transport: Sendable, Hashable, CaseIterable {
    /// Bytes without boundaries, TCP most of the time.
    case stream
    case datagram
}

/// An Internet address with a port.
package struct Endpoint: Sendable, Hashable {
    package enum Family: UInt8, Sendable { case v4, v6 }

    /// The address in network order, an IPv4 address in the last four bytes.
    package let high: UInt64
    package let low: UInt64
    package let port: UInt16
    package let family: Family

    package init(v4 address: UInt32, port: UInt16) {
        (high, low, family) = (0, UInt64(address), .v4)
        self.port = port
    }

    package init(v6 high: UInt64, _ low: UInt64, port: UInt16) {
        (self.high, self.low, family) = (high, low, .v6)
        self.port = port
    }

    /// The eight parts of an IPv6 address.
    private func group(_ index: Int) -> UInt16 {
        let half = index < 4 ? high : low
        return UInt16(truncatingIfNeeded: half >> (48 - 16 * UInt64(index & 3)))
    }

    /// Writes the address without the port: dotted, or as RFC 5952 §4 wants it (lower case, the longest run
    /// of two or more zeros left out, the first of equals), without brackets.
    func writeAddress(to output: inout [UInt8]) {
        switch family {
        case .v4:
            for shift in stride(from: 24, through: 0, by: -8) {
                output.append(decimal: (low >> UInt64(shift)) & 0xFF)
                if shift > 0 { output.append(UInt8(ascii: ".")) }
            }
        case .v6:
            let zeros = longestZeros
            var index = 0
            while index < 8 {
                if index == zeros.lowerBound, !zeros.isEmpty {
                    output.append("::")
                    index = zeros.upperBound
                    continue
                }
                if index > 0, index != zeros.upperBound || zeros.isEmpty { output.append(UInt8(ascii: ":")) }
                output.append(hex: UInt64(group(index)), digits: 1)
                index += 1
            }
        }
    }

    private var longestZeros: Range<Int> {
        var best = 0..<0
        var start = 0
        while start < 8 {
            var end = start
            while end < 8, group(end) == 0 { end += 1 }
            if end - start > max(1, best.count) { best = start..<end }
            start = end + 1
        }
        return best
    }
}

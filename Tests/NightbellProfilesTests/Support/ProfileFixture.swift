import NightbellProfiles

/// A stream that arrives while its owner sleeps, inspected by a profile, with an owner that wakes for the
/// rest.
///
/// Everything is a function of positions in the stream, so that two rehearsals of the same stream must have
/// the same result, however it is cut.
struct ProfileFixture {
    /// The result of a rehearsal.
    struct Outcome: Equatable {
        /// The ranges of the stream that the profile absorbed, neighbours merged.
        var absorbed: [Range<Int>] = []
        /// The ranges that the owner read itself.
        var read: [Range<Int>] = []
        /// The positions at which the owner was woken.
        var wakes: [Int] = []
        var replies: [UInt8] = []
        var pings: [[UInt8]] = []
        var delegated: DelegatedValues = .nothing
    }

    /// A violated invariant.
    struct Broken: Error, CustomStringConvertible {
        let description: String
    }

    private(set) var outcome = Outcome()
    private var profile: Profile
    private let delegated: DelegatedValues
    private var stream: [UInt8] = []
    /// The number of bytes that have arrived.
    private var arrived = 0
    /// The first unconsumed byte.
    private(set) var head = 0
    /// The owner is awake and reads up to here.
    private var readingUpTo: Int?

    init(_ profile: Profile, delegating delegated: DelegatedValues = .nothing) {
        self.profile = profile
        self.delegated = delegated
        self.profile.begin(delegating: delegated)
    }

    /// The delegated state, as it is now.
    var delegatedNow: DelegatedValues {
        var profile = profile
        return profile.end()
    }

    /// Sends a ping, if there is one to send now.
    mutating func ping() -> [UInt8]? {
        var output: [UInt8] = []
        let profileContext = profileContext
        guard profile.ping(profileContext, into: &output) else { return nil }
        outcome.pings.append(output)
        return output
    }

    /// One part of the stream arrives in pieces, followed by a silence that is long enough to wake an owner
    /// for a partial message.
    ///
    /// - Parameters:
    ///   - boundaries: the ends of messages in the part; an owner that was woken reads up to the next one.
    ///   - cut: the size of the next piece, up to the given number of bytes.
    mutating func play(
        _ part: [UInt8], boundaries: [Int], cut: (Int) -> Int
    ) throws(Broken) {
        let start = stream.count
        stream += part
        let ends = boundaries.map { start + $0 } + [stream.count]
        while arrived < stream.count {
            let count = cut(stream.count - arrived)
            arrived += min(max(1, count), stream.count - arrived)
            try look(ends)
        }
        while head < arrived {
            wake(ends)
            try look(ends)
        }
    }

    /// Ends it.
    mutating func finish() throws(Broken) -> Outcome {
        outcome.delegated = profile.end()
        try expect(head == stream.count, "only \(head) of \(stream.count) bytes are accounted for")
        let ranges = (outcome.absorbed + outcome.read).sorted { $0.lowerBound < $1.lowerBound }
        var next = 0
        for range in ranges {
            try expect(
                range.lowerBound == next, "bytes from \(next) to \(range.lowerBound) are lost or doubled")
            next = range.upperBound
        }
        try expect(next == stream.count, "bytes from \(next) on are lost")
        return outcome
    }

    private var profileContext: ProfileContext {
        let random = UInt128(UInt64(head) &* 0x9E37_79B9_7F4A_7C15) << 64 | UInt128(head)
        return ProfileContext(random: random, peer: Endpoint(v4: 0xC000_0201, port: 5060))
    }

    // MARK: New input

    private mutating func look(_ ends: [Int]) throws(Broken) {
        while head < arrived {
            if readingUpTo != nil {
                read()
                if readingUpTo != nil { return }
                continue
            }
            switch try inspect() {
            case .noise(let length, _):
                Self.append(head..<(head + length), to: &outcome.absorbed)
                head += length
            case .significant:
                wake(ends)
            case .needMore:
                return
            }
        }
    }

    private mutating func wake(_ ends: [Int]) {
        outcome.wakes.append(head)
        _ = profile.end()
        readingUpTo = ends.first { $0 > head }
    }

    private mutating func read() {
        guard let end = readingUpTo else { return }
        let stop = min(end, arrived)
        if stop > head { Self.append(head..<stop, to: &outcome.read) }
        head = stop
        guard head == end else { return }
        readingUpTo = nil
        profile.begin(delegating: delegated)
    }

    private mutating func inspect() throws(Broken) -> Verdict {
        // Copies, because nothing else may be touched while the bytes are borrowed.
        let (stream, profileContext) = (stream, profileContext)
        let bytes = stream.span.extracting(head..<arrived)
        do {
            return try profile.inspectChecked(bytes, profileContext, &outcome.replies)
        } catch {
            throw Broken(description: "at \(head): \(error)")
        }
    }

    private func expect(_ condition: Bool, _ text: @autoclosure () -> String) throws(Broken) {
        if !condition { throw Broken(description: text()) }
    }

    private static func append(_ range: Range<Int>, to ranges: inout [Range<Int>]) {
        if let last = ranges.last, last.upperBound == range.lowerBound {
            ranges[ranges.count - 1] = last.lowerBound..<range.upperBound
        } else {
            ranges.append(range)
        }
    }
}

extension Profile {
    /// Inspects, and checks the invariants of every verdict.
    fileprivate mutating func inspectChecked(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, _ replies: inout [UInt8]
    ) throws(ProfileFixture.Broken) -> Verdict {
        func expect(_ condition: Bool, _ text: @autoclosure () -> String) throws(ProfileFixture.Broken) {
            if !condition { throw ProfileFixture.Broken(description: text()) }
        }
        func inspectAgain(
            _ profile: Profile, _ bytes: Span<UInt8>, expecting expected: Verdict
        ) throws(ProfileFixture.Broken) {
            var profile = profile
            var ignored: [UInt8] = []
            let verdict = profile.inspect(bytes, profileContext, replies: &ignored)
            try expect(verdict == expected, "\(verdict) instead of \(expected)")
        }
        let (before, start) = (self, replies.count)
        let verdict = inspect(bytes, profileContext, replies: &replies)
        let reply = replies.count - start
        switch verdict {
        case .noise(let length, let noise):
            try expect((1...bytes.count).contains(length), "\(length) bytes of \(bytes.count) are noise")
            try expect(length <= longestNoise, "noise of \(length) bytes is longer than promised")
            try expect(
                (noise == .ping) == (reply > 0) || noise == .step, "\(noise) has a reply of \(reply) bytes")
            try expect(reply <= length + 8_192, "a reply of \(reply) bytes")
        case .significant:
            try expect(reply == 0, "a reply to something significant")
            try inspectAgain(self, bytes, expecting: .significant(.unsettled))
        case .needMore(let limit):
            try expect(reply == 0, "a reply to something that is not whole")
            try expect(limit > bytes.count, "needs \(limit) bytes while there are \(bytes.count)")
            try expect(limit <= longestNoise, "needs more than the longest noise")
        }
        if bytes.count > longestNoise, longestNoise > 0 {
            try inspectAgain(before, bytes.extracting(first: longestNoise), expecting: verdict)
        }
        return verdict
    }
}

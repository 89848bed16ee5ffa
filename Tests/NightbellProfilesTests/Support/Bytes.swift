import NightbellProfiles
import Testing

/// Bytes of a text with CRLF line ends.
func lines(_ text: String) -> [UInt8] {
    Array(text.utf8).flatMap { $0 == 0x0A ? [0x0D, 0x0A] : [$0] }
}

/// Bytes from hexadecimal digits; spaces do not count.
func hex(_ text: String) -> [UInt8] {
    let digits = text.compactMap(\.hexDigitValue)
    return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
}

func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

let peer = Endpoint(v4: 0xC000_0201, port: 5060)
let tagKey: UInt128 = 0x0F0E_0D0C_0B0A_0908_0706_0504_0302_0100

/// A profile at work, with its output.
struct Desk {
    var profile: Profile
    var replies: [UInt8] = []
    var random: UInt128 = 0x0102_0304_0506_0708_1112_1314_1516_1718

    init(
        _ settings: ProfileSettings, over transport: Transport = .stream,
        delegating delegated: DelegatedValues = .nothing
    )
        throws
    {
        profile = try Profile(settings, over: transport)
        profile.begin(delegating: delegated)
    }

    init(_ profile: Profile) {
        self.profile = profile
        self.profile.begin()
    }

    /// Inspects the bytes; returns the reply alone.
    mutating func inspect(_ bytes: [UInt8], from peer: Endpoint? = peer) -> (Verdict, reply: [UInt8]) {
        var replies: [UInt8] = []
        let verdict = profile.inspect(
            bytes.span, ProfileContext(random: random, peer: peer), replies: &replies)
        return (verdict, replies)
    }

    mutating func inspect(_ text: String) -> (Verdict, reply: String) {
        let (verdict, reply) = inspect(Array(text.utf8))
        return (verdict, NightbellProfilesTests.text(reply))
    }

    mutating func ping(again: Bool = false) -> [UInt8]? {
        var output: [UInt8] = []
        let isSent = profile.ping(again: again, ProfileContext(random: random, peer: peer), into: &output)
        return isSent ? output : nil
    }

    mutating func sentPing() throws -> [UInt8] {
        let output = ping()
        return try #require(output)
    }
}

/// The expected verdict on some bytes.
struct Expectation: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let bytes: [UInt8]
    let verdict: Verdict
    var reply: [UInt8] = []

    init(_ name: String, _ bytes: [UInt8], _ verdict: Verdict, reply: [UInt8] = []) {
        (testDescription, self.bytes, self.verdict, self.reply) = (name, bytes, verdict, reply)
    }

    init(_ name: String, _ text: String, _ verdict: Verdict, reply: String = "") {
        self.init(name, Array(text.utf8), verdict, reply: Array(reply.utf8))
    }

    /// The same for a stream and each of its prefixes: an incomplete message must not get another verdict.
    func check(_ desk: Desk) {
        var whole = desk
        let (verdict, reply) = whole.inspect(bytes)
        #expect(verdict == self.verdict, "\(testDescription)")
        #expect(text(reply) == text(self.reply), "\(testDescription)")
        for count in 1..<max(1, bytes.count) {
            var partial = desk
            let (early, reply) = partial.inspect(Array(bytes[..<count]))
            switch (early, verdict) {
            case (.needMore(let limit), _):
                #expect(limit > count && reply.isEmpty)
            case (.noise(let length, _), .noise(let other, _)):
                #expect(length == other && reply == self.reply)
            case (.significant, .significant):
                #expect(reply.isEmpty)
            case (_, _):
                #expect(
                    Bool(false), "\(testDescription): \(early) after \(count) bytes, \(verdict) after all")
            }
        }
    }
}

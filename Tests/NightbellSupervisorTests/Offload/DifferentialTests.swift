import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// The bytes that a client reads and the bytes that were consumed for it are together the bytes that were
/// sent, in order: random messages of each protocol, cut and joined at random, with a client that sleeps and
/// wakes in between.
@Suite(.timeLimit(.minutes(120))) struct DifferentialTests {
    /// `NIGHTBELL_DIFFERENTIAL_BYTES` for each shape.
    private static let bytes =
        ProcessInfo.processInfo.environment["NIGHTBELL_DIFFERENTIAL_BYTES"].flatMap(Int.init) ?? 100_000

    @Test(arguments: Shape.allCases) func nothingIsLostAddedOrMoved(shape: Shape) throws {
        let scene = try OffloadScene(try .tcp(), shape.profile) {
            // No token bucket runs empty: only messages wake.
            $0.settings.offload.noiseBurst = 1_000_000
            $0.settings.offload.noiseInterval = .microseconds(1)
            $0.settings.offload.partialTimeout = .seconds(60)
            $0.settings.wakes.linger = .zero
            $0.settings.wakes.limit = 1_000_000
            // A client that does not answer in time is suspended by force and then woken by everything, noise
            // included. On a machine that stalls for a moment that would happen to this client.
            $0.settings.budgets.prepareToSuspend = .seconds(600)
            $0.settings.budgets.wake = .seconds(600)
        }
        scene.pair.sendAtOnce()
        var random = SeededGenerator(state: 0x6e62 + UInt64(shape.hashValueOfName))
        var (sent, absorbed, pieces, wakes) = (0, 0, 0, 0)
        try scene.client.goToSleep(delegating: shape.delegated(scene.token))
        while sent < Self.bytes {
            let batch = (0..<Int.random(in: 1...12, using: &random)).map { _ in shape.message(&random) }
            let stream = batch.flatMap(\.bytes)
            sent += stream.count
            try write(stream, scene, &random)
            let first = batch.firstIndex { !$0.isNoise } ?? batch.count
            pieces += first
            let noise = batch[..<first].reduce(0) { $0 + $1.bytes.count }
            guard first < batch.count else {
                // No client is woken: all of it disappears.
                absorbed += noise
                let isGone = eventually { scene.pair.unread == 0 }
                #expect(isGone, "\(scene.pair.unread) bytes of noise are left")
                continue
            }
            let wake = try scene.client.wake()
            wakes += 1
            let left = Array(stream[noise...])
            let read = scene.pair.receivedBytes(left.count)
            guard read == left else {
                let info = try Self.info(scene)
                #expect(
                    read == left,
                    """
                    after \(sent) bytes, wake \(wakes), \(wake), \(info.counters), \(info.offload); \
                    by force \(info.counters["suspensions_forced"])
                    """)
                return
            }
            absorbed += noise
            try scene.client.finish(wake)
            try scene.client.ready(try scene.client.prepare(), delegating: shape.delegated(scene.token))
        }
        let info = try Self.info(scene)
        #expect(info.counters["wakes"] == UInt64(wakes))
        // Each counts once; contiguous white space counts once, too.
        let counted = info.offload.answered + info.offload.absorbed
        #expect(shape == .xmpp ? counted <= UInt64(pieces) : counted == UInt64(pieces))
        print("\(shape): \(sent) bytes sent, \(absorbed) absorbed, \(sent - absorbed) read, \(wakes) wakes")
        try scene.stop()
    }

    /// Uses a connection of its own: one without Hello is closed after minutes.
    private static func info(_ scene: OffloadScene) throws -> WireClientInfo {
        try WireClient(scene.supervisor).show(OffloadScene.name)
    }

    /// In pieces of any size; the supervisor's answers are discarded.
    private func write(_ bytes: [UInt8], _ scene: OffloadScene, _ random: inout SeededGenerator) throws {
        var start = 0
        while start < bytes.count {
            let whole = Bool.random(using: &random)
            let end = whole ? bytes.count : min(bytes.count, start + Int.random(in: 1...64, using: &random))
            guard send(scene.pair.far, Array(bytes[start..<end]), end - start, Int32(MSG_NOSIGNAL)) > 0 else {
                throw Pair.failure("send")
            }
            start = end
            if Int.random(in: 0..<8, using: &random) == 0 { sched_yield() }
            scene.pair.discardAnswers()
        }
    }
}

/// The messages, by protocol.
enum Shape: String, CaseIterable {
    case lines, bytes, sip, stun, irc, mqtt, webSocket, xmpp, imap, tcp

    struct Message {
        var bytes: [UInt8]
        var isNoise: Bool

        init(_ text: String, isNoise: Bool) { self.init(Array(text.utf8), isNoise: isNoise) }

        init(_ bytes: [UInt8], isNoise: Bool) {
            self.bytes = bytes
            self.isNoise = isNoise
        }
    }

    var hashValueOfName: Int { rawValue.utf8.reduce(0) { $0 * 31 + Int($1) } }

    var profile: WireProfile {
        switch self {
        case .lines: return .lines()
        case .bytes: return .bytes([([0], [0, 0]), ([1, 2, 3], []), ([1, 2, 4, 5], [6])])
        case .tcp: return .make(.tcp(.init()))
        case .stun:
            var stun = WireProfile.STUN()
            stun.indication = true
            return .make(.stun(stun), interval: .seconds(120))
        case .sip: return .make(.sip(.init()), interval: .seconds(3_600))
        case .irc: return .make(.irc(.init()), interval: .seconds(3_600))
        case .mqtt:
            var mqtt = WireProfile.MQTT()
            mqtt.server = true
            return .make(.mqtt(mqtt))
        case .webSocket: return .make(.webSocket(.init()), interval: .seconds(3_600))
        case .xmpp: return .make(.xmpp(.init()), interval: .seconds(3_600))
        case .imap: return .make(.imap(.init()))
        }
    }

    func delegated(_ token: UInt64) -> [WireDelegatedState] { [] }

    private func text(_ random: inout SeededGenerator, _ longest: Int = 40) -> String {
        let letters = Array("abcdefghijklmnopqrstuvwxyz 0123456789")
        return String(
            (0...Int.random(in: 0..<longest, using: &random)).map { _ in
                letters[Int.random(in: 0..<letters.count, using: &random)]
            })
    }

    func message(_ random: inout SeededGenerator) -> Message {
        let isNoise = Int.random(in: 0..<4, using: &random) != 0
        let word = text(&random)
        switch self {
        case .lines:
            guard isNoise else { return Message("ping\(word)x\n", isNoise: false) }
            return Message(Bool.random(using: &random) ? "ping\n" : "nop\n", isNoise: true)
        case .bytes:
            let noise: [[UInt8]] = [[0], [1, 2, 3], [1, 2, 4, 5]]
            return isNoise
                ? Message(noise[Int.random(in: 0..<3, using: &random)], isNoise: true)
                : Message([1, 2, 4] + Array(word.utf8), isNoise: false)
        case .stun:
            // Indications of Binding, and of Data.
            let length = isNoise ? 0 : (word.utf8.count + 3) & ~3
            let cookie: [UInt8] = [0x21, 0x12, 0xA4, 0x42]
            let transaction = (0..<12).map { _ in UInt8.random(in: 0...255, using: &random) }
            let data = (Array(word.utf8) + [0, 0, 0]).prefix(length)
            return Message(
                [0, isNoise ? 0x11 : 0x17, 0, UInt8(length)] + cookie + transaction + data, isNoise: isNoise)
        case .tcp: return Message(word, isNoise: false)
        case .sip:
            return sip(isNoise, word, Int.random(in: 0..<2, using: &random) == 0)
        case .irc:
            let id = word.replacingOccurrences(of: " ", with: "x")
            return isNoise
                ? Message("PING :\(id)\r\n", isNoise: true)
                : Message(":friend!f@example.org PRIVMSG sleeper :\(word)\r\n", isNoise: false)
        case .mqtt:
            if isNoise { return Message([0xC0, 0], isNoise: true) }
            return Message([0x30, UInt8(word.utf8.count + 3), 0, 1, 0x74] + Array(word.utf8), isNoise: false)
        case .webSocket:
            let opcode: UInt8 = isNoise ? 0x89 : 0x81
            return Message([opcode, UInt8(word.utf8.count)] + Array(word.utf8), isNoise: isNoise)
        case .xmpp:
            guard isNoise else { return Message("<message><body>\(word)</body></message>", isNoise: false) }
            let ping = "<iq type='get' id='p\(word.utf8.count)'><ping xmlns='urn:xmpp:ping'/></iq>"
            return Message(Bool.random(using: &random) ? " " : ping, isNoise: true)
        case .imap:
            return isNoise
                ? Message("* OK Still here\r\n", isNoise: true)
                : Message("* OK \(word) there\r\n", isNoise: false)
        }
    }

    private func sip(_ isNoise: Bool, _ word: String, _ isShort: Bool) -> Message {
        if isNoise, isShort { return Message("\r\n\r\n", isNoise: true) }
        let method = isNoise ? "OPTIONS" : "MESSAGE"
        let body = isNoise ? "" : word
        return Message(
            """
            \(method) sip:alice@127.0.0.1 SIP/2.0\r
            Via: SIP/2.0/TCP 127.0.0.1:5070;branch=z9hG4bK\(word.utf8.count)\r
            Max-Forwards: 70\r
            From: <sip:pinger@example.org>;tag=a\r
            To: <sip:alice@example.org>\r
            Call-ID: \(word.utf8.count)@example.org\r
            CSeq: 7 \(method)\r
            Content-Length: \(body.utf8.count)\r
            \r
            \(body)
            """, isNoise: isNoise)
    }
}

/// The same numbers each time. (SplitMix64.)
struct SeededGenerator: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}

extension WireClient {
    fileprivate func goToSleep(delegating delegated: [WireDelegatedState]) throws {
        try enterBackground()
        try ready(try prepare(), delegating: delegated)
    }
}

extension Pair {
    /// The number of unread bytes on the near side.
    fileprivate var unread: Int32 {
        var count: Int32 = 0
        _ = ioctl(near, UInt(FIONREAD), &count)
        return count
    }

    /// Reads so many bytes on the near side, and then any others.
    fileprivate func receivedBytes(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        _ = eventually {
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let read = recv(near, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if read > 0 { bytes += buffer[..<read] }
            return bytes.count >= count
        }
        return bytes
    }

    /// Otherwise the kernel joins pieces, and delays them.
    fileprivate func sendAtOnce() {
        var isOn: Int32 = 1
        setsockopt(far, Int32(IPPROTO_TCP), TCP_NODELAY, &isOn, socklen_t(MemoryLayout<Int32>.size))
    }

    fileprivate func discardAnswers() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while recv(far, &buffer, buffer.count, Int32(MSG_DONTWAIT)) > 0 {}
    }
}

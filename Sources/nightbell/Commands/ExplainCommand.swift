import ArgumentParser
import Glibc
import NightbellProfiles
import Presentation

struct ExplainCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "explain",
        abstract: "Explains how a keep-alive profile treats captured bytes.",
        discussion: """
            Inspects the bytes as the supervisor would while their owner sleeps: which are absorbed, how they are \
            answered, and which would wake the owner. Nothing behind the first message that wakes is inspected: \
            only the owner knows where the next one begins.

            Without files the standard input is one stream. Several files are one stream as well, which arrives in \
            that many pieces. With --datagram each file is one datagram.

              nightbell explain --profile sip < capture
              nightbell explain --profile sip --datagram --peer 192.0.2.1:5060 ping-1 ping-2
              nightbell explain --profile line --pattern ping=pong --pattern noop < capture
            """)

    @Option(help: "One of \(ProfileName.allCases.map(\.rawValue).joined(separator: ", ")).")
    var profile: ProfileName

    @Flag(help: "The bytes are datagrams.")
    var datagram = false

    @OptionGroup var subject: ExplainedProfile

    @Option(
        help: ArgumentHelp(
            "The bytes' source: SIP answers contain it, and need it on UDP.", valueName: "address:port"))
    var peer: EndpointArgument?

    @Flag(help: "Inspect as if a ping had just been sent, and show it.")
    var ping = false

    @Flag(help: "Print one JSON object a line.")
    var json = false

    @Argument(help: "Files with bytes; the standard input if there are none.")
    var files: [String] = []

    func validate() throws {
        try subject.check(profile)
        _ = try start()
    }

    func run() throws {
        var explainer = try start()
        var page = Page(isJSON: json)
        if ping { page.show(explainer.ping()) }
        for file in files.isEmpty ? [nil] : files.map(Optional.some) {
            let bytes: [UInt8]
            do throws(InputError) {
                bytes = try Input.read(file)
            } catch {
                page.flush()
                throw error
            }
            explainer.inspect(bytes) { page.show($0) }
        }
        explainer.finish { page.show($0) }
        if !json { page.add([explainer.summary]) }
        page.flush()
    }

    private func start() throws -> Explainer {
        let transport: Transport = datagram ? .datagram : .stream
        do {
            var profile = try Profile(try subject.settings(profile), over: transport)
            profile.begin(delegating: try subject.delegated())
            return Explainer(profile, ProfileContext(random: Self.random, peer: peer?.endpoint))
        } catch {
            throw ValidationError("profile \(self.profile.rawValue): \(error)")
        }
    }

    /// Constant, so that explanations can be compared.
    private static let random: UInt128 = 0x6E69_6768_7462_656C_6C6E_6967_6874_6265

    /// Buffers output, many lines at a time.
    private struct Page {
        let isJSON: Bool
        let width: Int?
        private var lines: [String] = []
        private static let length = 1_024

        init(isJSON: Bool) {
            self.isJSON = isJSON
            width = isJSON ? nil : terminalWidth
        }

        mutating func show(_ findings: [Explainer.Finding]) {
            for finding in findings { add(isJSON ? [finding.json.text] : finding.lines(width: width)) }
        }

        mutating func add(_ more: [String]) {
            lines += more
            if lines.count >= Self.length { flush() }
        }

        mutating func flush() {
            if !lines.isEmpty { emit(lines) }
            lines.removeAll(keepingCapacity: true)
        }
    }
}

extension ProfileName: ExpressibleByArgument {}

/// The settings of a profile.
struct ExplainedProfile: ParsableArguments {
    enum Role: String, ExpressibleByArgument, CaseIterable { case client, server }
    enum End: String, ExpressibleByArgument, CaseIterable { case lf, crlf }

    @Option(help: "websocket, mqtt: which side the owner is; without it, the client.")
    var role: Role?

    @Option(
        name: .customLong("user"),
        help: ArgumentHelp("sip: the user part of the owner's addresses; any, if none is given."))
    var users: [String] = []

    @Option(help: "xmpp: the server's name; its pings are answered.")
    var server: String?

    @Option(help: "xmpp: the owner's own address.")
    var address: String?

    @Option(
        name: .customLong("filler"),
        help: ArgumentHelp(
            "imap: the text of an untagged OK that is noise; without it, Still here.",
            valueName: "text"))
    var fillers: [String] = []

    @Option(
        help: ArgumentHelp("line, bytes: a pattern, and the reply to it.", valueName: "text[=reply]"))
    var pattern: [String] = []

    @Flag(help: "bytes: patterns and replies are hexadecimal digits.")
    var hex = false

    @Option(help: "line: how lines end; without it, by crlf.")
    var lineEnd: End?

    @Option(
        help: ArgumentHelp(
            "xmpp: stream management is on; stanzas received and sent so far.", valueName: "received,sent"))
    var delegateCounters: String?

    @Option(help: ArgumentHelp("imap: the tag of the IDLE command that is under way.", valueName: "tag"))
    var delegateTag: String?

    /// An option that has no meaning for this profile is an error.
    func check(_ name: ProfileName) throws {
        let options: [(name: String, isGiven: Bool, profiles: [ProfileName])] = [
            ("role", role != nil, [.webSocket, .mqtt]), ("user", !users.isEmpty, [.sip]),
            ("server", server != nil, [.xmpp]), ("address", address != nil, [.xmpp]),
            ("filler", !fillers.isEmpty, [.imap]), ("pattern", !pattern.isEmpty, [.line, .bytes]),
            ("hex", hex, [.line, .bytes]), ("line-end", lineEnd != nil, [.line]),
            ("delegate-counters", delegateCounters != nil, [.xmpp]),
            ("delegate-tag", delegateTag != nil, [.imap]),
        ]
        for option in options where option.isGiven && !option.profiles.contains(name) {
            let names = option.profiles.map(\.rawValue).joined(separator: " and ")
            throw ValidationError("--\(option.name) is for \(names), and has no meaning for \(name.rawValue)")
        }
    }

    func settings(_ name: ProfileName) throws -> ProfileSettings {
        switch name {
        case .webSocket: .webSocket(try WebSocketSettings(role: role == .server ? .server : .client))
        case .mqtt:
            .mqtt(
                try MQTTSettings(
                    role: MQTTSettings.Role(isServer: role == .server, keepAlive: nil)))
        case .xmpp:
            .xmpp(
                try XMPPSettings(
                    server: server, address: address, usesStreamManagement: delegateCounters != nil))
        case .line:
            .pattern(try .lines(try exchanges(), end: lineEnd == .lf ? .newline : .carriageReturnNewline))
        case .bytes: .pattern(try .bytes(try exchanges()))
        case .sip: .sip(try SIPSettings(users: users, tagKey: 0))
        case .stun: .stun(try STUNSettings())
        case .irc: .irc(try IRCSettings())
        case .imap: .imap(try IMAPSettings(fillers: fillers))
        case .tcp: .tcp(try TCPSettings())
        }
    }

    private func exchanges() throws -> [PatternSettings.Exchange] {
        try pattern.map { text in
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return .init(try bytes(parts[0]), reply: try parts.count > 1 ? bytes(parts[1]) : [])
        }
    }

    private func bytes(_ text: Substring) throws -> [UInt8] {
        guard hex else { return Array(text.utf8) }
        let digits = text.filter { !$0.isWhitespace }.map(\.hexDigitValue)
        guard digits.count.isMultiple(of: 2) else {
            throw ValidationError("an odd number of digits in \(text)")
        }
        return try stride(from: 0, to: digits.count, by: 2).map { index in
            guard let high = digits[index], let low = digits[index + 1] else {
                throw ValidationError("\(text) is not hexadecimal")
            }
            return UInt8(high << 4 | low)
        }
    }

    func delegated() throws -> DelegatedValues {
        if let delegateCounters {
            let counters = delegateCounters.split(separator: ",").map { UInt32($0) }
            guard counters.count == 2, let received = counters[0], let sent = counters[1] else {
                throw ValidationError("--delegate-counters takes two numbers, such as 12,7")
            }
            return .stanzaCounters(received: received, sent: sent)
        }
        guard let delegateTag else { return .nothing }
        guard let tag = Idle.Tag(delegateTag) else { throw ValidationError("\(delegateTag) is no tag") }
        return .idle(Idle(tag: tag))
    }
}

/// `192.0.2.1:5060` or `[2001:db8::1]:5060`.
struct EndpointArgument: ExpressibleByArgument {
    let endpoint: Endpoint

    init?(argument: String) {
        guard let colon = argument.lastIndex(of: ":"),
            let port = UInt16(argument[argument.index(after: colon)...])
        else { return nil }
        let host = argument[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            var address = in6_addr()
            guard unsafe inet_pton(AF_INET6, String(host.dropFirst().dropLast()), &address) == 1 else {
                return nil
            }
            let (high, low) = unsafe withUnsafeBytes(of: &address) { bytes in
                unsafe (
                    UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
                    UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
                )
            }
            endpoint = Endpoint(v6: high, low, port: port)
        } else {
            var address = in_addr()
            guard unsafe inet_pton(AF_INET, String(host), &address) == 1 else { return nil }
            endpoint = Endpoint(v4: UInt32(bigEndian: address.s_addr), port: port)
        }
    }
}

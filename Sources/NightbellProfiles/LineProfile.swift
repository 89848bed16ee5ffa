extension PatternSettings {
    /// How a line ends.
    package enum LineEnd: Sendable, Hashable, CaseIterable {
        case newline
        case carriageReturnNewline

        var bytes: [UInt8] {
            switch self {
            case .newline: [0x0A]
            case .carriageReturnNewline: [0x0D, 0x0A]
            }
        }
    }

    /// The profile `line`: patterns, replies and pings are whole lines, given without their end. No standard.
    ///
    /// An empty pattern is an empty line; an empty reply is none.
    package static func lines(
        _ exchanges: [Exchange], ping: Ping? = nil, end: LineEnd
    ) throws(SettingsError) -> PatternSettings {
        let texts =
            exchanges.flatMap { [$0.pattern, $0.reply] } + [ping?.payload, ping?.answer].compactMap(\.self)
        for text in texts where text.contains(where: { $0 == 0x0A || $0 == 0x0D }) {
            throw .illegalText("line")
        }
        let end = end.bytes
        return try bytes(
            exchanges.map { Exchange($0.pattern + end, reply: $0.reply.isEmpty ? [] : $0.reply + end) },
            ping: ping.map { ping in
                var ping = ping
                ping.payload += end
                ping.answer = ping.answer.map { $0 + end }
                return ping
            })
    }
}

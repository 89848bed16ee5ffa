import Glibc
import NightbellProfiles
import NightbellWire
import Presentation

/// Replays a sleep of the owner with captured bytes.
struct Explainer {
    /// The result for some bytes.
    struct Finding {
        /// Their offset in the stream; the number of the datagram.
        var offset: Int
        var bytes: ArraySlice<UInt8>
        var verdict: Verdict?
        var reply: [UInt8] = []
    }

    private var profile: Profile
    private let profileContext: ProfileContext
    /// Of a stream: bytes that may become noise with more input.
    private var pending: [UInt8] = []
    private var missing: Int?
    /// Of a stream: a part was for the owner, and so is all that follows.
    private var isOver = false
    /// The offset of `pending` in the stream; the number of the next datagram.
    private var offset = 0
    private var absorbed = 0
    private var noises = 0
    private var left = 0

    init(_ profile: Profile, _ profileContext: ProfileContext) {
        self.profile = profile
        self.profileContext = profileContext
    }

    /// Sends a ping, if the profile has one.
    mutating func ping() -> [Finding] {
        var output: [UInt8] = []
        guard profile.ping(profileContext, into: &output) else { return [] }
        return [Finding(offset: 0, bytes: [], verdict: nil, reply: output)]
    }

    /// Inspects more of a stream, or another datagram.
    mutating func inspect(_ bytes: [UInt8], report: ([Finding]) -> Void) {
        switch profile.transport {
        case .datagram:
            let (verdict, reply) = decide(bytes.span)
            report([Finding(offset: offset, bytes: bytes[...], verdict: verdict, reply: reply)])
            note(verdict, bytes.count)
            offset += 1
        case .stream:
            inspectStream(bytes, report)
        }
    }

    private mutating func inspectStream(_ bytes: [UInt8], _ report: ([Finding]) -> Void) {
        guard !isOver else { return left += bytes.count }
        let pending = self.pending + bytes
        missing = nil
        var head = 0
        inspecting: while head < pending.count {
            let (verdict, reply) = decide(pending.span.extracting(head..<pending.count))
            switch verdict {
            case .noise(let length, _):
                let noise = pending[head..<(head + length)]
                report([Finding(offset: offset + head, bytes: noise, verdict: verdict, reply: reply)])
                note(verdict, length)
                head += length
            case .significant:
                report([Finding(offset: offset + head, bytes: pending[head...], verdict: verdict)])
                note(verdict, pending.count - head)
                isOver = true
                head = pending.count
            case .needMore(let limit):
                missing = limit
                break inspecting
            }
        }
        self.pending = Array(pending[head...])
        offset += head
    }

    /// The end of the input.
    mutating func finish(report: ([Finding]) -> Void) {
        guard let missing, !pending.isEmpty else { return }
        let verdict = Verdict.needMore(limit: missing)
        report([Finding(offset: offset, bytes: pending[...], verdict: verdict)])
        note(verdict, pending.count)
        pending = []
    }

    private mutating func decide(_ bytes: Span<UInt8>) -> (Verdict, [UInt8]) {
        var reply: [UInt8] = []
        let verdict = profile.inspect(bytes, profileContext, replies: &reply)
        return (verdict, reply)
    }

    private mutating func note(_ verdict: Verdict, _ count: Int) {
        switch verdict {
        case .noise:
            absorbed += count
            noises += 1
        case .significant, .needMore: left += count
        }
    }

    /// The totals.
    var summary: String {
        "\(noises) absorbed (\(Human.bytes(UInt64(absorbed)))), \(Human.bytes(UInt64(left))) left for the owner"
    }
}

extension Explainer.Finding {
    private var decision: String {
        switch verdict {
        case .noise(_, let noise): "noise" + ": " + noise.words
        case .significant(let reason): "significant: \(reason)"
        case .needMore(let limit): "need more: noise would end within \(limit) bytes"
        case nil: "sent"
        }
    }

    func lines(width: Int?) -> [String] {
        var lines: [String] = []
        if verdict != nil {
            lines.append("\(offset) +\(bytes.count)  \(decision)")
            lines.append("    < " + Self.visible(bytes))
        }
        if !reply.isEmpty { lines.append("    > " + Self.visible(reply[...])) }
        return lines.map { line in width.map { shortened(line, to: $0) } ?? line }
    }

    var json: JSON {
        var members: [JSON.Member] = []
        func add(_ name: String, _ value: JSON) { members.append(.init(name: name, value: value)) }
        switch verdict {
        case .noise(_, let noise):
            add("decision", "noise")
            add("noise", .string(noise.name))
        case .significant(let reason):
            add("decision", "significant")
            add("reason", .string(reason.description))
        case .needMore(let limit):
            add("decision", "need_more")
            add("limit_bytes", .integer(Int64(limit)))
        case nil: add("decision", "sent")
        }
        if verdict != nil {
            add("offset", .integer(Int64(offset)))
            add("bytes", .integer(Int64(bytes.count)))
        }
        if !reply.isEmpty { add("reply_base64", .string(base64(reply))) }
        return .object(members)
    }

    /// Printable characters as they are, others escaped; long text is cut.
    private static func visible(_ bytes: ArraySlice<UInt8>) -> String {
        var text = ""
        for byte in bytes.prefix(longest) {
            switch byte {
            case 0x0D: text += "\\r"
            case 0x0A: text += "\\n"
            case 0x09: text += "\\t"
            case 0x5C: text += "\\\\"
            case 0x20..<0x7F: text.unicodeScalars.append(Unicode.Scalar(byte))
            default: text += "\\x" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }
        return bytes.count > longest ? text + "…" : text
    }

    private static let longest = 1_024
}

extension Noise {
    fileprivate var name: String {
        switch self {
        case .ping: "ping"
        case .answer: "answer"
        case .step: "step"
        case .filler: "filler"
        }
    }

    fileprivate var words: String {
        switch self {
        case .ping: "a ping, answered"
        case .answer: "the answer to our ping"
        case .step: "part of our ping"
        case .filler: "a filler"
        }
    }
}

/// Captured bytes.
enum Input {
    /// A larger file is not a capture of keep-alives.
    static let longest = 64 << 20

    /// Reads a file to its end, or the standard input.
    static func read(_ path: String?) throws(InputError) -> [UInt8] {
        var descriptor = STDIN_FILENO
        if let path {
            descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else { throw InputError(path: path, number: errno) }
        }
        defer { if path != nil { close(descriptor) } }
        var content: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = unsafe buffer.withUnsafeMutableBytes {
                unsafe Glibc.read(descriptor, $0.baseAddress, $0.count)
            }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw InputError(path: path, number: errno) }
            if count == 0 { return content }
            content += buffer[..<count]
            guard content.count <= longest else { throw InputError(path: path, number: EFBIG) }
        }
    }
}

/// The reason why captured bytes cannot be read.
struct InputError: Error, CustomStringConvertible {
    let path: String?
    let number: Int32

    var description: String {
        "cannot read \(path ?? "the standard input"): " + (unsafe String(cString: strerror(number)))
    }
}

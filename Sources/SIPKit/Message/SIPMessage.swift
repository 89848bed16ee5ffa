/// A SIP request or response (RFC 3261 §7).
public struct SIPMessage: Sendable, Equatable {
    public enum StartLine: Sendable, Equatable {
        case request(method: SIPMethod, uri: String)
        case response(status: Int, reason: String)
    }

    public var startLine: StartLine
    public var headers: SIPHeaders
    public var body: [UInt8]

    public init(_ startLine: StartLine, headers: SIPHeaders = SIPHeaders(), body: [UInt8] = []) {
        self.startLine = startLine
        self.headers = headers
        self.body = body
    }

    /// The method of a request; nil for a response.
    public var method: SIPMethod? {
        switch startLine {
        case .request(let method, _): method
        case .response: nil
        }
    }

    /// The status code of a response; nil for a request.
    public var status: Int? {
        switch startLine {
        case .request: nil
        case .response(let status, _): status
        }
    }

    public var isRequest: Bool { method != nil }

    /// The message as it goes onto the wire. `Content-Length` is always written, and last.
    public func serialized() -> [UInt8] {
        var text: String
        switch startLine {
        case .request(let method, let uri): text = "\(method.rawValue) \(uri) SIP/2.0\r\n"
        case .response(let status, let reason): text = "SIP/2.0 \(status) \(reason)\r\n"
        }
        for field in headers.fields where field.name != .contentLength {
            text += "\(field.name.text): \(field.value)\r\n"
        }
        text += "Content-Length: \(body.count)\r\n\r\n"
        return Array(text.utf8) + body
    }

    /// A response to this request with the headers that every response copies (RFC 3261 §8.2.6.2). `tag` is
    /// added to `To` unless the request has one there.
    public func response(_ status: Int, _ reason: String, tag: String? = nil) -> SIPMessage {
        var answer = SIPMessage(.response(status: status, reason: reason))
        for name in [SIPHeaderName.via, .from, .to, .callID, .cSeq] {
            for value in headers.all(name) { answer.headers.append(name, value) }
        }
        if status > 100, let tag, let to = headers[.to], Self.tag(in: to) == nil {
            answer.headers[.to] = "\(to);tag=\(tag)"
        }
        return answer
    }

    static func tag(in value: String) -> String? {
        (try? NameAddress(parsing: value))?.parameters["tag"]
    }

    public var fromTag: String? { headers[.from].flatMap(Self.tag(in:)) }
    public var toTag: String? { headers[.to].flatMap(Self.tag(in:)) }
    public var callID: String? { headers[.callID] }
    public var cSeq: CSeq? { headers[.cSeq].flatMap { try? CSeq(parsing: $0) } }
    /// The topmost `Via`.
    public var topVia: Via? { headers.list(.via).first.flatMap { try? Via(parsing: $0) } }
}

/// A method name. Case matters (RFC 3261 §7.1).
public struct SIPMethod: RawRepresentable, Sendable, Hashable, ExpressibleByStringLiteral {
    public var rawValue: String

    public init(rawValue: String) { self.rawValue = rawValue }
    public init(stringLiteral value: String) { rawValue = value }

    public static let ack: SIPMethod = "ACK"
    public static let bye: SIPMethod = "BYE"
    public static let cancel: SIPMethod = "CANCEL"
    public static let invite: SIPMethod = "INVITE"
    public static let options: SIPMethod = "OPTIONS"
    public static let register: SIPMethod = "REGISTER"
}

/// The number and method of a request within its dialog or registration (RFC 3261 §8.1.1.5).
public struct CSeq: Sendable, Hashable, CustomStringConvertible {
    public var number: UInt32
    public var method: SIPMethod

    public init(_ number: UInt32, _ method: SIPMethod) {
        self.number = number
        self.method = method
    }

    public init(parsing value: String) throws(SIPParseError) {
        let parts = value.split(whereSeparator: { $0 == " " || $0 == "\t" })
        guard parts.count == 2, let number = UInt32(decimal: parts[0]), number < 1 << 31 else {
            throw .malformedValue("CSeq: \(value)")
        }
        self.init(number, SIPMethod(rawValue: String(parts[1])))
    }

    public var description: String { "\(number) \(method.rawValue)" }
}

extension FixedWidthInteger {
    /// Digits and nothing else: no sign, unlike `init(_:)`.
    init?(decimal text: some StringProtocol) {
        guard !text.isEmpty, text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) else { return nil }
        self.init(text, radix: 10)
    }
}

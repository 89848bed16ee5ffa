/// The reason why bytes are not a SIP message.
public enum SIPParseError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Start line and headers are longer than the limit.
    case headTooLong(limit: Int)
    case bodyTooLong(limit: Int)
    case tooManyHeaders(limit: Int)
    case malformedStartLine(String)
    case unsupportedVersion(String)
    case malformedHeader(String)
    /// The header is well formed, but its value is not.
    case malformedValue(String)
    /// A URI that is neither `sip:` nor `sips:`.
    case unsupportedScheme(String)
    /// It is no number, or there are several that differ.
    case invalidContentLength(String)
    /// On a stream only `Content-Length` marks the end of a message (RFC 3261 §18.3).
    case missingContentLength
    /// A datagram shorter than its `Content-Length`, or without an end of the headers.
    case truncated
    case notUTF8

    public var description: String {
        switch self {
        case .headTooLong(let limit): "start line and headers exceed \(limit) bytes"
        case .bodyTooLong(let limit): "the body exceeds \(limit) bytes"
        case .tooManyHeaders(let limit): "more than \(limit) headers"
        case .malformedStartLine(let line): "malformed start line: \(line)"
        case .unsupportedVersion(let line): "unsupported SIP version: \(line)"
        case .malformedHeader(let line): "malformed header: \(line)"
        case .malformedValue(let value): "malformed \(value)"
        case .unsupportedScheme(let uri): "unsupported URI scheme: \(uri)"
        case .invalidContentLength(let value): "invalid Content-Length: \(value)"
        case .missingContentLength: "no Content-Length on a stream"
        case .truncated: "the datagram ends before the message does"
        case .notUTF8: "start line or headers are not UTF-8"
        }
    }
}

/// The status and the header fields of a response that decide about the task.
package struct ResponseHead: Hashable, Sendable {
    package var status: Int
    /// In bytes.
    package private(set) var contentLength: Int64?
    package var contentRange: ContentRange?
    package var entityTag: String?
    package var lastModified: String?
    package var date: String?
    /// In seconds.
    package var retryAfter: Int64?
    /// Other than `identity`: the bytes are not those of the resource.
    package var isEncoded = false
    /// The fields so far, by their names in lower case. nil: given twice with different content.
    private var fields: [String: String?] = [:]
    private var isLengthInvalid = false
    private var hasTransferCoding = false

    private static let names: Set = [
        "content-range", "etag", "last-modified", "date", "retry-after",
    ]

    package init(status: Int) { self.status = status }

    /// From a status line, such as `HTTP/1.1 206 Partial Content`.
    package init?(statusLine line: Substring) {
        guard line.hasPrefix("HTTP/") else { return nil }
        let parts = line.split(separator: " ", maxSplits: 2)
        guard parts.count >= 2, let status = Int(parts[1]), (100...999).contains(status) else { return nil }
        self.init(status: status)
    }

    /// Another line of the header. Fields that are broken or given twice with different content are as if
    /// they were not there; not so the length.
    package mutating func add(line: Substring) {
        guard let colon = line.firstIndex(of: ":") else { return }
        let written = line[..<colon].lowercased()
        let name = String(written[...].trimmedEnd)
        let value = String(line[line.index(after: colon)...].trimmed)
        if name == "content-length" || name == "transfer-encoding" {
            return addFraming(name, value, isBroken: name != written)
        }
        if name == "content-encoding" {
            // A list, of which each line has a part.
            if value.lowercased() != "identity", !value.isEmpty { isEncoded = true }
            return
        }
        guard Self.names.contains(name) else { return }
        var text: String? = value
        if let former = fields[name], former != value { text = nil }
        fields[name] = .some(text)
        switch name {
        case "content-range": contentRange = text.flatMap { ContentRange($0[...]) }
        case "etag": entityTag = text.flatMap { $0.utf8.count <= Self.maximumTagBytes ? $0 : nil }
        case "last-modified": lastModified = text
        case "date": date = text
        case "retry-after": retryAfter = text.flatMap { Self.length($0[...]) }
        default: break
        }
    }

    /// Something that tells where the body ends.
    private mutating func addFraming(_ name: String, _ value: String, isBroken: Bool) {
        if name == "transfer-encoding", !isBroken {
            hasTransferCoding = true
            return
        }
        // A list of the same length is one.
        let lengths = value.split(separator: ",", omittingEmptySubsequences: false).map {
            isBroken ? nil : Self.length($0.trimmed)
        }
        let first = contentLength ?? lengths.first ?? nil
        if lengths.contains(where: { $0 == nil || $0 != first }) { isLengthInvalid = true }
        contentLength = isLengthInvalid ? nil : first
    }

    /// A length is given that is none, or two are: nothing tells where the body ends, and the response must not be used
    /// (RFC 9112 section 6.3).
    package var hasInvalidLength: Bool { isLengthInvalid && !hasTransferCoding }

    /// Another attempt may be answered otherwise.
    package var isPassing: Bool { [408, 425, 429, 500, 502, 503, 504].contains(status) }

    /// A longer tag is stored nowhere.
    package static let maximumTagBytes = 1_024

    static func length(_ text: Substring) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") })
        else { return nil }
        return Int64(text)
    }
}

/// The field `Content-Range` (RFC 9110 section 14.4).
package struct ContentRange: Hashable, Sendable {
    /// nil: the range of a refusal (416).
    package var bytes: ClosedRange<Int64>?
    /// Of the whole; nil: unknown.
    package var total: Int64?

    package init(_ bytes: ClosedRange<Int64>?, total: Int64?) {
        self.bytes = bytes
        self.total = total
    }

    package init?(_ text: Substring) {
        let parts = text.split(separator: " ", omittingEmptySubsequences: true)
        guard parts.count == 2, parts[0].lowercased() == "bytes" else { return nil }
        let halves = parts[1].split(separator: "/", omittingEmptySubsequences: false)
        guard halves.count == 2 else { return nil }
        if halves[1] != "*" {
            guard let length = ResponseHead.length(halves[1]) else { return nil }
            total = length
        }
        if halves[0] == "*" {
            guard total != nil else { return nil }
            return
        }
        let ends = halves[0].split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2, let first = ResponseHead.length(ends[0]),
            let last = ResponseHead.length(ends[1]), first <= last
        else { return nil }
        if let total, last >= total { return nil }
        bytes = first...last
    }
}

extension Substring {
    var trimmed: Substring { drop { $0 == " " || $0 == "\t" }.trimmedEnd }

    var trimmedEnd: Substring {
        var text = self
        while let last = text.last, last == " " || last == "\t" || last.isNewline { text.removeLast() }
        return text
    }
}

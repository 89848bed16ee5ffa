/// The thing by which a server recognises the representation that was received.
package enum Validator: Hashable, Sendable {
    case entityTag(String)
    /// Always strong.
    case lastModified(String)

    /// nil: the response has none.
    package init?(_ head: ResponseHead) {
        if let tag = head.entityTag, Self.isEntityTag(tag) {
            self = .entityTag(tag)
        } else if head.entityTag == nil, let modified = head.lastModified,
            let modifiedSecond = HTTPDate.seconds(modified), let date = head.date.flatMap(HTTPDate.seconds),
            date - modifiedSecond >= Self.leastAge
        {
            // Younger, the resource may have changed again within the second (section 8.8.2.2).
            self = .lastModified(modified)
        } else {
            return nil
        }
    }

    private static func isEntityTag(_ text: String) -> Bool {
        let opaque = text.hasPrefix("W/") ? text.dropFirst(2) : text[...]
        return opaque.hasPrefix("\"") && opaque.hasSuffix("\"") && opaque.utf8.count >= 2
    }

    /// A part is continued by a strong one only: bytes of another representation would be appended otherwise
    /// (RFC 9110 sections 8.8 and 13.1.5). A weak one tells whether there is something new.
    package var isStrong: Bool {
        switch self {
        case .entityTag(let text): !text.hasPrefix("W/")
        case .lastModified: true
        }
    }

    /// In seconds.
    private static let leastAge: Int64 = 2

    /// The value of `If-Range`.
    package var text: String {
        switch self {
        case .entityTag(let text), .lastModified(let text): text
        }
    }

    /// Whether the response is about the same representation. nil: it does not say.
    package func matches(_ head: ResponseHead) -> Bool? {
        switch self {
        case .entityTag(let tag): head.entityTag.map { $0 == tag }
        case .lastModified(let date): head.lastModified.map { $0 == date }
        }
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the only form that servers send today (RFC 9110 section 5.6.7).
package enum HTTPDate {
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Since 1970; nil: not a date of this form.
    package static func seconds(_ text: String) -> Int64? {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 6, parts[0].count == 4, parts[5] == "GMT", let day = number(parts[1], 2),
            let month = months.firstIndex(of: String(parts[2])), let year = number(parts[3], 4)
        else { return nil }
        let time = parts[4].split(separator: ":", omittingEmptySubsequences: false)
        guard time.count == 3, let hour = number(time[0], 2), let minute = number(time[1], 2),
            let second = number(time[2], 2), (1...31).contains(day), hour < 24, minute < 60, second <= 60
        else { return nil }
        return (days(year, Int64(month + 1), day) * 24 + hour) * 3_600 + minute * 60 + second
    }

    private static func number(_ text: Substring, _ digits: Int) -> Int64? {
        text.utf8.count == digits ? ResponseHead.length(text) : nil
    }

    /// Since 1970, in the Gregorian calendar.
    private static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        // Years that begin in March end with the leap day.
        let year = month > 2 ? year : year - 1
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return 365 * year + year / 4 - year / 100 + year / 400 + dayOfYear - 719_468
    }
}

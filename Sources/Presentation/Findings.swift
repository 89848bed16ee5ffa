/// What `nightbell doctor` found out about one thing.
package struct Finding: Sendable, Equatable {
    package enum Status: String, Sendable {
        case ok
        /// Nightbell works, but less well.
        case warning
        /// Something Nightbell needs or is meant to use is not there.
        case missing
    }

    /// Stable, for programs.
    package var key: String
    package var status: Status
    package var explanation: String
    /// What to do about it; nil when there is nothing to do.
    package var remedy: String?

    package init(_ key: String, _ status: Status, _ explanation: String, remedy: String? = nil) {
        self.key = key
        self.status = status
        self.explanation = explanation
        self.remedy = remedy
    }

    package var json: JSON {
        [
            "key": .string(key), "status": .string(status.rawValue), "explanation": .string(explanation),
            "remedy": remedy.map(JSON.string) ?? .null,
        ]
    }
}

extension Report {
    /// One line for each finding, a remedy on a line of its own below it, and a sentence at the end. Nothing is cut:
    /// a remedy that is cut mends nothing.
    package static func findings(_ findings: [Finding]) -> [String] {
        let keys = findings.reduce(0) { max($0, $1.key.count) }
        var lines: [String] = []
        for finding in findings {
            let status =
                finding.status.rawValue + String(repeating: " ", count: 9 - finding.status.rawValue.count)
            let key = finding.key + String(repeating: " ", count: keys - finding.key.count + 2)
            lines.append(status + key + printable(finding.explanation))
            if let remedy = finding.remedy {
                lines.append(String(repeating: " ", count: 9 + keys + 2) + "→ " + printable(remedy))
            }
        }
        let missing = findings.count { $0.status == .missing }
        let warnings = findings.count { $0.status == .warning }
        let verdict =
            switch (missing, warnings) {
            case (0, 0): "All is well."
            case (0, _): "Everything works; \(warnings) of it less well than it could."
            case (_, _): "\(missing) missing."
            }
        return lines + ["", verdict]
    }
}

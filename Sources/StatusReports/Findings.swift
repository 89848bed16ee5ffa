package import Presentation

/// One result of `nightbell doctor`.
package struct Finding: Sendable, Equatable {
    package enum Status: String, Sendable {
        case ok
        /// Nightbell works, but less well.
        case warning
        /// A facility that Nightbell needs or is meant to use is missing.
        case missing
    }

    package enum Subject: Sendable {
        case machine
        /// One program: whether it may sleep.
        case program
    }

    /// Stable, for programs.
    package var key: String
    package var status: Status
    package var explanation: String
    /// The suggested remedy; nil if none is needed.
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
    /// A line for each finding, with its remedy below, and a summary at the end. Nothing is cut and no word
    /// is broken, so that a remedy can be copied.
    package static func findings(
        _ findings: [Finding], about subject: Finding.Subject = .machine, width: Int?, paint: Paint = .none
    ) -> [String] {
        let keys = findings.reduce(0) { max($0, $1.key.count) }
        var lines: [String] = []
        for finding in findings {
            let status = finding.status.rawValue + spaces(9 - finding.status.rawValue.count)
            let key = finding.key + spaces(keys - finding.key.count + 2)
            lines += hanging(
                status + key, printable(finding.explanation), width: width, paint: paint,
                finding.status.colour, breaksWords: false)
            if let remedy = finding.remedy {
                lines += hanging(
                    spaces(9 + keys + 2) + "→ ", printable(remedy), width: width, breaksWords: false)
            }
        }
        let missing = findings.count { $0.status == .missing }
        let warnings = findings.count { $0.status == .warning }
        let verdict =
            switch (subject, missing, warnings) {
            case (.machine, 0, 0): "All is well."
            case (.machine, 0, _): "Everything works; what has a warning could work better."
            case (.machine, 1, _): "One thing is missing."
            case (.machine, _, _): "\(missing) things are missing."
            case (.program, 0, 0): "It can sleep as it is."
            case (.program, 0, _): "It can sleep as it is; what has a warning could be better."
            case (.program, _, _): "It must stay awake."
            }
        return lines + ["", paint(verdict, missing > 0 ? .red : warnings > 0 ? .yellow : .green)]
    }

    private static func spaces(_ count: Int) -> String { String(repeating: " ", count: count) }
}

extension Finding.Status {
    fileprivate var colour: Paint.Colour {
        switch self {
        case .ok: .green
        case .warning: .yellow
        case .missing: .red
        }
    }
}

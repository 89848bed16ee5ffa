package import Presentation

/// Results of a run, as a table, as JSON, and as a page with pictures.
protocol Reportable {
    /// The subcommand.
    var command: String { get }
    var json: JSON { get }
    var tables: [ReportTable] { get }
    var charts: [Chart] { get }
    /// The targets, and whether they were met.
    var verdicts: [Verdict] { get }
    var machine: Machine { get }
}

/// Rows of text for people. The first column is aligned left, the others are figures.
struct ReportTable: Sendable {
    var title: String
    var columns: [String]
    var rows: [[String]] = []
    var note = ""

    var lines: [String] {
        var table = Table(
            columns.enumerated().map { Table.Column($0.element, $0.offset == 0 ? .left : .right) })
        for row in rows { table.add(row) }
        return [title] + table.lines(width: nil).map { "  " + $0 } + (note.isEmpty ? [] : ["  (\(note))"])
    }
}

/// A figure and its target.
package struct Verdict: Sendable, Equatable {
    package var name: String
    /// nil: not measured, and so not met.
    package var value: Double?
    package var target: Double
    private var isUpperLimit: Bool

    package init(_ name: String, _ value: Double?, atMost target: Double) {
        (self.name, self.target, isUpperLimit) = (name, target, true)
        self.value = value.flatMap { $0.isFinite ? $0 : nil }
    }

    package init(_ name: String, _ value: Double?, atLeast target: Double) {
        (self.name, self.target, isUpperLimit) = (name, target, false)
        self.value = value.flatMap { $0.isFinite ? $0 : nil }
    }

    package var isMet: Bool {
        guard let value else { return false }
        return isUpperLimit ? value <= target : value >= target
    }

    /// The verdict in a word.
    package var outcome: String { value == nil ? "not measured" : isMet ? "met" : "missed" }

    package var text: String {
        let sign = isUpperLimit ? "≤" : "≥"
        let digits = digits(atLeast: 2)
        return
            "\(name) \(value.map { figure($0, digits: digits) } ?? "–"), target \(sign) \(figure(target, digits: digits))"
    }

    package var json: JSON {
        [
            "name": .string(name), "value": .rounded(value, digits: digits(atLeast: 3)),
            "target": .number(target), "met": .bool(isMet),
        ]
    }

    /// Enough digits that a value that misses its target does not look as if it met it.
    private func digits(atLeast least: Int) -> Int {
        guard let value, !isMet else { return least }
        let most = 12
        return (least..<most).first { figure(value, digits: $0) != figure(target, digits: $0) } ?? most
    }
}

/// A number for people, with no more digits than are significant.
package func figure(_ value: Double, digits: Int = 1) -> String {
    guard value.isFinite else { return "–" }
    var factor = 1.0
    for _ in 0..<digits { factor *= 10 }
    let rounded = (value * factor).rounded() / factor
    return rounded == rounded.rounded() && abs(rounded) < 1e15 ? "\(Int(rounded))" : "\(rounded)"
}

extension Reportable {
    /// The text that a run prints at its end.
    var text: String {
        var lines = tables.flatMap { $0.lines + [""] }
        lines.append("Targets")
        let width = verdicts.map(\.outcome.count).max() ?? 0
        lines += verdicts.map { verdict in
            let padding = String(repeating: " ", count: width - verdict.outcome.count)
            return "  \(verdict.outcome)\(padding)  \(verdict.text)"
        }
        lines += ["", machine.line]
        return lines.joined(separator: "\n")
    }

    /// The JSON with the verdicts.
    var completeJSON: JSON {
        let targets: JSON = ["targets": .array(verdicts.map(\.json))]
        guard case .object(let members) = json, case .object(let more) = targets else { return json }
        return .object(members + more)
    }
}

/// A table for people: columns as wide as their longest cell, two spaces apart, a header line, no borders.
package struct Table: Sendable {
    package enum Alignment: Sendable { case left, right }

    package struct Column: Sendable {
        package var title: String
        package var alignment: Alignment
        /// Whether this column gives way when the table is wider than the terminal.
        package var shrinks: Bool

        package init(_ title: String, _ alignment: Alignment = .left, shrinks: Bool = false) {
            self.title = title
            self.alignment = alignment
            self.shrinks = shrinks
        }
    }

    package let columns: [Column]
    package private(set) var rows: [[String]] = []

    /// A column that shrinks keeps at least this many characters, or its own width if that is less.
    private static let narrowest = 8

    package init(_ columns: [Column]) {
        self.columns = columns
    }

    /// Adds a row. Missing cells are empty, control characters are shown as `?`: names come from clients.
    package mutating func add(_ cells: [String]) {
        let missing = max(0, columns.count - cells.count)
        rows.append(cells.prefix(columns.count).map(printable) + Array(repeating: "", count: missing))
    }

    /// The lines of the table.
    ///
    /// - Parameter width: columns of the terminal; nil when the output is not a terminal, and nothing is cut.
    package func lines(width: Int?) -> [String] {
        let widths = fit(naturalWidths, into: width)
        return ([columns.map(\.title)] + rows).map { cells in
            var line = ""
            for (index, cell) in cells.enumerated() {
                let text = shortened(cell, to: widths[index])
                let padding = String(repeating: " ", count: widths[index] - text.count)
                if index > 0 { line += "  " }
                line += columns[index].alignment == .right ? padding + text : text + padding
            }
            while line.last == " " { line.removeLast() }
            return width.map { shortened(line, to: $0) } ?? line
        }
    }

    private var naturalWidths: [Int] {
        columns.indices.map { index in
            rows.reduce(columns[index].title.count) { max($0, $1[index].count) }
        }
    }

    /// Takes from the widest column that shrinks, one character at a time, until the table fits or none is left.
    private func fit(_ natural: [Int], into width: Int?) -> [Int] {
        var widths = natural
        guard let width else { return widths }
        let gaps = 2 * max(0, columns.count - 1)
        while widths.reduce(gaps, +) > width {
            let candidates = columns.indices.filter {
                columns[$0].shrinks && widths[$0] > min(natural[$0], Self.narrowest)
            }
            guard let widest = candidates.max(by: { widths[$0] < widths[$1] }) else { break }
            widths[widest] -= 1
        }
        return widths
    }
}

/// The text, cut to so many characters; a cut is shown by `…`.
package func shortened(_ text: String, to width: Int) -> String {
    guard text.count > width else { return text }
    return width > 0 ? text.prefix(width - 1) + "…" : ""
}

/// The text without anything that would move the cursor or change the terminal's mode.
package func printable(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isControl) else { return text }
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
        result.append(isControl(scalar) ? "?" : scalar)
    }
    return String(result)
}

private func isControl(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator: true
    default: false
    }
}

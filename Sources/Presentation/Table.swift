import LinuxSystem

/// A table for people: columns as wide as their longest cell, two spaces apart, a header line, no borders. If
/// the terminal is too narrow, less important columns shrink or are left out.
package struct Table: Sendable {
    package enum Alignment: Sendable { case left, right }

    package struct Column: Sendable {
        package var title: String
        package var alignment: Alignment
        /// Whether this column shrinks when the table is wider than the terminal. Text is removed from the
        /// middle: names differ at their ends.
        package var shrinks: Bool
        /// The rank by which the column is left out when the table does not fit: the highest goes first,
        /// after columns without information. 0: it is never left out.
        package var leaves: Int
        /// The colour of a cell, by its text.
        package var colour: (@Sendable (String) -> Paint.Colour?)?

        package init(
            _ title: String, _ alignment: Alignment = .left, shrinks: Bool = false, leaves: Int = 0,
            colour: (@Sendable (String) -> Paint.Colour?)? = nil
        ) {
            self.title = title
            self.alignment = alignment
            self.shrinks = shrinks
            self.leaves = leaves
            self.colour = colour
        }
    }

    private struct Row: Sendable {
        var cells: [String]
        var notes: [String]
    }

    package let columns: [Column]
    private var rows: [Row] = []

    /// A column that shrinks keeps at least this many characters, or its own width if that is less …
    private static let narrowest = 8
    /// … and other columns are left out before it has fewer than these.
    private static let comfortable = 20

    package init(_ columns: [Column]) {
        self.columns = columns
    }

    /// Adds a row. Missing cells are empty, control characters are shown as `\u0007`: names come from
    /// clients.
    ///
    /// - Parameter notes: sentences below the row.
    package mutating func add(_ cells: [String], notes: [String] = []) {
        let missing = max(0, columns.count - cells.count)
        rows.append(
            Row(
                cells: cells.prefix(columns.count).map(printable) + Array(repeating: "", count: missing),
                notes: notes.map(printable)))
    }

    /// The lines of the table.
    ///
    /// - Parameter width: columns of the terminal; nil when the output is not a terminal, and nothing is cut.
    package func lines(width: Int?, paint: Paint = .none) -> [String] {
        let kept = columnsThatStay(width)
        let widths = fit(kept, into: width)
        var lines = [line(kept, widths, width, paint) { (columns[$0].title, .bold) }]
        for row in rows {
            lines.append(
                line(kept, widths, width, paint) { (row.cells[$0], columns[$0].colour?(row.cells[$0])) })
            for note in row.notes { lines += hanging("  ! ", note, width: width, paint: paint, .yellow) }
        }
        return lines
    }

    private func line(
        _ kept: [Int], _ widths: [Int], _ limit: Int?, _ paint: Paint,
        cell: (Int) -> (text: String, colour: Paint.Colour?)
    ) -> String {
        var line = ""
        // Painted text has more characters than columns.
        var room = limit ?? .max
        for (place, index) in kept.enumerated() {
            let (text, colour) = cell(index)
            let short = shortened(inMiddle: text, to: widths[place])
            let padding = String(repeating: " ", count: widths[place] - short.count)
            let isRight = columns[index].alignment == .right
            let lead = (place > 0 ? "  " : "") + (isRight ? padding : "")
            let isLast = place == kept.count - 1
            let tail = isRight || isLast ? "" : padding
            guard lead.count + short.count <= room else {
                line += shortened(lead + short, to: room)
                break
            }
            line += lead + paint(short, colour) + tail.prefix(room - lead.count - short.count)
            room -= min(room, lead.count + short.count + tail.count)
        }
        while line.last == " " { line.removeLast() }
        return line
    }

    private func naturalWidth(_ index: Int) -> Int {
        rows.reduce(columns[index].title.count) { max($0, $1.cells[index].count) }
    }

    private static func total(_ widths: [Int]) -> Int { widths.reduce(2 * max(0, widths.count - 1), +) }

    private func columnsThatStay(_ width: Int?) -> [Int] {
        var kept = Array(columns.indices)
        guard let width else { return kept }
        let least = columns.indices.map {
            columns[$0].shrinks ? min(naturalWidth($0), Self.comfortable) : naturalWidth($0)
        }
        let leaving = kept.filter { columns[$0].leaves > 0 }.sorted {
            (saysNothing($0) ? 1 : 0, columns[$0].leaves) > (saysNothing($1) ? 1 : 0, columns[$1].leaves)
        }
        for index in leaving where Self.total(kept.map { least[$0] }) > width {
            kept.removeAll { $0 == index }
        }
        return kept
    }

    private func saysNothing(_ index: Int) -> Bool {
        rows.allSatisfy { $0.cells[index].isEmpty || $0.cells[index] == "-" }
    }

    /// Shortens the widest shrinking column, one character at a time, until the table fits or none is left.
    private func fit(_ kept: [Int], into width: Int?) -> [Int] {
        let natural = kept.map(naturalWidth)
        var widths = natural
        guard let width else { return widths }
        while Self.total(widths) > width {
            let candidates = kept.indices.filter {
                columns[kept[$0]].shrinks && widths[$0] > min(natural[$0], Self.narrowest)
            }
            guard let widest = candidates.max(by: { widths[$0] < widths[$1] }) else { break }
            widths[widest] -= 1
        }
        return widths
    }
}

/// The text, cut to this many characters; `…` marks a cut.
package func shortened(_ text: String, to width: Int) -> String {
    guard text.count > width else { return text }
    return width > 0 ? text.prefix(width - 1) + "…" : ""
}

/// Like `shortened`, but keeps the beginning and the end.
private func shortened(inMiddle text: String, to width: Int) -> String {
    guard text.count > width else { return text }
    guard width > 0 else { return "" }
    return text.prefix((width - 1) / 2) + "…" + text.suffix(width - 1 - (width - 1) / 2)
}

/// The text without characters that would move the cursor or change the terminal's mode.
package func printable(_ text: String) -> String {
    Escaping.escaped(text)
}

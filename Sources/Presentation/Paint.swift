/// The colours of a report. They say nothing that its words do not.
package struct Paint: Sendable {
    /// As terminals number them (ECMA-48, "select graphic rendition").
    package enum Colour: Int, Sendable {
        case bold = 1
        case dim = 2
        case red = 31
        case green = 32
        case yellow = 33
        case cyan = 36
    }

    package let isOn: Bool

    package static let none = Paint(isOn: false)
    package static let colours = Paint(isOn: true)

    private init(isOn: Bool) { self.isOn = isOn }

    /// - Parameters:
    ///   - isTerminal: a file and a pipe have no colours.
    ///   - noColor: the variable `NO_COLOR`; with anything in it there are none (no-color.org).
    ///   - terminal: the variable `TERM`; without it, or with `dumb`, there are none.
    package init(isTerminal: Bool, noColor: String?, terminal: String?) {
        isOn = noColor?.isEmpty != false && Self.knowsCommands(isTerminal: isTerminal, terminal: terminal)
    }

    /// Whether the output takes commands at all, such as to move the cursor.
    package static func knowsCommands(isTerminal: Bool, terminal: String?) -> Bool {
        isTerminal && terminal?.isEmpty == false && terminal != "dumb"
    }

    package func callAsFunction(_ text: String, _ colour: Colour?) -> String {
        guard isOn, let colour, !text.isEmpty else { return text }
        return "\u{1B}[\(colour.rawValue)m\(text)\u{1B}[0m"
    }
}

extension Paint.Colour {
    /// Asleep, awake, on the way, ended.
    package static func state(_ name: String) -> Paint.Colour? {
        switch name {
        case "suspended", "dormant": .cyan
        case "active", "background": .green
        case "suspending", "inactive", "launching": .yellow
        case "terminating", "not_running": .dim
        default: nil
        }
    }
}

/// Lines in the place of those that were on the screen before.
package func repainted(_ lines: [String], isFirst: Bool) -> String {
    (isFirst ? "\u{1B}[2J" : "") + "\u{1B}[H" + lines.map { $0 + "\u{1B}[K\n" }.joined() + "\u{1B}[J"
}

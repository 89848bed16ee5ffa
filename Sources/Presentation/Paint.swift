/// The colours of a report. They repeat information of the text.
package struct Paint: Sendable {
    /// The codes of terminals (ECMA-48, "select graphic rendition").
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
    ///   - noColor: the variable `NO_COLOR`; any text turns colours off (no-color.org).
    ///   - terminal: the variable `TERM`; without it, or with `dumb`, there are no colours.
    package init(isTerminal: Bool, noColor: String?, terminal: String?) {
        isOn = noColor?.isEmpty != false && Self.knowsCommands(isTerminal: isTerminal, terminal: terminal)
    }

    /// Whether the output supports escape sequences, for example to move the cursor.
    package static func knowsCommands(isTerminal: Bool, terminal: String?) -> Bool {
        isTerminal && terminal?.isEmpty == false && terminal != "dumb"
    }

    package func callAsFunction(_ text: String, _ colour: Colour?) -> String {
        guard isOn, let colour, !text.isEmpty else { return text }
        return "\u{1B}[\(colour.rawValue)m\(text)\u{1B}[0m"
    }
}

extension Paint.Colour {
    /// The colour of a state: asleep, awake, changing, ended.
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

/// Lines that replace those on the screen.
package func repainted(_ lines: [String], isFirst: Bool) -> String {
    (isFirst ? "\u{1B}[2J" : "") + "\u{1B}[H" + lines.map { $0 + "\u{1B}[K\n" }.joined() + "\u{1B}[J"
}

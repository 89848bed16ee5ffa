/// Breaks a text into lines of at most `room` characters, at spaces where there are any.
///
/// - Parameter breaksWords: whether a word that is longer than a line is broken as well. A path or a command
///   that is to be copied should stay whole: the terminal breaks it.
package func wrapped(_ text: String, to room: Int, breaksWords: Bool = true) -> [String] {
    let room = max(1, room)
    if text.count <= room { return [text] }
    var lines: [String] = []
    var line = ""
    for word in text.split(separator: " ") {
        if !line.isEmpty, line.count + 1 + word.count > room {
            lines.append(line)
            line = ""
        }
        line += line.isEmpty ? word : " " + word
        while breaksWords, line.count > room {
            lines.append(String(line.prefix(room)))
            line.removeFirst(room)
        }
    }
    return line.isEmpty && !lines.isEmpty ? lines : lines + [line]
}

/// A text after the start of a line, with continuation lines in the same column. If that column would be too
/// narrow to read, the text is cut.
///
/// - Parameters:
///   - start: with its trailing spaces.
///   - width: nil: one line, whatever its length.
package func hanging(
    _ start: String, _ text: String, width: Int?, paint: Paint = .none, _ colour: Paint.Colour? = nil,
    breaksWords: Bool = true
) -> [String] {
    guard let width else { return [paint(start, colour) + text] }
    let room = width - start.count
    guard room >= narrowestText else { return [shortened(start + text, to: width)] }
    return wrapped(text, to: room, breaksWords: breaksWords).enumerated().map { index, line in
        (index == 0 ? paint(start, colour) : String(repeating: " ", count: start.count)) + line
    }
}

private let narrowestText = 10

/// Words and sentences that plain English about processes, sockets and threads does without: each of these is
/// "it", and a sentence begins with its subject.
struct BanList {
    struct Finding: Equatable {
        let line: Int
        let word: String
    }

    static let words: Set = [
        "who", "whom", "whoever", "whose", "somebody", "nobody", "everybody", "anybody",
    ]
    /// They begin a noun clause, unless the sentence is a question.
    static let beginnings: Set = ["What", "Who", "Whoever"]

    static func findings(in prose: Prose) -> [Finding] { prose.paragraphs.flatMap { findings(in: $0) } }

    private static func findings(in paragraph: Prose.Paragraph) -> [Finding] {
        var findings: [Finding] = []
        let pieces = Self.pieces(of: paragraph)
        var beginsSentence = !paragraph.isHeading
        for (index, piece) in pieces.enumerated() {
            let banned = piece.text.split { !$0.isLetter }.map(String.init)
                .filter { words.contains($0.lowercased()) }
            findings += banned.map { Finding(line: piece.line, word: $0) }
            let word = String(piece.text.drop { !$0.isLetter }.prefix(while: \.isLetter))
            if beginsSentence, banned.isEmpty, beginnings.contains(word), !isQuestion(pieces[index...]) {
                findings.append(Finding(line: piece.line, word: word))
            }
            if let end = ending(of: piece.text) {
                beginsSentence = !paragraph.isHeading && ".:!?".contains(end)
            }
        }
        return findings
    }

    private static func isQuestion(_ pieces: ArraySlice<Piece>) -> Bool {
        for piece in pieces {
            guard let end = ending(of: piece.text) else { continue }
            if end == "?" { return true }
            if end == "." || end == "!" { return false }
        }
        return false
    }

    /// The last character that is no closing mark. nil: the piece is only a mark, such as that of an item of
    /// a list.
    private static func ending(of text: Substring) -> Character? {
        var text = text
        while let last = text.last, ")\"'*_”’".contains(last) { text.removeLast() }
        guard let last = text.last, text.contains(where: { $0.isLetter || $0.isNumber }) else { return nil }
        return last
    }

    /// Text between two white spaces.
    private struct Piece {
        let text: Substring
        let line: Int
    }

    private static func pieces(of paragraph: Prose.Paragraph) -> [Piece] {
        let text = withoutCode(paragraph.lines.map(\.text).joined(separator: "\n"))
        return zip(paragraph.lines, text.split(separator: "\n", omittingEmptySubsequences: false)).flatMap {
            line, text in
            text.split(whereSeparator: \.isWhitespace).map { Piece(text: $0, line: line.number) }
        }
    }

    /// `x` in place of each piece of code between backticks; the number of lines stays.
    private static func withoutCode(_ text: String) -> String {
        let characters = Array(text)
        var result = ""
        var position = 0
        while position < characters.count {
            let ticks = Self.ticks(in: characters, at: position)
            if ticks > 0, let end = closing(ticks, in: characters, after: position + ticks) {
                result += "x" + String(characters[position..<end].filter { $0 == "\n" })
                position = end + ticks
            } else {
                result += String(characters[position..<position + max(ticks, 1)])
                position += max(ticks, 1)
            }
        }
        return result
    }

    private static func ticks(in characters: [Character], at position: Int) -> Int {
        characters[position...].prefix { $0 == "`" }.count
    }

    /// The position of the next backticks of this number.
    private static func closing(_ ticks: Int, in characters: [Character], after start: Int) -> Int? {
        var position = start
        while position < characters.count {
            let found = Self.ticks(in: characters, at: position)
            if found == ticks { return position }
            position += max(found, 1)
        }
        return nil
    }
}

/// The prose of one file, which is its comments or the text of a page, without code and string literals.
struct Prose {
    /// Lines that belong together: a comment, a paragraph, an item of a list, a cell of a table.
    struct Paragraph: Equatable {
        var lines: [Line]
        /// A title is not a sentence.
        var isHeading = false
    }

    struct Line: Equatable {
        let number: Int
        let text: String
    }

    private(set) var paragraphs: [Paragraph] = []
    /// Whether the next line continues the last paragraph.
    private var isOpen = false
    /// Whether lines are code between two fences.
    private var isFenced = false

    /// - Parameter path: decides by its ending how the text is read.
    init(_ text: String, path: String) {
        if path.hasSuffix(".md") {
            self.init(page: text)
        } else if [".swift", ".c", ".h", ".proto"].contains(where: { path.hasSuffix($0) }) {
            self.init(source: text, isSwift: path.hasSuffix(".swift"))
        } else {
            self.init(script: text)
        }
    }

    /// A page in Markdown.
    private init(page: String) {
        var isCode = false
        var wasBlank = true
        for (index, line) in page.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            // Four spaces after a blank line begin a block of code.
            isCode = line.hasPrefix("    ") && (isCode || wasBlank)
            wasBlank = line.allSatisfy(\.isWhitespace)
            if !isCode { add(line, number: index + 1) }
        }
    }

    /// Comments of Swift, C or protobuf.
    private init(source: String, isSwift: Bool) {
        var scanner = CommentScanner(source, isSwift: isSwift)
        var last: CommentScanner.Comment?
        for comment in scanner.comments() {
            if let previous = last, comment.continues(previous) {
                add(comment.text[...], number: comment.line)
            } else {
                isOpen = false
                isFenced = false
                add(comment.text[...], number: comment.line)
            }
            last = comment
        }
    }

    /// Comments of a shell script, of YAML or of a unit file. A `#` inside of quotes on the same line begins
    /// none.
    private init(script: String) {
        var last = 0
        for (index, line) in script.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let number = index + 1
            guard let start = Self.commentStart(in: line), !line[start...].hasPrefix("#!") else { continue }
            let isAlone = line[..<start].allSatisfy(\.isWhitespace)
            if !isAlone || last != number - 1 { isOpen = false }
            add(line[start...].drop { $0 == "#" }, number: number)
            last = isAlone ? number : 0
        }
    }

    private static func commentStart(in line: Substring) -> Substring.Index? {
        var quote: Character?
        var last: Character = " "
        for index in line.indices {
            let character = line[index]
            if let open = quote {
                if character == open, last != "\\" { quote = nil }
            } else if character == "#", last.isWhitespace {
                return index
            } else if character == "\"" || character == "'" {
                quote = character
            }
            last = character
        }
        return nil
    }

    private mutating func add(_ line: Substring, number: Int) {
        var text = line.drop(while: \.isWhitespace)
        while text.last?.isWhitespace == true { text.removeLast() }
        if text.hasPrefix("```") {
            isFenced.toggle()
            isOpen = false
        } else if isFenced {
            return
        } else if text.isEmpty {
            isOpen = false
        } else if text.hasPrefix("|") {
            for cell in text.split(separator: "|") {
                paragraphs.append(Paragraph(lines: [Line(number: number, text: String(cell))]))
            }
            isOpen = false
        } else if text.hasPrefix("#") || text.hasPrefix("MARK:") {
            paragraphs.append(Paragraph(lines: [Line(number: number, text: String(text))], isHeading: true))
            isOpen = false
        } else if isOpen, !Self.isItem(text) {
            paragraphs[paragraphs.count - 1].lines.append(Line(number: number, text: String(text)))
        } else {
            paragraphs.append(Paragraph(lines: [Line(number: number, text: String(text))]))
            isOpen = true
        }
    }

    private static func isItem(_ text: Substring) -> Bool {
        if text.hasPrefix("- ") || text.hasPrefix("* ") { return true }
        return text.drop(while: \.isNumber).hasPrefix(". ") && text.first?.isNumber == true
    }
}

/// Finds the comments of a source text. It knows string literals, so that it takes none of their text for a
/// comment.
struct CommentScanner {
    struct Comment: Equatable {
        let line: Int
        /// Without its marks.
        let text: String
        /// The number of slashes in front; 0 in a block comment.
        let slashes: Int
        /// Whether no code is in front of it on its line.
        let isAlone: Bool

        func continues(_ previous: Comment) -> Bool {
            isAlone && previous.isAlone && slashes == previous.slashes && line == previous.line + 1
        }
    }

    private static let newline = UInt8(ascii: "\n")
    private static let slash = UInt8(ascii: "/")
    private static let star = UInt8(ascii: "*")
    private static let quote = UInt8(ascii: "\"")
    private static let apostrophe = UInt8(ascii: "'")
    private static let backslash = UInt8(ascii: "\\")
    private static let hash = UInt8(ascii: "#")
    private static let opening = UInt8(ascii: "(")
    private static let closing = UInt8(ascii: ")")

    private let bytes: [UInt8]
    private let isSwift: Bool
    private var position = 0
    private var line = 1
    private var isAlone = true
    private var found: [Comment] = []

    init(_ text: String, isSwift: Bool) {
        bytes = Array(text.utf8)
        self.isSwift = isSwift
    }

    mutating func comments() -> [Comment] {
        scanCode(inside: nil)
        return found
    }

    /// The kind of string literal in which a piece of code is interpolated.
    private enum Literal { case short, long }

    /// Reads code to the end of the text, or in an interpolation to the parenthesis that closes it.
    private mutating func scanCode(inside literal: Literal?) {
        var depth = 0
        while position < bytes.count {
            let byte = bytes[position]
            if byte == Self.slash, peek(1) == Self.slash, peek(-1) != Self.backslash {
                scanLineComment()
            } else if byte == Self.slash, peek(1) == Self.star {
                scanBlockComment()
            } else if byte == Self.quote {
                scanString(hashes: 0)
            } else if byte == Self.hash, isSwift {
                let hashes = bytes[position...].prefix { $0 == Self.hash }.count
                skip(hashes)
                if peek(0) == Self.quote { scanString(hashes: hashes) }
            } else if byte == Self.apostrophe, !isSwift {
                scanCharacter()
            } else if literal == .short, byte == Self.newline {
                return
            } else {
                if byte == Self.opening { depth += 1 }
                if byte == Self.closing { depth -= 1 }
                skip(1)
                if literal != nil, depth < 0 { return }
            }
        }
    }

    private mutating func scanLineComment() {
        let slashes = bytes[position...].prefix { $0 == Self.slash }.count
        let text = bytes[(position + slashes)...].prefix { $0 != Self.newline }
        found.append(
            Comment(
                line: line, text: String(decoding: text, as: UTF8.self), slashes: slashes, isAlone: isAlone))
        skip(slashes + text.count)
    }

    private mutating func scanBlockComment() {
        skip(2)
        var text: [UInt8] = []
        while position < bytes.count {
            let isEnd = bytes[position] == Self.star && peek(1) == Self.slash
            if isEnd || bytes[position] == Self.newline {
                var words = String(decoding: text, as: UTF8.self)[...].drop(while: \.isWhitespace)
                if words.first == "*" { words = words.dropFirst() }
                found.append(Comment(line: line, text: String(words), slashes: 0, isAlone: true))
                text = []
            } else {
                text.append(bytes[position])
            }
            skip(isEnd ? 2 : 1)
            if isEnd { return }
        }
    }

    /// A short literal that is not closed ends with its line: a quotation mark in a regular expression does
    /// no more harm.
    private mutating func scanString(hashes: Int) {
        let isLong = peek(1) == Self.quote && peek(2) == Self.quote
        let quotes = isLong ? 3 : 1
        skip(quotes)
        while position < bytes.count {
            let byte = bytes[position]
            if byte == Self.newline, !isLong { return }
            if byte == Self.backslash, has(hashes, of: Self.hash, at: 1) {
                skip(1 + hashes)
                if peek(0) == Self.opening, isSwift {
                    skip(1)
                    scanCode(inside: isLong ? .long : .short)
                } else if peek(0) != Self.newline {
                    skip(1)
                }
            } else if has(quotes, of: Self.quote, at: 0), has(hashes, of: Self.hash, at: quotes) {
                skip(quotes + hashes)
                return
            } else {
                skip(1)
            }
        }
    }

    /// A character literal of C.
    private mutating func scanCharacter() {
        skip(1)
        while position < bytes.count, bytes[position] != Self.newline {
            let byte = bytes[position]
            skip(byte == Self.backslash ? 2 : 1)
            if byte == Self.apostrophe { return }
        }
    }

    private func peek(_ offset: Int) -> UInt8? {
        bytes.indices.contains(position + offset) ? bytes[position + offset] : nil
    }

    private func has(_ count: Int, of byte: UInt8, at offset: Int) -> Bool {
        (0..<count).allSatisfy { peek(offset + $0) == byte }
    }

    private mutating func skip(_ count: Int) {
        for _ in 0..<count where position < bytes.count {
            let byte = bytes[position]
            if byte == Self.newline {
                line += 1
                isAlone = true
            } else if byte != UInt8(ascii: " "), byte != UInt8(ascii: "\t") {
                isAlone = false
            }
            position += 1
        }
    }
}

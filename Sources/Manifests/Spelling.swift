/// Suggests the expected word for a misspelled one.
package enum Spelling {
    /// The word with the smallest edit distance; nil if that is large for its length. Case, hyphens and
    /// underscores are ignored.
    package static func nearest(to word: String, among words: some Sequence<String>) -> String? {
        let wanted = plain(word)
        guard !wanted.isEmpty, wanted.count <= 128 else { return nil }
        var nearest: (word: String, slips: Int)?
        for candidate in words {
            let letters = plain(candidate)
            let limit = min(3, max(1, letters.count / 3))
            guard abs(letters.count - wanted.count) <= limit else { continue }
            let slips = slips(from: wanted, to: letters)
            if slips <= limit, slips < nearest?.slips ?? .max { nearest = (candidate, slips) }
        }
        return nearest?.word
    }

    private static func plain(_ word: String) -> [UInt8] {
        Array(word.lowercased().utf8.filter { $0 != UInt8(ascii: "-") && $0 != UInt8(ascii: "_") })
    }

    /// The edit distance: insertions, deletions, substitutions and transpositions.
    private static func slips(from one: [UInt8], to other: [UInt8]) -> Int {
        var before: [Int] = []
        var last = Array(0...other.count)
        for (row, letter) in one.enumerated() {
            var line = [row + 1]
            for (column, expected) in other.enumerated() {
                var best = min(
                    last[column] + (letter == expected ? 0 : 1), last[column + 1] + 1, line[column] + 1)
                if row > 0, column > 0, letter == other[column - 1], one[row - 1] == expected {
                    best = min(best, before[column - 1] + 1)
                }
                line.append(best)
            }
            (before, last) = (last, line)
        }
        return last[other.count]
    }
}

/// Rows with a fixed number of words, under small numbers, in pieces as those of `Rows`. Free rows are a
/// linked list in their first words.
struct WordRows {
    private static let pieceLength = 8_192
    private static let none = UInt32.max

    let width: Int
    private var pieces: [[UInt32]] = []
    private var firstFree = Self.none
    private(set) var count = 0

    init(width: Int) {
        self.width = width
    }

    /// Allocated words, including those of free rows.
    var heldWords: Int { pieces.reduce(0) { $0 + $1.count } }

    /// The caller sets the words of the row.
    mutating func insert() -> UInt32 {
        count += 1
        if firstFree != Self.none {
            let number = firstFree
            firstFree = self[number, 0]
            return number
        }
        if pieces.last.map({ $0.count == width * Self.pieceLength }) ?? true {
            pieces.append([])
            pieces[pieces.count - 1].reserveCapacity(width * Self.pieceLength)
        }
        let last = pieces.count - 1
        pieces[last].append(contentsOf: repeatElement(0, count: width))
        return UInt32(last * Self.pieceLength + pieces[last].count / width - 1)
    }

    mutating func remove(_ number: UInt32) {
        count -= 1
        self[number, 0] = firstFree
        firstFree = number
        if count == 0 { self = WordRows(width: width) }
    }

    subscript(_ number: UInt32, _ word: Int) -> UInt32 {
        get { pieces[Int(number) / Self.pieceLength][Int(number) % Self.pieceLength * width + word] }
        set {
            pieces[Int(number) / Self.pieceLength][Int(number) % Self.pieceLength * width + word] = newValue
        }
    }
}

/// Rows under small numbers, in pieces, so that growth copies nothing large and leaves no half-empty array
/// behind. A piece is large enough for pages of its own, of which only the used ones take memory.
package struct Rows<Row> {
    private static var pieceLength: Int { 8_192 }

    private var pieces: [[Row]] = []
    private var free: [UInt32] = []
    package private(set) var count = 0

    package init() {}

    package mutating func insert(_ row: Row) -> UInt32 {
        count += 1
        if let number = free.popLast() {
            self[number] = row
            return number
        }
        if pieces.last.map({ $0.count == Self.pieceLength }) ?? true {
            pieces.append([])
            pieces[pieces.count - 1].reserveCapacity(Self.pieceLength)
        }
        pieces[pieces.count - 1].append(row)
        return UInt32((pieces.count - 1) * Self.pieceLength + pieces[pieces.count - 1].count - 1)
    }

    /// Frees the number. The row itself stays until another takes its place.
    package mutating func remove(_ number: UInt32) {
        count -= 1
        free.append(number)
        if count == 0 { self = Rows() }
    }

    package subscript(_ number: UInt32) -> Row {
        get { pieces[Int(number) / Self.pieceLength][Int(number) % Self.pieceLength] }
        _modify { yield &pieces[Int(number) / Self.pieceLength][Int(number) % Self.pieceLength] }
    }
}

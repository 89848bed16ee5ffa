/// The states of parked sockets: bytes in slabs of equal pieces, so that many small states cost hardly more
/// than their length.
struct StateStore {
    /// Pieces of one size.
    private struct Slab {
        static let chunkLength = 16_384
        let piece: Int
        var chunks: [[UInt8]] = []
        var free: [UInt32] = []
        var used: UInt32 = 0

        init(piece: Int) {
            self.piece = piece
        }

        var perChunk: Int { Self.chunkLength / piece }

        mutating func insert(_ bytes: [UInt8]) -> UInt32 {
            let place: UInt32
            if let reused = free.popLast() {
                place = reused
            } else {
                place = used
                used += 1
                if Int(place) / perChunk == chunks.count {
                    chunks.append([UInt8](repeating: 0, count: perChunk * piece))
                }
            }
            let (chunk, start) = position(of: place)
            for (index, byte) in bytes.enumerated() { chunks[chunk][start + index] = byte }
            return place
        }

        func bytes(_ place: UInt32, _ length: Int) -> [UInt8] {
            let (chunk, start) = position(of: place)
            return Array(chunks[chunk][start..<start + length])
        }

        mutating func remove(_ place: UInt32) {
            free.append(place)
            // The slab is empty: free its memory.
            if free.count == Int(used) { self = Slab(piece: piece) }
        }

        private func position(of place: UInt32) -> (chunk: Int, start: Int) {
            (Int(place) / perChunk, Int(place) % perChunk * piece)
        }
    }

    private static let step = 8
    private static let longestPiece = 1_024

    private var slabs: [Slab] = (1...longestPiece / step).map { Slab(piece: $0 * step) }
    /// States longer than any piece, by number.
    private var large: [UInt32: [UInt8]] = [:]
    private var lastLarge: UInt32 = 0
    private(set) var byteCount = 0

    /// - Returns: its place. The caller must keep the length as well.
    mutating func insert(_ bytes: [UInt8]) -> UInt32 {
        byteCount += bytes.count
        if bytes.isEmpty { return 0 }
        if bytes.count <= Self.longestPiece { return slabs[Self.slab(bytes.count)].insert(bytes) }
        repeat { lastLarge &+= 1 } while large[lastLarge] != nil
        large[lastLarge] = bytes
        return lastLarge
    }

    /// Removes and returns a state.
    mutating func remove(_ place: UInt32, length: Int) -> [UInt8] {
        byteCount -= length
        if length == 0 { return [] }
        guard length > Self.longestPiece else {
            let bytes = slabs[Self.slab(length)].bytes(place, length)
            slabs[Self.slab(length)].remove(place)
            return bytes
        }
        guard let bytes = large.removeValue(forKey: place) else {
            preconditionFailure("a state lies where it was put")
        }
        return bytes
    }

    private static func slab(_ length: Int) -> Int { (length - 1) / step }
}

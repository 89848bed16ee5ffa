/// SipHash-2-4 (Aumasson and Bernstein, 2012): a hash that cannot be predicted without the key, which tests
/// can choose; the seed of the standard library's hasher they cannot.
struct SipHash {
    private var v0, v1, v2, v3: UInt64
    private var tail: UInt64 = 0
    private var count: UInt64 = 0

    init(key: UInt128) {
        let (k0, k1) = (UInt64(truncatingIfNeeded: key), UInt64(truncatingIfNeeded: key >> 64))
        v0 = k0 ^ 0x736F_6D65_7073_6575
        v1 = k1 ^ 0x646F_7261_6E64_6F6D
        v2 = k0 ^ 0x6C79_6765_6E65_7261
        v3 = k1 ^ 0x7465_6462_7974_6573
    }

    mutating func add(_ byte: UInt8) {
        tail |= UInt64(byte) << (8 * (count & 7))
        count &+= 1
        guard count & 7 == 0 else { return }
        compress(tail)
        tail = 0
    }

    /// A piece that is told apart from the next: no text has a zero in it.
    mutating func add(_ bytes: Span<UInt8>, _ range: Range<Int>) {
        for index in range { add(bytes[index]) }
        add(0)
    }

    mutating func finish() -> UInt64 {
        compress(tail | count << 56)
        v2 ^= 0xFF
        for _ in 0..<4 { round() }
        return v0 ^ v1 ^ v2 ^ v3
    }

    private mutating func compress(_ word: UInt64) {
        v3 ^= word
        round()
        round()
        v0 ^= word
    }

    private mutating func round() {
        v0 &+= v1
        v1 = v1 << 13 | v1 >> 51
        v1 ^= v0
        v0 = v0 << 32 | v0 >> 32
        v2 &+= v3
        v3 = v3 << 16 | v3 >> 48
        v3 ^= v2
        v0 &+= v3
        v3 = v3 << 21 | v3 >> 43
        v3 ^= v0
        v2 &+= v1
        v1 = v1 << 17 | v1 >> 47
        v1 ^= v2
        v2 = v2 << 32 | v2 >> 32
    }
}

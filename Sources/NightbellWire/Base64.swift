/// Base 64 (RFC 4648 section 4), with padding: the encoding of `NIGHTBELL_LAUNCH`.
package func base64(_ bytes: [UInt8]) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    var result: [UInt8] = []
    result.reserveCapacity((bytes.count + 2) / 3 * 4)
    for start in stride(from: 0, to: bytes.count, by: 3) {
        let group = bytes[start..<min(start + 3, bytes.count)]
        var bits: UInt32 = 0
        for index in 0..<3 {
            bits = bits << 8 | (index < group.count ? UInt32(group[start + index]) : 0)
        }
        for index in 0..<4 {
            let sextet = Int(bits >> UInt32(18 - 6 * index) & 0x3F)
            result.append(index <= group.count ? alphabet[sextet] : UInt8(ascii: "="))
        }
    }
    return String(decoding: result, as: UTF8.self)
}

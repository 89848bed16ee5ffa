import Nightbell
import NightbellWire
import Testing

@Suite("Base 64")
struct Base64Tests {
    @Test(
        "The test vectors of RFC 4648",
        arguments: [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ])
    func vectors(text: String, encoded: String) {
        #expect(base64(Array(text.utf8)) == encoded)
        #expect(Environment.decodeBase64(encoded) == Array(text.utf8))
    }

    @Test("Bytes with the top bit set")
    func highBytes() {
        #expect(base64([0xFF, 0xFE, 0xFD, 0x80]) == "//79gA==")
        for count in 0..<100 {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 97 + 131) }
            #expect(Environment.decodeBase64(base64(bytes)) == bytes)
        }
    }

    @Test(
        "Base64url, with and without padding",
        arguments: [
            ("", [] as [UInt8]?), ("Zg", [0x66]), ("Zg==", [0x66]), ("__79gA", [0xFF, 0xFE, 0xFD, 0x80]),
            ("Z", nil), ("Zg!!", nil), ("Zg Zg", nil),
        ])
    func urls(text: String, decoded: [UInt8]?) {
        #expect(bytes(ofBase64URL: text) == decoded)
    }
}

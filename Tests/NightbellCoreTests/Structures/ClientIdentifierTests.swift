import NightbellCore
import Testing

@Suite struct ClientIdentifierTests {
    @Test func acceptsExactlyTheAllowedBytes() {
        let allowed = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-".utf8)
        for byte in UInt8.min...UInt8.max {
            let name = "a" + String(decoding: [byte], as: UTF8.self)
            #expect((ClientIdentifier(name) != nil) == allowed.contains(byte), "byte \(byte)")
        }
    }

    @Test func lengthIsFrom1To128() {
        #expect(ClientIdentifier("") == nil)
        #expect(ClientIdentifier(String(repeating: "x", count: 128))?.description.count == 128)
        #expect(ClientIdentifier(String(repeating: "x", count: 129)) == nil)
    }

    @Test(arguments: ["å", "a b", "a/b", "a\u{301}", "a\0", "🔔", "a\n"])
    func refuses(_ name: String) {
        #expect(ClientIdentifier(name) == nil)
    }

    @Test func isTheNameItWasMadeOf() {
        #expect(ClientIdentifier("org.example.phone.alice")?.description == "org.example.phone.alice")
        #expect(ClientIdentifier("a") != ClientIdentifier("A"))
    }
}

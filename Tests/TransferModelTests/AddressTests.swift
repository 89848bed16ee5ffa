import Testing
import TransferModel

@Suite("Addresses of transfers")
struct AddressTests {
    @Test(
        "Addresses of http and https with a host are accepted",
        arguments: [
            ("http://example.org", "example.org"), ("HTTPS://Example.org:8443/a?b#c", "example.org:8443"),
            ("http://user:word@example.org/", "example.org"), ("http://[::1]", "[::1]"),
            ("http://[::1]:80/", "[::1]:80"), ("http://[fe80::1%25eth0]/", "[fe80::1%25eth0]"),
            ("http://127.0.0.1:65535", "127.0.0.1:65535"), ("http://example.org:/", "example.org:"),
            ("http://[::ffff:1.2.3.4]/", "[::ffff:1.2.3.4]"),
        ])
    func accepted(text: String, host: String) { #expect(TransferURL(text)?.host == host) }

    @Test(
        "Others are not",
        arguments: [
            "", "http", "http:", "http://", "http:///a", "http://:80", "ftp://example.org", "http://[::1",
            "http://[]", "http://[example]/", "http://::1", "http://[::1]80", "http://a:b", "http://a:65536",
            "http://a:-1", "http://a:1:2", "http://a]", "http://a b", "http://a\u{E9}", "http://a\\b",
            "http://[::1]]", "http://user@", "http://[::1]:99999999999999999999",
        ])
    func refused(text: String) { #expect(TransferURL(text) == nil) }
}

import SIPKit
import Testing

private func message(_ lines: String..., body: String = "") -> [UInt8] {
    Array((lines.joined(separator: "\r\n") + "\r\n\r\n" + body).utf8)
}

/// The messages of a stream cut into pieces by `cut`, and the error that ended it.
private func parse(
    _ stream: [UInt8], pieces: [Int], limits: SIPLimits = SIPLimits()
) -> ([SIPMessage], SIPParseError?) {
    var parser = SIPStreamParser(limits: limits)
    var messages: [SIPMessage] = []
    var rest = stream[...]
    var sizes = pieces[...]
    while !rest.isEmpty {
        let size = min(rest.count, sizes.popFirst() ?? rest.count)
        parser.append(rest.prefix(size))
        rest = rest.dropFirst(size)
        do throws(SIPParseError) {
            while let message = try parser.next() { messages.append(message) }
        } catch {
            return (messages, error)
        }
    }
    return (messages, nil)
}

private let torture = message(
    "INVITE sip:vivekg@chair-dnrc.example.com;unknownparam SIP/2.0",
    "TO :",
    " sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n",
    "from   : \"J Rosenberg \\\\\\\"\"       <sip:jdrosen@example.com>",
    "  ;",
    "  tag = 98asjd8",
    "MaX-fOrWaRdS: 0068",
    "Call-ID: wsinv.ndaksdj@192.0.2.1",
    "Content-Length   : 4",
    "cseq: 0009",
    "  INVITE",
    "Via  : SIP  /   2.0",
    " /UDP",
    "    192.0.2.2;branch=390skdjuw",
    "s :",
    "NewFangledHeader:   newfangled value",
    " continued newfangled value",
    "UnknownHeaderWithUnusualValue: ;;,,;;,;",
    "Route:",
    " <sip:services.example.com;lr;unknownwith=value;unknown-no-value>",
    "v:  SIP  / 2.0  / TCP     spindle.example.com   ;",
    "  branch  =   z9hG4bK9ikj8  ,",
    " SIP  /    2.0   / UDP  192.168.255.111   ; branch=",
    " z9hG4bK30239",
    "m:\"Quoted string \\\"\\\"\" <sip:jdrosen@example.com> ; newparam =",
    "      newvalue ;",
    "  secondparam ; q = 0.33",
    body: "abcd")

@Suite struct ParserTests {
    @Test func readsUnusualButValidMessages() throws {
        let parsed = try #require(try SIPMessage(datagram: torture))
        #expect(parsed.method == .invite)
        #expect(parsed.toTag == "1918181833n")
        #expect(parsed.fromTag == "98asjd8")
        #expect(parsed.headers[.maxForwards] == "0068")
        #expect(parsed.cSeq == CSeq(9, .invite))
        #expect(parsed.headers["subject"] == "")
        #expect(parsed.headers["newfangledheader"] == "newfangled value continued newfangled value")
        let vias = try parsed.headers.list(.via).map { try Via(parsing: $0) }
        #expect(vias.map(\.transport) == ["UDP", "TCP", "UDP"])
        #expect(vias.map(\.host) == ["192.0.2.2", "spindle.example.com", "192.168.255.111"])
        #expect(vias.map(\.branch) == ["390skdjuw", "z9hG4bK9ikj8", "z9hG4bK30239"])
        let contact = try NameAddress(parsing: try #require(parsed.headers[.contact]))
        #expect(contact.displayName == "\"Quoted string \\\"\\\"\"")
        #expect(contact.parameters["NEWPARAM"] == "newvalue")
        #expect(contact.parameters["secondparam"] == "")
        #expect(parsed.body == Array("abcd".utf8))
    }

    @Test func writtenMessagesReadTheSame() throws {
        let first = try #require(try SIPMessage(datagram: torture))
        let again = try #require(try SIPMessage(datagram: first.serialized()))
        #expect(again.startLine == first.startLine)
        #expect(again.body == first.body)
        let withoutLength = { (message: SIPMessage) in
            message.headers.fields.filter { $0.name != .contentLength }
        }
        #expect(withoutLength(again) == withoutLength(first))
    }

    @Test func anyCutOfTheStreamGivesTheSameMessages() throws {
        let bye = message("BYE sip:a@b SIP/2.0", "Via: SIP/2.0/TCP h;branch=z9hG4bKx", "l: 0")
        let ok = message("SIP/2.0 200 ", "i: 77@h", "Content-Length: 3", body: "\r\n\r")
        let stream = Array("\r\n\r\n".utf8) + torture + bye + Array("\r\n".utf8) + ok + torture
        let whole = parse(stream, pieces: [])
        #expect(whole.0.count == 4)
        #expect(whole.1 == nil)
        let oneByOne = parse(stream, pieces: Array(repeating: 1, count: stream.count))
        #expect(oneByOne.0 == whole.0)
        for cut in stream.indices { #expect(parse(stream, pieces: [cut]).0 == whole.0, "cut at \(cut)") }
        var random = SystemRandomNumberGenerator()
        for _ in 0..<500 {
            let pieces = (0..<200).map { _ in Int.random(in: 1...60, using: &random) }
            #expect(parse(stream, pieces: pieces).0 == whole.0, "pieces \(pieces)")
        }
    }

    @Test(
        arguments: [
            (
                "INVITE sip:a@b SIP/7.0\r\nl: 0\r\n\r\n",
                SIPParseError.unsupportedVersion("INVITE sip:a@b SIP/7.0")
            ),
            ("INVITE  sip:a@b SIP/2.0\r\nl: 0\r\n\r\n", .malformedStartLine("INVITE  sip:a@b SIP/2.0")),
            ("SIP/2.0 99 No\r\nl: 0\r\n\r\n", .malformedStartLine("SIP/2.0 99 No")),
            ("SIP/2.0 2OO OK\r\nl: 0\r\n\r\n", .malformedStartLine("SIP/2.0 2OO OK")),
            ("OPTIONS sip:a@b SIP/2.0\r\nl: -1\r\n\r\n", .invalidContentLength("-1")),
            ("OPTIONS sip:a@b SIP/2.0\r\nl: +1\r\n\r\n", .invalidContentLength("+1")),
            ("OPTIONS sip:a@b SIP/2.0\r\nl: 1\r\nContent-Length: 2\r\n\r\n", .invalidContentLength("1, 2")),
            (
                "OPTIONS sip:a@b SIP/2.0\r\nl: 99999999999999999999\r\n\r\n",
                .invalidContentLength("99999999999999999999")
            ),
            ("OPTIONS sip:a@b SIP/2.0\r\nl: 65537\r\n\r\n", .bodyTooLong(limit: 65_536)),
            ("OPTIONS sip:a@b SIP/2.0\r\nVia: x\r\n\r\n", .missingContentLength),
            ("OPTIONS sip:a@b SIP/2.0\r\nNo colon here\r\nl: 0\r\n\r\n", .malformedHeader("No colon here")),
            ("OPTIONS sip:a@b SIP/2.0\r\nBad Name: x\r\nl: 0\r\n\r\n", .malformedHeader("Bad Name: x")),
            ("OPTIONS sip:a@b SIP/2.0\r\n folded: x\r\nl: 0\r\n\r\n", .malformedHeader(" folded: x")),
            ("OPTIONS sip:a@b SIP/2.0\r\nA: b\nl: 0\r\n\r\n", .malformedHeader("A: b")),
            ("OPTIONS sip:a@b SIP/2.0\r\nA: b\u{0}c\r\nl: 0\r\n\r\n", .malformedHeader("A: b")),
        ])
    func refusesMalformedMessages(text: String, error: SIPParseError) {
        let stream = Array(text.utf8)
        #expect(parse(stream, pieces: []).1 == error)
        #expect(parse(stream, pieces: Array(repeating: 1, count: stream.count)).1 == error)
    }

    @Test func anErrorStays() throws {
        var parser = SIPStreamParser()
        parser.append(Array("garbage\r\n\r\n".utf8))
        #expect(throws: SIPParseError.malformedStartLine("garbage")) { try parser.next() }
        parser.append(message("OPTIONS sip:a@b SIP/2.0", "l: 0"))
        #expect(throws: SIPParseError.malformedStartLine("garbage")) { try parser.next() }
    }

    @Test func sizesAreBounded() {
        var limits = SIPLimits()
        limits.headBytes = 200
        limits.headers = 4
        let endless =
            Array("OPTIONS sip:a@b SIP/2.0\r\nX: ".utf8) + Array(repeating: UInt8(ascii: "x"), count: 300)
        #expect(parse(endless, pieces: [], limits: limits).1 == .headTooLong(limit: 200))
        #expect(
            parse(endless, pieces: Array(repeating: 1, count: 400), limits: limits).1
                == .headTooLong(limit: 200))
        let many = message("OPTIONS sip:a@b SIP/2.0", "A: 1", "B: 1", "C: 1", "D: 1", "l: 0")
        #expect(parse(many, pieces: [], limits: limits).1 == .tooManyHeaders(limit: 4))
    }

    @Test func notUTF8IsRefused() {
        let bytes =
            Array("OPTIONS sip:a@b SIP/2.0\r\nX: ".utf8) + [0xC3, 0x28] + Array("\r\nl: 0\r\n\r\n".utf8)
        #expect(parse(bytes, pieces: []).1 == .notUTF8)
    }

    @Test func datagramsEndWhereTheyEnd() throws {
        let head = ["OPTIONS sip:a@b SIP/2.0", "Via: SIP/2.0/UDP h;branch=z9hG4bKx"]
        let open = try SIPMessage(datagram: message(head[0], head[1], body: "rest"))
        #expect(open?.body == Array("rest".utf8))
        let longer = try SIPMessage(datagram: message(head[0], head[1], "l: 2", body: "rest"))
        #expect(longer?.body == Array("re".utf8))
        #expect(throws: SIPParseError.truncated) {
            try SIPMessage(datagram: message(head[0], head[1], "l: 5", body: "rest"))
        }
        #expect(throws: SIPParseError.truncated) { try SIPMessage(datagram: Array("OPTIONS".utf8)) }
        #expect(try SIPMessage(datagram: Array("\r\n\r\n".utf8)) == nil)
        #expect(try SIPMessage(datagram: []) == nil)
    }

    @Test func randomBytesNeverTrap() {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<2_000 {
            var bytes = torture
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(
                    in: 0...255, using: &random)
            }
            guard let parsed = try? SIPMessage(datagram: bytes) else { continue }
            _ = (
                parsed.topVia, parsed.cSeq, parsed.toTag, parsed.fromTag, parsed.response(200, "OK", tag: "t")
            )
            _ = parsed.headers.list(.route).map { try? NameAddress(parsing: $0) }
            _ = parsed.headers.all(.contact).map { DigestChallenge(parsing: $0) }
        }
    }
}

@Suite struct AddressTests {
    @Test(
        arguments: [
            "sip:alice@example.com", "sips:alice:secret@example.com:5061;transport=tcp?Subject=x",
            "sip:[2001:db8::10]:5070;lr", "sip:user;par=u%40example.net@example.com", "sip:example.com",
        ])
    func urisReadAsTheyAreWritten(text: String) throws {
        #expect(try SIPURI(parsing: text).description == text)
    }

    @Test(
        arguments: [
            "sip:", "sip:@host", "sip:host:port", "sip:host:99999", "sip:host:-1", "sip:[::1", "nothing",
            "sip:;lr",
            "sip:a b@c d",
        ])
    func malformedURIs(text: String) {
        #expect(throws: SIPParseError.self) { try SIPURI(parsing: text) }
    }

    @Test func otherSchemesAreNamed() {
        #expect(throws: SIPParseError.unsupportedScheme("tel:+1")) { try SIPURI(parsing: "tel:+1") }
    }

    @Test func parametersBelongWhereTheBracketSays() throws {
        let bare = try NameAddress(parsing: "sip:a@b;tag=1")
        #expect(bare.parameters["tag"] == "1")
        #expect(bare.uri.parameters.isEmpty)
        let bracketed = try NameAddress(parsing: "\"A, <B>; C\" <sip:a@b;lr>;tag=2")
        #expect(bracketed.displayName == "\"A, <B>; C\"")
        #expect(bracketed.uri.parameters["lr"] == "")
        #expect(bracketed.parameters["tag"] == "2")
        #expect(throws: SIPParseError.self) { try NameAddress(parsing: "<sip:a@b") }
    }

    @Test func listsSplitOutsideQuotesAndBrackets() {
        let headers: SIPHeaders = [
            .route: "<sip:a,b@c;lr>, \"x,\\\"y\" <sip:d@e>", .contact: "<sip:z@z>", .route: "<sip:f@g;lr>",
        ]
        #expect(headers.list(.route) == ["<sip:a,b@c;lr>", "\"x,\\\"y\" <sip:d@e>", "<sip:f@g;lr>"])
    }

    @Test(arguments: ["-1 INVITE", "2147483648 INVITE", "1", "one INVITE", "1 INVITE x"])
    func malformedCSeq(text: String) {
        #expect(throws: SIPParseError.self) { try CSeq(parsing: text) }
    }
}

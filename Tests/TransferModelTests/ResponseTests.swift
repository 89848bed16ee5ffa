import Testing
import TransferModel

@Suite("The meaning of a response")
struct ResponseTests {
    private static func head(_ lines: String) throws -> ResponseHead {
        let lines = lines.split(separator: "\n")
        var head = try #require(ResponseHead(statusLine: lines[0]))
        for line in lines.dropFirst() { head.add(line: line) }
        return head
    }

    private let tag = Validator.entityTag("\"a\"")
    private var partial: PartialBody { PartialBody(bytes: 100, total: 300, validator: tag) }
    private var asked: PartialBody.Request { .range(from: 100, ifRange: tag) }

    private func decide(_ lines: String, _ partial: PartialBody? = nil) throws -> ResponseDecision {
        let partial = partial ?? self.partial
        return partial.decide(try Self.head(lines), asked: partial.request)
    }

    @Test("A part with a validator is continued, any other is fetched anew")
    func requests() {
        #expect(partial.request == asked)
        #expect(PartialBody().request == .whole)
        #expect(PartialBody(bytes: 100, total: 300).request == .whole)
        #expect(PartialBody(bytes: 0, total: 300, validator: tag).request == .whole)
        #expect(PartialBody(bytes: 300, total: 300, validator: tag).request == .nothing)
        #expect(PartialBody(bytes: 301, total: 300, validator: tag).request == .whole)
        #expect(
            PartialBody(bytes: 5, validator: tag).request == .range(from: 5, ifRange: tag))
    }

    @Test("206 with the bytes that were asked for continues")
    func appends() throws {
        let full =
            "HTTP/1.1 206 Partial Content\nContent-Range: bytes 100-299/300\nETag: \"a\"\nContent-Length: 200"
        #expect(try decide(full) == .append(partial))
        let terse = "HTTP/2 206\ncontent-range: bytes 100-299/300"
        #expect(try decide(terse) == .append(partial))
        let unknown = "HTTP/2 206\ncontent-range: bytes 100-299/*"
        #expect(try decide(unknown) == .append(partial))
    }

    @Test(
        "206 that does not fit to the part is started over",
        arguments: [
            "Content-Range: bytes 0-299/300", "Content-Range: bytes 99-299/300",
            "Content-Range: bytes 100-399/400", "Content-Range: bytes 100-299/300\nETag: \"b\"",
            "Content-Range: bytes 100-299/300\nETag: W/\"a\"", "Content-Range: octets 100-299/300",
            "Content-Range: bytes 299-100/300", "Content-Range: bytes 100-300/300", "ETag: \"a\"",
            "Content-Range: bytes 100-299/300\nContent-Length: 300",
            "Content-Range: bytes 100-299/300\nContent-Encoding: gzip",
        ])
    func misfits(lines: String) throws {
        #expect(try decide("HTTP/1.1 206 Partial Content\n" + lines) == .startOver)
    }

    @Test("206 to a request for the whole is a mistake of the server")
    func unasked() throws {
        let lines = "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-299/300"
        #expect(try decide(lines, PartialBody()) == .fail(.status(206)))
    }

    @Test("200 replaces the part, because the representation has changed or ranges are not known")
    func replaces() throws {
        let lines = "HTTP/1.1 200 OK\nContent-Length: 400\nETag: \"b\""
        let whole = PartialBody(bytes: 0, total: 400, validator: .entityTag("\"b\""))
        #expect(try decide(lines) == .replace(whole))
        #expect(try decide("HTTP/1.1 200 OK") == .replace(PartialBody()))
        #expect(try decide("HTTP/1.1 200 OK\nContent-Encoding: br") == .fail(.encoded))
        #expect(try decide("HTTP/1.1 204 No Content\n", PartialBody()) == .replace(PartialBody()))
    }

    @Test("416 ends a part of unknown length if that was all, and starts any other over")
    func unsatisfied() throws {
        let lines = "HTTP/1.1 416 Range Not Satisfiable\nContent-Range: bytes */100"
        let open = PartialBody(bytes: 100, validator: tag)
        let all = PartialBody(bytes: 100, total: 100, validator: tag)
        #expect(try decide(lines, open) == .complete(all))
        #expect(try decide(lines + "\nETag: \"b\"", open) == .startOver)
        #expect(try decide("HTTP/1.1 416 no\nContent-Range: bytes */99", open) == .startOver)
        #expect(try decide("HTTP/1.1 416 no", open) == .startOver)
        #expect(try decide(lines) == .startOver)
        #expect(try decide(lines, PartialBody()) == .fail(.status(416)))
    }

    @Test("412 starts a part over, and fails the condition of a client")
    func conditions() throws {
        #expect(try decide("HTTP/1.1 412 Precondition Failed") == .startOver)
        #expect(try decide("HTTP/1.1 412 Precondition Failed", PartialBody()) == .fail(.status(412)))
    }

    @Test("Failures that pass are tried again, others are not")
    func failures() throws {
        for status in [408, 425, 429, 500, 502, 503, 504] {
            #expect(try decide("HTTP/1.1 \(status) x") == .retry(afterSeconds: nil))
        }
        #expect(try decide("HTTP/1.1 503 x\nRetry-After: 30") == .retry(afterSeconds: 30))
        #expect(try decide("HTTP/1.1 503 x\nRetry-After: -1") == .retry(afterSeconds: nil))
        #expect(try decide("HTTP/1.1 401 x") == .needsCredentials)
        for status in [304, 400, 403, 404, 410, 413, 451, 501] {
            #expect(try decide("HTTP/1.1 \(status) x") == .fail(.status(status)))
        }
    }

    @Test("Without the length of the whole, 206 does not tell where the rest ends")
    func withoutLength() throws {
        let lines = "HTTP/2 206\ncontent-range: bytes 100-299/*"
        let part = PartialBody(bytes: 100, validator: .entityTag("\"a\""))
        #expect(try decide(lines, part) == .startOver)
    }

    @Test("A part is continued by a strong validator only")
    func validators() throws {
        let weak = Validator.entityTag("W/\"a\"")
        #expect(Validator(try Self.head("HTTP/2 200\nETag: W/\"a\"")) == weak && !weak.isStrong)
        #expect(PartialBody(bytes: 5, validator: weak).request == .whole)
        #expect(Validator(try Self.head("HTTP/2 200\nETag: W/a")) == nil)
        #expect(Validator(try Self.head("HTTP/2 200\nETag: a")) == nil)
        #expect(Validator(try Self.head("HTTP/2 200\nETag: \"\"")) == .entityTag("\"\""))
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT"
        let dated = "HTTP/2 200\nLast-Modified: \(modified)\nDate: Sun, 06 Nov 1994 "
        #expect(Validator(try Self.head(dated + "08:49:39 GMT")) == .lastModified(modified))
        #expect(Validator(try Self.head(dated + "08:49:38 GMT")) == nil)
        #expect(Validator(try Self.head("HTTP/2 200\nLast-Modified: \(modified)")) == nil)
        // A weak tag says that the date is not exact enough.
        #expect(Validator(try Self.head(dated + "09:49:39 GMT\nETag: W/\"a\"")) == weak)
    }

    @Test("Dates are counted as in the calendar")
    func dates() {
        #expect(HTTPDate.seconds("Thu, 01 Jan 1970 00:00:00 GMT") == 0)
        #expect(HTTPDate.seconds("Sun, 06 Nov 1994 08:49:37 GMT") == 784_111_777)
        #expect(HTTPDate.seconds("Thu, 29 Feb 2024 12:00:00 GMT") == 1_709_208_000)
        #expect(HTTPDate.seconds("Fri, 01 Mar 2024 00:00:00 GMT") == 1_709_251_200)
        for text in ["", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT", "now"] {
            #expect(HTTPDate.seconds(text) == nil)
        }
    }

    @Test("The end of a body is judged by the length that was promised")
    func ends() {
        #expect(PartialBody(bytes: 5).end == .whole)
        #expect(PartialBody(bytes: 5, total: 5).end == .whole)
        #expect(PartialBody(bytes: 4, total: 5).end == .cut)
        #expect(PartialBody(bytes: 6, total: 5).end == .tooLong)
    }

    @Test("A field that is given twice with different content is as if it were not there")
    func repeatedFields() throws {
        let head = try Self.head(
            """
            HTTP/1.1 200 OK
            ETag: "a"
            etag: "b"
            ETag: "a"
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Retry-After: x
            Retry-After: 30
            Content-Encoding: gzip
            Content-Encoding: identity
            """)
        #expect(head.entityTag == nil && head.retryAfter == nil)
        #expect(head.date == "Sun, 06 Nov 1994 08:49:37 GMT" && head.isEncoded)
    }

    @Test(
        "An invalid length makes a response unusable",
        arguments: [
            "Content-Length: 5\nContent-Length: 7", "Content-Length: 7\nContent-Length: x\nContent-Length: 7",
            "Content-Length: 5, 7", "Content-Length: 5,", "Content-Length:", "Content-Length: +5",
            "Content-Length: 5x", "Content-Length : 5", "Content-Length\t: 5\nContent-Length: 5",
            "Content-Length: 99999999999999999999", "Transfer-Encoding : chunked",
        ])
    func invalidLengths(fields: String) throws {
        let head = try Self.head("HTTP/1.1 200 OK\n" + fields)
        #expect(head.hasInvalidLength && head.contentLength == nil)
        #expect(try decide("HTTP/1.1 200 OK\n" + fields) == .retry(afterSeconds: nil))
        let range = "HTTP/1.1 206 Partial Content\nContent-Range: bytes 100-299/300\n"
        #expect(try decide(range + fields) == .retry(afterSeconds: nil))
        // It has no body.
        #expect(try decide("HTTP/1.1 204 No Content\n" + fields, PartialBody()) == .replace(PartialBody()))
        #expect(try decide("HTTP/1.1 404 Not Found\n" + fields) == .fail(.status(404)))
        let chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n"
        #expect(try decide(chunked + fields) == .replace(PartialBody()))
    }

    @Test(
        "A length that is given several times is one",
        arguments: ["Content-Length: 5\nContent-Length: 5", "Content-Length: 5, 5\ncontent-length:05"])
    func repeatedLength(fields: String) throws {
        let head = try Self.head("HTTP/1.1 200 OK\n" + fields)
        #expect(!head.hasInvalidLength && head.contentLength == 5)
    }

    @Test("Broken lines of a header are ignored")
    func brokenLines() throws {
        let head = try Self.head(
            "HTTP/1.1 200 OK\nContent-Length: -1\nContent-Range: bytes x\nnonsense\nETag:")
        #expect(head.contentLength == nil && head.contentRange == nil && head.entityTag == "")
        for line in ["", "HTTP/1.1", "HTTP/1.1 abc", "200 OK", "HTTP/1.1 20 OK"] {
            #expect(ResponseHead(statusLine: line[...]) == nil)
        }
        let long = "\"" + String(repeating: "a", count: 2_000) + "\""
        #expect(try Self.head("HTTP/1.1 200 OK\nETag: \(long)").entityTag == nil)
    }
}

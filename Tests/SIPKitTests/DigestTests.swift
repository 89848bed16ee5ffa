import SIPKit
import Testing

@Suite struct DigestTests {
    /// RFC 7616 §3.9.1 and RFC 2617 §3.5.
    @Test(
        arguments: [
            (DigestAlgorithm.md5, "8ca523f5e9506fed4657c9700eebdbec"),
            (.sha256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ])
    func vectorsOfRFC7616(algorithm: DigestAlgorithm, response: String) {
        let challenge = DigestChallenge(
            realm: "http-auth@example.org", nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
            algorithm: algorithm)
        let credentials = DigestCredentials(
            username: "Mufasa", password: "Circle of Life", challenge: challenge, method: "GET",
            uri: "/dir/index.html", cnonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", count: 1)
        #expect(credentials.response == response)
    }

    @Test func vectorOfRFC2617() {
        let challenge = DigestChallenge(
            realm: "testrealm@host.com", nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093", algorithm: .md5)
        let credentials = DigestCredentials(
            username: "Mufasa", password: "Circle Of Life", challenge: challenge, method: "GET",
            uri: "/dir/index.html", cnonce: "0a4f113b", count: 1)
        #expect(credentials.response == "6629fae49393a05397450978507c4ef1")
    }

    @Test func withoutQualityAsInRFC2069() throws {
        let value = "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\""
        let challenge = try #require(DigestChallenge(parsing: value))
        #expect(!challenge.offersAuth)
        let credentials = DigestCredentials(
            username: "Mufasa", password: "CircleOfLife", challenge: challenge, method: "GET",
            uri: "/dir/index.html", cnonce: "x", count: 1)
        #expect(credentials.response == "1949323746fe6a43ef61f9606e7febea")
        #expect(credentials.quality == nil)
    }

    @Test func headersReadAsTheyAreWritten() throws {
        var challenge = DigestChallenge(realm: "a \"b\" \\c", nonce: "n,1", algorithm: .sha256, isStale: true)
        challenge.opaque = "o=1"
        #expect(DigestChallenge(parsing: challenge.headerValue) == challenge)
        let credentials = DigestCredentials(
            username: "u\"ser", password: "p", challenge: challenge, method: .register, uri: "sip:x",
            cnonce: "c",
            count: 0x1F)
        #expect(credentials.headerValue.contains("nc=0000001f"))
        #expect(DigestCredentials(parsing: credentials.headerValue) == credentials)
    }

    @Test(
        arguments: [
            "Basic realm=\"x\"", "Digest realm=\"x\"", "Digest nonce=\"x\"",
            "Digest realm=\"x\", nonce=\"y\", algorithm=SHA-512-256",
            "Digest realm=\"x\", nonce=\"y\", qop=\"auth-int\"",
            "Digest realm=\"x\", nonce=\"y\", nonce=\"z\"",
        ])
    func challengesThatCannotBeAnswered(value: String) {
        #expect(DigestChallenge(parsing: value) == nil)
    }

    private func request() -> SIPMessage {
        SIPMessage(.request(method: .register, uri: "sip:example.org"), headers: [.callID: "1"])
    }

    private func challenged(_ verdict: DigestServer.Verdict) throws -> SIPMessage {
        guard case .challenge(let values) = verdict else { throw Unexpected(verdict: verdict) }
        var response = SIPMessage(.response(status: 401, reason: "Unauthorized"))
        for value in values { response.headers.append(.wwwAuthenticate, value) }
        return response
    }

    private struct Unexpected: Error { var verdict: DigestServer.Verdict }

    @Test func aClientIsAcceptedAndReusesTheNonce() throws {
        var random = SystemRandomNumberGenerator()
        var server = DigestServer(realm: "example.org")
        var client = DigestClient(username: "alice", password: "secret")
        let now = ContinuousClock.now
        let first = request()
        let response = try challenged(
            server.check(first, at: now, using: &random, password: { _ in "secret" }))
        let accepted = client.accept(response, to: first)
        #expect(accepted)
        for count in 1...3 {
            var next = request()
            client.authorize(&next, using: &random)
            let credentials = try #require(
                next.headers[.authorization].flatMap(DigestCredentials.init(parsing:)))
            #expect(credentials.algorithm == .sha256)
            #expect(credentials.quality?.count == UInt32(count))
            let verdict = server.check(next, at: now, using: &random, password: { _ in "secret" })
            #expect(verdict == .accepted(username: "alice"))
            // The same request once more is a replay.
            let replayed = try challenged(
                server.check(next, at: now, using: &random, password: { _ in "secret" }))
            #expect(replayed.headers.all(.wwwAuthenticate).allSatisfy { $0.contains("stale=true") })
        }
        // When the nonce has expired, a new one is requested and given.
        var late = request()
        client.authorize(&late, using: &random)
        let stale = try challenged(
            server.check(late, at: now + .seconds(301), using: &random, password: { _ in "secret" }))
        let renewed = client.accept(stale, to: late)
        #expect(renewed)
        client.authorize(&late, using: &random)
        let verdict = server.check(late, at: now + .seconds(301), using: &random, password: { _ in "secret" })
        #expect(verdict == .accepted(username: "alice"))
    }

    @Test func aWrongPasswordIsTriedOnce() throws {
        var random = SystemRandomNumberGenerator()
        var server = DigestServer(realm: "example.org")
        var client = DigestClient(username: "alice", password: "wrong")
        var attempt = request()
        let now = ContinuousClock.now
        let response = try challenged(
            server.check(attempt, at: now, using: &random, password: { _ in "secret" }))
        let accepted = client.accept(response, to: attempt)
        #expect(accepted)
        client.authorize(&attempt, using: &random)
        let again = try challenged(
            server.check(attempt, at: now, using: &random, password: { _ in "secret" }))
        let acceptedAgain = client.accept(again, to: attempt)
        #expect(!acceptedAgain)
    }

    @Test func unknownUsersAndForeignURIsAreChallenged() throws {
        var random = SystemRandomNumberGenerator()
        var server = DigestServer(realm: "example.org", algorithms: [.md5])
        var client = DigestClient(username: "alice", password: "secret")
        var attempt = request()
        let now = ContinuousClock.now
        let response = try challenged(server.check(attempt, at: now, using: &random, password: { _ in nil }))
        let accepted = client.accept(response, to: attempt)
        #expect(accepted)
        client.authorize(&attempt, using: &random)
        _ = try challenged(server.check(attempt, at: now, using: &random, password: { _ in nil }))
        attempt.startLine = .request(method: .register, uri: "sip:elsewhere.org")
        _ = try challenged(server.check(attempt, at: now, using: &random, password: { _ in "secret" }))
    }
}

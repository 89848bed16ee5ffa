import Crypto
import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

/// Programs of UnifiedPush that name the key of their sender, or that sleep.
@Suite("Programs of UnifiedPush", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct UnifiedPushProgramTests {
    @Test("Only the sender is heard that a program has named")
    func namedSender() throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let (key, other) = (P256.Signing.PrivateKey(), P256.Signing.PrivateKey())
        let connector = try session.connector(
            "register", "2", "token-one", SenderProof.text(key.publicKey.x963Representation))
        try session.noted("REGISTRATION_SUCCEEDED")
        let claims: [String: Any] = [
            "aud": "http://127.0.0.1:\(session.fixture.port)", "exp": Date.now.timeIntervalSince1970 + 3_600,
        ]
        #expect(try session.send("of anyone") == 401)
        #expect(try session.send("of another", SenderProof.header(other, claims)) == 403)
        #expect(try session.send("proved", SenderProof.header(key, claims)) == 201)
        #expect(eventually(within: 30_000) { !session.messages.isEmpty }, "\(session.distributor.errors)")
        #expect(session.messages == ["proved".utf8.map { String(format: "%02x", $0) }.joined()])
        connector.send(signal: SIGKILL)
    }

    @Test(
        "A message of a sender that was written by others arrives as it was encrypted",
        .enabled(if: WebPushTests.isThere, "needs pywebpush"))
    func encryptedMessage() throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let sender = try Program(
            "/usr/bin/env", [WebPushTests.python, "-c", WebPushTests.program],
            environment: ["PATH": "/usr/bin:/bin"])
        try sender.wrote("\n")
        let hex = Array(sender.output.trimmingCharacters(in: .whitespacesAndNewlines))
        let key = stride(from: 0, to: hex.count, by: 2).compactMap {
            UInt8(String(hex[$0..<$0 + 2]), radix: 16)
        }
        #expect(key.count == 65 && key.first == 4)
        let connector = try session.connector("register", "2", "token-one", SenderProof.text(Data(key)))
        try session.noted("REGISTRATION_SUCCEEDED")
        let address = "http://127.0.0.1:\(session.fixture.port)" + (try session.address())
        try sender.say("nobody \(address) unproved -")
        try sender.wrote("status 401\n")
        try sender.say("sender \(address) news-of-today -")
        try sender.wrote("status 201\n")
        #expect(eventually(within: 30_000) { !session.messages.isEmpty }, "\(session.distributor.errors)")
        let message = try #require(session.messages.first)
        try sender.say("decrypt \(message)")
        try sender.wrote("clear news-of-today\n")
        #expect(session.messages.count == 1)
        connector.send(signal: SIGKILL)
    }

    @Test("A program that sleeps is woken by its message, once for each")
    func sleepingProgram() throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let supervisor = session.fixture.supervisor
        let connector = try session.sleepingConnector("chat", "register", "2", "token-one")
        try session.noted("REGISTRATION_SUCCEEDED")
        for number in 1...3 {
            try supervisor.reaches("suspended", "chat")
            let wakes = try supervisor.wakes("chat")
            #expect(try session.send("message \(number)") == 201)
            #expect(eventually(within: 30_000) { session.messages.count == number }, "\(connector.errors)")
            try supervisor.reaches("suspended", "chat")
            #expect(try supervisor.wakes("chat") == wakes + 1)
        }
        // The call that brought it was answered: no message is handed over again.
        let shown = try supervisor.shown("org.unifiedpush")
        let observations = try #require(shown["observations"] as? [[String: Any]])
        #expect(observations.first?["is_told"] as? Bool == true && session.messages.count == 3, "\(shown)")
    }
}

import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// The distributor of UnifiedPush on a message bus of its own, with a program that knows only the
/// specification.
@Suite("UnifiedPush", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct UnifiedPushTests {
    private func hex(_ text: String) -> String { text.utf8.map { String(format: "%02x", $0) }.joined() }

    @Test(
        "A program registers, gets messages as they were sent, and is started for them",
        arguments: ["1", "2"])
    func messages(version: String) throws {
        let session = try UnifiedPushSession(version: version)
        let token = "3f0ee0ac-8f5a-4f4b-9b0c-0d5c7c0a7f11"
        let connector = try session.connector("register", version, token)
        try session.noted("[\"endpoint\", \(version), {\"token\": \"\(token)\"")
        try session.noted(version == "1" ? "[\"NEW_ENDPOINT\", \"\"]" : "REGISTRATION_SUCCEEDED")
        #expect(try session.send("first") == 201)
        try session.noted("\"message\": \"\(hex("first"))\"")
        // It has no process: the bus starts it.
        connector.send(signal: SIGKILL)
        _ = try connector.outcome()
        #expect(try session.send("second") == 201)
        try session.noted("\"message\": \"\(hex("second"))\"")
        try session.noted("[\"serves\"]", times: 2)
        // The first one comes again if its answer was under way when the program was killed.
        #expect(Set(session.messages) == [hex("first"), hex("second")])
    }

    @Test("The supervisor starts a distributor that was killed, and nothing is lost")
    func killedDistributor() throws {
        let session = try UnifiedPushSession()
        let connector = try session.connector("register", "2", "token-one")
        try session.noted("REGISTRATION_SUCCEEDED")
        session.distributor.send(signal: SIGKILL)
        _ = try session.distributor.outcome()
        #expect(try session.send("after its death") == 201)
        try session.noted("\"message\": \"\(hex("after its death"))\"")
        connector.send(signal: SIGKILL)
        let shown = try session.fixture.supervisor.shown("org.unifiedpush")
        kill(pid_t(try #require(shown["process_id"] as? Int)), SIGTERM)
    }

    @Test("A distributor that the supervisor has started hands over as many messages in an hour as come")
    func startedDistributor() throws {
        let session = try UnifiedPushSession(perHour: 2)
        let connector = try session.connector("register", "2", "token-one")
        try session.noted("REGISTRATION_SUCCEEDED")
        session.distributor.send(signal: SIGKILL)
        _ = try session.distributor.outcome()
        for number in 1...5 {
            #expect(try session.send("message \(number)") == 201)
            try session.noted("\"message\": \"\(hex("message \(number)"))\"")
        }
        connector.send(signal: SIGKILL)
        let shown = try session.fixture.supervisor.shown("org.unifiedpush")
        #expect(shown["state"] as? String == "active")
        kill(pid_t(try #require(shown["process_id"] as? Int)), SIGTERM)
    }

    @Test(
        "The bus and the distributor are no programs that get messages",
        arguments: ["org.freedesktop.DBus", "org.unifiedpush.Distributor.nightbell"])
    func reservedNames(name: String) throws {
        let session = try UnifiedPushSession(isActivatable: false)
        #expect(try session.register(name, token: "token-one").contains("REGISTRATION_FAILED"))
        #expect(try session.register("org.example.Chat", token: "token-two").contains("NEW_ENDPOINT"))
        try session.stopDistributor()
    }

    @Test("A program that is not there keeps no messages from others")
    func othersOfAnAbsentProgram() throws {
        let session = try UnifiedPushSession(isActivatable: false, retry: "600s")
        let absent = try session.connector("register", "2", "token-absent")
        try session.noted("REGISTRATION_SUCCEEDED")
        let address = try session.address()
        absent.send(signal: SIGKILL)
        _ = try absent.outcome()
        let connector = try session.connector("register", "2", "token-present", service: "org.example.Other")
        try session.noted("REGISTRATION_SUCCEEDED", times: 2)
        for number in 1...3 {
            #expect(try session.fixture.post(address, headers: ["TTL: 600"], body: "absent").status == 201)
            #expect(try session.send("present \(number)") == 201)
            try session.noted("\"message\": \"\(hex("present \(number)"))\"")
        }
        connector.send(signal: SIGKILL)
    }

    @Test("A program that hangs keeps no messages from others, and gets its own once it goes on")
    func othersOfAHangingProgram() throws {
        let session = try UnifiedPushSession(isActivatable: false, retry: "600s")
        let hanging = try session.connector("register", "2", "token-hanging")
        try session.noted("REGISTRATION_SUCCEEDED")
        let address = try session.address()
        let connector = try session.connector("register", "2", "token-present", service: "org.example.Other")
        try session.noted("REGISTRATION_SUCCEEDED", times: 2)
        hanging.send(signal: SIGSTOP)
        let start = BootClock.now()
        for number in 1...3 {
            let response = try session.fixture.post(address, headers: ["TTL: 600"], body: "hanging \(number)")
            #expect(response.status == 201)
            #expect(try session.send("present \(number)") == 201)
            try session.noted("\"message\": \"\(hex("present \(number)"))\"")
        }
        // The bus waits 25 s for an answer.
        #expect(BootClock.now() - start < 15_000_000_000)
        hanging.send(signal: SIGCONT)
        for number in 1...3 { try session.noted("\"message\": \"\(hex("hanging \(number)"))\"") }
        #expect(session.log.count { $0.contains("[\"message\"") } == 6)
        for program in [hanging, connector] { program.send(signal: SIGKILL) }
    }

    @Test("Messages that come while no distributor runs are told to the next one")
    func noDistributor() throws {
        let session = try UnifiedPushSession()
        let connector = try session.connector("register", "2", "token-one")
        try session.noted("REGISTRATION_SUCCEEDED")
        try session.stopDistributor()
        #expect(try session.send("in between") == 201)
        try session.startDistributor()
        try session.noted("\"message\": \"\(hex("in between"))\"")
        connector.send(signal: SIGKILL)
        try session.stopDistributor()
    }

    @Test("Programs are told that their address has another beginning", arguments: ["1", "2"])
    func otherBeginning(version: String) throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let connector = try session.connector("register", version, "token-one")
        try session.noted("[\"endpoint\", \(version)")
        let path = try session.address()
        func restart(_ url: String) throws {
            try session.fixture.killGateway()
            try session.fixture.startGateway("--public-url", url)
        }
        func told(_ url: String) throws {
            try session.noted(
                "[\"endpoint\", \(version), {\"token\": \"token-one\", \"endpoint\": \"\(url)\(path)\"}]")
        }
        // The distributor notices another gateway …
        try restart("https://push.example.org")
        try told("https://push.example.org")
        // … also one that has come while it did not run.
        try session.stopDistributor()
        try restart("https://other.example.org")
        try session.startDistributor()
        try told("https://other.example.org")
        connector.send(signal: SIGKILL)
        try session.stopDistributor()
    }

    @Test("Programs are told that their address went with the store", arguments: ["1", "2"])
    func lostStore(version: String) throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let connector = try session.connector("register", version, "token-one")
        try session.noted("[\"endpoint\", \(version)")
        try session.fixture.killGateway()
        session.fixture.loseStore()
        try session.fixture.startGateway()
        try session.noted("[\"unregistered\", \(version), {\"token\": \"token-one\"}]")
        connector.send(signal: SIGKILL)
        try session.stopDistributor()
    }

    @Test("One program can have sixteen addresses, and takes none of another one's")
    func manyRegistrations() throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let connector = try session.connector("register", "2", "token-0")
        try session.noted("REGISTRATION_SUCCEEDED")
        let others = try (1...16).map { try session.connector("register", "2", "token-\($0)") }
        try session.noted("ACTION_REQUIRED")
        // They are processes of their own, and answered in any order.
        try session.noted("REGISTRATION_SUCCEEDED", times: 16)
        #expect(session.log.count { $0.contains("REGISTRATION_SUCCEEDED") } == 16)
        for program in [connector] + others { program.send(signal: SIGKILL) }
    }

    @Test("A message for a program that is not there waits for it")
    func absentProgram() throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let connector = try session.connector("register", "2", "token-two")
        try session.noted("REGISTRATION_SUCCEEDED")
        connector.send(signal: SIGKILL)
        _ = try connector.outcome()
        #expect(try session.send("patience") == 201)
        let again = try session.connector()
        try session.noted("\"message\": \"\(hex("patience"))\"")
        again.send(signal: SIGKILL)
    }

    @Test("In the old version, an end that the program has asked for is confirmed without its token")
    func oldConfirmation() throws {
        let session = try UnifiedPushSession(isActivatable: false)
        let first = try session.connector("register", "1", "token-one")
        try session.noted("NEW_ENDPOINT")
        let address = try session.address()
        first.send(signal: SIGKILL)
        _ = try first.outcome()
        let second = try session.connector("unregister", "1", "token-one")
        try session.noted("[\"unregistered\", 1, {\"token\": \"\"}]")
        #expect(try session.fixture.post(address, headers: ["TTL: 1"]).status == 404)
        second.send(signal: SIGKILL)
    }

    @Test("A registration ends, and belongs to the program that made it")
    func registrations() throws {
        let session = try UnifiedPushSession()
        let connector = try session.connector("register", "2", "token-three", "AAAA")
        try session.noted("\"reason\": \"ACTION_REQUIRED\"")
        connector.send(signal: SIGKILL)
        _ = try connector.outcome()
        let second = try session.connector("register", "2", "token-three")
        try session.noted("REGISTRATION_SUCCEEDED")
        let address = try session.address()
        second.send(signal: SIGKILL)
        _ = try second.outcome()
        let third = try session.connector("unregister", "2", "token-three")
        try session.noted("[\"unregistered\", 2, {\"token\": \"token-three\"}]")
        #expect(try session.fixture.post(address, headers: ["TTL: 1"]).status == 404)
        third.send(signal: SIGKILL)
    }
}

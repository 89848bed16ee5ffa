import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Bad input: each gets the documented error, and no other client notices.
@Suite struct ProtocolTests {
    /// Runs `mistake` on a connection of its own, expects the error and the end, and that a sleeping
    /// bystander sleeps on and is still woken.
    private func expectExpulsion(
        _ code: WireErrorCode, hello: Bool = true, _ mistake: (WireClient) throws -> Void
    ) throws {
        let supervisor = try TestSupervisor()
        let bystander = try WireClient(supervisor, "org.example.bystander")
        let pair = try Pair.unix()
        _ = try bystander.handOver(pair.near)
        try bystander.goToSleep()
        let client =
            hello ? try WireClient(supervisor, "org.example.phone") : try WireClient(supervisor)
        try mistake(client)
        #expect(try client.end()?.code == code)
        let other = try WireClient(supervisor)
        #expect(try other.status().counters["protocol_errors"] == 1)
        try other.wait(for: "org.example.bystander", toBe: .suspended, supervisor)
        try pair.send("still here")
        #expect(try bystander.wake().reasons == [.socket])
        try supervisor.stop()
    }

    @Test func bytesThatDoNotDecode() throws {
        try expectExpulsion(.malformedPacket) { try $0.sendRaw([0xff, 0xff, 0xff, 0xff]) }
    }

    /// Without an answer they would be useless, so they are refused.
    @Test func questionsWithoutANumberAreRefused() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let questions: [WireClientMessage.OneOf_Body] = [
            .beginBackgroundTask(.init()), .backgroundTimeRemaining(.init()),
        ]
        for question in questions {
            try client.send(question)
            let code = try client.notice { body -> WireErrorCode? in
                if case .error(let error) = body { error.code } else { nil }
            }
            #expect(code == .invalidArgument)
        }
        #expect(try client.show("org.example.phone").backgroundTasks.isEmpty)
        try supervisor.stop()
    }

    /// The tokens of the sockets would be unknown.
    @Test func aHandOverWithoutANumberIsRefused() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let event = try EventDescriptor()
        var message = WireHandOver()
        message.sockets = [.with { $0.tag = .device }]
        try client.send(.handOver(message), descriptors: [event.rawValue])
        let code = try client.notice { body -> WireErrorCode? in
            if case .error(let error) = body { error.code } else { nil }
        }
        #expect(code == .invalidArgument)
        #expect(try client.show("org.example.phone").sockets.isEmpty)
        try supervisor.stop()
    }

    @Test func everyNumberedRequestIsAnswered() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        #expect(try client.ask(.restartNoted(.with { $0.restart = 7 })) == .done(.init()))
        try supervisor.stop()
    }

    @Test func truncatedMessage() throws {
        try expectExpulsion(.malformedPacket) { client in
            var task = WireBeginBackgroundTask()
            task.name = "a name that is cut off"
            var message = WireClientMessage()
            message.body = .beginBackgroundTask(task)
            let bytes: [UInt8] = try message.serializedBytes()
            try client.sendRaw(Array(bytes.dropLast(5)))
        }
    }

    @Test func packetThatIsTooLong() throws {
        try expectExpulsion(.malformedPacket) { try $0.sendRaw([UInt8](repeating: 8, count: 65_537)) }
    }

    @Test func emptyMessage() throws {
        try expectExpulsion(.unknownMessage) { client in
            var message = WireClientMessage()
            message.request = 7
            try client.sendRaw(try message.serializedBytes())
        }
    }

    @Test func emptyPacket() throws {
        try expectExpulsion(.unknownMessage) { try $0.sendRaw([]) }
    }

    @Test func unknownMessage() throws {
        // Field 2047, unknown in every version.
        try expectExpulsion(.unknownMessage) { try $0.sendRaw([0xfa, 0x7f, 0x00]) }
    }

    @Test func messageBeforeHello() throws {
        try expectExpulsion(.helloRequired, hello: false) {
            try $0.send(.enterBackground(WireEnterBackground()), request: 1)
        }
    }

    @Test func secondHello() throws {
        try expectExpulsion(.alreadyRegistered) { client in
            var hello = WireHello()
            hello.version = 1
            hello.identifier = "org.example.second"
            try client.send(.hello(hello), request: 2)
        }
    }

    /// Two clients in one process would suspend each other.
    @Test func secondClientOfAProcess() throws {
        let daemon = try DaemonProcess(suspension: "signal")
        let first = try WireClient(path: daemon.socketPath)
        try first.hello("org.example.phone")
        let second = try WireClient(path: daemon.socketPath)
        try second.send(
            .hello(
                .with {
                    $0.version = 1
                    $0.identifier = "org.example.second"
                }), request: 1)
        #expect(try second.end()?.code == .alreadyRegistered)
        #expect(try first.show("org.example.phone").state == .inactive)
    }

    @Test func oneTaskTooMany() throws {
        let supervisor = try TestSupervisor { $0.settings.quotas.backgroundTasksPerClient = 1 }
        let client = try WireClient(supervisor, "org.example.phone")
        guard case .backgroundTask = try client.ask(.beginBackgroundTask(.init())) else {
            throw TestFailure("no task")
        }
        guard case .error(let error) = try client.ask(.beginBackgroundTask(.init())) else {
            throw TestFailure("a second task")
        }
        #expect(error.code == .invalidArgument)
        #expect(try client.show("org.example.phone").backgroundTasks.count == 1)
        try supervisor.stop()
    }

    @Test func versionOfTheFuture() throws {
        try expectExpulsion(.unsupportedVersion, hello: false) { client in
            var hello = WireHello()
            hello.version = 2
            hello.identifier = "org.example.phone"
            try client.send(.hello(hello), request: 1)
        }
    }

    @Test(arguments: ["", "with space", "ünïcode", "slash/y", String(repeating: "x", count: 129)])
    func identifierThatIsNone(identifier: String) throws {
        try expectExpulsion(.invalidIdentifier, hello: false) { client in
            var hello = WireHello()
            hello.version = 1
            hello.identifier = identifier
            try client.send(.hello(hello), request: 1)
        }
    }

    @Test func descriptorsWhereNoneBelong() throws {
        try expectExpulsion(.malformedPacket) { client in
            try client.send(.enterBackground(WireEnterBackground()), request: 2, descriptors: [0])
        }
    }

    @Test func fewerDescriptorsThanSockets() throws {
        try expectExpulsion(.malformedPacket) { client in
            var message = WireHandOver()
            message.sockets = [WireHandOver.Socket(), WireHandOver.Socket()]
            try client.send(.handOver(message), request: 2, descriptors: [0])
        }
    }

    @Test func identifierInUse() throws {
        let supervisor = try TestSupervisor()
        let first = try WireClient(supervisor, "org.example.phone")
        let second = try WireClient(supervisor)
        var hello = WireHello()
        hello.version = 1
        hello.identifier = "org.example.phone"
        try second.send(.hello(hello), request: 1)
        #expect(try second.end()?.code == .identifierInUse)
        #expect(try first.show("org.example.phone").state == .inactive)
        try supervisor.stop()
    }

    @Test func randomBytesHarmNoOtherClient() throws {
        let supervisor = try TestSupervisor()
        let bystander = try WireClient(supervisor, "org.example.bystander")
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<300 {
            let client = try WireClient(supervisor)
            let length = Int.random(in: 0..<200, using: &generator)
            let bytes = (0..<length).map { _ in UInt8.random(in: 0...255, using: &generator) }
            try client.sendRaw(bytes)
        }
        // Connections are served in order, so all of those have been served.
        #expect(try bystander.status().clientsByState["inactive"] == 1)
        try supervisor.stop()
    }

    @Test func aFloodDelaysNoOtherClient() throws {
        let supervisor = try TestSupervisor { $0.messagesPerTurn = 4 }
        let flooder = try WireClient(supervisor, "org.example.flooder")
        let client = try WireClient(supervisor, "org.example.phone")
        for _ in 0..<200 { try flooder.send(.backgroundTimeRemaining(WireBackgroundTimeRemaining())) }
        // Handled between two parts of the flood, not behind it.
        #expect(try client.show("org.example.phone").identifier == "org.example.phone")
        _ = try flooder.status()
        try supervisor.stop()
    }

    @Test func aClientThatDoesNotReadIsDisconnected() throws {
        let supervisor = try TestSupervisor { $0.outgoingBytesPerConnection = 4_096 }
        let deaf = try WireClient(supervisor)
        let bystander = try WireClient(supervisor, "org.example.bystander")
        var request: UInt64 = 0
        // Until the supervisor's answers fill the kernel's queue, then its own.
        while true {
            request += 1
            do {
                try deaf.send(.status(WireStatus()), request: request)
            } catch let error as SystemError {
                #expect(error.code == EPIPE || error.code == ECONNRESET)
                break
            }
            guard request < 100_000 else { throw TestFailure("never let go") }
        }
        #expect(try bystander.show("org.example.bystander").state == .inactive)
        try supervisor.stop()
    }

    /// An answer is one packet, and one turn's work.
    @Test func manySocketsAreShownInPart() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.unix()
        let name = String(repeating: "n", count: 64)
        for _ in 0..<4 {
            let handOver = WireHandOver.with { message in
                message.sockets = (0..<250).map { _ in
                    WireHandOver.Socket.with {
                        $0.tag = .voip
                        $0.name = name
                    }
                }
            }
            _ = try client.ask(
                .handOver(handOver), descriptors: Array(repeating: pair.near, count: 250))
        }
        let info = try client.show("org.example.phone")
        #expect(info.socketCount == 1_000 && info.sockets.count == 256)
        #expect(info.sockets.allSatisfy { $0.name == name })
        try supervisor.stop()
    }

    @Test func longListsReachSlowReaders() throws {
        let supervisor = try TestSupervisor { $0.outgoingBytesPerConnection = 4_096 }
        let clients = try (0..<400).map { try WireClient(supervisor, "org.example.phone\($0)") }
        let reader = try WireClient(supervisor)
        try reader.send(.list(WireList()), request: 1)
        try reader.send(.status(WireStatus()), request: 2)
        var identifiers: Set<String> = []
        while case .clientInfos(let part) = try reader.answer(to: 1) {
            identifiers.formUnion(part.clients.map(\.identifier))
        }
        #expect(identifiers.count == clients.count)
        guard case .supervisorStatus = try reader.answer(to: 2) else { throw TestFailure("no status") }
        try supervisor.stop()
    }
}

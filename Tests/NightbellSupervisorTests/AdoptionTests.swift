import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Descriptors of right and wrong kinds, and too many of them.
@Suite struct AdoptionTests {
    private func expectRefusal(
        _ code: WireErrorCode, _ descriptor: Int32, _ tag: WireSocketTag,
        modes: [WireMode] = [.voip, .externalAccessory]
    ) throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone", modes: modes)
        let adoption = try client.handOverAny([descriptor], tag)[0]
        #expect(adoption.error.code == code)
        #expect(try client.status().sockets == 0)
        try supervisor.stop()
    }

    @Test func regularFile() throws {
        let path = NSTemporaryDirectory() + "nightbell-file-\(UUID().uuidString)"
        let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        defer {
            close(file)
            unlink(path)
        }
        for tag in [WireSocketTag.voip, .device, .listener] { try expectRefusal(.notPollable, file, tag) }
    }

    @Test func directory() throws {
        let directory = open("/", O_RDONLY | O_CLOEXEC)
        defer { close(directory) }
        try expectRefusal(.notPollable, directory, .device)
    }

    /// It is not asked whether it is ready: its members would be.
    @Test(arguments: [false, true]) func epollSet(isReady: Bool) throws {
        let set = try PollSet()
        let event = try EventDescriptor()
        if isReady { try event.signal() }
        try set.add(event.rawValue)
        try expectRefusal(.notPollable, set.rawValue, .device)
    }

    @Test func listenerTaggedVoip() throws {
        let (listener, _) = try Pair.listener()
        defer { close(listener) }
        try expectRefusal(.listeningSocket, listener, .voip)
        try expectRefusal(.listeningSocket, listener, .device)
    }

    @Test func connectionTaggedListener() throws {
        let pair = try Pair.tcp()
        defer { withExtendedLifetime(pair) {} }
        try expectRefusal(.notAListener, pair.near, .listener)
    }

    @Test func pipeTaggedVoip() throws {
        let pair = try Pair.pipe()
        defer { withExtendedLifetime(pair) {} }
        try expectRefusal(.notASocket, pair.near, .voip)
    }

    @Test func streamWithoutPeer() throws {
        let stream = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(stream) }
        try expectRefusal(.notConnected, stream, .voip)
    }

    @Test func resetStream() throws {
        let pair = try Pair.tcp()
        pair.reset()
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let code = try client.handOverAny([pair.near])[0].error.code
        // A reset stream has a pending error and no peer any more; either may be named.
        #expect(code == .socketError || code == .notConnected)
        try supervisor.stop()
    }

    /// All descriptors are checked for errors in one call.
    @Test func aPendingErrorIsThatOfItsOwnSocket() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let good = try (0..<2).map { _ in try Pair.unix() }
        let noSocket = try Pair.pipe()
        defer { withExtendedLifetime((good, noSocket)) {} }
        let failed = try Pair.udp(connected: true)
        failed.closeFar()
        // The kernel answers that there is no receiver.
        try #require(send(failed.near, "?", 1, 0) == 1)
        try #require(
            Poll.wait(failed.near, for: .readable, timeoutMilliseconds: 10_000).contains(.error))
        let adoptions = try client.handOverAny([
            good[0].near, noSocket.near, failed.near, good[1].near,
        ])
        #expect(adoptions.map(\.error.code) == [.unspecified, .notASocket, .socketError, .unspecified])
        try supervisor.stop()
    }

    @Test func modeNotDeclared() throws {
        let pair = try Pair.tcp()
        defer { withExtendedLifetime(pair) {} }
        try expectRefusal(.modeRequired, pair.near, .voip, modes: [])
        try expectRefusal(.modeRequired, pair.near, .device, modes: [.voip, .location])
    }

    @Test func eachOfManyIsInspectedByItself() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let good = try (0..<249).map { _ in try Pair.unix() }
        let bad = try Pair.pipe()
        defer { withExtendedLifetime((good, bad)) {} }
        let adoptions = try client.handOverAny(good.map(\.near) + [bad.near])
        #expect(adoptions.count == 250)
        #expect(adoptions.dropLast().allSatisfy { $0.token != 0 })
        #expect(Set(adoptions.dropLast().map(\.token)).count == 249)
        #expect(adoptions.last?.error.code == .notASocket)
        #expect(try client.status().sockets == 249)
        try supervisor.stop()
    }

    /// Its descriptors must not be used, least of all by the next HandOver.
    @Test func refusedHandOverLeavesNothingForTheNext() throws {
        let supervisor = try TestSupervisor()
        let careless = try WireClient(supervisor, "org.example.careless")
        let next = try WireClient(supervisor, "org.example.next")
        let left = try Pair.unix()
        var message = WireHandOver()
        message.sockets = [WireHandOver.Socket(), WireHandOver.Socket()]
        message.sockets[0].tag = .voip
        guard
            case .error(let error) = try careless.ask(
                .handOver(message), descriptors: [left.near, left.near])
        else { throw TestFailure("a socket without a tag was adopted") }
        #expect(error.code == .invalidArgument)
        left.closeNear()
        // The supervisor has closed both.
        try #require(!Poll.wait(left.far, for: .readable, timeoutMilliseconds: 10_000).isEmpty)

        let pair = try Pair.unix()
        let token = try next.handOver(pair.near)
        try next.goToSleep()
        try pair.send("for the next")
        #expect(try next.wake().sockets.map(\.token) == [token])
        try supervisor.stop()
    }

    @Test func quotaOfTheClient() throws {
        let supervisor = try TestSupervisor { $0.settings.quotas.socketsPerClient = 2 }
        let client = try WireClient(supervisor, "org.example.phone")
        let pairs = try (0..<3).map { _ in try Pair.unix() }
        defer { withExtendedLifetime(pairs) {} }
        let adoptions = try client.handOverAny(pairs.map(\.near))
        #expect(adoptions[2].error.code == .tooManySockets)
        var release = WireRelease()
        release.token = adoptions[0].token
        #expect(try client.ask(.release(release)) == .done(WireDone()))
        _ = try client.handOver(pairs[2].near)
        try supervisor.stop()
    }

    @Test func quotaOfTheUserCountsAllItsClients() throws {
        let supervisor = try TestSupervisor { $0.settings.quotas.socketsPerUser = 3 }
        let pairs = try (0..<4).map { _ in try Pair.unix() }
        defer { withExtendedLifetime(pairs) {} }
        let first = try WireClient(supervisor, "org.example.first")
        let second = try WireClient(supervisor, "org.example.second")
        _ = try first.handOverAny([pairs[0].near, pairs[1].near])
        let adoptions = try second.handOverAny([pairs[2].near, pairs[3].near])
        #expect(adoptions[0].token != 0)
        #expect(adoptions[1].error.code == .tooManySockets)
        try supervisor.stop()
    }

    @Test func clientsPerUser() throws {
        let supervisor = try TestSupervisor { $0.settings.quotas.clientsPerUser = 1 }
        let first = try WireClient(supervisor, "org.example.first")
        let second = try WireClient(supervisor)
        var hello = WireHello()
        hello.version = 1
        hello.identifier = "org.example.second"
        try second.send(.hello(hello), request: 1)
        #expect(try second.end()?.code == .tooManyClients)
        #expect(try first.status().clientsByState["inactive"] == 1)
        try supervisor.stop()
    }

    @Test func connectionsPerUser() throws {
        let supervisor = try TestSupervisor { $0.connectionsPerUser = 2 }
        let first = try WireClient(supervisor)
        _ = try first.status()
        let second = try WireClient(supervisor)
        _ = try second.status()
        #expect(try WireClient(supervisor).end()?.code == .tooManyConnections)
        #expect(try second.status().connections == 2)
        try supervisor.stop()
    }

    @Test func tokensOfOtherClientsAreUnknown() throws {
        let supervisor = try TestSupervisor()
        let owner = try WireClient(supervisor, "org.example.owner")
        let thief = try WireClient(supervisor, "org.example.thief")
        let pair = try Pair.unix()
        defer { withExtendedLifetime(pair) {} }
        var release = WireRelease()
        release.token = try owner.handOver(pair.near)
        guard case .error(let error) = try thief.ask(.release(release)) else { throw TestFailure("stolen") }
        #expect(error.code == .invalidToken)
        for token in [0, 1, UInt64.max, release.token ^ 1 << 32] {
            release.token = token
            guard case .error(let error) = try owner.ask(.release(release)) else {
                throw TestFailure("found")
            }
            #expect(error.code == .invalidToken)
        }
        #expect(try owner.status().sockets == 1)
        try supervisor.stop()
    }

    @Test func socketsGoWithTheirOwner() throws {
        let supervisor = try TestSupervisor()
        let observer = try WireClient(supervisor)
        let pair = try Pair.tcp()
        var client: WireClient? = try WireClient(supervisor, "org.example.phone")
        _ = try client?.handOver(pair.near)
        #expect(try observer.status().sockets == 1)
        client = nil
        pair.closeNear()
        // The peer sees the end as soon as the supervisor has closed its duplicate.
        var byte: UInt8 = 0
        #expect(recv(pair.far, &byte, 1, 0) == 0)
        #expect(try observer.status().sockets == 0)
        try supervisor.stop()
    }

    /// A stream that lingers makes close(2) wait for its peer; the supervisor must not. The same goes for a
    /// Unix socket that has the stream in its unread input.
    @Test(arguments: [false, true]) func lingeringSocketDelaysNoClient(isInInput: Bool) throws {
        let supervisor = try TestSupervisor()
        let bystander = try WireClient(supervisor, "org.example.bystander")
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        try pair.fillAndLinger()
        let box = try SeqPacketSocket.pair()
        var release = WireRelease()
        if isInInput {
            #expect(try box.second.send([1], descriptors: [pair.near]))
            release.token = try client.handOver(box.first.rawValue)
        } else {
            release.token = try client.handOver(pair.near)
        }
        // While the supervisor has a duplicate this does not linger; from here on the supervisor's is the
        // last.
        pair.closeNear()
        try box.separate { first, second throws in
            first.takeDescriptor().close()
            let began = BootClock.now()
            #expect(try client.ask(.release(release)) == .done(WireDone()))
            #expect(try bystander.show("org.example.bystander").state == .inactive)
            #expect(BootClock.now() - began < 30_000_000_000)
            withExtendedLifetime(second) {}
        }
        try supervisor.stop()
    }
}

import Foundation
import NightbellWire
import Testing

/// Events that wake a sleeping client, and their reasons. No process is really stopped here (`none`): this
/// tests the protocol.
@Suite struct WakeTests {
    enum Kind: CaseIterable {
        case tcp, udp, connectedUDP, unix

        func make() throws -> Pair {
            switch self {
            case .tcp: try .tcp()
            case .udp: try .udp(connected: false)
            case .connectedUDP: try .udp(connected: true)
            case .unix: try .unix()
            }
        }

        var isStream: Bool { self == .tcp || self == .unix }
    }

    @Test(arguments: Kind.allCases) func trafficWakesAndIsLeftForTheOwner(kind: Kind) throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try kind.make()
        let token = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
        try pair.send("INVITE")
        let wake = try client.wake()
        #expect(wake.reasons == [.socket])
        #expect(wake.sockets.map(\.token) == [token])
        #expect(wake.sockets[0].readable)
        #expect(!wake.sockets[0].peerClosed && !wake.sockets[0].hangUp && !wake.sockets[0].error)
        #expect(wake.asleepNs > 0)
        #expect(pair.received() == "INVITE")
        try supervisor.stop()
    }

    @Test(arguments: Kind.allCases) func unreadInputWakesAtOnce(kind: Kind) throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try kind.make()
        try pair.send("early")
        let token = try client.handOver(pair.near)
        try client.goToSleep()
        #expect(try client.wake().sockets.map(\.token) == [token])
        #expect(pair.received() == "early")
        try supervisor.stop()
    }

    @Test(arguments: Kind.allCases.filter(\.isStream)) func peerThatClosesWakesOnce(kind: Kind) throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try kind.make()
        _ = try client.handOver(pair.near, name: "flow")
        try client.goToSleep()
        try pair.send("last words")
        pair.closeFar()
        let wake = try client.wake()
        if wake.sockets[0].peerClosed == false {
            // The bytes came first: the end is another wake.
            #expect(pair.received() == "last words")
            try client.finish(wake)
            try client.ready(try client.prepare())
            #expect(try client.wake().sockets[0].peerClosed)
        } else {
            #expect(pair.received() == "last words")
            try client.finish(wake)
        }
        // An end is reported once: it does not disturb the next sleep.
        try client.ready(try client.prepare())
        try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
        #expect(try client.show("org.example.phone").sockets.map(\.condition) == ["ended"])
        try supervisor.stop()
    }

    @Test func halfCloseIsNotAHangUp() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        shutdown(pair.far, Int32(SHUT_WR))
        let socket = try client.wake().sockets[0]
        #expect(socket.peerClosed && !socket.hangUp && !socket.error)
        // The other half still works.
        #expect(write(pair.near, "bye", 3) == 3)
        try supervisor.stop()
    }

    @Test func resetIsAnErrorThatIsLeftForTheOwner() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
        pair.reset()
        let socket = try client.wake().sockets[0]
        #expect(socket.error)
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(pair.near, SOL_SOCKET, SO_ERROR, &code, &length)
        #expect(code == ECONNRESET)
        try supervisor.stop()
    }

    @Test func oneByteAtATimeWakesOncePerSleep() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.enterBackground()
        var received = ""
        for byte in "REGISTER" {
            try client.ready(try client.prepare())
            try pair.send(String(byte))
            let wake = try client.wake()
            received += pair.received()
            try client.finish(wake)
        }
        #expect(received == "REGISTER")
        try supervisor.stop()
    }

    @Test func eventsOfOneTurnMakeOneWake() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pairs = try (0..<5).map { _ in try Pair.unix() }
        for pair in pairs { try pair.send("x") }
        var tokens: Set<UInt64> = []
        for pair in pairs { tokens.insert(try client.handOver(pair.near)) }
        try client.goToSleep()
        #expect(Set(try client.wake().sockets.map(\.token)) == tokens)
        try supervisor.stop()
    }

    @Test func devicesAndListenersWake() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone", modes: [.externalAccessory])
        let pipe = try Pair.pipe()
        let (listener, address) = try Pair.listener()
        defer { close(listener) }
        let device = try client.handOver(pipe.near, .device)
        let door = try client.handOver(listener, .listener)
        try client.goToSleep()
        try pipe.send("tick")
        let wake = try client.wake()
        #expect(wake.sockets.map(\.token) == [device])
        var buffer = [UInt8](repeating: 0, count: 16)
        #expect(read(pipe.near, &buffer, 16) == 4)
        try client.finish(wake)
        try client.ready(try client.prepare())
        let caller = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(caller) }
        #expect(Pair.withAddress(address, { connect(caller, $0, $1) }) == 0)
        #expect(try client.wake().sockets.map(\.token) == [door])
        try supervisor.stop()
    }

    @Test func aReleasedSocketDoesNotWakeAndEndsForThePeer() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        var pair = try Pair.tcp()
        let token = try client.handOver(pair.near)
        var release = WireRelease()
        release.token = token
        #expect(try client.ask(.release(release)) == .done(WireDone()))
        guard case .error(let error) = try client.ask(.release(release)) else {
            throw TestFailure("released twice")
        }
        #expect(error.code == .invalidToken)
        // Once the owner closes it too, the peer sees the end: no duplicate is left.
        let far = dup(pair.far)
        defer { close(far) }
        pair = try Pair.unix()
        var byte: UInt8 = 0
        #expect(recv(far, &byte, 1, 0) == 0 || errno == ECONNRESET)
        try supervisor.stop()
    }
}
